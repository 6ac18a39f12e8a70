"""Masking and exponentials that cannot overflow."""

import torch
from torch import Tensor

# exp(20) = 4.9e8: far beyond any ratio that is informative, far below overflow in float32, also when squared.
EXPONENT_LIMIT = 20.0


def masked(values: Tensor, mask: Tensor) -> Tensor:
    """Return ``values`` with 0 where ``mask`` is False; what stands there, also inf or nan, has no gradient."""
    return torch.where(mask, values, torch.zeros((), dtype=values.dtype, device=values.device))


def bounded_exp(exponent: Tensor) -> Tensor:
    """Return exp(x) with x clamped to [-EXPONENT_LIMIT, EXPONENT_LIMIT]; outside, the gradient is 0."""
    return exponent.clamp(-EXPONENT_LIMIT, EXPONENT_LIMIT).exp()


def count_bound(exponent: Tensor, mask: Tensor) -> Tensor:
    """Return how many unmasked exponents :func:`bounded_exp` clamps, an integer scalar for the log."""
    return ((exponent.abs() > EXPONENT_LIMIT) & mask).sum()
