"""Knights and Knaves: generated puzzles, graded on the answer and, strictly, on every step of a derivation."""

import random
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field, model_validator

from sage import seeds
from sage.strict import Strict
from sage.tasks import Record
from sage.tasks.knights import grade
from sage.tasks.knights.english import from_public, to_public
from sage.tasks.knights.generate import draw_split
from sage.tasks.knights.logic import Puzzle, record_id
from sage.tasks.knights.render import VOCABULARY, parse_puzzle, parse_roles, puzzle_text, roles_text
from sage.tasks.knights.traces import derive

__all__ = [
    "GRADES",
    "TIMEOUT",
    "VOCABULARY",
    "Spec",
    "build",
    "chance",
    "from_public",
    "prompt",
    "quick",
    "region",
    "score",
    "target",
    "to_public",
    "vote",
]

GRADES = grade.GRADES
TIMEOUT = None
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Spec(Strict):
    """A data set of puzzles."""

    task: Literal["knights"]
    split: Literal["sft", "rl", "dev", "test"]
    people: Annotated[list[Annotated[int, Field(ge=2, le=8)]], Field(min_length=1)]  # numbers of people, evenly mixed
    size: Annotated[int, Field(gt=0)]
    statements: dict[Literal["literal", "not", "and", "or", "implies", "iff"], Weight]  # relative frequencies
    traces: dict[Literal["careful", "lazy", "direct"], Weight] | None = None  # relative frequencies, split sft only

    @model_validator(mode="after")
    def _consistent(self) -> "Spec":
        if (self.traces is not None) != (self.split == "sft"):
            raise ValueError("traces: needed by split sft, and by no other")
        if not sum(self.statements.values()) > 0:
            raise ValueError("statements: give at least one kind a positive weight")
        if self.traces is not None and not sum(self.traces.values()) > 0:
            raise ValueError("traces: give at least one mode a positive weight")
        return self


def build(spec: Spec, seed: int) -> list[Record]:
    """Return the records of a data set.

    No puzzle of one split is in another, up to renaming; in a split other than sft none is there twice.
    """
    weights = {str(kind): weight for kind, weight in spec.statements.items()}
    order = [spec.people[i % len(spec.people)] for i in range(spec.size)]
    found = {}
    for n in dict.fromkeys(order):
        generator = random.Random(seeds.stream(seed, "knights", spec.split, n))
        distinct = spec.split != "sft"
        found[n] = iter(draw_split(n, order.count(n), spec.split, weights, distinct, generator))
    traces = random.Random(seeds.stream(seed, "knights", spec.split, "traces"))
    return [_record(i, *next(found[n]), spec, traces) for i, n in enumerate(order)]


def _record(
    number: int, puzzle: Puzzle, roles: tuple[bool, ...], identity: str, spec: Spec, generator: random.Random
) -> Record:
    name = record_id(puzzle, identity)
    if spec.traces is None:
        return Record(name, puzzle_text(puzzle), roles_text(roles), {"people": len(puzzle)})
    mode = str(generator.choices(list(spec.traces), list(spec.traces.values()))[0])
    extra = {"people": len(puzzle), "mode": mode, "trace": derive(puzzle, roles, mode, generator)}
    return Record(f"{name}-{number}", puzzle_text(puzzle), roles_text(roles), extra)


def prompt(record: Record) -> str:
    """Return what a model is asked."""
    return record.problem


def target(record: Record) -> str:
    """Return the derivation that supervised fine-tuning teaches."""
    return record.extra["trace"]


def region(record: Record, text: str) -> str:
    """Return what is graded of a completion: all of it, for every step counts under ``strict``."""
    return text


def quick(record: Record, region: str) -> None:
    """Return None: there is nothing quicker than :func:`score`."""


@lru_cache(maxsize=4096)
def _puzzle(problem: str) -> Puzzle:
    return parse_puzzle(problem)


def score(record: Record, text: str) -> dict[str, str]:
    """Return the verdict of each grade on a completion without its special tokens; never raises on any text."""
    solution = parse_roles(record.answer)
    return grade.grade(_puzzle(record.problem), solution, text)


def vote(record: Record, text: str) -> str | None:
    """Return the roles that a completion ends with, None where it does not."""
    roles = grade.answered(text, len(parse_roles(record.answer)))
    return None if roles is None else roles_text(roles)


def chance(record: Record) -> float:
    """Return the probability that one uniform guess at the roles is right."""
    return 2.0 ** -len(parse_roles(record.answer))
