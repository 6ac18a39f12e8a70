"""A training process that is killed at any moment, and started again, ends as one that never was."""

import hashlib
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tiny_project import RL, SFT, environment, finish, make_project

# Many steps, each saved: the more states there are, the more may be wrong with them. The three kills need some 50.
LONG = {"    steps: 3\n": "    steps: 80\n", "    steps: 20\n": "    steps: 200\n"}


def kill(root: Path, command: list[str], state: Path, moment: float) -> bool:
    """Start ``command``, wait until it has saved something new, then ``moment`` seconds; return whether it was killed."""
    before = state.stat().st_mtime_ns if state.exists() else 0
    with subprocess.Popen(
        command, cwd=root, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while process.poll() is None and (state.stat().st_mtime_ns if state.exists() else 0) == before:
            time.sleep(0.005)
        time.sleep(moment)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
    return process.returncode == -signal.SIGKILL


def results(root: Path, method: str) -> dict[str, str]:
    """Return the hash of every result but for the side files, which tell times."""
    folders = [root / "data/tiny/checkpoints" / method, root / "data/tiny/metrics" / method]
    files = sorted(file for folder in folders for file in folder.rglob("*") if file.is_file())
    kept = [file for file in files if not file.name.endswith(("run.json", "seconds.csv"))]
    return {str(file.relative_to(root)): hashlib.sha256(file.read_bytes()).hexdigest() for file in kept}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    root = make_project(tmp_path_factory.mktemp("undisturbed"), LONG)
    finish(root, SFT)
    finish(root, RL)
    return root


@pytest.mark.parametrize(("method", "command"), [("base", SFT), ("grpo_branch", RL)], ids=["sft", "rl"])
def test_three_kills_change_nothing(undisturbed, tmp_path, method, command):
    root = make_project(tmp_path, LONG)
    if method != "base":
        finish(root, SFT)
    draw, kills = random.Random(method), 0
    state = root / "work/tiny/checkpoints" / (method if method == "base" else f"{method}/seed1") / "state.pt"
    while kills < 3:
        assert kill(root, command, state, draw.uniform(0, 0.3)), "it ended before three kills: give it more steps"
        kills += 1
        assert not list((root / "data/tiny/checkpoints" / method).rglob("manifest.json"))
    finish(root, command)
    assert results(root, method) == results(undisturbed, method)


def test_the_same_seed_gives_the_same_bytes_and_another_gives_others(undisturbed, tmp_path):
    root = make_project(tmp_path, LONG)
    finish(root, SFT)
    finish(root, RL)
    assert results(root, "grpo_branch") == results(undisturbed, "grpo_branch")
    finish(root, [*RL[:-1], "2"])
    weights = "data/tiny/checkpoints/grpo_branch/seed{}/model/model.safetensors"
    found = results(root, "grpo_branch")
    assert found[weights.format(1)] != found[weights.format(2)]
