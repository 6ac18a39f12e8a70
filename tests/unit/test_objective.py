"""The objective against enumeration, closed forms and an independent float64 reference in plain numpy."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sage.objective import advantages, divergences, guides, reducers
from sage.objective.losses import Terms, Tokens, token_loss
from sage.objective.numerics import EXPONENT_LIMIT, bounded_exp

DOUBLE = torch.float64


def categorical(seed: int, size: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(size, generator=generator, dtype=DOUBLE, requires_grad=True)
    anchor = torch.randn(size, generator=generator, dtype=DOUBLE).softmax(0)
    return logits, anchor


def expected_gradient(values: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Return E_pi[grad value(y)]: the weights pi(y) are constants, as for drawn tokens."""
    weights = logits.softmax(0).detach()
    return torch.autograd.grad((weights * values).sum(), logits)[0]


def delta_of(logits: torch.Tensor, anchor: torch.Tensor, guide: torch.Tensor) -> torch.Tensor:
    logp = logits.log_softmax(0)[None]
    mask = torch.ones_like(logp, dtype=torch.bool)
    return divergences.log_ratio_to_anchor(logp, anchor.log()[None], guide.expand_as(logp), mask)[0]


GUIDES = {"one": torch.ones(1, dtype=DOUBLE), "state": torch.full((1,), 1.3, dtype=DOUBLE)}
GUIDES["action"] = torch.tensor([0.7, 1.4, 1.0, 0.6, 1.2], dtype=DOUBLE)


def test_reverse_and_forward_are_not_mixed_up():
    pi, ref = torch.tensor([0.9, 0.1], dtype=DOUBLE), torch.tensor([0.5, 0.5], dtype=DOUBLE)
    assert divergences.forward_kl(pi.log(), ref.log()) == pytest.approx(0.511, abs=5e-4)
    assert divergences.generalised_kl(pi, ref) == pytest.approx(0.368, abs=5e-4)
    delta = ref.log() - pi.log()
    assert (pi * divergences.k3_loss(delta)).sum() == pytest.approx(0.368, abs=5e-4)
    assert (pi * divergences.fkl_sampled_loss(delta)).sum() == pytest.approx(0.511, abs=5e-4)


@pytest.mark.parametrize("name", GUIDES)
@pytest.mark.parametrize("seed", range(3))
def test_value_of_k3_is_the_generalised_reverse_divergence(name, seed):
    logits, anchor = categorical(seed)
    pi, shaped = logits.softmax(0), anchor * GUIDES[name]
    value = (pi * divergences.k3_loss(delta_of(logits, anchor, GUIDES[name]))).sum()
    by_hand = sum(p * math.log(p / m) - p + m for p, m in zip(pi.tolist(), shaped.tolist(), strict=True))
    assert float(value) == pytest.approx(by_hand, abs=1e-12)
    assert float(divergences.generalised_kl(pi, shaped)) == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.parametrize("name", GUIDES)
@pytest.mark.parametrize("seed", range(3))
def test_gradients_in_expectation_are_those_of_the_docstrings(name, seed):
    logits, anchor = categorical(seed)
    q = GUIDES[name]
    delta = delta_of(logits, anchor, q)
    logp = logits.log_softmax(0)
    shaped = (anchor * q).expand_as(logp)

    forward_towards_shaped = torch.autograd.grad(-(shaped * logp).sum(), logits, retain_graph=True)[0]
    torch.testing.assert_close(expected_gradient(divergences.k3_loss(delta), logits), forward_towards_shaped)

    delta, logp = delta_of(logits, anchor, q), logits.log_softmax(0)
    reverse = torch.autograd.grad((logp.exp() * (logp - shaped.log())).sum(), logits)[0]
    torch.testing.assert_close(expected_gradient(divergences.k2_loss(delta), logits), reverse)

    delta = delta_of(logits, anchor, q)
    score = torch.autograd.grad(-(logits.softmax(0).detach() * delta.detach() * logits.log_softmax(0)).sum(), logits)[0]
    torch.testing.assert_close(score, reverse)  # k1_reward, ascended: one step of the score function

    delta, logp = delta_of(logits, anchor, q), logits.log_softmax(0)
    sampled = torch.autograd.grad(-(shaped * delta.detach() * logp).sum(), logits)[0]
    torch.testing.assert_close(expected_gradient(divergences.fkl_sampled_loss(delta), logits), sampled)


def test_state_guide_has_no_effect_under_k2_and_scales_k3():
    logits, anchor = categorical(7)
    plain, scaled = (delta_of(logits, anchor, GUIDES[name]) for name in ("one", "state"))
    k2 = [expected_gradient(divergences.k2_loss(d), logits) for d in (plain, scaled)]
    torch.testing.assert_close(*k2)
    plain, scaled = (delta_of(logits, anchor, GUIDES[name]) for name in ("one", "state"))
    k3 = [expected_gradient(divergences.k3_loss(d), logits) for d in (plain, scaled)]
    torch.testing.assert_close(1.3 * k3[0], k3[1])
    forward = torch.autograd.grad(divergences.forward_kl(logits.log_softmax(0), anchor.log()), logits)[0]
    torch.testing.assert_close(k3[0], forward)


def test_k1_reward_is_the_gradient_of_the_sequence_level_divergence():
    """All 3^3 sequences of a tabular policy; the oracle does the same on larger trees."""
    generator = torch.Generator().manual_seed(0)
    policy = torch.randn(13, 3, generator=generator, dtype=DOUBLE, requires_grad=True)
    anchor = torch.randn(13, 3, generator=generator, dtype=DOUBLE).log_softmax(-1)
    q = torch.rand(13, 3, generator=generator, dtype=DOUBLE) * 0.8 + 0.6
    sequences = torch.tensor(list(itertools.product(range(3), repeat=3)))
    nodes = torch.stack([torch.zeros(27, dtype=int), 1 + sequences[:, 0], 4 + 3 * sequences[:, 0] + sequences[:, 1]], 1)
    logp = policy.log_softmax(-1)[nodes, sequences]
    mask = torch.ones_like(logp, dtype=torch.bool)
    delta = divergences.log_ratio_to_anchor(logp, anchor[nodes, sequences], q[nodes, sequences], mask)
    probability = logp.sum(1).exp()
    exact = torch.autograd.grad(-(probability * -delta.sum(1)).sum(), policy, retain_graph=True)[0]
    returns = divergences.k1_reward(delta, mask)
    score = torch.autograd.grad((probability.detach()[:, None] * returns * logp).sum(), policy)[0]
    torch.testing.assert_close(score, exact)


TERMS = [Terms(0.2, 0.28, estimator, 0.05) for estimator in (None, "k1_reward", "k2_loss", "k3_loss", "fkl_sampled")]


def numpy_loss(logp, old, anchor, guide, mask, adv, weights, terms) -> float:
    """Return the loss by loops over unmasked tokens, float64, in the terms of the definitions alone."""
    clip = lambda x: max(-EXPONENT_LIMIT, min(EXPONENT_LIMIT, x))  # noqa: E731
    total = 0.0
    for i, row in enumerate(mask):
        steps = [t for t in range(len(row)) if row[t]]
        delta = {t: anchor[i, t] + math.log(guide[i, t]) - logp[i, t] for t in steps}
        for t in steps:
            a = adv[i] + (terms.beta * sum(delta[s] for s in steps if s >= t) if terms.estimator == "k1_reward" else 0)
            ratio = math.exp(clip(logp[i, t] - old[i, t]))
            value = -min(ratio * a, min(max(ratio, 1 - terms.clip_low), 1 + terms.clip_high) * a)
            d, rho = delta[t], math.exp(clip(delta[t]))
            kl = {"k2_loss": d * d / 2, "k3_loss": rho - d - 1, "fkl_sampled": rho * d - (rho - 1)}
            total += weights[i] * (value + terms.beta * kl.get(terms.estimator, 0.0))
    return total


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 5), st.integers(1, 7), st.sampled_from(TERMS))
def test_loss_equals_the_numpy_reference_and_ignores_what_is_masked(data, rows, columns, terms):
    shape = (rows, columns)
    mask = data.draw(hnp.arrays(bool, shape))
    logs = hnp.arrays(np.float64, shape, elements=st.floats(-120, 0))
    logp, old, anchor = data.draw(logs), data.draw(logs), data.draw(logs)
    guide = data.draw(hnp.arrays(np.float64, shape, elements=st.floats(0.6, 1.4)))
    adv = data.draw(hnp.arrays(np.float64, rows, elements=st.floats(-3, 3)))
    weights = reducers.grpo(torch.from_numpy(mask.sum(1))).numpy()
    expected = numpy_loss(logp, old, anchor, guide, mask, adv, weights, terms)
    garbage = data.draw(st.sampled_from([0.0, 200.0, -1e30, math.inf, -math.inf, math.nan]))
    tensors = [torch.from_numpy(np.where(mask, x, garbage)) for x in (logp, old, anchor, guide)]
    leaf = tensors[0].requires_grad_()
    tokens = Tokens(
        mask=torch.from_numpy(mask),
        logp_old=tensors[1],
        advantages=torch.from_numpy(adv),
        weights=torch.from_numpy(weights),
        kl_weights=torch.from_numpy(weights),
        logp_anchor=tensors[2],
        guide=tensors[3],
    )
    loss = token_loss(leaf, tokens, terms)
    assert float(loss.total) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    loss.total.backward()
    assert leaf.grad.isfinite().all()
    assert (leaf.grad[~torch.from_numpy(mask)] == 0).all()


@pytest.mark.parametrize("terms", [*TERMS, Terms(0.2, 0.2, "k3_loss", 0.05, entropy_bonus=0.1)])
def test_fully_masked_micro_batch_is_harmless(terms):
    values = torch.full((2, 3), math.inf, requires_grad=True)
    none = torch.zeros(2, 3, dtype=torch.bool)
    ones = torch.ones(2)
    tokens = Tokens(none, values.detach(), ones, ones, ones, values.detach(), values.detach())
    loss = token_loss(values, tokens, terms, entropy=values)
    loss.total.backward()
    assert float(loss.total.detach()) == 0.0
    assert (values.grad == 0).all()


def test_extreme_ratios_are_bounded_and_counted():
    logp = torch.tensor([[1000.0, 0.0, -2.0]], requires_grad=True)
    tokens = Tokens(
        mask=torch.ones(1, 3, dtype=torch.bool),
        logp_old=torch.tensor([[0.0, 0.0, -91.0]]),
        advantages=torch.tensor([-1.0]),
        weights=torch.ones(1),
        kl_weights=torch.ones(1),
        logp_anchor=torch.tensor([[0.0, 0.0, 500.0]]),
    )
    loss = token_loss(logp, tokens, Terms(0.2, 0.2, "k3_loss", 0.05))
    loss.total.backward()
    assert loss.total.isfinite()
    assert logp.grad.isfinite().all()
    assert int(loss.bound) == 4  # two ratios, two ratios to the anchor
    assert float(bounded_exp(torch.tensor(1e9))) == pytest.approx(math.exp(EXPONENT_LIMIT))


@pytest.mark.parametrize("estimator", ["k2_loss", "k3_loss", "forward_kl"])
def test_descending_the_divergence_alone_lowers_it(estimator):
    logits, anchor = categorical(3)
    history = []
    for _ in range(50):
        logp = logits.log_softmax(0)
        history.append(float(divergences.generalised_kl(logp.exp(), anchor)))
        if estimator == "forward_kl":
            gradient = torch.autograd.grad(divergences.forward_kl(logp, anchor.log()), logits)[0]
        else:
            delta = anchor.log() - logp
            gradient = expected_gradient(divergences.DIFFERENTIATED[estimator](delta), logits)
        logits = (logits - 0.5 * gradient).detach().requires_grad_()
    assert history[-1] < 0.05 * history[0]


def test_reducers_by_hand():
    lengths = torch.tensor([1, 3, 4, 0])
    assert reducers.grpo(lengths).tolist() == [1 / 4, 1 / 12, 1 / 16, 1 / 4]
    assert reducers.dapo(lengths).tolist() == [1 / 8] * 4
    assert reducers.bnpo(lengths, 2).tolist() == [1 / 8, 1 / 8, 1 / 8, 1 / 8]
    assert reducers.bnpo(torch.tensor([1, 1, 4, 4]), 2).tolist() == [1 / 4, 1 / 4, 1 / 16, 1 / 16]
    assert torch.equal(reducers.bnpo(lengths, 4), reducers.dapo(lengths))
    assert reducers.dr_grpo(lengths, 10).tolist() == [1 / 40] * 4


def test_group_normalised_is_the_definition_with_ddof_1():
    rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0, 1.0]], dtype=DOUBLE)
    r = rewards.numpy()[0]
    expected = (r - r.mean()) / (r.std(ddof=1) + 1e-4)
    np.testing.assert_allclose(advantages.group_normalised(rewards).numpy()[0], expected)


@pytest.mark.parametrize("name", advantages.ADVANTAGES)
def test_equal_rewards_give_exactly_zero_even_with_rounding_noise(name):
    noise = torch.tensor([[0.1 + 0.2, 0.3, 0.3], [1.0, 0.0, 1.0], [0.7, 0.7 + 1e-9, 0.7]], dtype=DOUBLE)
    values = advantages.ADVANTAGES[name](noise)
    assert (values[[0, 2]] == 0).all()
    assert (values[1] != 0).all()
    assert values.isfinite().all()


def test_leave_one_out_is_an_unbiased_baseline():
    rewards = torch.tensor([[1.0, 0.0, 0.5, 0.0]], dtype=DOUBLE)
    r = rewards[0].tolist()
    expected = [r[i] - sum(r[:i] + r[i + 1 :]) / 3 for i in range(4)]
    assert advantages.leave_one_out(rewards)[0].tolist() == pytest.approx(expected)


def test_beta_normalised_against_scipy():
    from scipy import stats

    rewards = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]], dtype=DOUBLE)
    p = rewards.numpy().mean(1)
    m, v = p.mean(), p.var()
    a, b = m * (m * (1 - m) / v - 1), (1 - m) * (m * (1 - m) / v - 1)
    assert stats.beta(a, b).mean() == pytest.approx(m)
    assert stats.beta(a, b).var() == pytest.approx(v)
    expected = (rewards.numpy() - p[:, None]) / stats.beta(1 + a / 3, 1 + b / 3).pdf(p)[:, None]
    np.testing.assert_allclose(advantages.beta_normalised(rewards).numpy(), expected)


def test_overlong_penalty_by_hand():
    lengths = torch.tensor([50, 80, 90, 100, 120])
    torch.testing.assert_close(advantages.overlong_penalty(lengths, 100, 20), torch.tensor([0.0, 0, -0.5, -1, -1]))


def test_branch_and_clamping():
    entropy = torch.tensor([[0.0, 0.8, 1.0, 3.0]])
    raw = guides.branch(entropy, gamma=0.5, tau=0.8)
    torch.testing.assert_close(raw, torch.tensor([[1.0, 1.0, 1.1, 2.1]]))
    mask = torch.tensor([[True, True, False, True]])
    torch.testing.assert_close(guides.clamped(raw, mask, 0.6, 1.4), torch.tensor([[1.0, 1.0, 1.0, 1.4]]))


@settings(max_examples=50, deadline=None)
@given(hnp.arrays(np.float64, (3, 9), elements=st.floats(-50, 0)), hnp.arrays(bool, (3, 9)))
def test_normalised_surprisal_against_numpy(logp, mask):
    weights = guides.normalised_surprisal(torch.from_numpy(logp), torch.from_numpy(mask)).numpy()
    for i in range(3):
        values = -logp[i][mask[i]]
        if len(values) and np.quantile(values, 0.95) > np.quantile(values, 0.05):
            low, high = np.quantile(values, [0.05, 0.95])
            np.testing.assert_allclose(
                weights[i][mask[i]], (np.clip(values, low, high) - low) / (high - low), atol=1e-9
            )
        else:
            assert (weights[i] == 0).all()
        assert (weights[i][~mask[i]] == 0).all()


def test_guides_without_strength_are_exactly_one():
    logp, normal = -torch.rand(2, 4), torch.randn(2, 4)
    mask = torch.ones(2, 4, dtype=torch.bool)
    assert (guides.branch(torch.rand(2, 4) * 3, 0.0, 0.5) == 1).all()
    assert (guides.random(torch.rand(2, 4), normal, 0.0, 0.15) == 1).all()
    assert (guides.token(logp, mask, normal, 0.0, 0.0) == 1).all()


def test_moments_of_the_noisy_guides():
    generator = torch.Generator().manual_seed(1)
    shape = (50, 4000)
    uniform, normal = torch.rand(shape, generator=generator), torch.randn(shape, generator=generator)
    q = guides.random(uniform, normal, 0.1, 0.15)
    assert float((q != 1).float().mean()) == pytest.approx(0.1, abs=0.003)
    assert float(q[q != 1].std()) == pytest.approx(0.15, abs=0.003)
    logp = -torch.rand(shape, generator=generator)
    mask = torch.ones(shape, dtype=torch.bool)
    weight = guides.normalised_surprisal(logp, mask)
    q = guides.token(logp, mask, normal, 0.3, 0.25)
    top = weight == 1
    assert float(q[top].mean()) == pytest.approx(1.3, abs=0.02)
    assert float(q[top].std()) == pytest.approx(0.25, abs=0.02)


def test_annealing_falls_in_each_cycle_and_the_upper_bound_shrinks():
    values = [guides.annealed((0.1, 0.0), i, 800, 8, 0.9) for i in range(800)]
    starts = values[::100]
    assert starts == pytest.approx([0.1 * 0.9**c for c in range(8)])
    assert all(values[100 * c + i] >= values[100 * c + i + 1] for c in range(8) for i in range(99))
    assert values[50] == pytest.approx(0.05)
    assert guides.annealed((0.06, 0.05), 799, 800, 8, 0.9) >= 0.05
