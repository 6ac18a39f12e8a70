"""MATH-500: 500 problems of the MATH test set with answers in LaTeX, of level 1 to 5; level 5 has 134.

Rows have the fields problem, answer, level and subject.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from sage.tasks import Record
from sage.tasks._math import benchmark
from sage.tasks._math.benchmark import GRADES, TIMEOUT, chance, prompt, quick, region, score, vote, warm_up

__all__ = ["GRADES", "TIMEOUT", "Spec", "build", "chance", "prompt", "quick", "region", "score", "vote", "warm_up"]

PROBLEMS = {1: 43, 2: 90, 3: 105, 4: 128, 5: 134}  # of each level


class Spec(benchmark.Spec):
    """The data set of a suite."""

    task: Literal["math500"]
    levels: Annotated[list[Annotated[int, Field(ge=1, le=5)]], Field(min_length=1)]


def build(spec: Spec, seed: int) -> list[Record]:
    """Return the records of the levels that were asked for; the pins are of all 500."""
    records = benchmark.build("math500", spec, ("problem", "answer", "level"), _record)
    return [record for record in records if record.extra["level"] in spec.levels]


def _record(row: dict[str, Any]) -> Record:
    return benchmark.record(row["problem"], row["answer"], level=int(row["level"]), subject=row.get("subject", ""))
