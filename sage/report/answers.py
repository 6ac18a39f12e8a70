"""The table of what else the same completions say: majority votes, diversity, shares of answers that are none.

In: the files ``{benchmark}.answers.json`` of the grid. Out: a long table, a row a number, and Markdown.
"""

import json
import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from sage import grid
from sage.evaluate.verify import SCHEMA
from sage.report.tables import cell_text

if TYPE_CHECKING:
    from sage.config import Suite

COLUMNS = ["suite", "method", "label", "seed", "benchmark", "metric", "value"]
NOTE = (
    "Mean +- standard deviation over seeds (ddof 1), n seeds. `avg@n`: share of right completions. `maj@k`: how often the"
    " majority of k completions is right, ties broken at random, in expectation; all right answers are one vote, an answer"
    " that is none is no vote. `distinct`: different answers a problem. Votes and the verdicts unparseable, timeout and"
    " error are on the answer alone."
)


def long(suite: "Suite") -> pd.DataFrame:
    """Return one row a cell and number, in the order of the suite's file; a cell without its file has none."""
    rows = []
    for file, (method, seed, benchmark) in zip(grid.answers(suite), grid.cells(suite), strict=True):
        shared = (suite.name, method, suite.loaded_methods[method].label, seed, benchmark)
        content = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        if content.pop("schema", None) == SCHEMA:
            rows += [(*shared, metric, value) for metric, value in _flat(content)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _flat(content: dict[str, Any]) -> list[tuple[str, float]]:
    """Return names and values; ``avg@n`` has one for each grade."""
    pairs: list[tuple[str, float]] = []
    for name, value in content.items():
        if name == "maj":
            pairs += value.items()
        elif isinstance(value, dict):
            pairs += [(f"{grade} {name}", share) for grade, share in value.items()]
        else:
            pairs.append((name, value))
    return pairs


def markdown(suite: "Suite") -> str:
    """Return the table as GitHub Markdown, a row a benchmark and method; a hole is an en dash."""
    table = long(suite)
    metrics = list(dict.fromkeys(table["metric"]))
    groups = dict(iter(table.groupby(["benchmark", "method", "metric"])["value"])) if len(table) else {}
    head = ["Benchmark", "Method", "n", *metrics]
    lines = [f"# {suite.title}: answers", "", f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for benchmark in suite.benchmarks:
        for method, content in suite.loaded_methods.items():
            values = [groups.get((benchmark, method, metric)) for metric in metrics]
            n = max((len(v) for v in values if v is not None), default=0)
            texts = [cell_text(None if v is None else _mean(v)) for v in values]
            lines.append(f"| {' | '.join([benchmark, content.label, str(n), *texts])} |")
    return "\n".join([*lines, "", NOTE, ""])


def _mean(values: pd.Series) -> tuple[float, float]:
    return float(values.mean()), float(values.std()) if len(values) > 1 else math.nan
