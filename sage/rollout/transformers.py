"""An engine on transformers models, made for CPUs: it reads the model's live weights at each call.

Models of the Llama and Qwen2 kind go through :class:`sage.rollout.decoder.Decoder`; any other goes through its own cached
forward. Either way each draw has its own stream, and finished completions leave the batch.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sage import seeds
from sage.errors import UserError
from sage.rollout import Completion, Sampling
from sage.rollout.decoder import Decoder, supports
from sage.rollout.sampling import draw, probabilities


class TransformersEngine:
    """Samples from ``model``, at most ``batch_size`` completions at once."""

    name = "transformers"

    def __init__(self, model: Any, batch_size: int = 512) -> None:
        self.model, self.batch_size = model, batch_size

    @torch.inference_mode()
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        keys: np.ndarray,
        sampling: Sampling,
        progress: Callable[[int], object] | None = None,
    ) -> list[list[Completion]]:
        """Return G completions for each of P prompts; see :class:`sage.rollout.Engine`."""
        self._check(prompts, keys, sampling)
        fast = supports(self.model)
        completions: list[list[Completion]] = [[] for _ in prompts]
        for rows, columns in self._batches(prompts, keys.shape[1], fast):
            grid = _Grid(keys[rows, columns], sampling)
            loop = _fast if fast else _plain
            loop(self.model, [prompts[row] for row in rows], grid)
            for row, done in zip(rows, grid.completions(), strict=True):
                completions[row] += done
            if progress is not None:
                progress(grid.keys.size)
        return completions

    def _check(self, prompts: Sequence[Sequence[int]], keys: np.ndarray, sampling: Sampling) -> None:
        if keys.dtype != np.uint64 or keys.ndim != 2 or len(keys) != len(prompts):
            raise ValueError(f"keys must be uint64 [{len(prompts)}, G], not {keys.dtype} {list(keys.shape)}")
        limit = self.model.config.max_position_embeddings
        for number, prompt in enumerate(prompts):
            if not 0 < len(prompt) <= limit - sampling.max_new_tokens:
                raise UserError(
                    f"prompt {number} has {len(prompt)} tokens: with max_new_tokens = {sampling.max_new_tokens} the model's"
                    f" {limit} positions leave room for 1 to {limit - sampling.max_new_tokens}; shorten one of them"
                )

    def _batches(self, prompts: Sequence[Any], group: int, fast: bool) -> Iterator[tuple[list[int], slice]]:
        """Yield (prompts, columns of the keys): similar lengths together, and equal ones where padding is not masked."""
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        columns = [slice(i, i + self.batch_size) for i in range(0, group, self.batch_size)]
        size = max(1, self.batch_size // group)
        start = 0
        while start < len(order):
            end = min(start + size, len(order))
            if not fast:
                end = next((i for i in range(start, end) if len(prompts[order[i]]) > len(prompts[order[start]])), end)
            for part in columns:
                yield order[start:end], part
            start = end


class _Grid:
    """The completions of one batch, [P, G], and which of them are not finished."""

    def __init__(self, keys: np.ndarray, sampling: Sampling) -> None:
        self.keys, self.sampling = keys, sampling
        room = sampling.max_new_tokens
        self.uniforms = torch.from_numpy(seeds.uniform(keys.reshape(-1, 1), np.arange(room)[None, :]))
        self.tokens = torch.zeros((keys.size, room), dtype=torch.long)
        self.logprobs = torch.zeros((keys.size, room), dtype=torch.double)
        self.lengths = torch.full((keys.size,), room)
        self.rows = torch.arange(keys.size).view(keys.shape)  # which completion stands where in the present grid
        self.alive = torch.ones(keys.shape, dtype=torch.bool)
        self.stop = torch.tensor(sampling.stop, dtype=torch.long)
        self.step = 0

    def sample(self, logits: Tensor) -> Tensor:
        """Draw the next token of each completion in the present grid from ``logits`` [P * G, V]; return them, [P, G]."""
        rows = self.rows.flatten()
        p = probabilities(logits, self.sampling)
        tokens, logprobs = draw(p, self.uniforms[rows, self.step])
        here = self.alive.flatten()
        written = rows[here]
        self.tokens[written, self.step], self.logprobs[written, self.step] = tokens[here], logprobs[here]
        ended = here & torch.isin(tokens, self.stop)
        self.step += 1
        self.lengths[rows[ended]] = self.step
        self.alive &= ~ended.view(self.alive.shape)
        return tokens.view(self.rows.shape)

    def done(self) -> bool:
        """Return whether nothing is left to draw."""
        return self.step == self.sampling.max_new_tokens or not bool(self.alive.any())

    def pack(self, worth: float = 0.75) -> tuple[Tensor, Tensor] | None:
        """Drop finished completions where that shrinks the grid to ``worth`` of it or less.

        Returns the prompts that stay, [P'], and the flat indices of the new grid in the old, [P', G']; a prompt with
        fewer completions left than another keeps finished ones in their places.
        """
        left = self.alive.sum(1)
        prompts, group = left.nonzero()[:, 0], int(left.max())
        if len(prompts) * group > worth * self.alive.numel():
            return None
        first = (~self.alive[prompts]).int().argsort(dim=1, stable=True)[:, :group]
        flat = prompts[:, None] * self.alive.shape[1] + first
        self.rows, self.alive = self.rows.flatten()[flat], self.alive.flatten()[flat]
        return prompts, flat

    def completions(self) -> list[list[Completion]]:
        """Return the completions, G for each prompt."""
        tokens, logprobs, lengths = self.tokens.tolist(), self.logprobs.tolist(), self.lengths.tolist()
        stop = set(self.sampling.stop)
        flat = [
            Completion(t[:n], p[:n], "stop" if t[n - 1] in stop else "length")
            for t, p, n in zip(tokens, logprobs, lengths, strict=True)
        ]
        size = self.keys.shape[1]
        return [flat[i : i + size] for i in range(0, len(flat), size)]


def _fast(model: Any, prompts: list[Sequence[int]], grid: _Grid) -> None:
    """Fill the grid with the fast decoder."""
    decoder = Decoder(model)
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    group = grid.keys.shape[1]
    logits = decoder.prefill(ids, lengths, group, grid.sampling.max_new_tokens)
    tokens = grid.sample(logits.repeat_interleave(group, 0))
    while not grid.done():
        packed = grid.pack()
        if packed is not None:
            decoder.keep(*packed)
            tokens = tokens.flatten()[packed[1]]
        tokens = grid.sample(decoder.advance(tokens))


def _plain(model: Any, prompts: list[Sequence[int]], grid: _Grid) -> None:
    """Fill the grid with the model's own forward and cache; the prompts have one length, so nothing is padded."""
    group = grid.keys.shape[1]
    output = model(input_ids=torch.tensor([list(prompt) for prompt in prompts]), use_cache=True)
    cache = output.past_key_values
    cache.batch_repeat_interleave(group)
    tokens = grid.sample(output.logits[:, -1].float().repeat_interleave(group, 0))
    while not grid.done():
        packed = grid.pack()
        if packed is not None:
            cache.batch_select_indices(packed[1].flatten())
            tokens = tokens.flatten()[packed[1]]
        output = model(input_ids=tokens.flatten()[:, None], past_key_values=cache, use_cache=True)
        tokens = grid.sample(output.logits[:, -1].float())
