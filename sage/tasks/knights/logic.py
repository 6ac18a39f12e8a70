"""Puzzles of knights and knaves as logic: statements, truth tables, constraints, solutions, canonical forms.

A statement is a nested tuple: ("is", person, knight), ("not", s), ("and", s, t, ...), ("or", s, t, ...),
("implies", s, t), ("iff", s, t); people are 0 ... n - 1. A puzzle is a tuple of n statements, one a person.

A set of assignments of roles to n people is an integer of 2^n bits: bit a is set where the assignment a is in it, and
bit p of a says whether person p is a knight. So intersection is ``&``, and n = 8 costs no more than n = 2.
"""

import hashlib
import itertools
from collections.abc import Sequence
from functools import cache, lru_cache

Statement = tuple
Puzzle = tuple[Statement, ...]
CONNECTIVES = ("not", "and", "or", "implies", "iff")
SYMMETRIC = ("and", "or", "iff")


@cache
def everything(n: int) -> int:
    """Return the set of all assignments of n people."""
    return (1 << (1 << n)) - 1


@cache
def where(n: int, person: int, knight: bool) -> int:
    """Return the set of assignments in which ``person`` is a knight, or a knave."""
    knights = sum(1 << a for a in range(1 << n) if a >> person & 1)
    return knights if knight else everything(n) & ~knights


@cache
def truth(statement: Statement, n: int) -> int:
    """Return the set of assignments in which ``statement`` is true."""
    kind, *rest = statement
    if kind == "is":
        return where(n, rest[0], rest[1])
    sets = [truth(part, n) for part in rest]
    if kind == "not":
        return everything(n) & ~sets[0]
    if kind == "implies":
        return everything(n) & (~sets[0] | sets[1])
    if kind == "iff":
        return everything(n) & ~(sets[0] ^ sets[1])
    result = sets[0]
    for other in sets[1:]:
        result = result & other if kind == "and" else result | other
    return result


def constraint(puzzle: Puzzle, speaker: int) -> int:
    """Return the assignments in which ``speaker`` is a knight just where the speaker's statement is true."""
    return _constraint(speaker, puzzle[speaker], len(puzzle))


@cache
def _constraint(speaker: int, statement: Statement, n: int) -> int:
    return everything(n) & ~(where(n, speaker, True) ^ truth(statement, n))


def solutions(puzzle: Puzzle) -> int:
    """Return the assignments that meet every constraint."""
    n = len(puzzle)
    result = everything(n)
    for speaker, statement in enumerate(puzzle):
        result &= _constraint(speaker, statement, n)
    return result


def unique_solution(puzzle: Puzzle) -> tuple[bool, ...] | None:
    """Return the roles (True: knight) of the only consistent assignment; None where there is none or more than one."""
    found = solutions(puzzle)
    if found == 0 or found & (found - 1):
        return None
    assignment = found.bit_length() - 1
    return tuple(bool(assignment >> p & 1) for p in range(len(puzzle)))


def people(statement: Statement) -> frozenset[int]:
    """Return the people that a statement mentions."""
    if statement[0] == "is":
        return frozenset((statement[1],))
    return frozenset().union(*(people(part) for part in statement[1:]))


def renamed(statement: Statement, names: Sequence) -> Statement:
    """Return the statement with person p replaced by ``names[p]``, operands of symmetric connectives sorted."""
    kind, *rest = statement
    if kind == "is":
        return ("is", names[rest[0]], rest[1])
    parts = [renamed(part, names) for part in rest]
    return (kind, *(sorted(parts) if kind in SYMMETRIC else parts))


def canonical(puzzle: Puzzle) -> Puzzle:
    """Return the form that a puzzle shares with its renamings and with nothing else.

    People are first told apart by what they say and who mentions them, repeatedly (colour refinement); the smallest
    form over all permutations that keep the order of colours is exact, and there are few of them.
    """
    colours = _colours(puzzle)
    classes = [[p for p, c in enumerate(colours) if c == colour] for colour in sorted(set(colours))]
    forms = []
    for orders in itertools.product(*(itertools.permutations(members) for members in classes)):
        order = [p for members in orders for p in members]
        names = [order.index(p) for p in range(len(order))]
        forms.append(tuple(renamed(puzzle[p], names) for p in order))
    return min(forms)


def _colours(puzzle: Puzzle) -> list[int]:
    n, colours = len(puzzle), [0] * len(puzzle)
    while True:
        signatures = []
        for p in range(n):
            marked = [(colour, q == p) for q, colour in enumerate(colours)]
            said = sorted((colours[q], repr(renamed(puzzle[q], marked))) for q in range(n) if q != p)
            signatures.append(repr((colours[p], repr(renamed(puzzle[p], marked)), said)))
        ordered = sorted(set(signatures))
        new = [ordered.index(signature) for signature in signatures]
        if len(set(new)) == len(set(colours)):
            return new
        colours = new


@lru_cache(maxsize=1 << 18)  # the same puzzle is drawn again and again where nearly all of a split are wanted
def digest(puzzle: Puzzle) -> str:
    """Return the hex SHA-256 of the canonical form: the puzzle's identity up to renaming."""
    return hashlib.sha256(repr(canonical(puzzle)).encode()).hexdigest()


def record_id(puzzle: Puzzle, identity: str) -> str:
    """Return the id of a puzzle with this :func:`digest`: the number of people and 48 bits of it."""
    return f"n{len(puzzle)}-{identity[:12]}"
