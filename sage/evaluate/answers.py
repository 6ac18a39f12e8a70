"""What else the same completions say: avg@n, majority votes, diversity, and the shares of answers that are none."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from sage.evaluate.votes import Votes, count, majority

if TYPE_CHECKING:
    from sage.evaluate.verify import Graded


def summary(graded: "Graded") -> dict[str, Any]:
    """Return means over the problems of a cell.

    ``avg@n``: the share of right completions, of each grade. ``maj@k``: how often k completions elect the right answer, in
    expectation (:func:`sage.evaluate.votes.majority`). ``distinct``: different answers a problem among its n completions.
    ``truncated``, ``unparseable``, ``timeout``, ``error``: shares of completions; the last three are verdicts on the
    answer alone.
    """
    grades, ks = graded.cell.task.GRADES, graded.cell.suite.evaluate.ks
    votes = per_problem(graded)
    verdicts = Counter(verdict["answer"] for verdict in graded.verdicts)
    total = len(graded.verdicts)
    right = {grade: sum(verdict[grade] == "correct" for verdict in graded.verdicts) for grade in grades}
    return {
        f"avg@{graded.n}": {grade: round(right[grade] / total, 10) for grade in grades},
        "maj": {f"maj@{k}": _mean([majority(vote, k) for vote in votes]) for k in ks},
        "distinct": _mean([vote.distinct for vote in votes]),
        "truncated": round(float((graded.samples["finish"] == "length").mean()), 10),
        **{verdict: round(verdicts[verdict] / total, 10) for verdict in ("unparseable", "timeout", "error")},
    }


def per_problem(graded: "Graded") -> list[Votes]:
    """Return the votes of each problem, in the order of the benchmark."""
    said: dict[str, list[str | None]] = {record.id: [] for record in graded.records}
    right: dict[str, list[bool]] = {record.id: [] for record in graded.records}
    for problem, vote, verdict in zip(graded.samples["problem"], graded.votes, graded.verdicts, strict=True):
        said[problem].append(vote)
        right[problem].append(verdict["answer"] == "correct")
    return [count(said[record.id], right[record.id]) for record in graded.records]


def _mean(values: list[float]) -> float:
    return round(sum(values) / len(values), 10)
