"""The language-model head in chunks: log-probs, entropies and the exact forward divergence, never all logits at once.

In: hidden states [M, D] and the head's weight [V, D]. Out: per-token values [M], float32. A chunk of R rows has its logits in
memory, [R, V], and nothing of the size [M, V] is kept: that would be 2.5 GB at 4,096 tokens and a vocabulary of 152,000.

Where the head is frozen (LoRA), the derivative of each value by its hidden state, a row of D numbers, is found along with the
value: the products that a plain backward would do are done, and no more. Where the head is trained, its gradient needs the
incoming one, and the logits of each chunk are computed again.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK_BYTES = 40 * 2**20  # of the float32 logits of a chunk; larger ones are hardly faster
CAST_ROWS = 8192  # rows of a half-precision head that are cast to float32 at a time, where no kernel does it


@dataclass(frozen=True)
class HeadScores:
    """Per-token values, [M] float32."""

    logp: Tensor  # log-prob of the target at the given temperature, <= 0
    entropy: Tensor | None  # nats, of the distribution at temperature 1, in [0, ln V]
    forward: Tensor | None  # KL(anchor || policy) over the vocabulary at the given temperature, >= 0


def head_scores(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    temperature: float = 1.0,
    *,
    anchor: tuple[Tensor, Tensor] | None = None,
    entropy: bool = True,
    entropy_grad: bool = False,
) -> HeadScores:
    """Return the :class:`HeadScores` of ``targets`` [M] under softmax(hidden weight^T / temperature).

    ``anchor``: hidden states and head of the anchor, where the forward divergence is wanted; no gradient reaches them.
    ``entropy``: whether the entropy is wanted; it carries a gradient only where ``entropy_grad``.
    """
    states, head = anchor or (None, None)
    options = (temperature, states, head, entropy or entropy_grad, entropy_grad)
    logp, entropies, forward = _Head.apply(hidden, weight, targets, *options)
    entropies = entropies if entropy_grad else entropies.detach()
    return HeadScores(logp, entropies if entropy or entropy_grad else None, forward if anchor else None)


def in_chunks(hidden: Tensor, weight: Tensor) -> bool:
    """Return whether all logits of ``hidden`` at once would be more than a chunk."""
    return 4 * len(hidden) * len(weight) > CHUNK_BYTES


def chunk_rows(vocabulary: int) -> int:
    """Return how many rows of float32 logits fit in a chunk."""
    return max(1, CHUNK_BYTES // (4 * vocabulary))


class _Head(torch.autograd.Function):
    """Values of chunks of rows, and their derivatives by the hidden states, by the chain rule through the logits z.

    With p = softmax(z) and s = softmax(z / T): d logp_y / dz = (onehot_y - s) / T; d H / dz = -p (log p + H);
    d KL(r || s) / dz = (s - r) / T for an anchor's distribution r.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        temperature: float,
        anchor_hidden: Tensor | None,
        anchor_weight: Tensor | None,
        entropy: bool,
        entropy_grad: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        count = len(targets)
        values = hidden.new_zeros((3, count), dtype=torch.float32)
        wanted = [True, entropy_grad, anchor_hidden is not None]
        frozen = hidden.requires_grad and not weight.requires_grad
        slopes = [hidden.new_empty(hidden.shape, dtype=torch.float32) if w and frozen else None for w in wanted]
        size = chunk_rows(len(weight))
        for first in range(0, count, size):
            rows = slice(first, min(first + size, count))
            chunk = _Chunk(hidden, weight, targets, temperature, anchor_hidden, anchor_weight, rows)
            values[:, rows] = chunk.values(entropy)
            for which, slope in enumerate(slopes):
                if slope is not None:
                    slope[rows] = _times(chunk.slope(which), weight)
        ctx.save_for_backward(hidden, weight, targets, anchor_hidden, anchor_weight, *slopes)
        ctx.temperature, ctx.wanted, ctx.frozen = temperature, wanted, frozen
        logp, entropies, forward = values
        return logp, entropies, forward

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, targets, anchor_hidden, anchor_weight, *slopes = ctx.saved_tensors
        nothing = (None,) * 6
        if ctx.frozen:
            total = sum(g[:, None] * slope for g, slope in zip(gradients, slopes, strict=True) if slope is not None)
            return total.to(hidden.dtype), None, *nothing
        to_hidden = torch.empty_like(hidden) if hidden.requires_grad else None
        to_weight = torch.zeros_like(weight, dtype=torch.float32)
        size = chunk_rows(len(weight))
        for first in range(0, len(targets), size):
            rows = slice(first, min(first + size, len(targets)))
            chunk = _Chunk(hidden, weight, targets, ctx.temperature, anchor_hidden, anchor_weight, rows)
            used = [which for which, wanted in enumerate(ctx.wanted) if wanted]
            slope = chunk.slope(used[0]).mul_(gradients[used[0]][rows, None])
            for which in used[1:]:
                slope += chunk.slope(which).mul_(gradients[which][rows, None])
            if to_hidden is not None:
                to_hidden[rows] = _times(slope, weight).to(hidden.dtype)
            to_weight.addmm_(slope.T, hidden[rows].float())
        return to_hidden, to_weight.to(weight.dtype), *nothing


class _Chunk:
    """The logits of some rows, and what is derived from them."""

    def __init__(
        self,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        temperature: float,
        anchor_hidden: Tensor | None,
        anchor_weight: Tensor | None,
        rows: slice,
    ) -> None:
        self.targets, self.temperature = targets[rows, None], temperature
        logits = _logits(hidden[rows], weight)
        self.hot = _normalised(logits / temperature) if temperature != 1.0 else logits
        self.logp = _normalised(logits)  # in place: at temperature 1 both are one
        self.anchor: Tensor | None = None
        if anchor_hidden is not None and anchor_weight is not None:
            self.anchor = _normalised(_logits(anchor_hidden[rows], anchor_weight).div_(temperature))

    @cached_property
    def entropies(self) -> Tensor:
        """Entropies of the rows, [R]."""
        return torch.special.entr(self.logp.exp()).sum(-1).clamp_(max=math.log(self.logp.shape[-1]))

    def values(self, entropy: bool) -> Tensor:
        """Return log-prob, entropy (0 unless wanted) and divergence, [3, R]."""
        chosen = self.hot.gather(-1, self.targets)[:, 0].clamp(max=0.0)
        entropies = self.entropies if entropy else torch.zeros_like(chosen)
        if self.anchor is None:
            return torch.stack([chosen, entropies, torch.zeros_like(chosen)])
        weight = self.anchor.exp()
        # A word of probability 0 under the anchor counts 0.
        divergence = torch.where(weight > 0, weight * (self.anchor - self.hot), 0.0).sum(-1).clamp(min=0.0)
        return torch.stack([chosen, entropies, divergence])

    def slope(self, which: int) -> Tensor:
        """Return the derivative of value ``which`` by the logits, [R, V], in memory of its own."""
        if which == 1:
            return self.logp.add(self.entropies[:, None]).mul_(self.logp.exp()).neg_().nan_to_num_()
        if which == 0:
            slope = self.hot.exp().neg_()
            slope.scatter_add_(-1, self.targets, torch.ones_like(slope[:, :1]))
        else:
            assert self.anchor is not None
            slope = self.hot.exp().sub_(self.anchor.exp())
        return slope.div_(self.temperature)


def _normalised(logits: Tensor) -> Tensor:
    """Turn logits into log-probs, in place."""
    return logits.sub_(logits.logsumexp(-1, keepdim=True))


def _logits(hidden: Tensor, weight: Tensor) -> Tensor:
    """Return hidden weight^T in float32, summed in float32 for inputs of half precision too."""
    if hidden.dtype == torch.float32:
        return hidden @ weight.T
    if hidden.is_cuda:
        return torch.mm(hidden, weight.T, out_dtype=torch.float32)
    states, parts = hidden.float(), weight.split(CAST_ROWS)
    return torch.cat([states @ part.float().T for part in parts], -1)


def _times(slope: Tensor, weight: Tensor) -> Tensor:
    """Return slope weight, [R, D] float32."""
    if weight.dtype == torch.float32:
        return slope @ weight
    if weight.is_cuda:
        return torch.mm(slope.to(weight.dtype), weight, out_dtype=torch.float32)
    result = slope.new_zeros((len(slope), weight.shape[1]))
    for part, block in zip(weight.split(CAST_ROWS), slope.split(CAST_ROWS, -1), strict=True):
        result.addmm_(block, part.float())
    return result
