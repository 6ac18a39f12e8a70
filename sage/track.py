"""Give the finished payloads of a suite to DVC, all in one call, and list what it tracks.

In: every manifest under ``data/{suite}`` and the payloads beside them. Out: a ``.dvc`` file beside each payload, and
``data/{suite}/tracked.json``: payload -> DVC's MD5. A payload that is not here keeps the ``.dvc`` file that it has.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sage import grid, manifest, paths
from sage.cli import entry
from sage.errors import UserError
from sage.strict import read_yaml

if TYPE_CHECKING:
    from sage.config import Suite


def main() -> None:
    """Parse the command line and track, or list what is missing."""
    parser = argparse.ArgumentParser(prog="python -m sage.track", description=__doc__)
    parser.add_argument("--config", required=True, help="the suite's file, e.g. workflow/config/demo.yaml")
    parser.add_argument("--missing", action="store_true", help="only print the manifests whose payload is not here")
    arguments = parser.parse_args()
    from sage.config import load_suite

    suite = load_suite(arguments.config)
    if arguments.missing:
        print("\n".join(map(str, missing(suite))))
    else:
        track(suite.name)


def missing(suite: "Suite") -> list[Path]:
    """Return the manifests of the grid whose payload is not here, or not whole."""
    made = [file for file in grid.manifests(suite) if file.is_file()]
    return [file for file in made if not all(payloads(file.parent).values())]


def folders(suite: str) -> list[Path]:
    """Return the folders of the suite that have a manifest."""
    return sorted(file.parent for file in (paths.DATA / suite).rglob(manifest.NAME))


def payloads(folder: Path) -> dict[Path, bool]:
    """Return the files and folders that the manifest in ``folder`` describes, and whether each is here and whole."""
    found = dict[Path, bool]()
    for name, content in manifest.load(folder)["payload"].items():
        file, payload = folder / name, folder / Path(name).parts[0]
        found[payload] = found.get(payload, True) and file.is_file() and file.stat().st_size == content["bytes"]
    return found


def track(suite: str) -> None:
    """Add the payloads of ``suite`` to DVC and write the list of them."""
    found = {payload: whole for folder in folders(suite) for payload, whole in payloads(folder).items()}
    lost = [payload for payload, whole in found.items() if not whole and not dvc_file(payload).is_file()]
    if lost:
        again = f"snakemake -f {lost[0].parent / manifest.NAME}"
        raise UserError(f"{lost[0]}: missing, and DVC does not know it; make it again (`{again}`)")
    add([payload for payload, whole in found.items() if whole])
    hashes = {str(payload): read_yaml(dvc_file(payload))["outs"][0]["md5"] for payload in found}
    manifest.write_json(paths.tracked(suite), {"schema": manifest.SCHEMA, "payloads": hashes})
    print(f"{paths.tracked(suite)}: {len(hashes)} payloads; `git add` it and the .dvc files, `dvc push` the payloads")


def dvc_file(payload: Path) -> Path:
    """Return the small file that stands for ``payload`` in git."""
    return payload.with_name(f"{payload.name}.dvc")


def add(found: list[Path]) -> None:
    """Call ``dvc add`` once over ``found``; another suite's call may hold DVC's lock, and is waited for."""
    if not _in_git():
        raise UserError(".: no git repository, and DVC keeps its files beside git's; `git init` makes one")
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", "add", *map(str, found)]
    # Its stdout is advice on git only; progress and errors go to stderr.
    if found and subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:
        raise UserError("dvc add failed; its own message stands above")


def _in_git() -> bool:
    return subprocess.run(["git", "rev-parse", "--git-dir"], capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    entry(main)
