"""The workflow runs what is needed, and nothing else."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from project_tree import SUITE, jobs

CHECKPOINT = "data/tiny/checkpoints/grpo_branch/seed1/manifest.json"
SAMPLES = "data/tiny/samples/grpo_branch/seed1/knights_n4/manifest.json"
METRICS = "data/tiny/metrics/grpo_branch/seed1/knights_n4.json"
RL_AND_BELOW = {"train_policy": 2, "sample_benchmark": 4, "verify_samples": 4, "render_report": 1, "track_payloads": 1}


def test_a_finished_run_has_nothing_to_be_done(tree):
    assert "Nothing to be done" in tree.snakemake("-n", "all").stdout
    tree.shuffle_times()
    assert not tree.pending()


def test_a_clone_is_adopted_and_pulls_its_payloads(finished, clone, tmp_path):
    finished.make("remote", f"REMOTE={tmp_path / 'remote'}")
    finished.run("dvc", "push")
    clone.make("adopt")
    assert not clone.pending()
    clone.make("remote", f"REMOTE={tmp_path / 'remote'}")
    clone.run("dvc", "pull")
    clone.shuffle_times()
    assert not clone.pending()
    assert not clone.run("python", "-m", "sage.track", "--config", SUITE, "--missing").stdout.strip()
    assert jobs(clone.snakemake("-f", SAMPLES)) == {"sample_benchmark": 1}
    assert not clone.pending()
    assert not clone.changed()


@pytest.mark.parametrize(
    ("target", "rule"), [(CHECKPOINT, "train_policy"), (SAMPLES, "sample_benchmark"), (METRICS, "verify_samples")]
)
def test_one_file_is_made_again_alone_and_comes_out_the_same(tree, target, rule):
    before = (tree.root / target).stat().st_mtime_ns
    assert jobs(tree.snakemake("-f", target)) == {rule: 1}
    assert (tree.root / target).stat().st_mtime_ns > before
    assert not tree.changed()
    assert not tree.pending()


def test_two_seeds_differ(finished):
    def weights(seed):
        manifest = json.loads((finished.root / CHECKPOINT.replace("seed1", f"seed{seed}")).read_text())
        return manifest["payload"]["model/model.safetensors"]["sha256"]

    def samples(method, seed):
        folder = finished.root / f"data/tiny/samples/{method}/seed{seed}/knights_n4"
        return json.loads((folder / "manifest.json").read_text())["payload"]["samples.parquet"]["sha256"]

    assert weights(1) != weights(2)
    assert len({samples(method, seed) for method in ("base", "grpo_branch") for seed in (1, 2)}) == 4


@pytest.mark.parametrize(
    ("old", "new", "rules"),
    [
        ("  data_seed: 7", "  note: said differently\n  data_seed: 7", {}),
        ("save_every: 5", "save_every: 10", {}),
        ("shards: 2", "shards: 3", {}),
        ("lr: 4e-4", "lr: 5e-4", RL_AND_BELOW),
        ("verify: 1", "verify: 2", {"verify_samples": 8, "render_report": 1, "track_payloads": 1}),
    ],
)
def test_a_change_of_the_configuration_reruns_what_depends_on_it(tree, old, new, rules):
    tree.edit(SUITE, old, new)
    assert tree.pending() == rules


def test_a_configuration_may_be_moved(tree):
    (tree.root / SUITE).rename(tree.root / "moved.yaml")
    assert not tree.pending(suites=["moved.yaml"])


def test_configurations_add_up_and_the_default_is_left_out(tree):
    def suites(*files):
        return set(re.findall(r"suite=(\w+)", tree.snakemake("-n", "all", "--forceall", suites=files).stdout))

    assert suites(SUITE) == {"tiny"}
    assert suites(SUITE, "workflow/config/demo.yaml") == {"tiny", "demo"}


def test_a_clone_without_payloads_is_made_from_nothing(clone):
    missing = clone.run("python", "-m", "sage.track", "--config", SUITE, "--missing").stdout.split()
    assert len(missing) == 4 + 3 + 8
    assert sum(clone.pending("--forcerun", *missing).values()) == 4 + 3 + 8 + 8 + 2


def test_a_killed_run_is_finished_by_the_next_one(tree):
    work, folder = tree.root / "work/tiny/checkpoints/grpo_branch", tree.root / "data/tiny/checkpoints/grpo_branch"
    command = ["snakemake", "--cores", "2", "all", "--forcerun", CHECKPOINT, "--configfile", SUITE]
    with subprocess.Popen(
        command, cwd=tree.root, env=tree.environment(), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:  # fmt: skip
        deadline = time.monotonic() + 120
        while not (work / "seed1/state.pt").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    assert not (folder / "seed1/manifest.json").exists()
    assert (folder / "seed1/model/model.safetensors").is_file()
    tree.snakemake("--unlock")
    done = jobs(tree.snakemake("--rerun-incomplete", "all"))
    assert done["train_policy"] == 1
    assert tree.changed() <= {"reports/tiny/index.html"}  # the page says how long training took
    assert not tree.pending()


def test_the_rollout_browser_is_made_when_asked_for(tree):
    assert jobs(tree.snakemake("rollouts")) == {"rollouts": 1, "annotate_rollouts": 4}
    assert len(list(tree.root.glob("reports/tiny/rollouts/*/*/index.js"))) == 4
    # The entropies are in git and come into the report; the browser's parts do not.
    assert {Path(line.split()[-1]).name for line in tree.run("git", "status", "--porcelain").stdout.splitlines()} == {
        "entropy.csv"
    }
    assert tree.pending() == {"render_report": 1, "track_payloads": 1}
    tree.snakemake("all")
    assert (tree.root / "reports/tiny/figures/entropy.svg").is_file()
    assert not tree.pending()
    tree.edit(SUITE, "gamma: 0.5", "gamma: 0.6")
    pending = jobs(tree.snakemake("-n", "rollouts", "--allowed-rules", "annotate_rollouts", "rollouts"))
    assert pending == {"rollouts": 1, "annotate_rollouts": 2}


def test_patterns_are_found_when_asked_for_and_come_into_the_report(tree):
    assert jobs(tree.snakemake("patterns")) == {"patterns": 1, "find_patterns": 4}
    assert tree.pending() == {"render_report": 1, "track_payloads": 1}
    tree.snakemake("all")
    assert "constraint set-up" in (tree.root / "reports/tiny/tables/patterns.md").read_text()
    assert not tree.pending()
