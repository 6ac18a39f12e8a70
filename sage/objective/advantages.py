"""Advantages from the rewards of a group: [P, G], P prompts with G completions each."""

from collections.abc import Callable

import torch
from torch import Tensor


def is_constant(rewards: Tensor) -> Tensor:
    """Return [P] booleans: groups whose rewards are equal but for rounding noise."""
    low, high = rewards.amin(dim=1), rewards.amax(dim=1)
    return (high - low) <= 1e-6 * torch.maximum(low.abs(), high.abs()).clamp_min(1.0)


def _zero_where_constant(advantages: Tensor, rewards: Tensor) -> Tensor:
    """Return exactly 0 for groups of equal rewards: rounding noise over a tiny scale would be a large advantage."""
    return torch.where(is_constant(rewards)[:, None], torch.zeros_like(advantages), advantages)


def group_normalised(rewards: Tensor) -> Tensor:
    """Return (r - mean) / (std + 1e-4) inside each group, [P, G]; std with ddof 1.

    Source: DeepSeekMath (arXiv 2402.03300), with the epsilon of the official code of SAGE.
    """
    centred = rewards - rewards.mean(dim=1, keepdim=True)
    return _zero_where_constant(centred / (rewards.std(dim=1, keepdim=True) + 1e-4), rewards)


def group_centred(rewards: Tensor) -> Tensor:
    """Return r - mean inside each group, [P, G], not divided by the std. Source: Dr. GRPO (arXiv 2503.20783)."""
    return _zero_where_constant(rewards - rewards.mean(dim=1, keepdim=True), rewards)


def leave_one_out(rewards: Tensor) -> Tensor:
    """Return r_i minus the mean of the other rewards of the group, [P, G]: an unbiased baseline.

    Source: Kool et al., Buy 4 REINFORCE samples, get a baseline for free, 2019; RLOO (arXiv 2402.14740).
    """
    size = rewards.shape[1]
    centred = rewards - rewards.mean(dim=1, keepdim=True)
    return _zero_where_constant(centred * (size / (size - 1)), rewards)


def beta_normalised(rewards: Tensor) -> Tensor:
    """Return (r - p) / Beta(p; 1 + a/3, 1 + b/3), [P, G], for rewards in {0, 1}, p the group's mean.

    (a, b) are those of the Beta distribution with the mean and variance of p over the batch's groups (method of
    moments). Where the moments have no such distribution (no variance, or the largest) the normaliser is that of
    REINFORCE, 1. Source: BNPO (arXiv 2506.02864).
    """
    p = rewards.mean(dim=1, keepdim=True)
    mean, variance = p.mean(), p.var(correction=0)
    total = mean * (1.0 - mean) / variance - 1.0 if variance > 0 else rewards.new_zeros(())
    centred = rewards - p
    if not total > 0:
        return _zero_where_constant(centred, rewards)
    alpha, beta = 1.0 + total * mean / 3.0, 1.0 + total * (1.0 - mean) / 3.0
    log_norm = torch.lgamma(alpha) + torch.lgamma(beta) - torch.lgamma(alpha + beta)
    inside = p.clamp(1e-6, 1.0 - 1e-6)  # a constant group is 0 below, whatever the density there
    density = ((alpha - 1.0) * inside.log() + (beta - 1.0) * (1.0 - inside).log() - log_norm).exp()
    return _zero_where_constant(centred / density, rewards)


ADVANTAGES: dict[str, Callable[[Tensor], Tensor]] = {
    "group_normalised": group_normalised,
    "group_centred": group_centred,
    "leave_one_out": leave_one_out,
    "beta_normalised": beta_normalised,
}


def overlong_penalty(lengths: Tensor, limit: int, buffer: int) -> Tensor:
    """Return DAPO's soft punishment of long completions, [N], from 0 down to -1.

    0 up to ``limit`` - ``buffer`` tokens, then linear, -1 beyond ``limit``. Source: DAPO (arXiv 2503.14476), eq. 13.
    """
    return ((limit - buffer - lengths.to(torch.get_default_dtype())) / buffer).clamp(-1.0, 0.0)
