"""The optimiser steps that follow a generation batch.

The gradient of a step is sum_i w_i grad sum_t loss_it with weights fixed before any micro-batch is cut, so neither the
token budget nor the order changes it but for float rounding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sage.objective.losses import WEIGHT_CAP, Loss, Terms, Tokens, token_loss, truncated_weights
from sage.objective.numerics import bounded_exp
from sage.objective.reducers import sequence_weights
from sage.policy.forward import Batch, Head, Scores, collate, head_of, score, target_logp
from sage.train import optim
from sage.train.experience import Experience
from sage.train.ranks import Ranks
from sage.train.shaping import Shaper

if TYPE_CHECKING:
    from sage.config import Guides, Objective, Rl, Rollout
    from sage.train.state import Clock


def micro_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Cut sequences into micro-batches of at most ``budget`` padded tokens, similar lengths together.

    A sequence longer than the budget is a micro-batch of its own.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    batches: list[list[int]] = []
    for i in order:
        if batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= budget:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


QUANTILES = (0, 0.01, 0.5, 0.99, 1)


@dataclass
class Statistics:
    """What a step's micro-batches add up to, for the log."""

    sums: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, list[Tensor]] = field(default_factory=dict)

    def add(self, **values: Tensor) -> None:
        """Add scalars to their sums."""
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value.detach())

    def keep(self, mask: Tensor, **values: Tensor) -> None:
        """Keep the unmasked token values, for means, extremes and quantiles."""
        for name, value in values.items():
            self.tokens.setdefault(name, []).append(value.detach()[mask])

    @classmethod
    def together(cls, parts: Sequence["Statistics"]) -> "Statistics":
        """Return what the ranks have summed and kept as one."""
        whole = cls()
        for part in parts:
            whole.sums |= {name: whole.sums.get(name, 0.0) + value for name, value in part.sums.items()}
            for name, tokens in part.tokens.items():
                whole.tokens.setdefault(name, []).extend(tokens)
        return whole

    def all(self, name: str, missing: float = 0.0) -> Tensor:
        """Return every token value kept under ``name``; one ``missing`` where there is none."""
        values = torch.cat(self.tokens[name]) if name in self.tokens else torch.zeros(0)
        return values if len(values) else torch.full((1,), missing)

    def summary(self) -> dict[str, float]:
        """Return the columns of the step log that come from the update."""
        entropy, guide, mismatch = self.all("entropy"), self.all("guide", 1.0), self.all("mismatch")
        return {
            **{name: self.sums[name] for name in ("loss", "kl")},
            "entropy": float(entropy.mean()),
            "guide_mean": float(guide.mean()),
            "guide_min": float(guide.min()),
            "guide_max": float(guide.max()),
            "clip_fraction": self.sums["clipped"] / len(entropy),
            "bounded": self.sums["bound"],
            "mismatch_median": float(mismatch.median()),
            "mismatch_max": float(mismatch.max()),
            **(self._of_another_engine() if "log_weight" in self.tokens else {}),
        }

    def _of_another_engine(self) -> dict[str, float]:
        """Return quantiles of log(pi_old / mu) and of the importance weight, before it is truncated."""
        difference = self.all("log_weight").float()
        weight = bounded_exp(difference)
        return {
            **{f"log_weight_q{q:g}": float(difference.quantile(q)) for q in QUANTILES},
            **{f"weight_q{q:g}": float(weight.quantile(q)) for q in QUANTILES},
            "truncated_weights": float((weight > WEIGHT_CAP).float().mean()),
        }


class Updater:
    """Holds what an update needs: policy, anchor, optimiser and the objective's configuration."""

    def __init__(
        self,
        policy: Any,
        anchor: Any,
        optimiser: Any,
        objective: "Objective",
        guides: "Guides",
        config: "Rl",
        rollout: "Rollout | None" = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.policy, self.anchor, self.optimiser = policy, anchor, optimiser
        self.objective, self.config, self.ranks = objective, config, ranks or Ranks()
        #: Whether another program sampled, and whether its distribution is corrected.
        self.foreign = rollout is not None and rollout.engine != "transformers"
        self.corrects = rollout is not None and rollout.correction == "tis"
        self.shaper = Shaper(objective.guide, guides, config.steps) if objective.guide else None
        kl = objective.kl
        self.terms = Terms(
            clip_low=objective.clip[0],
            clip_high=objective.clip[1],
            estimator=kl.estimator if kl else None,
            beta=kl.beta * kl.scale if kl else 0.0,
            entropy_bonus=objective.entropy_bonus,
        )

    def run(self, experience: Experience, step: int, clock: "Clock") -> dict[str, float]:
        """Make the step's ``updates`` optimiser steps; return what they log.

        Raises :class:`sage.train.optim.NonFinite`, with the weights unchanged by the failing update.
        """
        statistics, norms, updates = Statistics(), [], self.config.updates
        guides: dict[int, Tensor] = {}
        if updates > 1 and (self.shaper or self._needs_its_own()):
            experience, guides = self._before(experience, step, clock)
        for update in range(updates):
            rows = self._rows(experience, update)
            lr = optim.learning_rate(self.config.optimiser, step * updates + update, self.config.steps * updates)
            self.ranks.gather(self.accumulate, experience, rows, step, guides, statistics, clock)
            with clock.phase("update"):
                self.ranks.add_gradients(p for p in self.policy.parameters() if p.requires_grad)
                applied = (self.optimiser, self.config.optimiser, lr, f"step {step}")
                norms.append(self.ranks.agree(optim.apply_update, *applied))
        statistics = Statistics.together(self.ranks.gather(lambda: statistics))
        return {**statistics.summary(), "grad_norm": max(norms), "lr": lr}

    def _rows(self, experience: Experience, update: int) -> range:
        """Return the sequences of an optimiser step."""
        size = len(experience.ids) // self.config.updates
        return range(update * size, (update + 1) * size)

    def _needs_its_own(self) -> bool:
        """Return whether the engine's log-probs would make a ratio that does not begin at 1."""
        return self.config.min_p > 0 or self.foreign or self.corrects

    def accumulate(
        self,
        experience: Experience,
        rows: Sequence[int],
        step: int,
        guides: dict[int, Tensor],
        statistics: Statistics,
        clock: "Clock",
    ) -> None:
        """Add this rank's part of the gradient of one optimiser step over the sequences ``rows`` to the parameters'."""
        options = {"local_batch": self.config.local_batch, "max_tokens": self.config.max_new_tokens}
        weights = sequence_weights(self.objective.reducer, experience.lengths[rows[0] : rows[-1] + 1], **options)
        for chosen in self._cut(experience, self.ranks.share(rows)):
            batch = self._collate(experience, chosen)
            with clock.phase("anchor"):
                anchor = self._anchor(batch)
            with clock.phase("update"):
                share = weights[torch.tensor(chosen) - rows[0]]
                loss = self._loss(experience, batch, chosen, share, anchor, guides, step, statistics)
                if not loss.total.isfinite():
                    records = ", ".join(sorted({experience.ids[row] for row in chosen})[:4])
                    cause = f"policy term {float(loss.policy)}, divergence {float(loss.divergence)}"
                    raise optim.NonFinite(f"step {step}, records {records}: the loss is not finite ({cause})")
                loss.total.backward()

    def _loss(
        self,
        experience: Experience,
        batch: Batch,
        rows: list[int],
        weights: Tensor,
        anchor: Tensor | Head | None,
        guides: dict[int, Tensor],
        step: int,
        statistics: Statistics,
    ) -> Loss:
        exact = anchor if isinstance(anchor, tuple) else None
        entropy_grad = self.terms.entropy_bonus > 0
        scores = score(self.policy, batch, self.config.temperature, anchor=exact, entropy_grad=entropy_grad)
        sampled = _pad([torch.tensor(experience.completions[row].logprobs) for row in rows], batch)
        before = _pad([experience.before[row] for row in rows], batch) if experience.before else sampled
        # With one update the policy is the one that sampled: its own log-probs make the ratio exactly 1.
        logp_old = scores.logp.detach() if self.config.updates == 1 else before
        guide = (
            _pad([guides[row] for row in rows], batch) if guides else self._guide(scores, batch, experience, rows, step)
        )
        tokens = Tokens(
            mask=batch.mask,
            logp_old=logp_old,
            advantages=experience.advantages[rows].to(batch.mask.device),
            weights=weights.to(batch.mask.device),
            kl_weights=(weights * self._keeps_divergence(experience, rows)).to(batch.mask.device),
            logp_anchor=batch.padded(anchor) if isinstance(anchor, Tensor) else None,
            guide=guide,
            correction=truncated_weights(logp_old, sampled, batch.mask) if self.corrects else None,
        )
        loss = token_loss(scores.logp, tokens, self.terms, forward=scores.forward, entropy=scores.entropy)
        statistics.add(loss=loss.total, kl=loss.divergence, clipped=loss.clipped, bound=loss.bound)
        statistics.keep(batch.mask, entropy=scores.entropy, mismatch=(scores.logp.detach() - before).abs())
        if self.foreign or self.corrects:
            statistics.keep(batch.mask & sampled.isfinite(), log_weight=logp_old - sampled)
        if guide is not None:
            statistics.keep(batch.mask, guide=guide)
        return loss

    def _keeps_divergence(self, experience: Experience, rows: list[int]) -> Tensor:
        """Return 1 for the sequences whose divergence counts, [B]: all, or those of groups with unequal rewards."""
        if self.objective.kl is None or self.objective.kl.on_equal_rewards:
            return torch.ones(len(rows), dtype=torch.double)
        return (~experience.equal.repeat_interleave(experience.rewards.shape[1])[rows]).double()

    def _guide(self, scores: Scores, batch: Batch, experience: Experience, rows: list[int], step: int) -> Tensor | None:
        if self.shaper is None:
            return None
        return self.shaper.guide(scores, batch.mask, experience.noise[rows], step)

    def _before(self, experience: Experience, step: int, clock: "Clock") -> tuple[Experience, dict[int, Tensor]]:
        """Return what several updates need of the policy before the first of them, from one forward.

        Guides stay fixed over an iteration's updates: q_t of each sequence. And where the engine's log-probs would make a
        ratio that does not begin at 1, because min-p has cut its distribution or another program computed them: the policy's.
        """
        guides, logprobs = dict[int, Tensor](), dict[int, Tensor]()
        updates = range(self.config.updates)
        mine = [row for update in updates for row in self.ranks.share(self._rows(experience, update))]
        with clock.phase("update"), torch.no_grad():
            for rows in self._cut(experience, mine):
                batch = self._collate(experience, rows)
                scores = score(self.policy, batch, self.config.temperature)
                guide = self._guide(scores, batch, experience, rows, step)
                for i, row in enumerate(rows):
                    real = batch.mask[i]
                    logprobs[row] = scores.logp[i][real]
                    if guide is not None:
                        guides[row] = guide[i][real]
        return (replace(experience, before=logprobs) if self._needs_its_own() else experience), guides

    def _anchor(self, batch: Batch) -> Tensor | Head | None:
        """Return the anchor's log-probs of the tokens, [M], or its head where its whole distributions are needed."""
        if self.terms.estimator is None:
            return None
        with torch.no_grad():
            head = head_of(self.anchor, batch)
        return (
            head if self.terms.estimator == "forward_kl" else target_logp(head, batch.targets, self.config.temperature)
        )

    def _collate(self, experience: Experience, rows: list[int]) -> Batch:
        completions = [experience.completions[row].tokens for row in rows]
        prompts = [experience.prompts[row] for row in rows]
        return collate(prompts, completions, self.policy.device, self.config.share_prompts)

    def _cut(self, experience: Experience, rows: Sequence[int]) -> list[list[int]]:
        totals = [len(experience.prompts[row]) + len(experience.completions[row].tokens) for row in rows]
        return [[rows[i] for i in batch] for batch in micro_batches(totals, self.config.micro_batch_tokens)]


def _pad(values: list[Tensor], batch: Batch) -> Tensor:
    """Return ragged per-token values as [B, C], 0 outside the mask."""
    return batch.padded(torch.cat(values))
