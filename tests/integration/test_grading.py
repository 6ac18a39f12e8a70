"""Answers that never end, or end their process: each costs its own time-out, and the others' verdicts are right."""

import itertools
import json
import re
import resource
import threading
import time
from pathlib import Path

import pytest

from sage import tasks
from sage.evaluate.grading import Grader
from sage.evaluate.worker import MEMORY
from sage.tasks import Record
from sage.tasks._math.equality import equal, obvious

SHARED = Path(__file__).parents[3] / "shared/data/benchmarks"

GOOD = Record("good", "What is 1/2?", r"\frac{1}{2}", {"region": "tags"})
BROKEN = Record("broken", "What?", "", {"region": "tags"})


HALF = r"2^{-1}"  # equal to the gold answer, which only the parser says


def tagged(answer: str) -> str:
    return f"<SOLUTION>{answer}</SOLUTION>"


BAD = {
    "tower of powers": "9^{9^{9^{9^{9^9}}}}",
    "tower of factorials": "((((9!)!)!)!)!",
    "nested braces": "{" * 10_000 + "1" + "}" * 10_000,
    "a megabyte": "1" * 1_000_000,
    "a megabyte of sums": "1+" * 500_000 + "1",
    "NUL bytes": "\x00" * 1000,
    "a million digits": "7" * 1_000_000,
    "a huge sum": r"\sum_{i=1}^{10^{12}} \frac{1}{i^2}",
    "a huge binomial": r"\binom{10^{9}}{5 \cdot 10^{8}}",
    "a huge power": "2^{2^{60}}",
    "a surrogate": "\ud800",
    "nested radicals": r"\sqrt{" * 150 + "2" + "}" * 150,
}


@pytest.fixture
def grader(monkeypatch):
    task = tasks.load("math500")
    monkeypatch.setattr(task, "TIMEOUT", 3.0)
    with Grader(task, workers=2) as grader:
        yield grader


def test_bad_answers_delay_nobody_and_all_others_are_right(grader):
    good = [tagged(HALF), tagged(r"\sqrt{2}"), "no answer at all", tagged("")]
    texts = [text for bad in BAD.values() for text in (tagged(bad), *good)]
    grader.grade([GOOD], [tagged(HALF)])  # the workers are up
    started = time.monotonic()
    verdicts = [verdict["answer"] for verdict in grader.grade([GOOD] * len(texts), texts)]
    assert time.monotonic() - started < (3.0 + 10.0) * len(BAD)  # its own time-out, and the start of another worker
    rows = [verdicts[i : i + 5] for i in range(0, len(verdicts), 5)]
    for name, row in zip(BAD, rows, strict=True):
        assert row[0] in ("wrong", "unparseable", "timeout", "error"), name
        assert row[1:] == ["correct", "wrong", "unparseable", "unparseable"], name
    assert any(row[0] == "timeout" for row in rows)


def test_memory_is_bounded(grader):
    grader.grade([GOOD], [tagged(HALF)])
    [worker] = grader.pool.workers
    limits = Path(f"/proc/{worker.process.pid}/limits").read_text()
    assert re.search(rf"Max address space +{MEMORY} ", limits)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grader.grade([GOOD] * len(BAD), [tagged(bad) for bad in BAD.values()])
    grader.close()
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 < MEMORY
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 200 << 20


def test_a_timeout_is_called_one_and_the_next_answer_is_graded(grader):
    answers = [BAD["a huge sum"], BAD["tower of powers"], HALF]
    found = [grader.grade([GOOD], [tagged(answer)])[0]["answer"] for answer in answers]
    assert "timeout" in found[:2]
    assert found[2] == "correct"


def test_a_gold_answer_that_cannot_be_read_is_an_error(grader):
    assert grader.grade([BROKEN, GOOD], [tagged("1"), tagged(HALF)]) == [{"answer": "error"}, {"answer": "correct"}]


def test_equal_answers_are_graded_once(grader, monkeypatch):
    jobs = []
    run = grader.pool.run
    monkeypatch.setattr(grader.pool, "run", lambda todo, done: jobs.append(len(todo)) or run(todo, done))
    texts = [f"thought {i}, so {tagged(HALF)}" for i in range(100)] + [tagged(r"\sqrt{2}")] * 100
    verdicts = grader.grade([GOOD] * 200, texts)
    assert [verdict["answer"] for verdict in verdicts] == ["correct"] * 100 + ["wrong"] * 100
    assert jobs == [2]


def test_it_works_from_several_threads_at_once(grader):
    found = {}

    def grade(number: int) -> None:
        found[number] = grader.grade([GOOD] * 3, [tagged(HALF), tagged(rf"\sqrt{{{number}}}"), "?"])

    threads = [threading.Thread(target=grade, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all([v["answer"] for v in found[i]] == ["correct", "wrong", "unparseable"] for i in range(4))


def test_closing_leaves_no_process(grader):
    grader.grade([GOOD], [tagged(HALF)])
    processes = [worker.process for worker in grader.pool.workers]
    assert processes
    grader.close()
    assert all(process.poll() is not None for process in processes)


def test_a_task_that_cannot_take_long_is_graded_here():
    task = tasks.load("knights")
    with Grader(task) as grader:
        assert grader.pool is None
        record = Record("a", "aBN;bAK&BK;?", "AKBN")
        [verdict] = grader.grade([record], ["!AKBN"])
    assert verdict["answer"] == "correct"


SAME = {("5", "x=5"), ("36", r"\$36")}  # different ways to write one answer of MATH-500, level 5


def test_no_answer_of_another_problem_is_right():
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is not here")
    rows = [json.loads(line) for line in (SHARED / "math500.jsonl").read_text().splitlines()]
    golds = sorted({row["answer"] for row in rows if row["level"] == 5})
    assert len(golds) > 100
    said = {pair: obvious(*pair) for pair in itertools.combinations(golds, 2)}
    found = {frozenset(pair) for pair, at_once in said.items() if at_once or (at_once is None and equal(*pair))}
    assert found == {frozenset(pair) for pair in SAME}
