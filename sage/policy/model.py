"""Making, loading and saving models and tokenizers as ordinary transformers folders."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from sage import seeds
from sage.policy import adapter

if TYPE_CHECKING:
    from sage.config import Model, Shape

SPECIAL = ("<pad>", "<bos>", "<eos>")


def make_tokenizer(characters: list[str]) -> Any:
    """Return a fast tokenizer with a token a character; encoding a prompt puts exactly one ``<bos>`` in front.

    It is a Qwen2 tokenizer without merges: AutoTokenizer takes that class for any folder with a Qwen2 model, and rebuilds
    the splitting and the decoding of any other kind of tokenizer that lies there.
    """
    from tokenizers import processors
    from transformers import Qwen2Tokenizer

    ids = {token: i for i, token in enumerate([*SPECIAL, *characters])}
    pad, bos, eos = SPECIAL
    tokenizer = Qwen2Tokenizer(vocab=ids, merges=[], unk_token=pad, pad_token=pad, bos_token=bos, eos_token=eos)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", special_tokens=[(bos, ids[bos])]
    )
    return tokenizer


def make_model(shape: "Model", vocabulary_size: int, seed: int) -> nn.Module:
    """Return a Qwen2 model with weights drawn from the stream ("init",) of ``seed``; float32."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=vocabulary_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=shape.max_positions,
        initializer_range=shape.init_std,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    # transformers initialises from torch's global generator; fork_rng keeps that from reaching anybody else.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seeds.stream(seed, "init") % 2**63)
        return Qwen2ForCausalLM(config).float()


def device() -> torch.device:
    """Return where models are trained and sampled from: the CUDA device where there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def load_model(folder: Path) -> nn.Module:
    """Return the model saved in ``folder``, in the dtype that it was saved in, in evaluation mode, on the CPU.

    Where an adapter lies there, it is merged into the model that it belongs to.
    """
    from transformers import AutoModelForCausalLM

    _quiet()
    base = adapter.base_of(folder)
    model = AutoModelForCausalLM.from_pretrained(base or folder, dtype="auto", local_files_only=True).eval()
    return model if base is None else adapter.merged(model, folder)


def load_tokenizer(folder: Path) -> Any:
    """Return the tokenizer saved in ``folder``."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def save(folder: Path, model: Any, tokenizer: Any) -> None:
    """Write model and tokenizer into ``folder`` as any transformers program loads them."""
    _quiet()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def shape_of(model: Any) -> "Shape":
    """Return the sizes of a Llama or Qwen2 model."""
    from sage.config import Shape

    config, attention = model.config, model.model.layers[0].self_attn
    return Shape(
        vocabulary=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        tied=config.tie_word_embeddings,
        bias=attention.q_proj.bias is not None,
    )


def _quiet() -> None:
    """Switch off transformers' own progress bars, which would stand between those of a stage."""
    from transformers.utils import logging

    logging.disable_progress_bar()
