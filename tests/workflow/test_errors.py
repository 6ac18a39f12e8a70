"""A mistake is one line that names the file, the key and the fix; the exit status is not 0."""

import shutil

import pytest
from project_tree import SUITE

CHECKPOINT = "data/tiny/checkpoints/grpo_branch/seed1"
BASE = "data/tiny/checkpoints/base/model"


def error_lines(done) -> list[str]:
    text = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Traceback" not in text
    return [line for line in text.splitlines() if line.startswith("error: ")]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("seeds:", "sedes:", "tiny: unknown key 'sedes' (did you mean 'seeds'?)"),
        ("prompts: 2", "prompts: two", "tiny: rl.prompts: Input should be a valid integer"),
        ("grpo_branch]", "grpo_brunch]", "unknown method 'grpo_brunch' (did you mean 'grpo_branch'?)"),
        ("benchmarks: [knights_n4,", "benchmarks: [knights_n8,", "no data set 'knights_n8'"),
    ],
)
def test_a_wrong_configuration(tree, old, new, says):
    tree.edit(SUITE, old, new)
    [line] = error_lines(tree.snakemake("-n", "all", status=None))
    assert says in line
    [again] = error_lines(
        tree.run("python", "-m", "sage.train", "--config", SUITE, "--method", "grpo_branch", "--seed", "1", status=2)
    )
    assert again == line


def test_values_on_the_command_line_are_refused(tree):
    [line] = error_lines(tree.snakemake("-n", "all", "--config", "tiny={seeds: [3]}", status=None))
    assert "--config" in line


def test_a_suite_that_stands_twice(tree):
    shutil.copy(tree.root / SUITE, tree.root / "copy.yaml")
    [line] = error_lines(tree.snakemake("-n", "all", suites=[SUITE, "copy.yaml"], status=None))
    assert "copy.yaml: suite 'tiny' stands in" in line


def test_a_missing_payload_names_the_pull_and_loses_nothing(tree):
    shutil.rmtree(tree.root / BASE)
    failed = tree.snakemake("-f", f"{CHECKPOINT}/manifest.json", status=1)
    [line] = error_lines(failed)
    assert f"`dvc pull {BASE}.dvc` brings it" in line
    assert (tree.root / CHECKPOINT / "model/model.safetensors").is_file()
    tree.run("git", "checkout", "--quiet", "data")
    tree.run("dvc", "checkout", f"{BASE}.dvc")
    assert not tree.pending()


def test_a_payload_that_was_changed(tree):
    weights = tree.root / BASE / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    [line] = error_lines(tree.snakemake("-f", f"{CHECKPOINT}/manifest.json", status=1))
    assert f"`dvc pull --force {BASE}.dvc`" in line


def test_tracking_needs_git(tree):
    shutil.rmtree(tree.root / ".git")
    [line] = error_lines(tree.run("python", "-m", "sage.track", "--config", SUITE, status=2))
    assert "`git init`" in line
