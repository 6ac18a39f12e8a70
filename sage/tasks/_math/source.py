"""Where the rows of a task come from: a local file or folder, an https address, or the hub with a revision.

In: one line of text, as a suite's file has it. Out: rows as dictionaries. Every fault is one line that names the source.
"""

import csv
import json
import re
from pathlib import Path
from typing import Any

from sage.errors import UserError

HUB = re.compile(r"^hub:(?P<name>[\w.-]+/[\w.-]+)@(?P<revision>[\w.-]+)(?::(?P<config>[\w.-]+))?:(?P<split>[\w.-]+)$")
SECONDS = 60.0


def rows(source: str) -> list[dict[str, Any]]:
    """Return the rows of ``source``: a path, ``https://...``, or ``hub:owner/name@revision[:config]:split``.

    Raises :class:`UserError` where it cannot be read, is empty, or has rows that are no objects.
    """
    if source.startswith("hub:"):
        found = _from_hub(source)
    elif source.startswith(("https://", "http://")):
        found = _parse(_download(source), source)
    else:
        files = _files(Path(source))
        found = [row for file in files for row in _parse(file.read_text(encoding="utf-8"), str(file))]
    if not found:
        raise UserError(f"{source}: no rows; name a file with one JSON object a line")
    return found


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(file for file in path.iterdir() if file.suffix in (".jsonl", ".json", ".csv"))
        if not found:
            raise UserError(f"{path}: no .jsonl, .json or .csv file in this folder")
        return found
    if not path.is_file():
        raise UserError(
            f"{path}: no such file; name a file, a folder, an https address or hub:owner/name@revision:split"
        )
    return [path]


def _parse(text: str, name: str) -> list[dict[str, Any]]:
    """Return the rows of JSON lines, a JSON list, or CSV with a header."""
    if name.endswith(".csv"):
        return list(csv.DictReader(text.splitlines()))
    try:
        if text.lstrip().startswith("["):
            found = json.loads(text)
        else:
            found = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise UserError(f"{name}: not JSON ({error}); name a file with one JSON object a line") from None
    if not all(isinstance(row, dict) for row in found):
        raise UserError(f"{name}: a row is not an object with fields; name a file with one JSON object a line")
    return found


def _download(address: str) -> str:
    import requests

    try:
        answer = requests.get(address, timeout=SECONDS)
        answer.raise_for_status()
    except requests.RequestException as error:
        raise UserError(
            f"{address}: cannot be fetched ({type(error).__name__}); without a network, name a local copy"
        ) from None
    return answer.content.decode("utf-8")


def _from_hub(source: str) -> list[dict[str, Any]]:
    match = HUB.match(source)
    if not match:
        raise UserError(f"{source}: not hub:owner/name@revision[:config]:split; a revision pins the data")
    try:
        from datasets import load_dataset

        found = load_dataset(match["name"], match["config"], revision=match["revision"], split=match["split"])
    except Exception as error:  # the library raises many kinds, and all of them mean the same here
        raise UserError(
            f"{source}: the hub cannot be read ({type(error).__name__}); without a network, name a local copy"
        ) from None
    return [dict(row) for row in found]
