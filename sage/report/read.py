"""Reading what a report stands on. What is missing or broken is left out, named in one line, and shown as a hole.

Out: :class:`Results`, with long-form tables whose rows are ordered as the suite's file orders methods and benchmarks.
"""

import json
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from sage import grid, manifest, paths
from sage.evaluate import passk
from sage.evaluate.verify import SCHEMA

if TYPE_CHECKING:
    from sage.config import Suite

# What a file of counts must have to be read.
CELL = ("suite", "method", "label", "seed", "benchmark", "n", "kl", "primary", "grades", "problems", "curve", "chance")


@dataclass(frozen=True)
class Results:
    """Everything that was measured for a suite."""

    suite: "Suite"
    cells: list[dict[str, Any]]  # contents of the files of counts
    curves: pd.DataFrame  # suite, method, label, seed, benchmark, metric, k, value: every k
    logs: pd.DataFrame  # the step logs of reinforcement learning: method, label, seed and the logs' columns
    runs: list[dict[str, Any]]  # training and sampling: stage, seconds, commit, packages
    patterns: list[dict[str, Any]]  # shares of completions with a pattern of reasoning, where they were looked for
    entropies: pd.DataFrame  # method, label, seed, benchmark, entropy, tokens, guide; empty where nothing was annotated
    problems: list[str]  # one line for each file that is missing or broken

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the methods, in the suite's order."""
        return {name: method.label for name, method in self.suite.loaded_methods.items()}

    def missing(self, benchmark: str, labels: list[str]) -> list[str]:
        """Return a line for each of ``labels`` that lacks seeds on ``benchmark``."""
        found = Counter(cell["label"] for cell in self.cells if cell["benchmark"] == benchmark)
        whole = len(self.suite.seeds)
        return [f"{label}: {found[label]} of {whole} seeds" for label in labels if found[label] < whole]

    @cached_property
    def counts(self) -> pd.DataFrame:
        """How many completions each grade calls correct: method, seed, benchmark, problem, metric, correct, n."""
        columns = ["method", "seed", "benchmark", "problem", "metric", "correct", "n"]
        rows = [
            (c["method"], c["seed"], c["benchmark"], problem["id"], grade, problem[grade]["correct"], c["n"])
            for c in self.cells
            for problem in c["problems"]
            for grade in c["grades"]
        ]
        return pd.DataFrame(rows, columns=columns)

    def problems_at(self, method: str, metric: str, k: int, seeds: list[int]) -> pd.Series:
        """Return pass@k of every problem of ``method`` under ``seeds``, indexed by benchmark, problem and seed."""
        table = self.counts
        chosen = table[(table["method"] == method) & (table["metric"] == metric) & table["seed"].isin(seeds)]
        values = [passk.value(correct, n, k) for correct, n in zip(chosen["correct"], chosen["n"], strict=True)]
        return pd.Series(values, pd.MultiIndex.from_frame(chosen[["benchmark", "problem", "seed"]]), dtype=float)


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
        runs=_runs(suite, problems),
        patterns=[p for p in (_load(path, problems) for path in grid.patterns(suite) if path.is_file()) if p],
        entropies=_entropies(suite, problems),
        problems=problems,
    )


def _load(path: Path, problems: list[str]) -> dict[str, Any] | None:
    """Return the object in a JSON file; None and a line in ``problems`` where there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        problems.append(f"{path}: missing")
    except (OSError, ValueError) as error:
        problems.append(f"{path}: not valid JSON ({error})")
    else:
        if isinstance(content, dict):
            return content
        problems.append(f"{path}: not a JSON object")
    return None


def _cell(path: Path, problems: list[str]) -> dict[str, Any] | None:
    content = _load(path, problems)
    if content is None:
        return None
    lacking = [name for name in CELL if name not in content]
    if content.get("schema") != SCHEMA:
        problems.append(f"{path}: schema {content.get('schema')}, this report reads {SCHEMA}; grade it again")
    elif lacking:
        problems.append(f"{path}: lacks {lacking[0]}; grade it again")
    else:
        return content
    return None


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
    # What was cut off leaves cells empty, or the table without its columns.
    if not {"step", "reward"} <= set(log.columns) or not len(log) or log.iloc[-1].isna().any():
        problems.append(f"{path}: half a step log; train {method} seed {seed} again")
        return None
    label = suite.loaded_methods[method].label
    return pd.DataFrame({"method": method, "label": label, "seed": seed}, index=log.index).join(log)


def _entropies(suite: "Suite", problems: list[str]) -> pd.DataFrame:
    columns = ["benchmark", "entropy", "tokens", "guide"]
    tables = [pd.DataFrame(columns=["method", "label", "seed", *columns])]
    for method, label in ((name, m.label) for name, m in suite.loaded_methods.items()):
        for seed in suite.seeds:
            path = paths.entropies(suite.name, method, seed)
            if not path.is_file():
                continue
            try:
                table = pd.read_csv(path)[columns]
            except (OSError, ValueError, KeyError) as error:
                problems.append(f"{path}: no table of entropies ({type(error).__name__}); make the rollouts again")
            else:
                tables.append(pd.DataFrame({"method": method, "label": label, "seed": seed}, table.index).join(table))
    return pd.concat([table for table in tables if len(table)] or tables, ignore_index=True)


def _runs(suite: "Suite", problems: list[str]) -> list[dict[str, Any]]:
    """Return the side files of training and sampling that are there: ``stage``, seconds, commit, packages."""
    found = []
    for method in suite.methods:
        for seed in suite.seeds if method != "base" else suite.seeds[:1]:
            log, made = paths.training_log(suite.name, method, seed), paths.checkpoint(suite.name, method, seed)
            found.append(("training", log.with_suffix(".run.json"), made / manifest.NAME))
    for cell in grid.cells(suite):
        folder = paths.samples(suite.name, *cell)
        found.append(("sampling", folder / "run.json", folder / manifest.NAME))
    return [_run(*files, problems) for files in found if files[1].is_file()]


def _run(stage: str, side: Path, made: Path, problems: list[str]) -> dict[str, Any]:
    run, content = _load(side, problems) or {}, (_load(made, problems) if made.is_file() else None) or {}
    versions = {**content.get("packages", {}), **({"sage": content["sage"]} if "sage" in content else {})}
    return {"stage": stage, "seconds": run.get("seconds", 0), "commit": run.get("commit", ""), "packages": versions}
