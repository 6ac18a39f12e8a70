"""Grade kept samples again, and show what changes: the grader may have been mended, or a gold answer corrected.

In: files or folders of samples with their manifests, and the processed benchmarks. Out: a line for each cell and grade with
the numbers of each verdict, and what they were in the metric files; metric files only where they are asked for.
"""

from pathlib import Path
from typing import Any

from sage import manifest, paths
from sage.errors import UserError
from sage.evaluate.cell import Cell, chosen
from sage.evaluate.verify import Counts, Graded, grade, write
from sage.tasks import VERDICTS


def regrade(samples: list[Path], target: Path | None, workers: int | None = None) -> None:
    """Grade every cell in ``samples`` and print its verdicts beside the former ones.

    ``target``: where metric files are written, as below ``data/{suite}/metrics``; None: nowhere. ``workers``: processes.
    """
    changed = 0
    folders = [folder for path in samples for folder in cells_in(path)]
    for folder in folders:
        cell = cell_of(folder)
        graded = grade(cell, folder, workers)
        counts, former = graded.counts(), former_counts(graded)
        changed += counts != former
        for name in cell.task.GRADES:
            print(f"{folder}: {comparison(name, counts, former)}", flush=True)
        if target:
            write(graded, target / cell.method / f"seed{cell.seed}")
    print(f"{len(folders)} cells graded, {changed} of them otherwise than before or for the first time")


def cells_in(path: Path) -> list[Path]:
    """Return the folders of samples at or below ``path``."""
    top = path.parent if path.name == "samples.parquet" else path
    found = sorted(file.parent for file in top.rglob(manifest.NAME))
    if not found:
        raise UserError(f"{path}: no samples with a {manifest.NAME}; name samples.parquet, its folder or one above it")
    return found


def cell_of(folder: Path) -> Cell:
    """Return the cell whose completions are in ``folder``, as its manifest says."""
    content = manifest.load(folder)
    if content.get("stage") != "sample":
        raise UserError(
            f"{folder / manifest.NAME}: stage {content.get('stage')}, not samples; name a folder of samples"
        )
    return chosen(paths.suite_file(content["suite"]), content["method"], content["seed"], content["benchmark"])


def former_counts(graded: Graded) -> Counts | None:
    """Return the counts in the metric file of these very samples, None where there is none."""
    cell = graded.cell
    file = paths.metrics(cell.suite.name, cell.method, cell.seed) / f"{cell.benchmark}.counts.json"
    content = manifest.read_json(file, "grade the cell first") if file.is_file() else {}
    if content.get("samples") != manifest.payload_hash(graded.manifest):
        return None
    return {problem["id"]: {name: problem[name] for name in content["grades"]} for problem in content["problems"]}


def comparison(name: str, counts: Counts, former: Counts | None) -> str:
    """Return the numbers of the verdicts of a grade, and where they differ what they were."""
    now, before = _totals(name, counts), _totals(name, former or counts)
    texts = [f"{v} {now[v]}" + (f" (was {before[v]})" if now[v] != before[v] else "") for v in VERDICTS]
    if former is None:
        return f"{name}: {', '.join(texts)}; not graded before"
    differ = sum(counts[problem][name] != former.get(problem, {}).get(name) for problem in counts)
    return f"{name}: {', '.join(texts)}; {differ or 'no'} problems differ"


def _totals(name: str, counts: Counts) -> dict[str, int]:
    tallies: list[dict[str, Any]] = [grades[name] for grades in counts.values()]
    return {verdict: sum(tally[verdict] for tally in tallies) for verdict in VERDICTS}
