"""Log-probs and entropies of completions under a model, on padded micro-batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from sage.objective.divergences import forward_kl
from sage.policy.head import head_scores, in_chunks


@dataclass(frozen=True)
class Prefix:
    """P beginnings of sequences that a model reads once, however many sequences share them; padded on the right."""

    ids: Tensor  # [P, S] token ids
    lengths: Tensor  # [P]
    owners: Tensor  # [B] which of them a sequence begins with


@dataclass(frozen=True)
class Batch:
    """B sequences (prompt, then completion), padded on the right; without what stands in ``prefix``."""

    ids: Tensor  # [B, T] token ids
    rows: Tensor  # [M] flat positions in [B, T] whose hidden state predicts a completion token
    targets: Tensor  # [M] the tokens predicted
    mask: Tensor  # [B, C] which of the padded completion tokens are real; M of them
    prefix: Prefix | None = None

    def padded(self, flat: Tensor) -> Tensor:
        """Return [M] values as [B, C], 0 outside the mask; differentiable."""
        flat = flat.to(self.mask.device)
        return flat.new_zeros(self.mask.shape).masked_scatter(self.mask, flat)


def collate(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    device: torch.device | None = None,
    share: bool = False,
) -> Batch:
    """Return the micro-batch of ``prompts[i] + completions[i]`` on ``device``, that of the model that is to read it.

    An empty completion is a fully masked row. ``share``: equal prompts are read once, but for their last token, whose
    hidden state predicts the first token of each completion.
    """
    prefix = _prefix(prompts, device) if share and len(set(map(tuple, prompts))) < len(prompts) else None
    if prefix:
        prompts = [prompt[-1:] for prompt in prompts]
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
    ids, mask = ids.to(device), mask.to(device)
    return Batch(ids, torch.cat(rows).to(device), torch.cat(targets).to(device), mask, prefix)


def _prefix(prompts: Sequence[Sequence[int]], device: torch.device | None) -> Prefix | None:
    """Return all distinct prompts but for their last tokens; None where nothing is left of them."""
    places = {tuple(prompt): i for i, prompt in enumerate(dict.fromkeys(map(tuple, prompts)))}
    lengths = torch.tensor([len(prompt) - 1 for prompt in places])
    if not lengths.any():
        return None
    ids = torch.zeros((len(places), int(lengths.max())), dtype=torch.long)
    for prompt, i in places.items():
        ids[i, : len(prompt) - 1] = torch.tensor(prompt[:-1])
    owners = torch.tensor([places[tuple(prompt)] for prompt in prompts])
    return Prefix(*(tensor.to(device) for tensor in (ids, lengths, owners)))


def hidden_rows(model: Any, batch: Batch) -> Tensor:
    """Return the hidden states that predict completion tokens, [M, D].

    Padding is on the right and attention is causal, so no real token sees it and no attention mask is needed, but for
    that between a prefix and what follows it.
    """
    options = _after(model, batch.prefix, batch.ids) if batch.prefix else {"use_cache": False}
    hidden = model.model(input_ids=batch.ids, **options).last_hidden_state
    return hidden.reshape(-1, hidden.shape[-1])[batch.rows]


def _after(model: Any, prefix: Prefix, ids: Tensor) -> dict[str, Any]:
    """Read ``prefix``; return what lets the model read ``ids`` [B, T] after it. Gradients flow through its keys and values."""
    cache = model.model(input_ids=prefix.ids, use_cache=True).past_key_values
    cache.batch_select_indices(prefix.owners)
    lengths = prefix.lengths[prefix.owners, None]
    real = torch.arange(prefix.ids.shape[1], device=ids.device) < lengths
    return {
        "past_key_values": cache,
        "attention_mask": torch.cat([real, torch.ones_like(ids, dtype=torch.bool)], dim=1),
        "position_ids": lengths + torch.arange(ids.shape[1], device=ids.device),
    }


def logprobs(logits: Tensor, targets: Tensor) -> Tensor:
    """Return log softmax(logits)[targets], [M], float32."""
    return logits.float().log_softmax(-1).gather(-1, targets[:, None])[:, 0]


def entropy_of(logp: Tensor) -> Tensor:
    """Return the entropy in nats of distributions given by their log-probs [M, V], [M]."""
    return -(logp.exp() * logp).sum(-1)


@dataclass(frozen=True)
class Scores:
    """What a model says of the completion tokens of a micro-batch, [B, C] each, 0 outside the mask."""

    logp: Tensor  # of the distribution that was sampled from, at the given temperature
    entropy: Tensor  # nats, of the distribution at temperature 1
    forward: Tensor | None = None  # KL(anchor || model), summed over the vocabulary


Head = tuple[Tensor, Tensor]  # hidden states [M, D] and the weight [V, D] that makes logits of them


def head_of(model: Any, batch: Batch) -> Head:
    """Return the hidden states that predict the completion tokens of ``batch``, and the model's head."""
    return hidden_rows(model, batch), model.lm_head.weight


def score(
    model: Any, batch: Batch, temperature: float, *, anchor: Head | None = None, entropy_grad: bool = False
) -> Scores:
    """Return the :class:`Scores` of ``batch``, float32.

    ``anchor``: the anchor's head at the same tokens, where the forward divergence is wanted; the entropy carries a
    gradient only where ``entropy_grad``.
    """
    hidden, weight = head_of(model, batch)
    if in_chunks(hidden, weight):
        found = head_scores(hidden, weight, batch.targets, temperature, anchor=anchor, entropy_grad=entropy_grad)
        assert found.entropy is not None
        forward = None if found.forward is None else batch.padded(found.forward)
        return Scores(batch.padded(found.logp), batch.padded(found.entropy), forward)
    logits = linear(hidden, weight).float()
    logp_all = (logits if temperature == 1 else logits / temperature).log_softmax(-1)
    if temperature == 1 and not entropy_grad:
        entropies = entropy_of(logp_all.detach())
    else:
        with torch.set_grad_enabled(entropy_grad and torch.is_grad_enabled()):
            entropies = entropy_of(logits.log_softmax(-1))
    del logits  # no gradient needs it, and with it there is one tensor of [M, V] more
    chosen = logp_all.gather(-1, batch.targets[:, None])[:, 0]
    forward = None if anchor is None else batch.padded(forward_kl(logp_all, _log_softmax(anchor, temperature)))
    return Scores(batch.padded(chosen), batch.padded(entropies), forward)


def target_logp(head: Head, targets: Tensor, temperature: float) -> Tensor:
    """Return the log-probs of ``targets``, [M] float32, without a gradient."""
    with torch.no_grad():
        if in_chunks(*head):
            return head_scores(*head, targets, temperature, entropy=False).logp
        return _log_softmax(head, temperature).gather(-1, targets[:, None])[:, 0]


def _log_softmax(head: Head, temperature: float) -> Tensor:
    return linear(*head).float().div(temperature).log_softmax(-1)
