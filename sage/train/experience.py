"""One generation batch: prompts of the step, completions of the current policy, verdicts, advantages.

Every draw comes from a stream named ("rollout" or "guide", step, round, row, sample) under the root of (suite, seed).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from sage import seeds
from sage.objective.advantages import ADVANTAGES, is_constant, overlong_penalty
from sage.train.data import rows_of_step
from sage.train.ranks import Ranks

if TYPE_CHECKING:
    from sage.config import Objective, Rl
    from sage.evaluate.grading import Grader
    from sage.rollout import Completion, Engine, Sampling
    from sage.tasks import Record
    from sage.train.state import Clock


@dataclass(frozen=True)
class Problems:
    """The records of the RL data set, with what grades them and their prompts as token ids."""

    grader: "Grader"
    records: list["Record"]
    prompts: list[list[int]]


@dataclass(frozen=True)
class Group:
    """The G completions of one prompt."""

    row: int
    completions: list["Completion"]
    verdicts: list[dict[str, str]]
    rewards: Tensor  # [G]
    noise: list[int]  # [G] keys of the guides' noise

    @property
    def equal(self) -> bool:
        """Whether all rewards are the same, so that the group says nothing of what is better."""
        return bool(is_constant(self.rewards[None])[0])


@dataclass(frozen=True)
class Experience:
    """N = P * G sequences, the G completions of a prompt side by side."""

    ids: list[str]  # [N] record ids
    prompts: list[list[int]]  # [N]
    completions: list["Completion"]  # [N]
    verdicts: list[dict[str, str]]  # [N] grade -> verdict
    rewards: Tensor  # [P, G]
    advantages: Tensor  # [N]
    equal: Tensor  # [P] groups whose rewards are all equal
    noise: np.ndarray  # [N] uint64 keys of the guides' noise
    rounds: int  # generation rounds that it took, 1 without refills
    before: dict[int, Tensor] | None = None  # log-probs of this rank's sequences before any update, if not the engine's

    @property
    def lengths(self) -> Tensor:
        """Completion tokens of each sequence, [N]."""
        return torch.tensor([len(completion.tokens) for completion in self.completions])


Attempt = tuple["Completion", dict[str, str]]  # with its verdicts


class Collector:
    """Makes the experience of a step with an engine that reads the policy's live weights."""

    def __init__(
        self,
        engine: "Engine",
        tokenizer: Any,
        problems: Problems,
        config: "Rl",
        objective: "Objective",
        sampling: "Sampling",
        root: int,
        ranks: Ranks | None = None,
    ) -> None:
        self.engine, self.tokenizer, self.problems = engine, tokenizer, problems
        self.config, self.objective, self.sampling, self.root = config, objective, sampling, root
        self.ranks = ranks or Ranks()

    def collect(self, step: int, clock: "Clock") -> Experience:
        """Return the experience of ``step``.

        With refills (dynamic sampling, DAPO), further rounds replace groups of equal rewards; where they do not
        suffice, such groups stay, with advantage 0.
        """
        groups, rounds = self._round(step, 0, clock), 1
        while rounds <= self.objective.refills and sum(not g.equal for g in groups) < self.config.prompts:
            groups += self._round(step, rounds, clock)
            rounds += 1
        return self._experience(sorted(groups, key=lambda group: group.equal)[: self.config.prompts], rounds)

    def _round(self, step: int, number: int, clock: "Clock") -> list[Group]:
        order = "order" if number == 0 else f"refill {number}"
        rows = rows_of_step(self.root, order, len(self.problems.records), self.config.prompts, step)
        wanted = [(row, key) for row in rows for key in self._keys("rollout", step, number, row)]
        parts = self.ranks.gather(self._attempts, self.ranks.share(wanted), clock)
        done, size = [attempt for part in parts for attempt in part], self.config.group
        return [self._group(step, number, row, done[i * size : (i + 1) * size]) for i, row in enumerate(rows)]

    def _attempts(self, wanted: Sequence[tuple[int, int]], clock: "Clock") -> list["Attempt"]:
        """Return a completion with its verdicts for each pair of a row and a key."""
        grader, records, prompts = self.problems.grader, self.problems.records, self.problems.prompts
        with clock.phase("rollout"):
            keys = np.array([[key] for _, key in wanted], np.uint64)
            groups = self.engine.generate([prompts[row] for row, _ in wanted], keys, self.sampling)
            completions = [completion for group in groups for completion in group]
        with clock.phase("grade"):
            texts = self.tokenizer.batch_decode([c.tokens for c in completions], skip_special_tokens=True)
            verdicts = grader.grade([records[row] for row, _ in wanted], texts)
        return list(zip(completions, verdicts, strict=True))

    def _keys(self, stream: str, step: int, number: int, row: int) -> list[int]:
        return [seeds.stream(self.root, stream, step, number, row, i) for i in range(self.config.group)]

    def _group(self, step: int, number: int, row: int, attempts: Sequence["Attempt"]) -> Group:
        completions, verdicts = [completion for completion, _ in attempts], [verdict for _, verdict in attempts]
        rewarded = self.problems.grader.task.GRADES[0]
        rewards = torch.tensor([float(verdict[rewarded] == "correct") for verdict in verdicts])
        if self.objective.overlong_buffer:
            lengths = torch.tensor([len(c.tokens) for c in completions])
            rewards = rewards + overlong_penalty(lengths, self.config.max_new_tokens, self.objective.overlong_buffer)
        return Group(row, completions, verdicts, rewards, self._keys("guide", step, number, row))

    def _experience(self, groups: list[Group], rounds: int) -> Experience:
        rewards = torch.stack([group.rewards for group in groups])
        repeated = [group.row for group in groups for _ in group.completions]
        return Experience(
            ids=[self.problems.records[row].id for row in repeated],
            prompts=[self.problems.prompts[row] for row in repeated],
            completions=[completion for group in groups for completion in group.completions],
            verdicts=[verdict for group in groups for verdict in group.verdicts],
            rewards=rewards,
            advantages=ADVANTAGES[self.objective.advantage](rewards).flatten(),
            equal=is_constant(rewards),
            noise=np.array([key for group in groups for key in group.noise], np.uint64),
            rounds=rounds,
        )
