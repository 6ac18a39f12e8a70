"""The strict grade against a second checker, which reads texts and tries all completions, and shares no code with it."""

import itertools
import random
import re

import pytest

from sage.tasks import Record, knights
from sage.tasks.knights import Spec, render

PEOPLE = "ABCDEFGH"
KINDS = {
    "laptop": {"literal": 0.6, "and": 0.4},
    "all": dict.fromkeys(["literal", "not", "and", "or", "implies", "iff"], 1.0),
}
STEP = re.compile(r"([a-h])X|([a-hSR])([A-H])([KN])")


def possible(problem: str, speaker: str, held: dict[str, str]) -> list[dict[str, str]]:
    """Return every assignment of roles that agrees with ``held`` and with what ``speaker`` says."""
    clauses = problem.removesuffix(";?").split(";")
    everybody = [clause[0].upper() for clause in clauses]
    text = next(clause[1:] for clause in clauses if clause[0] == speaker)
    found = []
    for values in itertools.product("KN", repeat=len(everybody)):
        roles = dict(zip(everybody, values, strict=True))
        if any(roles[p] != r for p, r in held.items()):
            continue
        code = re.sub("([A-H])([KN])", lambda m: str(int(roles[m[1]] == m[2])), text)  # noqa: B023
        for sign, word in {"=": "==", ">": "<=", "~": " not ", "&": " and ", "|": " or "}.items():
            code = code.replace(sign, word)
        if bool(eval(code)) == (roles[speaker.upper()] == "K"):
            found.append(roles)
    return found


def something_follows(problem: str, held: dict[str, str]) -> bool:
    """Return whether some statement alone gives a role that is not held, or contradicts what is held."""
    for speaker in render.SPEAKERS[: problem.count(";")]:
        found = possible(problem, speaker, held)
        if not found or any(len({roles[p] for roles in found}) == 1 for p in found[0] if p not in held):
            return True
    return False


def follows(problem: str, text: str) -> bool:
    """Return whether each step of a derivation follows and its end is its answer."""
    steps, answer = text.split("!")
    n = problem.count(";")
    held: dict[str, str] = {}
    stack: list[tuple[str, str, dict[str, str]]] = []
    clash = False
    for match in STEP.finditer(steps):
        speaker, kind, person, role = match.groups()
        if speaker:
            if clash or possible(problem, speaker, held):
                return False
            clash = True
        elif kind == "R":
            if not clash or not stack:
                return False
            supposed, as_role, before = stack.pop()
            if supposed != person or as_role == role:
                return False
            held, clash = {**before, person: role}, False
        elif clash:
            return False
        elif kind == "S":
            if person in held or something_follows(problem, held):
                return False
            stack.append((person, role, dict(held)))
            held[person] = role
        else:
            others = {p: r for p, r in held.items() if p != person}
            roles = {found[person] for found in possible(problem, kind, others)}
            if roles != {role} or held.get(person, role) != role:
                return False
            held[person] = role
    return not clash and answer == "".join(p + held.get(p, "") for p in PEOPLE[:n])


def expected(record: Record, text: str) -> dict[str, str]:
    """Return the verdicts that the second checker gives."""
    n = record.extra["people"]
    match = re.fullmatch(r"([^!]*)!((?:[A-H][KN])*)", text)
    if not match or match[2][::2] != PEOPLE[:n]:
        return {"strict": "unparseable", "answer": "unparseable"}
    answer = "correct" if match[2] == record.answer else "wrong"
    assert re.fullmatch(f"(?:{STEP.pattern})*", match[1])  # the mutations below keep steps whole
    strict = answer if follows(record.problem, text) else "wrong"
    return {"strict": strict, "answer": answer}


def mutated(text: str, n: int, generator: random.Random) -> str:
    """Return a derivation with a few whole steps dropped, doubled, swapped or changed."""
    steps, answer = text.split("!")
    parts = [match.group() for match in STEP.finditer(steps)]
    for _ in range(generator.randint(0, 2)):
        at = generator.randrange(len(parts) + 1)
        change = generator.choice(["drop", "double", "swap", "role", "new", "answer"])
        if change == "new":
            speaker = generator.choice([*render.SPEAKERS[:n], "S", "R"])
            parts.insert(at, speaker + generator.choice(PEOPLE[:n]) + generator.choice("KN"))
        elif change == "answer":
            spot = 2 * generator.randrange(n) + 1
            answer = answer[:spot] + generator.choice("KN") + answer[spot + 1 :]
        elif at < len(parts):
            part = parts[at]
            replacement = {"drop": [], "double": [part, part], "swap": parts[at : at + 2][::-1]}.get(change)
            if replacement is None:
                replacement = [part[:-1] + generator.choice("KN")] if part[-1] in "KN" else [part]
            parts[at : at + max(1, len(replacement) if change == "swap" else 1)] = replacement
    return "".join([*parts, "!", answer])


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("people", [3, 4, 5])
def test_a_second_checker_agrees_on_changed_derivations(people, kinds):
    traces = {"careful": 0.7, "lazy": 0.3}
    common = {"task": "knights", "split": "sft", "people": [people], "statements": KINDS[kinds], "traces": traces}
    records, generator = knights.build(Spec(**common, size=120), seed=6), random.Random(7)
    verdicts = []
    for record in records:
        for _ in range(4):
            text = mutated(record.extra["trace"], people, generator)
            verdicts.append(expected(record, text))
            assert knights.score(record, text) == verdicts[-1], (record.problem, text)
    strict = [verdict["strict"] for verdict in verdicts]
    assert strict.count("correct") > 50
    assert strict.count("wrong") > 50  # both sides are put to the test


@pytest.mark.parametrize("kinds", KINDS)
def test_thousands_of_careful_derivations_are_valid(kinds):
    common = {"task": "knights", "split": "sft", "people": list(range(2, 9)), "statements": KINDS[kinds]}
    for record in knights.build(Spec(**common, traces={"careful": 1.0}, size=2100), seed=8):
        assert knights.score(record, record.extra["trace"])["strict"] == "correct"


@pytest.mark.parametrize("cut", [0.2, 0.5, 0.8, 0.95])
def test_cut_derivations_are_never_correct(cut):
    common = {"task": "knights", "split": "sft", "people": [3, 5, 8], "statements": KINDS["all"]}
    for record in knights.build(Spec(**common, traces={"careful": 1.0}, size=90), seed=9):
        text = record.extra["trace"]
        assert set(knights.score(record, text[: int(cut * len(text))]).values()) == {"unparseable"}
