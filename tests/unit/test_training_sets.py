"""Training sets: what a row becomes, pins that a command writes, sources that are fetched first and read offline."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from sage import tasks
from sage.errors import UserError
from sage.strict import validate
from sage.tasks import open_math, read_records, write_records
from sage.tasks._math import source
from sage.tasks._math.training import write_pins

ROOT = Path(__file__).parents[2]
DAPO = [
    {"prompt": "What is  1 + 1?\n", "solution": "2", "ability": "MATH"},
    {"prompt": "What is 2 + 2?", "solution": "4"},
    {"prompt": "What is 1 + 1?", "solution": "2"},  # repeated
    {"prompt": "What is 3 + 3?", "solution": "6"},
    {"prompt": "What is 3 + 3?", "solution": "7"},  # disputed
]
OPEN = [
    {"problem": "Half of 5?", "expected_answer": "2.5", "generated_solution": "<think>\nfive\u2028halves\n</think>\nSo 2.5."},
    {"problem": "Half of 5?", "expected_answer": "2.5", "generated_solution": "It is 2.5."},
    {"problem": "Half of 1?", "expected_answer": r"\frac{1}{2}", "generated_solution": "It is a half."},
    {"problem": "Which?", "expected_answer": "nan", "generated_solution": "None."},
    {"problem": "How many?", "expected_answer": "-1.2e3", "generated_solution": "Many."},
]  # fmt: skip
SETS = {"dapo_math": DAPO, "open_math": OPEN}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, rows in SETS.items():
        write(Path(f"{name}.jsonl"), rows)
    return tmp_path


def write(file: Path, rows: list[dict]) -> None:
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def spec_of(name: str, origin: str = ""):
    content = {"task": name, "sources": [origin or f"{name}.jsonl"], "pins": f"{name}.json"}
    return validate(tasks.load(name).Spec, {**content, **({"region": "tags"} if name == "dapo_math" else {})}, "suite")


def read(name: str, origin: str = "") -> list:
    return tasks.load(name).read(spec_of(name, origin))


def build(name: str) -> list:
    return tasks.load(name).build(spec_of(name), 0)


def pin(name: str) -> None:
    write_pins(read(name), Path(f"{name}.json"))


def test_dapo_keeps_a_problem_once_and_none_with_two_answers(capsys):
    records = read("dapo_math")
    assert [(r.problem, r.answer) for r in records] == [("What is 1 + 1?", "2"), ("What is 2 + 2?", "4")]
    assert "5 rows, 3 problems, of which 1 left out" in capsys.readouterr().out
    task = tasks.load("dapo_math")
    assert task.quick(records[1], task.region(records[1], "so <SOLUTION>4.0</SOLUTION>")) == {"answer": "correct"}
    assert task.region(records[1], "so 4") is None


def test_open_math_keeps_numbers_and_every_solution():
    records = read("open_math")
    assert [(r.problem, r.answer) for r in records] == [
        ("Half of 5?", "2.5"),
        ("Half of 5?", "2.5"),
        ("How many?", "-1.2e3"),
    ]
    assert len({record.id for record in records}) == 3
    expected = "<start_working_out>It is 2.5.<end_working_out><SOLUTION>2.5</SOLUTION>"
    assert open_math.target(records[1]) == expected
    assert open_math.target(records[0]).startswith("<start_working_out>five\u2028halves\n\nSo 2.5.<end_working_out>")


def test_records_survive_their_file():
    records = read("open_math")
    write_records(Path("records.jsonl"), records)
    assert read_records(Path("records.jsonl")) == records


@pytest.mark.parametrize("name", SETS)
def test_nothing_is_built_before_it_is_pinned(name):
    with pytest.raises(UserError, match=rf"{name}\.json: missing; `python -m sage.tasks pin .*` writes it"):
        build(name)
    pin(name)
    assert build(name) == read(name)
    with pytest.raises(UserError, match="already there; remove it"):
        pin(name)


@pytest.mark.parametrize(
    ("name", "row", "change", "says"),
    [
        ("dapo_math", 1, {"solution": "5"}, "1 with another answer"),
        ("dapo_math", 1, {"prompt": "What is 5 + 5?"}, "1 with an unknown problem .*; 1 missing"),
        ("open_math", 1, {"generated_solution": "It is 2.50."}, "1 with an unknown problem .*; 1 missing"),
        ("open_math", 0, {"expected_answer": "2.25"}, "1 with another answer"),
        ("open_math", 4, {"expected_answer": "many"}, "1 missing"),
    ],
)
def test_a_drift_names_the_rows(name, row, change, says):
    pin(name)
    changed = [dict(r) for r in SETS[name]]
    changed[row].update(change)
    write(Path(f"{name}.jsonl"), changed)
    with pytest.raises(
        UserError, match=rf"{name}\.jsonl: not the rows that are pinned: {says} .*; name the source that"
    ):
        build(name)


@pytest.mark.parametrize("name", SETS)
def test_parquet_csv_and_json_are_the_same_rows(name):
    table = pd.DataFrame(SETS[name])
    Path("folder").mkdir()
    table.to_parquet("folder/rows.parquet")
    table.to_csv("rows.csv", index=False)
    Path("rows.json").write_text(json.dumps(SETS[name]))
    assert read(name) == read(name, "folder") == read(name, "rows.csv") == read(name, "rows.json")


def test_a_missing_value_in_a_table_is_a_missing_field():
    pd.DataFrame([{**DAPO[0], "solution": None}, DAPO[1]]).to_parquet("rows.parquet")
    with pytest.raises(UserError, match=r"rows\.parquet, row 1: no field 'solution'"):
        read("dapo_math", "rows.parquet")
    Path("rows.parquet").write_bytes(b"half")
    with pytest.raises(UserError, match=r"rows\.parquet: cannot be read"):
        read("dapo_math", "rows.parquet")


def test_what_was_fetched_is_read_without_a_network(monkeypatch):
    address = "https://localhost:1/dapo.jsonl"
    with monkeypatch.context() as patched:
        patched.setattr(source, "_download", lambda name: Path("dapo_math.jsonl").read_text(encoding="utf-8"))
        assert source.prefetch(address) == source.copy(address)
    assert read("dapo_math", address) == read("dapo_math")


def run(*arguments: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "HF_HOME": "hub"}
    command = [sys.executable, "-m", "sage.tasks", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def suite(origin: str) -> str:
    """Write the tiny suite with a training set of public data, and return its file."""
    Path("workflow/config").mkdir(parents=True)
    Path("workflow/config/methods").symlink_to(ROOT / "workflow/config/methods")
    text = (ROOT / "tests/workflow/tiny.yaml").read_text()
    line = f"    public: {{task: dapo_math, sources: ['{origin}'], region: tags, pins: pins.json}}\n  model:"
    Path("workflow/config/tiny.yaml").write_text(text.replace("  model:", line, 1))
    return "workflow/config/tiny.yaml"


def test_the_commands_from_sources_to_a_data_set():
    config = ["--config", suite("dapo_math.jsonl")]
    failed = run("build", *config, "--dataset", "public")
    assert failed.returncode == 2
    assert "pins.json: missing" in failed.stderr
    assert "pins.json: 2 records" in run("pin", *config, "--dataset", "public").stdout
    assert run("build", *config, "--dataset", "public").returncode == 0
    assert len(read_records(Path("data/tiny/processed/public/records.jsonl"))) == 2
    [line] = run("pin", *config, "--dataset", "knights_n4").stderr.splitlines()
    assert "tiny.datasets.knights_n4: task 'knights' needs no pins" in line
    assert "0 remote sources, all here" in run("prefetch", *config).stdout


def test_a_hub_that_cannot_be_reached_is_one_line():
    origin = "hub:open-r1/DAPO-Math-17k-Processed@532386f:en:train"
    failed = run("prefetch", "--config", suite(origin))
    assert failed.returncode == 2
    [line] = failed.stderr.splitlines()
    assert line.startswith(f"error: {origin}: the hub cannot be read (")
    assert "name a local copy, or run `python -m sage.tasks prefetch`" in line
    assert not Path("data/sources").exists()


def test_check_grades_the_golds_of_a_training_set():
    done = run("check", "dapo_math", "--source", "dapo_math.jsonl")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == ["dapo_math: 2/2 in the answer tags", "dapo_math: 2/2 in a box"]
