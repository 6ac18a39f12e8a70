"""Support: which problems a method solves in n samples that base does not, and the other way round.

In: :class:`sage.report.read.Results`. Out: a row a method, benchmark, problem and seed with its state under the rewarded
grade, and what is drawn of it. A problem is solved where at least one of its n samples is correct.
"""

import pandas as pd

from sage.report.read import Results

STATES = ["solved by both", "gained", "lost", "solved by neither"]


def table(results: Results) -> pd.DataFrame:
    """Return method, benchmark, problem, seed, state: a method against base of the same seed, on the problems of both.

    Base is compared with base of the next sampling seed: what is gained and lost there is luck alone. Problems are in the
    order of base's mean number of correct completions, the most first.
    """
    columns = ["method", "benchmark", "problem", "seed", "state"]
    counts = results.counts
    if not len(counts):
        return pd.DataFrame(columns=columns)
    counts = counts[counts["metric"] == results.cells[0]["primary"]]
    base = counts[counts["method"] == "base"]
    order = base.groupby(["benchmark", "problem"], sort=False)["correct"].mean().rename("order").reset_index()
    keys = ["benchmark", "problem", "seed"]
    control = base[[*keys, "correct"]].assign(seed=base["seed"].map(_previous(sorted(base["seed"].unique()))))
    joined = pd.concat(
        [
            counts[counts["method"] != "base"].merge(base[[*keys, "correct"]], on=keys, suffixes=("", "_base")),
            base.merge(control.dropna(subset=["seed"]), on=keys, suffixes=("_base", "")),
        ]
    ).merge(order, on=["benchmark", "problem"])
    joined["state"] = [
        _state(base, method) for base, method in zip(joined["correct_base"] > 0, joined["correct"] > 0, strict=True)
    ]
    for name, values in (("method", results.suite.methods), ("benchmark", results.suite.benchmarks)):
        joined[name] = pd.Categorical(joined[name], values)
    ordered = joined.sort_values(
        ["method", "benchmark", "order", "problem", "seed"], ascending=[True, True, False, True, True]
    )
    return ordered[columns].astype({"method": str, "benchmark": str}).reset_index(drop=True)


def _previous(seeds: list[int]) -> dict[int, int]:
    """Return seed -> the one before it, round about; nothing for a single seed."""
    return {seed: seeds[i - 1] for i, seed in enumerate(seeds)} if len(seeds) > 1 else {}


def _state(base: bool, method: bool) -> str:
    return STATES[(0 if method else 2) if base else (1 if method else 3)]


def most_frequent(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the state of most seeds, [method, problem] in the order of the rows; of equal ones the first of STATES."""
    counts = rows.groupby(["method", "problem", "state"], sort=False).size().unstack(fill_value=0)
    return counts.reindex(columns=STATES, fill_value=0).idxmax(axis=1).unstack()[rows["problem"].unique()]


def shares(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the share of the problems in each state, mean and std (ddof 1) over seeds: [method, (state, mean or std)]."""
    dummies = pd.get_dummies(rows["state"], dtype=float).reindex(columns=STATES, fill_value=0.0)
    seeds = dummies.groupby([rows["method"], rows["seed"]], sort=False).mean()
    return seeds.groupby(level="method", sort=False).agg(["mean", "std"])


def wide(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the file of the map: for each method, benchmark and problem, in how many seeds it is in each state."""
    counts = rows.groupby(["method", "benchmark", "problem", "state"], sort=False).size().unstack(fill_value=0)
    return counts.reindex(columns=STATES, fill_value=0).reset_index()
