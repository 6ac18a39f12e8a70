"""Arithmetic: sums, differences and products of two whole numbers, generated; for small models that know no more.

The splits share no problem: to which one a problem belongs is a hash of its text.
"""

import hashlib
import re
from typing import Annotated, Literal

from pydantic import Field

from sage import seeds
from sage.errors import UserError
from sage.strict import Strict
from sage.tasks import Record
from sage.tasks._math.region import last_tagged

GRADES = ("answer",)
TIMEOUT = None
SPLITS = {"rl": (0.0, 0.5), "test": (0.5, 1.0)}
_NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")


class Spec(Strict):
    """A data set of problems. ``region``: the answer is what stands in the tags, or the last number of a completion."""

    task: Literal["arithmetic"]
    split: Literal["rl", "test"]
    size: Annotated[int, Field(gt=0)]
    operations: Annotated[list[Literal["+", "-", "*"]], Field(min_length=1)]
    largest: Annotated[int, Field(gt=0)]  # of the two numbers; the smallest is 1
    region: Literal["tags", "last_number"]


def build(spec: Spec, seed: int) -> list[Record]:
    """Return ``size`` different problems; :class:`UserError` where there are not that many."""
    generator = seeds.generator(seed, "arithmetic", spec.split)
    pairs = spec.largest**2
    found: list[Record] = []
    for number in generator.permutation(pairs * len(spec.operations)):
        first, second = divmod(int(number) % pairs, spec.largest)
        record = _record(first + 1, spec.operations[int(number) // pairs], second + 1, spec.region)
        if _split(record.id) == spec.split:
            found.append(record)
        if len(found) == spec.size:
            return found
    raise UserError(f"size: {spec.size} problems asked for, {len(found)} there are in split {spec.split}; lower size")


def _record(first: int, operation: str, second: int, region: str) -> Record:
    problem = f"What is {first} {operation} {second}?"
    value = {"+": first + second, "-": first - second, "*": first * second}[operation]
    return Record(hashlib.sha256(problem.encode()).hexdigest()[:12], problem, str(value), {"region": region})


def _split(identity: str) -> str:
    position = int(identity, 16) / 16**12
    return next(name for name, (low, high) in SPLITS.items() if low <= position < high)


def prompt(record: Record) -> str:
    """Return what a model is asked."""
    return record.problem


def region(record: Record, text: str) -> str | None:
    """Return the declared answer region of a completion."""
    if record.extra["region"] == "tags":
        return last_tagged(text)
    numbers = _NUMBER.findall(text)
    return numbers[-1] if numbers else None


def score(record: Record, region: str) -> dict[str, str]:
    """Return whether the region is the number; one that is no number is unparseable."""
    value = vote(record, region)
    return {"answer": "unparseable" if value is None else "correct" if value == record.answer else "wrong"}


def quick(record: Record, region: str) -> None:
    """Return None: there is nothing quicker than :func:`score`."""


def vote(record: Record, region: str) -> str | None:
    """Return the number in the region as text; 7.0 and 7 are one."""
    text = region.strip()
    if not _NUMBER.fullmatch(text):
        return None
    whole, _, rest = text.replace(",", "").partition(".")
    return str(int(whole)) if not rest.strip("0") else f"{int(whole)}.{rest.rstrip('0')}"


def chance(record: Record) -> None:
    """Guessing has no level here."""
