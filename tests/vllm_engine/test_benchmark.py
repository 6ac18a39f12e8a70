"""The comparison of the engines at a size of seconds; its numbers mean nothing, but that there are some."""

import math

from benchmarks import engines


def test_the_comparison_of_the_engines_gives_finite_numbers():
    results = engines.results(small=True)
    assert len(results) == 3
    assert all(0 < result.ratio < math.inf for result in results)
