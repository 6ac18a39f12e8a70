"""Write ``dvc.yaml``: what `dvc metrics`, `dvc plots` and `dvc repro` work on, for suites whose results are committed.

In: the suites' files. Out: ``dvc.yaml`` with every metric file of the grid, plots of the step logs and of the report's
figures, and a report stage per suite with the very command that the workflow runs. It trains nothing.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sage import grid, manifest, paths
from sage.cli import entry

if TYPE_CHECKING:
    from sage.config import Suite

HEADER = (
    "# Written by `make dvc-yaml`; a test compares it with the suites' files. The jobs are Snakemake's (Snakefile).\n"
)
CURVES = {"reward": "Training reward", "entropy": "Entropy of the policy in nats", "kl": "Divergence from the anchor"}


def main() -> None:
    """Parse the command line and write ``dvc.yaml``."""
    parser = argparse.ArgumentParser(prog="python -m sage.dvcyaml", description=__doc__)
    parser.add_argument("suites", nargs="+", type=Path, help="the suites' files, e.g. workflow/config/demo.yaml")
    from sage.config import load_suite

    suites = [load_suite(file) for file in parser.parse_args().suites]
    manifest.write_atomic(Path("dvc.yaml"), render(suites))


def render(suites: list["Suite"]) -> str:
    """Return the text of ``dvc.yaml`` for ``suites``."""
    import yaml

    content = {
        "metrics": [str(file) for suite in suites for file in grid.metrics(suite)],
        "plots": [plot for suite in suites for plot in plots(suite)],
        "stages": {f"report-{suite.name}": report(suite) for suite in suites},
    }
    return HEADER + yaml.safe_dump(content, sort_keys=False, width=120)


def plots(suite: "Suite") -> list[dict[str, Any]]:
    """Return one plot a column of the step logs, with a line a training run, and the report's figures."""
    from sage.report.figures import FIGURES

    logs = [str(file) for file in grid.training_logs(suite)]
    curves = [
        {
            f"{suite.name}: {title}": {
                "template": "linear",
                "x": "step",
                "y": dict.fromkeys(logs, column),
                "title": title,
            }
        }
        for column, title in CURVES.items()
    ]
    figures = [paths.report(suite.name) / "figures" / f"{name}.svg" for name in FIGURES]
    return [*curves, *({str(figure): None} for figure in figures if figure.is_file())]


def report(suite: "Suite") -> dict[str, Any]:
    """Return the stage that refreshes the report from the committed files."""
    return {
        "cmd": f"python -m sage.report --config {suite.path}",
        "deps": [
            str(paths.DATA / suite.name / "metrics"),
            "sage/report",
            str(suite.path),
            str(paths.METHODS),
            str(paths.CLAIMS),
            str(paths.REPORTED),
        ],
        "outs": [{str(paths.report(suite.name)): {"cache": False, "persist": True}}],
    }


if __name__ == "__main__":
    entry(main)
