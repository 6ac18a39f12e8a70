"""Our optimiser step against that of huggingface TRL 1.16: the same batch, the same loss and gradient.

Where definitions agree they agree to 1e-5, for each reducer, over several micro-batches. Where they differ, and why:

- `bnpo`: TRL's local batch is whatever lies in one micro-batch; ours is a number of the configuration, so that the
  gradient does not depend on how much memory there is. Equal where they are set alike.
- `k3_loss`: TRL multiplies it by the importance ratio unless `use_bias_correction_kl=False`; its gradient is then that
  of the reverse divergence, which is `k2_loss` in expectation. Ours is what the paper's code ran: not multiplied.
- the entropy bonus: TRL takes the mean over a micro-batch's tokens, whatever the reducer; ours is weighted by the reducer,
  so that it does not depend on micro-batches. Equal for `dapo` in a single micro-batch.
- exponents: TRL's `exp` of a log-ratio is unbounded, ours is bounded at 20 and counted; below, there is no difference.
- precision: TRL scores in float32 whatever the model's type, which is why the comparison stops at 1e-5.
"""

import copy

import numpy as np
import pytest
import torch

from sage import config
from sage.objective.advantages import group_normalised, is_constant
from sage.policy.forward import collate, head_of, target_logp
from sage.policy.model import make_model, make_tokenizer
from sage.rollout import Completion
from sage.train.experience import Experience
from sage.train.optim import make_optimiser
from sage.train.state import Clock
from sage.train.update import Statistics, Updater

trl = pytest.importorskip("trl")
pytestmark = pytest.mark.filterwarnings("ignore")

SHAPE = config.Model(
    hidden_size=16, intermediate_size=32, layers=2, heads=2, kv_heads=1, max_positions=64, init_std=0.3
)
OPTIMISER = config.Optimiser(
    lr=1e-2, schedule="constant", warmup=0.0, weight_decay=0.0, max_grad_norm=1e9, betas=[0.9, 0.98]
)
VOCABULARY, BETA, LONGEST, MICRO, PARTS = 20, 0.05, 12, 4, 4


@pytest.fixture(scope="module")
def models():
    """A policy that is not its anchor, so that the divergence has a gradient; float64."""
    return make_model(SHAPE, VOCABULARY, seed=1).double(), make_model(SHAPE, VOCABULARY, seed=2).double()


@pytest.fixture(scope="module")
def batch() -> dict:
    generator = np.random.default_rng(0)
    prompts = [[1, *generator.integers(3, VOCABULARY, generator.integers(2, 9)).tolist()] for _ in range(PARTS)]
    rewards = torch.tensor([[1.0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0], [0, 1, 0, 0]], dtype=torch.double)
    return {
        "prompts": [prompt for prompt in prompts for _ in range(MICRO)],
        "tokens": [
            generator.integers(3, VOCABULARY, generator.integers(1, LONGEST + 1)).tolist() for _ in range(PARTS * MICRO)
        ],
        "rewards": rewards,
        "advantages": group_normalised(rewards).flatten(),
        "drift": torch.from_numpy(generator.normal(0, 0.2, (PARTS * MICRO, LONGEST))),
    }


def logps(model, batch) -> list[torch.Tensor]:
    """Return the log-probs of each completion's tokens."""
    found = collate(batch["prompts"], batch["tokens"])
    with torch.no_grad():
        flat = target_logp(head_of(model, found), found.targets, 1.0)
    return list(flat.split([len(t) for t in batch["tokens"]]))


def sampled(model, batch) -> list[torch.Tensor]:
    """Return log-probs of a sampling policy somewhat off the present one, so that some ratios are clipped."""
    return [logp + batch["drift"][i, : len(logp)] for i, logp in enumerate(logps(model, batch))]


def ours(models, batch, monkeypatch, *, reducer, local_batch=16, entropy_bonus=0.0, beta=BETA):
    monkeypatch.setattr(torch.Tensor, "float", lambda self: self)  # scores in float64
    policy, anchor = copy.deepcopy(models[0]), models[1]
    old = sampled(policy, batch)
    experience = Experience(
        ids=["r"] * 16, prompts=batch["prompts"],
        completions=[Completion(t, o.tolist(), "stop") for t, o in zip(batch["tokens"], old, strict=True)],
        verdicts=[], rewards=batch["rewards"], advantages=batch["advantages"], equal=is_constant(batch["rewards"]),
        noise=np.zeros(16, np.uint64), rounds=1,
    )  # fmt: skip
    kl = config.Kl(estimator="k3_loss", beta=beta) if beta else None
    aims = config.Objective(
        advantage="group_normalised", reducer=reducer, clip=[0.2, 0.2], kl=kl, entropy_bonus=entropy_bonus
    )
    rl = config.Rl(
        dataset="rl", steps=10, prompts=8, group=4, updates=2, local_batch=local_batch, micro_batch_tokens=80,
        max_new_tokens=LONGEST, temperature=1.0, optimiser=OPTIMISER, save_every=1, keep_steps=[], threads=1,
    )  # fmt: skip
    updater = Updater(policy, anchor, make_optimiser(policy.parameters(), OPTIMISER), aims, None, rl)
    statistics = Statistics()
    updater.accumulate(experience, range(16), 0, {}, statistics, Clock("anchor", "update"))
    return statistics.sums["loss"], torch.cat([p.grad.flatten() for p in policy.parameters()])


def theirs(models, batch, tmp_path, *, reducer, parts=PARTS, entropy_coef=0.0, beta=BETA, corrected=False):
    """Return the loss and the gradient that TRL's own trainer accumulates over ``parts`` micro-batches."""
    from datasets import Dataset

    policy, anchor = copy.deepcopy(models[0]), models[1]
    tokenizer = make_tokenizer(list("abcdefghijklmnopq"))
    anchor.save_pretrained(tmp_path / "anchor")
    policy.config._name_or_path = str(tmp_path / "anchor")  # where TRL looks for a reference of its own
    arguments = trl.GRPOConfig(
        output_dir=str(tmp_path), loss_type=reducer, beta=beta, epsilon=0.2, max_completion_length=LONGEST,
        per_device_train_batch_size=16 // parts, gradient_accumulation_steps=parts, num_generations=4, use_cpu=True,
        report_to=[], entropy_coef=entropy_coef, bf16=False, temperature=1.0, use_bias_correction_kl=corrected,
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        model=policy, reward_funcs=lambda completions, **_: [0.0] * len(completions), args=arguments,
        train_dataset=Dataset.from_list([{"prompt": "ab"}] * 16), processing_class=tokenizer,
    )  # fmt: skip
    policy.double().train()
    policy.zero_grad()
    trainer.current_gradient_accumulation_steps = parts
    whole, loss = inputs(models, batch, policy), 0.0
    for rows in torch.arange(16).split(16 // parts):
        part = {name: value[rows] if value.dim() else value for name, value in whole.items()}
        value = trainer._compute_loss(policy, part)
        value.backward()
        loss += float(value)
    return loss, torch.cat([p.grad.flatten() for p in policy.parameters()])


def inputs(models, batch, policy) -> dict[str, torch.Tensor]:
    """Return the batch in TRL's form: prompts padded on the left, completions on the right."""
    longest = max(map(len, batch["prompts"]))

    def right(rows, dtype):
        return torch.stack(
            [torch.nn.functional.pad(torch.as_tensor(r, dtype=dtype), (0, LONGEST - len(r))) for r in rows]
        )

    completion_mask = right([[1] * len(t) for t in batch["tokens"]], torch.long)
    return {
        "prompt_ids": torch.tensor([[0] * (longest - len(p)) + p for p in batch["prompts"]]),
        "prompt_mask": torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in batch["prompts"]]),
        "completion_ids": right(batch["tokens"], torch.long),
        "completion_mask": completion_mask,
        "advantages": batch["advantages"],
        "old_per_token_logps": right(sampled(policy, batch), torch.double),
        "ref_per_token_logps": right(logps(models[1], batch), torch.double),
        "num_items_in_batch": completion_mask.sum(),
    }


@pytest.mark.parametrize("beta", [0.0, BETA])
@pytest.mark.parametrize(("reducer", "local_batch"), [("grpo", 16), ("bnpo", MICRO), ("dapo", 16), ("dr_grpo", 16)])
def test_the_same_loss_and_gradient(models, batch, tmp_path, monkeypatch, reducer, local_batch, beta):
    loss, gradient = theirs(models, batch, tmp_path, reducer=reducer, beta=beta)
    mine, own = ours(models, batch, monkeypatch, reducer=reducer, local_batch=local_batch, beta=beta)
    assert gradient.abs().max() > 1e-3
    assert mine == pytest.approx(loss, rel=1e-5, abs=1e-6)
    assert apart(own, gradient) < 1e-5


def apart(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the largest difference, as a share of the largest entry."""
    return float((a - b).abs().max() / b.abs().max())


def test_the_local_batch_of_bnpo_is_the_micro_batch_in_trl(models, batch, tmp_path, monkeypatch):
    _, four = theirs(models, batch, tmp_path, reducer="bnpo", parts=4)
    _, two = theirs(models, batch, tmp_path, reducer="bnpo", parts=2)
    assert apart(two, four) > 0.01
    _, own = ours(models, batch, monkeypatch, reducer="bnpo", local_batch=8)
    assert apart(own, two) < 1e-5


def test_trl_corrects_the_divergence_unless_told_not_to(models, batch, tmp_path):
    _, plain = theirs(models, batch, tmp_path, reducer="grpo")
    _, corrected = theirs(models, batch, tmp_path, reducer="grpo", corrected=True)
    assert apart(corrected, plain) > 0.01


def test_the_entropy_bonus_depends_on_micro_batches_in_trl_and_not_in_ours(models, batch, tmp_path, monkeypatch):
    _, one = theirs(models, batch, tmp_path, reducer="dapo", parts=1, entropy_coef=0.1)
    _, four = theirs(models, batch, tmp_path, reducer="dapo", parts=4, entropy_coef=0.1)
    assert apart(four, one) > 0.001
    _, own = ours(models, batch, monkeypatch, reducer="dapo", entropy_bonus=0.1)
    assert apart(own, one) < 1e-5
