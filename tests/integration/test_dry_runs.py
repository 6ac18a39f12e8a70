"""The suites that nobody runs on a laptop: the workflow builds their whole grid, with the jobs that the plan counts."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sage import config, plan

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["qwen2.5-math-7b", "r1-distill-qwen-7b", "smollm2"])
def test_a_dry_run_has_the_jobs_of_the_plan(tmp_path, monkeypatch, name):
    for part in ("Snakefile", "workflow", "sage", "environment.yml"):
        (tmp_path / part).symlink_to(ROOT / part)
    monkeypatch.chdir(tmp_path)
    file = f"workflow/config/{name}.yaml"
    command = [str(Path(sys.executable).parent / "snakemake"), "-n", "all", "--quiet", "rules", "--configfile", file]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout + done.stderr
    found = {rule: int(count) for rule, count in re.findall(r"^(\w+) +(\d+)$", done.stdout, flags=re.M)}
    rows = {label: int(count.replace(",", "")) for label, count in plan.jobs(config.load_suite(file))}
    assert found.pop("all") == 1
    assert found.pop("total") - 1 == rows.pop("all")
    assert found.pop("render_report") + found.pop("track_payloads") == rows.pop("render_report, track_payloads")
    fetched = found.pop("fetch_model", 0) + found.pop("fetch_base", 0)
    assert fetched == rows.pop("fetch_model")
    assert found == {rule: count for rule, count in rows.items() if count}
