"""A cell of the grid: (suite, method, seed, benchmark), and the command line that names some of one policy."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sage import manifest, paths

if TYPE_CHECKING:
    from sage.config import Suite
    from sage.tasks import Record


@dataclass(frozen=True)
class Cell:
    """One benchmark of one method and seed."""

    suite: "Suite"
    method: str
    seed: int
    benchmark: str

    @property
    def samples(self) -> Path:
        """Folder of the cell's completions."""
        return paths.samples(self.suite.name, self.method, self.seed, self.benchmark)

    @property
    def task(self) -> Any:
        """The module of the benchmark's task."""
        from sage import tasks

        return tasks.load(self.suite.benchmark(self.benchmark).task)

    def problems(self) -> tuple[list["Record"], str]:
        """Return the benchmark's records and the hash of their file; :class:`UserError` where it is not intact."""
        from sage import tasks

        folder = paths.processed(self.suite.name, self.benchmark)
        content = manifest.require(folder)
        return tasks.read_records(folder / "records.jsonl"), manifest.payload_hash(content)


def parse(
    program: str, description: str | None, more: argparse.ArgumentParser | None = None
) -> tuple[list[Cell], argparse.Namespace]:
    """Read --config, --method, --seed and --benchmark from the command line, and check them against the suite.

    ``more`` has the arguments that only this program knows; all are returned beside the cells, one a benchmark.
    """
    parser = argparse.ArgumentParser(prog=program, description=description, parents=[more] if more else [])
    parser.add_argument("--config", required=True, help="the suite's file, e.g. workflow/config/demo.yaml")
    parser.add_argument("--method", required=True, help="one of the suite's methods, e.g. grpo_branch")
    parser.add_argument("--seed", required=True, type=int, help="one of the suite's seeds")
    parser.add_argument("--benchmark", required=True, nargs="+", help="benchmarks of the suite, e.g. knights_n4")
    arguments = parser.parse_args()
    policy = (arguments.config, arguments.method, arguments.seed)
    return [chosen(*policy, benchmark) for benchmark in dict.fromkeys(arguments.benchmark)], arguments


def chosen(config: str | Path, method: str, seed: int, benchmark: str) -> Cell:
    """Return a cell, checked against its suite."""
    from sage.config import load_suite

    suite = load_suite(config)
    suite.method(method)
    suite.benchmark(benchmark)
    return Cell(suite, method, suite.check_seed(seed), benchmark)
