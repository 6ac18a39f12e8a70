"""Every path pattern of the project, once; all are relative to the project's root, the working directory."""

from pathlib import Path

DATA = Path("data")
WORK = Path("work")
LOGS = Path("logs")
REPORTS = Path("reports")
METHODS = Path("workflow/config/methods")
CLAIMS = Path("workflow/config/claims.yaml")
REPORTED = Path("workflow/config/reported.yaml")


def suite_file(suite: str) -> Path:
    """Where a suite's file lies, but for suites that are elsewhere by choice."""
    return METHODS.parent / f"{suite}.yaml"


def processed(suite: str, dataset: str) -> Path:
    """Folder of a processed data set: ``manifest.json`` and the payload ``records.jsonl``."""
    return DATA / suite / "processed" / dataset


def checkpoint(suite: str, method: str, seed: int | str) -> Path:
    """Folder of a checkpoint: ``manifest.json`` and the payload ``model/``; base has one for all seeds."""
    folder = DATA / suite / "checkpoints" / method
    return folder if method == "base" else folder / f"seed{seed}"


def pretrained(suite: str) -> Path:
    """Folder of a pretrained model before its fine-tuning: ``manifest.json`` and the payload ``model/``."""
    return DATA / suite / "checkpoints" / "pretrained"


def samples(suite: str, method: str, seed: int | str, benchmark: str) -> Path:
    """Folder of the completions of one cell: ``manifest.json`` and the payload ``samples.parquet``."""
    return DATA / suite / "samples" / method / f"seed{seed}" / benchmark


def metrics(suite: str, method: str, seed: int | str) -> Path:
    """Folder of the metric files of one method and seed, all in git."""
    return DATA / suite / "metrics" / method / f"seed{seed}"


def patterns(suite: str, method: str, seed: int | str) -> Path:
    """File of the patterns of reasoning in the completions of one method and seed."""
    return metrics(suite, method, seed) / "patterns.json"


def entropies(suite: str, method: str, seed: int | str) -> Path:
    """File of the entropies, and of the guide at them, of the tokens of annotated completions."""
    return metrics(suite, method, seed) / "entropy.csv"


def training_log(suite: str, method: str, seed: int | str) -> Path:
    """The step log ``training.csv``; its side files replace the ending by ``.seconds.csv`` and ``.run.json``."""
    folder = DATA / suite / "metrics" / method
    return (folder if method == "base" else folder / f"seed{seed}") / "training.csv"


def job(suite: str, method: str, seed: int | str) -> Path:
    """Folder of the cluster job of a training run: its record and its logs."""
    folder = LOGS / suite / "jobs" / method
    return folder if method == "base" else folder / f"seed{seed}"


def tracked(suite: str) -> Path:
    """The list of what DVC tracks of a suite."""
    return DATA / suite / "tracked.json"


def report(suite: str) -> Path:
    """Folder of a suite's report."""
    return REPORTS / suite


def rollouts(suite: str, method: str, seed: int | str) -> Path:
    """Folder of annotated completions that the rollout browser loads: ``manifest.json``, ``index.js`` and ``parts/``."""
    return report(suite) / "rollouts" / method / f"seed{seed}"


def work(final: Path) -> Path:
    """Where a stage that will end in ``final`` keeps its unfinished work."""
    return WORK / (final.relative_to(DATA) if final.is_relative_to(DATA) else final)
