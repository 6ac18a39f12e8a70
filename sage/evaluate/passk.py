"""pass@k by the unbiased estimator, for every k up to n."""

from functools import lru_cache

import numpy as np

from sage.errors import UserError


def curve(correct: int, n: int) -> np.ndarray:
    """Return pass@k for k = 1 ... n of one problem with ``correct`` of ``n`` samples right, float64 [n].

    1 - C(n - c, k) / C(n, k), as a product that neither overflows nor cancels. Source: Chen et al., Evaluating large
    language models trained on code (arXiv 2107.03374), equation 1.
    """
    if not 0 <= correct <= n or n < 1:
        raise UserError(f"pass@k: {correct} right of {n} samples is impossible; grade the samples again")
    i = np.arange(n)
    return 1.0 - np.cumprod(np.maximum(n - correct - i, 0) / (n - i))


@lru_cache(maxsize=100_000)
def value(correct: int, n: int, k: int) -> float:
    """Return pass@k of one problem with ``correct`` of ``n`` samples right."""
    return at(curve(correct, n), k)


def mean_curve(correct: list[int], n: int) -> np.ndarray:
    """Return the mean over problems of :func:`curve`, float64 [n]."""
    return np.mean([curve(c, n) for c in correct], axis=0)


def at(values: np.ndarray, k: int) -> float:
    """Return pass@k of a curve; k beyond the number of samples is an error, never extrapolated."""
    if not 1 <= k <= len(values):
        raise UserError(
            f"pass@{k} needs {k} samples a problem, there are {len(values)}; raise sample.n or lower evaluate.ks"
        )
    return float(values[k - 1])


def chance_curve(probabilities: list[float], n: int) -> np.ndarray:
    """Return the mean over problems of 1 - (1 - p)^k, k = 1 ... n: pass@k of independent guesses, float64 [n]."""
    k = np.arange(1, n + 1)
    return np.mean([1.0 - (1.0 - p) ** k for p in probabilities], axis=0)
