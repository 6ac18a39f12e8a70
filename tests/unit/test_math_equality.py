"""The written policy of equality, line by line, and the faults of other graders."""

import json
import time
from pathlib import Path

import pytest

from sage.tasks._math.equality import Unparseable, equal, obvious
from sage.tasks._math.region import region

SHARED = Path(__file__).parents[3] / "shared/data"

EQUAL = [
    ("28", r"28\%"), (r"28\%", "28"), ("28", "28%"), ("90", r"90^\circ"), (r"90^{\circ}", "90"), ("36", r"\$36"),
    (r"\$36", "36"), ("10", r"10\text{ cm}"), (r"10\text{ cm}", "10"), ("10", "10 cm"), ("33", "033"), ("033", "33"),
    ("1000", "1{,}000"), ("1{,}000", "1,000"), ("27.0", "27"), ("0.5", r"\frac12"), (r"\frac{1}{2}", "0.5"),
    (r"\frac13", "0.333333"), (r"5\frac{1}{2}", "5.5"), (r"2\sqrt{2}", r"\sqrt{8}"), ("x^2+1", "1+x^2"),
    ("x<3", r"(-\infty,3)"), (r"(-\infty,3)", "x<3"), ("1<x<2", "(1,2)"), ("(1,2)", "1<x<2"),
    (r"x\le 3", r"(-\infty,3]"), (r"(-\infty,3]", r"x \le 3"), (r"\{1,2\}", r"\{2,1\}"), ("1,2", "2,1"),
    ("1,2", r"\{1,2\}"),
    ("2516_8", "2516_{8}"), ("2516_8", "2516"), ("1358", "2516_8"), ("x_1", "x_{1}"), (r"\text{Evelyn}", "Evelyn"),
    (r"\text{Evelyn}", r"\text{evelyn}"), (r"\text{(C)}", "C"), ("C", r"\text{(C)}"), ("5", "x=5"), ("x=5", "5"),
    ("6-5i", "6-5i"), ("90", "90°"), ("90", "90 degrees"), ("28", r"28\,\%"), ("28", "28 percent"), ("36", "€36"),
    ("36", "36 dollars"), ("10", r"10\text{ cm}^2"), ("10", r"10\,\text{m/s}"), ("1000", r"1\,000"),
    ("1,000", r"1,\!000"),
    (r"11,\! 111,\! 111,\! 100", "11111111100"), ("5", "5."), ("0.5", "0.5."), ("5", r"\text{5}"), ("5", r"\boxed{5}"),
    ("4", "x=2+2=4"), ("[1,2]", r"1\le x\le 2"), (r"1\le x\le 2", "[1,2]"), (r"x\ge 3", r"[3,\infty)"),
    (r"[3,\infty)", r"x\ge 3"),
    ("(1,2)", "1,2"), ("1,2", "(1,2)"), ("(1,2)", r"\left( 1, 2 \right)"), (r"\text{June 20}", "June 20"),
    ("Yes", "yes"),
    (r"\text{Monday}", "monday."), ("4:30 p.m.", r"4:30 \text{ p.m.}"), ("(3,-1)", "x=3,y=-1"), ("11", "1011_2"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"), (r"\emptyset", r"\{\}"),
    (r"\infty", r"\infty"), (r"\sqrt{3}", "1.7320508"), ("y=2x+3", "2x+3"),
]  # fmt: skip
DIFFERENT = [
    (r"\frac{1}{2^{99}}", r"\frac{1}{2^{98}}"), (r"1-\frac{1}{e}", r"1+\frac{1}{e}"), ("6-5i", "5"), ("5", "6-5i"),
    (r"\frac13", "0.33"), (r"\frac13", "0.3333"), ("0.0000001", "0.0000002"), ("3", "3.0000001"), ("0.28", r"28\%"),
    ("(1,2)", r"\{1,2\}"), (r"\{1,2\}", "(1,2)"), ("(1,2)", "(2,1)"), ("[1,2]", "(1,2)"), ("1,2", "1,2,3"),
    ("2516", "2516_8"), ("2516_8", "2516_7"), ("x_1", "x_2"), ("101_2", "5_10_3"), (r"\text{east}", r"\text{west}"), 
    ("5", "5 or 6"), ("14", r"14\text{ or }15"),
    ("5", r"5 \text{ (or 6)}"), ("5", "5, 6"), ("5", r"5 \text{ and } 6"), ("5", r"\{5,6\}"), ("5", "5; 6"),
    ("5", "5 6"), ("5", "5\n6"),
    ("5", r"5 \quad 6"), ("5", r"\pm 5"), ("5", "0,1,2,3,4,5,6,7,8,9"), ("5", "5!"), ("5", "not 5"),
    (r"\frac12", r"50\%"),
    ("12", r"1\,2"), ("(1,200)", r"(1\,200)"), ("(1,2)", "2,1"), ("2,1", "(1,2)"), ("1011_2", "11.5"),
    ("even", r"\text{odd}"),
    (r"\text{June 20}", "June 2 0"), ("(1,2]", "[1,2)"), ("x>3", "x<3"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix} 2 \\ 1 \end{pmatrix}"),
    ("-1", "1"), ("10000000000000000000001", "10000000000000000000000"), (r"\pi", "3.14"),
    (r"\frac{\pi}{2}", r"90^\circ"),
    ("x<3", r"(-\infty,3]"), ("12", "1 2"), ("7", "7^7"), ("10", "10^{-10}"), (r"\frac{1}{10^{12}}", "0"),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "answer"), EQUAL)
def test_equal(gold, answer):
    assert equal(gold, answer)


@pytest.mark.parametrize(("gold", "answer"), [*EQUAL, *DIFFERENT])
def test_what_is_said_at_once_is_what_would_be_said(gold, answer):
    said = obvious(gold, answer)
    assert said in (None, equal(gold, answer))


NUMBERS = [
    "1", "-1", "0", "-0", "007", "1.5", "-1.50", "0.50", r"\frac12", r"-\frac{1}{2}", r"\dfrac{2}{4}", "1/2", "03/06",
    r"-1\frac{1}{2}", r"1\frac12", "3/2", r"\frac{0}{5}", "0.0", r"\frac{1}{3}", "0.333333", "0.33", r"\frac{1}{0}", "12.80",
    r"12\frac{4}{5}", "0.000001", "1/1000000", "100000", "100000.5", "100001", "99999.9",
]  # fmt: skip


@pytest.mark.parametrize("gold", NUMBERS)
def test_numbers_are_compared_at_once_as_they_would_be(gold):
    said = {answer: obvious(gold, answer) for answer in NUMBERS}
    known = {answer: verdict for answer, verdict in said.items() if verdict is not None}
    assert known == {answer: equal(gold, answer) for answer in known}
    assert len(known) > 20 or gold == r"\frac{1}{0}"


def test_numbers_and_equal_texts_need_no_parser():
    assert obvious("33", "033") is True
    assert obvious("-7", "7") is False
    assert obvious(r"\frac{1}{2}", r" \frac{1}{2} ") is True
    assert obvious(r"\frac{1}{2}", "0.5") is True
    assert obvious(r"1\frac{1}{10}", r"1 \frac{1}{9}") is False
    assert obvious(r"\frac13", "0.333333") is None  # rounding is the parser's matter
    assert obvious(r"\frac{1}{0}", "0") is None
    assert obvious(r"\sqrt{4}", "2") is None
    assert obvious("5", "٥") is None
    assert obvious("5", "") is None


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_different(gold, answer):
    assert not equal(gold, answer)


@pytest.mark.parametrize("answer", ["", "   ", "$", "\x00", r"\%", "1" * 2000])
def test_no_answer(answer):
    with pytest.raises(Unparseable):
        equal("5", answer)


def test_a_gold_answer_that_cannot_be_parsed_is_an_error_and_no_score():
    with pytest.raises(ValueError, match="gold"):
        equal("", "5")


@pytest.mark.parametrize(
    ("text", "rule", "found"),
    [
        ("so <SOLUTION>42</SOLUTION>", "tags", "42"),
        ("<SOLUTION>1</SOLUTION> no, <SOLUTION> 2 </SOLUTION> done", "tags", "2"),
        (r"<SOLUTION>\boxed{\frac{1}{2}}</SOLUTION>", "tags", r"\frac{1}{2}"),
        (r"it is \boxed{7}", "tags", None),
        (r"it is \boxed{7}", "tags_or_box", "7"),
        (r"\boxed{3} and then \boxed{\sqrt{7}}.", "box", r"\sqrt{7}"),
        (r"\boxed{\{1,2\}}", "box", r"\{1,2\}"),
        (r"\boxed 5 is it", "box", "5"),
        (r"\boxed{5", "box", None),
        (r"\boxed", "box", None),
        ("12 <SOLUTION>unfinished", "tags", None),
        (r"\boxed{9} <SOLUTION>8</SOLUTION>", "tags_or_box", "8"),
        ("the answer is 42", "tags_or_box", None),
        ("<SOLUTION></SOLUTION>", "tags", ""),
        (r"<SOLUTION>\boxed{3} no, \boxed{4}</SOLUTION>", "tags", "4"),
    ],
)
def test_only_the_declared_region_is_read(text, rule, found):
    assert region(text, rule) == found


def test_the_region_is_found_in_linear_time():
    started = time.perf_counter()
    assert region("\\boxed{" + "{" * 500_000, "box") is None
    assert region("\\boxed{" * 100_000, "box") is None
    assert time.perf_counter() - started < 5


def golds(name: str) -> list[str]:
    path = SHARED / "benchmarks" / name
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    return [str(json.loads(line)["answer"]) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    "name", ["aime2024.jsonl", "aime2025-I.jsonl", "aime2025-II.jsonl", "amc23.jsonl", "math500.jsonl"]
)
def test_gold_against_itself(name):
    wrong = [
        gold
        for gold in golds(name)
        for text in (f"<SOLUTION>{gold}</SOLUTION>", f"\\boxed{{{gold}}}", f"<SOLUTION>\\boxed{{{gold}}}</SOLUTION>")
        if not equal(gold, region(text, "tags_or_box") or "")
    ]
    assert not wrong
