"""Arithmetic and Knights and Knaves in English: records, regions and verdicts."""

import pytest

from sage.errors import UserError
from sage.tasks import Record, arithmetic, knights, knights_english

SUMS = dict(task="arithmetic", split="rl", size=40, operations=["+", "-", "*"], largest=12, region="last_number")
PUZZLES = dict(
    task="knights_english", split="test", people=[3], size=20, statements={"literal": 0.5, "and": 0.5}, region="tags"
)


def test_answers_are_right_and_problems_are_different():
    records = arithmetic.build(arithmetic.Spec(**SUMS), 7)
    assert len({record.problem for record in records}) == 40
    for record in records:
        assert str(eval(record.problem.removeprefix("What is ").removesuffix("?"))) == record.answer
    assert records == arithmetic.build(arithmetic.Spec(**SUMS), 7)
    assert records != arithmetic.build(arithmetic.Spec(**SUMS), 8)


def test_splits_are_disjoint_and_finite():
    everything = {split: arithmetic.Spec(**{**SUMS, "split": split, "size": 150}) for split in ("rl", "test")}
    rl, test = ({r.problem for r in arithmetic.build(spec, 7)} for spec in everything.values())
    assert not rl & test
    with pytest.raises(UserError, match="size: 400 problems asked for"):
        arithmetic.build(arithmetic.Spec(**{**SUMS, "size": 400}), 7)


@pytest.mark.parametrize(
    ("rule", "text", "verdict"),
    [
        ("last_number", "7 + 5 is 12.", "correct"),
        ("last_number", "12 is 7 + 5", "wrong"),
        ("last_number", "It is 12.0", "correct"),
        ("last_number", "It is 12.5", "wrong"),
        ("last_number", "1,012", "wrong"),
        ("last_number", "twelve", None),
        ("tags", "<SOLUTION>12</SOLUTION>, not 13", "correct"),
        ("tags", "<SOLUTION>a dozen</SOLUTION>", "unparseable"),
        ("tags", "12", None),
    ],
)
def test_verdicts_on_sums(rule, text, verdict):
    record = Record("id", "What is 7 + 5?", "12", {"region": rule})
    region = arithmetic.region(record, text)
    assert (region if region is None else arithmetic.score(record, region)["answer"]) == verdict


def test_puzzles_are_those_of_knights_in_words():
    records = knights_english.build(knights_english.Spec(**PUZZLES), 7)
    same = {k: v for k, v in PUZZLES.items() if k not in ("task", "region")}
    ours = knights.build(knights.Spec(task="knights", **same), 7)
    assert [record.id for record in records] == [record.id for record in ours]
    for record in records:
        assert all(name in knights_english.prompt(record) for name in record.extra["names"])
        assert knights_english.score(record, record.answer) == {"answer": "correct"}
        assert knights_english.chance(record) == 0.125


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Alice is a knight, Boris is a knave.", "correct"),
        ("alice is knight and **Boris** is a Knave", "correct"),
        ("Alice is a knave? No: Alice is a knight, and Boris is a knave.", "correct"),
        ("Alice is a knight, Boris is a knight.", "wrong"),
        ("Alice is a knight.", "unparseable"),
        ("", "unparseable"),
    ],
)
def test_verdicts_on_roles(text, verdict):
    record = Record("id", "...", "Alice is a knight, and Boris is a knave.", {"names": ["Alice", "Boris"]})
    assert knights_english.score(record, text) == {"answer": verdict}


def test_roles_are_read_in_the_declared_region():
    extra = {"names": ["Alice", "Boris"], "region": "tags"}
    text = "Alice is a knave. <SOLUTION>Alice is a knight, Boris is a knave</SOLUTION> Boris is a knight"
    record = Record("id", "...", "", extra)
    assert knights_english.region(record, text) == "Alice is a knight, Boris is a knave"
    assert knights_english.region(record, "Alice is a knight, Boris is a knave") is None
    whole = Record("id", "...", "", {**extra, "region": "whole"})
    assert knights_english.vote(whole, knights_english.region(whole, text)) == "knight knight"
