"""Where each estimator leads: the exact ascent, and the zero of each estimator's expected update.

The expected update is computed with the project's own loss (:func:`sage.objective.losses.token_loss`), on every
sequence, each weighted by its probability: no sampling error, the very code that trains models.
"""

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from sage.objective.divergences import forward_kl
from sage.objective.losses import Terms, Tokens, token_loss
from sage.oracle.tree import Tree

ESTIMATORS = ("k1_reward", "k2_loss", "k3_loss", "forward_kl", "fkl_sampled")


def exact_objective(tree: Tree, logits: Tensor, guide: Tensor, beta: float) -> Tensor:
    """Return E[r] - beta KL(pi || q pi_ref) over whole sequences, a scalar.

    The terms -sum pi + sum q pi_ref of the generalised divergence do not depend on the policy and are left out.
    """
    logp = tree.logp(logits).sum(-1)
    shaped = tree.path(tree.anchor).sum(-1) + tree.path(guide).log().sum(-1)
    return (logp.exp() * (tree.rewards - beta * (logp - shaped))).sum()


def exact_ascent(tree: Tree, guide: Tensor, beta: float) -> Tensor:
    """Return the logits that maximise :func:`exact_objective`, [N, V], by L-BFGS from the anchor."""
    logits = tree.anchor.clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [logits], max_iter=2000, tolerance_grad=1e-12, tolerance_change=0.0, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = -exact_objective(tree, logits, guide, beta)
        loss.backward()
        return loss

    optimiser.step(closure)
    return logits.detach()


def expected_update(tree: Tree, logits: Tensor, guide: Tensor, estimator: str, beta: float) -> Tensor:
    """Return the expected gradient of the loss for ``estimator``, [N, V], by enumeration.

    The advantage is r - E[r], unnormalised; each sequence weighs pi(y), as it does in an average over draws.
    """
    leaf = logits.detach().requires_grad_()
    logp = tree.logp(leaf)
    weights = logp.sum(-1).exp().detach()
    tokens = Tokens(
        mask=torch.ones_like(logp, dtype=torch.bool),
        logp_old=logp.detach(),
        advantages=tree.rewards - (weights * tree.rewards).sum(),
        weights=weights,
        kl_weights=weights,
        logp_anchor=tree.path(tree.anchor),
        guide=tree.path(guide),
    )
    forward = forward_kl(leaf.log_softmax(-1), tree.anchor)[tree.nodes] if estimator == "forward_kl" else None
    loss = token_loss(logp, tokens, Terms(0.2, 0.2, estimator, beta), forward=forward)
    return torch.autograd.grad(loss.total, leaf)[0]


def fixed_point(tree: Tree, guide: Tensor, estimator: str, beta: float) -> Tensor:
    """Return the logits at which the expected update vanishes, [N, V], reached by descent from the anchor.

    Descent brings it near; Levenberg-Marquardt, which does not mind that logits have a free constant at each node, then
    drives the update below 1e-8. Raises RuntimeError where it does not.
    """
    logits = tree.anchor.clone()
    for _ in range(400):
        reach = torch.zeros(len(logits), dtype=logits.dtype)
        weights = tree.distribution(logits)[:, None].expand(tree.nodes.shape)
        reach.index_put_((tree.nodes,), weights, accumulate=True)
        step = expected_update(tree, logits, guide, estimator, beta) / reach.clamp_min(1e-12)[:, None]
        # dividing by the reach of a node, counted over its sequences, makes deep nodes as fast as the root
        logits = logits - 0.5 * step.clamp(-1.0, 1.0)

    def residual(flat: np.ndarray) -> np.ndarray:
        return expected_update(tree, torch.from_numpy(flat).view_as(logits), guide, estimator, beta).flatten().numpy()

    solution = optimize.root(residual, logits.flatten().numpy(), method="lm", tol=1e-14)
    remaining = float(np.abs(residual(solution.x)).max())
    if remaining > 1e-8:
        raise RuntimeError(f"{estimator}: the expected update is still {remaining:.1e}")
    return torch.from_numpy(solution.x).view_as(logits)
