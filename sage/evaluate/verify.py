"""Grade the kept completions of one cell, without a model.

In: ``samples/.../samples.parquet`` and ``processed/{benchmark}``. Out: the metric files ``{benchmark}.json`` (scalars)
and ``{benchmark}.counts.json`` (per-problem counts of verdicts, and the whole pass@k curve of each grade).
"""

from typing import TYPE_CHECKING, Any

from sage.cli import entry
from sage.evaluate.cell import Cell, parse

if TYPE_CHECKING:
    import pandas as pd

    from sage.tasks import Record

SCHEMA = 1


def main() -> None:
    """Parse the command line and grade."""
    verify(parse("python -m sage.evaluate.verify", __doc__)[0])


def verify(cell: Cell) -> None:
    """Write both metric files of ``cell``."""
    from sage import manifest, paths

    records, _ = cell.problems()
    content = manifest.require(cell.samples)
    samples = _read(cell, records)
    counts = count(cell.task, records, samples)
    curves, chance = _curves(cell, records, counts)
    folder = paths.metrics(cell.suite.name, cell.method, cell.seed)
    problems = [{"id": record.id, **counts[record.id]} for record in records]
    whole = {**_identity(cell, content), "problems": problems, "curve": curves, "chance": chance}
    manifest.write_json(folder / f"{cell.benchmark}.counts.json", whole)
    manifest.write_json(folder / f"{cell.benchmark}.json", _scalars(cell, samples, counts, curves, chance))


def _read(cell: Cell, records: list["Record"]) -> "pd.DataFrame":
    import pandas as pd

    from sage.errors import UserError

    path = cell.samples / "samples.parquet"
    samples = pd.read_parquet(path)
    sizes, n = samples.groupby("problem").size(), cell.suite.sample.n
    missing = [record.id for record in records if sizes.get(record.id, 0) != n]
    if missing or len(sizes) != len(records):
        raise UserError(f"{path}: problem {(missing or ['?'])[0]} has not {n} samples; sample {cell.benchmark} again")
    return samples


def count(task: Any, records: list["Record"], samples: "pd.DataFrame") -> dict[str, dict[str, dict[str, int]]]:
    """Return problem id -> grade -> verdict -> number of completions."""
    from sage.evaluate.grading import Grader
    from sage.progress import bar
    from sage.tasks import VERDICTS

    counts, texts = {}, dict(iter(samples.groupby("problem", sort=False)["text"]))
    with Grader(task) as grader:
        for record in bar(records, "grading", total=len(records)):
            mine = list(texts[record.id])
            tally = {grade: dict.fromkeys(VERDICTS, 0) for grade in task.GRADES}
            for verdicts in grader.grade([record] * len(mine), mine):
                for grade, verdict in verdicts.items():
                    tally[grade][verdict] += 1
            counts[record.id] = tally
    return counts


def _curves(cell: Cell, records: list["Record"], counts: Any) -> tuple[dict[str, list[float]], list[float] | None]:
    from sage.evaluate import passk

    n = cell.suite.sample.n
    curves = {
        grade: passk.mean_curve([counts[record.id][grade]["correct"] for record in records], n)
        for grade in cell.task.GRADES
    }
    chances = [cell.task.chance(record) for record in records]
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


def _scalars(cell: Cell, samples: "pd.DataFrame", counts: Any, curves: Any, chance: Any) -> dict[str, Any]:
    """Return the handful of numbers that ``dvc metrics`` lists."""
    import numpy as np

    from sage.evaluate import passk

    ks, primary = cell.suite.evaluate.ks, cell.task.GRADES[0]
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
