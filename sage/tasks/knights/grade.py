"""The two grades of a completion: ``answer``, the roles alone, and ``strict``, every step of the derivation besides.

A checker of single steps, which knows nothing of how derivations are made. A step follows where the statement of one
person, under what is held so far, leaves no other role: nothing is taken on trust, and nothing needs to be clever.
A supposition is allowed only where no single statement forces a new role or contradicts what is held: else supposing
everybody's role and deriving nothing would be a derivation, and a guess be right with chance 2^-n under ``strict`` too.
"""

from dataclasses import dataclass, field

from sage.tasks.knights.logic import Puzzle, constraint, everything, where
from sage.tasks.knights.render import ANSWER, CONTRADICTION, PEOPLE, REVERSE, ROLES, SPEAKERS, SUPPOSE, parse_roles

GRADES = ("strict", "answer")
_ROLE = {word: role for role, word in ROLES.items()}


class Malformed(ValueError):
    """The text is not a derivation, whatever it says."""


class Unsound(ValueError):
    """A step does not follow."""


def grade(puzzle: Puzzle, solution: tuple[bool, ...], text: str) -> dict[str, str]:
    """Return the verdict of each grade; never raises, whatever the text.

    The answer region is what follows the only ``!``: everybody's role in order and nothing else but white space. No or
    several ``!``, or anything else there, is unparseable under both grades; a step that is none is so under ``strict``.
    """
    words = list("".join(text.split()))
    try:
        answer, steps = _answer(words, len(puzzle)), words[: words.index(ANSWER)] if ANSWER in words else []
    except Malformed:
        return dict.fromkeys(GRADES, "unparseable")
    right = "correct" if answer == solution else "wrong"
    try:
        held = _Checker(puzzle).run(steps, len(puzzle))
    except Malformed:
        return {"strict": "unparseable", "answer": right}
    except Unsound:
        return {"strict": "wrong", "answer": right}
    complete = held == dict(enumerate(answer))
    return {"strict": right if complete else "wrong", "answer": right}


def answered(text: str, n: int) -> tuple[bool, ...] | None:
    """Return the roles of all ``n`` people in the answer region of ``text``, None where they do not stand there."""
    try:
        return _answer(list("".join(text.split())), n)
    except Malformed:
        return None


def _answer(words: list[str], n: int) -> tuple[bool, ...]:
    if words.count(ANSWER) != 1:
        raise Malformed
    try:
        roles = parse_roles("".join(words[words.index(ANSWER) + 1 :]))
    except ValueError:
        raise Malformed from None
    if len(roles) != n:
        raise Malformed
    return roles


@dataclass
class _Checker:
    """What is held at a point of the derivation."""

    puzzle: Puzzle
    roles: dict[int, bool] = field(default_factory=dict)
    suppositions: list[tuple[int, bool, dict[int, bool]]] = field(default_factory=list)  # person, role, roles before
    contradicted: bool = False

    def run(self, words: list[str], n: int) -> dict[int, bool]:
        """Check all steps; return the roles held at the end."""
        position = 0
        while position < len(words):
            step = words[position : position + 3]
            if len(step) > 1 and step[1] == CONTRADICTION:
                self._contradict(_index(step[0], SPEAKERS[:n]))
                position += 2
                continue
            if len(step) < 3 or step[2] not in _ROLE:
                raise Malformed
            self._assign(step[0], _index(step[1], PEOPLE[:n]), _ROLE[step[2]], n)
            position += 3
        if self.contradicted:
            raise Unsound
        return self.roles

    def _assign(self, kind: str, person: int, role: bool, n: int) -> None:
        if self.contradicted and kind != REVERSE:
            raise Unsound
        if kind == SUPPOSE:
            self._suppose(person, role)
        elif kind == REVERSE:
            self._reverse(person, role)
        else:
            self._derive(_index(kind, SPEAKERS[:n]), person, role)

    def _suppose(self, person: int, role: bool) -> None:
        if person in self.roles or self._something_follows():
            raise Unsound
        self.suppositions.append((person, role, dict(self.roles)))
        self.roles[person] = role

    def _something_follows(self) -> bool:
        """Return whether some statement alone gives a role that is not held, or contradicts what is held."""
        n, held = len(self.puzzle), self._held()
        unknown = [person for person in range(n) if person not in self.roles]
        for speaker in range(n):
            left = constraint(self.puzzle, speaker) & held
            if not left or any(not left & where(n, p, role) for p in unknown for role in (True, False)):
                return True
        return False

    def _reverse(self, person: int, role: bool) -> None:
        if not self.contradicted or not self.suppositions:
            raise Unsound
        supposed, as_role, before = self.suppositions.pop()
        if (supposed, as_role) != (person, not role):
            raise Unsound
        self.roles, self.contradicted = {**before, person: role}, False

    def _derive(self, speaker: int, person: int, role: bool) -> None:
        n = len(self.puzzle)
        left = constraint(self.puzzle, speaker) & self._held(without=person)
        if not left or left & where(n, person, not role) or self.roles.get(person, role) != role:
            raise Unsound
        self.roles[person] = role

    def _contradict(self, speaker: int) -> None:
        if self.contradicted or constraint(self.puzzle, speaker) & self._held():
            raise Unsound
        self.contradicted = True

    def _held(self, without: int | None = None) -> int:
        n = len(self.puzzle)
        held = everything(n)
        for person, role in self.roles.items():
            if person != without:
                held &= where(n, person, role)
        return held


def _index(word: str, names: str) -> int:
    if word not in names:
        raise Malformed
    return names.index(word)
