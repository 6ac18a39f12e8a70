"""Completions depend on (benchmark, problem, sample, weights) alone: not on the batch, the shards or the workers."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from tiny_project import BUILD, SAMPLE, SFT, edit, environment, finish, make_project

from sage.processes import see_devices

SHAPE = "batch: 64, shards: 2, workers: 1, threads: 1"
SAMPLES = "data/tiny/samples/base/seed1/knights_n4"


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    root = make_project(tmp_path_factory.mktemp("project"), {})
    finish(root, SFT)
    return root


def sample(root: Path, shape: str) -> pd.DataFrame:
    edit(root, {SHAPE: shape})
    finish(root, SAMPLE)
    edit(root, {shape: SHAPE})
    return pd.read_parquet(root / SAMPLES / "samples.parquet")


def test_another_batch_shards_and_workers_give_the_same_completions(project):
    first = sample(project, SHAPE)
    assert len(first) == 3 * 8
    assert first["key"].is_unique
    assert set(first.columns) == {"problem", "sample", "tokens", "text", "finish", "key"}
    for shape in (
        "batch: 5, shards: 1, workers: 1, threads: 1",
        "batch: 64, shards: 3, workers: 2, threads: 1",
        "batch: 7, shards: 2, workers: 2, threads: 2",
    ):
        other = sample(project, shape)
        pd.testing.assert_frame_equal(first.drop(columns="tokens"), other.drop(columns="tokens"))
        assert [list(a) for a in first["tokens"]] == [list(b) for b in other["tokens"]]


def test_parts_share_the_shards_of_all_benchmarks_that_are_not_there(project):
    edit(project, {SHAPE: f"{SHAPE}, jobs: 2"})
    finish(project, [*BUILD, "knights_n5"])
    folders = [project / SAMPLES, project / SAMPLES.replace("n4", "n5")]
    finish(project, SAMPLE)
    alone = [folders[0] / "samples.parquet", folders[0] / "manifest.json"]
    before = [file.read_bytes() for file in alone]
    both = [*SAMPLE, "knights_n5"]
    for part in ("0", "1"):
        finish(project, [*both, "--part", part])
    # Of the one that is there, no shard is made again.
    made = sorted(str(file.relative_to(project)) for file in (project / "work/tiny/samples").rglob("*.parquet"))
    assert [name.split("/")[5] for name in made] == ["knights_n5"] * 2
    assert not (folders[1] / "manifest.json").exists()
    finish(project, [*SAMPLE[:-1], "knights_n5"])
    assert len(pd.read_parquet(folders[1] / "samples.parquet")) == 3 * 8
    (folders[0] / "manifest.json").unlink()
    finish(project, both)
    assert [file.read_bytes() for file in alone] == before
    edit(project, {f"{SHAPE}, jobs: 2": SHAPE})


@pytest.mark.parametrize(
    ("seen", "first", "count", "left"),
    [
        (None, 1, 1, "1"),
        (None, 2, 2, "2,3"),
        ("3,5,7", 1, 1, "5"),
        ("GPU-a,GPU-b", 0, 2, "GPU-a,GPU-b"),
        ("0", 1, 1, ""),
    ],
)
def test_a_worker_sees_its_own_devices(monkeypatch, seen, first, count, left):
    if seen is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    see_devices(first, count)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == left


def test_a_killed_job_keeps_its_finished_shards(tmp_path):
    slow = {"people: [4], size: 3,": "people: [4], size: 30,", SHAPE: "batch: 2, shards: 15, workers: 1, threads: 1"}
    root = make_project(tmp_path, slow)
    finish(root, SFT)
    work, found = root / "work/tiny/samples/base/seed1/knights_n4", list[Path]()
    with subprocess.Popen(SAMPLE, cwd=root, env=environment(), stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not found:
            found = list(work.glob("*/shard0.parquet"))
            time.sleep(0.005)
        process.kill()
    assert not (root / SAMPLES / "manifest.json").exists()
    # A shard of other completions: were it sampled again, they would not be in the table.
    [shard] = found
    kept = pd.read_parquet(shard).assign(text="kept")
    kept.to_parquet(shard)
    finish(root, SAMPLE)
    table = pd.read_parquet(root / SAMPLES / "samples.parquet")
    assert len(table) == 30 * 8
    assert set(table.loc[table["text"] == "kept", "problem"]) == set(kept["problem"])


def test_the_base_model_loads_anywhere(project, tmp_path):
    """In another process, without this package: an ordinary folder for AutoModelForCausalLM and AutoTokenizer."""
    script = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder = sys.argv[1]
model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
text = "aBN;bAK&CN;cBN;?"
ids = tokenizer(text, return_tensors="pt").input_ids
assert tokenizer.is_fast and ids.shape == (1, len(text) + 1)
assert ids[0, 0] == tokenizer.bos_token_id and (ids == tokenizer.bos_token_id).sum() == 1
assert tokenizer.decode(ids[0], skip_special_tokens=True) == text
out = model.generate(ids, max_new_tokens=5, do_sample=False)
assert out.shape[1] > ids.shape[1]
print(type(model).__name__, sum(p.numel() for p in model.parameters()))
"""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(project / "data/tiny/checkpoints/base/model")],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Qwen2ForCausalLM")
