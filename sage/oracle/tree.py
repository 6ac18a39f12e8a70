"""An enumerable tree: all V^D token sequences, a tabular policy with logits at each prefix, rewards on chosen leaves.

Everything is float64. N = (V^D - 1) / (V - 1) prefixes (nodes), L = V^D sequences (leaves).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sage.objective.guides import branch, clamped

DOUBLE = torch.float64


@dataclass(frozen=True)
class Tree:
    """A tree with its anchor and rewards."""

    vocabulary: int
    depth: int
    tokens: Tensor  # [L, D] the sequences
    nodes: Tensor  # [L, D] the node at which each token is drawn
    anchor: Tensor  # [N, V] log pi_ref of each next-token distribution
    rewards: Tensor  # [L] in {0, 1}

    def logp(self, logits: Tensor) -> Tensor:
        """Return log pi of each token of each sequence, [L, D]."""
        return logits.log_softmax(-1)[self.nodes, self.tokens]

    def distribution(self, logits: Tensor) -> Tensor:
        """Return pi of each sequence, [L]."""
        return self.logp(logits).sum(-1).exp()

    def path(self, table: Tensor) -> Tensor:
        """Return the entries of a table [N, V] along each sequence, [L, D]."""
        return table[self.nodes, self.tokens]


def make_tree(vocabulary: int, depth: int, rewarded: int, seed: int) -> Tree:
    """Return a tree with a random anchor and ``rewarded`` random leaves of reward 1."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.cartesian_prod(*[torch.arange(vocabulary)] * depth).view(-1, depth)
    first, prefix, columns = 0, torch.zeros(len(tokens), dtype=torch.long), []
    for level in range(depth):
        columns.append(first + prefix)
        first, prefix = first + vocabulary**level, prefix * vocabulary + tokens[:, level]
    anchor = torch.randn(first, vocabulary, generator=generator, dtype=DOUBLE).log_softmax(-1)
    rewards = torch.zeros(len(tokens), dtype=DOUBLE)
    rewards[torch.randperm(len(tokens), generator=generator)[:rewarded]] = 1.0
    return Tree(vocabulary, depth, tokens, torch.stack(columns, 1), anchor, rewards)


def guide_tables(tree: Tree, seed: int) -> dict[str, Tensor]:
    """Return frozen guides, [N, V] each: ``none``; ``branch``, of the state only; ``token``, of state and action.

    Branch is computed from the anchor's entropies, with a threshold that a few tokens can exceed; ``token`` is drawn
    uniformly from the clamping range [0.6, 1.4].
    """
    generator = torch.Generator().manual_seed(seed)
    entropy = -(tree.anchor.exp() * tree.anchor).sum(-1, keepdim=True)
    states = branch(entropy.expand_as(tree.anchor), gamma=2.0, tau=0.7)
    return {
        "none": torch.ones_like(tree.anchor),
        "branch": clamped(states, torch.ones_like(tree.anchor, dtype=torch.bool), 0.6, 1.4),
        "token": 0.6 + 0.8 * torch.rand(tree.anchor.shape, generator=generator, dtype=DOUBLE),
    }


def optimum(tree: Tree, guide: Tensor, beta: float) -> Tensor:
    """Return pi_ref q exp(r / beta) / Z over the sequences, [L]: the maximiser of E[r] - beta KL(pi || q pi_ref).

    Source: SAGE (arXiv 2605.18864), the stationary policy of the shaped objective.
    """
    shaped = tree.path(tree.anchor).sum(-1) + tree.path(guide).log().sum(-1)
    return (shaped + tree.rewards / beta).softmax(0)


def total_variation(p: Tensor, q: Tensor) -> float:
    """Return half the L1 distance of two distributions, in [0, 1]."""
    return 0.5 * float((p - q).abs().sum())
