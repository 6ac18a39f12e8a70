"""AIME 2024 and 2025: 60 problems whose answers are whole numbers from 0 to 999.

Rows have the fields problem and answer; copies differ in leading zeros (025 or 25), which mean nothing.
"""

from typing import Any, Literal

from sage.tasks import Record
from sage.tasks._math import benchmark
from sage.tasks._math.benchmark import GRADES, TIMEOUT, chance, prompt, quick, region, score, vote, warm_up

__all__ = ["GRADES", "TIMEOUT", "Spec", "build", "chance", "prompt", "quick", "region", "score", "vote", "warm_up"]


class Spec(benchmark.Spec):
    """The data set of a suite."""

    task: Literal["aime"]


def build(spec: Spec, seed: int) -> list[Record]:
    """Return the 60 records."""
    return benchmark.build("aime", spec, ("problem", "answer"), _record)


def _record(row: dict[str, Any]) -> Record:
    return benchmark.record(row["problem"], benchmark.whole_number(row["answer"]))
