"""One report: read, compute, draw, write. Each file is moved into place whole; files of former reports are removed."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sage import manifest, paths
from sage.errors import UserError
from sage.report import answers, claims, figures, page, statistics, tables
from sage.report.read import Results, read

if TYPE_CHECKING:
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
    written = _tables(folder, results) + _figures(folder, results)
    manifest.write_atomic(folder / "findings.md", claims.markdown(results, found))
    manifest.write_atomic(folder / "index.html", page.render(results, found))
    for stale in [*(folder / "tables").iterdir(), *(folder / "figures").iterdir()]:
        if stale not in written:
            stale.unlink()
    return folder / "index.html"


def _tables(folder: Path, results: Results) -> list[Path]:
    texts = {
        "tables/main.csv": tables.main_long(results).to_csv(index=False, lineterminator="\n"),
        "tables/summary.csv": statistics.over_seeds(tables.main_long(results)).to_csv(
            index=False, lineterminator="\n", float_format="%.10g"
        ),
        "tables/main.md": tables.markdown(results),
        "tables/main.tex": tables.latex(results),
        "tables/answers.csv": answers.long(results.suite).to_csv(index=False, lineterminator="\n"),
        "tables/answers.md": answers.markdown(results.suite),
        "numbers.json": json.dumps(tables.numbers(results), indent=1) + "\n",
    }
    for name, text in texts.items():
        manifest.write_atomic(folder / name, text)
    return [folder / name for name in texts]


def _figures(folder: Path, results: Results) -> list[Path]:
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    figures.style()
    written = []
    for name, (draw, _) in figures.FIGURES.items():
        print(f"drawing {name}", flush=True)
        written += figures.save(draw(results), folder / "figures" / name)
    return written
