"""Reading what a report stands on. What is missing or broken is left out, named in one line, and shown as a hole.

Out: :class:`Results`, with long-form tables whose rows are ordered as the suite's file orders methods and benchmarks.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from sage import grid, paths
from sage.evaluate.verify import SCHEMA

if TYPE_CHECKING:
    from sage.config import Suite


@dataclass(frozen=True)
class Results:
    """Everything that was measured for a suite."""

    suite: "Suite"
    cells: list[dict[str, Any]]  # contents of the files of counts
    curves: pd.DataFrame  # suite, method, label, seed, benchmark, metric, k, value: every k
    logs: pd.DataFrame  # the step logs of reinforcement learning: method, label, seed and the logs' columns
    runs: list[dict[str, Any]]  # side files of training runs: method, seed, seconds, commit, ...
    problems: list[str]  # one line for each file that is missing or broken

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the methods, in the suite's order."""
        return {name: method.label for name, method in self.suite.loaded_methods.items()}


def read(suite: "Suite") -> Results:
    """Read all files of the grid of ``suite``."""
    problems: list[str] = []
    cells = [c for c in (_cell(path, problems) for path in grid.counts(suite)) if c is not None]
    rows = [row for cell in cells for row in _curve_rows(cell)]
    columns = ["suite", "method", "label", "seed", "benchmark", "metric", "k", "value"]
    logs = [_log(suite, method, seed, problems) for method in grid.trained(suite) for seed in suite.seeds]
    logs = [log for log in logs if log is not None]
    return Results(
        suite=suite,
        cells=cells,
        curves=pd.DataFrame(rows, columns=columns),
        logs=pd.concat(logs, ignore_index=True) if logs else pd.DataFrame(columns=["method", "label", "seed", "step"]),
        runs=_runs(suite),
        problems=problems,
    )


def _cell(path: Path, problems: list[str]) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        problems.append(f"{path}: missing")
        return None
    except ValueError as error:
        problems.append(f"{path}: not valid JSON ({error})")
        return None
    if content.get("schema") != SCHEMA:
        problems.append(f"{path}: schema {content.get('schema')}, this report reads {SCHEMA}; grade it again")
        return None
    return content


def _curve_rows(cell: dict[str, Any]) -> list[dict[str, Any]]:
    shared = {name: cell[name] for name in ("suite", "method", "label", "seed", "benchmark")}
    curves = {**cell["curve"], **({"chance": cell["chance"]} if cell["chance"] else {})}
    return [
        {**shared, "metric": metric, "k": k, "value": value}
        for metric, curve in curves.items()
        for k, value in enumerate(curve, start=1)
    ]


def _log(suite: "Suite", method: str, seed: int, problems: list[str]) -> pd.DataFrame | None:
    path = paths.training_log(suite.name, method, seed)
    try:
        log = pd.read_csv(path)
    except (OSError, ValueError) as error:
        problems.append(f"{path}: no step log ({type(error).__name__})")
        return None
    label = suite.loaded_methods[method].label
    return pd.DataFrame({"method": method, "label": label, "seed": seed}, index=log.index).join(log)


def _runs(suite: "Suite") -> list[dict[str, Any]]:
    runs = []
    for method in suite.methods:
        for seed in suite.seeds if method != "base" else suite.seeds[:1]:
            path = paths.training_log(suite.name, method, seed).with_suffix(".run.json")
            if path.is_file():
                runs.append({"method": method, "seed": seed, **json.loads(path.read_text(encoding="utf-8"))})
    return runs
