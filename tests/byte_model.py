"""A small pretrained model for tests, as transformers saves one: random weights, a tokenizer that has every byte."""

from pathlib import Path

import torch

from sage.policy.model import make_tokenizer, save

SHAPE = {
    "vocabulary": 259, "hidden_size": 32, "intermediate_size": 48, "layers": 2, "heads": 4, "kv_heads": 2, "tied": True,
    "bias": False,
}  # fmt: skip
CHAT = "{% for m in messages %}{{ '[' + m['role'] + ']' + m['content'] }}{% endfor %}[answer]"


def tokenizer(template: str | None = CHAT):
    """Return a tokenizer with a token a byte that puts a BOS in front of texts."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    made = make_tokenizer(list(bytes_to_unicode().values()))
    made.chat_template = template
    return made


def llama(seed: int = 0, **changes):
    """Return a Llama model with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    options = {
        "vocab_size": 259, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 2048, "tie_word_embeddings": True, "initializer_range": 0.3,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    }  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(LlamaConfig(**{**options, **changes})).eval()


def make_folder(folder: Path, template: str | None = CHAT) -> Path:
    """Save model and tokenizer into ``folder``."""
    save(folder, llama(), tokenizer(template))
    return folder
