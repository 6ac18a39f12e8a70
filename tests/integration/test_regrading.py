"""Kept samples are graded again without a model: the same files, what changes is shown, nothing is written unasked."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from tiny_project import BUILD, ROOT, SUITE, edit, environment, finish

from sage import manifest
from sage.tasks import read_records

CELL = Path("data/tiny/samples/base/seed1/knights_n4")
METRICS = Path("data/tiny/metrics/base/seed1")
VERIFY = [sys.executable, "-m", "sage.evaluate.verify"]
NAMES = [f"knights_n4.{end}" for end in ("json", "counts.json", "answers.json")]


def flipped(answer: str, position: int) -> str:
    """Return the answer with one person's role changed."""
    return answer[:position] + {"K": "N", "N": "K"}[answer[position]] + answer[position + 1 :]


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A tiny suite with samples that nobody sampled: of 8 answers a problem 3 right, 3 wrong in two ways, 2 none."""
    config = tmp_path / "workflow/config"
    config.mkdir(parents=True)
    (config / "methods").symlink_to(ROOT / "workflow/config/methods")
    shutil.copy(ROOT / "tests/workflow/tiny.yaml", tmp_path / SUITE)
    edit(tmp_path, {"evaluate: {ks: [1, 8]}": "evaluate: {ks: [1, 2, 8]}"})
    finish(tmp_path, [*BUILD, "knights_n4"])
    monkeypatch.chdir(tmp_path)
    rows = []
    for record in read_records(Path("data/tiny/processed/knights_n4/records.jsonl")):
        right = "!" + record.answer
        first, second = (flipped(right, position) for position in (2, 4))
        texts = [right, right, right, first, first, second, "!", "A"]
        rows += [
            (record.id, i, [1] * (i + 1), text, "length" if text == "A" else "stop", i) for i, text in enumerate(texts)
        ]
    (tmp_path / "work").mkdir(exist_ok=True)
    table = pd.DataFrame(rows, columns=["problem", "sample", "tokens", "text", "finish", "key"])
    table.to_parquet(tmp_path / "work/samples.parquet", index=False)
    content = {
        "stage": "sample", "suite": "tiny", "method": "base", "seed": 1, "benchmark": "knights_n4", "key": "",
        "inputs": {"checkpoint": "", "problems": ""}, "n": 8, "temperature": 1.0, "top_p": 1.0, "engine": "transformers",
    }  # fmt: skip
    manifest.publish(tmp_path / "work", tmp_path / CELL, ["samples.parquet"], content, [])
    return tmp_path


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([*VERIFY, *arguments], env=environment(), capture_output=True, text=True)


def grade_the_cell() -> None:
    done = run("--config", SUITE, "--method", "base", "--seed", "1", "--benchmark", "knights_n4")
    assert done.returncode == 0, done.stderr


def contents(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


def test_the_numbers_of_the_answers(project):
    grade_the_cell()
    assert set(contents(METRICS)) == set(NAMES)
    found = json.loads((METRICS / "knights_n4.answers.json").read_text())
    assert (
        found["avg@8"]["answer"] == json.loads((METRICS / "knights_n4.json").read_text())["answer"]["pass@1"] == 0.375
    )
    # Of the 28 pairs: right wins 3 of two right ones, 6 with none, and half of the 9 with a wrong one.
    expected = {"maj@1": 3 / 8, "maj@2": (3 + 6 + 9 / 2) / 28, "maj@8": 1.0}
    assert found["maj"] == pytest.approx(expected)
    assert found["distinct"] == 3
    assert [found[name] for name in ("truncated", "unparseable", "timeout", "error")] == [0.125, 0.25, 0, 0]


@pytest.mark.parametrize("named", [CELL / "samples.parquet", CELL, Path("data/tiny/samples")])
def test_the_same_samples_give_the_same_verdicts(project, named):
    grade_the_cell()
    before = contents(METRICS)
    done = run("--regrade", str(named))
    assert done.stdout.splitlines() == [
        f"{CELL}: strict: correct 0, wrong 18, unparseable 6, timeout 0, error 0; no problems differ",
        f"{CELL}: answer: correct 9, wrong 9, unparseable 6, timeout 0, error 0; no problems differ",
        "1 cells graded, 0 of them otherwise than before or for the first time",
    ]
    assert contents(METRICS) == before


def test_a_changed_verdict_is_shown_and_written_where_it_is_asked_for(project):
    grade_the_cell()
    right = contents(METRICS)
    file = METRICS / "knights_n4.counts.json"
    content = json.loads(file.read_text())
    content["problems"][0]["answer"].update(correct=2, wrong=4)
    file.write_text(json.dumps(content))
    wrong = contents(METRICS)
    done = run("--regrade", str(CELL))
    assert (
        "answer: correct 9 (was 8), wrong 9 (was 10), unparseable 6, timeout 0, error 0; 1 problems differ"
        in done.stdout
    )
    assert "1 of them otherwise" in done.stdout
    assert contents(METRICS) == wrong
    run("--regrade", str(CELL), "--write", "elsewhere")
    assert contents(METRICS) == wrong
    assert contents(project / "elsewhere/base/seed1") == right


def test_samples_that_were_not_graded_before(project):
    done = run("--regrade", str(CELL))
    assert done.stdout.count("not graded before") == 2
    assert not METRICS.exists()


@pytest.mark.parametrize(
    ("named", "says"),
    [("nowhere", "nowhere: no samples with a manifest.json"), ("data/tiny/processed", "stage data, not samples")],
)
def test_what_is_not_samples(project, named, says):
    done = run("--regrade", named)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert says in line
