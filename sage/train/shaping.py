"""The guide of a micro-batch: the strengths of this iteration, the policy's signals, the noise of each sequence."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from sage import seeds
from sage.objective import guides
from sage.policy.forward import Scores

if TYPE_CHECKING:
    from sage.config import Guides


class Shaper:
    """Computes q_t of the guide ``name`` over a run of ``iterations`` generation batches."""

    def __init__(self, name: str, config: "Guides", iterations: int) -> None:
        self.name, self.config, self.iterations = name, config, iterations

    def guide(self, scores: Scores, mask: Tensor, noise: np.ndarray, iteration: int) -> Tensor:
        """Return q_t, [B, C], float32, clamped and 1 outside the mask.

        ``scores`` are the policy's before the iteration's updates, ``noise`` the [B] uint64 keys of the sequences.
        """
        raw = getattr(self, f"_{self.name}")(scores, mask, noise, iteration)
        return guides.clamped(raw, mask, self.config.q_min, self.config.q_max)

    def _branch(self, scores: Scores, mask: Tensor, noise: np.ndarray, iteration: int) -> Tensor:
        return guides.branch(scores.entropy, self.config.branch.gamma, self.config.branch.tau)

    def _random(self, scores: Scores, mask: Tensor, noise: np.ndarray, iteration: int) -> Tensor:
        strength = self.config.random
        epsilon, sigma = self._annealed(strength.epsilon, iteration), self._annealed(strength.sigma, iteration)
        return guides.random(_uniform(noise, mask, 0).float(), _normal(noise, mask), epsilon, sigma)

    def _token(self, scores: Scores, mask: Tensor, noise: np.ndarray, iteration: int) -> Tensor:
        strength = self.config.token
        alpha, sigma = self._annealed(strength.alpha, iteration), self._annealed(strength.sigma, iteration)
        return guides.token(scores.logp, mask, _normal(noise, mask), alpha, sigma)

    def _annealed(self, bounds: list[float], iteration: int) -> float:
        upper, lower = bounds
        cycles, decay = min(self.config.cycles, self.iterations), self.config.decay
        return guides.annealed((upper, lower), iteration, self.iterations, cycles, decay)


def _uniform(keys: np.ndarray, mask: Tensor, which: int) -> Tensor:
    """Return uniforms, [B, C] float64; each token has two, ``which`` is 0 or 1."""
    positions = 2 * np.arange(mask.shape[1], dtype=np.uint64)[None, :] + np.uint64(which)
    return torch.from_numpy(seeds.uniform(keys[:, None], positions)).to(mask.device)


def _normal(keys: np.ndarray, mask: Tensor) -> Tensor:
    """Return standard normals, [B, C] float32, by the inverse of their distribution."""
    return torch.special.ndtri(_uniform(keys, mask, 1)).float()
