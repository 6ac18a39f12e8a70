"""Tasks: each knows where its records come from, how one is asked, and how an answer is graded; nobody else does.

A task is a module (or package) of this package. It offers

- ``Spec``: the strict model of a data set's entry in a suite's file;
- ``build(spec, seed) -> list[Record]``: the records;
- ``GRADES``: names of its grades; the first is the one that is rewarded, and one of them is ``answer``, the answer alone;
- ``prompt(record) -> str``, ``target(record) -> str``: what is asked, and what fine-tuning teaches to answer;
- ``region(record, text) -> str | None``: the part of a completion that is graded, None where it has none;
- ``score(record, region) -> {grade: verdict}``: what that part is worth; it may raise on a broken gold answer only;
- ``quick(record, region) -> {grade: verdict} | None``: what ``score`` would say, where that can be said at once;
- ``vote(record, region) -> str | None``: what is counted where completions vote, equal for equal answers as far as that is
  cheap to say, None where there is no answer;
- ``TIMEOUT``: seconds after which grading one answer is given up, in a process that is killed; None: it cannot take long;
- ``chance(record) -> float | None``: the probability that one guess at the answer is right, where that has a meaning;
- ``VOCABULARY``: the words of its prompts and targets, where a model is to be made from nothing.

A task that is for fine-tuning only grades nothing: it has ``Spec``, ``build``, ``prompt`` and ``target``.
"""

import importlib
import json
import pkgutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sage.errors import UserError, nearest

VERDICTS = ("correct", "wrong", "unparseable", "timeout", "error")


@dataclass(frozen=True)
class Record:
    """One problem: an id that depends on its content, the problem, the gold answer, and what else the task keeps."""

    id: str
    problem: str
    answer: str
    extra: dict[str, Any] = field(default_factory=dict)


def names() -> list[str]:
    """Return the names of all tasks."""
    return [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]


def load(name: str) -> Any:
    """Return the module of a task; :class:`UserError` names the nearest known one."""
    if name not in names():
        raise UserError(f"task: unknown task '{name}'{nearest(name, names())}")
    return importlib.import_module(f"{__name__}.{name}")


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Write records as JSON lines."""
    lines = [json.dumps(asdict(record), ensure_ascii=False) for record in records]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_records(path: Path) -> list[Record]:
    """Read records from JSON lines; a malformed line is a :class:`UserError` that names it."""
    records = []
    lines = (
        path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    )  # not splitlines: JSON keeps other separators
    for number, line in enumerate(lines if lines != [""] else [], start=1):
        try:
            records.append(Record(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise UserError(f"{path}, line {number}: not a record ({error}); build the data set again") from None
    if not records:
        raise UserError(f"{path}: no records; build the data set again")
    return records
