"""Paired differences against scipy, verdicts, and the file of claims."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sage import paths
from sage.errors import UserError
from sage.report import claims

ROOT = Path(__file__).parents[2]


def test_the_interval_is_that_of_the_paired_t_test():
    generator = np.random.default_rng(0)
    a, b = generator.normal(0.5, 0.1, 5), generator.normal(0.4, 0.1, 5)
    found = claims.paired(pd.Series(a), pd.Series(b))
    expected = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert found.mean == pytest.approx((a - b).mean())
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.n == 5


def test_seeds_that_one_of_the_two_lacks_are_left_out():
    found = claims.paired(pd.Series({1: 0.5, 2: 0.6, 3: 0.9}), pd.Series({2: 0.5, 3: 0.7, 4: 0.1}))
    assert found.n == 2
    assert found.mean == pytest.approx(0.15)


@pytest.mark.parametrize(
    ("expect", "low", "high", "n", "says"),
    [
        ("higher", 0.01, 0.05, 5, "holds"),
        ("lower", 0.01, 0.05, 5, "contradicted"),
        ("lower", -0.05, -0.01, 5, "holds"),
        ("higher", -0.05, -0.01, 5, "contradicted"),
        ("higher", -0.01, 0.05, 5, "inside the noise"),
        ("equal", -0.01, 0.05, 5, "inside the noise"),
        ("equal", 0.01, 0.05, 5, "contradicted"),
        ("higher", float("nan"), float("nan"), 1, "too few seeds"),
    ],
)
def test_verdicts(expect, low, high, n, says):
    assert claims.verdict(expect, claims.Difference((low + high) / 2, low, high, n)) == says


def test_under_the_null_one_interval_in_twenty_excludes_zero():
    generator = np.random.default_rng(1)
    draws = generator.normal(size=(4000, 5))
    outside = [
        claims.verdict("equal", claims.paired(pd.Series(row), pd.Series(np.zeros(5)))) == "contradicted"
        for row in draws
    ]
    assert 0.04 < np.mean(outside) < 0.06


def test_the_shipped_claims_name_methods_that_are_there(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert len(claims.load_claims()) > 10


def test_a_claim_of_an_unknown_method(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    file = tmp_path / "claims.yaml"
    file.write_text("claims: [{text: x, method: grpo_brunch, against: grpo, metric: strict, k: 1, expect: higher}]")
    monkeypatch.setattr(paths, "CLAIMS", file)
    with pytest.raises(
        UserError, match=r"claims\.0\.method: unknown method 'grpo_brunch' \(did you mean 'grpo_branch'"
    ):
        claims.load_claims()
    file.write_text("claims: [{text: x, method: grpo, against: base, metric: strict, k: 1, expects: higher}]")
    with pytest.raises(UserError, match=r"unknown key 'expects' \(did you mean 'expect'"):
        claims.load_claims()
