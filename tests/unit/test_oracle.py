"""The oracle on small trees: the optimum against numpy, what each estimator reaches, and the command."""

import csv
import subprocess
import sys

import numpy as np
import pytest
import torch

from sage.oracle.fixed_points import exact_ascent, expected_update, fixed_point
from sage.oracle.stochastic import GROUP, GROUPS, ROWS, draw, sampled_loss, train
from sage.oracle.tree import guide_tables, make_tree, optimum, total_variation

BETA = 0.3
TREES = [make_tree(3, 2, 2, seed) for seed in range(3)]
GUIDES = ("none", "branch", "token")


def by_hand(tree, guide: torch.Tensor) -> np.ndarray:
    """Return pi_ref q exp(r / beta) / Z by walking through the tree, in plain numpy."""
    anchor, q = tree.anchor.exp().numpy(), guide.numpy()
    masses = []
    for leaf, reward in zip(tree.tokens.tolist(), tree.rewards.tolist(), strict=True):
        node, mass, width, first, prefix = 0, 1.0, 1, 0, 0
        for token in leaf:
            node = first + prefix
            mass *= anchor[node, token] * q[node, token]
            first, width, prefix = first + width, width * tree.vocabulary, prefix * tree.vocabulary + token
        masses.append(mass * np.exp(reward / BETA))
    return np.array(masses) / np.sum(masses)


def test_the_tree_lists_every_sequence_once():
    tree = make_tree(3, 3, 4, 0)
    assert len({tuple(row) for row in tree.tokens.tolist()}) == 27
    assert tree.anchor.shape == (13, 3)
    assert tree.rewards.sum() == 4
    assert float(tree.distribution(tree.anchor).sum()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", GUIDES)
@pytest.mark.parametrize("tree", TREES)
def test_exact_ascent_reaches_the_optimum(tree, name):
    guide = guide_tables(tree, 0)[name]
    expected = by_hand(tree, guide)
    np.testing.assert_allclose(optimum(tree, guide, BETA).numpy(), expected, atol=1e-12)
    found = tree.distribution(exact_ascent(tree, guide, BETA)).numpy()
    assert 0.5 * np.abs(found - expected).sum() < 1e-6


@pytest.mark.parametrize("name", GUIDES)
def test_only_k1_reward_has_its_fixed_point_at_the_optimum(name):
    tree = TREES[0]
    guide = guide_tables(tree, 0)[name]
    best = optimum(tree, guide, BETA)
    distance = {
        estimator: total_variation(tree.distribution(fixed_point(tree, guide, estimator, BETA)), best)
        for estimator in ("k1_reward", "k2_loss", "k3_loss")
    }
    assert distance["k1_reward"] < 1e-6
    assert distance["k2_loss"] > 0.01
    assert distance["k3_loss"] > 0.02


def test_k3_and_the_exact_forward_divergence_have_one_fixed_point_without_a_guide():
    tree = TREES[1]
    ones = torch.ones_like(tree.anchor)
    k3, forward = (tree.distribution(fixed_point(tree, ones, name, BETA)) for name in ("k3_loss", "forward_kl"))
    assert total_variation(k3, forward) < 1e-6


def test_a_guide_of_the_state_only_is_a_weight_of_the_divergence_at_each_state_under_k3():
    """E[grad k3] = q grad KL(pi_ref || pi), to rounding; and no effect at all under k2."""
    tree = TREES[2]
    logits = torch.randn_like(tree.anchor, generator=torch.Generator().manual_seed(3))
    q = guide_tables(tree, 0)["branch"]
    assert len(q[:, 0].unique()) > 1

    def divergence(guide: torch.Tensor, estimator: str) -> torch.Tensor:
        with_one, with_two = (expected_update(tree, logits, guide, estimator, beta) for beta in (1.0, 2.0))
        return with_two - with_one

    ones = torch.ones_like(q)
    assert torch.allclose(divergence(q, "k3_loss"), q * divergence(ones, "forward_kl"), atol=1e-12)
    assert torch.allclose(divergence(q, "k2_loss"), divergence(ones, "k2_loss"), atol=1e-12)


@pytest.mark.parametrize("row", ["k1_reward", "k2_loss", "k3_loss", "forward_kl"])
def test_the_sampled_update_is_the_expected_one_on_average(row):
    tree = TREES[0]
    guide = torch.ones_like(tree.anchor) if row == "forward_kl" else guide_tables(tree, 0)["token"]
    logits = (0.5 * tree.anchor).requires_grad_()
    generator = torch.Generator().manual_seed(0)
    grads = []
    for _ in range(300):
        drawn = draw(tree, logits.detach(), GROUPS * GROUP, generator)
        grads.append(torch.autograd.grad(sampled_loss(tree, logits, drawn, guide, row, BETA), logits)[0])
    stacked = torch.stack(grads)
    error = stacked.std(0) / len(grads) ** 0.5
    difference = (stacked.mean(0) - expected_update(tree, logits, guide, ROWS[row][0], BETA)).abs()
    assert (difference <= 4.5 * error + 1e-12).all()


def test_stochastic_training_with_k1_reward_comes_near_and_normalised_advantages_do_not():
    tree = TREES[0]
    guide = guide_tables(tree, 0)["token"]
    best = optimum(tree, guide, BETA)
    near = total_variation(train(tree, guide, "k1_reward", BETA, 400, 0), best)
    far = total_variation(train(tree, guide, "k1_reward, GRPO-normalised", BETA, 400, 0), best)
    assert near < 0.03
    assert far > 3 * near


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "sage.oracle", *arguments], capture_output=True, text=True)


def test_the_command_writes_its_table_and_figure(tmp_path):
    size = ("--vocabulary", "2", "--depth", "2", "--rewarded", "1", "--trees", "1", "--steps", "20")
    done = run(*size, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    with (tmp_path / "fixed_points.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {"estimator", "guide", "tv_shaped", "tv_plain", "expected_reward"} <= set(rows[0])
    assert {row["guide"] for row in rows if row["estimator"] == "exact"} == set(GUIDES)
    assert all(float(row["tv_shaped"]) < 1e-6 for row in rows if row["estimator"] == "exact")
    assert {file.suffix for file in tmp_path.iterdir()} == {".csv", ".svg", ".png"}


@pytest.mark.parametrize(
    "arguments",
    [("--vocabulary", "1"), ("--vocabulary", "5", "--depth", "9"), ("--rewarded", "0"), ("--beta", "0")],
)
def test_an_impossible_tree_is_refused_in_one_line(arguments, tmp_path):
    done = run(*arguments, "--out", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith("error: --")
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())
