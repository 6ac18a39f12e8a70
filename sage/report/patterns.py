"""The table of reasoning patterns: shares of completions, mean and std over seeds, with the definitions that were used."""

import math
import statistics
from typing import Any

from sage import patterns
from sage.report.read import Results
from sage.report.tables import cell_text

NOTE = (
    "Share of all completions that show a pattern, mean over benchmarks, +- standard deviation over seeds. The definitions"
    " are ours: the paper names the patterns but does not say how it counts them, so these are not the paper's numbers."
)


def names(results: Results) -> list[str]:
    """Return the names of the patterns."""
    return list(next(iter(results.patterns[0]["benchmarks"].values()))["shares"]) if results.patterns else []


def definitions(results: Results) -> list[str]:
    """Return each pattern with its definition, for every kind of task that the suite has."""
    tasks = {results.suite.benchmark(name).task for name in results.suite.benchmarks}
    kinds = {id(patterns.of_task(task)): patterns.of_task(task) for task in sorted(tasks)}
    return [f"{name}: {pattern.definition}." for kind in kinds.values() for name, pattern in kind.items()]


def rows(results: Results) -> list[tuple[str, int, list[tuple[float, float] | None]]]:
    """Return a row a method: its label, n, and (mean, std) of each pattern; None where no seed was looked at."""
    table = []
    for method, label in results.labels.items():
        mine = [list(p["benchmarks"].values()) for p in results.patterns if p["method"] == method]
        table.append((label, len(mine), [_over_seeds(mine, name) for name in names(results)]))
    return table


def _over_seeds(seeds: list[list[dict[str, Any]]], name: str) -> tuple[float, float] | None:
    values = [statistics.mean(benchmark["shares"][name] for benchmark in benchmarks) for benchmarks in seeds]
    if not values:
        return None
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else math.nan


def markdown(results: Results) -> str:
    """Return ``patterns.md``."""
    head = ["Method", "n", *names(results)]
    lines = [
        f"# {results.suite.title}: patterns of reasoning",
        "",
        f"| {' | '.join(head)} |",
        f"|{' --- |' * len(head)}",
    ]
    lines += [f"| {' | '.join([label, str(n), *map(cell_text, values)])} |" for label, n, values in rows(results)]
    return "\n".join([*lines, "", NOTE, "", *(f"- {line}" for line in definitions(results)), ""])
