"""The optimiser step: independent of how it is cut, exact on policy, stopped by what is not finite."""

import copy

import numpy as np
import pytest
import torch

from sage import config
from sage.objective.advantages import group_normalised, is_constant
from sage.policy.forward import collate, score
from sage.policy.model import make_model
from sage.rollout import Completion
from sage.train.experience import Experience
from sage.train.optim import NonFinite, make_optimiser
from sage.train.state import Clock
from sage.train.update import Statistics, Updater, micro_batches

SHAPE = config.Model(
    hidden_size=16, intermediate_size=32, layers=2, heads=2, kv_heads=1, max_positions=64, init_std=0.02
)
OPTIMISER = config.Optimiser(
    lr=1e-2, schedule="constant", warmup=0.0, weight_decay=0.0, max_grad_norm=1e9, betas=[0.9, 0.98]
)
GUIDES = config.Guides(
    q_min=0.6,
    q_max=1.4,
    cycles=8,
    decay=0.9,
    random=config.RandomGuide(epsilon=[0.5, 0.1], sigma=[0.3, 0.1]),
    token=config.TokenGuide(alpha=[0.3, 0.1], sigma=[0.25, 0.1]),
    branch=config.Branch(gamma=0.5, tau=1.0),
)
K3 = config.Kl(estimator="k3_loss", beta=0.05)


def rl(**changes) -> config.Rl:
    values = dict(
        dataset="rl", steps=10, prompts=4, group=4, updates=1, local_batch=4, micro_batch_tokens=10**6,
        max_new_tokens=16, temperature=1.0, optimiser=OPTIMISER, save_every=1, keep_steps=[], threads=1,
    )  # fmt: skip
    return config.Rl(**{**values, **changes})


def objective(**changes) -> config.Objective:
    values = dict(advantage="group_normalised", reducer="grpo", clip=[0.2, 0.2], kl=K3, guide="branch")
    return config.Objective(**{**values, **changes})


def experience(model, temperature=1.0, seed=0) -> Experience:
    """Return 4 groups of 4 random completions of 1 to 12 tokens, with the model's own log-probs."""
    generator = np.random.default_rng(seed)
    prompts = [[1, *generator.integers(3, 20, generator.integers(2, 9)).tolist()] for _ in range(4) for _ in range(1)]
    prompts = [prompt for prompt in prompts for _ in range(4)]
    tokens = [generator.integers(3, 20, generator.integers(1, 13)).tolist() for _ in prompts]
    batch = collate(prompts, tokens)
    with torch.no_grad():
        logp = score(model, batch, temperature).logp
    rewards = torch.tensor([[1.0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0], [0, 1, 0, 0]])
    return Experience(
        ids=[f"r{i // 4}" for i in range(16)],
        prompts=prompts,
        completions=[Completion(t, logp[i][batch.mask[i]].tolist(), "stop") for i, t in enumerate(tokens)],
        verdicts=[{"strict": "wrong"}] * 16,
        rewards=rewards,
        advantages=group_normalised(rewards).flatten(),
        equal=is_constant(rewards),
        noise=generator.integers(0, 2**63, 16).astype(np.uint64),
        rounds=1,
    )


@pytest.fixture
def models():
    policy = make_model(SHAPE, 20, seed=1)
    anchor = make_model(SHAPE, 20, seed=2).requires_grad_(False)
    return policy, anchor


def gradient(models, aims, run, dtype=torch.float64, data=None):
    policy, anchor = (copy.deepcopy(model).to(dtype) for model in models)
    updater = Updater(policy, anchor, make_optimiser(policy.parameters(), OPTIMISER), aims, GUIDES, run)
    data = data or experience(models[0])
    statistics = Statistics()
    guides = updater._before(data, 0, Clock("update"))[1] if aims.guide and run.updates > 1 else {}
    updater.accumulate(data, range(16), 0, guides, statistics, Clock("anchor", "update"))
    return torch.cat([p.grad.flatten() for p in policy.parameters()]), statistics


METHODS = [
    objective(reducer=reducer, guide=guide)
    for reducer in ("grpo", "bnpo", "dapo", "dr_grpo")
    for guide in (None, "branch")
]
METHODS += [objective(guide="token"), objective(guide="random"), objective(kl=None, guide=None, entropy_bonus=0.01)]
METHODS += [
    objective(kl=config.Kl(estimator=name, beta=0.05), guide=None)
    for name in ("forward_kl", "fkl_sampled", "k1_reward")
]


@pytest.mark.parametrize("aims", METHODS, ids=lambda o: f"{o.reducer}-{o.kl.estimator if o.kl else None}-{o.guide}")
def test_the_gradient_does_not_depend_on_micro_batches(models, aims, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "float", lambda self: self)  # scores in float64, to see 1e-6 and less
    whole, _ = gradient(models, aims, rl())
    assert whole.abs().max() > 0
    for budget in (1, 40, 80, 160):  # 16, about 8, 4 and 2 micro-batches
        parts, _ = gradient(models, aims, rl(micro_batch_tokens=budget))
        torch.testing.assert_close(parts, whole, rtol=1e-9, atol=1e-12)


def packed_hidden_rows(model, batch):
    """Return what ``hidden_rows`` does, from all sequences side by side in one row without padding (its id is 0)."""
    real = batch.ids != 0
    position = torch.cat([torch.arange(int(n)) for n in real.sum(1)])
    hidden = model.model(input_ids=batch.ids[real][None], position_ids=position[None], use_cache=False)
    place = real.flatten().cumsum(0) - 1
    return hidden.last_hidden_state[0, place[batch.rows]]


@pytest.mark.parametrize("aims", METHODS, ids=lambda o: f"{o.reducer}-{o.kl.estimator if o.kl else None}-{o.guide}")
def test_packed_input_gives_the_gradient_of_padded_input(models, aims, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "float", lambda self: self)
    padded, _ = gradient(models, aims, rl())
    monkeypatch.setattr("sage.policy.forward.hidden_rows", packed_hidden_rows)
    packed, _ = gradient(models, aims, rl())
    assert not torch.equal(packed, padded)  # another way of summing: were it the same one, nothing would be shown
    torch.testing.assert_close(packed, padded, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("aims", METHODS, ids=lambda o: f"{o.reducer}-{o.kl.estimator if o.kl else None}-{o.guide}")
@pytest.mark.parametrize("budget", [10**6, 60])
def test_prompts_read_once_give_the_gradient_of_prompts_read_with_each_completion(models, aims, budget, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "float", lambda self: self)
    apart, _ = gradient(models, aims, rl())
    once, _ = gradient(models, aims, rl(share_prompts=True, micro_batch_tokens=budget))
    assert not torch.equal(once, apart)
    torch.testing.assert_close(once, apart, rtol=1e-6, atol=1e-9)  # rotary positions are float32 in the models


def test_equal_prompts_are_read_once():
    prompts = [[1, 5, 6, 7], [1, 8], [1, 5, 6, 7], [1, 5, 6, 7], [1, 8]]
    batch = collate(prompts, [[9], [10, 2], [], [11, 12, 2], [13]], share=True)
    assert batch.prefix.ids.tolist() == [[1, 5, 6], [1, 0, 0]]
    assert batch.prefix.lengths.tolist() == [3, 1]
    assert batch.prefix.owners.tolist() == [0, 1, 0, 0, 1]
    assert batch.ids.tolist() == [[7, 9, 0, 0], [8, 10, 2, 0], [7, 0, 0, 0], [7, 11, 12, 2], [8, 13, 0, 0]]
    assert batch.ids.flatten()[batch.rows].tolist() == [7, 8, 10, 7, 11, 12, 8]
    assert collate([[1, 5], [1, 6]], [[9], [9]], share=True).prefix is None  # nothing is shared
    assert collate([[1], [1]], [[9], [9]], share=True).prefix is None  # nothing but the last token


def test_the_number_of_micro_batches():
    lengths = [3, 9, 5, 9, 4, 1]
    assert micro_batches(lengths, 10**6) == [[1, 3, 2, 4, 0, 5]]
    assert micro_batches(lengths, 1) == [[i] for i in (1, 3, 2, 4, 0, 5)]
    cut = micro_batches(lengths, 18)
    assert cut == [[1, 3], [2, 4, 0], [5]] or all(max(lengths[i] for i in b) * len(b) <= 18 for b in cut)
    assert sorted(i for b in cut for i in b) == list(range(6))


def test_padding_does_not_reach_the_scores(models):
    policy = models[0]
    data = experience(policy)
    tokens = [c.tokens for c in data.completions]
    together = score(policy, collate(data.prompts, tokens), 1.0)
    for i in range(16):
        alone = score(policy, collate(data.prompts[i : i + 1], tokens[i : i + 1]), 1.0)
        n = len(tokens[i])
        torch.testing.assert_close(together.logp[i, :n], alone.logp[0, :n], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(together.entropy[i, :n], alone.entropy[0, :n], rtol=1e-5, atol=1e-5)
        assert (together.logp[i, n:] == 0).all()


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_the_ratio_is_one_before_the_first_update_at_every_temperature(models, temperature):
    data = experience(models[0], temperature)
    run = rl(temperature=temperature, updates=2)  # with several updates the ratio is to the engine's log-probs
    _, statistics = gradient(models, objective(), run, torch.float32, data)
    assert statistics.summary()["mismatch_max"] < 1e-5
    assert statistics.summary()["clip_fraction"] == 0


def test_the_divergence_is_zero_at_step_zero_without_a_guide(models):
    same = (models[0], models[0])
    for estimator in ("k1_reward", "k2_loss", "k3_loss", "forward_kl", "fkl_sampled"):
        _, statistics = gradient(same, objective(guide=None, kl=config.Kl(estimator=estimator, beta=0.05)), rl())
        assert statistics.summary()["kl"] == pytest.approx(0.0, abs=1e-9)


def test_guides_without_strength_change_no_bit(models):
    plain, _ = gradient(models, objective(guide=None), rl(), torch.float32)
    none = GUIDES.model_copy(
        update=dict(
            branch=config.Branch(gamma=0.0, tau=0.0),
            token=config.TokenGuide(alpha=[0.0, 0.0], sigma=[0.0, 0.0]),
            random=config.RandomGuide(epsilon=[0.0, 0.0], sigma=[0.0, 0.0]),
        )
    )
    for guide in ("branch", "token", "random"):
        policy, anchor = (copy.deepcopy(model) for model in models)
        updater = Updater(policy, anchor, None, objective(guide=guide), none, rl())
        updater.accumulate(experience(models[0]), range(16), 0, {}, Statistics(), Clock("anchor", "update"))
        assert torch.equal(torch.cat([p.grad.flatten() for p in policy.parameters()]), plain)


def test_groups_of_equal_rewards_keep_their_divergence_only_where_asked(models):
    kept, _ = gradient(models, objective(guide=None), rl())
    dropped, _ = gradient(models, objective(guide=None, kl=K3.model_copy(update={"on_equal_rewards": False})), rl())
    assert not torch.allclose(kept, dropped)
    data = experience(models[0])
    data.completions[4:8] = [Completion([19], [-1.0], "stop")] * 4  # group 1, all rewards 0: its content is irrelevant
    other, _ = gradient(
        models, objective(guide=None, kl=K3.model_copy(update={"on_equal_rewards": False})), rl(), data=data
    )
    torch.testing.assert_close(other, dropped)


def test_the_entropy_bonus_raises_the_entropy(models):
    policy = copy.deepcopy(models[0])
    aims = objective(kl=None, guide=None, entropy_bonus=1.0)
    updater = Updater(policy, None, make_optimiser(policy.parameters(), OPTIMISER), aims, GUIDES, rl(steps=100))
    data = experience(models[0])
    data.advantages.zero_()
    entropies = [updater.run(data, step, Clock("anchor", "update"))["entropy"] for step in range(8)]
    assert entropies[-1] > entropies[0]


def test_descending_the_divergence_alone_brings_the_policy_to_its_anchor(models):
    policy = copy.deepcopy(models[0])
    aims = objective(guide=None, kl=config.Kl(estimator="forward_kl", beta=1.0))
    updater = Updater(policy, models[1], make_optimiser(policy.parameters(), OPTIMISER), aims, GUIDES, rl(steps=100))
    data = experience(models[0])
    data.advantages.zero_()
    distances = [updater.run(data, step, Clock("anchor", "update"))["kl"] for step in range(20)]
    assert distances[-1] < 0.5 * distances[0]


def test_several_updates_use_the_guide_of_the_sampling_policy(models):
    policy, anchor = (copy.deepcopy(model) for model in models)
    updater = Updater(
        policy, anchor, make_optimiser(policy.parameters(), OPTIMISER), objective(), GUIDES, rl(updates=2)
    )
    data = experience(models[0])
    _, before = updater._before(data, 0, Clock("update"))
    statistics = updater.run(data, 0, Clock("anchor", "update"))
    assert statistics["guide_max"] == pytest.approx(float(torch.cat(list(before.values())).max()))
    assert statistics["mismatch_max"] > 1e-4  # the second update is off policy


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_what_is_not_finite_stops_the_run_and_changes_no_weight(models, where, monkeypatch):
    policy = copy.deepcopy(models[0])
    before = copy.deepcopy(policy.state_dict())
    updater = Updater(policy, models[1], make_optimiser(policy.parameters(), OPTIMISER), objective(), GUIDES, rl())
    data = experience(models[0])
    if where == "loss":
        data.advantages[3] = float("inf")
        message = r"step 7, records r0.*the loss is not finite \(policy term"
    else:
        policy.lm_head.weight.register_hook(lambda grad: grad * float("nan"))
        message = "step 7: the gradient's norm is nan"
    with pytest.raises(NonFinite, match=message):
        updater.run(data, 7, Clock("anchor", "update"))
    assert all(torch.equal(before[name], value) for name, value in policy.state_dict().items())


@pytest.mark.parametrize("guide", [None, "branch"])
@pytest.mark.parametrize(("updates", "min_p", "forwards"), [(1, 0.1, 1), (2, 0.0, None), (2, 0.1, 2)])
def test_no_forward_is_made_twice(models, guide, updates, min_p, forwards):
    policy, anchor = (copy.deepcopy(model) for model in models)
    tokens = {policy.model: 0, anchor.model: 0}

    def count(module, arguments, options):
        tokens[module] += int((options["input_ids"] != 0).sum())

    for module in tokens:
        module.register_forward_pre_hook(count, with_kwargs=True)
    run = rl(updates=updates, min_p=min_p, micro_batch_tokens=60)
    updater = Updater(
        policy, anchor, make_optimiser(policy.parameters(), OPTIMISER), objective(guide=guide), GUIDES, run
    )
    data = experience(models[0])
    updater.run(data, 0, Clock("anchor", "update"))
    once = sum(len(p) + len(c.tokens) for p, c in zip(data.prompts, data.completions, strict=True))
    # Two updates need a forward before them where the guide is fixed by it, or min-p has cut what was sampled from.
    assert tokens[policy.model] == once * (forwards or (2 if guide else 1))
    assert tokens[anchor.model] == once
