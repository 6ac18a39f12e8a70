"""Build the report of one suite from its metric files: tables, figures and ``index.html``.

In: ``data/{suite}/metrics``. Out: ``reports/{suite}``. The same files give the same bytes.
"""

import argparse

from sage.cli import entry


def main() -> None:
    """Parse the command line and build."""
    parser = argparse.ArgumentParser(prog="python -m sage.report", description=__doc__)
    parser.add_argument("--config", required=True, help="the suite's file, e.g. workflow/config/demo.yaml")
    arguments = parser.parse_args()
    from sage.config import load_suite
    from sage.report.build import build

    print(build(load_suite(arguments.config)))


if __name__ == "__main__":
    entry(main)
