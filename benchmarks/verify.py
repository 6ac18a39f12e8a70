"""Seconds to grade kept answers of a real model, ours beside a loop over math-verify's own parse and verify, in one run.

Both read the last box of each answer. The loop parses and compares each answer by itself, with math-verify's own time-outs,
in a process that has imported it; ours grades equal answers once, says of numbers and equal texts at once whether they are
equal, and the rest in worker processes that can be killed, whose start, an import of math-verify each, is shown apart. Prints
the seconds of each round, the median of the ratios, and every verdict that differs.
Example: ``python -m benchmarks.verify --samples ../shared/data/outputs/qwen25_math_cot_50.jsonl``
"""

import argparse
import json
import logging
import statistics
import time
from pathlib import Path

from math_verify import LatexExtractionConfig, parse, verify

from sage import tasks
from sage.evaluate.grading import Grader
from sage.tasks import Record


def read(path: Path) -> tuple[list[Record], list[str]]:
    """Return records and answers side by side, of a file with the fields gt and code, several answers a row."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    pairs = [(Record(str(row["idx"]), "", row["gt"], {"region": "box"}), text) for row in rows for text in row["code"]]
    return [record for record, _ in pairs], [text for _, text in pairs]


def theirs(records: list[Record], texts: list[str]) -> list[bool]:
    """Return math-verify's verdict of each answer."""
    config = [LatexExtractionConfig(boxed_match_priority=0)]
    return [
        verify(parse(f"\\boxed{{{record.answer}}}", config), parse(text, config))
        for record, text in zip(records, texts, strict=True)
    ]


def ours(records: list[Record], texts: list[str], warm: bool) -> tuple[list[bool], float]:
    """Return our verdicts and the seconds that they took; ``warm``: without the start of the worker processes."""
    started = time.perf_counter()
    with Grader(tasks.load("math500")) as grader:
        if warm:
            grader.grade(
                [Record("a", "", "0.5", {"region": "box"})] * 8, [f"\\boxed{{\\sqrt{{{i}}}}}" for i in range(8)]
            )
            started = time.perf_counter()
        verdicts = grader.grade(records, texts)
        seconds = time.perf_counter() - started
    return [verdict["answer"] == "correct" for verdict in verdicts], seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=Path, required=True, help="JSON lines with gt and code")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    records, texts = read(arguments.samples)
    ratios, warm_ratios = [], []
    theirs(records[:8], texts[:8])
    for _ in range(arguments.rounds):
        started = time.perf_counter()
        loop = theirs(records, texts)
        seconds = time.perf_counter() - started
        mine, cold = ours(records, texts, warm=False)
        _, warm = ours(records, texts, warm=True)
        ratios.append(seconds / cold)
        warm_ratios.append(seconds / warm)
        print(
            f"{len(texts)} answers: loop {seconds:.2f} s, ours {cold:.2f} s, without start-up {warm:.2f} s", flush=True
        )
    print(f"ratio {statistics.median(ratios):.1f}, without start-up {statistics.median(warm_ratios):.1f}")
    differ = [(r.answer, t[-200:]) for r, t, a, b in zip(records, texts, loop, mine, strict=True) if a != b]
    print(f"verdicts that differ: {len(differ)}")
    for gold, end in differ:
        print(f"  gold {gold}: ... {end!r}")


if __name__ == "__main__":
    main()
