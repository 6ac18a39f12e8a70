"""The head in chunks against all logits at once: values, gradients, extremes, memory."""

import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sage.objective.divergences import forward_kl
from sage.policy import head
from sage.policy.head import head_scores


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(head, "CHUNK_BYTES", 4 * 50 * 3)  # three rows of 50 words
    monkeypatch.setattr(head, "CAST_ROWS", 16)


def plain(hidden, weight, targets, temperature, anchor=None):
    logits = hidden.float() @ weight.float().T
    logp = logits.log_softmax(-1)
    hot = (logits / temperature).log_softmax(-1)
    forward = None
    if anchor:
        forward = forward_kl(hot, (anchor[0].float() @ anchor[1].float().T / temperature).log_softmax(-1))
    return hot.gather(-1, targets[:, None])[:, 0], -(logp.exp() * logp).sum(-1), forward


def case(seed, rows=10, width=8, words=50, scale=1.0, dtype=torch.float32):
    draw = torch.Generator().manual_seed(seed)
    hidden = (torch.randn(rows, width, generator=draw) * scale).to(dtype)
    weight = torch.randn(words, width, generator=draw).to(dtype)
    targets = torch.randint(words, (rows,), generator=draw)
    anchor = ((torch.randn(rows, width, generator=draw) * scale).to(dtype), weight.clone())
    return hidden, weight, targets, anchor


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("with_anchor", [False, True])
def test_values_and_gradients_are_those_of_the_plain_path(temperature, trained, with_anchor):
    hidden, weight, targets, anchor = case(1)
    anchor = anchor if with_anchor else None
    coefficients = torch.randn(3, len(targets), generator=torch.Generator().manual_seed(2))
    gradients = []
    for chunked in (True, False):
        h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_(trained)
        if chunked:
            scores = head_scores(h, w, targets, temperature, anchor=anchor, entropy_grad=True)
            values = (scores.logp, scores.entropy, scores.forward)
        else:
            values = plain(h, w, targets, temperature, anchor)
        total = sum((c * v).sum() for c, v in zip(coefficients, values, strict=True) if v is not None)
        total.backward()
        gradients.append((values, h.grad, w.grad))
    (ours, to_hidden, to_weight), (theirs, expected_hidden, expected_weight) = gradients
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine is None) == (other is None)
        if mine is not None:
            torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(to_hidden, expected_hidden, rtol=1e-4, atol=1e-5)
    assert (to_weight is None) == (not trained)
    if trained:
        torch.testing.assert_close(to_weight, expected_weight, rtol=1e-4, atol=1e-5)


def test_gradients_are_those_of_finite_differences():
    hidden, weight, targets, anchor = case(3, rows=4, width=3, words=6)

    def value(h, w):
        scores = head_scores(h.float(), w.float(), targets[:4] % 6, 0.7, anchor=anchor, entropy_grad=True)
        return (scores.logp + 0.3 * scores.entropy + 0.5 * scores.forward).sum().double()

    for which in (0, 1):
        inputs = [hidden.double(), weight.double()]
        inputs[which].requires_grad_()
        value(*inputs).backward()
        exact = inputs[which].grad
        for index in [(0, 0), (1, 2), (3, 1)]:
            step = torch.zeros_like(inputs[which])
            step[index] = 1e-2
            moved = [
                [x.detach() + (step if i == which else 0) * sign for i, x in enumerate(inputs)] for sign in (1, -1)
            ]
            numeric = (value(*moved[0]) - value(*moved[1])) / 2e-2
            assert float(numeric) == pytest.approx(float(exact[index]), rel=1e-2, abs=1e-3)


def test_the_entropy_is_left_out_where_it_is_not_wanted():
    hidden, weight, targets, anchor = case(4)
    with_it, without = (head_scores(hidden, weight, targets, 0.7, anchor=anchor, entropy=e) for e in (True, False))
    assert without.entropy is None
    assert torch.equal(without.logp, with_it.logp)
    assert torch.equal(without.forward, with_it.forward)


def test_the_entropy_has_no_gradient_unless_asked_for():
    hidden, weight, targets, _ = case(4)
    scores = head_scores(hidden.requires_grad_(), weight, targets)
    assert not scores.entropy.requires_grad
    assert scores.forward is None


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), exponent=st.floats(-3, 4), temperature=st.sampled_from([0.3, 1.0, 2.0]))
def test_extreme_logits_stay_inside_their_bounds(seed, exponent, temperature):
    hidden, weight, targets, anchor = case(seed, scale=10.0**exponent)
    hidden.requires_grad_()
    scores = head_scores(hidden, weight, targets, temperature, anchor=anchor, entropy_grad=True)
    assert bool((scores.logp <= 0).all())
    assert bool((scores.entropy >= 0).all())
    assert bool((scores.entropy <= math.log(50) + 1e-5).all())
    assert bool((scores.forward >= 0).all())
    (scores.logp + scores.entropy + scores.forward).sum().backward()
    assert bool(hidden.grad.isfinite().all())
    assert bool(torch.isfinite(scores.logp).all())


def test_a_masked_out_word_is_no_nan():
    hidden, weight, targets, _ = case(5)
    hidden[:, 0], weight[:, 0], weight[7, 0] = 1.0, 0.0, -torch.inf
    targets[targets == 7] = 8
    hidden.requires_grad_()
    scores = head_scores(hidden, weight, targets, entropy_grad=True)
    assert bool(scores.entropy.isfinite().all())
    reference = plain(hidden, torch.cat([weight[:7], weight[8:]]), targets - (targets > 7).long(), 1.0)
    torch.testing.assert_close(scores.entropy, reference[1], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(scores.logp, reference[0], rtol=1e-5, atol=1e-6)


def test_half_precision_is_summed_in_float32():
    hidden, weight, targets, _ = case(6, width=64, dtype=torch.bfloat16)
    scores = head_scores(hidden.requires_grad_(), weight, targets, entropy_grad=True)
    logp, entropy, _ = plain(hidden.detach(), weight, targets, 1.0)
    assert scores.logp.dtype == torch.float32
    torch.testing.assert_close(scores.logp, logp, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(scores.entropy, entropy, rtol=1e-5, atol=1e-5)
    scores.logp.sum().backward()
    assert hidden.grad.dtype == torch.bfloat16


MEMORY = """
import resource, sys, torch
from sage.policy import head
from sage.policy.head import head_scores
head.CHUNK_BYTES = 2**24
torch.set_num_threads(1)
hidden, weight = torch.randn(1024, 64, requires_grad=True), torch.randn(100_000, 64)
targets = torch.arange(1024)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
head_scores(hidden[:8], weight, targets[:8]).logp.sum().backward()
before = peak()
head_scores(hidden, weight, targets).logp.sum().backward()
print(peak() - before)
"""


def test_memory_is_that_of_a_few_chunks():
    """All logits would be 410 MB, and their softmax and its gradient as much again."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.25 * 410
