"""The paper's figures beside ours: a row a method, k and benchmark (or the average) that the paper reports for the suite.

In: ``workflow/config/reported.yaml``. Out: rows and ``tables/reported.md``, for the suites that stand there only.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import pandas as pd
from pydantic import Field, model_validator

from sage import paths
from sage.report.read import Results
from sage.report.statistics import interval
from sage.strict import Strict, read_yaml, validate

Rate = Annotated[float, Field(ge=0, le=1)]
HEADINGS = ["Method", "Benchmark", "k", "Reported", "Ours [95 % interval]", "Difference", "n"]


class Figure(Strict):
    """What the paper reports of a method at one k; a benchmark's key is its name in the suite."""

    method: str
    k: Annotated[int, Field(ge=1)]
    average: Rate
    aime: Rate | None = None
    amc23: Rate | None = None


class Paper(Strict):
    """The paper's figures for one suite."""

    benchmarks: list[str]
    figures: list[Figure]

    @model_validator(mode="after")
    def _each_once(self) -> "Paper":
        keys = [(figure.method, figure.k) for figure in self.figures]
        if len(set(keys)) < len(keys):
            raise ValueError("figures: a method and k stand twice")
        return self


class Reported(Strict):
    """The content of the file."""

    source: str
    suites: dict[str, Paper]


@dataclass(frozen=True)
class Row:
    """A reported figure, and ours: mean and bounds of its interval over n seeds, nan where there are none."""

    label: str
    benchmark: str
    k: int
    reported: float
    mean: float
    low: float
    high: float
    n: int


def load() -> Reported:
    """Read the reported figures; a fault is a :class:`UserError`."""
    return validate(Reported, read_yaml(paths.REPORTED), str(paths.REPORTED))


def compare(results: Results) -> list[Row]:
    """Return a row for each reported figure of the suite's methods; none for a suite that the paper does not have."""
    paper = load().suites.get(results.suite.name)
    if paper is None:
        return []
    rows = []
    for figure in (figure for figure in paper.figures if figure.method in results.labels):
        for name in ("average", *paper.benchmarks):
            value = getattr(figure, name, None)
            if value is not None:
                ours = _ours(results, figure, paper.benchmarks if name == "average" else [name])
                rows.append(Row(results.labels[figure.method], name, figure.k, value, *ours))
    return rows


def _ours(results: Results, figure: Figure, benchmarks: list[str]) -> tuple[float, float, float, int]:
    """Return mean, bounds and n of ours over seeds that have all of ``benchmarks``."""
    curves = results.curves
    primary = results.cells[0]["primary"]
    chosen = curves[(curves["method"] == figure.method) & (curves["k"] == figure.k) & (curves["metric"] == primary)]
    table: pd.DataFrame = chosen.pivot(index="seed", columns="benchmark", values="value").reindex(columns=benchmarks)
    found = interval(table.dropna().mean(axis=1))
    return found.mean, found.low, found.high, found.n


def cells(row: Row) -> list[str]:
    """Return the cells of a row under :data:`HEADINGS`."""
    ours = "–" if not row.n else f"{row.mean:.3f}"
    bounds = "" if math.isnan(row.low) else f" [{row.low:.3f}, {row.high:.3f}]"
    difference = "–" if not row.n else f"{row.mean - row.reported:+.3f}"
    return [row.label, row.benchmark, str(row.k), f"{row.reported:.3f}", ours + bounds, difference, str(row.n)]


def note() -> str:
    """Return where the figures come from, and how to read the table."""
    return (
        f"Reported: {load().source}. Ours: mean over training seeds, Student's interval. The paper's own spread is not in"
        " the difference: a difference inside our interval is no contradiction, one outside it need not be one."
    )


def markdown(results: Results, rows: list[Row]) -> str:
    """Return ``reported.md``."""
    lines = [f"# {results.suite.title}: beside the paper", "", f"| {' | '.join(HEADINGS)} |"]
    lines += [f"|{' --- |' * len(HEADINGS)}", *(f"| {' | '.join(cells(row))} |" for row in rows)]
    return "\n".join([*lines, "", note(), ""])
