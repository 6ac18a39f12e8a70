"""The committed results belong to the committed configuration, and dvc.yaml lists exactly them."""

import json
import subprocess
from pathlib import Path

import pytest

from sage import dvcyaml, grid, paths
from sage.config import load_suite

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def in_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def committed(pattern: str) -> list[Path]:
    done = subprocess.run(["git", "ls-files", pattern], capture_output=True, text=True)
    if done.returncode:
        pytest.skip("no git repository, so nothing is committed")
    return [Path(line) for line in done.stdout.splitlines()]


def suites() -> list:
    names = sorted({file.parts[1] for file in committed("data/*/metrics/*.json")})
    return [load_suite(f"workflow/config/{name}.yaml") for name in names] or pytest.skip("no results are committed")


def test_dvc_yaml_is_that_of_the_suites_with_committed_metrics():
    assert dvcyaml.render(suites()) == Path("dvc.yaml").read_text()


def test_every_cell_of_a_committed_suite_is_committed():
    files = set(committed("data/*"))
    for suite in suites():
        wanted = [*grid.metrics(suite), *grid.counts(suite), *grid.training_logs(suite), *grid.manifests(suite)]
        assert set(wanted) | {paths.tracked(suite.name)} <= files


def test_the_results_are_those_of_the_configuration():
    for suite in suites():
        for file in grid.manifests(suite):
            content = json.loads(file.read_text())
            names = {name: content[name] for name in ("method", "dataset") if name in content}
            assert content["key"].split()[0] == suite.stage_key(content["stage"], **names), file


def test_no_payload_is_committed():
    large = [file for file in committed("data/*") if file.stat().st_size > 1_000_000]
    assert not large
    assert not [file for file in committed("data/*") if file.name in ("samples.parquet", "records.jsonl")]
