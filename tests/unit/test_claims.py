"""Verdicts, and the file of claims."""

from pathlib import Path

import pytest

from sage import paths
from sage.errors import UserError
from sage.report import claims
from sage.report.statistics import Difference

ROOT = Path(__file__).parents[2]


CLAIM = {"text": "x", "method": "grpo", "against": "base", "metric": "strict", "k": 1}


@pytest.mark.parametrize(
    ("expect", "mean", "p", "n", "says"),
    [
        ("higher", 0.03, 0.01, 5, "holds"),
        ("lower", 0.03, 0.01, 5, "contradicted"),
        ("lower", -0.03, 0.05, 5, "holds"),
        ("higher", -0.03, 0.01, 5, "contradicted"),
        ("higher", 0.03, 0.06, 5, "inside the noise"),
        ("equal", 0.03, 0.06, 5, "inside the noise"),
        ("equal", 0.03, 0.01, 5, "contradicted"),
        ("higher", 0.03, float("nan"), 1, "too few seeds"),
    ],
)
def test_verdicts(expect, mean, p, n, says):
    difference = Difference(mean, 0.01, mean - 0.01, mean + 0.01, p, n)
    finding = claims.Finding(claims.Claim(**CLAIM, expect=expect), 0.5, 0.5 - mean, difference, {}, p, (2, 9), None)
    assert finding.verdict == says


def test_the_shipped_claims_name_methods_that_are_there(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert len(claims.load_claims().claims) > 10


def test_a_claim_of_an_unknown_method(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    file = tmp_path / "claims.yaml"
    file.write_text(
        "size: 0.02\nclaims: [{text: x, method: grpo_brunch, against: grpo, metric: strict, k: 1, expect: higher}]"
    )
    monkeypatch.setattr(paths, "CLAIMS", file)
    with pytest.raises(
        UserError, match=r"claims\.0\.method: unknown method 'grpo_brunch' \(did you mean 'grpo_branch'"
    ):
        claims.load_claims()
    file.write_text(
        "size: 0.02\nclaims: [{text: x, method: grpo, against: base, metric: strict, k: 1, expects: higher}]"
    )
    with pytest.raises(UserError, match=r"unknown key 'expects' \(did you mean 'expect'"):
        claims.load_claims()
