"""vLLM under the contract of engines: streams, log-probs, filters, ends; and under weights that change."""

import shutil
from itertools import pairwise

import numpy as np
import pytest
import torch
from byte_model import llama, tokenizer

from sage import seeds
from sage.config import Adapter
from sage.errors import UserError
from sage.policy import adapter as adapters
from sage.policy.forward import collate, hidden_rows, score
from sage.policy.model import load_model, save
from sage.policy.tokens import ending
from sage.rollout import Sampling
from sage.rollout.sampling import masses
from sage.rollout.vllm import Settings, VllmEngine
from sage.train import sync
from sage.train.sync import Sync

# float32; weights with a standard deviation of 0.3 make log-probs down to -60
EXACT = 1e-4
PROMPTS = [[1, 70, 80, 90], [1, 100, 110, 120, 130], [1, 60]]
LORA = Adapter(r=2, alpha=4, dropout=0, targets=["q_proj", "o_proj", "gate_proj", "down_proj"])
MEMORY = 2**28


def keys(group: int, root: int = 0) -> np.ndarray:
    return np.array([[seeds.stream(root, "test", p, i) for i in range(group)] for p in range(3)], np.uint64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    # vLLM has no attention on CPUs for heads of fewer than 32 coordinates.
    save(folder, llama(hidden_size=64, num_attention_heads=2, num_key_value_heads=1), tokenizer())
    return folder


@pytest.fixture(scope="module")
def engine(folder):
    engine = VllmEngine(Settings(folder, sequences=64, cache=MEMORY, rank=LORA.r))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def whole(folder):
    """An engine without adapters, whose weights are exchanged."""
    engine = VllmEngine(Settings(folder, sequences=64, cache=MEMORY))
    yield engine
    engine.close()


def flat(groups, prompts=PROMPTS):
    return [(prompt, c) for prompt, group in zip(prompts, groups, strict=True) for c in group]


def largest_difference(model, groups, temperature=1.0, prompts=PROMPTS) -> float:
    pairs = flat(groups, prompts)
    batch = collate([p for p, _ in pairs], [c.tokens for _, c in pairs])
    theirs = batch.padded(torch.tensor([value for _, c in pairs for value in c.logprobs]))
    with torch.no_grad():
        return float((score(model, batch, temperature).logp - theirs)[batch.mask].abs().max())


def test_one_seed_twice_is_identical_and_two_are_not(engine):
    sampling = Sampling(24, (2,))
    first, again = (engine.generate(PROMPTS, keys(6), sampling) for _ in range(2))
    assert first == again
    assert engine.generate(PROMPTS, keys(6, root=1), sampling) != first
    for group in first:
        assert len({tuple(c.tokens) for c in group}) == len(group)


def test_a_completion_depends_on_its_key_and_not_on_its_batch(engine):
    sampling = Sampling(24, (2,))
    whole = engine.generate(PROMPTS, keys(6), sampling)
    one = engine.generate([PROMPTS[1]], keys(6)[1:2, 3:4], sampling)
    assert one[0][0].tokens == whole[1][3].tokens


def test_prompts_that_do_not_fit_into_one_step(engine, folder):
    """4,096 tokens do; a prompt that was cut there would need what generators on CPUs have not."""
    prompts = [[1, *[70 + i] * 298] for i in range(20)]
    drawn = np.array([[seeds.stream(0, "test", i, j) for j in range(2)] for i in range(20)], np.uint64)
    groups = engine.generate(prompts, drawn, Sampling(4, ()))
    assert largest_difference(load_model(folder), groups, prompts=prompts) < EXACT


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_are_the_trainers(engine, folder, temperature):
    groups = engine.generate(PROMPTS, keys(8), Sampling(32, (2,), temperature=temperature))
    assert largest_difference(load_model(folder), groups, temperature) < EXACT


@pytest.mark.parametrize("cut", [{"min_p": 0.1}, {"top_p": 0.8}, {"min_p": 0.02, "top_p": 0.9, "temperature": 0.6}])
def test_log_probs_are_those_of_the_cut_distribution(engine, folder, cut):
    sampling, model = Sampling(16, (2,), **cut), load_model(folder)
    pairs = flat(engine.generate(PROMPTS, keys(8), sampling))
    batch = collate([p for p, _ in pairs], [c.tokens for _, c in pairs])
    with torch.no_grad():
        mass = masses(model.lm_head(hidden_rows(model, batch)), sampling)
    expected = (mass / mass.sum(-1, keepdim=True)).gather(-1, batch.targets[:, None])[:, 0].log()
    theirs = torch.tensor([value for _, c in pairs for value in c.logprobs])
    assert (expected - theirs).abs().max() < EXACT  # also: no token was drawn that was cut off
    assert (theirs <= 0).all()


def test_ends(engine):
    free = engine.generate(PROMPTS, keys(4), Sampling(24, ()))
    assert all(c.finish == "length" and len(c.tokens) == len(c.logprobs) == 24 for _, c in flat(free))
    stop = free[0][0].tokens[5]
    for (_, before), (_, after) in zip(
        flat(free), flat(engine.generate(PROMPTS, keys(4), Sampling(24, (stop,)))), strict=True
    ):
        ends = stop in before.tokens
        length = before.tokens.index(stop) + 1 if ends else 24
        assert after.tokens == before.tokens[:length]
        assert after.finish == ("stop" if ends else "length")


def test_a_text_ends_a_completion_and_is_kept(engine):
    from types import SimpleNamespace

    made = tokenizer()
    free = engine.generate(PROMPTS, keys(4), Sampling(24, ()))
    text = made.decode(free[2][1].tokens[6:8])
    sampling = Sampling(24, (), ending=ending(made, SimpleNamespace(stop=text)))
    found = engine.generate(PROMPTS, keys(4), sampling)[2][1]
    assert found.finish == "stop"
    assert found.tokens == free[2][1].tokens[: len(found.tokens)]
    assert made.decode(found.tokens).endswith(text)
    assert len(found.tokens) <= 8


def test_temperature_0_is_the_mode(engine, folder):
    groups = engine.generate(PROMPTS, keys(2), Sampling(8, (), temperature=0))
    assert all(a.tokens == b.tokens and set(a.logprobs) == {0.0} for a, b in groups)


def test_progress_adds_up(engine):
    counts = []
    engine.generate(PROMPTS, keys(5), Sampling(12, (2,)), progress=counts.append)
    assert sum(counts) == 15
    assert min(counts) > 0


@pytest.mark.parametrize("prompt", [[], [1] * 2048])
def test_a_prompt_that_has_no_room_is_an_error(engine, prompt):
    with pytest.raises(UserError, match=f"prompt 1 has {len(prompt)} tokens"):
        engine.generate([[1], prompt, [1]], keys(1), Sampling(8, ()))


def test_adapters_follow_one_another(folder):
    engine = VllmEngine(Settings(folder, sequences=16, cache=MEMORY, rank=LORA.r))
    policy = load_model(folder)
    handle = adapters.add(policy, LORA, seed=0)
    over = Sync(engine, policy, handle, PROMPTS, EXACT)
    draw, found = torch.Generator().manual_seed(0), []
    for step in range(3):
        assert over.run(step) < EXACT
        found.append(engine.generate(PROMPTS, keys(4), Sampling(24, (2,))))
        assert largest_difference(policy, found[-1]) < EXACT
        assert not list(sync.MEMORY.glob(f"{sync.PREFIX}*"))
        with torch.no_grad():
            for name, weight in policy.named_parameters():
                if "lora_B" in name:
                    weight.add_(torch.randn(weight.shape, generator=draw), alpha=0.1)
    assert all(a != b for a, b in pairwise(found))
    with pytest.raises(
        UserError, match=r"step 9: log-probs of vLLM and trainer differ by .* rollout.tolerance \(0.0001\)"
    ):
        over.engine = _Deaf(engine)
        over.run(9)
    engine.close()


class _Deaf:
    """An engine that goes on with stale weights."""

    def __init__(self, engine) -> None:
        self.engine = engine

    def __getattr__(self, name):
        return (lambda folder: None) if name.startswith("load_") else getattr(self.engine, name)


def test_all_weights_follow_the_policy(whole, folder):
    """Each kind of them: the embedding is the head, too, and norms, biases and packed matrices are read in other ways."""
    before = whole.generate(PROMPTS, keys(4), Sampling(24, (2,)))
    draw = torch.Generator().manual_seed(0)
    for part in ("embed_tokens", "q_proj", "down_proj", "norm", ""):
        policy = load_model(folder)
        with torch.no_grad():
            for name, weight in policy.named_parameters():
                if part in name:
                    weight.add_(torch.randn(weight.shape, generator=draw), alpha=0.1)
        over = Sync(whole, policy, None, PROMPTS, EXACT)
        assert over.run(0) < EXACT
    assert largest_difference(policy, whole.generate(PROMPTS, keys(4), Sampling(24, (2,)))) < EXACT
    over.policy = load_model(folder)
    with pytest.raises(UserError, match="vLLM has other weights"):
        over.engine = _Deaf(whole)
        over.run(1)
    over.engine = whole
    over.run(2)
    assert whole.generate(PROMPTS, keys(4), Sampling(24, (2,))) == before


def test_weights_that_a_killed_trainer_left_are_swept():
    left = sync.MEMORY / f"{sync.PREFIX}{2**22 + 1}-test"  # more than the most that Linux gives to a process
    left.mkdir(exist_ok=True)
    sync.sweep()
    assert not left.exists()


def test_a_cache_that_holds_no_sequence_names_its_key(folder):
    with pytest.raises(UserError, match=r"raise rollout.cache_gib; vLLM: .*cache"):
        VllmEngine(Settings(folder, sequences=4, cache=2**16))


def test_what_vllm_refuses_is_one_line(folder, tmp_path):
    broken = tmp_path / "model"
    shutil.copytree(folder, broken)
    (broken / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(UserError, match="vLLM: "):
        VllmEngine(Settings(broken, sequences=4, cache=MEMORY))
