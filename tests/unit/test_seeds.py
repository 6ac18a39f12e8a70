"""The seed tree: named streams that never collide, uniforms that are uniform and independent of the batch."""

import itertools

import numpy as np
from scipy import stats

from sage import seeds


def test_paths_with_the_same_text_are_different_streams():
    paths = [("a", 1), ("a1",), ("a", "1"), ("a", 1, ""), ("", "a", 1), (1, "a")]
    assert len({seeds.stream(0, *path) for path in paths}) == len(paths)


def test_no_two_completions_of_a_study_share_a_stream():
    keys = [
        seeds.stream(seeds.root(suite, seed), stream, step, row, g)
        for suite, seed, stream in itertools.product(["demo", "laptop"], range(3), ["rollout", "evaluation"])
        for step, row, g in itertools.product(range(10), range(16), range(16))
    ]
    assert len(set(keys)) == len(keys)


def test_streams_are_pinned():
    assert seeds.stream(0, "suite", "demo") == 4512569116222323154


def test_uniforms_are_uniform_within_and_across_streams():
    keys = np.array([seeds.stream(1, "evaluation", i) for i in range(2000)], np.uint64)
    table = seeds.uniform(keys[:, None], np.arange(50)[None, :])
    assert table.min() > 0
    assert table.max() < 1
    assert stats.kstest(table.ravel(), "uniform").pvalue > 0.01
    assert stats.kstest(table[:, 7], "uniform").pvalue > 0.01
    assert abs(np.corrcoef(table[:, 0], table[:, 1])[0, 1]) < 0.07
    assert abs(np.corrcoef(table[0], table[1])[0, 1]) < 0.5


def test_a_draw_depends_on_its_key_and_position_only():
    keys = np.array([3, 2**64 - 1, 12345678901234567890], np.uint64)
    together = seeds.uniform(keys[:, None], np.arange(5)[None, :])
    alone = [[float(seeds.uniform(key, t)) for t in range(5)] for key in keys]
    assert together.tolist() == alone


def test_neighbouring_keys_at_any_position_differ():
    keys = np.arange(100, dtype=np.uint64)
    table = seeds.uniform(keys[:, None], np.arange(100)[None, :])
    assert len(np.unique(table)) == table.size


def unshift(value: int, shift: int) -> int:
    """Undo value ^ (value >> shift) on 64 bits."""
    found = value
    for _ in range(64 // shift):
        found = value ^ (found >> shift)
    return found


def key_with_bits(bits: int) -> int:
    """Return the key whose hash at position 0 is ``bits``: the finaliser of SplitMix64 backwards."""
    z = unshift(bits, 31) * pow(0x94D049BB133111EB, -1, 2**64) % 2**64
    z = unshift(z, 27) * pow(0xBF58476D1CE4E5B9, -1, 2**64) % 2**64
    return (unshift(z, 30) - 0x9E3779B97F4A7C15) % 2**64


def test_the_ends_of_the_interval_are_never_drawn():
    lowest, highest = seeds.uniform(np.array([key_with_bits(0), key_with_bits(2**64 - 1)], np.uint64), 0)
    assert lowest == 2.0**-53
    assert highest == 1 - 2.0**-53
