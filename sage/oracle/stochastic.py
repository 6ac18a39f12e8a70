"""Stochastic training on the tree, with the functions that train models: sampled sequences, groups, the project's loss.

What is checked here is the code of :mod:`sage.objective` as a trainer uses it: advantages from groups of sampled
rewards, log-ratios of drawn tokens, micro-batch weights.
"""

import torch
from torch import Tensor

from sage.objective.advantages import ADVANTAGES
from sage.objective.divergences import forward_kl
from sage.objective.losses import Terms, Tokens, token_loss
from sage.oracle.tree import Tree

GROUPS, GROUP = 64, 16
# Unbiased advantages for every estimator, and what GRPO does to them for the only one whose fixed point they decide.
ROWS = {
    "k1_reward": ("k1_reward", "leave_one_out"),
    "k1_reward, GRPO-normalised": ("k1_reward", "group_normalised"),
    "k2_loss": ("k2_loss", "leave_one_out"),
    "k3_loss": ("k3_loss", "leave_one_out"),
    "k3_loss, GRPO-normalised": ("k3_loss", "group_normalised"),
    "forward_kl": ("forward_kl", "leave_one_out"),
}


def draw(tree: Tree, logits: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return the indices of ``count`` sequences drawn from the policy, [count]."""
    return torch.multinomial(tree.distribution(logits), count, replacement=True, generator=generator)


def sampled_loss(tree: Tree, logits: Tensor, drawn: Tensor, guide: Tensor, row: str, beta: float) -> Tensor:
    """Return the loss of the sequences ``drawn`` [GROUPS * GROUP], with gradient to ``logits``."""
    estimator, advantage = ROWS[row]
    logp = tree.logp(logits)[drawn]
    share = torch.full((len(drawn),), 1.0 / len(drawn), dtype=logp.dtype)
    tokens = Tokens(
        mask=torch.ones_like(logp, dtype=torch.bool),
        logp_old=logp.detach(),
        advantages=ADVANTAGES[advantage](tree.rewards[drawn].view(GROUPS, GROUP)).flatten(),
        weights=share,
        kl_weights=share,
        logp_anchor=tree.path(tree.anchor)[drawn],
        guide=tree.path(guide)[drawn],
    )
    forward = forward_kl(logits.log_softmax(-1), tree.anchor)[tree.nodes[drawn]] if estimator == "forward_kl" else None
    return token_loss(logp, tokens, Terms(0.2, 0.2, estimator, beta), forward=forward).total


def train(tree: Tree, guide: Tensor, row: str, beta: float, steps: int, seed: int) -> Tensor:
    """Return the sequence distribution, [L], averaged over the last half of ``steps`` of Adam from the anchor."""
    generator = torch.Generator().manual_seed(seed)
    logits = tree.anchor.clone().requires_grad_()
    optimiser = torch.optim.Adam([logits], lr=0.05, betas=(0.9, 0.99))
    mean = torch.zeros(len(tree.tokens), dtype=logits.dtype)
    for step in range(steps):
        drawn = draw(tree, logits.detach(), GROUPS * GROUP, generator)
        optimiser.zero_grad()
        sampled_loss(tree, logits, drawn, guide, row, beta).backward()
        optimiser.param_groups[0]["lr"] = 0.05 * (1.0 - step / steps)
        optimiser.step()
        if step >= steps // 2:
            mean += tree.distribution(logits.detach()) / (steps - steps // 2)
    return mean
