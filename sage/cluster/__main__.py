"""Training runs as jobs: launch one of them and wait for it, or show where all of them stand."""

import argparse
import json
from typing import Any

from sage.cli import entry


def main() -> None:
    """Parse the command line; see the subcommands."""
    parser = argparse.ArgumentParser(prog="python -m sage.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("launch", help="train one method with one seed, as a job or here, and wait for it")
    one.add_argument("--config", required=True, help="the suite's file, e.g. workflow/config/demo.yaml")
    one.add_argument("--method", required=True, help="one of the suite's methods; base is the fine-tuning")
    one.add_argument("--seed", type=int, default=0, help="one of the suite's training seeds; base has none")
    one.add_argument("--launcher", choices=["inline", "local", "slurm"], default="inline", help="where it runs")
    one.add_argument("--resources", default="{}", help="JSON of Snakemake's resources, e.g. '{\"runtime\": 60}'")
    grid = commands.add_parser("status", help="show every training run: done, running, queued, failed or missing")
    grid.add_argument("--config", nargs="+", metavar="FILE", help="suites' files; without it all of workflow/config")
    arguments = parser.parse_args()
    (_launch if arguments.command == "launch" else _status)(arguments)


def _launch(arguments: argparse.Namespace) -> None:
    from sage.cluster.launch import launch
    from sage.cluster.run import Run
    from sage.config import load_suite

    suite = load_suite(arguments.config)
    if arguments.method != "base":
        suite.objective(arguments.method)
        suite.check_seed(arguments.seed)
    launch(Run(suite, arguments.method, arguments.seed), arguments.launcher, _resources(arguments.resources))


def _resources(text: str) -> dict[str, Any]:
    from sage.errors import UserError

    try:
        return dict(json.loads(text))
    except ValueError as error:
        raise UserError(f"--resources: no JSON object ({error}); give it as '{{\"runtime\": 60}}'") from None


def _status(arguments: argparse.Namespace) -> None:
    from sage.cluster.status import show

    show(arguments.config)


if __name__ == "__main__":
    entry(main)
