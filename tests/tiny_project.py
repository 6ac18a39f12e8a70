"""A folder with a tiny suite's configuration, where stages are run as plain commands."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
SUITE = "workflow/config/tiny.yaml"
BUILD = [sys.executable, "-m", "sage.tasks", "build", "--config", SUITE, "--dataset"]
SFT = [sys.executable, "-m", "sage.train.sft", "--config", SUITE]
RL = [sys.executable, "-m", "sage.train", "--config", SUITE, "--method", "grpo_branch", "--seed", "1"]
SAMPLE = [
    sys.executable, "-m", "sage.evaluate.sample", "--config", SUITE, "--method", "base", "--seed", "1",
    "--benchmark", "knights_n4",
]  # fmt: skip


def make_project(root: Path, edits: dict[str, str]) -> Path:
    """Return ``root`` with the configuration of a tiny suite, changed by ``edits``, and with its data."""
    config = root / "workflow/config"
    config.mkdir(parents=True)
    (config / "methods").symlink_to(ROOT / "workflow/config/methods")
    (root / SUITE).write_text((ROOT / "tests/workflow/tiny.yaml").read_text())
    edit(root, edits)
    for dataset in ("sft", "rl", "knights_n4"):
        finish(root, [*BUILD, dataset])
    return root


def edit(root: Path, edits: dict[str, str]) -> None:
    """Replace texts that stand once in the suite's file."""
    text = (root / SUITE).read_text()
    for old, new in edits.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (root / SUITE).write_text(text)


def copy_of(base: Path, root: Path, **edits: dict[str, object]) -> Path:
    """Return ``root`` with the data and the base model of ``base``, and its suite's file changed by ``edits``."""
    subprocess.run(["cp", "-r", base / "workflow", base / "data", root], check=True)
    subprocess.run(["rm", "-rf", *(root / "data/tiny").glob("*/grpo_branch")], check=True)
    suite = yaml.safe_load((root / SUITE).read_text())
    for section, changes in edits.items():
        suite["tiny"][section] = {**suite["tiny"].get(section, {}), **changes}
    (root / SUITE).write_text(yaml.safe_dump(suite))
    return root


def log(root: Path, seed: int = 1) -> list[dict[str, float]]:
    """Return the step log of ``grpo_branch``."""
    with (root / f"data/tiny/metrics/grpo_branch/seed{seed}/training.csv").open() as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def finish(root: Path, command: list[str]) -> None:
    done = subprocess.run(command, cwd=root, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"
