"""Two processes that train together make the update of one with the same batch, and end as one does."""

import copy
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_project import RL, SFT, copy_of, environment, finish, log, make_project
from torch import distributed, multiprocessing
from unit.test_update import GUIDES, METHODS, OPTIMISER, SHAPE, experience, objective, rl

from sage.errors import UserError
from sage.policy.model import make_model
from sage.train.optim import make_optimiser
from sage.train.ranks import Ranks
from sage.train.state import Clock
from sage.train.update import Statistics, Updater

POLICY = "data/tiny/checkpoints/grpo_branch/seed1/model/model.safetensors"
TWO = {"processes": 2}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]


def gradients(ranks: Ranks) -> list[torch.Tensor]:
    """Return the gradient of each method's objective on 16 sequences, in float64, and what the log has of it."""
    torch.Tensor.float = lambda self: self
    found = []
    for aims in [*METHODS, objective()]:
        run = rl(micro_batch_tokens=60, updates=1 if aims is not METHODS[-1] else 2)
        policy, anchor = (make_model(SHAPE, 20, seed).double() for seed in (1, 2))
        optimiser = make_optimiser(policy.parameters(), OPTIMISER)
        updater = Updater(policy, anchor.requires_grad_(False), optimiser, aims, GUIDES, run, ranks=ranks)
        data = experience(copy.deepcopy(policy))
        statistics, guides = Statistics(), {}
        if run.updates > 1:
            data, guides = updater._before(data, 0, Clock("update"))
        for update in range(run.updates):
            rows = updater._rows(data, update)
            ranks.gather(updater.accumulate, data, rows, 0, guides, statistics, Clock("anchor", "update"))
        ranks.add_gradients(policy.parameters())
        found.append(torch.cat([p.grad.flatten() for p in policy.parameters()]))
        summary = Statistics.together(ranks.gather(lambda s=statistics: s)).summary()
        found.append(torch.tensor(list(summary.values()), dtype=torch.double))
    return found


def one_of_two(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.save(gradients(Ranks(rank, 2)), folder / f"{rank}.pt")
    distributed.destroy_process_group()


def test_two_processes_have_the_gradient_of_one(tmp_path, monkeypatch):
    multiprocessing.spawn(one_of_two, (tmp_path,), nprocs=2)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.float)  # is set back at the end
    whole = gradients(Ranks())
    for rank in (0, 1):
        for ours, theirs in zip(torch.load(tmp_path / f"{rank}.pt"), whole, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_one_process_gets_back_what_it_gives():
    alone = Ranks()
    assert alone.first
    assert list(alone.share(range(6))) == list(range(6))
    assert alone.gather(divmod, 7, 2) == [(3, 1)]
    assert alone.agree(max, 1, 2) == 2
    with pytest.raises(UserError, match="mine"):
        alone.gather(_fail)


def _fail() -> None:
    raise UserError("mine")


@pytest.fixture(autouse=True)
def on_cpus(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture
def on_devices(monkeypatch):
    monkeypatch.undo()  # before the devices are counted
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices, and there are fewer")


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    root = make_project(tmp_path_factory.mktemp("base"), {})
    finish(root, SFT)
    return root


@pytest.mark.parametrize("settings", [{}, {"updates": 2, "min_p": 0.02, "local_batch": 2}], ids=["one", "two"])
def test_a_run_of_two_processes_is_that_of_one(base, tmp_path, settings):
    roots = [tmp_path / name for name in ("one", "two", "torchrun")]
    for root, processes in zip(roots, ({}, TWO, TWO), strict=True):
        root.mkdir()
        copy_of(base, root, rl={**processes, **settings})
    finish(roots[0], RL)
    finish(roots[1], RL)
    finish(roots[2], [*TORCHRUN, "2", *RL[1:]])
    assert (roots[1] / POLICY).read_bytes() == (roots[2] / POLICY).read_bytes()
    one, two = (load_file(root / POLICY) for root in roots[:2])
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(log(roots[1]), log(roots[0]), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-5)


def test_on_two_devices_as_on_one(base, tmp_path, on_devices):
    roots = [tmp_path / name for name in ("one", "two")]
    for root, processes in zip(roots, ({}, TWO), strict=True):
        root.mkdir()
        finish(copy_of(base, root, rl={**processes, "steps": 1, "keep_steps": []}), RL)
    [one], [two] = (log(root) for root in roots)
    assert two == pytest.approx(one, rel=1e-2, abs=1e-3)


def ranks_of(pid: int) -> list[int]:
    """Return the processes that ``pid`` has started."""
    return [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]


def gone(pids: list[int], patience: float = 10.0) -> bool:
    deadline = time.monotonic() + patience
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def started(root: Path) -> "subprocess.Popen[str]":
    """Start a training, and return it when it has saved something."""
    state = root / "work/tiny/checkpoints/grpo_branch/seed1/state.pt"
    before = state.stat().st_mtime_ns if state.exists() else 0
    process = subprocess.Popen(RL, cwd=root, env=environment(), stderr=subprocess.PIPE, text=True)
    while (state.stat().st_mtime_ns if state.exists() else 0) == before:
        assert process.poll() is None
        time.sleep(0.01)
    return process


def test_signals_end_all_processes_and_the_same_command_goes_on(base, tmp_path):
    roots = [tmp_path / name for name in ("undisturbed", "disturbed")]
    for root in roots:
        root.mkdir()
        copy_of(base, root, rl={**TWO, "steps": 60})
    finish(roots[0], RL)
    for number, status in [(signal.SIGTERM, 75), (signal.SIGUSR2, 75), (signal.SIGKILL, -signal.SIGKILL)]:
        process = started(roots[1])
        ranks = ranks_of(process.pid)
        assert len(ranks) == 2
        process.send_signal(number)
        time.sleep(0.01)
        process.send_signal(number)  # SLURM sends one to every process of a job, and so does its task to its child
        told = process.communicate(timeout=60)[1]
        assert process.returncode == status, told
        assert gone(ranks)
        if number != signal.SIGKILL:
            assert told.count("stopped by a signal after step") == 1
            assert "Traceback" not in told
    finish(roots[1], RL)
    assert (roots[1] / POLICY).read_bytes() == (roots[0] / POLICY).read_bytes()
    assert log(roots[1]) == log(roots[0])


def test_a_rank_that_is_killed_ends_the_run(base, tmp_path):
    root = copy_of(base, tmp_path, rl={**TWO, "steps": 1000})
    process = started(root)
    ranks = ranks_of(process.pid)
    os.kill(ranks[1], signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert gone(ranks)


def test_a_mistake_is_said_once(base, tmp_path):
    root = copy_of(base, tmp_path, rl=TWO)
    (root / "data/tiny/checkpoints/base/model/model.safetensors").unlink()
    done = subprocess.run(RL, cwd=root, env=environment(), capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    [line] = done.stderr.strip().splitlines()
    assert line.startswith("error: data/tiny/checkpoints/base/model/model.safetensors: missing; `dvc pull")


def test_another_number_of_processes_is_a_mistake(base, tmp_path):
    root = copy_of(base, tmp_path, rl=TWO)
    done = subprocess.run([*TORCHRUN, "3", *RL[1:]], cwd=root, env=environment(), capture_output=True, text=True)
    assert done.returncode
    assert "error: rl.processes: 2, but torchrun has started 3; start as many, or change it" in done.stderr
