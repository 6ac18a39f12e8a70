"""The loop of reinforcement learning: generate, grade, update, log, save; and the publication of its result."""

import copy
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sage import manifest, paths, seeds, tasks
from sage.evaluate.grading import Grader
from sage.policy import adapter as adapters
from sage.policy import model as models
from sage.policy.adapter import AdapterOff
from sage.policy.tokens import encode_prompts, ending, fitting
from sage.progress import bar
from sage.rollout import Sampling
from sage.rollout.transformers import TransformersEngine
from sage.train import optim
from sage.train.experience import Collector, Experience, Problems
from sage.train.key import training_key
from sage.train.ranks import Ranks, joined
from sage.train.state import Clock, load_state, save_state, write_table
from sage.train.sync import Sync
from sage.train.update import Updater
from sage.train.watch import Watch

if TYPE_CHECKING:
    from sage.config import Suite


class Run:
    """One training run of (suite, method, seed), with its unfinished work in ``work``, where it belongs unless told."""

    def __init__(self, suite: "Suite", method: str, seed: int, ranks: Ranks, work: Path | None = None) -> None:
        self.suite, self.method, self.seed, self.started = suite, method, suite.check_seed(seed), time.time()
        self.config, self.objective, self.ranks = suite.rl, suite.objective(method), ranks
        torch.set_num_threads(self.config.threads)
        self.final = paths.checkpoint(suite.name, method, seed)
        self.work = work or paths.work(self.final)
        ranks.gather(self._find)
        ranks.gather(self._load)

    def _find(self) -> None:
        """Check the inputs, which the first rank does for all, and drop work of other ones before any rank reads it."""
        if not self.ranks.first:
            return
        self.base = manifest.require(paths.checkpoint(self.suite.name, "base", 0))
        self.data = manifest.require(paths.processed(self.suite.name, self.config.dataset))
        self.key = training_key(self.suite, self.method)
        if self.work == paths.work(self.final):
            manifest.work_folder(self.final, self.key)

    def _load(self) -> None:
        folder = paths.checkpoint(self.suite.name, "base", 0) / "model"
        self.tokenizer, self.policy = models.load_tokenizer(folder), models.load_model(folder)
        root = seeds.root(self.suite.name, self.seed)
        self.adapter = adapters.add(self.policy, self.suite.adapter, root) if self.suite.adapter else None
        self.policy.to(models.device())  # after the adapter, whose draws then are the same on every machine
        self.anchor = self._anchor()
        self.optimiser = optim.make_optimiser(self.policy.parameters(), self.config.optimiser)
        self.frozen = adapters.frozen_hash(self.policy) if self.adapter else ""
        self.state = load_state(self.work, self.policy, self.optimiser)
        dataset = paths.processed(self.suite.name, self.config.dataset)
        records = tasks.read_records(dataset / "records.jsonl")
        task = tasks.load(self.suite.dataset(self.config.dataset).task)
        prompts = encode_prompts(self.tokenizer, [task.prompt(record) for record in records])
        rows = fitting(prompts, self.suite.pretrained, str(dataset), skip=True)
        self.skipped = len(records) - len(rows)
        problems = Problems(Grader(task), [records[row] for row in rows], [prompts[row] for row in rows])
        self.engine, self.sync = self._engine(folder, problems)
        sampling = Sampling(
            self.config.max_new_tokens,
            (self.tokenizer.eos_token_id,),
            temperature=self.config.temperature,
            min_p=self.config.min_p,
            ending=ending(self.tokenizer, self.suite.pretrained),
        )
        self.collector = Collector(
            self.engine, self.tokenizer, problems, self.config, self.objective, sampling, root, self.ranks
        )
        parts = (self.policy, self.anchor, self.optimiser, self.objective)
        self.updater = Updater(*parts, self.suite.guides, self.config, self.suite.rollout, self.ranks)

    def _engine(self, folder: Path, problems: Problems) -> tuple[Any, Sync | None]:
        """Return the engine, and what hands it the policy's weights where it does not read them by itself."""
        rollout, lora = self.suite.rollout, self.suite.adapter
        if rollout.engine == "transformers":
            return TransformersEngine(self.policy), None
        from sage.rollout.vllm import Settings, VllmEngine

        sequences, cache = self.config.prompts * self.config.group, int(rollout.cache_gib * 2**30)
        rank = lora.r if lora else None
        engine = VllmEngine(Settings(folder, sequences, cache, rank, rollout.devices, self.config.threads, sleeps=True))
        return engine, Sync(engine, self.policy, self.adapter, problems.prompts, rollout.tolerance, self.ranks)

    def _anchor(self) -> Any:
        """Return the model after SFT, which nothing ever changes; a method without a divergence needs none."""
        if not self.objective.kl:
            return None
        return AdapterOff(self.adapter) if self.adapter else copy.deepcopy(self.policy).requires_grad_(False)

    def train(self) -> None:
        """Run all steps that are not done yet, then publish."""
        steps, label = range(self.state.step, self.config.steps), f"{self.method} seed {self.seed}"
        options = {"initial": self.state.step, "total": self.config.steps, "disable": not self.ranks.first}
        progress = bar(steps, label, **options)
        with Watch(self.work, self.state.step, self.config.steps) as watch:
            for step in progress:
                self.step(step)
                reward = self.state.log[-1]["reward"]
                progress.set_postfix(reward=f"{reward:.3f}", refresh=False)
                stopping = any(self.ranks.gather(lambda: watch.asked))
                saving = stopping or self.state.step % self.config.save_every == 0
                if saving:
                    self.ranks.check_weights(p for p in self.policy.parameters() if p.requires_grad)
                self.ranks.gather(self._keep, saving)
                if self.ranks.first:
                    watch.tell(self.state.step, reward=reward)
                if stopping:
                    self.ranks.gather(watch.end, self.state.step)
            self.ranks.gather(self._publish)

    def step(self, step: int) -> None:
        """Make one step and log it."""
        clock = Clock(*(["sync"] if self.sync else []), "rollout", "grade", "anchor", "update")
        probed = {}
        if self.sync:
            with clock.phase("sync"):
                probed = {"probe": self.sync.run(step)}
        experience = self.collector.collect(step, clock)
        if self.sync:
            self.engine.sleep()
        row = {"step": step, **_summary(experience), **probed, **self.updater.run(experience, step, clock)}
        self.state.log.append(row)
        self.state.seconds.append(clock.row(step))
        self.state.step += 1

    def _keep(self, saving: bool) -> None:
        """Write what is kept of this step: the policy where the suite says so, the state where ``saving``."""
        if not self.ranks.first:
            return
        # Before the state: a run that goes on after this step never sees it again.
        if self.state.step in self.config.keep_steps:
            self._save(self.work / f"model-step{self.state.step}")
        if saving:
            save_state(self.work, self.state, self.policy, self.optimiser)

    def _save(self, folder: Path) -> None:
        """Write the policy: a whole model, or its adapter, which belongs to the base model."""
        if self.adapter is None:
            models.save(folder, self.policy, self.tokenizer)
            return
        adapters.save(folder, self.adapter)
        self.tokenizer.save_pretrained(folder)

    def _publish(self) -> None:
        if not self.ranks.first:
            return
        self._save(self.work / "model")
        log = paths.training_log(self.suite.name, self.method, self.seed)
        write_table(log, self.state.log)
        write_table(log.with_suffix(".seconds.csv"), self.state.seconds)
        seconds = sum(row["total"] for row in self.state.seconds)
        manifest.write_run(
            log.with_suffix(".run.json"), self.started, seconds=round(seconds, 1), threads=self.config.threads
        )
        kept = [f"model-step{step}" for step in self.config.keep_steps]
        manifest.publish(
            self.work,
            self.final,
            ["model", *kept],
            self._manifest(log),
            ["torch", "transformers", "tokenizers", *(["peft"] if self.adapter else []), *self._engine_package()],
        )

    def _engine_package(self) -> list[str]:
        if not self.sync:
            return []
        from sage.rollout.vllm import installed

        return [installed()]

    def _manifest(self, log: Path) -> dict[str, Any]:
        kl = self.objective.kl
        anchor = manifest.payload_hash(self.base, "model/")
        return {
            "stage": "rl",
            "suite": self.suite.name,
            "method": self.method,
            "seed": self.seed,
            "key": self.key,
            "inputs": {"base": anchor, self.config.dataset: manifest.payload_hash(self.data)},
            "anchor": anchor if kl else None,
            "kl": kl.model_dump() if kl else None,
            "guide": self.objective.guide,
            "engine": self.engine.name,
            **({"engine_options": self.engine.options} if self.sync else {}),
            "log": manifest.sha256(log),
            **self._of_a_pretrained_model(),
        }

    def _of_a_pretrained_model(self) -> dict[str, Any]:
        """Return what only such a run has to say: prompts left out, and the hash of the weights that never changed."""
        skipped = {"skipped_prompts": self.skipped} if self.suite.pretrained else {}
        if self.adapter is None:
            return skipped
        return {**skipped, "anchor_weights": adapters.check_unchanged(self.policy, self.frozen)}


def _summary(experience: Experience) -> dict[str, float]:
    """Return what the log says of the completions, before any update."""
    lengths = experience.lengths.float()
    grades = experience.verdicts[0].keys()
    correct = {g: sum(v[g] == "correct" for v in experience.verdicts) / len(experience.verdicts) for g in grades}
    return {
        "reward": float(experience.rewards.mean()),
        "reward_std": float(experience.rewards.std()),
        **dict(list(correct.items())[1:]),
        "zero_variance": float(experience.equal.float().mean()),
        "length": float(lengths.mean()),
        "rounds": experience.rounds,
        "truncated": sum(c.finish == "length" for c in experience.completions) / len(lengths),
    }


def main(suite: "Suite", method: str, seed: int) -> None:
    """Train ``method`` with ``seed``; goes on where a killed run stopped."""
    with joined(suite.rl.processes) as ranks:
        Run(suite, method, seed, ranks).train()
