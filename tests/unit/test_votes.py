"""maj@k against the definition by enumeration, and what is a vote in each task."""

import itertools
from collections import Counter
from fractions import Fraction

import pytest

from sage import tasks
from sage.errors import UserError
from sage.evaluate.votes import Votes, count, majority
from sage.tasks import Record


def by_enumeration(votes: Votes, k: int) -> Fraction:
    answers = [0] * votes.right + [i for i, c in enumerate(votes.wrong, start=1) for _ in range(c)]
    subsets = list(itertools.combinations(answers + [None] * votes.silent, k))
    won = Fraction(0)
    for subset in subsets:
        tally = Counter(answer for answer in subset if answer is not None)
        elected = [answer for answer, c in tally.items() if c == max(tally.values())]
        won += Fraction(0 in elected, len(elected) or 1)
    return won / len(subsets)


@pytest.mark.parametrize(
    ("right", "wrong", "silent"),
    [
        (3, (2, 4), 1), (4, (1, 1, 1, 1, 1, 1), 0), (2, (2, 2, 2), 2), (1, (), 5), (5, (5,), 0), (0, (3, 4), 2), (8, (), 0),
        (1, (1, 1, 1, 1, 1, 1, 1), 1), (3, (3, 3), 0), (0, (), 4),
    ],
)  # fmt: skip
def test_expectation_over_subsets_and_ties(right, wrong, silent):
    votes = Votes(right, wrong, silent)
    for k in range(1, right + sum(wrong) + silent + 1):
        assert majority(votes, k) == pytest.approx(float(by_enumeration(votes, k)), abs=1e-12)


def test_256_samples():
    votes = Votes(100, (1,) * 56 + (99,), 1)
    assert majority(votes, 1) == pytest.approx(100 / 256)
    assert majority(votes, 256) == 1.0
    assert majority(Votes(64, (64, 64, 64), 0), 256) == pytest.approx(0.25)
    assert majority(Votes(64, (64, 64, 64), 0), 64) == pytest.approx(0.25)
    assert majority(Votes(99, (157,), 0), 64) < majority(Votes(99, (157,), 0), 16) < 99 / 256


def test_k_beyond_n_is_an_error():
    for k in (0, 5):
        with pytest.raises(UserError, match=f"maj@{k} of 4"):
            majority(Votes(4, (), 0), k)


def test_right_answers_are_one_and_wrong_ones_are_told_apart_by_their_votes():
    votes = ["1/2", "0.5", "7", "7", "8", None, None]
    found = count(votes, [True, True, False, False, False, False, False])
    assert found == Votes(2, (1, 2), 2)
    assert found.distinct == 3
    assert count([None, None], [False, False]).distinct == 0


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (r"\frac{1}{2}", "0.50", True),
        ("7", "007", True),
        (r"28\%", "28", True),
        (r"\sqrt{2}", r" \sqrt{2}", True),
        (r"\sqrt{2}", r"\sqrt{3}", False),
        ("7", "8", False),
        ("1,2", "2,1", False),
    ],
)
def test_a_vote_in_mathematics_is_a_number_or_a_text(first, second, same):
    record = Record("a", "", "5", {"region": "tags"})
    vote = tasks.load("math500").vote
    assert (vote(record, first) == vote(record, second)) is same


def test_no_answer_casts_no_vote():
    vote = tasks.load("math500").vote
    assert [vote(Record("a", "", "5"), text) for text in ("", " $ ", "1+" * 1000)] == [None] * 3


def test_a_vote_in_knights_is_everybodys_role():
    task = tasks.load("knights")
    record = Record("a", "aBN;bAK&BK;?", "AKBN")
    votes = [task.vote(record, text) for text in ("SANaX!AKBN", "! AK BN", "!ANBN", "AKBN", "!AK")]
    assert votes == ["AKBN", "AKBN", "ANBN", None, None]
