"""From rows to pinned records, and what every mathematical benchmark does with them: prompt, region, score.

A record's id is a hash of its problem, so that copies with other ids and another order are the same benchmark. Which
problems and answers a benchmark has is pinned by digests in ``pins.json``; a drift is an error that names the rows.
"""

import hashlib
import json
import math
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from sage.errors import UserError, nearest
from sage.strict import Strict
from sage.tasks import Record
from sage.tasks._math import equality, source
from sage.tasks._math.region import CLOSE, OPEN, Rule
from sage.tasks._math.region import region as find_region

GRADES = ("answer",)
TIMEOUT = 10.0
PINS = Path(__file__).with_name("pins.json")
ASKED = (
    "You are given a problem. Think about the problem and write down your working between <start_working_out> and"
    f" <end_working_out>. Then write the result between {OPEN} and {CLOSE}."
)


class Spec(Strict):
    """A mathematical data set of a suite."""

    task: str
    sources: Annotated[list[str], Field(min_length=1)]  # paths, https addresses, hub:owner/name@revision:split
    region: Rule  # where the answer is looked for


def build(
    name: str, spec: Spec, fields: tuple[str, ...], to_record: Callable[[dict[str, Any]], Record]
) -> list[Record]:
    """Return the records of benchmark ``name``, checked against its pins; ``fields``: what each row must have."""
    records = []
    for origin in spec.sources:
        for number, row in enumerate(source.rows(origin), start=1):
            missing = next((field for field in fields if row.get(field) in (None, "")), None)
            if missing:
                hint = nearest(missing, [str(key) for key in row])
                raise UserError(f"{origin}, row {number}: no field '{missing}'{hint}; name a source that has it")
            record = to_record(row)
            records.append(replace(record, extra={**record.extra, "region": spec.region}))
    check_pins(name, records)
    return records


def record(problem: str, answer: str, **extra: Any) -> Record:
    """Return a record whose id is a hash of its problem."""
    problem = clean(problem)
    identity = hashlib.sha256(problem.encode()).hexdigest()[:12]
    return Record(identity, problem, clean(answer), extra)


def clean(text: str) -> str:
    """Return text in Unicode's composed form, with white space at its ends removed and single spaces inside."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def whole_number(answer: Any) -> str:
    """Return an answer that is a whole number without leading zeros or a decimal point: 033 and 33.0 are 33."""
    try:
        number = float(str(answer))
    except ValueError:
        number = math.nan
    if not number.is_integer():
        raise UserError(f"answer {answer!r}: not a whole number; this benchmark has whole numbers only")
    return str(int(number))


def digest(record: Record) -> str:
    """Return the digest of (id, problem, answer), 12 hexadecimal digits."""
    text = "\n".join((record.id, record.problem, record.answer))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def check_pins(name: str, records: Iterable[Record]) -> None:
    """Raise :class:`UserError` where the records are not those that are pinned; it names the rows that differ."""
    found = {record.id: digest(record) for record in records}
    pinned = json.loads(PINS.read_text(encoding="utf-8"))[name]
    if found == pinned:
        return
    changed = sorted(i for i in found.keys() & pinned.keys() if found[i] != pinned[i])
    parts = {
        "answer changed": changed,
        "unknown": sorted(found.keys() - pinned),
        "missing": sorted(pinned.keys() - found),
    }
    told = "; ".join(
        f"{len(ids)} {what} ({', '.join(ids[:3])}{', ...' if len(ids) > 3 else ''})"
        for what, ids in parts.items()
        if ids
    )
    raise UserError(f"{name}: the rows are not those pinned in {PINS.name}: {told}; name the source of the data card")


def prompt(record: Record) -> str:
    """Return what a model is asked; a suite's chat template goes around it."""
    return f"{ASKED}\n\n{record.problem}"


def region(record: Record, text: str) -> str | None:
    """Return the answer region of a completion."""
    return find_region(text, record.extra["region"])


def score(record: Record, region: str) -> dict[str, str]:
    """Return the verdict on an answer region; ValueError where the gold answer cannot be parsed."""
    try:
        return {"answer": "correct" if equality.equal(record.answer, region) else "wrong"}
    except equality.Unparseable:
        return {"answer": "unparseable"}


def quick(record: Record, region: str) -> dict[str, str] | None:
    """Return the verdict that :func:`score` would give where it needs no parser, else None."""
    found = equality.obvious(record.answer, region)
    return None if found is None else {"answer": "correct" if found else "wrong"}


def chance(record: Record) -> None:
    """Guessing has no level here."""


def warm_up() -> None:
    """Import and use what the first answer would otherwise pay for."""
    for gold, answer in ((r"\frac12", "0.5"), ("x<3", r"(-\infty,3)"), (r"\text{east}", r"4 \text{ p.m.}")):
        equality.equal(gold, answer)
