"""A fast decoder for models of the Llama and Qwen2 kind: one prefill a prompt, its cache shared among its completions.

The rows of a batch are completions in any order; each belongs to one of the batch's prompts. The keys and values of a
prompt are kept once, and every row of the prompt attends to them and to its own, which lie in a cache that is allocated
ahead, some tokens at a time. To attend to a prompt, its rows are gathered side by side (``_Places``), so that one
product serves them all; everything else runs on exactly the rows that are there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from sage.rollout.layers import head_width, read

PREFILL_TOKENS = 8192  # read at once: bounds the memory of long prompts
#: Tokens by which the rows' cache grows. All of it is multiplied at each step, for that is several times faster than
#: a part of it: contiguous, and of a size that the kernels like.
ROOM = 16


@dataclass
class _Cache:
    """One layer's keys and values, [prompts, kv, L, d] of the prompts and [rows, kv, room, d] of the rows."""

    prompt_keys: Tensor
    prompt_values: Tensor
    keys: Tensor
    values: Tensor


class _Places:
    """Where the rows of each prompt stand when they are gathered side by side: [prompts, kv, most rows of a prompt]."""

    def __init__(self, owners: Tensor, prompts: int, kv_heads: int) -> None:
        counts = torch.bincount(owners, minlength=prompts)
        order = owners.argsort(stable=True)
        starts = counts.cumsum(0) - counts
        rank = torch.empty_like(owners)
        rank[order] = torch.arange(len(owners)) - starts[owners[order]]
        self.shape = (prompts * kv_heads, int(counts.max()))
        heads = torch.arange(kv_heads)
        #: for each (row, head), its place
        self.of_rows = ((owners[:, None] * kv_heads + heads) * self.shape[1] + rank[:, None]).flatten()
        #: for each place, its (row, head); empty places repeat the first
        self.rows = torch.zeros(self.shape[0] * self.shape[1], dtype=torch.long)
        self.rows[self.of_rows] = torch.arange(len(self.of_rows))


class Decoder:
    """Decodes batches, one after the other, with the weights that ``model`` has when the decoder is made.

    ``positions`` is the number of positions that the longest completion ends at.
    """

    def __init__(self, model: Any, positions: int) -> None:
        self.layers, self.head = read(model)
        config, rotary = model.config, model.model.rotary_emb
        self.heads, self.kv_heads, self.width = (
            config.num_attention_heads,
            config.num_key_value_heads,
            head_width(config),
        )
        angles = torch.arange(positions, dtype=torch.float32)[:, None] * rotary.inv_freq.float()
        scaling = torch.tensor(float(rotary.attention_scaling))
        self.turns = torch.polar(scaling.expand_as(angles).contiguous(), angles)

    # --- the batch ---

    def start(self, prompts: Sequence[Sequence[int]], owners: Tensor) -> Tensor:
        """Read ``prompts`` for rows that belong to prompts ``owners`` [N]; return the logits of what follows, [N, V]."""
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        padding = torch.arange(longest)[None, :] < (longest - lengths)[:, None]
        self.blind = torch.where(padding, -torch.inf, 0.0)[:, None, None, :] if bool(padding.any()) else None
        size = max(1, PREFILL_TOKENS // longest)
        parts = [self._prefill(a, b) for a, b in zip(ids.split(size), padding.split(size), strict=True)]
        logits = torch.cat([part[0] for part in parts])
        shape = (len(owners), self.kv_heads, ROOM, self.width)
        self.caches = [
            # zeros: what nothing was written to yet is multiplied by weights of 0
            _Cache(
                torch.cat([k for k, _ in layer]),
                torch.cat([v for _, v in layer]),
                torch.zeros(shape),
                torch.zeros(shape),
            )
            for layer in zip(*(part[1] for part in parts), strict=True)
        ]
        self.owners, self.lengths, self.step = owners, lengths[owners], 0
        self.places = _Places(owners, len(prompts), self.kv_heads)
        return logits[owners]

    def _prefill(self, ids: Tensor, padding: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Return the logits [P, V] after prompts [P, L], padded on the left, and each layer's keys and values."""
        count, longest = ids.shape
        first = padding.sum(1, keepdim=True)
        turns = self.turns[(torch.arange(longest) - first).clamp_min(0)].flatten(0, 1)[:, None]
        visible = torch.ones(longest, longest, dtype=torch.bool).tril() & ~padding[:, None, :]
        visible |= torch.eye(longest, dtype=torch.bool)  # a padded query must see something; nobody reads it
        x, kept = self.head.embed(ids.flatten()), []
        for layer in self.layers:
            q, k, v = layer.qkv(x)
            q, k, v = (
                y.unflatten(0, (count, longest)).transpose(1, 2) for y in (_turned(q, turns), _turned(k, turns), v)
            )
            gqa = self.heads != self.kv_heads
            out = F.scaled_dot_product_attention(q, k, v, visible[:, None], scale=1.0, enable_gqa=gqa)
            kept.append((k.contiguous(), v.contiguous()))
            x = layer.rest(x, out.transpose(1, 2).reshape(count * longest, -1))
        return self.head.logits(x.view(count, longest, -1)[:, -1]), kept

    def advance(self, tokens: Tensor) -> Tensor:
        """Read one token of each row, [N]; return the logits of what follows, [N, V]."""
        if self.step == self.caches[0].keys.shape[2]:
            self._grow()
        x = self.head.embed(tokens)
        turns = self.turns.index_select(0, self.lengths + self.step)[:, None]
        for layer, cache in zip(self.layers, self.caches, strict=True):
            q, k, v = layer.qkv(x)
            cache.keys[: len(x), :, self.step] = _turned(k, turns)
            cache.values[: len(x), :, self.step] = v
            x = layer.rest(x, self._attend(_turned(q, turns), cache))
        self.step += 1
        return self.head.logits(x)

    def _attend(self, q: Tensor, cache: _Cache) -> Tensor:
        """Return what scaled queries [N, heads, d] attend to in their prompt and their own row, [N, heads * d]."""
        count, seen, longest = len(q), self.step + 1, cache.prompt_keys.shape[2]
        repeats, places = self.heads // self.kv_heads, self.places
        q = q.reshape(count * self.kv_heads, repeats, self.width)
        gathered = q.flatten(1).index_select(0, places.rows).view(places.shape[0], -1, self.width)
        shared = torch.bmm(gathered, cache.prompt_keys.flatten(0, 1).transpose(1, 2))
        if self.blind is not None:
            shared.view(-1, self.kv_heads, *shared.shape[1:]).add_(self.blind)
        shared = shared.view(-1, repeats * longest).index_select(0, places.of_rows).view(-1, repeats, longest)
        keys, values = cache.keys[:count].flatten(0, 1), cache.values[:count].flatten(0, 1)
        own = torch.bmm(q, keys.transpose(1, 2))
        own[:, :, seen:] = -torch.inf
        weights = torch.cat([shared, own], -1).softmax(-1)
        gathered = weights.flatten(1).index_select(0, places.rows).view(places.shape[0], -1, weights.shape[2])
        prompt = torch.bmm(gathered[:, :, :longest], cache.prompt_values.flatten(0, 1))
        prompt = prompt.view(-1, repeats * self.width).index_select(0, places.of_rows).view(q.shape)
        return torch.baddbmm(prompt, weights[:, :, longest:], values).view(count, -1)

    def keep(self, rows: Tensor) -> None:
        """Go on with ``rows`` [N'] of the present ones only; it costs as much as there are rows that change their place."""
        moved = (rows != torch.arange(len(rows))).nonzero()[:, 0]
        sources = rows[moved]
        for cache in self.caches:
            for tensor in (cache.keys, cache.values):
                tensor.index_copy_(0, moved, tensor.index_select(0, sources))
        self.owners, self.lengths = self.owners[rows], self.lengths[rows]
        present, self.owners = self.owners.unique(return_inverse=True)
        if len(present) < len(self.caches[0].prompt_keys):
            for cache in self.caches:
                cache.prompt_keys, cache.prompt_values = cache.prompt_keys[present], cache.prompt_values[present]
            self.blind = None if self.blind is None else self.blind[present]
        self.places = _Places(self.owners, len(present), self.kv_heads)

    def _grow(self) -> None:
        """Make room for more tokens of the rows that are still there."""
        count = len(self.owners)
        for cache in self.caches:
            cache.keys, cache.values = (F.pad(x[:count], (0, 0, 0, ROOM)) for x in (cache.keys, cache.values))


def _turned(pairs: Tensor, turns: Tensor) -> Tensor:
    """Return pairs [N, heads, d/2, 2], seen as complex numbers, times ``turns`` [N, 1, d/2]; [N, heads, d]."""
    return torch.view_as_real(torch.view_as_complex(pairs) * turns).flatten(-2)
