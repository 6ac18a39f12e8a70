"""Knights and Knaves in English, for models that know English: the puzzles of the task ``knights``, in words.

The roles are graded, and nothing of the derivation: there is no grammar of it to check.
"""

import re
from typing import Annotated, Literal

from pydantic import Field

from sage.strict import Strict
from sage.tasks import Record, knights
from sage.tasks._math.region import last_tagged
from sage.tasks.knights.english import to_public

GRADES = ("answer",)
TIMEOUT = None
_ROLE = r"\W+is\W+(?:an?\W+)?(knight|knave)\b"


class Spec(Strict):
    """A data set of puzzles; ``region``: roles are read in the answer tags only, or wherever they are said last."""

    task: Literal["knights_english"]
    split: Literal["rl", "dev", "test"]
    people: Annotated[list[Annotated[int, Field(ge=2, le=8)]], Field(min_length=1)]
    size: Annotated[int, Field(gt=0)]
    statements: dict[Literal["literal", "not", "and", "or", "implies", "iff"], knights.Weight]
    region: Literal["tags", "whole"]


def build(spec: Spec, seed: int) -> list[Record]:
    """Return the puzzles that the task ``knights`` would make, in words."""
    same = spec.model_dump(exclude={"task", "region"})
    return [_record(record, spec.region) for record in knights.build(knights.Spec(task="knights", **same), seed)]


def _record(record: Record, region: str) -> Record:
    public = to_public(record)
    extra = {"names": public["names"], "people": len(public["names"]), "region": region}
    return Record(record.id, public["quiz"], public["solution_text"], extra)


def prompt(record: Record) -> str:
    """Return what a model is asked; how the answer is to be said is part of it."""
    example = ", ".join(f"{name} is a ..." for name in record.extra["names"])
    return f"{record.problem} Answer in the form: {example}."


def region(record: Record, text: str) -> str | None:
    """Return the declared answer region of a completion."""
    return last_tagged(text) if record.extra["region"] == "tags" else text


def roles(record: Record, text: str) -> tuple[str, ...] | None:
    """Return the role that ``text`` gives last to each person; None where somebody has none."""
    found = [re.findall(re.escape(name) + _ROLE, text, flags=re.IGNORECASE) for name in record.extra["names"]]
    return tuple(given[-1].lower() for given in found) if all(found) else None


def score(record: Record, region: str) -> dict[str, str]:
    """Return whether all roles are right; unparseable where somebody has none."""
    given = roles(record, region)
    if given is None:
        return {"answer": "unparseable"}
    return {"answer": "correct" if given == roles(record, record.answer) else "wrong"}


def quick(record: Record, region: str) -> None:
    """Return None: there is nothing quicker than :func:`score`."""


def vote(record: Record, region: str) -> str | None:
    """Return the roles in the order of the people."""
    given = roles(record, region)
    return None if given is None else " ".join(given)


def chance(record: Record) -> float:
    """Return the probability that one uniform guess at the roles is right."""
    return 2.0 ** -len(record.extra["names"])
