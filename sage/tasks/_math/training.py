"""Training sets: public sets of many thousand rows, whose pins stand in a file of the project's that a command writes.

Nobody can pin what he has not seen: ``python -m sage.tasks pin`` reads the sources once and writes the digest of every
record, to be looked at and committed. From then on a drift is an error that names the rows, as for a benchmark.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from sage import manifest
from sage.errors import UserError
from sage.tasks import Record
from sage.tasks._math.benchmark import check_pins, digest


def checked(sources: list[str], records: list[Record], pins: str) -> list[Record]:
    """Return the records of the sources, checked against the digests in the file ``pins``."""
    command = "`python -m sage.tasks pin --config SUITE.yaml --dataset NAME`"
    pinned = manifest.read_json(Path(pins), f"{command} writes it from the sources; look at it and commit it")
    check_pins(sources, records, pinned, f"name the source that {pins} was written from, or remove it and pin anew")
    return records


def write_pins(records: Iterable[Record], pins: Path) -> None:
    """Write the digest of each record; a file that is there is never overwritten."""
    if pins.exists():
        raise UserError(f"{pins}: already there; remove it to pin the sources anew")
    lines = [json.dumps({record.id: digest(record)})[1:-1] for record in records]
    manifest.write_atomic(pins, "{\n" + ",\n".join(lines) + "\n}\n")


def single(name: str, records: list[Record]) -> list[Record]:
    """Return one record a problem, in order; a problem that has two answers is left out, and what is dropped is said."""
    answers: dict[str, set[str]] = {}
    for record in records:
        answers.setdefault(record.id, set()).add(record.answer)
    kept: dict[str, Record] = {}
    for record in records:
        if len(answers[record.id]) == 1:
            kept.setdefault(record.id, record)
    disputed = sum(len(found) > 1 for found in answers.values())
    if len(kept) < len(records):
        print(
            f"{name}: {len(records)} rows, {len(answers)} problems, of which {disputed} left out for having two answers"
        )
    return list(kept.values())
