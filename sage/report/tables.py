"""Tables: the long form of every number, and the main table as Markdown, LaTeX and rows for the page."""

import math
from typing import Any

import pandas as pd

from sage.report.read import Results
from sage.report.statistics import over_seeds

FOOTNOTES = (
    "Mean +- standard deviation over seeds (ddof 1), n seeds. `strict`: every step of the derivation and the answer are"
    " right; `answer`: the answer alone, for which guessing alone reaches the level in the row `chance`.",
    "The seeds of a method with a training run are training seeds. Base is one model: its seeds are sampling seeds, and"
    " its deviation is sampling error alone.",
)


def main_long(results: Results) -> pd.DataFrame:
    """Return every number that the tables stand on: one row a seed, benchmark, metric and k of the configuration."""
    keep = results.curves[results.curves["k"].isin(results.suite.evaluate.ks)].copy()
    settings = pd.DataFrame(
        {"method": c["method"], "kl": c["kl"], "beta": c["beta"], "guide": c["guide"]} for c in results.cells
    )
    return keep.merge(settings.drop_duplicates("method"), on="method", how="left") if len(keep) else keep


def columns(results: Results) -> list[tuple[str, int]]:
    """Return the (metric, k) of the main table: all k of the rewarded grade, first and last of the others."""
    ks = results.suite.evaluate.ks
    grades = results.cells[0]["grades"] if results.cells else []
    return [(grade, k) for i, grade in enumerate(grades) for k in (ks if i == 0 else [ks[0], ks[-1]])]


def main_rows(results: Results) -> list[dict[str, Any]]:
    """Return one row a benchmark and method: its label, the divergence that was used, n, and a (mean, std) a column.

    The row ``chance`` closes each benchmark that has a level of guessing.
    """
    table = over_seeds(results.curves)
    found = {(r["method"], r["benchmark"], r["metric"], r["k"]): r for r in table.to_dict("records")}
    settings = {c["method"]: c for c in results.cells}
    rows = []
    for benchmark in results.suite.benchmarks:
        for method, label in results.labels.items():
            values = [found.get((method, benchmark, metric, k)) for metric, k in columns(results)]
            count = max((int(v["n"]) for v in values if v), default=0)
            shown = [(float(v["mean"]), float(v["std"])) if v else None for v in values]
            rows.append(
                {
                    "benchmark": benchmark,
                    "label": label,
                    "kl": divergence(settings.get(method)),
                    "n": count,
                    "values": shown,
                }
            )
        chance = [_chance(table, benchmark, metric, k) for metric, k in columns(results)]
        if any(chance):
            rows.append({"benchmark": benchmark, "label": "chance", "kl": "", "n": "", "values": chance})
    return rows


def divergence(cell: dict[str, Any] | None) -> str:
    """Return the name of the divergence estimator, its weight and guide, as every table shows them."""
    if cell is None or cell["kl"] is None:
        return "none"
    guide = f", {cell['guide']}" if cell["guide"] else ""
    return f"{cell['kl']}, {cell['beta']:g}{guide}"


def _chance(table: pd.DataFrame, benchmark: str, metric: str, k: int) -> tuple[float, float] | None:
    if metric != "answer":
        return None
    rows = table[(table["benchmark"] == benchmark) & (table["metric"] == "chance") & (table["k"] == k)]
    return (float(rows["mean"].iloc[0]), math.nan) if len(rows) else None


def cell_text(value: tuple[float, float] | None, plus_minus: str = "+-") -> str:
    """Return ``mean +- std`` with three digits; an en dash where nothing was measured."""
    if value is None:
        return "–"
    mean, std = value
    return f"{mean:.3f}" if math.isnan(std) else f"{mean:.3f} {plus_minus} {std:.3f}"


def headings(results: Results) -> list[str]:
    """Return the headings of the main table."""
    return ["Benchmark", "Method", "Divergence", "n", *(f"{metric} pass@{k}" for metric, k in columns(results))]


def markdown(results: Results) -> str:
    """Return the main table as GitHub Markdown."""
    head = headings(results)
    lines = [f"# {results.suite.title}", "", f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for row in main_rows(results):
        texts = [row["benchmark"], row["label"], row["kl"], str(row["n"]), *map(cell_text, row["values"])]
        lines.append(f"| {' | '.join(texts)} |")
    return "\n".join([*lines, "", *(f"{note}\n" for note in [*FOOTNOTES, *_holes(results)])])


def latex(results: Results) -> str:
    """Return the main table as LaTeX with booktabs."""
    head = headings(results)
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}",
        "\\centering\\small",
        f"\\caption{{{escaped(results.suite.title)}. {escaped(' '.join(FOOTNOTES))}}}",
        f"\\begin{{tabular}}{{lll{'r' * (len(head) - 3)}}}",
        "\\toprule",
        " & ".join(map(escaped, head)) + " \\\\",
    ]
    previous = None
    for row in main_rows(results):
        if row["benchmark"] != previous:
            lines.append("\\midrule")
            previous = row["benchmark"]
        texts = [escaped(text) for text in (row["benchmark"], row["label"], row["kl"], str(row["n"]))]
        texts += [cell_text(value, "$\\pm$").replace("–", "--") for value in row["values"]]
        lines.append(" & ".join(texts) + " \\\\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", "\\end{table}", ""])


def escaped(text: str) -> str:
    """Return text with LaTeX's special characters escaped."""
    text = text.replace("\\", "/")
    for special in "&%$#_{}":
        text = text.replace(special, f"\\{special}")
    for special, command in (("~", "textasciitilde"), ("^", "textasciicircum")):
        text = text.replace(special, f"\\{command}{{}}")
    return text.replace("+-", "$\\pm$").replace("`", "")


def macros(named: dict[str, Any]) -> str:
    """Return LaTeX that defines ``\\sagenumber{NAME}`` for every number that there is; another name is an error."""
    lines = [
        "% \\input this file, and write \\sagenumber{grpo.knights_n4.strict.pass@1.mean}; numbers.json has the names",
        "\\newcommand{\\sagenumber}[1]{\\ifcsname sage:#1\\endcsname\\csname sage:#1\\endcsname\\else"
        "\\errmessage{no number of this name: \\detokenize{#1}}\\fi}",
    ]
    for name, value in named.items():
        if value is not None:
            digits = ".2g" if name.endswith(".p") else ".3f"
            text = format(value, digits) if isinstance(value, float) else str(value)
            lines.append(f"\\expandafter\\def\\csname sage:{name}\\endcsname{{{text}}}")
    return "\n".join([*lines, ""])


def _holes(results: Results) -> list[str]:
    return [f"Not in the table: {problem}." for problem in results.problems]


def numbers(results: Results) -> dict[str, float | int | None]:
    """Return a name for every number: ``{method}.{benchmark}.{metric}.pass@{k}.mean`` (``.std``, ``.n``)."""
    table = over_seeds(results.curves[results.curves["k"].isin(results.suite.evaluate.ks)])
    named: dict[str, float | int | None] = {}
    for row in table.to_dict("records"):
        name = f"{row['method']}.{row['benchmark']}.{row['metric']}.pass@{row['k']}"
        named[f"{name}.mean"] = round(float(row["mean"]), 6)
        named[f"{name}.std"] = None if math.isnan(row["std"]) else round(float(row["std"]), 6)
        named[f"{name}.n"] = int(row["n"])
    return named
