"""The optimiser, its learning rate as a pure function of the step, and the checks around one update."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from sage.errors import UserError

if TYPE_CHECKING:
    from sage.config import Optimiser


class NonFinite(UserError):
    """A loss or gradient that is not a finite number; the message names the step, the batch and the cause."""


def make_optimiser(parameters: Iterable[nn.Parameter], config: "Optimiser") -> torch.optim.Optimizer:
    """Return AdamW with decay on matrices only (embeddings among them), none on norms and biases.

    Raises :class:`UserError` where its kind is the one of 8 bits and there is no bitsandbytes or no CUDA.
    """
    parameters = [p for p in parameters if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    beta1, beta2 = config.betas
    if config.kind == "adamw_8bit":
        return _adamw_8bit()(groups, lr=config.lr, betas=(beta1, beta2))
    return torch.optim.AdamW(groups, lr=config.lr, betas=(beta1, beta2), fused=True)


def _adamw_8bit() -> Any:
    """Return bitsandbytes' AdamW (Dettmers et al., arXiv 2110.02861)."""
    if not torch.cuda.is_available():
        raise UserError("optimiser.kind: adamw_8bit needs a CUDA device, and there is none; say `adamw`")
    try:
        from bitsandbytes.optim import AdamW8bit
    except ImportError:
        raise UserError("optimiser.kind: adamw_8bit needs bitsandbytes; `pip install -e '.[cuda]'`") from None
    return AdamW8bit


def learning_rate(config: "Optimiser", update: int, updates: int) -> float:
    """Return the learning rate of optimiser step ``update`` (0-based) of ``updates``."""
    warmup = round(config.warmup * updates if config.warmup < 1 else config.warmup)
    if update < warmup:
        return config.lr * (update + 1) / warmup
    if config.schedule == "constant":
        return config.lr
    done = (update - warmup) / max(1, updates - warmup)
    return config.lr * ((1.0 - done) if config.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * done)))


def apply_update(optimiser: torch.optim.Optimizer, config: "Optimiser", lr: float, where: str) -> float:
    """Clip the gradient, step, clear it; return its norm before clipping.

    Raises :class:`NonFinite` before anything is changed where the norm is not finite.
    """
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    norm = float(nn.utils.clip_grad_norm_(parameters, config.max_grad_norm))
    if not math.isfinite(norm):
        raise NonFinite(f"{where}: the gradient's norm is {norm}; the weights were not changed")
    for group in optimiser.param_groups:
        group["lr"] = lr
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return norm
