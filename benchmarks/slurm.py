"""What SLURM and the pipeline add to a job, on a cluster of one node that is started for it.

    python -m benchmarks.slurm

Needs root and SLURM's packages (tests/slurm/packages.sh). A training of a few steps is run as a plain command and through the
launcher, and one benchmark is sampled as a plain command and through Snakemake's SLURM executor; what is added is the
difference of the wall-clock seconds, and its share is stated of a job of 60 s.
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests/slurm"), str(ROOT / "tests/workflow")]

from cluster import Cluster, obstacle  # noqa: E402
from project_tree import Tree  # noqa: E402

REPEATS = 3
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", ".snakemake", "work", "logs", "data", "reports", "__pycache__", "*_cache"
)
SUITE = "workflow/config/tiny.yaml"
CELL = ["--config", SUITE, "--method", "grpo_branch", "--seed", "1"]
CHECKPOINT = "data/tiny/checkpoints/grpo_branch/seed1/manifest.json"
SAMPLES = "data/tiny/samples/grpo_branch/seed1/knights_n4/manifest.json"


def main() -> None:
    """Measure, and print seconds and shares."""
    if reason := obstacle():
        sys.exit(f"no cluster can be started: {reason}")
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder, "cluster"))
        cluster.state.mkdir()
        try:
            cluster.up()
            measure(project(Path(folder, "sage")))
        finally:
            cluster.down()


def project(root: Path) -> Tree:
    """Return a copy of the project with the tests' smallest suite, its data, its base model and one trained policy."""
    shutil.copytree(ROOT, root, ignore=LEFT_OUT, symlinks=True)
    shutil.copy(ROOT / "tests/workflow/tiny.yaml", root / SUITE)
    tree = Tree(root)
    tree.snakemake(SAMPLES)
    return tree


def measure(tree: Tree) -> None:
    python, launcher = [sys.executable, "-m"], ["sage.cluster", "launch", *CELL, "--launcher", "slurm"]
    profile = ["snakemake", "--profile", "slurm", "--quiet", "all", "-f"]
    cases = {
        "training, submitted by its launcher": ([*python, "sage.train", *CELL], [*python, *launcher]),
        "training, with Snakemake before it": ([*python, "sage.train", *CELL], [*profile, CHECKPOINT]),
        "sampling, by Snakemake's executor": (
            [*python, "sage.evaluate.sample", *CELL, "--benchmark", "knights_n4"],
            [*profile, SAMPLES],
        ),
    }
    print(f"{'':40} plain  slurm  added  share of a 60 s job")
    for name, (plain, slurm) in cases.items():
        if slurm[0] == "snakemake":
            slurm = [*slurm, "--configfile", SUITE]
        bare, whole = (statistics.median(seconds(tree, command) for _ in range(REPEATS)) for command in (plain, slurm))
        added = whole - bare
        print(f"{name:40} {bare:5.1f}  {whole:5.1f}  {added:5.1f}  {added / (60 + added):.0%}", flush=True)


def seconds(tree: Tree, command: list[str]) -> float:
    started = time.monotonic()
    subprocess.run(command, cwd=tree.root, env=tree.environment(), check=True, capture_output=True)
    return time.monotonic() - started


if __name__ == "__main__":
    main()
