"""Manifests: the small files that are the edges of the pipeline, and the payloads that lie beside them.

A manifest lists the content hash of each payload file, the hash of the configuration, the hashes of the inputs, and the
versions that made it; it holds nothing that varies from run to run. It is written last: where it is, the payload is
whole.
"""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from sage import __version__, paths
from sage.errors import UserError

SCHEMA = 1
NAME = "manifest.json"


def sha256(path: Path) -> str:
    """Return the hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomic(path: Path, text: str) -> None:
    """Write a text file so that its name never stands for half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically, indented, keys in the order given."""
    write_atomic(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def read_json(path: Path, fix: str) -> Any:
    """Read a JSON file; a missing or broken one is a :class:`UserError` that ends with ``fix``."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: missing; {fix}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not valid JSON ({error}); {fix}") from None


def publish(work: Path, final: Path, payload: Iterable[str], content: dict[str, Any], packages: Iterable[str]) -> None:
    """Move finished payload files and folders from ``work`` into ``final`` and write the manifest last.

    A former manifest goes first, so that a kill between the moves leaves no manifest over a mixed payload.
    """
    final.mkdir(parents=True, exist_ok=True)
    (final / NAME).unlink(missing_ok=True)
    for name in payload:
        _replace(work / name, final / name)
    files = [file for name in payload for file in _files(final / name)]
    manifest = {
        "schema": SCHEMA,
        **content,
        "payload": {
            str(file.relative_to(final)): {"sha256": sha256(file), "bytes": file.stat().st_size} for file in files
        },
        "sage": __version__,
        "packages": {name: metadata.version(name) for name in sorted(packages)},
    }
    write_json(final / NAME, manifest)
    shutil.rmtree(work, ignore_errors=True)


def _replace(source: Path, target: Path) -> None:
    """Move a file or folder over ``target``; a folder cannot be replaced in one call, so the old one steps aside."""
    if target.is_dir():
        aside = source.with_name(f"{source.name}.old")
        shutil.rmtree(aside, ignore_errors=True)
        target.replace(aside)
        shutil.rmtree(aside)
    source.replace(target)


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def load(folder: Path) -> dict[str, Any]:
    """Read the manifest in ``folder``."""
    manifest = read_json(folder / NAME, f"make it first (snakemake {folder / NAME})")
    if manifest.get("schema") != SCHEMA:
        raise UserError(f"{folder / NAME}: schema {manifest.get('schema')} is not {SCHEMA}; make it again")
    return manifest


def require(folder: Path) -> dict[str, Any]:
    """Read the manifest in ``folder`` and check that its payload is there, byte for byte.

    Raises :class:`UserError` naming the ``dvc pull`` that brings a payload that is missing or differs.
    """
    manifest = load(folder)
    for name, entry in manifest["payload"].items():
        file, target = folder / name, folder / f"{Path(name).parts[0]}.dvc"
        if not file.is_file():
            raise UserError(f"{file}: missing; `dvc pull {target}` brings it")
        if sha256(file) != entry["sha256"]:
            raise UserError(
                f"{file}: its content is not the manifest's; `dvc pull --force {target}` brings the right one"
            )
    return manifest


def payload_hash(manifest: dict[str, Any], prefix: str = "") -> str:
    """Return one hash for the payload files whose names start with ``prefix``."""
    lines = [f"{name} {e['sha256']}" for name, e in sorted(manifest["payload"].items()) if name.startswith(prefix)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def write_run(path: Path, started: float, **extra: Any) -> None:
    """Write the side file of a run: what varies from run to run and no edge depends on.

    ``started`` is in seconds since the epoch; ``extra`` may carry ``seconds`` where the run was resumed.
    """
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    content = {
        "seconds": round(time.time() - started, 1),
        "started": datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "commit": commit.stdout.strip(),
        **extra,
    }
    write_json(path, content)


def fresh_work(work: Path) -> Path:
    """Return the work folder, emptied."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    return work


def work_folder(final: Path, key: str) -> Path:
    """Return the work folder of a stage that ends in ``final``, kept where it holds work of the same ``key``.

    ``key`` stands for the configuration and the inputs; work that was begun for another one is dropped.
    """
    work = paths.work(final)
    if not (work / "key").is_file() or (work / "key").read_text() != key:
        if work.exists():
            print(f"{work}: unfinished work of another configuration is dropped", flush=True)
        write_atomic(fresh_work(work) / "key", key)
    return work
