"""The statistics against scipy, by hand, and in simulated studies whose truth is known."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sage.report.statistics import holm, over_problems, over_seeds, paired, power, seeds_needed, seeds_needed_between

STUDIES, SEEDS, PROBLEMS, SAMPLES = 2000, 5, 60, 64


def test_the_paired_difference_is_that_of_the_paired_t_test():
    generator = np.random.default_rng(0)
    a, b = generator.normal(0.5, 0.1, 5), generator.normal(0.4, 0.1, 5)
    found, test = paired(pd.Series(a), pd.Series(b)), stats.ttest_rel(a, b)
    expected = test.confidence_interval(0.95)
    assert found.mean == pytest.approx((a - b).mean())
    assert (found.low, found.high, found.p) == pytest.approx((expected.low, expected.high, test.pvalue))
    assert found.std == pytest.approx(np.std(a - b, ddof=1))
    assert found.n == 5


def test_seeds_that_one_of_the_two_lacks_are_left_out():
    found = paired(pd.Series({1: 0.5, 2: 0.6, 3: 0.9}), pd.Series({2: 0.5, 3: 0.7, 4: 0.1}))
    assert found.n == 2
    assert found.mean == pytest.approx(0.15)


def test_too_few_seeds_have_no_interval_and_no_spread_has_an_empty_one():
    assert math.isnan(paired(pd.Series({1: 0.5}), pd.Series({1: 0.4})).p)
    assert paired(pd.Series(dtype=float), pd.Series(dtype=float)).n == 0
    same = pd.Series([0.25, 0.5, 0.75])
    assert paired(same, same).p == 1
    assert paired(same + 0.25, same).p == 0


def test_over_seeds_by_hand():
    rows = [("m", "M", "b", "strict", 1, value) for value in (0.1, 0.2, 0.6)] + [("o", "O", "b", "strict", 1, 0.5)]
    table = over_seeds(pd.DataFrame(rows, columns=["method", "label", "benchmark", "metric", "k", "value"]))
    assert table["mean"].tolist() == pytest.approx([0.3, 0.5])
    assert table["std"][0] == pytest.approx(math.sqrt((0.04 + 0.01 + 0.09) / 2))
    assert math.isnan(table["std"][1])
    assert table["n"].tolist() == [3, 1]


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == pytest.approx([1.0, 1.0])
    found = holm([0.02, math.nan, 0.5])
    assert found[0] == pytest.approx(0.04)
    assert math.isnan(found[1])
    assert holm([]) == []


def test_power_against_simulation():
    generator = np.random.default_rng(2)
    draws = generator.normal(0.02, 0.02, (20_000, 6))
    rejected = stats.ttest_1samp(draws, 0, axis=1).pvalue < 0.05
    assert rejected.mean() == pytest.approx(power(0.02, 0.02, 6), abs=0.01)


@pytest.mark.parametrize("std", [0.005, 0.02, 0.1])
def test_seeds_needed_is_the_first_number_with_the_power(std):
    n = seeds_needed(0.02, std)
    assert power(0.02, std, n) >= 0.8
    assert n == 2 or power(0.02, std, n - 1) < 0.8


def test_seeds_needed_from_an_estimated_spread_covers_the_truth():
    generator = np.random.default_rng(3)
    truth = seeds_needed(0.02, 0.03)
    estimates = generator.normal(0, 0.03, (300, SEEDS)).std(axis=1, ddof=1)
    bounds = [seeds_needed_between(0.02, float(estimate), SEEDS) for estimate in estimates]
    assert np.mean([low <= truth <= high for low, high in bounds]) > 0.92


def studies(generator: np.random.Generator, methods: int, effect: float) -> np.ndarray:
    """Return pass@1 of simulated studies, [studies, methods, seeds]; method 0 is ``effect`` better on the logit scale.

    Problems with Beta-distributed difficulty are fixed in a study; each training seed moves every problem's logit by its own
    draw and all of them together by another, and each problem is sampled: the estimand is the mean over seeds on this
    benchmark.
    """
    difficulty = generator.beta(0.6, 1.4, (STUDIES, 1, 1, PROBLEMS)).clip(0.002, 0.998)
    logit = np.log(difficulty / (1 - difficulty))
    shift = generator.normal(0, 0.3, (STUDIES, methods, SEEDS, 1)) + generator.normal(
        0, 0.5, (STUDIES, methods, SEEDS, PROBLEMS)
    )
    shift[:, 0] += effect
    chance = 1 / (1 + np.exp(-(logit + shift)))
    return (generator.binomial(SAMPLES, chance) / SAMPLES).mean(-1)


def expected_difference(effect: float) -> float:
    """Return the mean difference of the simulated methods, from far more seeds."""
    many = np.concatenate([studies(np.random.default_rng(100 + i), 2, effect) for i in range(5)])
    return float((many[:, 0] - many[:, 1]).mean())


@pytest.mark.parametrize("effect", [0.0, 0.4])
def test_the_intervals_cover_the_truth(effect):
    values = studies(np.random.default_rng(4), 2, effect)
    truth = expected_difference(effect)
    found = [paired(pd.Series(a), pd.Series(b)) for a, b in values]
    assert 0.93 <= np.mean([d.low <= truth <= d.high for d in found]) <= 0.97


def test_a_table_without_any_effect_has_a_verdict_in_one_study_of_twenty_at_most():
    """Seven methods against one baseline: the claims share it, as those of a real table do."""
    values = studies(np.random.default_rng(5), 8, 0.0)
    wrong = []
    for study in values:
        ps = [paired(pd.Series(study[i]), pd.Series(study[0])).p for i in range(1, 8)]
        wrong.append(min(holm(ps)) <= 0.05)
    assert np.mean(wrong) <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / STUDIES)


def test_the_interval_over_problems_is_that_of_a_plain_bootstrap_but_for_its_expansion():
    generator = np.random.default_rng(6)
    parts = [generator.normal(0.02, 0.1, 150), generator.normal(-0.01, 0.2, 90)]
    draws = np.mean([d[generator.integers(len(d), size=(20_000, len(d)))].mean(1) for d in parts], axis=0)
    low, high = over_problems(parts)
    assert (low, high) == pytest.approx(tuple(np.quantile(draws, [0.025, 0.975])), abs=3e-3)
    assert over_problems([parts[0], parts[1][:1]]) is None
    assert over_problems([]) is None


def test_the_interval_over_problems_covers_the_truth_on_new_problems():
    """Estimand: the mean over all problems of two benchmarks' kinds, equally weighted, for the policies of these seeds.

    Difficulties are Beta-distributed, 40 easy and 60 hard problems; the seeds' shifts are fixed in a study, what each seed
    makes of each problem and the samples are drawn with the problem.
    """
    generator = np.random.default_rng(7)
    shift = generator.normal(0, 0.3, (2, SEEDS, STUDIES)) + np.array([0.3, 0]).reshape(2, 1, 1)
    kinds = [(1.2, 0.8, 40), (0.5, 2.0, 60)]
    truth = np.mean([_differences(generator, shift, a, b, 4000, same=True).mean(0) for a, b, _ in kinds], axis=0)
    low, high = over_problems([_differences(generator, shift, *kind) for kind in kinds])
    assert 0.93 <= np.mean((low <= truth) & (truth <= high)) <= 0.97


def _differences(
    generator: np.random.Generator, shift: np.ndarray, a: float, b: float, problems: int, same: bool = False
) -> np.ndarray:
    """Return differences in pass@1 of two methods, means over seeds, on new problems: [problems, studies].

    ``same``: the same problems in all studies, and no sampling error: many of them tell the truth.
    """
    difficulty = generator.beta(a, b, (problems, 1 if same else STUDIES)).clip(0.002, 0.998)
    logit = np.log(difficulty / (1 - difficulty))
    total = np.zeros((problems, STUDIES))
    for sign, method in zip((1, -1), shift, strict=True):
        for seed in method:
            chance = 1 / (1 + np.exp(-logit - seed - generator.normal(0, 0.5, logit.shape)))
            total += sign * (chance if same else generator.binomial(SAMPLES, chance) / SAMPLES)
    return total / SEEDS
