"""Adapters: the same bytes from the same seed, the anchor as the adapter switched off, merging, and going on."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from byte_model import llama, make_folder
from test_update import GUIDES, K3, OPTIMISER, experience, objective, rl
from torch.optim import SGD

from sage import config, seeds
from sage.errors import UserError
from sage.policy import adapter, model
from sage.policy.forward import collate, head_of, target_logp
from sage.train.optim import make_optimiser
from sage.train.state import Clock, State, load_state, save_state, unfrozen
from sage.train.update import Updater

LORA = config.Adapter(r=2, alpha=4, dropout=0, targets=["up_proj", "q_proj", "v_proj"])
BATCH = collate([[1, 5, 6], [1, 7]], [[8, 9, 2], [10]])
ROOT = Path(__file__).parents[2]


def logp(model):
    return target_logp(head_of(model, BATCH), BATCH.targets, 1.0)


def test_a_new_adapter_changes_no_bit():
    plain, policy = llama(), llama()
    adapter.add(policy, LORA, seed=3)
    with torch.no_grad():
        assert torch.equal(logp(policy), logp(plain))


def hashes(folder):
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


def test_the_same_seed_gives_the_same_bytes_in_any_process(tmp_path):
    """Sets of text have another order in each process."""
    make_folder(tmp_path / "base")
    script = (
        "import sys; from pathlib import Path; from sage import config; from sage.policy import adapter, model;"
        "made = model.load_model(Path('base'));"
        f"lora = config.Adapter(**{LORA.model_dump()!r});"
        "adapter.save(Path(sys.argv[1]), adapter.add(made, lora, int(sys.argv[2])))"
    )
    for name, seed, order in (("a", "3", "1"), ("b", "3", "2"), ("c", "4", "1")):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": order}
        command = [sys.executable, "-c", script, name, seed]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    found = {name: hashes(tmp_path / name) for name in "abc"}
    assert set(found["a"]) == {"adapter_config.json", "adapter_model.safetensors"}
    assert found["a"] == found["b"]
    assert found["a"]["adapter_model.safetensors"] != found["c"]["adapter_model.safetensors"]


def test_the_draws_reach_nobody_else():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    adapter.add(llama(), LORA, seed=3)
    assert torch.equal(torch.rand(3), expected)


@pytest.fixture
def policy():
    made = llama()
    return made, adapter.add(made, LORA, seed=3)


def updater(policy, handle, **changes):
    aims = objective(kl=K3, guide="branch")
    optimiser = make_optimiser(policy.parameters(), OPTIMISER)
    return Updater(policy, adapter.AdapterOff(handle), optimiser, aims, GUIDES, rl(**changes))


def test_the_divergence_is_0_before_the_first_update_and_not_after_it(policy):
    made, handle = policy
    before = adapter.frozen_hash(made)
    flat = GUIDES.model_copy(update={"branch": config.Branch(gamma=0.0, tau=0.0)})
    run = updater(made, handle)
    run.shaper.config = flat
    data = experience(made)
    assert run.run(data, 0, Clock("anchor", "update"))["kl"] == 0.0
    assert run.run(data, 1, Clock("anchor", "update"))["kl"] > 0.0
    assert adapter.check_unchanged(made, before) == before
    with torch.no_grad():
        assert torch.equal(logp(adapter.AdapterOff(handle)), logp(llama()))
        assert not torch.equal(logp(made), logp(llama()))


def test_asking_the_anchor_leaves_the_adapter_to_be_trained(policy):
    made, handle = policy
    trained = [name for name, weight in made.named_parameters() if weight.requires_grad]
    logp(adapter.AdapterOff(handle))
    assert [name for name, weight in made.named_parameters() if weight.requires_grad] == trained
    assert trained
    assert all("lora_" in name for name in trained)


def test_the_hash_is_that_of_the_model_without_an_adapter(policy):
    made, _ = policy
    assert adapter.frozen_hash(made) == adapter.frozen_hash(llama().requires_grad_(False))
    assert adapter.frozen_hash(made) != adapter.frozen_hash(llama(seed=1).requires_grad_(False))


def test_an_anchor_that_has_changed_is_told(policy):
    made, _ = policy
    before = adapter.frozen_hash(made)
    with torch.no_grad():
        made.model.norm.weight[0] += 1e-6
    with pytest.raises(UserError, match="anchor's weights have changed"):
        adapter.check_unchanged(made, before)


def test_a_saved_adapter_is_loaded_merged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = make_folder(Path("base"))
    made = model.load_model(base)
    handle = adapter.add(made, LORA, seed=3)
    updater(made, handle).run(experience(made), 0, Clock("anchor", "update"))
    adapter.save(Path("adapter"), handle)
    loaded = model.load_model(Path("adapter"))
    assert type(loaded) is type(llama())
    with torch.no_grad():
        expected, plain = logp(made), logp(llama())
        torch.testing.assert_close(logp(loaded), expected, rtol=1e-4, atol=1e-4)
    assert (expected - plain).abs().max() > 1e-2


def test_a_state_keeps_the_adapter_alone(tmp_path, policy):
    made, handle = policy
    run = updater(made, handle)
    run.run(experience(made), 0, Clock("anchor", "update"))
    assert unfrozen(made)
    assert all("lora_" in name for name in unfrozen(made))
    save_state(tmp_path, State(step=1), made, run.optimiser)
    again = llama()
    adapter.add(again, LORA, seed=9)
    assert load_state(tmp_path, again, make_optimiser(again.parameters(), OPTIMISER)).step == 1
    with torch.no_grad():
        assert torch.equal(logp(again), logp(made))


def test_a_whole_model_keeps_its_whole_state():
    made = llama()
    assert unfrozen(made).keys() == made.state_dict().keys()


def test_seeds_of_other_runs_give_other_adapters():
    def first(seed):
        made = llama()
        adapter.add(made, LORA, seeds.root("suite", seed))
        return next(weight for name, weight in made.named_parameters() if "lora_A" in name)

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))


def test_with_min_p_the_ratio_begins_at_1(policy):
    """The engine's log-probs are those of the cut distribution, which are higher than the policy's."""
    made, handle = policy
    data = experience(made)
    for completion in data.completions:
        completion.logprobs[:] = [logp + 0.5 for logp in completion.logprobs]
    run = updater(made, handle, updates=2, min_p=0.1)
    run.optimiser = SGD([p for p in made.parameters() if p.requires_grad], lr=0.0)  # the policy stays what it was
    run.config = run.config.model_copy(update={"optimiser": OPTIMISER.model_copy(update={"lr": 1e-30})})
    logged = run.run(data, 0, Clock("anchor", "update"))
    assert logged["clip_fraction"] == 0.0
    assert logged["mismatch_max"] < 1e-5
    assert updater(made, handle, updates=2).run(data, 0, Clock("anchor", "update"))["mismatch_max"] > 0.49
