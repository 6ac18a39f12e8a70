"""The compact rendering: a word-level language of two dozen words, for models made from nothing.

``A B N ; B A K & C N ; C ~ B N ; ?`` lists each speaker with the statement; ``B N`` says that B is a knave. A derivation
is a sequence of steps and an answer: ``S A N`` suppose A is a knave; ``A B N`` A's statement gives that B is a knave;
``A X`` A's statement contradicts what is assumed; ``R A K`` so A is a knight instead; ``! N K ...`` the roles in order.
"""

from sage.tasks.knights.logic import Puzzle, Statement

PEOPLE = "ABCDEFGH"
ROLES = {True: "K", False: "N"}
SIGNS = {"not": "~", "and": "&", "or": "|", "implies": ">", "iff": "="}
SUPPOSE, CONTRADICTION, REVERSE, ANSWER = "S", "X", "R", "!"
VOCABULARY = [*PEOPLE, "K", "N", *SIGNS.values(), ";", "?", SUPPOSE, CONTRADICTION, REVERSE, ANSWER]


def statement_words(statement: Statement) -> list[str]:
    """Return the words of a statement whose operands are literals or negated literals."""
    kind, *rest = statement
    if kind == "is":
        return [PEOPLE[rest[0]], ROLES[rest[1]]]
    if kind == "not":
        return [SIGNS["not"], *statement_words(rest[0])]
    words = statement_words(rest[0])
    for part in rest[1:]:
        words += [SIGNS[kind], *statement_words(part)]
    return words


def puzzle_text(puzzle: Puzzle) -> str:
    """Return the prompt of a puzzle."""
    words: list[str] = []
    for speaker, statement in enumerate(puzzle):
        words += [PEOPLE[speaker], *statement_words(statement), ";"]
    return " ".join([*words, "?"])


def roles_text(roles: tuple[bool, ...]) -> str:
    """Return roles in the order of the people, e.g. ``K N N``."""
    return " ".join(ROLES[role] for role in roles)


def parse_puzzle(text: str) -> Puzzle:
    """Return the puzzle of a prompt; ValueError where it is not one."""
    clauses = " ".join(text.split()).removesuffix("?").strip().removesuffix(";").split(" ; ")
    puzzle = []
    for speaker, clause in enumerate(clauses):
        words = clause.split()
        if not words or words[0] != PEOPLE[speaker]:
            raise ValueError(f"statement {speaker + 1} is not {PEOPLE[speaker]}'s: {clause!r}")
        puzzle.append(_parse_statement(words[1:]))
    return tuple(puzzle)


def _parse_statement(words: list[str]) -> Statement:
    for kind in ("implies", "iff", "or", "and"):
        if SIGNS[kind] in words:
            at = words.index(SIGNS[kind])
            left, right = _parse_statement(words[:at]), _parse_statement(words[at + 1 :])
            flat = right[1:] if right[0] == kind and kind in ("and", "or") else (right,)
            return (kind, left, *flat)
    if words and words[0] == SIGNS["not"]:
        return ("not", _parse_statement(words[1:]))
    if len(words) == 2 and words[0] in PEOPLE and words[1] in ROLES.values():
        return ("is", PEOPLE.index(words[0]), words[1] == ROLES[True])
    raise ValueError(f"not a statement: {' '.join(words)!r}")
