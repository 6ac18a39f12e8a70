"""Guides q_t > 0 that shape the anchor to q pi_ref: constants to the optimiser, clamped, exactly 1 outside the mask.

All token tensors are [B, C]. Randomness comes in as arrays of uniforms or normals, so that the functions stay pure.
"""

import math

import torch
from torch import Tensor


def branch(entropy: Tensor, gamma: float, tau: float) -> Tensor:
    """Return 1 + gamma max(H_t - tau, 0).

    ``entropy`` is H_t in nats of the policy's next-token distribution, before the token is drawn: the guide depends on
    the state only. Source: SAGE (arXiv 2605.18864), Branch.
    """
    return 1.0 + gamma * (entropy.detach() - tau).clamp_min(0.0)


def random(uniform: Tensor, normal: Tensor, epsilon: float, sigma: float) -> Tensor:
    """Return 1 + sigma n with probability ``epsilon``, else 1; ``uniform`` decides, ``normal`` is n ~ N(0, 1).

    Source: SAGE, Random.
    """
    return torch.where(uniform < epsilon, 1.0 + sigma * normal, torch.ones_like(normal))


def token(logp: Tensor, mask: Tensor, normal: Tensor, alpha: float, sigma: float) -> Tensor:
    """Return draws of N(1 + alpha w_t, (sigma w_t)^2), w_t the normalised surprisal; ``normal`` is N(0, 1).

    Source: SAGE, Token.
    """
    weight = normalised_surprisal(logp, mask)
    return 1.0 + alpha * weight + sigma * weight * normal


def normalised_surprisal(logp: Tensor, mask: Tensor) -> Tensor:
    """Return w_t in [0, 1]: -log pi(y_t), clipped to its sequence's 5 % and 95 % quantiles, then min-max-normalised.

    0 outside the mask, and for a sequence whose surprisal is constant.
    """
    surprisal = torch.where(mask, -logp.detach(), torch.nan)
    bounds = torch.tensor([0.05, 0.95], dtype=logp.dtype)
    low, high = surprisal.nanquantile(bounds, dim=1, keepdim=True)
    span = high - low
    weight = (surprisal.clamp(low, high) - low) / torch.where(span > 0, span, torch.ones_like(span))
    return torch.where(mask & (span > 0), weight, torch.zeros_like(logp))


def clamped(guide: Tensor, mask: Tensor, q_min: float, q_max: float) -> Tensor:
    """Return ``guide`` clamped to [q_min, q_max], and exactly 1 outside ``mask``."""
    return torch.where(mask, guide.clamp(q_min, q_max), torch.ones((), dtype=guide.dtype, device=guide.device))


def annealed(bounds: tuple[float, float], iteration: int, iterations: int, cycles: int, decay: float) -> float:
    """Return the strength at ``iteration`` (0-based) of ``iterations``: a cosine from upper to lower in each cycle.

    ``bounds`` is (upper, lower); the upper bound is multiplied by ``decay`` at each new cycle and never falls below the
    lower one. A pure function of the iteration: it cannot step twice, nor in an evaluation, and a resumed run is where
    the killed one was. Source: SAGE, schedules of Random and Token.
    """
    length = iterations / cycles
    cycle = min(int(iteration / length), cycles - 1)
    upper = max(bounds[0] * decay**cycle, bounds[1])
    return bounds[1] + (upper - bounds[1]) * 0.5 * (1.0 + math.cos(math.pi * (iteration / length - cycle)))
