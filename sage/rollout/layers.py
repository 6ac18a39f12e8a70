"""The weights of a Llama or Qwen2 model, read from the live modules in the form that decoding wants.

Two forms of the same mathematics. ``Fused`` copies a small model's weights: queries, keys and values in one product, gate
and up in another, the norms' weights and the attention's scale multiplied in. ``Live`` copies nothing and calls the
modules, so it suits large models, and layers that an adapter has wrapped.

In both, the two coordinates that a rotary position turns together lie side by side (transformers keeps them half a head
apart): the turn is then one complex product, and the scores do not depend on the order of coordinates.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

KINDS = ("Qwen2ForCausalLM", "LlamaForCausalLM")
STATIC_ROPE = ("default", "linear", "llama3", "yarn")  # the angles depend on the position alone
FUSED_BELOW = 8_000_000  # parameters: beyond it, copying them at each call costs more than fusing gains


def supports(model: Any) -> bool:
    """Return whether the decoder computes what ``model`` does: a known architecture in float32 on the CPU.

    Refused are sliding windows, rotary positions that change with the length, and activations other than SiLU.
    """
    if type(model).__name__ not in KINDS:
        return False
    config, weight = model.config, model.model.embed_tokens.weight
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    full_attention = "sliding_attention" not in (getattr(config, "layer_types", None) or [])
    plain = type(model.model.embed_tokens) is nn.Embedding and config.hidden_act == "silu"
    plain_tensor = weight.dtype == torch.float32 and weight.device.type == "cpu"
    return bool(plain and plain_tensor and full_attention and rope in STATIC_ROPE)


def read(model: Any) -> "tuple[list[Layer], Head]":
    """Return the layers and the head of ``model`` as its weights are now."""
    small = sum(parameter.numel() for parameter in model.parameters()) < FUSED_BELOW
    form = Fused if small and all(map(_ordinary, model.model.layers)) else Live
    return [form(layer, model.config) for layer in model.model.layers], Head(model)


def _ordinary(layer: Any) -> bool:
    """Return whether every product of ``layer`` is a plain linear map, which no adapter has wrapped."""
    attention, mlp = layer.self_attn, layer.mlp
    linears = (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
    return all(type(linear) is nn.Linear for linear in (*linears, mlp.gate_proj, mlp.up_proj, mlp.down_proj))


def unit(x: Tensor, epsilon: float) -> Tensor:
    """Return x [N, D] divided by its root mean square (Zhang & Sennrich, arXiv 1910.07467), without a weight."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x * torch.addcmul(x.new_full((1,), epsilon), norm, norm, value=1 / x.shape[-1]).rsqrt_()


def head_width(config: Any) -> int:
    """Return the number of coordinates of one attention head."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


class Layer(ABC):
    """One layer's products; the attention between them is the decoder's."""

    def __init__(self, layer: Any, config: Any) -> None:
        self.width, self.epsilon = head_width(config), config.rms_norm_eps
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self._read(layer)

    @abstractmethod
    def _read(self, layer: Any) -> None:
        """Take from ``layer`` what the products need."""

    @abstractmethod
    def qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the scaled queries [N, heads, d/2, 2], the keys [N, kv, d/2, 2] and the values [N, kv, d] of x [N, D]."""

    @abstractmethod
    def rest(self, x: Tensor, attended: Tensor) -> Tensor:
        """Return x [N, D] with the output of the attention, of ``attended`` [N, heads * d], and the MLP added."""


class Fused(Layer):
    """Copies of the weights, side by side and pre-multiplied."""

    def _read(self, layer: Any) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        first, second = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
        scale = self.width**-0.5
        q, k = self._paired(attention.q_proj, scale), self._paired(attention.k_proj, 1.0)
        self.qkv_weight, self.qkv_bias = _joined([q, k, _parts(attention.v_proj)], first)
        self.out_weight, self.out_bias = _joined([_parts(attention.o_proj)])
        self.gate_up_weight, self.gate_up_bias = _joined([_parts(mlp.up_proj), _parts(mlp.gate_proj)], second)
        self.down_weight, self.down_bias = _joined([_parts(mlp.down_proj)])

    def _paired(self, linear: Any, scale: float) -> tuple[Tensor, Tensor]:
        """Return scaled weight and bias, the two halves of each head interleaved."""
        weight, bias = _parts(linear)
        weight = weight.unflatten(0, (-1, 2, self.width // 2)).transpose(1, 2).flatten(0, 2)
        bias = bias.unflatten(0, (-1, 2, self.width // 2)).transpose(1, 2).flatten()
        return weight * scale, bias * scale

    def qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See :meth:`Layer.qkv`."""
        joined = _affine(unit(x, self.epsilon), self.qkv_weight, self.qkv_bias).view(len(x), -1, self.width)
        q, k, v = joined.split_with_sizes((self.heads, self.kv_heads, self.kv_heads), 1)
        return q.unflatten(-1, (-1, 2)), k.unflatten(-1, (-1, 2)), v

    def rest(self, x: Tensor, attended: Tensor) -> Tensor:
        """See :meth:`Layer.rest`."""
        x = x + _affine(attended, self.out_weight, self.out_bias)
        up_gate = _affine(unit(x, self.epsilon), self.gate_up_weight, self.gate_up_bias)
        # glu is up * sigmoid(gate); times gate it is up * silu(gate)
        hidden = F.glu(up_gate, -1).mul_(up_gate[:, up_gate.shape[1] // 2 :])
        return x.add_(_affine(hidden, self.down_weight, self.down_bias))


class Live(Layer):
    """The modules themselves."""

    def _read(self, layer: Any) -> None:
        self.layer, self.scale = layer, self.width**-0.5

    def _paired(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, 2, self.width // 2)).transpose(-1, -2).contiguous()

    def qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See :meth:`Layer.qkv`."""
        attention, x = self.layer.self_attn, self.layer.input_layernorm(x)
        q, k = self._paired(attention.q_proj(x) * self.scale), self._paired(attention.k_proj(x))
        return q, k, attention.v_proj(x).unflatten(-1, (-1, self.width))

    def rest(self, x: Tensor, attended: Tensor) -> Tensor:
        """See :meth:`Layer.rest`."""
        x = x + self.layer.self_attn.o_proj(attended)
        return x + self.layer.mlp(self.layer.post_attention_layernorm(x))


class Head:
    """The embedding before the layers and the logits after them."""

    def __init__(self, model: Any) -> None:
        self.embedding, self.head = model.model.embed_tokens.weight, model.lm_head
        self.norm, self.epsilon = model.model.norm.weight, model.config.rms_norm_eps

    def embed(self, tokens: Tensor) -> Tensor:
        """Return [N, D] of tokens [N]."""
        return F.embedding(tokens, self.embedding)

    def logits(self, x: Tensor) -> Tensor:
        """Return [N, V] of x [N, D]."""
        return self.head(unit(x, self.epsilon) * self.norm)


def _parts(linear: Any) -> tuple[Tensor, Tensor]:
    weight, bias = linear.weight, linear.bias
    return weight, weight.new_zeros(len(weight)) if bias is None else bias


def _joined(parts: list[tuple[Tensor, Tensor]], norm: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """Return the weight [in, out], multiplied by that of the norm before it, and the bias, None where it is all zero."""
    weight, bias = torch.cat([weight for weight, _ in parts]), torch.cat([bias for _, bias in parts])
    if norm is not None:
        weight = weight * norm
    return weight.t().contiguous(), bias if bool(bias.any()) else None


def _affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.mm(x, weight) if bias is None else torch.addmm(bias, x, weight)
