"""Where the rows of a task come from: a local file or folder, an https address, or the hub with a revision.

In: one line of text, as a suite's file has it. Out: rows as dictionaries. Every fault is one line that names the source.
What :func:`prefetch` has fetched is read from its copy, so that a machine without a network can build the data sets.
"""

import csv
import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any

from sage import manifest, paths
from sage.errors import UserError

HUB = re.compile(r"^hub:(?P<name>[\w.-]+/[\w.-]+)@(?P<revision>[\w.-]+)(?::(?P<config>[\w.-]+))?:(?P<split>[\w.-]+)$")
SECONDS = 60.0
OFFLINE = "without a network, name a local copy, or run `python -m sage.tasks prefetch` where there is one"
FORMATS = (".jsonl", ".json", ".csv", ".parquet")


def rows(source: str) -> list[dict[str, Any]]:
    """Return the rows of ``source``: a path, ``https://...``, or ``hub:owner/name@revision[:config]:split``.

    Raises :class:`UserError` where it cannot be read, is empty, or has rows that are no objects.
    """
    if is_remote(source) and not copy(source).is_file():
        found = _fetch(source)
    else:
        files = _files(copy(source) if is_remote(source) else Path(source))
        found = [row for file in files for row in _read(file)]
    if not found:
        raise UserError(f"{source}: no rows; name a file with one JSON object a line")
    return found


def is_remote(source: str) -> bool:
    """Return whether a network is needed for it."""
    return source.startswith(("hub:", "https://", "http://"))


def copy(source: str) -> Path:
    """Return where the rows of a remote source are kept once they are fetched."""
    return paths.DATA / "sources" / f"{hashlib.sha256(source.encode()).hexdigest()[:16]}.jsonl"


def prefetch(source: str) -> Path:
    """Fetch a remote source into its copy, unless it is there already."""
    if not copy(source).is_file():
        lines = [json.dumps(row, ensure_ascii=False, default=str) for row in rows(source)]
        manifest.write_atomic(copy(source), "".join(f"{line}\n" for line in lines))
    return copy(source)


def _fetch(source: str) -> list[dict[str, Any]]:
    return _from_hub(source) if source.startswith("hub:") else _parse(_download(source), source)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(file for file in path.iterdir() if file.suffix in FORMATS)
        if not found:
            raise UserError(f"{path}: no {', '.join(FORMATS)} file in this folder; name the folder that has them")
        return found
    if not path.is_file():
        raise UserError(
            f"{path}: no such file; name a file, a folder, an https address or hub:owner/name@revision:split"
        )
    return [path]


def _read(file: Path) -> list[dict[str, Any]]:
    try:
        if file.suffix == ".parquet":
            import pandas as pd

            return [dict(zip(row.index, row, strict=True)) for _, row in pd.read_parquet(file).iterrows()]
        return _parse(file.read_text(encoding="utf-8"), str(file))
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be read ({type(error).__name__}: {error}); name another copy") from None


def _parse(text: str, name: str) -> list[dict[str, Any]]:
    """Return the rows of JSON lines, a JSON list, or CSV with a header."""
    if name.endswith(".csv"):
        return list(csv.DictReader(io.StringIO(text, newline="")))
    try:
        if text.lstrip().startswith("["):
            found = json.loads(text)
        else:
            found = [json.loads(line) for line in text.split("\n") if line.strip()]
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
        return answer.content.decode("utf-8")
    except (requests.RequestException, UnicodeDecodeError) as error:
        raise UserError(f"{address}: cannot be fetched ({type(error).__name__}); {OFFLINE}") from None


def _from_hub(source: str) -> list[dict[str, Any]]:
    match = HUB.match(source)
    if not match:
        raise UserError(f"{source}: not hub:owner/name@revision[:config]:split; a revision pins the data")
    try:
        from datasets import load_dataset
        from huggingface_hub.utils import logging

        logging.set_verbosity_error()  # its retries are many lines for one fault
        found = load_dataset(match["name"], match["config"], revision=match["revision"], split=match["split"])
    except Exception as error:  # the library raises many kinds, and all of them mean the same here
        raise UserError(f"{source}: the hub cannot be read ({type(error).__name__}); {OFFLINE}") from None
    return [dict(row) for row in found]
