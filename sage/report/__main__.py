"""Build the report of one suite from its metric files: tables, figures and ``index.html``.

In: ``data/{suite}/metrics``. Out: ``reports/{suite}``. The same files give the same bytes.
"""

import argparse

from sage.cli import entry


def main() -> None:
    """Parse the command line and build."""
    parser = argparse.ArgumentParser(prog="python -m sage.report", description=__doc__)
    parser.add_argument("--config", required=True, help="the suite's file, e.g. workflow/config/demo.yaml")
    parser.add_argument("--figure", metavar="NAME", help="draw this figure again, and nothing else, e.g. pass_at_k")
    arguments = parser.parse_args()
    from sage.config import load_suite
    from sage.errors import UserError, nearest
    from sage.report.build import build, redraw
    from sage.report.figures import FIGURES

    suite, name = load_suite(arguments.config), arguments.figure
    if name and name not in FIGURES:
        raise UserError(f"--figure: no figure '{name}'{nearest(name, list(FIGURES))}")
    print(redraw(suite, name) if name else build(suite))


if __name__ == "__main__":
    entry(main)
