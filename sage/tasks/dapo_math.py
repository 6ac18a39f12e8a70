"""DAPO-Math-17k, a training set for reinforcement learning: competition problems whose answers are whole numbers.

Rows have the fields prompt, the bare problem, and solution, the answer alone: those of the config ``en`` of
open-r1/DAPO-Math-17k-Processed (arXiv 2503.14476).
"""

from typing import Any, Literal

from sage.tasks import Record
from sage.tasks._math import benchmark, training
from sage.tasks._math.benchmark import GRADES, TIMEOUT, chance, prompt, quick, region, score, vote, warm_up

__all__ = [
    "GRADES",
    "TIMEOUT",
    "Spec",
    "build",
    "chance",
    "prompt",
    "quick",
    "read",
    "region",
    "score",
    "vote",
    "warm_up",
]


class Spec(benchmark.Spec):
    """The data set of a suite; ``pins``: the file with the digests of its records."""

    task: Literal["dapo_math"]
    pins: str


def read(spec: Spec) -> list[Record]:
    """Return the records as the sources have them now."""
    records = benchmark.read(spec.sources, ("prompt", "solution"), _record)
    return training.single("dapo_math", benchmark.regional(records, spec.region))


def build(spec: Spec, seed: int) -> list[Record]:
    """Return the records, checked against the pins."""
    return training.checked(spec.sources, read(spec), spec.pins)


def _record(row: dict[str, Any]) -> Record:
    return benchmark.record(str(row["prompt"]), str(row["solution"]))
