"""Exact sampling: the filtered distribution in float64, and its inverse cumulative function at given uniforms."""

import torch
from torch import Tensor

from sage.errors import UserError
from sage.rollout import Sampling


def masses(logits: Tensor, sampling: Sampling) -> Tensor:
    """Return the distribution sampled from up to a factor for each row, [B, V] float64, of float32 ``logits`` [B, V].

    Temperature first, then min-p (Nguyen et al., arXiv 2407.01082), then top-p (Holtzman et al., arXiv 1904.09751), which
    keeps the smallest set of likeliest tokens whose mass is at least ``top_p``; among equals, lower ids are kept first.
    Temperature 0 is all mass on the likeliest token, the first of equals. Raises UserError where a row has a
    logit that is NaN or infinite, or none that is more than minus infinity.
    """
    highest = logits.amax(-1, keepdim=True)
    if not bool(highest.isfinite().all()):
        raise UserError("the model's logits are not finite: its weights have diverged, or its input is wrong")
    if sampling.temperature == 0:
        return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).double()
    exponents = logits.double() - highest
    if sampling.temperature != 1:
        exponents /= sampling.temperature
    mass = exponents.exp_()  # the likeliest token's is 1
    if sampling.min_p > 0:
        mass = torch.where(mass >= sampling.min_p, mass, 0.0)
    if sampling.top_p < 1:
        ordered, order = torch.sort(mass, dim=-1, descending=True, stable=True)
        cumulative = ordered.cumsum(-1)
        kept = torch.where(cumulative - ordered < sampling.top_p * cumulative[:, -1:], ordered, 0.0)
        mass = torch.zeros_like(mass).scatter(-1, order, kept)
    return mass


def draw(mass: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tokens at ``uniforms`` [B] in (0, 1) of ``mass`` [B, V], and their log-probs, float64 [B].

    Token v is drawn where the cumulative mass before it is at most u times the whole and the mass with it is more, so
    never one of mass 0.
    """
    cumulative = mass.cumsum(-1)
    whole = cumulative[:, -1:]
    # rounding can take u * whole up to the whole: just below it stands the last token that has mass
    threshold = torch.minimum(uniforms[:, None] * whole, torch.nextafter(whole, torch.zeros_like(whole)))
    tokens = torch.searchsorted(cumulative, threshold, right=True)
    return tokens[:, 0], (mass.gather(-1, tokens) / whole)[:, 0].log_()
