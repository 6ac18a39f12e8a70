"""The sampled distribution against a float64 reference in numpy, and the draws at its edges."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sage.errors import UserError
from sage.rollout import Sampling
from sage.rollout.sampling import draw, masses

LOGITS = hnp.arrays(np.float32, 9, elements=st.floats(-30, 30, width=32))
UNIFORM = st.floats(0, 1, exclude_min=True)  # 1 itself too: 1 - 2**-54 rounds to it


def found(logits, sampling) -> np.ndarray:
    mass = masses(torch.from_numpy(np.atleast_2d(logits)), sampling)
    return (mass / mass.sum(-1, keepdim=True)).numpy()


def reference(logits, temperature, top_p, min_p) -> np.ndarray:
    """Return the filtered distribution by sorting and loops."""
    z = logits.astype(float) / temperature
    p = np.exp(z - z.max())
    p /= p.sum()
    kept = {v for v in range(len(p)) if p[v] >= min_p * p.max()}
    p = np.array([p[v] if v in kept else 0.0 for v in range(len(p))])
    p /= p.sum()
    mass, nucleus = 0.0, set()
    for v in sorted(range(len(p)), key=lambda v: (-p[v], v)):
        if mass >= top_p:
            break
        nucleus.add(v)
        mass += p[v]
    p = np.array([p[v] if v in nucleus else 0.0 for v in range(len(p))])
    return p / p.sum()


def borderline(logits, temperature, top_p, min_p) -> bool:
    """Return whether rounding may decide if a token is kept: at a threshold, or nearly as likely as another one."""
    z = logits.astype(float) / temperature
    apart = np.diff(np.sort(z))
    if ((apart > 0) & (apart < 1e-9)).any():
        return True
    p = np.exp(z - z.max())
    ordered = np.sort(p[p >= min_p])[::-1]
    borders = np.cumsum(ordered) / ordered.sum()
    return bool(np.abs(p / max(min_p, 1e-300) - 1).min() < 1e-9 or np.abs(borders[:-1] - top_p).min(initial=1.0) < 1e-9)


@settings(max_examples=300, deadline=None)
@given(LOGITS, st.floats(0.1, 3), st.sampled_from([1.0, 0.95, 0.5, 0.01]), st.sampled_from([0.0, 0.01, 0.3, 0.99]))
def test_filters_against_the_reference(logits, temperature, top_p, min_p):
    assume(not borderline(logits, temperature, top_p, min_p))
    sampling = Sampling(1, (), temperature=temperature, top_p=top_p, min_p=min_p)
    np.testing.assert_allclose(found(logits, sampling)[0], reference(logits, temperature, top_p, min_p), atol=1e-12)


@settings(max_examples=200, deadline=None)
@given(LOGITS, UNIFORM, st.sampled_from([1.0, 0.8]), st.sampled_from([0.0, 0.1]))
@example(np.array([0, 0, 0, -200], np.float32), 1.0, 1.0, 0.0)
def test_a_draw_is_the_inverse_of_the_cumulative_function(logits, u, top_p, min_p):
    sampling = Sampling(1, (), top_p=top_p, min_p=min_p)
    mass = masses(torch.from_numpy(logits)[None], sampling)
    tokens, logprobs = draw(mass, torch.tensor([u], dtype=torch.double))
    p, token = found(logits, sampling)[0], int(tokens[0])
    cumulative = np.concatenate([[0.0], np.cumsum(p)])
    assert p[token] > 0
    assert cumulative[token] <= u + 1e-12
    assert cumulative[token + 1] >= u - 1e-12
    assert float(logprobs[0]) == pytest.approx(math.log(p[token]), abs=1e-12)


def test_draws_never_take_a_token_of_no_mass():
    mass = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]]).double().expand(5, 5)
    tokens, logprobs = draw(mass, torch.tensor([1e-17, 0.5, 0.4999999, 1 - 1e-16, 1.0], dtype=torch.double))
    assert tokens.tolist() == [1, 3, 1, 3, 3]
    assert logprobs.tolist() == pytest.approx([math.log(0.5)] * 5)


def test_min_p_is_a_share_of_the_likeliest_token():
    p = np.array([0.5, 0.26, 0.24])
    assert found(np.log(p), Sampling(1, (), min_p=0.5))[0] == pytest.approx([0.5 / 0.76, 0.26 / 0.76, 0])


@pytest.mark.parametrize(("top_p", "kept"), [(0.2, 1), (0.25, 1), (0.26, 2), (0.5, 2), (0.75, 3), (0.76, 4), (1.0, 4)])
def test_top_p_keeps_the_smallest_set_and_of_equals_the_first(top_p, kept):
    p = found(np.zeros(4, np.float32), Sampling(1, (), top_p=top_p))[0]
    assert p == pytest.approx([1 / kept] * kept + [0] * (4 - kept))


def test_temperature_comes_before_the_filters():
    logits = np.log(np.array([0.6, 0.3, 0.1]))
    assert found(logits, Sampling(1, (), temperature=0.5, min_p=0.4))[0] == pytest.approx([1, 0, 0])
    assert (found(logits, Sampling(1, (), temperature=2.0, min_p=0.4))[0] > 0).all()


def test_temperature_zero_is_the_mode():
    logits = torch.tensor([[0.0, 3.0, 1.0], [2.0, -1.0, 2.0]])
    tokens, logprobs = draw(masses(logits, Sampling(1, (), temperature=0.0)), torch.tensor([0.999, 0.5]).double())
    assert tokens.tolist() == [1, 0]
    assert logprobs.tolist() == [0.0, 0.0]


def test_extreme_logits_are_exact_and_infinite_ones_are_refused():
    p = found(np.array([[1e30, -1e30, 1e30], [-1e4, -1e4, -np.inf]], np.float32), Sampling(1, ()))
    assert p.tolist() == [[0.5, 0, 0.5], [0.5, 0.5, 0]]
    for bad in ([np.nan, 0, 0], [np.inf, 0, 0], [-np.inf] * 3):
        for temperature in (0.0, 1.0):
            with pytest.raises(UserError, match="logits are not finite"):
                found(np.array(bad, np.float32), Sampling(1, (), temperature=temperature))


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"min_p": 1.0}, "min_p"),
        ({"min_p": -0.1}, "min_p"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
    ],
)
def test_impossible_sampling_is_refused(changes, key):
    with pytest.raises(UserError, match=key):
        Sampling(**{"max_new_tokens": 4, "stop": (), **changes})
