"""The policy's weights handed to an engine that has its own: before every generation batch, and checked.

In: the policy, or its adapter. Out: an engine that samples from it; weights lie in memory-backed storage while they are read.
"""

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sage.errors import UserError
from sage.policy import adapter as adapters
from sage.policy.forward import collate, score
from sage.rollout import Sampling
from sage.train.ranks import Ranks

if TYPE_CHECKING:
    from sage.rollout.vllm import VllmEngine

MEMORY = Path("/dev/shm")
PREFIX = "sage-weights-"
PROBE = Sampling(max_new_tokens=8, stop=())  # at temperature 1 and uncut: a difference is one of weights or arithmetic
PROBED = np.arange(4, dtype=np.uint64).reshape(2, 2)  # two completions of two prompts


class Sync:
    """Hands the weights of ``policy`` to ``engine``: those of ``adapter`` where there is one, else all.

    ``prompts``: some that are probed; ``tolerance``: of the log-probs that engine and trainer give to the same tokens.
    Of several ``ranks``, each with an engine, the first writes the weights for all.
    """

    def __init__(
        self,
        engine: "VllmEngine",
        policy: Any,
        adapter: Any,
        prompts: Sequence[Sequence[int]],
        tolerance: float,
        ranks: Ranks | None = None,
    ) -> None:
        self.engine, self.policy, self.adapter, self.tolerance = engine, policy, adapter, tolerance
        self.prompts, self.ranks = list(prompts[: len(PROBED)]), ranks or Ranks()
        sweep()

    def run(self, step: int) -> float:
        """Hand over the weights; return the largest difference of log-probs that the probe sees.

        Raises :class:`UserError` where it is more than the tolerance.
        """
        memory = MEMORY if MEMORY.is_dir() else None
        with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-", dir=memory) as own:
            folder = self.ranks.gather(self._write, Path(own))[0]
            differences = self.ranks.gather(self._take, folder, step)
        return max(differences)

    def _write(self, folder: Path) -> Path:
        if self.ranks.first and self.adapter is None:
            self.policy.save_pretrained(folder)
        elif self.ranks.first:
            adapters.save(folder, self.adapter)
        return folder

    def _take(self, folder: Path, step: int) -> float:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # what the update has left unused; the engine needs it
        self.engine.wake()
        if self.adapter is None:
            self.engine.load_weights(folder)
        else:
            self.engine.load_adapter(folder)
        difference = self.probe()
        if not difference <= self.tolerance:
            raise UserError(
                f"step {step}: log-probs of vLLM and trainer differ by {difference:.3g}, more than rollout.tolerance"
                f" ({self.tolerance:g}): vLLM has other weights, or the tolerance is too small for this dtype"
            )
        return difference

    def probe(self) -> float:
        """Return the largest difference of log-probs over a few tokens that the engine samples."""
        groups = self.engine.generate(self.prompts, PROBED[: len(self.prompts)], PROBE)
        completions = [completion for group in groups for completion in group]
        prompts = [prompt for prompt, group in zip(self.prompts, groups, strict=True) for _ in group]
        batch = collate(prompts, [completion.tokens for completion in completions], self.policy.device)
        theirs = batch.padded(torch.tensor([p for completion in completions for p in completion.logprobs]))
        with torch.no_grad():
            ours = score(self.policy, batch, PROBE.temperature).logp
        return float((ours - theirs)[batch.mask].abs().max())


def sweep() -> None:
    """Remove the weights of trainers that were killed while they were handing them over."""
    for folder in MEMORY.glob(f"{PREFIX}*"):
        if not Path("/proc", folder.name.removeprefix(PREFIX).split("-")[0]).exists():
            shutil.rmtree(folder, ignore_errors=True)
