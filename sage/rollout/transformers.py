"""An engine on transformers models, made for CPUs: it reads the model's live weights at each call.

Models of the Llama and Qwen2 kind go through :class:`sage.rollout.decoder.Decoder`; any other goes through its own cached
forward. Either way each draw has its own stream, and finished completions leave the batch.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from sage import seeds
from sage.errors import UserError
from sage.rollout import Completion, Ending, Sampling, check
from sage.rollout.decoder import Decoder
from sage.rollout.layers import supports
from sage.rollout.sampling import draw, masses

PACK_AT = 0.9  # the batch is packed when no more than this share of its rows is unfinished
MASSES_AT_ONCE = 1 << 22  # float64 numbers: bounds the memory of large vocabularies


class Stepper(Protocol):
    """The forward of one batch of rows, a token at a time."""

    def start(self, prompts: Sequence[Sequence[int]], owners: Tensor) -> Tensor:
        """Read distinct prompts; return the logits of the first token of each row, which belongs to prompt ``owners``."""
        ...

    def advance(self, tokens: Tensor) -> Tensor:
        """Read one token of each row; return the logits of the next."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Go on with ``rows`` only."""
        ...


class TransformersEngine:
    """Samples from ``model``, at most ``batch_size`` completions at once."""

    name = "transformers"

    def __init__(self, model: Any, batch_size: int = 512) -> None:
        if batch_size < 1:
            raise UserError(f"batch_size: {batch_size} is not positive; ask for at least one completion at once")
        self.model, self.batch_size = model, batch_size

    @torch.inference_mode()
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        keys: np.ndarray,
        sampling: Sampling,
        progress: Callable[[int], object] | None = None,
    ) -> list[list[Completion]]:
        """Return G completions for each of P prompts; see :class:`sage.rollout.Engine`.

        Raises UserError for a prompt that is empty or leaves no room for ``max_new_tokens`` positions.
        """
        limit = getattr(self.model.config.get_text_config(), "max_position_embeddings", math.inf)
        check(prompts, keys, sampling, limit)
        with _evaluating(self.model):
            done = self._generate([tuple(prompt) for prompt in prompts], keys.flatten(), sampling, progress)
        group = keys.shape[1]
        return [done[i : i + group] for i in range(0, len(done), group)] if group else [[] for _ in prompts]

    def _generate(
        self,
        prompts: list[tuple[int, ...]],
        keys: np.ndarray,
        sampling: Sampling,
        progress: Callable[[int], object] | None,
    ) -> list[Completion]:
        """Return the completions of flat ``keys``, which hold equally many for each prompt."""
        fast = supports(self.model)
        longest = max(map(len, prompts), default=0)
        stepper = Decoder(self.model, longest + sampling.max_new_tokens) if fast else _Plain(self.model)
        group, completions = len(keys) // max(1, len(prompts)), np.empty(len(keys), object)
        for jobs in self._batches(prompts, group, fast):
            mine = [prompts[job // group] for job in jobs]
            completions[jobs] = _decode(stepper, mine, _Draws(keys[jobs], sampling), progress or (lambda count: None))
        return completions.tolist()

    def _batches(self, prompts: list[tuple[int, ...]], group: int, mixed: bool) -> Iterator[np.ndarray]:
        """Yield indices of completions: similar prompts together, and only of one length where not ``mixed``."""
        order = sorted(range(len(prompts)), key=lambda i: (len(prompts[i]), prompts[i]))
        jobs = (np.array(order, int)[:, None] * group + np.arange(group)).flatten()
        lengths = np.repeat([0 if mixed else len(prompts[i]) for i in order], group)
        for part in np.split(jobs, np.flatnonzero(np.diff(lengths)) + 1):
            if len(part):
                yield from np.array_split(part, math.ceil(len(part) / self.batch_size))


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Switch dropout and the like off: they are no part of the policy."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _decode(
    stepper: Stepper, prompts: list[tuple[int, ...]], draws: "_Draws", progress: Callable[[int], object]
) -> list[Completion]:
    """Return one completion for each of ``prompts``; tell ``progress`` how many have left the batch."""
    distinct = {prompt: i for i, prompt in enumerate(dict.fromkeys(prompts))}
    owners = torch.tensor([distinct[prompt] for prompt in prompts])
    tokens = draws.sample(stepper.start(list(distinct), owners))
    while not draws.done():
        rows = draws.pack()
        if rows is not None:
            progress(len(tokens) - len(rows))
            stepper.keep(rows)
            tokens = tokens[rows]
        tokens = draws.sample(stepper.advance(tokens))
    progress(len(tokens))
    return draws.completions()


class _Draws:
    """The draws of one batch: which completion stands in which row, which are unfinished, and all that was drawn."""

    def __init__(self, keys: np.ndarray, sampling: Sampling) -> None:
        self.sampling, self.room, self.step = sampling, sampling.max_new_tokens, 0
        self.uniforms = torch.from_numpy(seeds.uniform(keys[None, :], np.arange(self.room)[:, None]))
        self.tokens = torch.zeros((self.room, len(keys)), dtype=torch.long)
        self.logprobs = torch.zeros((self.room, len(keys)), dtype=torch.double)
        self.lengths = torch.full((len(keys),), self.room)
        self.rows = torch.arange(len(keys))
        self.alive = torch.ones(len(keys), dtype=torch.bool)
        self.stopped = torch.zeros(len(keys), dtype=torch.bool)
        self.stop = torch.tensor(sampling.stop, dtype=torch.long)

    def sample(self, logits: Tensor) -> Tensor:
        """Draw the next token of each row from ``logits`` [N, V]; return them, [N].

        A finished row that is still there goes on; nobody reads what it draws.
        """
        uniforms = self.uniforms[self.step].index_select(0, self.rows)
        size = max(1, MASSES_AT_ONCE // logits.shape[1])
        parts = zip(logits.float().split(size), uniforms.split(size), strict=True)
        drawn = [draw(masses(part, self.sampling), u) for part, u in parts]
        tokens, logprobs = (torch.cat(x) if len(x) > 1 else x[0] for x in zip(*drawn, strict=True))
        self.tokens[self.step].index_copy_(0, self.rows, tokens)
        self.logprobs[self.step].index_copy_(0, self.rows, logprobs)
        self.step += 1
        ended = torch.isin(tokens, self.stop).logical_and_(self.alive)
        if self.sampling.ending:
            ended |= self._said(self.sampling.ending)
        self.lengths[self.rows[ended]] = self.step
        self.stopped[self.rows[ended]] = True
        self.alive ^= ended
        return tokens

    def _said(self, ending: Ending) -> Tensor:
        """Return which unfinished rows end with the text; as many tokens as it has characters are enough to see it."""
        last = self.tokens[max(0, self.step - len(ending.text)) : self.step].index_select(1, self.rows)
        rows = zip(last.t().tolist(), self.alive.tolist(), strict=True)
        return torch.tensor([alive and ending.said(tokens) for tokens, alive in rows], dtype=torch.bool)

    def done(self) -> bool:
        """Return whether nothing is left to draw."""
        return self.step == self.room or not bool(self.alive.any())

    def pack(self) -> Tensor | None:
        """Let finished rows go where there are many: unfinished ones from the end take the places of finished ones.

        Returns which row stands in each place now, or None where nothing was changed.
        """
        left = int(self.alive.sum())
        if left > PACK_AT * len(self.rows):
            return None
        rows = torch.arange(left)
        rows[~self.alive[:left]] = self.alive[left:].nonzero()[:, 0] + left
        self.rows, self.alive = self.rows[rows], torch.ones(left, dtype=torch.bool)
        return rows

    def completions(self) -> list[Completion]:
        """Return the completions in the order of the keys."""
        lengths, stopped = self.lengths.tolist(), self.stopped.tolist()
        columns = zip(self.tokens.t().tolist(), self.logprobs.t().tolist(), lengths, stopped, strict=True)
        return [Completion(t[:n], p[:n], "stop" if ended else "length") for t, p, n, ended in columns]


class _Plain:
    """Any model's own forward and cache; the prompts of a batch have one length, so that nothing is padded."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.cache: Any = None
        known = inspect.signature(model.forward).parameters
        self.options = {"logits_to_keep": 1} if "logits_to_keep" in known else {}

    def start(self, prompts: Sequence[Sequence[int]], owners: Tensor) -> Tensor:
        """See :class:`Stepper`."""
        logits = self._forward(torch.tensor(prompts), None)
        self.keep(owners)
        return logits[owners]

    def advance(self, tokens: Tensor) -> Tensor:
        """See :class:`Stepper`."""
        return self._forward(tokens[:, None], self.cache)

    def keep(self, rows: Tensor) -> None:
        """See :class:`Stepper`."""
        self.cache.batch_select_indices(rows.to(self.model.device))

    def _forward(self, ids: Tensor, cache: Any) -> Tensor:
        ids = ids.to(self.model.device)
        output = self.model(input_ids=ids, past_key_values=cache, use_cache=True, **self.options)
        self.cache = getattr(output, "past_key_values", None)
        if self.cache is None:
            raise UserError(
                f"{type(self.model).__name__} keeps no keys and values: the transformers engine cannot decode it"
            )
        return output.logits[:, -1].cpu()
