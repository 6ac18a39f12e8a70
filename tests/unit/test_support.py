"""Support by hand: what is gained and lost against base, and the control row of base itself."""

from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from sage.report import support
from sage.report.read import Results

CORRECT = {  # (method, seed) -> correct completions of the problems p and q
    ("base", 1): (3, 0), ("base", 2): (5, 0), ("base", 3): (0, 1),
    ("grpo", 1): (0, 2), ("grpo", 2): (9, 2), ("grpo", 3): (0, 0),
}  # fmt: skip


@pytest.fixture
def results() -> Results:
    cells = [
        {"method": method, "seed": seed, "benchmark": "b", "n": 9, "grades": ["strict"], "primary": "strict",
         "problems": [{"id": name, "strict": {"correct": c}} for name, c in zip("pq", correct, strict=True)]}
        for (method, seed), correct in CORRECT.items()
    ]  # fmt: skip
    suite = SimpleNamespace(methods=["base", "grpo"], benchmarks=["b"])
    return Results(suite, cells, *[pd.DataFrame()] * 2, runs=[], patterns=[], entropies=pd.DataFrame(), problems=[])


def states(table: pd.DataFrame, method: str, problem: str) -> list[str]:
    return list(table[(table["method"] == method) & (table["problem"] == problem)]["state"])


def test_states_are_against_base_of_the_same_seed(results):
    table = support.table(results)
    assert states(table, "grpo", "p") == ["lost", "solved by both", "solved by neither"]
    assert states(table, "grpo", "q") == ["gained", "gained", "lost"]


def test_base_is_compared_with_its_next_sampling_seed(results):
    table = support.table(results)
    assert states(table, "base", "p") == ["solved by both", "lost", "gained"]
    assert states(table, "base", "q") == ["solved by neither", "gained", "lost"]


def test_the_problem_that_base_solves_most_often_comes_first(results):
    assert list(support.table(results)["problem"].unique()) == ["p", "q"]


def test_shares_and_the_most_frequent_state(results):
    table = support.table(results)
    shares = support.shares(table)
    assert shares[("gained", "mean")]["grpo"] == pytest.approx((0.5 + 0.5 + 0) / 3)
    assert shares[("lost", "std")]["grpo"] == pytest.approx(pd.Series([0.5, 0, 0.5]).std())
    assert support.most_frequent(table).loc["grpo", "q"] == "gained"


def test_without_base_or_without_counts_there_is_no_map(results):
    assert not len(support.table(replace(results, cells=[])))
    assert not len(support.table(replace(results, cells=[c for c in results.cells if c["method"] != "base"])))
