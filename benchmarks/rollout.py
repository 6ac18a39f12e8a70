"""Tokens a second of the rollout engine beside transformers' ``generate``, in the same run, on a laptop-sized model.

Each round times the fast decoder, the plain cached loop that other architectures get, and ``model.generate``; the ratios
are taken within a round, and their medians printed. Tokens are those up to and with the stop token: what follows a
completion's end counts for nobody. Example: ``python -m benchmarks.rollout --completions 512 --rounds 7``
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from benchmarks.compare import Result, share
from sage import seeds
from sage.rollout import Engine, Sampling
from sage.rollout.transformers import TransformersEngine

PAD, STOP, VOCABULARY = 0, 2, 24


def make_model(mlp: int) -> Qwen2ForCausalLM:
    """Return a random Qwen2 of the size that the laptop suites train; its completions end by chance."""
    torch.manual_seed(0)
    shape = dict(hidden_size=64, intermediate_size=mlp, num_hidden_layers=3, max_position_embeddings=256)
    heads = dict(num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=True, initializer_range=0.1)
    return Qwen2ForCausalLM(Qwen2Config(**shape, **heads, vocab_size=VOCABULARY, pad_token_id=PAD)).eval()


def make_prompts(count: int, length: int) -> list[list[int]]:
    """Return prompts of nearly one length, as those of one kind of puzzle are."""
    draw = np.random.default_rng(0)
    return [
        [1, *draw.integers(3, VOCABULARY, size=length - 1 - int(draw.integers(0, 5))).tolist()] for _ in range(count)
    ]


def sample(engine: Engine, prompts: list[list[int]], group: int, sampling: Sampling) -> int:
    """Sample with an engine; return the number of tokens."""
    keys = seeds.generator(0, "keys").integers(0, 2**64, size=(len(prompts), group), dtype=np.uint64)
    groups = engine.generate(prompts, keys, sampling)
    return sum(len(completion.tokens) for completions in groups for completion in completions)


def generate(model: Any, prompts: list[list[int]], group: int, sampling: Sampling) -> int:
    """Sample with transformers, padding on the left; return the number of tokens."""
    longest, most = max(map(len, prompts)), sampling.max_new_tokens
    padding = [longest - len(prompt) for prompt in prompts]
    ids = torch.tensor([[PAD] * n + prompt for n, prompt in zip(padding, prompts, strict=True)])
    mask = torch.tensor([[0] * n + [1] * (longest - n) for n in padding])
    ends = {"eos_token_id": list(sampling.stop)} if sampling.stop else {"min_new_tokens": most}
    options = dict(do_sample=True, top_k=0, top_p=1.0, temperature=1.0, max_new_tokens=most, pad_token_id=PAD, **ends)
    torch.manual_seed(1)
    with torch.inference_mode():
        rows = [tensor.repeat_interleave(group, 0) for tensor in (ids, mask)]
        new = model.generate(rows[0], attention_mask=rows[1], **options)[:, longest:]
    if not sampling.stop:
        return new.numel()
    stops = torch.isin(new, torch.tensor(sampling.stop)).long()
    return int((stops.cumsum(1) - stops == 0).sum())


def rate(work: Callable[[], int]) -> float:
    """Return tokens a second of one call."""
    started = time.perf_counter()
    return work() / (time.perf_counter() - started)


def in_rounds(ways: dict[str, Callable[[], int]], rounds: int) -> list[dict[str, float]]:
    """Return the tokens a second of each way in each round, after one that is not counted."""
    return [{name: rate(work) for name, work in ways.items()} for _ in range(rounds + 1)][1:]


def main() -> None:
    """Time the three in turn and print medians."""
    options = parse()
    torch.set_num_threads(options.threads)
    rounds = measure(options)
    tokens = {name: round(statistics.median(r[name] for r in rounds)) for name in rounds[0]}
    ratios = {name: round(statistics.median(r[name] / r["generate"] for r in rounds), 2) for name in tokens}
    print(json.dumps({"tokens_per_second": tokens, "ratio_to_generate": ratios, "threads": options.threads}, indent=1))


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of ``arguments``, of the command line where there are none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default, text in [
        ("completions", 512, "in all"),
        ("prompts", 16, "distinct prompts"),
        ("length", 30, "tokens of the longest prompt"),
        ("tokens", 48, "at most, a completion"),
        ("mlp", 256, "width of the MLP"),
        ("rounds", 5, "how often each is timed"),
        ("threads", 1, "of the CPU"),
    ]:
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{text} (default: {default})")
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> list[dict[str, float]]:
    """Return the tokens a second of each way in each round, for what ``options`` ask for."""
    model, prompts = make_model(options.mlp), make_prompts(options.prompts, options.length)
    engine = TransformersEngine(model, batch_size=options.completions)
    arguments = (prompts, options.completions // options.prompts, Sampling(options.tokens, (STOP,)))
    plain = mock.patch("sage.rollout.transformers.supports", lambda model: False)
    ways = {
        "fast": lambda: sample(engine, *arguments),
        "plain": plain(lambda: sample(engine, *arguments)),
        "generate": lambda: generate(model, *arguments),
    }
    return in_rounds(ways, options.rounds)


def results(small: bool = False) -> list[Result]:
    """Return the comparison of the fast decoder with `generate`."""
    torch.set_num_threads(1)
    options = parse(["--completions", "32", "--tokens", "8", "--rounds", "2"] if small else ["--rounds", "7"])
    pairs = [(rates["fast"], rates["generate"]) for rates in measure(options)]
    return [share("sampling, laptop model, 512 completions", pairs, "tokens/s", ">= 2")]


if __name__ == "__main__":
    main()
