"""Figures: one function each, seaborn on Agg, one style, the same colour for a method everywhere."""

from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sage.report.read import Results

# Colours that colour-blind readers tell apart (Okabe and Ito, 2008, and two greys); a method keeps its place in the list.
COLOURS = ["#555555", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#B2A100", "#7F3C8D", "#11A579"]
LOGGED = {
    "reward": "training reward (strict)",
    "entropy": "entropy [nats]",
    "kl": "divergence from the anchor",
    "length": "completion length [tokens]",
    "grad_norm": "gradient norm",
    "guide_mean": "mean guide q",
}


def style() -> None:
    """Set the one style; without hash salts and dates the same numbers give the same bytes."""
    sns.set_theme(style="whitegrid", context="notebook", font="DejaVu Sans")
    matplotlib.rcParams.update(
        {
            "svg.hashsalt": "sage",
            "svg.fonttype": "path",
            "axes.titlesize": 12,
            "axes.labelsize": 11,
            "legend.fontsize": 10,
        }
    )


def palette(results: Results) -> dict[str, str]:
    """Return the colour of each method's label."""
    return {label: COLOURS[i % len(COLOURS)] for i, label in enumerate(results.labels.values())}


def dashes(results: Results) -> dict[str, tuple[int, ...] | str]:
    """Return the line style of each method's label: colours that come round again are dashed."""
    patterns: list[tuple[int, ...] | str] = ["", (4, 2), (1, 1)]
    return {label: patterns[i // len(COLOURS) % 3] for i, label in enumerate(results.labels.values())}


def pass_at_k(results: Results) -> Figure:
    """Draw pass@k against k: a row a grade, a column a benchmark, mean over seeds with a band of one std."""
    grades = results.cells[0]["grades"]
    names = list(results.suite.benchmarks)
    figure, axes = plt.subplots(
        len(grades), len(names), figsize=(4.2 * len(names) + 1, 3.5 * len(grades)), sharex=True, squeeze=False
    )
    for i, grade in enumerate(grades):
        for j, benchmark in enumerate(names):
            axis, chosen = axes[i][j], results.curves["benchmark"] == benchmark
            _curves(axis, results, results.curves[chosen & (results.curves["metric"] == grade)])
            chance = results.curves[chosen & (results.curves["metric"] == "chance")].drop_duplicates("k")
            if grade == "answer" and len(chance):
                axis.plot(chance["k"], chance["value"], color="black", ls=":", lw=1.5, label="chance (guessing)")
            axis.set(
                title=f"{benchmark}, {grade}",
                xlabel="k" if i == len(grades) - 1 else "",
                ylabel="pass@k" if j == 0 else "",
            )
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter(matplotlib.ticker.ScalarFormatter())
            axis.set_ylim(bottom=0)
    _legend(figure, axes[-1][0])
    return figure


def _curves(axis: Axes, results: Results, data: pd.DataFrame) -> None:
    if len(data):
        sns.lineplot(
            data=data, x="k", y="value", hue="label", style="label", errorbar="sd", ax=axis, legend=True,
            palette=palette(results), dashes=dashes(results),
            hue_order=list(results.labels.values()), style_order=list(results.labels.values()),
        )  # fmt: skip


def _legend(figure: Figure, axis: Axes) -> None:
    """Put one legend for all panels under them."""
    handles, labels = axis.get_legend_handles_labels()
    for each in figure.axes:
        if (legend := each.get_legend()) is not None:
            legend.remove()
    figure.tight_layout()
    figure.legend(
        handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=min(6, len(labels)), frameon=False
    )


def first_against_last(results: Results) -> Figure:
    """Draw pass@1 against pass@n of the rewarded grade: one dot a seed."""
    ks, names = results.suite.evaluate.ks, list(results.suite.benchmarks)
    primary = results.cells[0]["primary"]
    wide = results.curves[(results.curves["metric"] == primary) & results.curves["k"].isin([ks[0], ks[-1]])].pivot(
        index=["label", "seed", "benchmark"], columns="k", values="value"
    )
    wide = wide.reset_index()
    figure, axes = plt.subplots(1, len(names), figsize=(4.2 * len(names) + 1, 3.8), squeeze=False)
    for axis, benchmark in zip(axes[0], names, strict=True):
        data = wide[wide["benchmark"] == benchmark]
        if len(data):
            sns.scatterplot(
                data=data, x=ks[0], y=ks[-1], hue="label", style="label", s=80, ax=axis, palette=palette(results),
                hue_order=list(results.labels.values()), style_order=list(results.labels.values()),
            )  # fmt: skip
        axis.set(title=benchmark, xlabel=f"{primary} pass@{ks[0]}", ylabel=f"{primary} pass@{ks[-1]}")
    _legend(figure, axes[0][0])
    return figure


def training(results: Results) -> Figure:
    """Draw the step logs of reinforcement learning, smoothed over a tenth of the run: mean and std over seeds."""
    shown = [column for column in LOGGED if column in results.logs and results.logs[column].std() > 0]
    count = max(1, len(shown))
    rows = -(-count // 3)
    figure, axes = plt.subplots(rows, min(3, count), figsize=(4.2 * min(3, count) + 1, 3.3 * rows), squeeze=False)
    window = max(1, int(results.logs["step"].max() + 1) // 10) if len(results.logs) else 1
    for axis, column in zip(axes.flat, shown, strict=False):
        smooth = results.logs.groupby(["label", "seed"], sort=False)[column].transform(
            lambda values: values.rolling(window, min_periods=1).mean()
        )
        sns.lineplot(
            data=results.logs.assign(smooth=smooth), x="step", y="smooth", hue="label", style="label", errorbar="sd",
            ax=axis, palette=palette(results), dashes=dashes(results),
            hue_order=list(results.labels.values()), style_order=list(results.labels.values()),
        )  # fmt: skip
        axis.set(title=LOGGED[column], xlabel="step", ylabel="")
    for axis in list(axes.flat)[len(shown) :]:
        axis.remove()
    _legend(figure, axes[0][0])
    return figure


FIGURES: dict[str, tuple[Callable[[Results], Figure], str]] = {
    "pass_at_k": (
        pass_at_k,
        "pass@k by the unbiased estimator, k = 1 to n. Lines: mean over seeds; bands: one standard deviation over seeds."
        " Dotted: what guessing alone reaches under the grade `answer`, which therefore says little of coverage.",
    ),
    "first_against_last": (
        first_against_last,
        "One dot a seed: what a single try gives against what many tries reach. Up is more coverage, right is more"
        " precision.",
    ),
    "training": (
        training,
        "Step logs of reinforcement learning, a running mean over a tenth of the run; bands: one standard deviation over"
        " seeds. The reward is the share of completions that are right under the rewarded grade.",
    ),
}


def save(figure: Figure, path: Path) -> list[Path]:
    """Write ``path`` with the endings svg, pdf and png, without a date in any of them."""
    written = []
    for suffix, metadata in {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}.items():
        target = path.with_suffix(f".{suffix}")
        temporary = target.with_name(f".{target.name}")
        figure.savefig(temporary, format=suffix, dpi=150, bbox_inches="tight", metadata=metadata)
        temporary.replace(target)
        written.append(target)
    plt.close(figure)
    return written
