"""DVC lists every cell, refreshes reports without training, and tracks every payload."""

import json
import re

import yaml
from project_tree import SUITE, jobs

CELLS = {
    f"data/tiny/metrics/{method}/seed{seed}/knights_n{people}.json"
    for method in ("base", "grpo_branch")
    for seed in (1, 2)
    for people in (4, 5)
}


def report(tree) -> dict[str, bytes]:
    files = [file for file in (tree.root / "reports/tiny").rglob("*") if file.is_file()]
    return {str(file.relative_to(tree.root)): file.read_bytes() for file in files}


def test_metrics_show_lists_every_cell(clone):
    shown = json.loads(clone.run("dvc", "metrics", "show", "--json").stdout)[""]["data"]
    assert set(shown) == CELLS
    assert all("pass@8" in cell["data"]["strict"] for cell in shown.values())


def test_plots_show_draws_the_step_logs(clone):
    shown = clone.run("dvc", "plots", "show", "--out", "plots")
    assert "failed" not in shown.stdout + shown.stderr
    page = shown.stdout.strip()
    assert "reward" in (clone.root / page.removeprefix("file://")).read_text()


def test_repro_in_a_clone_refreshes_the_report_without_training(clone):
    committed = report(clone)
    assert "reports/tiny/index.html" in committed
    clone.run("dvc", "repro")
    assert report(clone) == committed
    clone.run("dvc", "repro", "--force")
    assert report(clone) == committed
    assert not clone.changed()
    assert not (clone.root / "work").exists()


def test_repro_notices_a_changed_metric_file(tree):
    tree.edit("data/tiny/metrics/base/seed1/knights_n4.json", '"truncated": ', '"truncated": 0')
    assert "data/tiny/metrics" in tree.run("dvc", "status").stdout


def test_repro_runs_the_workflows_command(tree):
    stage = yaml.safe_load((tree.root / "dvc.yaml").read_text())["stages"]["report-tiny"]
    done = tree.snakemake("-n", "--printshellcmds", "--force", "reports/tiny/index.html")
    assert jobs(done) == {"render_report": 1}
    assert re.findall(r"python -m .*(?= 2>&1)", done.stdout) == [stage["cmd"]]


def test_every_payload_is_tracked(finished):
    payloads = json.loads((finished.root / "data/tiny/tracked.json").read_text())["payloads"]
    assert len(payloads) == 4 + 1 + 2 * 2 + 8  # data sets, base, two runs with a kept step each, samples
    for payload, md5 in payloads.items():
        [out] = yaml.safe_load((finished.root / f"{payload}.dvc").read_text())["outs"]
        assert out["md5"] == md5


def test_tracking_again_changes_nothing(tree):
    tree.run("python", "-m", "sage.track", "--config", SUITE)
    assert not tree.changed()
    assert not tree.run("git", "status", "--porcelain").stdout


def test_tracking_keeps_what_is_not_here(clone):
    clone.run("python", "-m", "sage.track", "--config", SUITE)
    assert not clone.run("git", "status", "--porcelain").stdout
