"""Cost against size: an iteration at 1 to 8 times the tokens, grading at 1 to 16 times the answers, a report at 1 to 100
times the cells. A ratio is the time beside the smallest size's times the factor: below 1 is better than linear.
"""

import itertools
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import yaml

from benchmarks.cases import CONFIG, Ours, laptop
from benchmarks.commands import ROOT, run
from benchmarks.compare import Result, seconds, share
from sage import tasks
from sage.config import load_suite
from sage.evaluate.grading import Grader

LINEAR = "<= 1.1"  # room for what a busy machine adds
Work = Callable[[], object]


@contextmanager
def iteration(size: int) -> Iterator[Work]:
    """Give an iteration of the laptop model with ``size`` times 64 completions."""
    training = Ours(laptop(prompts=4 * size))
    training.iterate()
    yield training.iterate


@contextmanager
def grading(size: int) -> Iterator[Work]:
    """Give the grading of ``size`` times 2,000 different answers to puzzles."""
    suite, task = load_suite(CONFIG / "laptop.yaml"), tasks.load("knights")
    records = task.build(suite.dataset("sft").model_copy(update={"size": 1000}), 0)
    draw = np.random.default_rng(0)
    chosen = [records[int(i)] for i in draw.integers(0, len(records), 2000 * size)]
    texts = [task.target(record) for record in chosen]
    texts = [text[: int(draw.integers(len(text) // 2, len(text) + 1))] + " " * (i % 7) for i, text in enumerate(texts)]
    with Grader(task) as grader:
        yield lambda: grader.grade(chosen, texts)


@contextmanager
def report(size: int) -> Iterator[Work]:
    """Give the report of ``size`` times the 16 cells of the demo suite: its metric files under further seeds."""
    with tempfile.TemporaryDirectory() as folder:
        root, seeds = Path(folder), range(1, 2 * size + 1)
        for part in ("workflow", "sage"):
            (root / part).symlink_to(ROOT / part)
        content = yaml.safe_load((CONFIG / "demo.yaml").read_text())
        content["demo"]["seeds"] = list(seeds)
        (root / "suite.yaml").write_text(yaml.safe_dump(content))
        for method, seed in itertools.product(content["demo"]["methods"], seeds):
            source, target = (p / f"data/demo/metrics/{method}" for p in (ROOT, root))
            shutil.copytree(source / f"seed{2 - seed % 2}", target / f"seed{seed}")
            for counts in (target / f"seed{seed}").glob("*.counts.json"):
                counts.write_text(json.dumps({**json.loads(counts.read_text()), "seed": seed}))
            for log in source.glob("training.*"):
                shutil.copy(log, target)
        yield lambda: run(sys.executable, "-m", "sage.report", "--config", "suite.yaml", cwd=root)


CURVES = {
    "GRPO iteration, tokens": (iteration, (1, 2, 4, 8)),
    "grading, answers": (grading, (1, 4, 16)),
    "report, cells": (report, (1, 10, 100)),
}


def measure(small: bool) -> list[tuple[str, int, list[float]]]:
    """Return what was measured, its size and the seconds of each round, rounds of all sizes in turn."""
    found = []
    for name, (prepare, sizes) in CURVES.items():
        times: dict[int, list[float]] = {size: [] for size in ((1, 2) if small else sizes)}
        for size in times:
            with prepare(size) as work:
                times[size] = [seconds(work) for _ in range(1 if small or name.startswith("report") else 5)]
        found += [(name, size, values) for size, values in times.items()]
    return found


def results(small: bool = False) -> list[Result]:
    """Return each size beside the smallest."""
    measured = measure(small)
    if not small:
        draw(measured)
    smallest = {name: min(values) for name, size, values in measured if size == 1}
    return [
        share(f"{name} x {size}", [(value, size * smallest[name]) for value in values], "s", LINEAR)
        for name, size, values in measured
        if size > 1
    ]


def draw(measured: list[tuple[str, int, list[float]]]) -> None:
    """Draw seconds against size, with a dotted line for cost in proportion to size, into ``scaling.svg``."""
    import matplotlib.pyplot as plt
    import pandas as pd
    import seaborn as sns
    from matplotlib.ticker import NullLocator

    sns.set_theme(style="whitegrid", context="paper", rc={"svg.hashsalt": "sage"})
    table = pd.DataFrame([(n, size, s) for n, size, values in measured for s in values], columns=["what", "size", "s"])
    grid = sns.FacetGrid(table, col="what", sharex=False, sharey=False, height=2.6)
    grid.map_dataframe(sns.lineplot, x="size", y="s", marker="o", estimator="median", errorbar=("pi", 100))
    for axes, (_, rows) in zip(grid.axes.flat, table.groupby("what", sort=False), strict=True):
        sizes = rows["size"].unique()
        axes.plot(sizes, sizes * rows[rows["size"] == 1]["s"].min(), ":", color="0.4")
        axes.set(xscale="log", yscale="log")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(sizes, map(str, sizes))
    grid.set_titles("{col_name}").set_axis_labels("times the smallest size", "seconds")
    grid.savefig(ROOT / "benchmarks/scaling.svg", metadata={"Date": None})
    plt.close(grid.figure)
