"""Statistics over seeds."""

import pandas as pd


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
