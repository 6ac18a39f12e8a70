"""One report: read, compute, draw, write. Each file is moved into place whole; files of former reports are removed."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sage import manifest, paths
from sage.errors import UserError
from sage.report import answers, claims, figures, page, patterns, reported, rollouts, statistics, support, tables
from sage.report.read import Results, read

if TYPE_CHECKING:
    import pandas as pd

    from sage.config import Suite


def build(suite: "Suite") -> Path:
    """Build the report of ``suite``; return the path of its page.

    Raises :class:`UserError` where there is not a single metric file; a hole is said on stderr and shown.
    """
    results, folder = read(suite), paths.report(suite.name)
    if not results.cells:
        raise UserError(f"{paths.DATA / suite.name / 'metrics'}: no metric file of the suite; run `snakemake` first")
    for problem in results.problems:
        print(f"warning: {problem}", file=sys.stderr)
    found = claims.findings(results)
    written = _tables(folder, results, found) + _figures(folder, results, found)
    manifest.write_atomic(folder / "findings.md", claims.markdown(results, found))
    manifest.write_atomic(folder / "index.html", page.render(results, found))
    manifest.write_atomic(folder / "rollouts.html", rollouts.render(results))
    for stale in [*(folder / "tables").iterdir(), *(folder / "figures").iterdir()]:
        if stale not in written:
            stale.unlink()
    return folder / "index.html"


def redraw(suite: "Suite", name: str) -> Path:
    """Draw the figure ``name`` of the report again, and nothing else; return the path of its SVG."""
    results = read(suite)
    if name not in figures.drawn(results):
        raise UserError(f"--figure {name}: nothing to draw; its data, {figures.FIGURES[name].data}, is not there")
    drawn = figures.FIGURES[name].draw(results, claims.findings(results))
    return figures.save(drawn, paths.report(suite.name) / "figures" / name)[0]


def _tables(folder: Path, results: Results, found: claims.Findings) -> list[Path]:
    long = tables.main_long(results)
    texts = {
        "tables/main.csv": long.to_csv(index=False, lineterminator="\n"),
        "tables/summary.csv": _csv(statistics.over_seeds(long)),
        "tables/findings.csv": _csv(claims.long(found)),
        "tables/support.csv": _csv(support.wide(support.table(results))),
        "tables/claims.tex": claims.latex(results, found),
        "tables/numbers.tex": tables.macros({**tables.numbers(results), **claims.numbers(found)}),
        "tables/main.md": tables.markdown(results),
        "tables/main.tex": tables.latex(results),
        "tables/answers.csv": answers.long(results.suite).to_csv(index=False, lineterminator="\n"),
        "tables/answers.md": answers.markdown(results.suite),
        "numbers.json": json.dumps({**tables.numbers(results), **claims.numbers(found)}, indent=1) + "\n",
    }
    compared = reported.compare(results)
    if compared:
        texts |= {"tables/reported.md": reported.markdown(results, compared)}
    if results.patterns:
        texts |= {"tables/patterns.md": patterns.markdown(results)}
    for name, text in texts.items():
        manifest.write_atomic(folder / name, text)
    return [folder / name for name in texts]


def _csv(table: "pd.DataFrame") -> str:
    return table.to_csv(index=False, lineterminator="\n", float_format="%.10g")


def _figures(folder: Path, results: Results, found: claims.Findings) -> list[Path]:
    written = []
    for name, drawing in figures.drawn(results).items():
        print(f"drawing {name}", flush=True)
        written += figures.save(drawing.draw(results, found), folder / "figures" / name)
    return written
