"""A fast decoder for models of the Llama and Qwen2 kind: one prefill a prompt, its cache shared among its completions.

The completions of a batch form a grid [P, G]: P prompts, G completions each. The keys and values of a prompt are kept
once, [P, heads, L, d], and every completion of the prompt attends to them and to its own, which lie in a cache that is
allocated once. Weights are read when a decoder is made, so it lives for one call and sees what the policy is then.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

KINDS = ("Qwen2ForCausalLM", "LlamaForCausalLM")


def supports(model: Any) -> bool:
    """Return whether :class:`Decoder` computes what ``model`` does: architecture, plain rotary positions, plain layers."""
    config = model.config
    plain_rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default") == "default"
    sliding = "sliding_attention" in (getattr(config, "layer_types", None) or [])
    plain_layers = type(model).__name__ in KINDS and all(
        type(linear) is torch.nn.Linear
        for layer in model.model.layers
        for linear in (layer.self_attn.q_proj, layer.self_attn.v_proj, layer.mlp.down_proj, layer.mlp.up_proj)
    )
    return bool(plain_layers and plain_rope and not sliding and config.hidden_act == "silu")


def _joined(*linears: Any) -> tuple[Tensor, Tensor | None]:
    """Return the weight [in, out] and bias of linears side by side: one matrix product instead of several."""
    weight = torch.cat([linear.weight for linear in linears]).t().contiguous()
    biases = [linear.bias for linear in linears if linear.bias is not None]
    if not biases:
        return weight, None
    return weight, torch.cat([x.bias if x.bias is not None else x.weight.new_zeros(x.out_features) for x in linears])


def _affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.mm(x, weight) if bias is None else torch.addmm(bias, x, weight)


@dataclass
class _Layer:
    attention_norm: Tensor
    qkv: tuple[Tensor, Tensor | None]
    out: tuple[Tensor, Tensor | None]
    mlp_norm: Tensor
    gate_up: tuple[Tensor, Tensor | None]
    down: tuple[Tensor, Tensor | None]


class Decoder:
    """The state of one batch: weights, the prompts' keys and values, the completions' keys and values."""

    def __init__(self, model: Any) -> None:
        config = model.config
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.width = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.epsilon, self.embedding = config.rms_norm_eps, model.model.embed_tokens.weight
        self.head, self.norm = model.lm_head.weight.t().contiguous(), model.model.norm.weight
        self.layers = [
            _Layer(
                layer.input_layernorm.weight,
                _joined(layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj),
                _joined(layer.self_attn.o_proj),
                layer.post_attention_layernorm.weight,
                _joined(layer.mlp.gate_proj, layer.mlp.up_proj),
                _joined(layer.mlp.down_proj),
            )
            for layer in model.model.layers
        ]
        theta = (getattr(config, "rope_parameters", None) or {}).get("rope_theta", 10000.0)
        frequency = 1.0 / theta ** (torch.arange(0, self.width, 2, dtype=torch.float32) / self.width)
        angles = torch.arange(config.max_position_embeddings, dtype=torch.float32)[:, None] * frequency[None, :]
        self.cos, self.sin = torch.cat([angles, angles], 1).cos(), torch.cat([angles, angles], 1).sin()

    # --- pieces of a layer ---

    def _rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return x [..., heads, d] turned by the angles of ``positions``, which broadcast over all but the last two axes."""
        half = self.width // 2
        turned = torch.cat([-x[..., half:], x[..., :half]], -1)
        return x * self.cos[positions].unsqueeze(-2) + turned * self.sin[positions].unsqueeze(-2)

    def _qkv(self, x: Tensor, layer: _Layer, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries [P, T, heads, d] and keys and values [P, T, kv heads, d] of x [P, T, D]."""
        flat = F.rms_norm(x, (x.shape[-1],), layer.attention_norm, self.epsilon).flatten(0, 1)
        qkv = _affine(flat, *layer.qkv).view(*x.shape[:2], -1, self.width)
        both = self._rotated(qkv[:, :, : self.heads + self.kv_heads], positions)
        return both[:, :, : self.heads], both[:, :, self.heads :], qkv[:, :, self.heads + self.kv_heads :]

    def _rest(self, x: Tensor, attended: Tensor, layer: _Layer) -> Tensor:
        """Return x after the attention's output and the MLP are added; ``attended`` is [P, T, heads * d]."""
        shape, x = x.shape, x.flatten(0, 1)
        x = x + _affine(attended.flatten(0, 1), *layer.out)
        hidden = F.rms_norm(x, (x.shape[-1],), layer.mlp_norm, self.epsilon)
        gate, up = _affine(hidden, *layer.gate_up).chunk(2, -1)
        return (x + _affine(F.silu(gate) * up, *layer.down)).view(shape)

    def _logits(self, x: Tensor) -> Tensor:
        return torch.mm(F.rms_norm(x, (x.shape[-1],), self.norm, self.epsilon), self.head).float()

    # --- the batch ---

    def prefill(self, ids: Tensor, lengths: Tensor, group: int, room: int) -> Tensor:
        """Read prompts [P, L], padded on the left, of ``lengths`` [P]; return the logits of what follows, [P, V].

        Allocates the cache for ``group`` completions each of at most ``room`` tokens.
        """
        count, longest = ids.shape
        self.lengths, self.step = lengths, 0
        padding = torch.arange(longest)[None, :] < (longest - lengths)[:, None]
        positions = (torch.arange(longest)[None, :] - (longest - lengths)[:, None]).clamp_min(0)
        visible = torch.ones(longest, longest, dtype=torch.bool).tril() & ~padding[:, None, :]
        visible = visible | torch.eye(longest, dtype=torch.bool)  # a padded query must see something; nobody reads it
        self.hidden_prompt = torch.where(padding, -torch.inf, 0.0)[:, None, None, :] if bool(padding.any()) else None
        x, self.prompt, self.own = self.embedding[ids], [], []
        for layer in self.layers:
            q, k, v = self._qkv(x, layer, positions)
            keys, values = k.transpose(1, 2).contiguous(), v.transpose(1, 2).contiguous()
            attended = F.scaled_dot_product_attention(
                q.transpose(1, 2), keys, values, visible[:, None], enable_gqa=self.heads != self.kv_heads
            )
            self.prompt.append((keys, values))
            shape = (count, group, self.kv_heads, room, self.width)
            self.own.append((x.new_empty(shape), x.new_empty(shape)))
            x = self._rest(x, attended.transpose(1, 2).flatten(2), layer)
        return self._logits(x[:, -1])

    def advance(self, tokens: Tensor) -> Tensor:
        """Read one token for each completion, [P, G]; return the logits of what follows, [P * G, V]."""
        x = self.embedding[tokens]
        positions = (self.lengths + self.step)[:, None]
        for i, layer in enumerate(self.layers):
            q, k, v = self._qkv(x, layer, positions)
            own_keys, own_values = self.own[i]
            own_keys[:, :, :, self.step], own_values[:, :, :, self.step] = k, v
            x = self._rest(x, self._attend(q, i), layer)
        self.step += 1
        return self._logits(x.flatten(0, 1))

    def _attend(self, q: Tensor, i: int) -> Tensor:
        """Return what queries [P, G, heads, d] attend to in the prompt and in their own completion, [P, G, heads * d]."""
        (prompts, group), heads, seen = q.shape[:2], self.kv_heads, self.step + 1
        q = q.view(prompts, group, heads, -1, self.width) * self.width**-0.5
        repeats = q.shape[3]
        keys, values = self.prompt[i]
        own_keys, own_values = (cache.flatten(0, 2)[:, :seen] for cache in self.own[i])
        shared = q.transpose(1, 2).flatten(2, 3).flatten(0, 1)  # [P * kv, G * repeats, d]
        scores = torch.bmm(shared, keys.flatten(0, 1).transpose(1, 2)).view(prompts, heads, group * repeats, -1)
        if self.hidden_prompt is not None:
            scores = scores + self.hidden_prompt
        scores = scores.view(prompts, heads, group, repeats, -1).transpose(1, 2)
        own = torch.bmm(q.flatten(0, 2), own_keys.transpose(1, 2)).view(prompts, group, heads, repeats, seen)
        weights = torch.cat([scores, own], -1).softmax(-1)
        split = scores.shape[-1]
        prompt_weights = weights[..., :split].transpose(1, 2).reshape(prompts * heads, group * repeats, split)
        attended = torch.bmm(prompt_weights, values.flatten(0, 1)).view(prompts, heads, group, repeats, self.width)
        own = torch.bmm(weights[..., split:].reshape(-1, repeats, seen), own_values).view(q.shape)
        return (attended.transpose(1, 2) + own).flatten(2)

    def keep(self, prompts: Tensor, rows: Tensor) -> None:
        """Go on with the grid of completions ``rows`` [P', G'], flat indices of the present grid, of ``prompts`` [P']."""
        self.lengths = self.lengths[prompts]
        if self.hidden_prompt is not None:
            self.hidden_prompt = self.hidden_prompt[prompts]
        self.prompt = [(keys[prompts], values[prompts]) for keys, values in self.prompt]
        kept = []
        for caches in self.own:
            new = []
            for cache in caches:
                packed = cache.new_empty((*rows.shape, *cache.shape[2:]))
                packed[:, :, :, : self.step] = cache.flatten(0, 1)[:, :, : self.step][rows]
                new.append(packed)
            kept.append((new[0], new[1]))
        self.own = kept
