"""Divergences between the policy pi and the shaped anchor q pi_ref, each named for how it is used.

``delta`` is d_t = log pi_ref(y_t) + log q_t - log pi(y_t), [B, C]; the gradient reaches log pi through it. What each
estimator's gradient is in expectation, for tokens drawn from pi and q held fixed, stands in its docstring; the oracle
(:mod:`sage.oracle`) shows where each of them leads.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from sage.objective.numerics import bounded_exp, masked


def log_ratio_to_anchor(logp: Tensor, logp_anchor: Tensor, guide: Tensor | None, mask: Tensor) -> Tensor:
    """Return d_t, [B, C], 0 outside the mask; ``guide`` is q_t > 0 (None stands for q = 1), taken as a constant."""
    delta = logp_anchor.detach() - logp
    if guide is not None:
        delta = delta + torch.where(mask, guide.detach(), torch.ones_like(delta)).log()
    return masked(delta, mask)


def k3_loss(delta: Tensor) -> Tensor:
    """Return exp(d) - d - 1 >= 0, [B, C], to be differentiated directly.

    E[grad] = -sum_y q pi_ref(y) grad log pi(y) at each state: the gradient of a FORWARD divergence towards q pi_ref;
    for q depending on the state only it is q grad KL(pi_ref || pi). The value is an unbiased estimate of the reverse
    (generalised) divergence all the same. It is what the official code of SAGE, TRL and most peers run. The exponent is
    bounded (:mod:`sage.objective.numerics`). Source: J. Schulman, Approximating KL divergence, 2020.
    """
    return bounded_exp(delta) - delta - 1.0


def k2_loss(delta: Tensor) -> Tensor:
    """Return d^2 / 2, [B, C], to be differentiated directly.

    E[grad] = grad KL(pi || q pi_ref) of each state's next-token distribution, states held fixed: a factor q that
    depends on the state only has no effect in expectation. The value is biased. Source: J. Schulman, 2020.
    """
    return 0.5 * delta.square()


def fkl_sampled_loss(delta: Tensor) -> Tensor:
    """Return rho log rho - (rho - 1), rho = pi_ref/pi = exp(d), [B, C], to be differentiated directly.

    The value is an unbiased estimate of the forward divergence KL(pi_ref || pi); its direct derivative is -rho log rho
    grad log pi, in expectation -sum_y pi_ref(y) d(y) grad log pi(y), which is NOT the gradient of the forward
    divergence (that is -sum_y pi_ref(y) grad log pi(y)). Use :func:`forward_kl` for that one.
    """
    ratio = bounded_exp(delta)
    return ratio * delta - (ratio - 1.0)


def forward_kl(logp: Tensor, logp_anchor: Tensor) -> Tensor:
    """Return KL(pi_ref || pi) of each next-token distribution, summed over the vocabulary: [..., V] -> [...].

    E[grad] = -sum_y pi_ref(y) grad log pi(y), exact at each state: the expected gradient of :func:`k3_loss` at q = 1,
    without its variance. A token with pi_ref = 0 counts 0.
    """
    anchor = logp_anchor.detach()
    weight = anchor.exp()
    return torch.where(weight > 0, weight * (anchor - logp), torch.zeros_like(logp)).sum(-1)


def k1_reward(delta: Tensor, mask: Tensor) -> Tensor:
    """Return sum_{s >= t} d_s, [B, C]: the return of the reward d_t, to be added times beta to token t's advantage.

    With unnormalised advantages and the score function it is the exact gradient of -KL(pi || q pi_ref) over whole
    sequences, the only estimator whose fixed point is pi_ref q exp(r / beta) / Z. No gradient flows through it. Source:
    the policy gradient of the sequence-level objective (SAGE, section 3); S. Levine, arXiv 1805.00909.
    """
    rewards = masked(delta.detach(), mask)
    return masked(rewards.flip(-1).cumsum(-1).flip(-1), mask)


def generalised_kl(p: Tensor, m: Tensor) -> Tensor:
    """Return sum p log(p / m) - sum p + sum m over the last axis, >= 0, for unnormalised m > 0: [..., V] -> [...].

    0 only where p = m. The divergence of a shaped anchor m = q pi_ref, which need not sum to 1.
    """
    return (torch.special.xlogy(p, p) - torch.special.xlogy(p, m) - p + m).sum(-1)


DIFFERENTIATED: dict[str, Callable[[Tensor], Tensor]] = {
    "k3_loss": k3_loss,
    "k2_loss": k2_loss,
    "fkl_sampled": fkl_sampled_loss,
}
