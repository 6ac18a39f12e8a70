"""The engine contract: token ids and one stream key a completion in, token ids, log-probs and finish reasons out.

An engine knows nothing of tasks or texts. Token t of a completion is the inverse of the distribution's cumulative function
at ``seeds.uniform(key, t)``, so a completion depends on its prompt, its key and the weights alone: not on the batch, the
order, the shard or the worker, but where float rounding tips a draw.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sage.errors import UserError


@dataclass(frozen=True)
class Ending:
    """A text that ends completions, however it is cut into tokens; ``said``: whether some last tokens have it."""

    text: str
    said: Callable[[list[int]], bool]


@dataclass(frozen=True)
class Sampling:
    """What is sampled from: the model's distribution at ``temperature`` (0: its mode), cut by min-p, then by top-p."""

    max_new_tokens: int
    stop: tuple[int, ...]  # a completion ends with the first of these, and keeps it
    temperature: float = 1.0
    top_p: float = 1.0  # keep the likeliest tokens up to this mass
    ending: Ending | None = None  # a completion ends with the token that completes this text, too
    min_p: float = 0.0  # keep tokens with at least this share of the likeliest one's probability

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise UserError(f"max_new_tokens: {self.max_new_tokens} is not positive; ask for at least one token")
        if not 0 <= self.temperature < math.inf:
            raise UserError(
                f"temperature: {self.temperature} is not in [0, inf); give 0 for the likeliest token, or more"
            )
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p: {self.top_p} is not in (0, 1]; give 1 to keep every token")
        if not 0 <= self.min_p < 1:
            raise UserError(f"min_p: {self.min_p} is not in [0, 1); give 0 to keep every token")


@dataclass(frozen=True)
class Completion:
    """One completion: its tokens, their log-probs under the distribution sampled from, ``stop`` or ``length``."""

    tokens: list[int]
    logprobs: list[float]
    finish: str


class Engine(Protocol):
    """Anything that samples completions."""

    name: str

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        keys: np.ndarray,
        sampling: Sampling,
        progress: Callable[[int], object] | None = None,
    ) -> list[list[Completion]]:
        """Return G completions for each of P prompts.

        ``keys`` are uint64, [P, G]; ``progress`` is called with the number of completions done since its last call.
        """
        ...


def check(prompts: Sequence[Sequence[int]], keys: np.ndarray, sampling: Sampling, limit: float) -> None:
    """Check what an engine is asked for; ``limit``: positions of its model.

    Raises ValueError for keys of another type or shape, UserError for a prompt that is empty or too long.
    """
    if keys.dtype != np.uint64 or keys.ndim != 2 or len(keys) != len(prompts):
        raise ValueError(f"keys must be uint64 [{len(prompts)}, G], not {keys.dtype} {list(keys.shape)}")
    room = limit - sampling.max_new_tokens
    if room <= 0:
        raise UserError(
            f"max_new_tokens: {sampling.max_new_tokens} of the model's {limit} positions leave none to prompts"
        )
    for number, prompt in enumerate(prompts):
        if not 0 < len(prompt) <= room:
            raise UserError(
                f"prompt {number} has {len(prompt)} tokens: with max_new_tokens = {sampling.max_new_tokens} the model's"
                f" {limit} positions leave room for 1 to {room}; shorten one of them"
            )
