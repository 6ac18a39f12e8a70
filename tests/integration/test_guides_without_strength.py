"""A guide of no strength is q = 1, and q = 1 changes no bit of a run."""

import json
from pathlib import Path

import pytest
from tiny_project import RL, SFT, finish, make_project

GUIDED = ["grpo_random", "grpo_token", "grpo_branch"]
NO_STRENGTH = {
    "methods: [base, grpo_branch]": f"methods: [base, grpo, {', '.join(GUIDED)}]",
    "random: {epsilon: [0.1, 0.0], sigma: [0.15, 0.05]}": "random: {epsilon: [0.0, 0.0], sigma: [0.0, 0.0]}",
    "token: {alpha: [0.3, 0.1], sigma: [0.25, 0.1]}": "token: {alpha: [0.0, 0.0], sigma: [0.0, 0.0]}",
    "branch: {gamma: 0.5, tau: 0.8}": "branch: {gamma: 0.0, tau: 0.8}",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    root = make_project(tmp_path_factory.mktemp("project"), NO_STRENGTH)
    finish(root, SFT)
    finish(root, train("grpo"))
    return root


def train(method: str) -> list[str]:
    return [method if part == "grpo_branch" else part for part in RL]


def weights(root: Path, method: str) -> str:
    manifest = json.loads((root / f"data/tiny/checkpoints/{method}/seed1/manifest.json").read_text())
    return manifest["payload"]["model/model.safetensors"]["sha256"]


@pytest.mark.parametrize("method", GUIDED)
def test_the_run_is_that_of_grpo(project, method):
    finish(project, train(method))
    assert weights(project, method) == weights(project, "grpo")
    log, plain = ((project / f"data/tiny/metrics/{name}/seed1/training.csv").read_bytes() for name in (method, "grpo"))
    assert log == plain
