"""Exact sampling: the filtered distribution in float64, and its inverse cumulative function at given uniforms."""

import torch
from torch import Tensor

from sage.rollout import Sampling


def probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """Return the distribution sampled from, [B, V] float64, of float32 ``logits`` [B, V].

    Temperature first, then min-p (Nguyen et al., arXiv 2407.01082), then top-p (Holtzman et al., arXiv 1904.09751), which
    keeps the smallest set of likeliest tokens whose mass is at least ``top_p``; among equals, lower ids are kept first.
    """
    if sampling.temperature == 0:
        return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).double()
    p = (logits.double() / sampling.temperature).softmax(-1)
    if sampling.min_p > 0:
        p = torch.where(p >= sampling.min_p * p.amax(-1, keepdim=True), p, 0.0)
        p = p / p.sum(-1, keepdim=True)
    if sampling.top_p < 1:
        ordered, order = torch.sort(p, dim=-1, descending=True, stable=True)
        before = ordered.cumsum(-1) - ordered
        kept = torch.where(before < sampling.top_p, ordered, 0.0)
        p = torch.zeros_like(p).scatter(-1, order, kept)
        p = p / p.sum(-1, keepdim=True)
    return p


def draw(p: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tokens at ``uniforms`` [B] in (0, 1) of distributions ``p`` [B, V], and their log-probs, float64 [B].

    Token v is drawn where the cumulative mass before it is at most u and the mass with it is more; never one of mass 0.
    """
    cumulative = p.cumsum(-1)
    threshold = uniforms[:, None] * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, threshold, right=True)[:, 0]
    # rounding can leave u beyond the last step: the last token of positive mass is the right one
    last = p.shape[-1] - 1 - (p.flip(-1) > 0).int().argmax(-1)
    tokens = torch.minimum(tokens, last)
    return tokens, p.gather(-1, tokens[:, None])[:, 0].log()
