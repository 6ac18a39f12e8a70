"""Derivations that supervised fine-tuning teaches: careful ones that back-track, lazy ones that do not, mere guesses.

All three answer at the end; a careful derivation is always valid under :mod:`sage.tasks.knights.grade`. Who is supposed
first, and as what, is drawn at random: several derivations of one puzzle are right.
"""

import random

from sage.tasks.knights.logic import Puzzle, constraint, everything, people, where
from sage.tasks.knights.render import ANSWER, CONTRADICTION, PEOPLE, REVERSE, ROLES, SPEAKERS, SUPPOSE, roles_text

MODES = ("careful", "lazy", "direct")


class _Solver:
    """A case analysis under way: the roles assumed so far, whose statements are still to be read, the words written."""

    def __init__(self, puzzle: Puzzle, careful: bool, generator: random.Random) -> None:
        self.n, self.careful, self.generator = len(puzzle), careful, generator
        self.mentioned = [sorted(people(statement)) for statement in puzzle]
        self.constraints = [constraint(puzzle, p) for p in range(self.n)]
        self.roles: dict[int, bool] = {}
        self.unread: list[int] = []
        self.suppositions: list[tuple[int, bool, dict[int, bool]]] = []  # person, role, roles before it
        self.words: list[str] = []

    def solve(self) -> dict[int, bool]:
        """Run to the end; return the roles that are held then."""
        while True:
            if not self._read_all():
                self._reverse()
            elif len(self.roles) < self.n:
                self._suppose()
            else:
                return self.roles

    def _read_all(self) -> bool:
        """Read the statements of people whose role is new, in turn, then all; False at a contradiction."""
        while True:
            while self.unread:
                if not self._read(self.unread.pop(0), restate=True):
                    return False
            before = len(self.words)
            for speaker in range(self.n):
                if not self._read(speaker, restate=False):
                    return False
                if len(self.words) > before:
                    break
            else:
                return True

    def _read(self, speaker: int, restate: bool) -> bool:
        """Write what the statement of ``speaker`` gives; False where it contradicts what is held."""
        others = self.mentioned[speaker] if restate else sorted({speaker, *self.mentioned[speaker]})
        for person in others:
            if person in self.roles and not restate:
                continue
            left = self.constraints[speaker] & self._held(without=person)
            role = self._forced(left, person)
            if role is None or (restate and person == speaker):
                continue
            if person in self.roles and self.roles[person] != role:
                break
            self._write(SPEAKERS[speaker], PEOPLE[person], ROLES[role])
            self._learn(person, role)
        if self.careful and not self.constraints[speaker] & self._held():
            self._write(SPEAKERS[speaker], CONTRADICTION)
            return False
        return True

    def _forced(self, left: int, person: int) -> bool | None:
        if not left:
            return None
        for role in (True, False):
            if not left & where(self.n, person, not role):
                return role
        return None

    def _held(self, without: int | None = None) -> int:
        held = everything(self.n)
        for person, role in self.roles.items():
            if person != without:
                held &= where(self.n, person, role)
        return held

    def _learn(self, person: int, role: bool) -> None:
        if person not in self.roles:
            self.roles[person] = role
            self.unread.append(person)

    def _suppose(self) -> None:
        unknown = [p for p in range(self.n) if p not in self.roles]
        person, role = self.generator.choice(unknown), self.generator.random() < 0.5
        self.suppositions.append((person, role, dict(self.roles)))
        self._write(SUPPOSE, PEOPLE[person], ROLES[role])
        self._learn(person, role)

    def _reverse(self) -> None:
        person, role, before = self.suppositions.pop()
        self.roles, self.unread = before, []
        self._write(REVERSE, PEOPLE[person], ROLES[not role])
        self._learn(person, not role)

    def _write(self, *words: str) -> None:
        self.words += words


def derive(puzzle: Puzzle, solution: tuple[bool, ...], mode: str, generator: random.Random) -> str:
    """Return a derivation of ``puzzle`` in ``mode``, as text.

    ``careful``: notices each contradiction and reverses the last supposition. ``lazy``: stops at the end of the first
    branch and never notices one, so that its answer may be wrong. ``direct``: an answer alone, right half of the time,
    else drawn uniformly.
    """
    if mode == "direct":
        guess = tuple(generator.random() < 0.5 for _ in puzzle)
        return ANSWER + roles_text(solution if generator.random() < 0.5 else guess)
    solver = _Solver(puzzle, mode == "careful", generator)
    roles = solver.solve()
    return "".join([*solver.words, ANSWER, roles_text(tuple(roles[p] for p in range(len(puzzle))))])
