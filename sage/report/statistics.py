"""Statistics over training seeds: means, paired differences, corrections for many comparisons, and seeds needed.

There are two estimands. Over seeds: the mean over training seeds on this fixed set of problems; it leans on Student's t,
which takes the differences of a few seeds as normal, and five seeds cannot show that they are. Over problems: the mean over
problems of the kind of these, for the very policies that were trained; it is a bootstrap over problems.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from scipy import stats

CONFIDENCE = 0.95
POWER = 0.8
MOST_SEEDS = 1000
RESAMPLES = 4000


def over_seeds(curves: pd.DataFrame) -> pd.DataFrame:
    """Return mean, std (ddof 1, over seeds; nan for one seed) and n of each method x benchmark x metric x k.

    ``curves`` is the long form with the columns method, label, benchmark, metric, k, value, one row a seed.
    """
    keys = ["method", "label", "benchmark", "metric", "k"]
    return (
        curves.groupby(keys, sort=False)["value"]
        .agg(["mean", "std", "count"])
        .rename(columns={"count": "n"})
        .reset_index()
    )


@dataclass(frozen=True)
class Difference:
    """A paired difference, or a mean, over n seeds: mean, std, bounds of its interval, two-sided p; nan where n is below 2."""

    mean: float
    std: float
    low: float
    high: float
    p: float
    n: int


def paired(values: pd.Series, others: pd.Series) -> Difference:
    """Return the mean of ``values - others`` over the seeds in both indices, by the paired t-test."""
    return interval((values - others).dropna())


def interval(d: pd.Series) -> Difference:
    """Return the mean of ``d`` over seeds with Student's interval, and the t-test's p of its being 0."""
    n, mean = len(d), float(d.mean()) if len(d) else math.nan
    if n < 2:
        return Difference(mean, math.nan, math.nan, math.nan, math.nan, n)
    std = float(d.std(ddof=1))
    error = std / math.sqrt(n)
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1)) * error
    # Without any spread the statistic is 0 / 0 or infinite.
    p = float(2 * stats.t.sf(abs(mean) / error, n - 1)) if error else float(mean == 0)
    return Difference(mean, std, mean - half, mean + half, p, n)


def over_problems(differences: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the bounds of the mean over benchmarks of the mean difference on problems like these; None for lack of them.

    ``differences`` holds an array [problems, ...] a benchmark: paired differences, each the mean over seeds; further axes
    are studies of their own. Problems are drawn anew within each benchmark, so that it keeps its weight. The percentiles are
    those of Hesterberg's expanded interval, which makes up for the narrowness of a bootstrap from few problems (arXiv
    1411.5279); the draws have a fixed seed. Source of pairing and strata: arXiv 2411.00640, arXiv 2108.13264.
    """
    fewest = min(map(len, differences), default=0)
    if fewest < 2:
        return None
    # einsum without BLAS: the order of its sums, and so their last digit, is no matter of threads.
    means = [np.einsum("rp,p...->r...", _resamples(len(d), i), d) for i, d in enumerate(differences)]
    critical = stats.t.ppf(0.5 + CONFIDENCE / 2, fewest - 1) * math.sqrt(fewest / (fewest - 1))
    tail = stats.norm.sf(critical)
    low, high = np.quantile(np.mean(means, axis=0), [tail, 1 - tail], axis=0)
    return low, high


@lru_cache(maxsize=16)
def _resamples(problems: int, stratum: int) -> np.ndarray:
    """Return the weight of each problem in each resample, [RESAMPLES, problems]; the same ones for all comparisons."""
    generator = np.random.default_rng(stratum)
    return generator.multinomial(problems, np.full(problems, 1 / problems), size=RESAMPLES) / problems


def holm(ps: Sequence[float]) -> list[float]:
    """Return adjusted p-values: rejecting those below alpha errs at all with a chance of at most alpha; nan stays nan.

    Source: S. Holm, A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6 (1979).
    """
    order = sorted((i for i, p in enumerate(ps) if not math.isnan(p)), key=lambda i: ps[i])
    adjusted, highest = [math.nan] * len(ps), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * ps[i]))
        adjusted[i] = highest
    return adjusted


def power(size: float, std: float, n: int) -> float:
    """Return the chance that a paired t-test over ``n`` seeds shows a difference ``size``, for differences of ``std``."""
    critical, shift = stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1), size / std * math.sqrt(n)
    return float(stats.nct.sf(critical, n - 1, shift) + stats.nct.cdf(-critical, n - 1, shift))


def seeds_needed(size: float, std: float) -> int:
    """Return the fewest seeds with which a paired t-test shows a difference ``size`` with a chance of 80 %.

    Exact where ``std``, the standard deviation of the paired difference, is known; at most 1,000.
    """
    if std == 0:
        return 2
    low, high = 1, 2
    while high < MOST_SEEDS and power(size, std, high) < POWER:
        low, high = high, min(2 * high, MOST_SEEDS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(size, std, middle) >= POWER else (middle, high)
    return high


def seeds_needed_between(size: float, std: float, n: int) -> tuple[int, int]:
    """Return bounds of :func:`seeds_needed` where ``std`` was estimated from ``n`` seeds: its chi-squared interval, 95 %."""
    tail = (1 - CONFIDENCE) / 2
    low, high = (std * math.sqrt((n - 1) / stats.chi2.ppf(q, n - 1)) for q in (1 - tail, tail))
    return seeds_needed(size, low), seeds_needed(size, high)
