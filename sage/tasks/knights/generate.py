"""A seeded generator of puzzles with one consistent assignment each, and splits that share none up to renaming."""

import itertools
import random
from collections.abc import Iterator
from functools import cache

from sage.errors import UserError
from sage.tasks.knights.logic import CONNECTIVES, Puzzle, Statement, digest, truth, unique_solution

# A puzzle belongs to the split into whose interval its identity falls, so splits are disjoint however they are built.
SPLITS = {"test": (0.0, 0.2), "dev": (0.2, 0.3), "rl": (0.3, 0.5), "sft": (0.5, 1.0)}
KINDS = ("literal", *CONNECTIVES)
FRUITLESS = 200  # solutions given up in a row after which a grammar is taken to have no puzzle at all


def split_of(identity: str) -> str:
    """Return the split of the puzzle with this :func:`sage.tasks.knights.logic.digest`."""
    position = int(identity[:13], 16) / 16**13
    return next(name for name, (low, high) in SPLITS.items() if low <= position < high)


@cache
def statements(kind: str, speaker: int, n: int) -> tuple[Statement, ...]:
    """Return every statement of ``kind`` that ``speaker`` may make.

    A literal, plain or negated, is about somebody else (nobody can say "I am a knave", and "I am a knight" says
    nothing); a compound is about two different people, of whom the speaker may be one.
    """
    others = [("is", p, knight) for p in range(n) if p != speaker for knight in (True, False)]
    if kind == "literal":
        return tuple(others)
    if kind == "not":
        return tuple(("not", literal) for literal in others)
    pairs = itertools.permutations(range(n), 2) if kind == "implies" else itertools.combinations(range(n), 2)
    signs = list(itertools.product((True, False), repeat=2))
    return tuple((kind, ("is", p, i), ("is", q, j)) for p, q in pairs for i, j in signs)


@cache
def fitting(kind: str, speaker: int, roles: tuple[bool, ...]) -> tuple[Statement, ...]:
    """Return the statements of ``kind`` that are true where ``speaker`` is a knight under ``roles``, else false."""
    solution = 1 << sum(1 << p for p, knight in enumerate(roles) if knight)
    n = len(roles)
    return tuple(s for s in statements(kind, speaker, n) if bool(truth(s, n) & solution) == roles[speaker])


def puzzles(n: int, weights: dict[str, float], generator: random.Random) -> Iterator[tuple[Puzzle, tuple[bool, ...]]]:
    """Yield random puzzles of ``n`` people with their only solution, for ever where the grammar has any.

    The solution is drawn first, uniformly over the 2^n, and then statements that fit it until no other solution does,
    so that no answer is commoner than another; a solution that 100 sets of statements leave ambiguous is given up.
    Literals alone always leave it so: each says whether two people are alike, which holds with all roles swapped too.
    """
    kinds, shares = list(weights), list(weights.values())
    fruitless = 0
    while fruitless < FRUITLESS:
        fruitless += 1
        roles = tuple(generator.random() < 0.5 for _ in range(n))
        for _ in range(100):
            chosen = generator.choices(kinds, shares, k=n)
            puzzle = tuple(generator.choice(fitting(kind, p, roles)) for p, kind in enumerate(chosen))
            if unique_solution(puzzle) == roles:
                fruitless = 0
                yield puzzle, roles
                break


def draw_split(
    n: int, size: int, split: str, weights: dict[str, float], distinct: bool, generator: random.Random
) -> list[tuple[Puzzle, tuple[bool, ...], str]]:
    """Return ``size`` puzzles of ``split`` with solution and identity; ``distinct``: none twice up to renaming.

    Raises :class:`UserError` where the grammar has too few.
    """
    found: list[tuple[Puzzle, tuple[bool, ...], str]] = []
    seen: set[str] = set()
    tries = 0
    for puzzle, roles in puzzles(n, weights, generator):
        tries += 1
        if tries > 1000 * (len(found) + 10):
            break
        identity = digest(puzzle)
        if split_of(identity) != split or (distinct and identity in seen):
            continue
        seen.add(identity)
        found.append((puzzle, roles, identity))
        tries = 0 if distinct else tries
        if len(found) == size:
            return found
    raise UserError(
        f"people: {n}, split: {split}: only {len(found)} different puzzles found, {size} asked for;"
        " lower size, or add people or kinds of statements"
    )
