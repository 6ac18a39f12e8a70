"""Tokens a second of vLLM beside the transformers engine and beside transformers' ``generate``, in the same run.

On a CPU, one thread each: vLLM's CPU build without compiled graphs, on the laptop-sized model, whose completions end by
chance, and on SmolLM2-135M with completions of exactly 32 tokens. vLLM is started once, which is not counted. Each round
times the three in turn. What vLLM is for, many completions at once on a GPU, is not measured here.
"""

import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks import rollout
from benchmarks.cases import smollm2
from benchmarks.compare import Result, share
from sage import tasks
from sage.policy.model import make_tokenizer, save
from sage.policy.tokens import encode_prompts
from sage.rollout import Sampling
from sage.rollout.transformers import TransformersEngine
from sage.rollout.vllm import Settings, VllmEngine, installed


def compared(name: str, ways: dict[str, Any], rounds: int, note: str = "") -> list[Result]:
    """Return the comparisons of vLLM and of the transformers engine with their peers."""
    found = rollout.in_rounds(ways, rounds)

    def pairs(ours: str, peer: str) -> list[tuple[float, float]]:
        return [(rates[ours], rates[peer]) for rates in found]

    return [
        share(f"vLLM, {name}: beside the transformers engine", pairs("vllm", "ours"), "tokens/s", None, note),
        share(f"vLLM, {name}: beside `generate`", pairs("vllm", "generate"), "tokens/s", None),
        share(f"transformers engine, {name}: beside `generate`", pairs("ours", "generate"), "tokens/s", None),
    ]


def ways(engine: VllmEngine, model: Any, prompts: list[list[int]], group: int, sampling: Sampling) -> dict[str, Any]:
    """Return a call for each way to sample ``group`` completions a prompt; each returns its number of tokens."""
    ours = TransformersEngine(model, batch_size=len(prompts) * group)
    return {
        "vllm": lambda: rollout.sample(engine, prompts, group, sampling),
        "ours": lambda: rollout.sample(ours, prompts, group, sampling),
        "generate": lambda: rollout.generate(model, prompts, group, sampling),
    }


def laptop(small: bool) -> list[Result]:
    """Return the comparisons on the laptop-sized model."""
    model, count = rollout.make_model(256), 64 if small else 512
    prompts, sampling = rollout.make_prompts(16, 30), Sampling(8 if small else 48, (rollout.STOP,))
    with tempfile.TemporaryDirectory(prefix="sage-bench-") as folder:
        save(Path(folder), model, make_tokenizer([chr(65 + i) for i in range(rollout.VOCABULARY - 3)]))
        engine = VllmEngine(Settings(Path(folder), count, 2**28))
        note = f"{installed()} {version(installed())}."
        calls = ways(engine, model, prompts, count // 16, sampling)
        found = compared(f"laptop model, {count} completions", calls, 5, note)
        engine.close()
    return found


def smollm() -> list[Result]:
    """Return the comparisons on SmolLM2-135M."""
    case = smollm2()
    task = tasks.load("arithmetic")
    prompts = encode_prompts(case.tokenizer, [task.prompt(record) for record in case.records[:8]])
    engine = VllmEngine(Settings(Path(case.model.config._name_or_path), 32, 2**29))
    calls = ways(engine, case.model, prompts, 4, Sampling(32, ()))
    found = compared("SmolLM2-135M, 32 completions of 32 tokens", calls, 3)
    engine.close()
    return found


def results(small: bool = False) -> list[Result]:
    """Return all comparisons; ``small``: those on the laptop-sized model, with fewer and shorter completions."""
    torch.set_num_threads(1)
    return [*laptop(small), *([] if small else smollm())]
