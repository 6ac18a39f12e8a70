"""Run the comparisons and write ``results.json``, ``README.md`` and ``ratios.svg`` beside this file.

``python -m benchmarks`` runs all of them, ``python -m benchmarks head rollout`` those alone: their lines replace former ones.
``engines`` needs vLLM, and is left out where that is not installed and nobody asks for it.
"""

import argparse
import importlib
import importlib.util
import json
import os
import platform
import warnings
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import seaborn as sns

from benchmarks.compare import Result

FOLDER = Path(__file__).parent
COMPARISONS = ("iteration", "update", "head", "rollout", "engines", "matmuls", "commands", "scaling")
PACKAGES = ("torch", "transformers", "trl", "peft", "numpy", "snakemake")


def main() -> None:
    """Parse the command line, run, and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(COMPARISONS)}; all without one")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(COMPARISONS))
    if unknown:
        parser.error(f"no comparison '{unknown[0]}'; there are {', '.join(COMPARISONS)}")
    warnings.filterwarnings("ignore")
    matplotlib.use("Agg")
    for name in arguments.names or [name for name in COMPARISONS if can_run(name)]:
        load = os.getloadavg()[0]
        rows = [row(name, result, load) for result in importlib.import_module(f"benchmarks.{name}").results()]
        write(merged(read(), name, rows))


def can_run(comparison: str) -> bool:
    """Return whether what a comparison needs is installed."""
    return comparison != "engines" or importlib.util.find_spec("vllm") is not None


def row(comparison: str, result: Result, load: float) -> dict[str, Any]:
    """Return what ``results.json`` keeps of a result; ``load``: the machine's when its comparison began."""
    content = {**asdict(result), "holds": result.holds, "comparison": comparison, "load": round(load, 1)}
    rounded = {name: _rounded(value) for name, value in content.items()}
    return {**rounded, "spread": [_rounded(value) for value in result.spread]}


def _rounded(value: Any) -> Any:
    return float(f"{value:.3g}") if isinstance(value, float) else value


def read() -> list[dict[str, Any]]:
    """Return the rows that were measured before."""
    path = FOLDER / "results.json"
    return json.loads(path.read_text()) if path.is_file() else []


def merged(before: list[dict[str, Any]], comparison: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return ``before`` with ``rows`` in the place of those of ``comparison``, in the order of the comparisons."""
    kept = [old for old in before if old["comparison"] != comparison]
    return sorted([*kept, *rows], key=lambda r: COMPARISONS.index(r["comparison"]))


def write(rows: list[dict[str, Any]]) -> None:
    """Write rows, page and figure."""
    (FOLDER / "results.json").write_text(json.dumps(rows, indent=1) + "\n")
    (FOLDER / "README.md").write_text(page(rows))
    draw(rows)


def machine() -> str:
    """Return processor, cores, memory and system, as one line."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    [model, *_] = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB of memory, {platform.system()} {platform.machine()}"


def page(rows: list[dict[str, Any]]) -> str:
    """Return ``README.md``: how it was measured, every ratio with its spread, and what falls short."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    parts = [
        "# How fast, beside the peers",
        "Written by `make bench` (`python -m benchmarks`); `python -m benchmarks NAME ...` measures some of them again."
        " Ours and the peer's are timed in turn, in one run; a ratio is formed within each round, and the median over"
        " rounds stands here with the smallest and the largest in brackets. One thread each. Load is the machine's one-minute"
        " load average when the comparison began: with more than there are cores, spreads are wide.",
        f"Machine: {machine()}. Versions: Python {platform.python_version()}, {versions}.",
        "![Ratios](ratios.svg)",
    ]
    for name in COMPARISONS:
        chosen = [r for r in rows if r["comparison"] == name]
        if chosen:
            text = importlib.import_module(f"benchmarks.{name}").__doc__ or ""
            parts += [f"## {name}", _paragraph(text), table(chosen)]
            parts += ["![Cost against size](scaling.svg)"] if name == "scaling" else []
            parts += [f"{r['name']}: {r['note']}" for r in chosen if r["note"]]
    return "\n\n".join(parts) + "\n"


def _paragraph(docstring: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in docstring.strip().split("\n\n"))


def table(rows: list[dict[str, Any]]) -> str:
    """Return rows as Markdown."""
    lines = ["| | ours | peer | ratio | target | holds | load |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for r in rows:
        low, high = r["spread"]
        peer = "" if r["peer"] is None else f"{r['peer']:g} {r['unit']}"
        ratio = f"{r['ratio']:g} [{low:g}, {high:g}]"
        holds = {True: "yes", False: "**no**", None: ""}[r["holds"]]
        cells = [r["name"], f"{r['ours']:g} {r['unit']}", peer, ratio, r["target"] or "", holds, f"{r['load']:g}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(rows: list[dict[str, Any]]) -> None:
    """Draw ratio, spread and target of every row that has a target."""
    sns.set_theme(style="whitegrid", context="paper", rc={"svg.hashsalt": "sage"})
    chosen = [r for r in rows if r["target"]]
    figure, axes = plt.subplots(figsize=(9, 0.3 * len(chosen) + 1), layout="constrained")
    colours = {True: sns.color_palette("colorblind")[2], False: sns.color_palette("colorblind")[3]}
    for place, r in enumerate(chosen):
        sign, bound = r["target"].split()
        axes.plot(r["spread"], [place, place], color=colours[r["holds"]], linewidth=2)
        axes.plot(r["ratio"], place, "o", color=colours[r["holds"]])
        axes.plot(float(bound), place, marker=5 if sign == ">=" else 4, color="0.4", markersize=7)
    axes.set(xscale="log", xlabel="ratio, or seconds without a peer (grey: target, pointing to where it holds)")
    axes.set_yticks(range(len(chosen)), [r["name"] for r in chosen])
    axes.invert_yaxis()
    figure.savefig(FOLDER / "ratios.svg", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
