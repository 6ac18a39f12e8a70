"""Each comparison at a size of seconds; its numbers mean nothing, but that there are some."""

import importlib
import math
import time

import pytest

from benchmarks.__main__ import COMPARISONS, can_run, merged, page, row
from benchmarks.compare import Result, _peak, alone, faster, in_turn, peak, share

pytest.importorskip("trl")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", COMPARISONS)
def test_every_comparison_gives_finite_numbers(name, monkeypatch):
    if not can_run(name):
        pytest.skip(f"{name} needs vllm; `make test-vllm` runs it")
    # In this process, which may have had as much before.
    monkeypatch.setattr(f"benchmarks.{name}.peak", lambda work, *a: 1 + _peak(work, a), raising=False)
    results = importlib.import_module(f"benchmarks.{name}").results(small=True)
    assert results
    for result in results:
        low, high = result.spread
        assert 0 <= low <= result.ratio <= high < math.inf
        assert result.ours >= 0 and result.unit


def test_times_are_taken_in_turn_and_the_first_round_does_not_count():
    calls = []
    pairs = in_turn(lambda: calls.append("ours"), lambda: calls.append("peer"), rounds=2)
    assert calls == ["ours", "peer"] * 3
    assert len(pairs) == 2


def test_a_ratio_is_formed_within_a_round():
    result = faster("x", [(1.0, 3.0), (10.0, 40.0), (2.0, 4.0)], ">= 3")
    assert (result.ratio, result.spread, result.ours, result.peer) == (3.0, (2.0, 4.0), 2.0, 4.0)
    assert result.holds is True
    assert share("x", [(1.0, 2.0)], "MB", "<= 0.4").holds is False
    assert alone("x", [2.0, 1.0, 9.0], "s", "<= 2").holds is True
    assert alone("x", [1.0], "s", None).holds is None


def hold(megabytes: int):
    return lambda: bytearray(b"x") * (megabytes * 2**20)


def wait():
    time.sleep(0.01)


def idle():
    return wait


def test_the_peak_is_what_the_work_itself_takes():
    assert 190 <= peak(hold, 200) <= 230
    assert peak(idle) < 5


def test_new_rows_take_the_place_of_those_of_their_comparison(monkeypatch):
    def rows(comparison, name):
        return [row(comparison, Result(name, 1.23456, 2.0, "s", 1.62, (1.0, 2.0), ">= 2", "Because."), 0.5)]

    before = rows("head", "old head") + rows("scaling", "old scaling")
    after = merged(before, "scaling", rows("scaling", "new scaling"))
    after = merged(after, "rollout", rows("rollout", "rollout"))
    assert [r["name"] for r in after] == ["old head", "rollout", "new scaling"]
    assert after[0]["ours"] == 1.23
    text = page(after)
    assert "| new scaling | 1.23 s | 2 s | 1.62 [1, 2] | >= 2 | **no** | 0.5 |" in text
    assert "new scaling: Because." in text
