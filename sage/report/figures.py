"""Figures: one function each, seaborn on Agg, one style, the same colour for a method everywhere."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from sage.report import support
from sage.report.claims import Findings
from sage.report.read import Results

# Colours that colour-blind readers tell apart (Okabe and Ito, 2008, and two greys); a method keeps its place in the list.
COLOURS = ["#555555", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#B2A100", "#7F3C8D", "#8C564B"]
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


style()


def palette(results: Results) -> dict[str, str]:
    """Return the colour of each method's label."""
    return {label: COLOURS[i % len(COLOURS)] for i, label in enumerate(results.labels.values())}


def dashes(results: Results) -> dict[str, tuple[int, ...] | str]:
    """Return the line style of each method's label: colours that come round again are dashed."""
    patterns: list[tuple[int, ...] | str] = ["", (4, 2), (1, 1)]
    return {label: patterns[i // len(COLOURS) % 3] for i, label in enumerate(results.labels.values())}


def families(results: Results) -> dict[str, list[str]]:
    """Return family -> labels of its methods, the references first; the one family "all" where no method has one."""
    methods = results.suite.loaded_methods.values()
    references = [method.label for method in methods if method.family is None]
    names = dict.fromkeys(method.family for method in methods if method.family)
    members = {name: [method.label for method in methods if method.family == name] for name in names}
    return {name: [*references, *labels] for name, labels in members.items()} or {"all": references}


def pass_at_k(results: Results, _: Findings) -> Figure:
    """Draw pass@k of the rewarded grade: a row a family, a column a benchmark, mean over seeds, band of one std."""
    primary, names, rows = results.cells[0]["primary"], list(results.suite.benchmarks), families(results)
    figure, axes = _panels(len(rows), len(names), sharey="col")
    curves = results.curves[results.curves["metric"] == primary]
    for i, (family, labels) in enumerate(rows.items()):
        for j, benchmark in enumerate(names):
            shown = curves[(curves["benchmark"] == benchmark) & curves["label"].isin(labels)]
            _curves(axes[i][j], results, shown, band=True)
            _finish(axes[i][j], f"{benchmark}: {family}", i == len(rows) - 1, f"{primary} pass@k" if j == 0 else "")
            _holes(axes[i][j], results.missing(benchmark, labels))
    for axis in axes.flat:
        axis.set_ylim(bottom=0)
    _legend(figure, *axes[:, 0])
    return figure


def answers(results: Results, _: Findings) -> Figure:
    """Draw pass@k of the other grades: a row a grade, a column a benchmark, means over seeds, and what guessing reaches."""
    first = results.cells[0]
    grades = [grade for grade in first["grades"] if grade != first["primary"]] or [first["primary"]]
    names = list(results.suite.benchmarks)
    figure, axes = _panels(len(grades), len(names))
    for i, grade in enumerate(grades):
        for j, benchmark in enumerate(names):
            axis, chosen = axes[i][j], results.curves["benchmark"] == benchmark
            _curves(axis, results, results.curves[chosen & (results.curves["metric"] == grade)], band=False)
            chance = results.curves[chosen & (results.curves["metric"] == "chance")].drop_duplicates("k")
            if grade == "answer" and len(chance):
                axis.plot(chance["k"], chance["value"], color="black", ls=":", lw=2, label="chance (guessing)")
            _finish(axis, f"{benchmark}: {grade}", i == len(grades) - 1, f"{grade} pass@k" if j == 0 else "")
            axis.set_ylim(bottom=0)
    _legend(figure, axes[-1][0])
    return figure


def differences(results: Results, _: Findings) -> Figure:
    """Draw the difference to GRPO against k, paired by seed: a row a family, a column a benchmark, band of one std."""
    primary, names, rows = results.cells[0]["primary"], list(results.suite.benchmarks), families(results)
    curves = results.curves[results.curves["metric"] == primary]
    baseline = curves[curves["method"] == "grpo"].set_index(["benchmark", "seed", "k"])["value"].rename("grpo")
    paired = curves[curves["method"] != "grpo"].join(baseline, on=["benchmark", "seed", "k"])
    paired = paired.assign(value=paired["value"] - paired["grpo"]).dropna(subset=["value"])
    figure, axes = _panels(len(rows), len(names), sharey="col")
    for i, (family, labels) in enumerate(rows.items()):
        for j, benchmark in enumerate(names):
            shown = paired[(paired["benchmark"] == benchmark) & paired["label"].isin(labels)]
            axes[i][j].axhline(0, color="black", lw=1)
            _curves(axes[i][j], results, shown, band=True)
            _finish(axes[i][j], f"{benchmark}: {family}", i == len(rows) - 1, "difference to GRPO" if j == 0 else "")
    _legend(figure, *axes[:, 0])
    return figure


def claims_forest(_: Results, found: Findings) -> Figure:
    """Draw each claim's difference with its interval, coloured by verdict."""
    rows = found.rows
    colours = {"holds": "#009E73", "contradicted": "#D55E00", "inside the noise": "#777777"}
    figure, axis = plt.subplots(figsize=(9, 1.3 + 0.42 * max(1, len(rows))))
    for place, finding in enumerate(reversed(rows)):
        d = finding.difference
        if d.n < 2:
            axis.text(0, place, f" {finding.verdict} (n = {d.n})", va="center", fontsize=8, color="#B34700")
            continue
        colour = colours[finding.verdict]
        axis.plot([d.low, d.high], [place, place], color=colour, lw=2, solid_capstyle="butt")
        axis.plot([d.mean], [place], "o", color=colour, ms=7)
    texts = [f"{f.claim.text.split(' (')[0]}\n({f.claim.method} - {f.claim.against})" for f in reversed(rows)]
    axis.set_yticks(range(len(rows)), texts, fontsize=9)
    axis.axvline(0, color="black", lw=1)
    # Two seeds can give intervals so wide that nothing else would be seen; they are cut, not the others.
    largest = max((abs(f.difference.mean) for f in rows if f.difference.n > 1), default=0.1)
    widest = max(
        (abs(bound) for f in rows if f.difference.n > 1 for bound in (f.difference.low, f.difference.high)), default=0.1
    )
    limit = min(4 * largest, 1.1 * widest) or 0.1
    axis.set_xlim(-limit, limit)
    axis.set(xlabel="difference in pass@k, mean over benchmarks, with its 95 % interval", ylim=(-0.7, len(rows) - 0.3))
    for name, colour in colours.items():
        axis.plot([], [], "o-", color=colour, label=name)
    figure.tight_layout()
    figure.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=3, frameon=False)
    return figure


def _panels(rows: int, columns: int, sharey: Literal["none", "col", "row"] = "none") -> tuple[Figure, Any]:
    return plt.subplots(
        rows, columns, figsize=(4.2 * columns + 1, 3.1 * rows), sharex=True, sharey=sharey, squeeze=False
    )


def _curves(axis: Axes, results: Results, data: pd.DataFrame, band: bool, x: str = "k") -> None:
    """Draw a line a method, the mean over seeds of ``value`` against ``x``, and a band of one standard deviation."""
    table = data.groupby(["label", x], sort=False)["value"].agg(["mean", "std"])
    colours, patterns = palette(results), dashes(results)
    for label in [label for label in results.labels.values() if label in set(data["label"])]:
        rows, colour = table.loc[label].sort_index(), colours[label]
        style: Any = (0, patterns[label]) if patterns[label] else "-"
        axis.plot(rows.index, rows["mean"], color=colour, ls=style, lw=2, label=label)
        if band:
            low, high = rows["mean"] - rows["std"], rows["mean"] + rows["std"]
            axis.fill_between(rows.index, low, high, color=colour, alpha=0.12, lw=0)


def _finish(axis: Axes, title: str, last: bool, label: str) -> None:
    # No limits are set here: on a shared axis they would hold for what is still to be drawn.
    axis.set(title=title, xlabel="k" if last else "", ylabel=label)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:g}"))


def _holes(axis: Axes, lines: list[str]) -> None:
    """Write into a panel what it lacks."""
    shown = lines if len(lines) < 6 else [*lines[:4], f"and {len(lines) - 4} more"]
    if lines:
        text = "\n".join(["not whole:", *shown])
        axis.text(0.98, 0.03, text, transform=axis.transAxes, ha="right", va="bottom", fontsize=8, color="#B34700")


def _legend(figure: Figure, *axes: Axes) -> None:
    """Put one legend for all panels under them, with every label of ``axes`` once."""
    found = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    for each in figure.axes:
        if (legend := each.get_legend()) is not None:
            legend.remove()
    figure.tight_layout()
    figure.legend(
        list(found.values()), list(found), loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=max(1, min(5, len(found))),
        frameon=False,
    )  # fmt: skip


def first_against_last(results: Results, _: Findings) -> Figure:
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


def training(results: Results, _: Findings) -> Figure:
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
        _curves(axis, results, results.logs.assign(value=smooth), band=True, x="step")
        axis.set(title=LOGGED[column], xlabel="step", ylabel="")
    for axis in list(axes.flat)[len(shown) :]:
        axis.remove()
    _legend(figure, axes[0][0])
    return figure


def support_map(results: Results, _: Findings) -> Figure:
    """Draw what each method solves that base does not, and the other way: the problems, and their shares; a row a benchmark."""
    table, names, methods = support.table(results), list(results.suite.benchmarks), list(results.labels)
    figure, axes = plt.subplots(
        len(names), 2, figsize=(12, 1.2 + (0.3 * len(methods) + 0.9) * len(names)), squeeze=False, width_ratios=[3, 2]
    )
    for row, benchmark in enumerate(names):
        rows = table[table["benchmark"] == benchmark]
        _problems_map(axes[row][0], rows, methods)
        _shares(axes[row][1], rows, methods)
        axes[row][0].set_yticks(range(len(methods)), [results.labels[m] for m in methods], fontsize=9)
        axes[row][0].set_title(f"{benchmark}: problems, those that base solves most often first")
        axes[row][1].set_title(f"{benchmark}: share of the problems")
    figure.tight_layout()
    handles = [Patch(color=STATES[state]) for state in support.STATES]
    figure.legend(handles, support.STATES, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=4, frameon=False)
    return figure


STATES = dict(zip(support.STATES, ("#D4D4D4", "#0072B2", "#D55E00", "#555555"), strict=True))


def _problems_map(axis: Axes, rows: pd.DataFrame, methods: list[str]) -> None:
    """Draw a cell a method and problem, in the colour of the state that most seeds are in; white where there is none."""
    states = support.most_frequent(rows).reindex(methods)
    codes = states.apply(lambda column: column.map({name: i for i, name in enumerate(STATES)})).to_numpy(dtype=float)
    colours = matplotlib.colors.ListedColormap(list(STATES.values()))
    axis.imshow(codes, aspect="auto", interpolation="nearest", cmap=colours, vmin=-0.5, vmax=3.5)
    axis.grid(False)
    axis.set_xticks([])


def _shares(axis: Axes, rows: pd.DataFrame, methods: list[str]) -> None:
    """Draw a stacked bar a method, means over seeds; gained and lost with their standard deviation in words."""
    shares = support.shares(rows).reindex(methods)
    left = pd.Series(0.0, index=methods)
    for state, colour in STATES.items():
        axis.barh(range(len(methods)), shares[(state, "mean")], left=left, color=colour, height=0.8, lw=0)
        left = left + shares[(state, "mean")].fillna(0)
    for place, method in enumerate(methods):
        gained, lost = ([float(shares[(state, x)][method]) for x in ("mean", "std")] for state in ("gained", "lost"))
        if not math.isnan(gained[0]):
            text = f"+{gained[0]:.3f}±{gained[1]:.3f} −{lost[0]:.3f}±{lost[1]:.3f}"
            axis.text(1.01, place, text, va="center", fontsize=8)
    axis.set(xlim=(0, 1), ylim=(len(methods) - 0.5, -0.5))
    axis.set_yticks([])
    axis.grid(False)


def entropy(results: Results, _: Findings) -> Figure:
    """Draw the distribution of the token entropy and, under it, the mean guide at it; a column a benchmark."""
    suite, table = results.suite, results.entropies
    guided = [name for name in suite.loaded_methods if suite.guide(name)]
    table = table[table["method"].isin(["base", "grpo", *guided])]
    keys = ["label", "seed", "benchmark"]
    shares = table.assign(value=table["tokens"] / table.groupby(keys)["tokens"].transform("sum"))
    figure, axes = _panels(2, len(suite.benchmarks), sharey="row")
    for column, benchmark in zip(axes.T, suite.benchmarks, strict=True):
        chosen = shares[shares["benchmark"] == benchmark]
        _curves(column[0], results, chosen, band=False, x="entropy")
        at_guide = chosen.assign(value=chosen["guide"]).dropna(subset="value")
        _curves(column[1], results, at_guide, band=False, x="entropy")
        for axis in column:
            axis.axvline(suite.guides.branch.tau, color="black", ls=":", lw=2, label="tau of Branch")
        column[0].set(title=benchmark, yscale="log")
        column[1].set(xlabel="entropy of the next token [nats]")
    axes[0][0].set_ylabel("share of tokens")
    axes[1][0].set_ylabel("mean guide q")
    _legend(figure, axes[0][0])
    return figure


@dataclass(frozen=True)
class Drawing:
    """A figure: the function that draws it, its caption, the files with its data, relative to the project's root.

    ``where``: whether there is something to draw.
    """

    draw: Callable[[Results, Findings], Figure]
    caption: str
    data: str
    where: Callable[[Results], bool] = lambda _: True


COUNTS, LOGS, TABLES = (
    "data/{suite}/metrics/*/seed*/*.counts.json",
    "data/{suite}/metrics/*/seed*/training.csv",
    "reports/{suite}/tables",
)
FIGURES: dict[str, Drawing] = {
    "pass_at_k": Drawing(
        pass_at_k,
        "pass@k of the rewarded grade by the unbiased estimator, k = 1 to n, by families of methods. Lines: mean over"
        " seeds; bands: one standard deviation over seeds.",
        COUNTS,
    ),
    "differences": Drawing(
        differences,
        "The same as a difference to GRPO of the same seed: above 0 a method is better at that k. Bands: one standard"
        " deviation of the paired difference over seeds.",
        COUNTS,
    ),
    "claims": Drawing(
        claims_forest,
        "The findings: each claim's difference and its 95 % interval, paired over seeds; wide intervals are cut at the"
        " frame. The colour is the verdict after Holm's correction.",
        f"{TABLES}/findings.csv",
    ),
    "support": Drawing(
        support_map,
        "Support: a problem is solved where one of the n samples is right. Left: solved by base and method, gained, lost, or"
        " solved by neither, as most seeds have it, each against base of the same seed. Right: the shares, means over seeds;"
        " in words gained and lost, ± one standard deviation. The row of base compares it with base of the next sampling"
        " seed: that much is gained and lost without any training, by luck alone.",
        f"{TABLES}/support.csv",
    ),
    "answers": Drawing(
        answers,
        "pass@k of the grade `answer`, means over seeds. Dotted: what guessing alone reaches, which is why this grade says"
        " little of coverage.",
        COUNTS,
    ),
    "first_against_last": Drawing(
        first_against_last,
        "One dot a seed: what a single try gives against what many tries reach. Up is more coverage, right is more"
        " precision.",
        f"{TABLES}/main.csv",
    ),
    "training": Drawing(
        training,
        "Step logs of reinforcement learning, a running mean over a tenth of the run; bands: one standard deviation over"
        " seeds. The reward is the share of completions that are right under the rewarded grade.",
        LOGS,
    ),
    "entropy": Drawing(
        entropy,
        "Entropy of the policy's distribution at each token of the completions that the rollout browser shows first, in bins"
        " of 0.05 nats, and the mean guide q in each bin at the strengths of the last iteration. Where few tokens have an"
        " entropy above tau, Branch does little. Means over seeds.",
        "data/{suite}/metrics/*/seed*/entropy.csv",
        where=lambda results: len(results.entropies) > 0,
    ),
}


def drawn(results: Results) -> dict[str, Drawing]:
    """Return the figures for which there is something to draw."""
    return {name: drawing for name, drawing in FIGURES.items() if drawing.where(results)}


def save(figure: Figure, path: Path) -> list[Path]:
    """Write ``path`` with the endings svg, pdf and png, without a date in any of them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written, box = [], figure.get_tightbbox().padded(0.1)  # once, not for every format
    for suffix, metadata in {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}.items():
        target = path.with_suffix(f".{suffix}")
        temporary = target.with_name(f".{target.name}")
        figure.savefig(temporary, format=suffix, dpi=150, bbox_inches=box, metadata=metadata)
        temporary.replace(target)
        written.append(target)
    plt.close(figure)
    return written
