"""One training run as a job: its command, its folder, and the record of its submission.

The record, ``job.json``, is written as soon as there is a job, so that a launcher that starts later attaches to it.
"""

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sage import manifest, paths
from sage.train.key import training_key

if TYPE_CHECKING:
    from sage.config import Suite

RECORD = "job.json"
PROGRESS = "progress.json"


@dataclass(frozen=True)
class Run:
    """The training run of (suite, method, seed); method ``base`` is the fine-tuning, which has no seed of its own."""

    suite: "Suite"
    method: str
    seed: int

    @property
    def name(self) -> str:
        """How messages call the run."""
        return "base" if self.method == "base" else f"{self.method} seed {self.seed}"

    @property
    def folder(self) -> Path:
        """Folder of the run's jobs: records, logs, and copies of small results."""
        return paths.job(self.suite.name, self.method, self.seed)

    @property
    def checkpoint(self) -> Path:
        """Folder of the result."""
        return paths.checkpoint(self.suite.name, self.method, self.seed)

    @property
    def results(self) -> list[Path]:
        """The files that the workflow waits for; it removes them before it starts a rule again."""
        return [self.checkpoint / manifest.NAME, paths.training_log(self.suite.name, self.method, self.seed)]

    @property
    def work(self) -> Path:
        """Work folder of the run."""
        return paths.work(self.checkpoint)

    @property
    def command(self) -> list[str]:
        """The command that trains, the same with and without a cluster."""
        config = ["--config", str(self.suite.path)]
        if self.method == "base":
            return [sys.executable, "-m", "sage.train.sft", *config]
        return [sys.executable, "-m", "sage.train", *config, "--method", self.method, "--seed", str(self.seed)]

    @property
    def rerun(self) -> str:
        """The command that runs it again."""
        words = ["snakemake", str(self.checkpoint / manifest.NAME), "--configfile", str(self.suite.path)]
        return shlex.join(words)

    def key(self) -> str:
        """Return what the run depends on: a job of another key is not this run's."""
        return training_key(self.suite, self.method)

    def record(self) -> dict[str, Any] | None:
        """Return the record of the last submission, None where there is none."""
        return read_json(self.folder / RECORD)

    def write_record(self, record: dict[str, Any]) -> None:
        """Write the record, atomically."""
        manifest.write_json(self.folder / RECORD, record)

    def progress(self) -> dict[str, Any]:
        """Return what the run has last said of itself; empty where it has said nothing."""
        return read_json(self.work / PROGRESS) or {}

    def log(self, job: str) -> Path:
        """Return the log of job ``job``, where submitit writes it."""
        return self.folder / f"{job}_0_log.out"


def read_json(path: Path) -> Any:
    """Return the content of a file that may not be there (yet), else None."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
