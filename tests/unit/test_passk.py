"""pass@k against exact fractions, the definition by enumeration, and simulation of guesses."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from sage.errors import UserError
from sage.evaluate import passk


def by_enumeration(correct: int, n: int, k: int) -> Fraction:
    subsets = list(itertools.combinations([1] * correct + [0] * (n - correct), k))
    return Fraction(sum(any(s) for s in subsets), len(subsets))


@pytest.mark.parametrize("correct", range(9))
def test_curve_is_the_share_of_subsets_with_a_right_answer(correct):
    values = passk.curve(correct, 8)
    assert values.tolist() == pytest.approx([float(by_enumeration(correct, 8, k)) for k in range(1, 9)])


@pytest.mark.parametrize("correct", [0, 1, 3, 100, 255, 256])
def test_curve_for_256_samples_against_exact_binomials(correct):
    values = passk.curve(correct, 256)
    for k in (1, 2, 16, 64, 255, 256):
        exact = 1 - Fraction(math.comb(256 - correct, k), math.comb(256, k))
        assert values[k - 1] == pytest.approx(float(exact), abs=1e-12)
    assert values[0] == pytest.approx(correct / 256)
    assert (np.diff(values) >= -1e-15).all()


def test_mean_is_over_all_problems_not_the_last():
    assert passk.mean_curve([4, 0], 4).tolist() == pytest.approx([0.5] * 4)


def test_k_beyond_n_and_impossible_counts_are_errors():
    with pytest.raises(UserError, match="pass@10 needs 10 samples"):
        passk.at(passk.curve(1, 1), 10)
    with pytest.raises(UserError):
        passk.at(passk.curve(1, 4), 0)
    for correct, n in [(5, 4), (-1, 4), (0, 0)]:
        with pytest.raises(UserError):
            passk.curve(correct, n)


def test_chance_level_of_guessing_among_2_to_the_n_answers():
    levels = [passk.at(passk.chance_curve([2.0**-n], 256), 256) for n in (5, 6, 7, 8)]
    assert levels == pytest.approx([1.00, 0.98, 0.87, 0.63], abs=0.005)
