"""Majority votes over the answers of one problem, in expectation.

A vote is what a task says an answer is (``vote``). All right answers are one; wrong answers are the same where their votes
are. A completion without an answer casts none.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import binom

from sage.errors import UserError

MOST = 1000  # completions a problem: beyond it the number of ways to choose some of them leaves float64


@dataclass(frozen=True)
class Votes:
    """How many completions gave the right answer, each of the wrong ones, and none."""

    right: int
    wrong: tuple[int, ...]
    silent: int

    @property
    def distinct(self) -> int:
        """Number of different answers."""
        return len(self.wrong) + (self.right > 0)


def count(votes: Sequence[str | None], right: Sequence[bool]) -> Votes:
    """Return the votes of one problem's completions, from what each said and whether it is right."""
    wrong = Counter(vote for vote, ok in zip(votes, right, strict=True) if vote is not None and not ok)
    return Votes(sum(right), tuple(sorted(wrong.values())), len(votes) - sum(right) - wrong.total())


def majority(votes: Votes, k: int) -> float:
    """Return maj@k: the probability that k of the completions, drawn without replacement, elect the right answer.

    A tie is broken at random; without a vote nothing is elected. Exact, without a draw: the right answer has t votes and j
    wrong ones have as many, no other more. The number of such draws is the coefficient of x^(k-t) y^j in the product over
    wrong answers of sum_{s<t} C(c, s) x^s + y C(c, t) x^t, and a tie of j + 1 is won with probability 1 / (j + 1), the
    integral of y^j from 0 to 1, which Gauss-Legendre nodes give exactly. All terms are positive, so nothing cancels.
    """
    n = votes.right + sum(votes.wrong) + votes.silent
    if not 1 <= k <= n or n > MOST:
        raise UserError(f"maj@{k} of {n} completions: k from 1 to n, n up to {MOST}; change evaluate.ks or sample.n")
    first = max(1, k - (n - votes.right))
    ways = sum(binom(votes.right, t) * _ways(votes, t, k - t) for t in range(first, min(votes.right, k) + 1))
    return float(ways / binom(n, k))


def _ways(votes: Votes, t: int, rest: int) -> float:
    """Return in how many ways ``rest`` others leave an answer with ``t`` votes elected, ties weighted."""
    rivals = [c for c in votes.wrong if c >= t]
    harmless = votes.silent + sum(votes.wrong) - sum(rivals)
    if rest > harmless + t * len(rivals):
        return 0.0
    nodes, weights = _legendre(rest // t // 2 + 1)
    ways = np.broadcast_to(binom(harmless, np.arange(rest + 1)), (len(nodes), rest + 1))
    for c in rivals:
        fewer = binom(c, np.arange(min(t, rest + 1)))
        longer = np.stack([np.convolve(row, fewer)[: rest + 1] for row in ways])
        longer[:, t:] += nodes[:, None] * binom(c, t) * ways[:, : max(0, rest + 1 - t)]
        ways = longer
    return float(weights @ ways[:, rest])


@lru_cache(maxsize=256)
def _legendre(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes and weights that integrate polynomials of degree up to 2 count - 1 over [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1) / 2, weights / 2
