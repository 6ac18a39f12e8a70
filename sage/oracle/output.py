"""The oracle's table and figure, with the same bytes for the same rows."""

import os
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

GUIDES = {"none": "no guide (q = 1)", "branch": "Branch (state only)", "token": "Token (state and action)"}


def write(rows: list[dict[str, Any]], folder: Path) -> None:
    """Write ``fixed_points.csv``, ``.svg`` and ``.png`` into ``folder``, each atomically.

    Distances are rounded to 1e-7: far below what is claimed of them, and the same on every machine.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame(rows).round({"tv_shaped": 7, "tv_plain": 7, "expected_reward": 7})
    table[["tv_shaped", "tv_plain"]] += 0.0  # no negative zero
    temporary = folder / ".fixed_points.csv"
    table.to_csv(temporary, index=False, lineterminator="\n")
    os.replace(temporary, folder / "fixed_points.csv")  # noqa: PTH105
    figure = draw(table)
    for suffix in ("svg", "png"):
        temporary = folder / f".fixed_points.{suffix}"
        metadata = {"Date": None} if suffix == "svg" else {"Software": None}
        figure.savefig(temporary, format=suffix, dpi=150, bbox_inches="tight", metadata=metadata)
        temporary.replace(folder / f"fixed_points.{suffix}")
    plt.close(figure)


def draw(table: pd.DataFrame) -> Figure:
    """Return the figure: for each guide and estimator, one dot a tree, the expected update beside sampled training."""
    matplotlib.rcParams.update({"svg.hashsalt": "sage", "svg.fonttype": "path"})
    sns.set_theme(style="whitegrid", context="notebook")
    kinds = {"ascent": "exact ascent", "expected": "expected update", "sampled": "sampled training"}
    shown = table.assign(update=table["update"].map(kinds), guide=table["guide"].map(GUIDES))
    grid = sns.catplot(
        data=shown,
        x="tv_shaped",
        y="estimator",
        hue="update",
        hue_order=list(kinds.values()),
        col="guide",
        col_order=list(GUIDES.values()),
        kind="strip",
        dodge=True,
        jitter=False,
        palette="colorblind",
        height=4.6,
        aspect=0.85,
        size=7,
    )
    grid.set_titles("{col_name}")
    grid.set_axis_labels(r"TV distance to $\pi_{ref}\, q\, e^{r/\beta} / Z$", "")
    grid.set(xlim=(-0.01, None))
    sns.move_legend(grid, "lower center", bbox_to_anchor=(0.5, -0.07), ncol=3, title=None)
    return grid.figure
