"""How long commands take that compute nothing: Snakemake's dry run of the paper's grid, a run with nothing to do, imports.

The run with nothing to do is that of the demo suite in a clone of this repository, whose results have been adopted.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.compare import Result, alone, seconds

ROOT = Path(__file__).parents[1]
NOTHING = "Nothing to be done"


def run(*command: str, cwd: Path = ROOT) -> str:
    """Run a command of this environment in ``cwd``; return what it printed."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(cwd)}
    done = subprocess.run(command, cwd=cwd, env=environment, check=True, capture_output=True, text=True)
    return done.stdout + done.stderr


def clone(folder: str) -> Path:
    """Return a clone of this repository whose results are up to date."""
    root = Path(folder, "clone")
    run("git", "clone", "--quiet", str(ROOT), str(root))
    run("snakemake", "all", "--touch", "--forceall", "--cores", "1", "--quiet", "all", cwd=root)
    if NOTHING not in run("snakemake", "--cores", "1", "all", cwd=root):
        raise SystemExit("a clone whose results were adopted has something to do")
    return root


def results(small: bool = False) -> list[Result]:
    """Return seconds, each as often as there are rounds."""
    rounds = range(1 if small else 5)
    commands = {
        "python -m sage.train --help": ([sys.executable, "-m", "sage.train", "--help"], "<= 1"),
        "all imports of python -m sage.report": ([sys.executable, "-c", "import sage.report.build"], "<= 2"),
    }
    if not small:
        grid = ["snakemake", "--profile", "slurm", "-n", "all", "--quiet", "all"]
        commands["snakemake -n all, the paper's two suites under the SLURM profile"] = (grid, "<= 10")
    found = [alone(n, [seconds(lambda c=c: run(*c)) for _ in rounds], "s", t) for n, (c, t) in commands.items()]
    if small:
        return found
    with tempfile.TemporaryDirectory() as folder:
        root = clone(folder)
        idle = [seconds(lambda: run("snakemake", "--cores", "1", "all", cwd=root)) for _ in rounds]
    return [*found, alone("snakemake all with nothing to do, demo", idle, "s", "<= 10")]
