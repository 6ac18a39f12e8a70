"""The English rendering: puzzles under the field names of the public data set, and public records as ours.

In and out: dictionaries with the fields of ``K-and-K/knights-and-knaves`` (quiz, names, knight_knave, solution,
solution_text, solution_text_format, cot_head, cot_repeat_steps, cot_foot, statements, index). There a statement is
``('telling-truth', 0)``, ``('lying', 1)``, ``('not', s)``, ``('and', s, t, ...)``, ``('or', s, t, ...)``,
``('->', s, t)`` or ``('<=>', s, t)``, and ``statements`` is the text of a tuple of them, one a person.
"""

import ast
import random
from collections.abc import Mapping, Sequence
from typing import Any

from sage import seeds
from sage.errors import UserError
from sage.tasks import Record
from sage.tasks.knights.logic import (
    Puzzle,
    Statement,
    constraint,
    digest,
    everything,
    record_id,
    unique_solution,
    where,
)
from sage.tasks.knights.render import PEOPLE, parse_puzzle, parse_roles, puzzle_text, roles_text

NAMES = (
    *("Alice", "Boris", "Clara", "Dmitri", "Elena", "Farid", "Greta", "Hugo", "Irene", "Jonas", "Kira", "Leon"),
    *("Marta", "Nils", "Olga", "Pavel", "Quentin", "Rosa", "Stefan", "Tara", "Ulrich", "Vera", "Walter", "Yusuf"),
)
SAYINGS = (
    '{name} says, "{claim}".',
    '{name} remarks, "{claim}".',
    'According to {name}, "{claim}".',
    "{name} tells you that {claim}.",
    '"{claim}," {name} claims.',
)
ROLE_WORDS = {
    **{"knight": "knight", "knave": "knave", "Knight": "Knight", "Knave": "Knave"},
    **{"a_knight": "a knight", "a_knave": "a knave"},
}
PUBLIC = {"not": "not", "and": "and", "or": "or", "implies": "->", "iff": "<=>"}
_OURS = {public: ours for ours, public in PUBLIC.items()}
_LITERALS = {"telling-truth": True, "lying": False}
_OPERANDS = {"not": (1, 1), "and": (2, 99), "or": (2, 99), "implies": (2, 2), "iff": (2, 2)}


# --- ours to public ---


def to_public(record: Record, names: Sequence[str] | None = None, index: int = 0) -> dict[str, Any]:
    """Return ``record`` under the public field names; without ``names`` they are drawn, always the same for its id."""
    puzzle, roles = parse_puzzle(record.problem), parse_roles(record.answer)
    generator = random.Random(seeds.stream(0, "knights", "english", record.id))
    drawn = generator.sample(NAMES, len(puzzle))
    names = drawn if names is None else list(names)
    parts = [f"{name} is {_role(role)}" for name, role in zip(names, roles, strict=True)]
    return {
        "quiz": _quiz(puzzle, names, generator),
        "names": names,
        "knight_knave": dict(ROLE_WORDS),
        "solution": list(roles),
        "solution_text": _listing(parts) + ".",
        "solution_text_format": "\n".join(f"({i}) {part}" for i, part in enumerate(parts, start=1)),
        "cot_head": "Let us go through the people one by one, and see where each role leads.",
        "cot_repeat_steps": _Reasoning(puzzle, names).steps(),
        "cot_foot": "Nothing contradicts these roles, so they are the solution.",
        "statements": repr(tuple(_public(statement) for statement in puzzle)),
        "index": index,
    }


def _quiz(puzzle: Puzzle, names: Sequence[str], generator: random.Random) -> str:
    sayings = [
        generator.choice(SAYINGS).format(name=name, claim=claim(statement, names))
        for name, statement in zip(names, puzzle, strict=True)
    ]
    island = "On an island everybody is either a knight, who always tells the truth, or a knave, who always lies."
    people = f"You meet {len(names)} inhabitants: {_listing(names)}."
    return " ".join([island, people, *sayings, "Who is a knight and who is a knave?"])


def claim(statement: Statement, names: Sequence[str]) -> str:
    """Return a statement in words; operands are literals or negated literals."""
    kind, *parts = statement
    if kind == "is":
        return f"{names[parts[0]]} is {_role(parts[1])}"
    if kind == "not":
        return f"{names[parts[0][1]]} is not {_role(parts[0][2])}"
    texts = [claim(part, names) for part in parts]
    if kind == "implies":
        return f"if {texts[0]} then {texts[1]}"
    return {"and": " and ", "or": " or ", "iff": " if and only if "}[kind].join(texts)


def _role(knight: bool) -> str:
    return ROLE_WORDS["a_knight" if knight else "a_knave"]


def _listing(parts: Sequence[str]) -> str:
    return ", ".join(parts[:-1]) + f", and {parts[-1]}" if len(parts) > 1 else parts[0]


def _mentions(statement: Statement) -> list[int]:
    """Return the people of a statement in the order in which they are mentioned."""
    kind, *parts = statement
    return [parts[0]] if kind == "is" else [person for part in parts for person in _mentions(part)]


def _public(statement: Statement) -> tuple[Any, ...]:
    kind, *parts = statement
    if kind == "is":
        return ("telling-truth" if parts[1] else "lying", parts[0])
    return (PUBLIC[kind], *(_public(part) for part in parts))


class _Reasoning:
    """A depth-first search in words: each person as a knight, then as a knave; whoever was just mentioned is next."""

    def __init__(self, puzzle: Puzzle, names: Sequence[str]) -> None:
        self.puzzle, self.names = puzzle, names
        self.constraints = [constraint(puzzle, speaker) for speaker in range(len(puzzle))]
        self.texts: list[str] = []
        self.exhausted: list[int] = []  # people without a role left, since the last one that was tried

    def steps(self) -> list[str]:
        """Return the steps that lead to the solution."""
        self._search(list(range(len(self.puzzle))), {})
        return self.texts

    def _search(self, queue: list[int], roles: dict[int, bool]) -> bool:
        if not queue:
            return True
        person, *rest = queue
        for role in (True, False):
            self._go_back_to(person)
            tried = {**roles, person: role}
            broken = self._contradicted(tried)
            self.texts.append(self._supposed(person, role) if broken is None else self._refuted(person, role, broken))
            if broken is None and self._search(self._next(person, rest), tried):
                return True
        self.exhausted.append(person)
        return False

    def _next(self, speaker: int, rest: list[int]) -> list[int]:
        first = [p for p in dict.fromkeys(_mentions(self.puzzle[speaker])) if p in rest]
        return [*first, *(p for p in rest if p not in first)]

    def _contradicted(self, roles: Mapping[int, bool]) -> tuple[int, bool] | None:
        """Return the first speaker, with role, whose statement cannot be squared with ``roles``."""
        n = len(self.puzzle)
        held = everything(n)
        for person, role in roles.items():
            held &= where(n, person, role)
        return next(((p, roles[p]) for p in sorted(roles) if not self.constraints[p] & held), None)

    def _go_back_to(self, person: int) -> None:
        if self.exhausted:
            spent = " and ".join(self.names[p] for p in self.exhausted)
            self.texts.append(f"No role is left for {spent}, so we go back to {self.names[person]}.")
            self.exhausted = []

    def _supposed(self, person: int, role: bool) -> str:
        says = claim(self.puzzle[person], self.names)
        what = "claim" if role else "false claim"
        return f"Suppose {self.names[person]} is {_role(role)}. This agrees with their {what} that {says}."

    def _refuted(self, person: int, role: bool, broken: tuple[int, bool]) -> str:
        speaker, honest = broken
        whose = "their own" if speaker == person else f"{self.names[speaker]}'s"
        what = f"{whose} {'claim' if honest else 'false claim'} that {claim(self.puzzle[speaker], self.names)}"
        return f"{self.names[person]} cannot be {_role(role)}, because this would contradict {what}."


# --- public to ours ---


def from_public(row: Mapping[str, Any]) -> Record:
    """Return a public record as one of ours: the puzzle and its solution; names and wording are not kept.

    Raises :class:`UserError` where ``statements`` is not in the notation above, goes deeper than a connective of
    (negated) literals, or does not have ``solution`` as its only solution.
    """
    place = f"record {row.get('index', '?')}: "
    missing = [key for key in ("statements", "solution") if key not in row]
    if missing:
        raise UserError(f"{place}{missing[0]}: missing; give a record with the public fields")
    try:
        puzzle = _puzzle(row["statements"])
    except (ValueError, TypeError, SyntaxError) as error:
        raise UserError(f"{place}statements: {error}; see sage.tasks.knights.english for the notation") from None
    roles = unique_solution(puzzle)
    if roles is None or list(roles) != list(row["solution"] if row["solution"] is not None else ()):
        raise UserError(f"{place}solution: not the only solution of its statements; correct or drop the record")
    return Record(record_id(puzzle, digest(puzzle)), puzzle_text(puzzle), roles_text(roles), {"people": len(puzzle)})


def _puzzle(content: Any) -> Puzzle:
    parts = ast.literal_eval(content) if isinstance(content, str) else content
    if not isinstance(parts, Sequence) or not 2 <= len(parts) <= len(PEOPLE):
        raise ValueError(f"not a sequence of 2 to {len(PEOPLE)} statements")
    return tuple(_statement(part, len(parts), depth=0) for part in parts)


def _statement(part: Any, n: int, depth: int) -> Statement:
    """Return a public statement in our notation. Depth 0 is the whole, 1 an operand of a connective, 2 of its ``not``."""
    if not isinstance(part, Sequence) or isinstance(part, str) or not part or not isinstance(part[0], str):
        raise ValueError(f"{part!r} is no statement")
    kind, *parts = part
    if kind in _LITERALS:
        if len(parts) != 1 or str(parts[0]) not in map(
            str, range(n)
        ):  # the public code writes 0 and 1 as text at times
            raise ValueError(f"{part!r} is not about one of {n} people")
        return ("is", int(parts[0]), _LITERALS[kind])
    if kind not in _OURS or depth == 2 or (depth == 1 and kind != "not"):
        raise ValueError(f"{part!r} is no statement, or too deep a one")
    kind = _OURS[kind]
    low, high = _OPERANDS[kind]
    if not low <= len(parts) <= high:
        raise ValueError(f"{part!r} has {len(parts)} operands")
    return (kind, *(_statement(operand, n, 2 if kind == "not" else 1) for operand in parts))
