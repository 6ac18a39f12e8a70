"""Sample benchmarks with one checkpoint: n completions a problem, every one kept.

In: ``checkpoints/...`` and ``processed/{benchmark}``. Out: ``samples/.../samples.parquet`` of each benchmark. The problems are
cut into shards; a killed run keeps the finished ones, and several jobs can share them (``--part``). Each draw has its own
stream, so neither batch size nor shards nor workers nor jobs matter. A worker starts one engine for all benchmarks.
"""

import argparse
import functools
import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sage.cli import entry
from sage.evaluate.cell import Cell, parse
from sage.processes import see_devices

if TYPE_CHECKING:
    import pandas as pd

    from sage.rollout import Engine
    from sage.rollout.vllm import Settings
    from sage.tasks import Record

FILE = "samples.parquet"


@dataclass(frozen=True)
class Shard:
    """Some of the problems of a cell: what one engine call samples, with ``model``, into ``file``."""

    cell: Cell
    model: Path
    records: list["Record"]
    file: Path


def main() -> None:
    """Parse the command line and sample."""
    part = argparse.ArgumentParser(add_help=False)
    part.add_argument(
        "--part", type=int, help="sample the shards of this part only (of sample.jobs), and merge nothing"
    )
    cells, arguments = parse("python -m sage.evaluate.sample", __doc__, part)
    sample(cells, arguments.part)


def sample(cells: Sequence[Cell], part: int | None = None) -> None:
    """Sample all shards of ``cells``, of one policy, that are not there yet, then publish each cell as one table.

    With ``part`` (from 0 to ``sample.jobs`` - 1) only every ``sample.jobs``-th shard of cells that have no table of the same
    configuration and inputs, and nothing is published.
    """
    from sage.errors import UserError

    started, suite, config = time.time(), cells[0].suite, cells[0].suite.sample
    if part is not None and not 0 <= part < config.jobs:
        raise UserError(f"--part: {part} is not between 0 and sample.jobs - 1 ({config.jobs - 1}) of {suite.path}")
    weights = _weights(cells[0])
    wanted = [_wanted(cell, weights) for cell in cells]
    if part is None:
        shards = [shard for one in wanted for shard in one.shards]
    else:
        shards = [shard for one in wanted if not one.published() for shard in one.shards[part :: config.jobs]]
    _run([shard for shard in shards if not shard.file.is_file()], config.workers, suite.rollout.devices)
    if part is None:
        for one in wanted:
            one.publish(started)


@dataclass(frozen=True)
class Wanted:
    """What a cell is sampled from, and its shards."""

    cell: Cell
    model: Path
    key: str  # of configuration and inputs
    inputs: dict[str, str]
    records: list["Record"]
    work: Path
    shards: list[Shard]

    def published(self) -> bool:
        """Return whether the cell's table is there, of the same configuration and inputs."""
        from sage import manifest

        found = self.cell.samples / manifest.NAME
        return found.is_file() and manifest.load(self.cell.samples)["key"] == self.key

    def publish(self, started: float) -> None:
        """Join the shards, and put the table where it belongs."""
        from sage import manifest, paths

        cell, packages = self.cell, ["torch", "transformers"]
        ids = [record.id for record in self.records]
        _merge([shard.file for shard in self.shards], self.work / FILE, ids, cell.suite.sample.n)
        manifest.write_run(cell.samples / "run.json", started)
        about = _manifest(cell, self.key, self.inputs)
        if cell.suite.rollout.engine == "vllm":
            from sage.rollout.vllm import installed

            about |= {"engine_options": _settings(cell, self.model).options()}
            packages.append(installed())
        manifest.publish(self.work, cell.samples, [FILE], about, packages)
        shutil.rmtree(paths.work(cell.samples))


def _weights(cell: Cell) -> str:
    """Return the hash of the weights that a cell is sampled with; :class:`UserError` where they are not intact."""
    from sage import manifest, paths

    content = manifest.require(paths.checkpoint(cell.suite.name, cell.method, cell.seed))
    if cell.suite.adapter:  # the checkpoint is an adapter, and belongs to the base model
        manifest.require(paths.checkpoint(cell.suite.name, "base", cell.seed))
    return manifest.payload_hash(content, "model/")


def _wanted(cell: Cell, weights: str) -> Wanted:
    from sage import paths

    suite, count = cell.suite, cell.suite.sample.shards
    model = paths.checkpoint(suite.name, cell.method, cell.seed) / "model"
    records, problems = cell.problems()
    key = " ".join((suite.stage_key("sample"), weights, problems))
    work = _work_folder(paths.work(cell.samples), f"{key} {count}")
    cut = [records[i::count] for i in range(count)]
    shards = [Shard(cell, model, some, work / f"shard{i}.parquet") for i, some in enumerate(cut) if some]
    return Wanted(cell, model, key, {"checkpoint": weights, "problems": problems}, records, work, shards)


def _work_folder(parent: Path, key: str) -> Path:
    """Return the folder of shards of ``key``; one folder a key, so that jobs that run at once never drop each other's."""
    folder = parent / hashlib.sha256(key.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _run(shards: list[Shard], workers: int, devices: int) -> None:
    """Sample ``shards`` by as many processes; on CUDA each takes the next ``devices`` of those that there are."""
    from sage.progress import bar

    if not shards:
        return
    cell, context = shards[0].cell, get_context("spawn")
    total = sum(len(shard.records) for shard in shards)
    with bar(None, f"{cell.method} seed {cell.seed}", total=total, unit="problem") as progress:
        if workers == 1:
            for shard in shards:
                progress.update(_sample_shard(shard))
            return
        numbers = context.SimpleQueue()
        for number in range(workers):
            numbers.put(number)
        with ProcessPoolExecutor(workers, context, _take_devices, (numbers, devices)) as pool:
            for done in as_completed([pool.submit(_sample_shard, shard) for shard in shards]):
                progress.update(done.result())


def _take_devices(numbers: Any, devices: int) -> None:
    """Begin a worker: it sees the CUDA devices that its number stands for, so that all of them have work."""
    see_devices(numbers.get() * devices, devices)


def _sample_shard(shard: Shard) -> int:
    """Write the completions of ``shard`` as one table, atomically; return the number of problems."""
    import numpy as np
    import torch

    from sage import seeds
    from sage.policy import model as models
    from sage.policy.tokens import encode_prompts, ending, fitting
    from sage.rollout import Sampling

    cell, model, records = shard.cell, shard.model, shard.records
    config, root = cell.suite.sample, seeds.root(cell.suite.name, cell.seed)
    torch.set_num_threads(config.threads)
    tokenizer = models.load_tokenizer(model)
    engine = _engine(cell, model)
    stream = ("evaluation", cell.benchmark)
    keys = [[seeds.stream(root, *stream, record.id, i) for i in range(config.n)] for record in records]
    stop = (tokenizer.eos_token_id,)
    sampling = Sampling(
        config.max_new_tokens,
        stop,
        temperature=config.temperature,
        top_p=config.top_p,
        ending=ending(tokenizer, cell.suite.pretrained),
    )
    prompts = encode_prompts(tokenizer, [cell.task.prompt(record) for record in records])
    # None is left out: pass@k over fewer problems would be another benchmark.
    fitting(prompts, cell.suite.pretrained, cell.benchmark, skip=False)
    groups = engine.generate(prompts, np.array(keys, np.uint64), sampling)
    table = _table(records, keys, groups, tokenizer)
    temporary = shard.file.with_suffix(f".part{os.getpid()}")
    table.to_parquet(temporary, index=False)
    temporary.replace(shard.file)
    return len(records)


def _engine(cell: Cell, model: Path) -> "Engine":
    """Return the suite's engine on the model, or the adapter, in ``model``."""
    from sage.policy import model as models
    from sage.rollout.transformers import TransformersEngine

    if cell.suite.rollout.engine == "vllm":
        return _vllm(_settings(cell, model), model)
    return TransformersEngine(models.load_model(model).to(models.device()), batch_size=cell.suite.sample.batch)


@functools.cache
def _vllm(settings: "Settings", model: Path) -> "Engine":
    """Return vLLM on ``model``, started once in a process; an adapter is served beside the model that it belongs to."""
    from sage.rollout.vllm import VllmEngine

    engine = VllmEngine(settings)
    if settings.rank:
        engine.load_adapter(model)
    return engine


def _settings(cell: Cell, model: Path) -> "Settings":
    from sage.policy.adapter import base_of
    from sage.rollout.vllm import Settings

    config, rollout, base = cell.suite.sample, cell.suite.rollout, base_of(model)
    rank = cell.suite.adapter.r if base else None
    cache = int(rollout.cache_gib * 2**30)
    return Settings(base or model, config.batch, cache, rank, rollout.devices, config.threads)


def _table(records: list["Record"], keys: Any, groups: Any, tokenizer: Any) -> "pd.DataFrame":
    """Return one row a completion: problem, sample, tokens, text (without special tokens), finish, key."""
    import pandas as pd

    completions = [completion for group in groups for completion in group]
    return pd.DataFrame(
        {
            "problem": [record.id for record, group in zip(records, groups, strict=True) for _ in group],
            "sample": [i for group in groups for i in range(len(group))],
            "tokens": [completion.tokens for completion in completions],
            "text": tokenizer.batch_decode([c.tokens for c in completions], skip_special_tokens=True),
            "finish": [completion.finish for completion in completions],
            "key": pd.Series([key for row in keys for key in row], dtype="uint64"),
        }
    )


def _merge(shards: list[Path], target: Path, ids: list[str], n: int) -> None:
    """Join the shards in the order of the benchmark and check that no completion is missing or twice there."""
    import pandas as pd

    table = pd.concat([pd.read_parquet(shard) for shard in shards])
    order = {problem: i for i, problem in enumerate(ids)}
    table["order"] = table["problem"].map(order)
    table = table.sort_values(["order", "sample"], kind="stable").drop(columns="order").reset_index(drop=True)
    expected = [(problem, i) for problem in ids for i in range(n)]
    if list(zip(table["problem"], table["sample"], strict=True)) != expected:
        raise RuntimeError(f"{target}: the shards do not add up to {len(ids)} problems x {n} samples")
    table.to_parquet(target, index=False)


def _manifest(cell: Cell, key: str, inputs: dict[str, str]) -> dict[str, Any]:
    config = cell.suite.sample
    return {
        "stage": "sample",
        "suite": cell.suite.name,
        "method": cell.method,
        "seed": cell.seed,
        "benchmark": cell.benchmark,
        "key": key,
        "inputs": inputs,
        "n": config.n,
        "temperature": config.temperature,
        "top_p": config.top_p,
        "engine": cell.suite.rollout.engine,
    }


if __name__ == "__main__":
    entry(main)
