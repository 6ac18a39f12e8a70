"""From rows to pinned records, and what every mathematical task does with them: prompt, region, score.

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
from sage.tasks._math.region import Rule
from sage.tasks._math.region import region as find_region

GRADES = ("answer",)
TIMEOUT = 10.0
PINS = Path(__file__).with_name("pins.json")
WORKING, WORKED = "<start_working_out>", "<end_working_out>"


class Spec(Strict):
    """A mathematical data set of a suite."""

    task: str
    sources: Annotated[list[str], Field(min_length=1)]  # paths, https addresses, hub:owner/name@revision:split
    region: Rule  # where the answer is looked for


def build(
    name: str, spec: Spec, fields: tuple[str, ...], to_record: Callable[[dict[str, Any]], Record]
) -> list[Record]:
    """Return the records of benchmark ``name``, checked against its pins; ``fields``: what each row must have."""
    records = regional(read(spec.sources, fields, to_record), spec.region)
    pins = json.loads(PINS.read_text(encoding="utf-8"))[name]
    check_pins(spec.sources, records, pins, f"name a source of '{name}' that is in the data card, data/README.md")
    return records


def read(
    sources: Iterable[str], fields: tuple[str, ...], to_record: Callable[[dict[str, Any]], Record | None]
) -> list[Record]:
    """Return the record of each row of the sources; ``to_record`` may leave one out by None.

    Raises :class:`UserError` naming the source and row where a field is missing or a value is none.
    """
    records = []
    for origin in sources:
        for number, row in enumerate(source.rows(origin), start=1):
            missing = next(
                (field for field in fields if row.get(field) in (None, "") or row[field] != row[field]), None
            )
            if missing:
                hint = nearest(missing, [str(key) for key in row])
                raise UserError(f"{origin}, row {number}: no field '{missing}'{hint}; name a source that has it")
            try:
                records.append(to_record(row))
            except UserError as error:
                raise UserError(f"{origin}, row {number}: {error}") from None
    return [record for record in records if record is not None]


def regional(records: Iterable[Record], rule: Rule) -> list[Record]:
    """Return the records with the rule of their answer region."""
    return [replace(record, extra={**record.extra, "region": rule}) for record in records]


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
        raise UserError(f"field 'answer': {answer!r} is not a whole number; name a source whose answers are")
    return str(int(number))


def digest(record: Record) -> str:
    """Return the digest of (id, problem, answer), 12 hexadecimal digits."""
    text = "\n".join((record.id, record.problem, record.answer))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def check_pins(sources: Iterable[str], records: Iterable[Record], pinned: dict[str, str], fix: str) -> None:
    """Raise :class:`UserError` where the records are not those that are pinned (id -> digest); it names the rows."""
    found = {record.id: record for record in records}
    if {name: digest(record) for name, record in found.items()} == pinned:
        return
    parts = {
        "with another answer": [name for name, r in found.items() if name in pinned and digest(r) != pinned[name]],
        "with an unknown problem": [name for name in found if name not in pinned],
        "missing": [name for name in pinned if name not in found],
    }
    told = "; ".join(f"{len(names)} {what} ({_rows(names, found)})" for what, names in parts.items() if names)
    raise UserError(f"{', '.join(sources)}: not the rows that are pinned: {told}; {fix}")


def _rows(names: list[str], found: dict[str, Record]) -> str:
    """Return the first ids, each with the start of its problem where that is known."""
    shown = [f"{name}: '{found[name].problem[:40]}'" if name in found else name for name in names[:3]]
    return ", ".join([*shown, "..."] if len(names) > 3 else shown)


def prompt(record: Record) -> str:
    """Return what a model is asked; the system turn and the chat template go around it."""
    return record.problem


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


def vote(record: Record, region: str) -> str | None:
    """Return the number or the text of an answer region; other ways to write one wrong answer are other votes."""
    return equality.vote(region)


def chance(record: Record) -> None:
    """Guessing has no level here."""


def warm_up() -> None:
    """Import and use what the first answer would otherwise pay for."""
    for gold, answer in ((r"\frac12", "0.5"), ("x<3", r"(-\infty,3)"), (r"\text{east}", r"4 \text{ p.m.}")):
        equality.equal(gold, answer)
