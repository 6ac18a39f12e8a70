"""Log-probs and entropies of completions under a model, on padded micro-batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sage.objective.divergences import forward_kl


@dataclass(frozen=True)
class Batch:
    """B sequences (prompt, then completion), padded on the right."""

    ids: Tensor  # [B, T] token ids
    rows: Tensor  # [M] flat positions in [B, T] whose hidden state predicts a completion token
    targets: Tensor  # [M] the tokens predicted
    mask: Tensor  # [B, C] which of the padded completion tokens are real; M of them

    def padded(self, flat: Tensor) -> Tensor:
        """Return [M] values as [B, C], 0 outside the mask; differentiable."""
        return torch.zeros(self.mask.shape, dtype=flat.dtype).masked_scatter(self.mask, flat)


def collate(prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> Batch:
    """Return the micro-batch of ``prompts[i] + completions[i]``; an empty completion is a fully masked row."""
    lengths = torch.tensor([len(c) for c in completions])
    total, longest = (
        max(len(p) + len(c) for p, c in zip(prompts, completions, strict=True)),
        int(lengths.max()),
    )
    ids = torch.zeros((len(prompts), total), dtype=torch.long)
    rows, targets = [], []
    for i, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        ids[i, : len(prompt) + len(completion)] = torch.tensor([*prompt, *completion])
        first = i * total + len(prompt) - 1
        rows.append(torch.arange(first, first + len(completion)))
        targets.append(torch.tensor(completion, dtype=torch.long))
    mask = torch.arange(longest)[None, :] < lengths[:, None]
    return Batch(ids, torch.cat(rows), torch.cat(targets), mask)


def hidden_rows(model: Any, batch: Batch) -> Tensor:
    """Return the hidden states that predict completion tokens, [M, D].

    Padding is on the right and attention is causal, so no real token sees it and no attention mask is needed.
    """
    hidden = model.model(input_ids=batch.ids, use_cache=False).last_hidden_state
    return hidden.reshape(-1, hidden.shape[-1])[batch.rows]


def logprobs(logits: Tensor, targets: Tensor) -> Tensor:
    """Return log softmax(logits)[targets], [M], float32."""
    return logits.float().log_softmax(-1).gather(-1, targets[:, None])[:, 0]


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy in nats of softmax(logits), [M], float32."""
    logp = logits.float().log_softmax(-1)
    return -(logp.exp() * logp).sum(-1)


@dataclass(frozen=True)
class Scores:
    """What a model says of the completion tokens of a micro-batch, [B, C] each, 0 outside the mask."""

    logp: Tensor  # of the distribution that was sampled from, at the given temperature
    entropy: Tensor  # nats, of the distribution at temperature 1
    forward: Tensor | None = None  # KL(anchor || model), summed over the vocabulary


def score(
    model: Any, batch: Batch, temperature: float, *, anchor: Tensor | None = None, entropy_grad: bool = False
) -> Scores:
    """Return the :class:`Scores` of ``batch``, float32.

    ``anchor``: the anchor's log-softmax at the same tokens, [M, V], where the forward divergence is wanted; the entropy
    carries a gradient only where ``entropy_grad``.
    """
    logits = model.lm_head(hidden_rows(model, batch))
    with torch.set_grad_enabled(entropy_grad and torch.is_grad_enabled()):
        entropies = entropy(logits)
    logp_all = logits.float().div(temperature).log_softmax(-1)
    chosen = logp_all.gather(-1, batch.targets[:, None])[:, 0]
    forward = None if anchor is None else batch.padded(forward_kl(logp_all, anchor))
    return Scores(batch.padded(chosen), batch.padded(entropies), forward)


def log_softmax(model: Any, batch: Batch, temperature: float) -> Tensor:
    """Return the model's whole next-token log-distributions at the completion tokens, [M, V], float32."""
    return model.lm_head(hidden_rows(model, batch)).float().div(temperature).log_softmax(-1)
