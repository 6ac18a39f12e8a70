"""One GRPO iteration beside one of huggingface TRL's GRPOTrainer: sampling, grading, scoring, update.

TRL's trainer runs its own `train()` with transformers' generation; each of its steps is timed, and before each of them one
of ours is. Model, batch, lengths, rewards, divergence and optimiser are the same, on one thread. TRL does not recompute
activations here, so it is faster than by default.
"""

import time
from typing import Any

from transformers import TrainerCallback

from benchmarks.cases import Case, Ours, laptop, scratch, smollm2, trl_trainer
from benchmarks.compare import Result, faster, seconds

NOTES: dict[str, str] = {}


class Beside(TrainerCallback):
    """Runs ``ours`` before each step of TRL's, and keeps the seconds of both."""

    def __init__(self, ours: Ours) -> None:
        self.ours, self.pairs = ours, list[tuple[float, float]]()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.mine, self.started = seconds(self.ours.iterate), time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.pairs.append((self.mine, time.perf_counter() - self.started))


def pairs(case: Case, rounds: int) -> list[tuple[float, float]]:
    """Return the seconds (ours, TRL's) of ``rounds`` iterations, after one that is not counted."""
    beside = Beside(Ours(case))
    with scratch() as folder:
        trainer = trl_trainer(case, rounds + 1, folder)
        trainer.add_callback(beside)
        trainer.train()
    return beside.pairs[1:]


def results(small: bool = False) -> list[Result]:
    """Return the comparisons."""
    rounds = 2 if small else 9
    cases = [
        ("GRPO iteration, laptop model, 256 completions of up to 96 tokens", laptop(small, ends=True), rounds, ">= 3"),
        ("GRPO iteration, laptop model, 256 completions of exactly 27 tokens", laptop(small), rounds, ">= 3"),
        ("the same, each completion read with its prompt", laptop(small).with_rl(share_prompts=False), rounds, None),
        ("GRPO iteration, SmolLM2-135M with LoRA, 8 x 64 tokens", smollm2(small), min(rounds, 4), ">= 1.5"),
    ]
    return [faster(name, pairs(case, n), target, NOTES.get(name, "")) for name, case, n, target in cases]
