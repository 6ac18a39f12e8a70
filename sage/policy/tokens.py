"""From texts to token ids, the very same in fine-tuning, reinforcement learning and evaluation."""

from collections.abc import Sequence
from typing import Any

from sage.errors import UserError


def encode_prompts(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of prompts, with exactly one BOS."""
    return _encode(tokenizer, texts, special=True)


def encode_targets(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Return the token ids that supervised fine-tuning teaches after each prompt, with the EOS."""
    return [[*row, tokenizer.eos_token_id] for row in _encode(tokenizer, texts, special=False)]


def _encode(tokenizer: Any, texts: Sequence[str], special: bool) -> list[list[int]]:
    """Return token ids; a text that they do not give back is a :class:`UserError`: unknown characters vanish silently."""
    rows = tokenizer(list(texts), add_special_tokens=special)["input_ids"]
    for text, back in zip(texts, tokenizer.batch_decode(rows, skip_special_tokens=True), strict=True):
        if back != text:
            raise UserError(
                f"the tokenizer does not know all of {text!r} (it reads {back!r}); use the model's own task"
            )
    return [list(row) for row in rows]
