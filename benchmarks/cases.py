"""The same training of the same model twice, ours and TRL's: batch, lengths, rewards, optimiser and threads are equal.

Where completions have a fixed length, nothing ends ours, and TRL's may not draw an EOS; else both end by chance, and their
lengths have one distribution.
"""

import copy
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tokenizers.pre_tokenizers import ByteLevel

from sage import config, seeds, tasks
from sage.config import Suite, load_suite
from sage.evaluate.grading import Grader
from sage.policy import adapter as adapters
from sage.policy import model as models
from sage.policy.adapter import AdapterOff
from sage.policy.template import turns
from sage.policy.tokens import encode_prompts
from sage.rollout import Sampling
from sage.rollout.transformers import TransformersEngine
from sage.tasks import Record
from sage.train.experience import Collector, Experience, Problems
from sage.train.optim import make_optimiser
from sage.train.state import Clock
from sage.train.update import Updater

CONFIG = Path(__file__).parents[1] / "workflow/config"
SMOLLM2 = Path("data/smollm2/checkpoints/base/model")
TINY = config.Model(
    hidden_size=16, intermediate_size=32, layers=1, heads=2, kv_heads=1, max_positions=512, init_std=0.1
)


@dataclass(frozen=True)
class Case:
    """What is trained: GRPO with the divergence of the paper, one update a generation batch."""

    suite: Suite
    model: Any
    tokenizer: Any
    records: list[Record]
    new_tokens: int  # of each completion; at most, where ``ends``
    ends: bool = False  # whether an EOS ends a completion

    @property
    def rl(self) -> config.Rl:
        """The suite's settings, of as many tokens a completion."""
        return self.suite.rl.model_copy(update={"max_new_tokens": self.new_tokens})

    def with_rl(self, **changes: Any) -> "Case":
        """Return the case with other settings of the suite's."""
        content = self.suite.content
        rl = content.rl.model_copy(update=changes)
        changed = Suite(self.suite.name, self.suite.path, content.model_copy(update={"rl": rl}))
        return replace(self, suite=changed)


def laptop(small: bool = False, prompts: int = 16, ends: bool = False) -> Case:
    """Return the laptop suite's model with random weights, ``prompts`` puzzles, 16 completions each of 27 tokens.

    With ``ends`` they have the suite's 96 tokens at most; with random weights, some 27 on average. Unlike the suite's
    runs, whose results are older than it, an update reads a prompt once.
    """
    suite = load_suite(CONFIG / "laptop.yaml")
    spec, task = suite.dataset("rl"), tasks.load("knights")
    records = task.build(spec.model_copy(update={"size": 64}), suite.data_seed)
    tokenizer = models.make_tokenizer(task.VOCABULARY)
    model = models.make_model(TINY if small else suite.model, len(tokenizer), seed=0).eval()
    longest = suite.rl.max_new_tokens if ends else 27
    case = Case(suite, model, tokenizer, records, 4 if small else longest, ends)
    return case.with_rl(share_prompts=True, **{"prompts": 2, "group": 4} if small else {"prompts": prompts})


def smollm2(small: bool = False) -> Case:
    """Return SmolLM2-135M with an adapter, 2 sums, 4 completions each of 64 tokens; ``small``: a tiny model in its place."""
    suite = load_suite(CONFIG / "smollm2.yaml")
    spec, task = suite.dataset("rl"), tasks.load("arithmetic")
    records = task.build(spec, suite.data_seed)
    if small:
        tokenizer = models.make_tokenizer(sorted(ByteLevel.alphabet()))
        tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
        return Case(suite, models.make_model(TINY, len(tokenizer), seed=0).eval(), tokenizer, records, 4)
    if not SMOLLM2.is_dir():
        raise SystemExit("no SmolLM2 here; run `python -m sage.policy.fetch --config workflow/config/smollm2.yaml`")
    return Case(suite, models.load_model(SMOLLM2), models.load_tokenizer(SMOLLM2), records, 64)


class Ours:
    """Our training of ``case``; its model is a copy."""

    def __init__(self, case: Case) -> None:
        torch.set_num_threads(1)
        self.case, self.step, self.seconds = case, 0, list[dict[str, float]]()
        policy, rl, suite = copy.deepcopy(case.model), case.rl, case.suite
        root = seeds.root(suite.name, 0)
        if suite.adapter:
            anchor: Any = AdapterOff(adapters.add(policy, suite.adapter, root))
        else:
            anchor = copy.deepcopy(policy).requires_grad_(False)
        objective = config.load_method("grpo").objective
        assert objective is not None
        task = tasks.load(suite.dataset(rl.dataset).task)
        prompts = encode_prompts(case.tokenizer, [task.prompt(record) for record in case.records])
        problems = Problems(Grader(task), case.records, prompts)
        sampling = Sampling(case.new_tokens, (case.tokenizer.eos_token_id,) if case.ends else ())
        engine = TransformersEngine(policy)
        self.collector = Collector(engine, case.tokenizer, problems, rl, objective, sampling, root)
        optimiser = make_optimiser(policy.parameters(), rl.optimiser)
        self.policy, self.updater = policy, Updater(policy, anchor, optimiser, objective, suite.guides, rl)

    def collect(self) -> Experience:
        """Return the experience of the next step, without an update."""
        return self.collector.collect(self.step, Clock("rollout", "grade"))

    def update(self, experience: Experience) -> None:
        """Make the optimiser step."""
        self.updater.run(experience, self.step, Clock("anchor", "update"))

    def iterate(self) -> None:
        """Make a whole iteration."""
        clock = Clock("rollout", "grade", "anchor", "update")
        self.updater.run(self.collector.collect(self.step, clock), self.step, clock)
        self.seconds.append(clock.row(self.step))
        self.step += 1


def trl_trainer(case: Case, steps: int, folder: str) -> Any:
    """Return TRL's trainer of ``case``: a step's sequences are one micro-batch, and no activations are recomputed."""
    torch.set_num_threads(1)
    import trl
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    rl, optimiser = case.rl, case.rl.optimiser
    policy, task = copy.deepcopy(case.model), tasks.load(case.suite.dataset(case.rl.dataset).task)
    grader, by_id = Grader(task), {record.id: record for record in case.records}
    conversation = bool(case.tokenizer.chat_template)
    rows = [{"prompt": turns(task.prompt(r)) if conversation else task.prompt(r), "id": r.id} for r in case.records]

    def reward(completions: list[Any], id: list[str], **_: Any) -> list[float]:
        texts = [c[0]["content"] if conversation else c for c in completions]
        verdicts = grader.grade([by_id[i] for i in id], texts)
        return [float(verdict[task.GRADES[0]] == "correct") for verdict in verdicts]

    reference = Path(folder, "model")
    case.model.save_pretrained(reference)  # TRL loads the reference of a model without an adapter from there
    policy.config._name_or_path = str(reference)
    arguments = trl.GRPOConfig(
        output_dir=folder, max_steps=steps, per_device_train_batch_size=rl.prompts * rl.group,
        num_generations=rl.group, max_completion_length=case.new_tokens, temperature=rl.temperature,
        generation_kwargs={} if case.ends else {"min_new_tokens": case.new_tokens}, loss_type="grpo", beta=0.05, epsilon=0.2,
        learning_rate=optimiser.lr, lr_scheduler_type="constant", weight_decay=optimiser.weight_decay,
        max_grad_norm=optimiser.max_grad_norm, optim="adamw_torch_fused", gradient_checkpointing=False,
        bf16=False, use_cpu=True, report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    return trl.GRPOTrainer(
        model=policy, reward_funcs=reward, args=arguments, train_dataset=Dataset.from_list(rows),
        processing_class=copy.deepcopy(case.tokenizer), peft_config=_lora(case.suite),
    )  # fmt: skip


def _lora(suite: Suite) -> Any:
    if not suite.adapter:
        return None
    from peft import LoraConfig

    of = suite.adapter
    return LoraConfig(
        r=of.r, lora_alpha=of.alpha, lora_dropout=0.0, target_modules=sorted(of.targets), task_type="CAUSAL_LM"
    )


def trl_update(trainer: Any, experience: Experience, recomputing: bool) -> Callable[[], None]:
    """Return TRL's loss, backward and optimiser step on ``experience``, whose completions have one length.

    The reference's log-probs are asked for, too, as TRL does for each generation batch. ``recomputing``: activations in
    the backward pass, which is TRL's default.
    """
    pad, longest = trainer.processing_class.pad_token_id, max(map(len, experience.prompts))
    prompts = torch.tensor([[pad] * (longest - len(p)) + list(p) for p in experience.prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in experience.prompts])
    tokens = torch.tensor([completion.tokens for completion in experience.completions])
    inputs = {
        "prompt_ids": prompts, "prompt_mask": mask, "completion_ids": tokens,
        "completion_mask": torch.ones_like(tokens), "advantages": experience.advantages.float(),
        "num_items_in_batch": torch.tensor(tokens.numel()),
    }  # fmt: skip
    model = trainer.model.train()
    if recomputing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    trainer.current_gradient_accumulation_steps = 1
    optimiser = trainer.create_optimizer()
    ids, whole = torch.cat([prompts, tokens], 1), torch.cat([mask, torch.ones_like(tokens)], 1)

    def reference() -> torch.Tensor:
        options = dict(input_ids=ids, attention_mask=whole, logits_to_keep=tokens.shape[1])
        with torch.no_grad():
            if trainer.ref_model is not None:
                return trainer._get_per_token_logps_and_entropies(trainer.ref_model, **options)[0]
            with model.disable_adapter():
                return trainer._get_per_token_logps_and_entropies(model, **options)[0]

    def update() -> None:
        trainer._compute_loss(model, {**inputs, "ref_per_token_logps": reference()}).backward()
        torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return update


def scratch() -> "tempfile.TemporaryDirectory[str]":
    """Return a folder for what TRL writes."""
    return tempfile.TemporaryDirectory(prefix="sage-bench-")
