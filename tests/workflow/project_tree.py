"""A copy of the project, and the commands that are typed in it."""

import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

SUITE = "workflow/config/tiny.yaml"
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", ".snakemake", "work", "logs", "cache", "tmp", "dvc.yaml", "dvc.lock", "__pycache__", "*_cache"
)
COMMITTER = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]


class Tree:
    """A copy of the project and the commands that are typed in it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "GIT_CONFIG_GLOBAL": os.devnull}

    def run(self, *command: str, status: int | None = 0) -> subprocess.CompletedProcess:
        done = subprocess.run(
            command, cwd=self.root, env=self.environment(), capture_output=True, text=True, timeout=300
        )
        assert status is None or done.returncode == status, f"{command}: {done.stdout}\n{done.stderr}"
        return done

    def snakemake(self, *arguments: str, status: int | None = 0, suites: Sequence[str] = (SUITE,)):
        return self.run("snakemake", "--cores", "2", *arguments, "--configfile", *suites, status=status)

    def make(self, *arguments: str) -> subprocess.CompletedProcess:
        """Call make with the environment of the tests in the place of `.venv`."""
        return self.run("make", "-o", ".venv/installed", *arguments)

    def pending(self, *arguments: str, suites: Sequence[str] = (SUITE,)) -> Counter:
        """Return how many jobs of each rule `all` would run."""
        return jobs(self.snakemake("-n", "all", *arguments, suites=suites))

    def commit(self) -> None:
        self.run("git", "add", "--all")
        self.run("git", *COMMITTER, "commit", "--quiet", "--message", "state")

    def changed(self) -> set[str]:
        """Return the committed files that differ from the commit, but for the side files, which always do."""
        lines = self.run("git", "diff", "--name-only", "HEAD").stdout.split()
        return {line for line in lines if not line.endswith(("run.json", "training.seconds.csv"))}

    def shuffle_times(self) -> None:
        """Give every file another modification time of the last year."""
        draw = random.Random(0)
        for file in self.root.rglob("*"):
            if file.is_file() and not {".git", ".snakemake"} & set(file.relative_to(self.root).parts):
                time = 1_700_000_000 + draw.randrange(30_000_000)
                os.utime(file, (time, time))

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.root / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))


def jobs(done: subprocess.CompletedProcess) -> Counter:
    """Return the rules of a run's jobs, from Snakemake's announcements."""
    found = re.findall(r"^(?:local)?rule (\w+):", done.stdout + done.stderr, flags=re.M)
    return Counter(rule for rule in found if rule != "all")
