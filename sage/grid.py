"""The grid of a suite, method x seed x benchmark, as the files that its stages write and the workflow asks for."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sage import manifest, paths

if TYPE_CHECKING:
    from sage.config import Suite


def trained(suite: "Suite") -> list[str]:
    """Return the methods that have a training run of their own."""
    return [name for name, method in suite.loaded_methods.items() if method.objective]


def cells(suite: "Suite") -> Iterator[tuple[str, int, str]]:
    """Yield every method, seed and benchmark."""
    for method in suite.methods:
        for seed in suite.seeds:
            for benchmark in suite.benchmarks:
                yield method, seed, benchmark


def parts(suite: "Suite") -> int:
    """Return the number of jobs that share the sampling of a policy, over all benchmarks; 0 where each cell is a job.

    vLLM takes long to start, so that one of them serves all benchmarks.
    """
    return suite.sample.jobs if suite.sample.jobs > 1 or suite.rollout.engine == "vllm" else 0


def metrics(suite: "Suite") -> list[Path]:
    """Return the metric file of every cell."""
    return [paths.metrics(suite.name, method, seed) / f"{benchmark}.json" for method, seed, benchmark in cells(suite)]


def counts(suite: "Suite") -> list[Path]:
    """Return the file of per-problem counts of every cell."""
    return [file.with_suffix(".counts.json") for file in metrics(suite)]


def answers(suite: "Suite") -> list[Path]:
    """Return the file of votes, shares and diversity of every cell."""
    return [file.with_suffix(".answers.json") for file in metrics(suite)]


def patterns(suite: "Suite") -> list[Path]:
    """Return the file of patterns of every method and seed."""
    return [paths.patterns(suite.name, method, seed) for method in suite.methods for seed in suite.seeds]


def entropies(suite: "Suite") -> list[Path]:
    """Return the file of entropies of every method and seed."""
    return [paths.entropies(suite.name, method, seed) for method in suite.methods for seed in suite.seeds]


def training_logs(suite: "Suite") -> list[Path]:
    """Return the step log of every run of reinforcement learning."""
    return [paths.training_log(suite.name, method, seed) for method in trained(suite) for seed in suite.seeds]


def rollouts(suite: "Suite") -> list[Path]:
    """Return the manifest of the annotated completions of every method and seed."""
    return [
        paths.rollouts(suite.name, method, seed) / manifest.NAME for method in suite.methods for seed in suite.seeds
    ]


def manifests(suite: "Suite") -> list[Path]:
    """Return the manifest of every payload."""
    fine_tuned = [suite.sft.dataset] if suite.sft else []
    datasets = dict.fromkeys([*fine_tuned, suite.rl.dataset, *suite.benchmarks])
    folders = [paths.processed(suite.name, dataset) for dataset in datasets]
    folders += [paths.pretrained(suite.name)] if suite.pretrained and suite.sft else []
    folders += dict.fromkeys(paths.checkpoint(suite.name, method, seed) for method, seed, _ in cells(suite))
    folders += [paths.samples(suite.name, *cell) for cell in cells(suite)]
    return [folder / manifest.NAME for folder in folders]
