"""Grade the kept completions of benchmarks, or with --regrade of any number of cells again, without a model.

In: ``samples/.../samples.parquet`` and ``processed/{benchmark}``. Out: the metric files ``{benchmark}.json`` (scalars),
``{benchmark}.counts.json`` (per-problem counts of verdicts, and the whole pass@k curve of each grade) and
``{benchmark}.answers.json`` (majority votes, diversity, and shares of answers that are none).
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sage.cli import entry
from sage.evaluate.cell import Cell, parse

if TYPE_CHECKING:
    import pandas as pd

    from sage.tasks import Record

SCHEMA = 1
Counts = dict[str, dict[str, dict[str, int]]]


def main() -> None:
    """Parse the command line and grade."""
    more = argparse.ArgumentParser(add_help=False)
    more.add_argument("--workers", type=int, help="processes that grade (default: as many as this process has cores)")
    again = more.add_argument_group(
        "instead of a cell, grading again; what changes is shown, and nothing written unasked"
    )
    again.add_argument("--regrade", nargs="+", type=Path, metavar="SAMPLES", help="files or folders of kept samples")
    again.add_argument(
        "--write", type=Path, metavar="FOLDER", help="where to write metric files, as data/SUITE/metrics"
    )
    arguments, _ = more.parse_known_args()
    if arguments.regrade:
        from sage.evaluate.regrade import regrade

        regrade(arguments.regrade, arguments.write, arguments.workers)
    else:
        for cell in parse("python -m sage.evaluate.verify", __doc__, more)[0]:
            verify(cell, arguments.workers)


def verify(cell: Cell, workers: int | None = None) -> None:
    """Write the metric files of ``cell``."""
    from sage import paths

    write(grade(cell, cell.samples, workers), paths.metrics(cell.suite.name, cell.method, cell.seed))


@dataclass(frozen=True)
class Graded:
    """The kept completions of a cell, a verdict of each grade and a vote for each of them, in the order of the table."""

    cell: Cell
    manifest: dict[str, Any]  # of the samples
    records: list["Record"]
    samples: "pd.DataFrame"  # problem, sample, tokens, text, finish, key
    verdicts: list[dict[str, str]]
    votes: list[str | None]

    @property
    def n(self) -> int:
        """Completions a problem."""
        return int(self.manifest["n"])

    def counts(self) -> Counts:
        """Return problem id -> grade -> verdict -> number of completions."""
        from sage.tasks import VERDICTS

        grades = self.cell.task.GRADES
        counts = {r.id: {grade: dict.fromkeys(VERDICTS, 0) for grade in grades} for r in self.records}
        for problem, verdicts in zip(self.samples["problem"], self.verdicts, strict=True):
            for grade, verdict in verdicts.items():
                counts[problem][grade][verdict] += 1
        return counts


def grade(cell: Cell, folder: Path, workers: int | None = None) -> Graded:
    """Grade the completions in ``folder`` as answers to the benchmark of ``cell``; ``workers``: processes, None: all cores."""
    from sage import manifest
    from sage.evaluate.grading import Grader

    records, _ = cell.problems()
    content = manifest.require(folder)
    samples = _read(folder / "samples.parquet", records, content["n"])
    by_id = {record.id: record for record in records}
    asked, texts = [by_id[problem] for problem in samples["problem"]], list(samples["text"])
    with Grader(cell.task, workers, label=f"{cell.method} seed {cell.seed} {cell.benchmark}") as grader:
        verdicts = grader.grade(asked, texts)
    votes = [_vote(cell.task, *row) for row in zip(asked, texts, verdicts, strict=True)]
    return Graded(cell, content, records, samples, verdicts, votes)


def _vote(task: Any, record: "Record", text: str, verdicts: dict[str, str]) -> str | None:
    region = task.region(record, text)
    return None if region is None or verdicts["answer"] == "unparseable" else task.vote(record, region)


def _read(path: Path, records: list["Record"], n: int) -> "pd.DataFrame":
    import pandas as pd

    from sage.errors import UserError

    samples = pd.read_parquet(path)
    sizes = samples.groupby("problem").size()
    missing = [record.id for record in records if sizes.get(record.id, 0) != n]
    if missing or len(sizes) != len(records):
        raise UserError(f"{path}: problem {(missing or ['?'])[0]} has not {n} samples; sample the benchmark again")
    return samples


def write(graded: Graded, folder: Path) -> None:
    """Write the three metric files of a cell."""
    from sage import manifest
    from sage.evaluate.answers import summary

    cell, counts = graded.cell, graded.counts()
    curves, chance = _curves(graded, counts)
    problems = [{"id": record.id, **counts[record.id]} for record in graded.records]
    whole = {**_identity(cell, graded.manifest), "problems": problems, "curve": curves, "chance": chance}
    manifest.write_json(folder / f"{cell.benchmark}.counts.json", whole)
    manifest.write_json(folder / f"{cell.benchmark}.answers.json", {"schema": SCHEMA, **summary(graded)})
    manifest.write_json(folder / f"{cell.benchmark}.json", _scalars(graded, counts, curves, chance))


def _curves(graded: Graded, counts: Counts) -> tuple[dict[str, list[float]], list[float] | None]:
    from sage.evaluate import passk

    task, n = graded.cell.task, graded.n
    curves = {
        grade: passk.mean_curve([counts[record.id][grade]["correct"] for record in graded.records], n)
        for grade in task.GRADES
    }
    chances = [task.chance(record) for record in graded.records]
    chance = None if None in chances else _rounded(passk.chance_curve(chances, n))
    return {grade: _rounded(curve) for grade, curve in curves.items()}, chance


def _rounded(curve: Any) -> list[float]:
    """Return a curve with 10 digits: far more than it has, and the same on every machine."""
    return [round(float(value), 10) for value in curve]


def _identity(cell: Cell, content: dict[str, Any]) -> dict[str, Any]:
    from sage import manifest

    method = cell.suite.method(cell.method)
    objective = method.objective
    kl = objective.kl if objective else None
    return {
        "schema": SCHEMA,
        "suite": cell.suite.name,
        "method": cell.method,
        "label": method.label,
        "seed": cell.seed,
        "benchmark": cell.benchmark,
        "n": content["n"],
        "engine": content["engine"],
        "temperature": content["temperature"],
        "top_p": content["top_p"],
        "kl": kl.estimator if kl else None,
        "beta": round(kl.beta * kl.scale, 6) if kl else None,
        "guide": objective.guide if objective else None,
        "primary": cell.task.GRADES[0],
        "grades": list(cell.task.GRADES),
        "samples": manifest.payload_hash(content),
        "checkpoint": content["inputs"]["checkpoint"],
    }


def _scalars(graded: Graded, counts: Counts, curves: Any, chance: Any) -> dict[str, Any]:
    """Return the handful of numbers that ``dvc metrics`` lists."""
    import numpy as np

    from sage.evaluate import passk

    samples, ks, primary = graded.samples, graded.cell.suite.evaluate.ks, graded.cell.task.GRADES[0]
    named = {**curves, **({"chance": chance} if chance else {})}
    unparseable = sum(tally[primary]["unparseable"] for tally in counts.values())
    return {
        "schema": SCHEMA,
        **{grade: {f"pass@{k}": passk.at(curve, k) for k in ks} for grade, curve in named.items()},
        "errors": sum(tally[primary]["error"] + tally[primary]["timeout"] for tally in counts.values()),
        "truncated": round(float((samples["finish"] == "length").mean()), 6),
        "unparseable": round(unparseable / len(samples), 6),
        "mean_tokens": round(float(np.mean([len(tokens) for tokens in samples["tokens"]])), 4),
    }


if __name__ == "__main__":
    entry(main)
