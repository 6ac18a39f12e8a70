"""Training runs that are stopped, launched as processes of their own, attached to, killed, and reported."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_killed_training import LONG, results
from tiny_project import RL, SFT, SUITE, edit, environment, finish, make_project

LAUNCH = [
    sys.executable, "-m", "sage.cluster", "launch", "--config", SUITE, "--method", "grpo_branch", "--seed", "1",
]  # fmt: skip
LOCAL = [*LAUNCH, "--launcher", "local"]
JOBS = "logs/tiny/jobs/grpo_branch/seed1"
# As LONG, but saved so seldom that what goes on from a signal is seen to.
SELDOM = {**LONG, "    save_every: 1\n": "    save_every: 1000\n", "    steps: 3\n": "    steps: 300\n"}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    root = make_project(tmp_path_factory.mktemp("undisturbed"), SELDOM)
    finish(root, SFT)
    finish(root, RL)
    return root


@pytest.fixture
def root(tmp_path) -> Path:
    root = make_project(tmp_path, SELDOM)
    finish(root, SFT)
    return root


def start(root: Path, command: list[str]) -> subprocess.Popen:
    return subprocess.Popen(
        command, cwd=root, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def reach(root: Path, step: int) -> None:
    file, deadline = root / "work/tiny/checkpoints/grpo_branch/seed1/progress.json", time.monotonic() + 120
    while not file.exists() or json.loads(file.read_text())["step"] < step:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def record(root: Path) -> dict:
    return json.loads((root / JOBS / "job.json").read_text())


def alive(pid: str) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def trainer() -> list[str]:
    return subprocess.run(["pgrep", "--full", "sage.train --config"], capture_output=True, text=True).stdout.split()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2, signal.SIGINT])
def test_a_signal_ends_a_training_after_its_step_and_the_same_command_goes_on(root, undisturbed, number):
    training = start(root, RL)
    reach(root, 3)
    training.send_signal(number)
    text = training.communicate(timeout=60)[0]
    assert training.returncode == 75
    assert "stopped by a signal after step" in text
    again = start(root, RL)
    assert "goes on after step" in again.communicate(timeout=120)[0]
    assert results(root, "grpo_branch") == results(undisturbed, "grpo_branch")


def test_where_it_runs_does_not_matter(root, undisturbed):
    finish(root, LOCAL)
    assert record(root)["outcome"] == "done"
    assert results(root, "grpo_branch") == results(undisturbed, "grpo_branch")


def test_a_killed_training_is_submitted_again(root, undisturbed):
    launcher = start(root, LOCAL)
    reach(root, 3)
    pids = [p for p in trainer() if Path(f"/proc/{p}/cwd").resolve() == root]
    [pid] = pids
    os.kill(int(pid), signal.SIGKILL)
    text = launcher.communicate(timeout=120)[0]
    assert launcher.returncode == 0, text
    assert "killed by SIGKILL" in text
    assert text.count("submitted job") == 2
    assert results(root, "grpo_branch") == results(undisturbed, "grpo_branch")


def test_a_training_that_is_killed_over_and_over_is_given_up(root):
    launcher = start(root, [*LOCAL, "--resources", '{"resubmissions": 1}'])
    for kills in (1, 2):
        deadline = time.monotonic() + 60
        while not (pids := [p for p in trainer() if Path(f"/proc/{p}/cwd").resolve() == root]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(int(pids[0]), signal.SIGKILL)
        if kills == 1:
            while alive(pids[0]):
                time.sleep(0.05)
    text = launcher.communicate(timeout=60)[0]
    assert launcher.returncode == 2
    assert text.count("submitted job") == 2
    assert "error: grpo_branch seed 1: " in text


def test_a_launcher_attaches_to_the_job_of_a_killed_one_and_to_one_that_has_ended(root, undisturbed):
    launcher = start(root, LOCAL)
    reach(root, 3)
    launcher.kill()
    launcher.wait()
    job = record(root)["job"]
    manifest = root / "data/tiny/checkpoints/grpo_branch/seed1/manifest.json"
    deadline = time.monotonic() + 120
    while alive(job):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    content = manifest.read_bytes()
    manifest.unlink()  # as Snakemake does before it starts the launcher again
    text = start(root, LOCAL).communicate(timeout=60)[0]
    assert f"attached to job {job}" in text
    assert "submitted job" not in text
    assert manifest.read_bytes() == content
    assert results(root, "grpo_branch") == results(undisturbed, "grpo_branch")
    # One that has delivered is not asked again.
    assert "submitted job" in start(root, LOCAL).communicate(timeout=120)[0]


@pytest.mark.parametrize("mode", ["cancel", "detach"])
def test_an_interrupted_launcher_cancels_or_leaves_its_job(root, mode):
    launcher = start(root, [*LOCAL, "--resources", json.dumps({"on_interrupt": mode})])
    reach(root, 3)
    launcher.send_signal(signal.SIGINT)
    launcher.communicate(timeout=60)
    assert launcher.returncode == 130
    job = record(root)["job"]
    if mode == "cancel":
        deadline = time.monotonic() + 30
        while alive(job):
            assert time.monotonic() < deadline, "the job is an orphan"
            time.sleep(0.1)
        assert (root / "work/tiny/checkpoints/grpo_branch/seed1/state.pt").is_file()
    else:
        assert alive(job)
        assert start(root, LOCAL).wait(120) == 0
        assert record(root)["job"] == job


def test_a_job_of_another_configuration_is_not_attached_to(root):
    launcher = start(root, LOCAL)
    reach(root, 3)
    launcher.kill()
    launcher.wait()
    edit(root, {"lr: 4e-4": "lr: 5e-4"})
    text = start(root, LOCAL).communicate(timeout=120)[0]
    assert "belongs to another configuration" in text
    assert text.count("submitted job") == 1
    assert "done" in text


def test_a_training_that_fails_is_reported_once(root):
    (root / "data/tiny/checkpoints/base/model/model.safetensors").unlink()
    launcher = start(root, LOCAL)
    text = launcher.communicate(timeout=60)[0]
    assert launcher.returncode == 2
    [line] = [line for line in text.splitlines() if line.startswith("error: ")]
    assert "model.safetensors: missing; `dvc pull" in line
    assert f"log: {JOBS}/" in line
    assert "snakemake data/tiny/checkpoints/grpo_branch/seed1/manifest.json" in line
    assert text.count("submitted job") == 1
    status = [sys.executable, "-m", "sage.cluster", "status", "--config", SUITE]
    shown = subprocess.run(status, cwd=root, env=environment(), capture_output=True, text=True).stdout
    assert "grpo_branch seed 1: failed, " in shown
    assert "missing; `dvc pull" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resources", "{"], "--resources: no JSON object"),
        (["--launcher", "local", "--resources", '{"on_interrupt": "stay"}'], "neither cancel nor detach"),
        (["--method", "grpo_brunch"], "did you mean 'grpo_branch'"),
    ],
)
def test_bad_arguments_are_one_line(root, arguments, message):
    done = subprocess.run([*LAUNCH, *arguments], cwd=root, env=environment(), capture_output=True, text=True)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
