"""The compact rendering: a language of some 30 characters, a token each, for models made from nothing.

``aBN;bAK&CN;c~BN;?`` lists each speaker (in lower case) with the statement; ``BN`` says that B is a knave. A derivation is
steps and an answer: ``SAN`` suppose A is a knave; ``aBN`` A's statement gives that B is a knave; ``aX`` A's statement
contradicts what is assumed; ``RAK`` so A is a knight instead; ``!ANBKCK`` the roles in order. White space means nothing.

A speaker has another character than a person spoken of, so that to find a statement is to find one character.
"""

from sage.tasks.knights.logic import Puzzle, Statement

PEOPLE = "ABCDEFGH"
SPEAKERS = PEOPLE.lower()
ROLES = {True: "K", False: "N"}
SIGNS = {"not": "~", "and": "&", "or": "|", "implies": ">", "iff": "="}
SUPPOSE, CONTRADICTION, REVERSE, ANSWER = "S", "X", "R", "!"
VOCABULARY = [*PEOPLE, *SPEAKERS, "K", "N", *SIGNS.values(), ";", "?", SUPPOSE, CONTRADICTION, REVERSE, ANSWER]


def statement_text(statement: Statement) -> str:
    """Return the text of a statement whose operands are literals or negated literals."""
    kind, *rest = statement
    if kind == "is":
        return PEOPLE[rest[0]] + ROLES[rest[1]]
    if kind == "not":
        return SIGNS["not"] + statement_text(rest[0])
    return SIGNS[kind].join(statement_text(part) for part in rest)


def puzzle_text(puzzle: Puzzle) -> str:
    """Return the prompt of a puzzle."""
    clauses = [f"{SPEAKERS[speaker]}{statement_text(statement)};" for speaker, statement in enumerate(puzzle)]
    return "".join([*clauses, "?"])


def roles_text(roles: tuple[bool, ...]) -> str:
    """Return everybody's role in the order of the people, e.g. ``AKBN``."""
    return "".join(PEOPLE[person] + ROLES[role] for person, role in enumerate(roles))


def parse_roles(text: str) -> tuple[bool, ...]:
    """Return the roles of an answer; ValueError where it does not name people A, B, ... in order with a role each."""
    words = "".join(text.split())
    roles = tuple(role == ROLES[True] for role in words[1::2])
    if len(roles) > len(PEOPLE) or roles_text(roles) != words:
        raise ValueError(f"not everybody's role in order: {text!r}")
    return roles


def parse_puzzle(text: str) -> Puzzle:
    """Return the puzzle of a prompt; ValueError where it is not one."""
    text = "".join(text.split())
    if not text.endswith(";?"):
        raise ValueError(f"a puzzle ends with ';?': {text!r}")
    puzzle = []
    for speaker, clause in enumerate(text.removesuffix(";?").split(";")):
        if clause[:1] != SPEAKERS[speaker : speaker + 1]:
            raise ValueError(f"statement {speaker + 1} is nobody's or another's: {clause!r}")
        puzzle.append(_parse_statement(clause[1:]))
    return tuple(puzzle)


def _parse_statement(text: str) -> Statement:
    for kind in ("implies", "iff", "or", "and"):
        if SIGNS[kind] in text:
            return (kind, *(_parse_statement(part) for part in text.split(SIGNS[kind])))
    if text.startswith(SIGNS["not"]):
        return ("not", _parse_statement(text[1:]))
    if len(text) == 2 and text[0] in PEOPLE and text[1] in ROLES.values():
        return ("is", PEOPLE.index(text[0]), text[1] == ROLES[True])
    raise ValueError(f"not a statement: {text!r}")
