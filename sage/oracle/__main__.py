"""Print where each divergence estimator leads on enumerable trees, and write the table and a figure.

Out: ``reports/oracle/fixed_points.csv`` with the total-variation distance of each estimator's stationary policy to
pi_ref q exp(r / beta) / Z (tv_shaped) and to the same without q (tv_plain), and ``fixed_points.svg`` and ``.png``.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from sage.cli import entry
from sage.errors import UserError


def main() -> None:
    """Parse the command line, compute, print and write."""
    parser = argparse.ArgumentParser(
        prog="python -m sage.oracle", description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--vocabulary", type=int, default=3, help="tokens to choose from at each step")
    parser.add_argument("--depth", type=int, default=3, help="tokens a sequence")
    parser.add_argument("--rewarded", type=int, default=3, help="leaves with reward 1; the others have 0")
    parser.add_argument("--trees", type=int, default=3, help="random trees, numbered from 0")
    parser.add_argument("--beta", type=float, default=0.3, help="weight of the divergence")
    parser.add_argument("--steps", type=int, default=1000, help="steps of stochastic training")
    parser.add_argument("--out", type=Path, default=Path("reports/oracle"), help="folder of the table and the figure")
    arguments = parser.parse_args()
    check(arguments)
    import torch

    torch.set_num_threads(1)
    rows = []
    print(f"{'tree':>4} {'guide':<7} {'estimator':<27} {'update':<10} tv_shaped  tv_plain  E[reward]")
    for row in compute(arguments):
        rows.append(row)
        print(
            f"{row['tree']:>4} {row['guide']:<7} {row['estimator']:<27} {row['update']:<10}"
            f" {row['tv_shaped']:9.2e} {row['tv_plain']:9.2e}  {row['expected_reward']:.4f}",
            flush=True,
        )
    from sage.oracle.output import write

    write(rows, arguments.out)
    print(f"written: {arguments.out / 'fixed_points.csv'}, .svg, .png")


def check(arguments: argparse.Namespace) -> None:
    """Refuse a tree that cannot be listed or has nothing to learn."""
    if arguments.vocabulary < 2 or arguments.depth < 1 or arguments.vocabulary**arguments.depth > 1000:
        raise UserError("--vocabulary, --depth: at least 2 and 1, and at most 1000 sequences; choose a smaller tree")
    if not 0 < arguments.rewarded < arguments.vocabulary**arguments.depth:
        raise UserError("--rewarded: some but not all leaves must have the reward; choose a number between")
    if not arguments.beta > 0 or arguments.steps < 2 or arguments.trees < 1:
        raise UserError("--beta must be positive, --steps at least 2, --trees at least 1")


def compute(arguments: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yield a row for each tree, guide, estimator and kind of update."""
    from sage.oracle import fixed_points, stochastic
    from sage.oracle.tree import guide_tables, make_tree

    for seed in range(arguments.trees):
        tree = make_tree(arguments.vocabulary, arguments.depth, arguments.rewarded, seed)
        for name, guide in guide_tables(tree, seed).items():
            logits = fixed_points.exact_ascent(tree, guide, arguments.beta)
            yield _row(tree, seed, name, guide, arguments.beta, "exact", "ascent", tree.distribution(logits))
            for estimator in fixed_points.ESTIMATORS:
                if _applies(estimator, name):
                    logits = fixed_points.fixed_point(tree, guide, estimator, arguments.beta)
                    found = tree.distribution(logits)
                    yield _row(tree, seed, name, guide, arguments.beta, estimator, "expected", found)
            for estimator in stochastic.ROWS:
                if _applies(estimator, name):
                    found = stochastic.train(tree, guide, estimator, arguments.beta, arguments.steps, seed)
                    yield _row(tree, seed, name, guide, arguments.beta, estimator, "sampled", found)


def _applies(estimator: str, guide: str) -> bool:
    """Return whether the estimator takes a guide: the forward divergences keep the plain anchor."""
    return guide == "none" or not estimator.startswith(("forward_kl", "fkl"))


def _row(tree, seed, name, guide, beta, estimator, update, found) -> dict[str, object]:  # type: ignore[no-untyped-def]
    from sage.oracle.tree import optimum, total_variation

    return {
        "tree": seed,
        "estimator": estimator,
        "guide": name,
        "update": update,
        "tv_shaped": total_variation(found, optimum(tree, guide, beta)),
        "tv_plain": total_variation(found, optimum(tree, guide.new_ones(guide.shape), beta)),
        "expected_reward": float((found * tree.rewards).sum()),
    }


if __name__ == "__main__":
    entry(main)
