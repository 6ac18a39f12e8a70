"""From texts to token ids, the very same in fine-tuning, reinforcement learning and evaluation."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sage.errors import UserError
from sage.policy.template import WORKING, turns
from sage.rollout import Ending

if TYPE_CHECKING:
    from sage.config import Pretrained


def encode_prompts(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of prompts, in the tokenizer's chat template where it has one, with exactly one BOS.

    A tokenizer that puts no BOS in front of texts, and whose template has none, gets none.
    """
    if not tokenizer.chat_template:
        return _encode(tokenizer, texts, special=True)
    return [_one_bos(tokenizer, row) for row in _encode(tokenizer, _rendered(tokenizer, texts), special=False)]


def encode_targets(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Return the token ids that supervised fine-tuning teaches after each prompt, with the EOS.

    Where prompts end with the tag that opens the working, a target does not open it a second time.
    """
    if tokenizer.chat_template and _rendered(tokenizer, [""])[0].endswith(WORKING[0]):
        texts = [text.removeprefix(WORKING[0]) for text in texts]
    return [[*row, tokenizer.eos_token_id] for row in _encode(tokenizer, texts, special=False)]


def fitting(prompts: Sequence[Sequence[int]], model: "Pretrained | None", what: str, skip: bool) -> list[int]:
    """Return the numbers of the prompts that are not longer than ``model`` allows; all of them without such a bound.

    A longer one is a :class:`UserError`; where ``skip`` and the model's ``over_long`` both say so, they are left out, and
    their number is printed. ``what``: the data set, for the message.
    """
    long = [i for i, prompt in enumerate(prompts) if model and len(prompt) > model.max_prompt_tokens]
    if not model or not long:
        return list(range(len(prompts)))
    told = f"{what}: {len(long)} of {len(prompts)} prompts have more than {model.max_prompt_tokens} tokens"
    if not skip or model.over_long == "error" or len(long) == len(prompts):
        longest = max(map(len, prompts))
        raise UserError(f"{told}, the longest {longest}; raise model.max_prompt_tokens, or drop these problems")
    print(f"{told} and are left out", flush=True)
    return sorted(set(range(len(prompts))) - set(long))


def ending(tokenizer: Any, model: "Pretrained | None") -> Ending | None:
    """Return the text that ends completions of a pretrained model, where its entry names one."""
    text = model.stop if model else None
    return Ending(text, lambda tokens: text in tokenizer.decode(tokens)) if text else None


def _rendered(tokenizer: Any, problems: Sequence[str]) -> list[str]:
    return [
        tokenizer.apply_chat_template(turns(problem), tokenize=False, add_generation_prompt=True)
        for problem in problems
    ]


def _one_bos(tokenizer: Any, row: list[int]) -> list[int]:
    """Return ``row`` with one BOS in front where the template or the tokenizer wants any: some models get two."""
    bos = tokenizer.bos_token_id
    first = next((i for i, token in enumerate(row) if token != bos), len(row))
    wanted = bos is not None and (first > 0 or tokenizer("a")["input_ids"][0] == bos)
    return [bos, *row[first:]] if wanted else row


def _encode(tokenizer: Any, texts: Sequence[str], special: bool) -> list[list[int]]:
    """Return token ids; a text that they do not give back is a :class:`UserError`: unknown characters vanish silently."""
    rows = tokenizer(list(texts), add_special_tokens=special)["input_ids"]
    for text, back in zip(texts, tokenizer.batch_decode(rows, skip_special_tokens=special), strict=True):
        if back != text:
            raise UserError(
                f"the tokenizer does not know all of {text!r} (it reads {back!r}); use the model's own task"
            )
    return [list(row) for row in rows]
