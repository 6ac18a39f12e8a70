"""The learning rate as a function of the step, and the optimiser's kinds."""

import pytest
import torch

from sage.config import Optimiser
from sage.errors import UserError
from sage.train.optim import learning_rate, make_optimiser


def config(**changes) -> Optimiser:
    options = dict(lr=1.0, schedule="constant", warmup=0.0, weight_decay=0.0, max_grad_norm=1.0, betas=[0.9, 0.99])
    return Optimiser(**{**options, **changes})


def rates(steps, **changes):
    return [learning_rate(config(**changes), step, steps) for step in range(steps)]


def test_a_linear_schedule_falls_evenly_after_its_warm_up():
    assert rates(6, schedule="linear", warmup=2.0) == pytest.approx([0.5, 1.0, 1.0, 0.75, 0.5, 0.25])


def test_a_warm_up_is_a_share_or_a_number_of_steps():
    assert rates(10, warmup=0.5) == rates(10, warmup=5.0) == pytest.approx([0.2, 0.4, 0.6, 0.8, *[1.0] * 6])
    assert rates(10, warmup=0.0) == [1.0] * 10


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_moments_in_8_bits_need_a_device():
    with pytest.raises(UserError, match="adamw_8bit needs a CUDA device, and there is none; say `adamw`"):
        make_optimiser([torch.nn.Parameter(torch.zeros(2, 2))], config(kind="adamw_8bit"))
