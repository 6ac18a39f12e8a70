"""Whatever happens to a training job, the weights are those of an undisturbed run."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import accounted, queued, run, wait_until
from project_tree import Tree

SUITE = "workflow/config/long.yaml"


@pytest.fixture(scope="module")
def prepared(project) -> Tree:
    """The project with the base model and the data of the suite."""
    project.snakemake(
        "data/long/checkpoints/base/manifest.json", "data/long/processed/rl/manifest.json", suites=[SUITE]
    )
    return project


@pytest.fixture(scope="module")
def undisturbed(prepared, tmp_path_factory) -> dict[int, str]:
    """Seed -> hash of the weights of a run outside SLURM, in another copy of the project."""
    root = Path(shutil.copytree(prepared.root, tmp_path_factory.mktemp("undisturbed") / "sage", symlinks=True))
    processes = []
    for seed in range(1, 7):
        command = [sys.executable, "-m", "sage.train", "--config", SUITE, "--method", "grpo", "--seed", str(seed)]
        processes.append(subprocess.Popen(command, cwd=root, env=prepared.environment(), stderr=subprocess.DEVNULL))
        if seed % 2 == 0:
            assert [process.wait() for process in processes] == [0] * len(processes)
    return {seed: weights(root, seed) for seed in range(1, 7)}


def weights(root: Path, seed: int) -> str:
    manifest = json.loads((root / f"data/long/checkpoints/grpo/seed{seed}/manifest.json").read_text())
    return manifest["payload"]["model/model.safetensors"]["sha256"]


class Launched:
    """A launcher of the training of one seed, and its job."""

    def __init__(self, tree: Tree, seed: int, **resources) -> None:
        self.tree, self.seed = tree, seed
        (tree.root / f"data/long/checkpoints/grpo/seed{seed}/manifest.json").unlink(missing_ok=True)
        resources = {"mem_mb": 2000, "runtime": 30, "grace": 15, **resources}
        command = [
            sys.executable, "-m", "sage.cluster", "launch", "--config", SUITE, "--method", "grpo", "--seed", str(seed),
            "--launcher", "slurm", "--resources", json.dumps(resources),
        ]  # fmt: skip
        self.output = tree.root / f"launcher{seed}.txt"
        with self.output.open("w") as file:
            self.process = subprocess.Popen(command, cwd=tree.root, env=tree.environment(), stdout=file, stderr=file)

    @property
    def job(self) -> str:
        return json.loads((self.tree.root / f"logs/long/jobs/grpo/seed{self.seed}/job.json").read_text())["job"]

    def step(self) -> int:
        try:
            text = (self.tree.root / f"work/long/checkpoints/grpo/seed{self.seed}/progress.json").read_text()
        except FileNotFoundError:
            return 0
        return json.loads(text)["step"]

    def reach(self, step: int) -> None:
        wait_until(lambda: self.step() >= step, f"step {step} of seed {self.seed}", 300)
        assert self.process.poll() is None, self.output.read_text()

    def trainer(self) -> int:
        """Return the process id of the training itself."""
        [process] = run("pgrep", "--full", f"sage.train .*long.yaml --method grpo --seed {self.seed}").stdout.split()
        return int(process)

    def restarts(self) -> int:
        shown = run("scontrol", "--oneliner", "show", "job", self.job).stdout
        return int(shown.split("Restarts=")[1].split()[0])

    def finish(self) -> str:
        """Wait for the launcher; return the hash of the weights."""
        assert self.process.wait(600) == 0, self.output.read_text()
        return weights(self.tree.root, self.seed)

    def log(self) -> str:
        return "".join(
            file.read_text() for file in self.output.parent.glob(f"logs/long/jobs/grpo/seed{self.seed}/*.out")
        )


def test_preempted(cluster, prepared, undisturbed):
    launched = Launched(prepared, 1, slurm_partition="low", gpu=1)
    launched.reach(20)
    urgent = run("sbatch", "--parsable", "-p", "main", "--gres=gpu:2", "--mem=10", "--wrap", "sleep 1").stdout.strip()
    wait_until(lambda: accounted(urgent) == "COMPLETED", "the urgent job", 120)
    assert launched.finish() == undisturbed[1]
    assert launched.restarts() >= 1
    # It was not thrown back to its last regular state, which is a multiple of 50.
    assert any(step % 50 for step in resumed(launched))


def test_hit_by_its_time_limit(cluster, prepared, undisturbed):
    launched = Launched(prepared, 2, runtime=1)
    launched.reach(20)
    process = launched.trainer()
    os.kill(process, signal.SIGSTOP)  # it must not end before SLURM warns of the limit, and SLURM's signals continue it
    wait_until(lambda: not Path(f"/proc/{process}").exists(), "the end at the time limit", 120)
    assert launched.finish() == undisturbed[2]
    assert launched.restarts() == 1
    assert any(step % 50 for step in resumed(launched))


def test_requeued_by_hand(cluster, prepared, undisturbed):
    launched = Launched(prepared, 3)
    launched.reach(20)
    assert run("scontrol", "requeue", launched.job).returncode == 0
    assert launched.finish() == undisturbed[3]
    assert launched.restarts() == 1


def test_killed(cluster, prepared, undisturbed):
    launched = Launched(prepared, 4)
    launched.reach(60)
    job = launched.job
    os.kill(launched.trainer(), signal.SIGKILL)
    assert launched.finish() == undisturbed[4]
    assert launched.job != job
    assert "killed by SIGKILL" in launched.output.read_text()
    [step] = resumed(launched)
    assert step
    assert step % 50 == 0


def test_on_a_node_that_goes_down_and_comes_back(cluster, prepared, undisturbed):
    launched = Launched(prepared, 5)
    launched.reach(20)
    assert run("scontrol", "update", f"nodename={cluster.host}", "state=down", "reason=test").returncode == 0
    wait_until(lambda: queued(launched.job) != "RUNNING", "the end of the job")
    cut_power(launched.job)
    run("scontrol", "update", f"nodename={cluster.host}", "state=resume")  # an error where it is back by itself
    assert launched.finish() == undisturbed[5]
    assert launched.restarts() == 1


def test_an_interrupted_launcher_cancels_its_job_and_the_next_goes_on(cluster, prepared, undisturbed):
    launched = Launched(prepared, 6)
    launched.reach(20)
    launched.process.send_signal(signal.SIGINT)
    assert launched.process.wait(60) == 128 + signal.SIGINT
    wait_until(lambda: not queued(launched.job), "the end of the job")
    assert accounted(launched.job) == "CANCELLED"
    job = launched.job
    again = Launched(prepared, 6, on_interrupt="detach")
    again.reach(launched.step() + 20)
    again.process.send_signal(signal.SIGTERM)
    assert again.process.wait(60) == 128 + signal.SIGTERM
    assert queued(again.job) == "RUNNING"
    detached = again.job
    last = Launched(prepared, 6)
    assert last.finish() == undisturbed[6]
    assert job != detached == last.job
    assert resumed(last)[0] >= 20


def cut_power(job: str) -> None:
    """Kill all processes of a job: SLURM leaves those of a node that is down alone, as it takes them to be gone."""
    steps = run("pgrep", "--full", rf"slurmstepd: \[{job}\.").stdout.split()
    listed = run("scontrol", "listpids", job).stdout.splitlines()[1:]
    processes = [int(process) for process in [*steps, *(line.split()[0] for line in listed)]]
    assert processes
    for process in processes:
        if Path(f"/proc/{process}").exists():
            os.kill(process, signal.SIGKILL)


def resumed(launched: Launched) -> list[int]:
    """Return the steps after which the training went on."""
    lines = [line for line in launched.log().splitlines() if "goes on after step" in line]
    return [int(line.rsplit(" ", 1)[1]) for line in lines]
