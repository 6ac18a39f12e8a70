"""The benchmarks from their files: counts, pins, and one line for each way in which a source can be wrong."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sage import tasks
from sage.errors import UserError
from sage.strict import validate

SHARED = Path(__file__).parents[3] / "shared/data/benchmarks"
FILES = {
    "aime": ["aime2024.jsonl", "aime2025-I.jsonl", "aime2025-II.jsonl"],
    "amc23": ["amc23.jsonl"],
    "math500": ["math500.jsonl"],
}
COUNTS = {"aime": 60, "amc23": 40, "math500": 500}
needs_data = pytest.mark.skipif(not SHARED.is_dir(), reason=f"{SHARED} is not here")


def build(name: str, sources: list[str], levels=(1, 2, 3, 4, 5)):
    task = tasks.load(name)
    extra = {"levels": list(levels)} if name == "math500" else {}
    spec = validate(task.Spec, {"task": name, "sources": sources, "region": "tags", **extra}, name)
    return task.build(spec, 0)


def sources(name: str) -> list[str]:
    return [str(SHARED / file) for file in FILES[name]]


@needs_data
@pytest.mark.parametrize("name", FILES)
def test_the_benchmark_is_whole_and_its_ids_are_its_own(name):
    records = build(name, sources(name))
    assert len(records) == COUNTS[name]
    assert len({record.id for record in records}) == COUNTS[name]
    assert all(record.answer and record.problem for record in records)


@needs_data
def test_level_5_of_math500_has_134_problems():
    assert len(build("math500", sources("math500"), levels=[5])) == 134


@needs_data
def test_answers_are_written_one_way():
    assert all(
        record.answer.isdigit() and record.answer == str(int(record.answer))
        for record in build("aime", sources("aime"))
    )
    assert all("." not in record.answer for record in build("amc23", sources("amc23")))


def edited(tmp_path, name: str, change) -> list[str]:
    """Return a copy of the sources whose first row was changed."""
    for file in FILES[name]:
        shutil.copy(SHARED / file, tmp_path / file)
    first = tmp_path / FILES[name][0]
    rows = [json.loads(line) for line in first.read_text().splitlines()]
    change(rows)
    first.write_text("\n".join(map(json.dumps, rows)))
    return [str(tmp_path / file) for file in FILES[name]]


@needs_data
def test_another_order_other_ids_and_leading_zeros_are_the_same_benchmark(tmp_path):
    def change(rows):
        rows.reverse()
        for number, row in enumerate(rows):
            row.update(id=number, answer=row["answer"].zfill(3), problem=row["problem"] + " \n")

    assert {r.id for r in build("aime", edited(tmp_path, "aime", change))} == {
        r.id for r in build("aime", sources("aime"))
    }


FILE = r"aime2024\.jsonl"


@needs_data
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda rows: rows[0].update(answer="1"),
            rf"{FILE}, .*: 1 with another answer \([0-9a-f]{{12}}: 'Every morning ",
        ),
        (lambda rows: rows.pop(), rf"{FILE}, .*: 1 missing \([0-9a-f]{{12}}\)"),
        (
            lambda rows: rows[0].update(problem="What is 1 + 1?"),
            rf"{FILE}, .*: 1 with an unknown problem \(.*'What is 1",
        ),
        (lambda rows: rows[0].pop("answer"), rf"{FILE}, row 1: no field 'answer'"),
        (lambda rows: rows[1].update(answer=None), rf"{FILE}, row 2: no field 'answer'"),
        (
            lambda rows: rows[0].update(anwser=rows[0].pop("answer")),
            rf"{FILE}, row 1: no field 'answer' \(did you mean 'anwser'\?\)",
        ),
        (lambda rows: rows[0].update(answer="1.5"), rf"{FILE}, row 1: field 'answer': '1.5' is not a whole number"),
        (lambda rows: rows[2].update(answer="seven"), rf"{FILE}, row 3: field 'answer': 'seven' is not a whole number"),
        (lambda rows: rows.clear(), rf"{FILE}: no rows"),
    ],
)
def test_a_source_that_is_not_the_benchmark_is_one_line_with_file_field_and_fix(tmp_path, change, says):
    with pytest.raises(UserError, match=says + ".*; name a "):
        build("aime", edited(tmp_path, "aime", change))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("nowhere.jsonl", "nowhere.jsonl: no such file"),
        ("hub:owner/name:train", "hub:owner/name:train: .* a revision pins the data"),
        ("https://localhost:1/aime.jsonl", "cannot be fetched"),
    ],
)
def test_a_source_that_cannot_be_read(source, says):
    with pytest.raises(UserError, match=says):
        build("aime", [source])


@pytest.mark.parametrize("text", ["not json", "[1, 2]", '"text"'])
def test_a_file_of_another_form(tmp_path, text):
    file = tmp_path / "rows.jsonl"
    file.write_text(text)
    with pytest.raises(UserError, match=r"rows\.jsonl: (not JSON|a row is not an object)"):
        build("amc23", [str(file)])


@needs_data
@pytest.mark.parametrize("name", FILES)
def test_check_prints_gold_against_itself(name):
    command = [sys.executable, "-m", "sage.tasks", "check", name, "--source", *sources(name)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    count = COUNTS[name]
    assert done.stdout.splitlines() == [
        f"{name}: {count}/{count} in the answer tags",
        f"{name}: {count}/{count} in a box",
    ]
