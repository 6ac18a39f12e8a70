"""AMC 2023: the 40 problems of AMC 12A and 12B 2023 whose answers are whole numbers.

Rows have the fields problem and answer, a number that some copies store as 27.0.
"""

from typing import Any, Literal

from sage.tasks import Record
from sage.tasks._math import benchmark
from sage.tasks._math.benchmark import GRADES, TIMEOUT, chance, prompt, quick, region, score, vote, warm_up

__all__ = ["GRADES", "TIMEOUT", "Spec", "build", "chance", "prompt", "quick", "region", "score", "vote", "warm_up"]


class Spec(benchmark.Spec):
    """The data set of a suite."""

    task: Literal["amc23"]


def build(spec: Spec, seed: int) -> list[Record]:
    """Return the 40 records."""
    return benchmark.build("amc23", spec, ("problem", "answer"), _record)


def _record(row: dict[str, Any]) -> Record:
    return benchmark.record(row["problem"], benchmark.whole_number(row["answer"]))
