"""The report: from metric files and step logs to tables, figures and a page. It loads no model and no sample."""
