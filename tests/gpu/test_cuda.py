"""The same on a CUDA device as on the CPU: the head, an optimiser step, sampling. Skipped where there is no device."""

import copy

import numpy as np
import pytest
import torch

from sage import config
from sage.objective.advantages import group_normalised, is_constant
from sage.policy.forward import collate, score
from sage.policy.head import head_scores
from sage.policy.model import make_model
from sage.rollout import Completion, Sampling
from sage.rollout.transformers import TransformersEngine
from sage.train.experience import Experience
from sage.train.optim import make_optimiser
from sage.train.state import Clock
from sage.train.update import Updater

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and there is none")

SHAPE = config.Model(
    hidden_size=32, intermediate_size=64, layers=2, heads=2, kv_heads=1, max_positions=64, init_std=0.2
)
OPTIMISER = config.Optimiser(
    lr=1e-3, schedule="constant", warmup=0.0, weight_decay=0.0, max_grad_norm=1.0, betas=[0.9, 0.98]
)


@pytest.fixture(scope="module")
def model():
    return make_model(SHAPE, 30, seed=1).eval()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("trained", [False, True])
def test_the_head(dtype, tolerance, trained, monkeypatch):
    monkeypatch.setattr("sage.policy.head.CHUNK_BYTES", 2**20)  # several chunks
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(300, 64, generator=generator), torch.randn(5000, 64, generator=generator) / 8
    targets, found = torch.randint(5000, (300,), generator=generator), []
    for device in ("cpu", "cuda"):
        h = hidden.to(device, dtype).requires_grad_()
        w = weight.to(device, dtype).requires_grad_(trained)
        scores = head_scores(h, w, targets.to(device), 0.7, entropy_grad=True)
        (scores.logp + 0.3 * scores.entropy).sum().backward()
        found.append([x.float().cpu() for x in (scores.logp.detach(), scores.entropy.detach(), h.grad)])
    for cpu, cuda in zip(*found, strict=True):
        torch.testing.assert_close(cuda, cpu, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("guide", [None, "branch", "token", "random"])
@pytest.mark.parametrize("updates", [1, 2])
def test_an_optimiser_step(model, guide, updates):
    draw = np.random.default_rng(0)
    prompts = [[1, *draw.integers(3, 30, 4).tolist()] for _ in range(4) for _ in range(4)]
    tokens = [draw.integers(3, 30, draw.integers(1, 12)).tolist() for _ in prompts]
    batch = collate(prompts, tokens)
    with torch.no_grad():
        logp = score(model, batch, 1.0).logp
    rewards = torch.tensor([[1.0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0], [0, 1, 0, 0]])
    experience = Experience(
        ids=["r"] * 16, prompts=prompts, verdicts=[], rewards=rewards, equal=is_constant(rewards), rounds=1,
        completions=[Completion(t, logp[i][batch.mask[i]].tolist(), "stop") for i, t in enumerate(tokens)],
        advantages=group_normalised(rewards).flatten(), noise=np.arange(16, dtype=np.uint64),
    )  # fmt: skip
    rl = config.Rl(
        dataset="rl", steps=10, prompts=4, group=4, updates=updates, local_batch=4, micro_batch_tokens=100,
        max_new_tokens=12, temperature=1.0, min_p=0.01, optimiser=OPTIMISER, save_every=1, keep_steps=[], threads=1,
    )  # fmt: skip
    guides = config.Guides(
        q_min=0.6, q_max=1.4, cycles=8, decay=0.9, random=config.RandomGuide(epsilon=[0.5, 0.1], sigma=[0.3, 0.1]),
        token=config.TokenGuide(alpha=[0.3, 0.1], sigma=[0.25, 0.1]), branch=config.Branch(gamma=0.5, tau=1.0),
    )  # fmt: skip
    kl = config.Kl(estimator="k3_loss", beta=0.05)
    aims = config.Objective(advantage="group_normalised", reducer="grpo", clip=[0.2, 0.2], kl=kl, guide=guide)
    weights, logs = [], []
    for device in ("cpu", "cuda"):
        policy, anchor = copy.deepcopy(model).to(device), make_model(SHAPE, 30, seed=2).to(device)
        updater = Updater(policy, anchor, make_optimiser(policy.parameters(), OPTIMISER), aims, guides, rl)
        logs.append(updater.run(experience, 0, Clock("anchor", "update")))
        weights.append(torch.cat([p.detach().cpu().flatten() for p in policy.parameters()]))
    assert logs[1] == pytest.approx(logs[0], rel=1e-3, abs=1e-4)
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_completions_have_the_log_probs_that_the_trainer_gives_them(model, dtype):
    policy = copy.deepcopy(model).to("cuda", dtype)
    prompts, keys = [[1, 5, 6], [1, 7, 8]], np.arange(16, dtype=np.uint64).reshape(2, 8)
    groups = TransformersEngine(policy).generate(prompts, keys, Sampling(12, (2,)))
    for prompt, group in zip(prompts, groups, strict=True):
        batch = collate([prompt] * len(group), [c.tokens for c in group], policy.device)
        with torch.no_grad():
            logp = score(policy, batch, 1.0).logp.cpu()
        for row, completion in zip(logp, group, strict=True):
            sampled = torch.tensor(completion.logprobs, dtype=torch.float32)
            torch.testing.assert_close(
                row[: len(sampled)], sampled, rtol=0, atol=1e-3 if dtype == torch.float32 else 0.1
            )
