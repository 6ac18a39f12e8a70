"""What a suite will take, from its configuration alone: jobs, sequences, tokens, memory of the device by part, disk.

Each figure is the value of the formula in the docstring of its function, an upper bound wherever it depends on what a model
will say. Nothing is measured here, and nothing is loaded.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sage import grid, paths
from sage.cli import entry

if TYPE_CHECKING:
    from sage.config import Shape, Suite

BYTES = {"float32": 4, "bfloat16": 2}
GIB = 2**30
DEVICE = 80 * 10**9  # bytes of the GPU that the paper's suites are planned for
#: Text and token ids of a completion's token in a compressed table: about 4 bytes of text, and 2 of an id.
SAMPLE_BYTES = 6
Row = tuple[str, str]


def main() -> None:
    """Parse the command line and print the plan."""
    parser = argparse.ArgumentParser(prog="python -m sage.plan", description=__doc__)
    parser.add_argument("--suite", required=True, help="a suite's name, e.g. qwen2.5-math-7b, or the path of its file")
    name = parser.parse_args().suite
    from sage.config import load_suite

    suite = load_suite(name if Path(name).suffix == ".yaml" else paths.suite_file(name))
    for title, rows in plan(suite).items():
        print(f"\n{title}")
        for label, value in rows:
            print(f"  {label:<44} {value:>24}")


def plan(suite: "Suite") -> dict[str, list[Row]]:
    """Return the sections of the plan, each with rows of a label and a value."""
    return {
        f"{suite.name}: jobs": jobs(suite),
        "Sequences and tokens, at most": tokens(suite),
        f"Device memory of reinforcement learning, at most, of {suite.rl.processes} process(es) each": memory(suite),
        "Device memory of sampling, at most": sampling_memory(suite),
        "Disk, at most": disk(suite),
    }


# --- the model ---


def shape(suite: "Suite") -> "Shape":
    """Return the sizes of the suite's model; of one made from nothing, without the few words of its vocabulary."""
    from sage.config import Shape

    if suite.pretrained:
        return suite.pretrained.shape
    made = suite.content.model.model_dump(include={"hidden_size", "intermediate_size", "layers", "heads", "kv_heads"})
    task = _task(suite, suite.sft.dataset)
    from sage.policy.model import SPECIAL

    return Shape(**made, vocabulary=len(SPECIAL) + len(task.VOCABULARY), tied=True, bias=True)


def parameters(of: "Shape") -> int:
    """Return V D (twice where the head is its own) + L (D (H + 2 K) d [+ (H + 2 K) d] + H d D + 3 D F + 2 D) + D.

    V words, D the hidden size, L layers, H heads and K of keys and values of d = D / H coordinates, F the width inside the
    MLP; in brackets the biases of queries, keys and values, and at the end the norms.
    """
    width = of.hidden_size // of.heads
    qkv = (of.heads + 2 * of.kv_heads) * width
    attention = of.hidden_size * qkv + (qkv if of.bias else 0) + of.heads * width * of.hidden_size
    layer = attention + 3 * of.hidden_size * of.intermediate_size + 2 * of.hidden_size
    embeddings = of.vocabulary * of.hidden_size * (1 if of.tied else 2)
    return embeddings + of.layers * layer + of.hidden_size


def adapter_parameters(of: "Shape", r: int, targets: Sequence[str]) -> int:
    """Return L r sum (inputs + outputs) over the linear maps that the adapter is on."""
    width = of.hidden_size // of.heads
    queries, keys, hidden, inner = of.heads * width, of.kv_heads * width, of.hidden_size, of.intermediate_size
    sizes = {
        **{"q_proj": hidden + queries, "k_proj": hidden + keys, "v_proj": hidden + keys, "o_proj": queries + hidden},
        **{"gate_proj": hidden + inner, "up_proj": hidden + inner, "down_proj": inner + hidden},
    }
    return of.layers * r * sum(sizes[name] for name in targets)


def trained(suite: "Suite") -> int:
    """Return how many parameters reinforcement learning changes: the adapter's, or all."""
    lora = suite.content.adapter
    return adapter_parameters(shape(suite), lora.r, lora.targets) if lora else parameters(shape(suite))


def width_of_weights(suite: "Suite") -> int:
    """Return the bytes of one weight."""
    return BYTES[suite.pretrained.dtype] if suite.pretrained else 4


# --- the sections ---


def jobs(suite: "Suite") -> list[Row]:
    """Return the number of jobs of each rule: a data set, a training, a cell of method, seed and benchmark each.

    Where jobs share the sampling of a policy (:func:`sage.grid.parts`), ``sample_benchmark`` only puts shards together.
    """
    policies = len(suite.methods) * len(suite.seeds)
    cells, runs = len(list(grid.cells(suite))), len(grid.trained(suite)) * len(suite.seeds)
    found = {
        "process_data": len(_datasets(suite)),
        "fetch_model": int(suite.pretrained is not None),
        "train_base": int(suite.sft is not None),
        "train_policy": runs,
        "sample_part": policies * grid.parts(suite),
        "sample_benchmark": cells,
        "verify_samples": cells,
        "render_report, track_payloads": 2,
    }
    return [(name, f"{count:,}") for name, count in [*found.items(), ("all", sum(found.values()))]]


def problems(suite: "Suite", dataset: str) -> int | None:
    """Return how many records a data set has by its entry or its pins; None where only its sources know."""
    import json

    from sage.tasks._math.benchmark import PINS

    spec = suite.dataset(dataset)
    if hasattr(spec, "size"):
        return int(spec.size)
    if hasattr(spec, "levels"):
        levels = _task(suite, dataset).PROBLEMS
        return sum(levels[level] for level in spec.levels)
    pins = json.loads(PINS.read_text(encoding="utf-8"))
    return len(pins[spec.task]) if spec.task in pins else None


def tokens(suite: "Suite") -> list[Row]:
    """Return sequences, and at most max_new_tokens each: steps x prompts x group a run, problems x n a cell.

    The rounds of dynamic sampling count as often as they may happen.
    """
    rl, one = suite.rl, suite.rl.prompts * suite.rl.group
    runs = [(1 + suite.objective(name).refills) * rl.steps * one for name in grid.trained(suite)]
    trained_on = sum(runs) * len(suite.seeds)
    rows: list[Row] = [
        ("a run: generation batches", f"{rl.steps:,}"),
        ("a run: optimiser steps", f"{rl.steps * rl.updates:,}"),
        ("a run: sequences", f"{rl.steps * one:,}"),
        ("a run: completion tokens", f"{rl.steps * one * rl.max_new_tokens:,}"),
        ("all runs: sequences", f"{trained_on:,}"),
        ("all runs: completion tokens", f"{trained_on * rl.max_new_tokens:,}"),
    ]
    for name in suite.benchmarks:
        rows.append((f"a cell of {name}: sequences", f"{sequences(suite, name):,}"))
    whole = sum(sequences(suite, name) for name in suite.benchmarks) * len(suite.methods) * len(suite.seeds)
    return [
        *rows,
        ("all cells: sequences", f"{whole:,}"),
        ("all cells: completion tokens", f"{whole * suite.sample.max_new_tokens:,}"),
    ]


def sequences(suite: "Suite", benchmark: str) -> int:
    """Return problems x n."""
    return (problems(suite, benchmark) or 0) * int(suite.sample.n)


def memory(suite: "Suite") -> list[Row]:
    """Return the parts of one training process.

    - weights: P bytes each; twice where the anchor is a copy, once where it is the adapter switched off;
    - trained weights, their gradients, AdamW's two moments: 4 bytes each, moments 1 byte each in the 8-bit form; without an
      adapter the weights themselves are trained, and only gradients and moments are added;
    - activations that a micro-batch keeps for its gradient: tokens x L x (10 D + 2 (H + 2 K) d + 4 F) values of the weights'
      type (inputs of norms and linear maps, queries, keys, values, both branches of the MLP), no layer being recomputed;
    - logits: completion tokens of a micro-batch x V, 4 bytes, but no more at once than a chunk of :mod:`sage.policy.head`;
      four times (logits, log-softmax, its gradient, entropy);
    - keys and values while sampling: sequences x (prompt + completion tokens) x 2 L K d values.

    vLLM has weights and a cache of its own, while it samples; the trainer's activations and logits are there in updates only.
    """
    from sage.policy.head import CHUNK_BYTES

    of, size = shape(suite), width_of_weights(suite)
    rl, moments = suite.rl, 1 if suite.rl.optimiser.kind == "adamw_8bit" else 4
    copies = 1 if suite.content.adapter or not any(suite.objective(m).kl for m in grid.trained(suite)) else 2
    head = of.hidden_size // of.heads
    kept = 10 * of.hidden_size + 2 * (of.heads + 2 * of.kv_heads) * head + 4 * of.intermediate_size
    rows = min(rl.micro_batch_tokens, rl.prompts * rl.group * rl.max_new_tokens)
    always = {
        "weights": copies * parameters(of) * size,
        "trained weights, gradients, moments": trained(suite) * ((4 if suite.content.adapter else 0) + 4 + 2 * moments),
    }
    update = {
        "activations of a micro-batch": rl.micro_batch_tokens * of.layers * kept * size,
        "logits of a micro-batch": 4 * min(rows * of.vocabulary * 4, CHUNK_BYTES),
    }
    counted = [("parameters", f"{parameters(of):,}"), ("of which are trained", f"{trained(suite):,}")]
    if suite.rollout.engine == "transformers":
        parts = {
            **always,
            **update,
            "keys and values": cache(suite, rl.prompts * rl.group // rl.processes, rl.max_new_tokens),
        }
        return [*_sized(parts), *counted]
    engine = _vllm(suite)
    phases = {
        "together, in an update": sum(always.values()) + sum(update.values()),
        "together, while vLLM samples": sum(always.values()) + sum(engine.values()),
    }
    rows_of = [(name, _bytes(part)) for name, part in {**always, **update, **engine, **phases}.items()]
    return [*rows_of, ("the larger, of a device of 80 GB", f"{max(phases.values()) / DEVICE:.0%}"), *counted]


def _vllm(suite: "Suite") -> dict[str, int]:
    """Return what one of the devices over which vLLM is cut holds of it."""
    rollout = suite.rollout
    weights = parameters(shape(suite)) * width_of_weights(suite) // rollout.devices
    return {"vLLM: weights": weights, "vLLM: keys and values": int(rollout.cache_gib * GIB)}


def cache(suite: "Suite", count: int, new: int) -> int:
    """Return the bytes of keys and values of ``count`` sequences: count x (prompt + new) x 2 L K d values."""
    from sage.config import Pretrained

    of = shape(suite)
    model = suite.content.model
    length = model.max_prompt_tokens + new if isinstance(model, Pretrained) else model.max_positions
    return count * length * 2 * of.layers * of.kv_heads * (of.hidden_size // of.heads) * width_of_weights(suite)


def sampling_memory(suite: "Suite") -> list[Row]:
    """Return the parts of one sampling process: weights, and keys and values of a batch, or vLLM's cache of them."""
    if suite.rollout.engine == "vllm":
        return _sized(_vllm(suite))
    parts = {
        "weights": parameters(shape(suite)) * width_of_weights(suite),
        "keys and values": cache(suite, suite.sample.batch, suite.sample.max_new_tokens),
    }
    return _sized(parts)


def disk(suite: "Suite") -> list[Row]:
    """Return the payloads of the whole suite; DVC's cache may hold each a second time.

    A model takes P bytes a parameter, before and after fine-tuning; a run keeps its trained weights once and at each kept
    step; a completion's token takes about six bytes.
    """
    models = 2 if suite.pretrained and suite.sft else 1
    runs = len(grid.trained(suite)) * len(suite.seeds)
    one = trained(suite) * (4 if suite.content.adapter else width_of_weights(suite))
    sampled = sum(sequences(suite, name) for name in suite.benchmarks) * len(suite.methods) * len(suite.seeds)
    parts = {
        "base model": models * parameters(shape(suite)) * width_of_weights(suite),
        "checkpoints": runs * (1 + len(suite.rl.keep_steps)) * one,
        "samples": sampled * suite.sample.max_new_tokens * SAMPLE_BYTES,
    }
    return _sized(parts)


def _sized(parts: dict[str, int]) -> list[Row]:
    return [(name, _bytes(size)) for name, size in [*parts.items(), ("all", sum(parts.values()))]]


def _bytes(size: int) -> str:
    return f"{size / GIB:,.1f} GiB" if size >= GIB else f"{size / 2**20:,.1f} MiB"


def _datasets(suite: "Suite") -> dict[str, None]:
    fine_tuned = [suite.sft.dataset] if suite.sft else []
    return dict.fromkeys([*fine_tuned, suite.rl.dataset, *suite.benchmarks])


def _task(suite: "Suite", dataset: str) -> Any:
    from sage import tasks

    return tasks.load(suite.dataset(dataset).task)


if __name__ == "__main__":
    entry(main)
