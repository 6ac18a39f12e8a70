"""The engine against the model's own forward, and against itself under other batches, orders and ways to decode."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from sage import seeds
from sage.errors import UserError
from sage.rollout import Ending, Sampling, layers, transformers
from sage.rollout.transformers import TransformersEngine

SHAPE = dict(
    vocab_size=30, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=64, initializer_range=0.2, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
GPT2 = dict(vocab_size=30, n_embd=32, n_layer=2, n_head=4, n_positions=64, initializer_range=0.2, attn_pdrop=0.5)
LLAMA3 = dict(rope_type="llama3", rope_theta=100.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
LLAMA3["original_max_position_embeddings"] = 16
YARN = dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=16)
DYNAMIC = dict(rope_type="dynamic", rope_theta=100.0, factor=2.0)


def qwen2(**options):
    return Qwen2ForCausalLM(Qwen2Config(**SHAPE, **{"num_key_value_heads": 4, "tie_word_embeddings": True, **options}))


def llama(**options):
    return LlamaForCausalLM(LlamaConfig(**SHAPE, **{"num_key_value_heads": 2, "tie_word_embeddings": False, **options}))


FAST = {
    "qwen2": qwen2,
    "qwen2-one-kv-head": lambda: qwen2(num_key_value_heads=1, tie_word_embeddings=False),
    "llama": llama,
    "llama-wide-heads": lambda: llama(head_dim=16, attention_bias=True, mlp_bias=True),
    "llama3-rope": lambda: llama(rope_parameters=LLAMA3),
    "qwen2-yarn": lambda: qwen2(rope_parameters=YARN),
}
PLAIN = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**GPT2)),
    "gpt-neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SHAPE)),
    "qwen2-window": lambda: qwen2(use_sliding_window=True, sliding_window=4, max_window_layers=0),
    "llama-dynamic-rope": lambda: llama(rope_parameters=DYNAMIC),
    "llama-gelu": lambda: llama(hidden_act="gelu"),
}
PROMPTS = [[1, 5, 6, 7], [1, 9], [1, 4, 4, 8, 20, 21, 22], [1, 3, 12], [1, 9]]
SAMPLING = Sampling(max_new_tokens=40, stop=(2, 3))


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make(kind: str):
    """Return a random model; norms and biases too, which transformers would leave at one and zero."""
    torch.manual_seed(0)
    model = {**FAST, **PLAIN}[kind]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def keys(prompts, group, root=0) -> np.ndarray:
    table = [[seeds.stream(root, "test", i, j) for j in range(group)] for i in range(len(prompts))]
    return np.array(table, np.uint64).reshape(len(prompts), group)


def generate(model, group, prompts=PROMPTS, sampling=SAMPLING, batch_size=512, **options):
    return TransformersEngine(model, batch_size).generate(prompts, keys(prompts, group), sampling, **options)


def flat(groups):
    return [completion for group in groups for completion in group]


def tipped(some, others) -> int:
    """Return how many completions differ."""
    return sum(a.tokens != b.tokens for a, b in zip(flat(some), flat(others), strict=True))


def teacher_forced(model, prompt, completion, temperature=1.0) -> list[float]:
    """Return the log-probs of the completion's tokens by one full forward, without a cache."""
    ids = torch.tensor([[*prompt, *completion.tokens]])
    with torch.no_grad():
        logits = model(ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
    return (logits.double() / temperature).log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0].tolist()


def assert_log_probs_are_the_models(model, groups, temperature=1.0):
    for prompt, group in zip(PROMPTS, groups, strict=True):
        for completion in group:
            expected = teacher_forced(model, prompt, completion, temperature)
            assert completion.logprobs == pytest.approx(expected, abs=1e-5)


# --- against the model's own forward ---


@pytest.mark.parametrize("kind", [*FAST, *PLAIN])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probs_are_the_models_own(kind, temperature):
    model = make(kind)
    assert layers.supports(model) == (kind in FAST)
    groups = generate(model, 8, sampling=Sampling(40, (2, 3), temperature=temperature))
    assert [len(group) for group in groups] == [8] * 5
    assert_log_probs_are_the_models(model, groups, temperature)


@pytest.mark.parametrize("kind", ["qwen2", "llama", "gpt2"])
def test_the_cache_grows_as_far_as_completions_go(kind):
    model = make(kind)
    groups = generate(model, 3, sampling=Sampling(57, ()))
    assert {(len(c.tokens), c.finish) for c in flat(groups)} == {(57, "length")}
    assert_log_probs_are_the_models(model, groups)


def test_a_completion_ends_with_its_first_stop_token_or_at_its_length():
    completions = flat(generate(make("qwen2"), 100, sampling=Sampling(12, (2, 3))))
    for completion in completions:
        stopped = completion.tokens[-1] in (2, 3)
        assert completion.finish == ("stop" if stopped else "length")
        assert len(completion.tokens) == len(completion.logprobs)
        assert len(completion.tokens) == 12 or stopped
        assert not set(completion.tokens[:-1]) & {2, 3}
    assert {completion.finish for completion in completions} == {"stop", "length"}


@pytest.mark.parametrize("kind", ["qwen2", "gpt2"])
def test_temperature_zero_is_greedy(kind):
    model, prompt = make(kind), PROMPTS[2]
    first, second = generate(model, 2, [prompt], Sampling(20, (), temperature=0.0))[0]
    ids = list(prompt)
    for _ in range(20):
        with torch.no_grad():
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    assert first.tokens == second.tokens == ids[len(prompt) :]
    assert first.logprobs == [0.0] * 20


def test_first_and_second_tokens_have_the_models_distribution():
    model, prompt = make("qwen2"), PROMPTS[2]
    completions = flat(generate(model, 20000, [prompt], Sampling(2, ()), batch_size=10**6))
    first = [c.tokens[0] for c in completions]
    assert goodness(model, prompt, first) > 0.001
    common = int(np.bincount(first).argmax())
    assert goodness(model, [*prompt, common], [c.tokens[1] for c in completions if c.tokens[0] == common]) > 0.001


def goodness(model, prompt, drawn) -> float:
    """Return the p-value of ``drawn`` under the model's next-token distribution (chi-square; rare tokens pooled)."""
    with torch.no_grad():
        p = model(torch.tensor([prompt])).logits[0, -1].double().softmax(-1).numpy()
    observed, expected = np.bincount(drawn, minlength=len(p)), p * len(drawn)
    order = np.argsort(expected)
    pool = order[: np.searchsorted(np.cumsum(expected[order]), 5) + 1]
    rest = np.setdiff1d(order, pool)
    assert len(rest) >= 3
    observed, expected = ([*x[rest], x[pool].sum()] for x in (observed, expected))
    return stats.chisquare(observed, expected).pvalue


# --- against itself ---


@pytest.mark.parametrize("kind", ["qwen2", "llama", "gpt2"])
def test_neither_batch_nor_order_nor_company_matters(kind):
    """2,000 completions, each drawn in five kinds of company: rounding tips none of these over."""
    model, group = make(kind), 400
    whole = generate(model, group, batch_size=10**6)
    others = [generate(model, group, batch_size=size) for size in (97, 512)]
    order, table = [3, 1, 4, 0, 2], keys(PROMPTS, group)
    shuffled = TransformersEngine(model).generate([PROMPTS[i] for i in order], table[order], SAMPLING)
    others.append([shuffled[order.index(i)] for i in range(5)])
    parts = [TransformersEngine(model).generate(PROMPTS, table[:, s], SAMPLING) for s in (slice(150), slice(150, None))]
    others.append([a + b for a, b in zip(*parts, strict=True)])
    assert [tipped(whole, other) for other in others] == [0, 0, 0, 0]


@pytest.mark.parametrize("kind", FAST)
def test_the_fast_and_the_plain_loop_draw_the_same(kind, monkeypatch):
    model = make(kind)
    fast = generate(model, 100)
    monkeypatch.setattr(transformers, "supports", lambda model: False)
    plain = generate(model, 100)
    assert tipped(fast, plain) == 0
    for a, b in zip(flat(fast), flat(plain), strict=True):
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-5)


@pytest.mark.parametrize("kind", ["qwen2", "llama", "gpt2"])
@pytest.mark.parametrize("pack_at", [0.0, 0.5, 1.0])
def test_when_finished_completions_leave_does_not_matter(kind, pack_at, monkeypatch):
    model = make(kind)
    expected = generate(model, 60)
    monkeypatch.setattr(transformers, "PACK_AT", pack_at)
    assert tipped(expected, generate(model, 60)) == 0


def test_prompts_read_in_parts_and_vocabularies_drawn_in_parts_change_nothing(monkeypatch):
    model = make("llama")
    expected = generate(model, 20)
    monkeypatch.setattr("sage.rollout.decoder.PREFILL_TOKENS", 1)
    monkeypatch.setattr(transformers, "MASSES_AT_ONCE", 100)
    assert tipped(expected, generate(model, 20)) == 0


def test_equal_prompts_are_read_once(monkeypatch):
    seen = []
    start = transformers.Decoder.start
    monkeypatch.setattr(
        transformers.Decoder, "start", lambda self, p, owners: seen.append(list(p)) or start(self, p, owners)
    )
    generate(make("qwen2"), 4)
    assert seen == [[(1, 9), (1, 3, 12), (1, 5, 6, 7), (1, 4, 4, 8, 20, 21, 22)]]


@pytest.mark.parametrize("kind", ["qwen2", "gpt2"])
def test_one_seed_gives_the_same_bytes_and_another_other_completions(kind):
    model, sampling = make(kind), Sampling(40, ())
    first = generate(model, 8, sampling=sampling)
    torch.manual_seed(99)  # nobody draws from the global generator
    assert pickle.dumps(generate(model, 8, sampling=sampling)) == pickle.dumps(first)
    other = TransformersEngine(model).generate(PROMPTS, keys(PROMPTS, 8, root=1), sampling)
    assert tipped(first, other) == len({tuple(c.tokens) for c in flat(first)}) == 40


# --- the weights it reads ---


class Adapted(nn.Module):
    """A linear map with a low-rank one beside it, as an adapter makes them."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.low = nn.Sequential(
            nn.Linear(base.in_features, 2, bias=False), nn.Linear(2, base.out_features, bias=False)
        )

    def forward(self, x):
        return self.base(x) + self.low(x)


def test_adapters_are_called(monkeypatch):
    model = make("llama")
    before = generate(model, 8)
    for layer in model.model.layers:
        layer.self_attn.q_proj, layer.mlp.down_proj = Adapted(layer.self_attn.q_proj), Adapted(layer.mlp.down_proj)
    assert layers.supports(model)
    groups = generate(model, 8)
    assert tipped(before, groups) > 0
    assert_log_probs_are_the_models(model, groups)


@pytest.mark.parametrize("kind", FAST)
def test_large_models_are_decoded_without_copies(kind, monkeypatch):
    model = make(kind)
    fused = generate(model, 40)
    monkeypatch.setattr(layers, "FUSED_BELOW", 0)
    live = generate(model, 40)
    assert tipped(fused, live) == 0
    assert_log_probs_are_the_models(model, live)


@pytest.mark.parametrize(("kind", "fused_below"), [("qwen2", layers.FUSED_BELOW), ("qwen2", 0), ("gpt2", 0)])
def test_the_engine_reads_live_weights(kind, fused_below, monkeypatch):
    monkeypatch.setattr(layers, "FUSED_BELOW", fused_below)
    model = make(kind)
    engine, table = TransformersEngine(model), keys(PROMPTS, 4)
    for parameter in list(model.parameters())[:: 1 if kind == "qwen2" else 7]:
        before = engine.generate(PROMPTS, table, SAMPLING)
        with torch.no_grad():
            parameter.mul_(-1.5).add_(0.1)
        after = engine.generate(PROMPTS, table, SAMPLING)
        assert after == TransformersEngine(copy.deepcopy(model)).generate(PROMPTS, table, SAMPLING)
        assert [c.logprobs for c in flat(before)] != [c.logprobs for c in flat(after)]


def test_dropout_is_off_while_sampling_and_on_again_after():
    model = make("gpt2")
    expected = generate(model, 8)
    model.train()
    model.transformer.h[0].eval()
    modes = [module.training for module in model.modules()]
    assert generate(model, 8) == expected
    assert [module.training for module in model.modules()] == modes


# --- its manners ---


@pytest.mark.parametrize("kind", ["qwen2", "gpt2"])
def test_progress_counts_every_completion(kind):
    seen = []
    generate(make(kind), 6, batch_size=8, progress=seen.append)
    assert sum(seen) == 30
    assert len(seen) >= 4


@pytest.mark.parametrize(("prompts", "group"), [([], 3), ([[1]], 0)])
def test_nothing_asked_nothing_given(prompts, group):
    assert generate(make("qwen2"), group, prompts) == [[] for _ in prompts]


@pytest.mark.parametrize("prompt", [[], [1] * 25])
@pytest.mark.parametrize("kind", ["qwen2", "gpt2"])
def test_prompts_that_leave_no_room_are_refused(kind, prompt):
    with pytest.raises(UserError, match=r"prompt 1 has \d+ tokens.*leave room for 1 to 24; shorten"):
        generate(make(kind), 2, [[1, 2], prompt])


def test_longest_prompt_and_completion_fit_exactly():
    model, prompt = make("qwen2"), [1] * 24
    completion = generate(model, 1, [prompt], Sampling(40, ()))[0][0]
    assert completion.logprobs == pytest.approx(teacher_forced(model, prompt, completion), abs=1e-5)


def test_what_cannot_be_done_is_refused():
    with pytest.raises(UserError, match="max_new_tokens: 64 of the model's 64 positions"):
        generate(make("qwen2"), 2, sampling=Sampling(64, ()))
    with pytest.raises(UserError, match="batch_size: 0"):
        generate(make("qwen2"), 2, batch_size=0)
    with pytest.raises(ValueError, match="keys must be uint64"):
        TransformersEngine(make("qwen2")).generate(PROMPTS, np.zeros((5, 2)), SAMPLING)


def test_a_model_without_a_cache_of_keys_is_refused():
    model = MambaForCausalLM(MambaConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, state_size=4)).eval()
    with pytest.raises(UserError, match="MambaForCausalLM keeps no keys and values"):
        generate(model, 2)


def test_weights_that_are_not_numbers_stop_with_one_line():
    model = make("qwen2")
    with torch.no_grad():
        model.model.norm.weight.fill_(torch.nan)
    with pytest.raises(UserError, match="logits are not finite"):
        generate(model, 2)


@pytest.mark.parametrize("batch_size", [1, 7, 512])
def test_a_completion_ends_with_the_token_that_completes_a_text(batch_size):
    """Each token is a letter here; without an ending, the same draws go on."""
    model = make("llama")

    def text(tokens):
        return "".join(chr(ord("A") + token) for token in tokens)

    plain = flat(generate(model, 20))
    wanted = text(next(c.tokens for c in plain if len(c.tokens) > 6)[3:5])
    ending = Ending(wanted, lambda tokens: wanted in text(tokens))
    sampling = replace(SAMPLING, ending=ending)
    cut = flat(generate(model, 20, sampling=sampling, batch_size=batch_size))
    ends = [text(completion.tokens).find(wanted) for completion in plain]
    assert [c.tokens for c in cut] == [
        c.tokens if end < 0 else c.tokens[: end + 2] for c, end in zip(plain, ends, strict=True)
    ]
    assert all(c.finish == "stop" for c, end in zip(cut, ends, strict=True) if end >= 0)
    assert any(end >= 0 and p.tokens != c.tokens for p, c, end in zip(plain, cut, ends, strict=True))
