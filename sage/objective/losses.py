"""The loss of one micro-batch, and what is logged of it. All token tensors are [B, C]."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sage.objective.divergences import DIFFERENTIATED, k1_reward, log_ratio_to_anchor
from sage.objective.numerics import bounded_exp, count_bound, masked

WEIGHT_CAP = 2.0  # of importance weights


@dataclass(frozen=True)
class Tokens:
    """What is known of the completions of a micro-batch before the policy's gradient pass."""

    mask: Tensor  # booleans
    logp_old: Tensor  # log-probs under the policy that sampled
    advantages: Tensor  # [B], one a sequence
    weights: Tensor  # [B], of the policy loss, from sage.objective.reducers
    kl_weights: Tensor  # [B], of the divergence: the same, or 0 for sequences that are to have none
    logp_anchor: Tensor | None = None
    guide: Tensor | None = None
    correction: Tensor | None = None  # importance weights of the policy term, from truncated_weights


@dataclass(frozen=True)
class Loss:
    """A micro-batch's share of the optimiser step; ``total`` carries the gradient, the rest are detached scalars."""

    total: Tensor  # policy + beta * divergence - entropy_bonus * entropy
    policy: Tensor  # sum_i w_i sum_t of the clipped surrogate, negated
    divergence: Tensor  # sum_i w_i sum_t of the estimator's value, without beta
    clipped: Tensor  # number of tokens whose ratio was clipped
    bound: Tensor  # number of exponents that had to be bounded


@dataclass(frozen=True)
class Terms:
    """How the terms of a loss are put together; the numbers come from the method's file."""

    clip_low: float
    clip_high: float
    estimator: str | None  # of the divergence; None: no divergence
    beta: float
    entropy_bonus: float = 0.0


def token_loss(
    logp: Tensor, tokens: Tokens, terms: Terms, *, forward: Tensor | None = None, entropy: Tensor | None = None
) -> Loss:
    """Return the loss of a micro-batch of B completions padded to C tokens.

    ``logp`` (with gradient): log-probs of the completion tokens, [B, C]; ``forward``: the exact forward divergence at
    each token and ``entropy``: H_t, each with gradient, where the terms ask for them. A fully masked micro-batch gives
    0 and a zero gradient; what stands outside the mask, also inf or nan, changes nothing.
    """
    mask, advantages = tokens.mask, tokens.advantages[:, None]
    bound = count_bound((logp - tokens.logp_old).detach(), mask)
    value = torch.zeros_like(logp)
    if terms.estimator == "forward_kl":
        value = masked(_needed(forward, "forward"), mask)
    elif terms.estimator is not None:
        delta = log_ratio_to_anchor(logp, _needed(tokens.logp_anchor, "logp_anchor"), tokens.guide, mask)
        bound = bound + count_bound(delta.detach(), mask)
        if terms.estimator == "k1_reward":
            advantages = advantages + terms.beta * k1_reward(delta, mask)
            value = -delta.detach()
        else:
            value = DIFFERENTIATED[terms.estimator](delta)
    losses, clipped = surrogate(logp, tokens.logp_old, advantages, mask, terms)
    if tokens.correction is not None:
        losses = losses * masked(tokens.correction.detach(), mask)
    policy, distance = reduced(losses, mask, tokens.weights), reduced(value, mask, tokens.kl_weights)
    total = policy + terms.beta * distance if value.requires_grad else policy
    if terms.entropy_bonus:
        total = total - terms.entropy_bonus * reduced(_needed(entropy, "entropy"), mask, tokens.weights)
    return Loss(total, policy.detach(), distance.detach(), clipped.sum(), bound)


def _needed(value: Tensor | None, name: str) -> Tensor:
    if value is None:
        raise ValueError(f"the loss's terms need `{name}`")
    return value


def surrogate(logp: Tensor, logp_old: Tensor, advantages: Tensor, mask: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    """Return the clipped policy loss per token, [B, C], and which tokens were clipped.

    ``logp_old`` are the log-probs under the policy that sampled; ``advantages`` are [B, 1] or [B, C]. Source: PPO
    (arXiv 1707.06347), equation 7, negated; with two bounds, DAPO (arXiv 2503.14476), equation 8.
    """
    ratio = bounded_exp(masked(logp - logp_old.detach(), mask))
    advantages = masked(advantages.detach().expand_as(ratio), mask)
    clipped = ratio.clamp(1.0 - terms.clip_low, 1.0 + terms.clip_high)
    loss = -torch.minimum(ratio * advantages, clipped * advantages)
    return loss, (clipped * advantages < ratio * advantages) & mask


def truncated_weights(logp_old: Tensor, sampled: Tensor, mask: Tensor) -> Tensor:
    """Return min(pi_old / mu, 2) per token, [B, C], for log-probs of the trainer's pi_old and of the engine's mu.

    A token whose log-prob the engine does not know (NaN) has weight 1, as has what is masked. Source: truncated importance
    sampling (Yao et al., "Your efficient RL framework secretly brings you off-policy RL training", 2025), there with a cap
    of 2, too; mu may also be the policy's distribution cut by min-p, whose weight is the mass that was kept.
    """
    difference = masked((logp_old - sampled).detach(), mask & sampled.isfinite())
    return bounded_exp(difference).clamp(max=WEIGHT_CAP)


def reduced(values: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
    """Return sum_i w_i sum_t values_it, a scalar; ``weights`` are [B]."""
    return (weights.to(values.dtype)[:, None] * masked(values, mask)).sum()
