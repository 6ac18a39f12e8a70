"""OpenMathReasoning, a training set for fine-tuning: problems with worked solutions whose answers are numbers.

Rows have the fields problem, expected_answer and generated_solution: those of the split ``cot`` of
unsloth/OpenMathReasoning-mini (a selection from arXiv 2504.16891). Rows with another answer than a number are left out.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import Field

from sage.strict import Strict
from sage.tasks import Record
from sage.tasks._math import benchmark, training
from sage.tasks._math.benchmark import WORKED, WORKING, prompt
from sage.tasks._math.region import CLOSE, OPEN

__all__ = ["Spec", "build", "prompt", "read", "target"]

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)


class Spec(Strict):
    """The data set of a suite; ``pins``: the file with the digests of its records."""

    task: Literal["open_math"]
    sources: Annotated[list[str], Field(min_length=1)]
    pins: str


def read(spec: Spec) -> list[Record]:
    """Return the records as the sources have them now."""
    records = benchmark.read(spec.sources, ("problem", "expected_answer", "generated_solution"), _record)
    return training.single("open_math", records)


def build(spec: Spec, seed: int) -> list[Record]:
    """Return the records, checked against the pins."""
    return training.checked(spec.sources, read(spec), spec.pins)


def _record(row: dict[str, Any]) -> Record | None:
    answer = benchmark.clean(str(row["expected_answer"]))
    if not _NUMBER.fullmatch(answer):
        return None
    working = re.sub(r"</?think>", "", str(row["generated_solution"])).strip()
    # The id stands for problem and solution, as a problem may have several; so the pins cover both.
    identity = benchmark.record(f"{row['problem']}\n{working}", answer).id
    return Record(identity, benchmark.clean(str(row["problem"])), answer, {"working": working})


def target(record: Record) -> str:
    """Return what fine-tuning teaches: the working and the result, each in its tags.

    A template whose generation prompt ends with the tag that opens the working has said that tag already.
    """
    return f"{WORKING}{record.extra['working']}{WORKED}{OPEN}{record.answer}{CLOSE}"
