"""The cluster, up once for all tests, and a copy of the project with suites that suit it."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "tests/workflow")]

from cluster import Cluster, obstacle  # noqa: E402
from project_tree import LEFT_OUT, Tree  # noqa: E402

SUITES = {
    # What the workflow does: two methods, two seeds, two benchmarks, each sampled by two jobs.
    "grid": {"[base, grpo_branch]": "[base, grpo, grpo_branch]", "shards: 2,": "shards: 2, jobs: 2,"},
    # What happens to single trainings: long enough to be hit, five seeds for five disasters.
    "long": {
        "[1, 2]": "[1, 2, 3, 4, 5, 6]",
        "steps: 3\n": "steps: 500\n",
        "save_every: 1\n": "save_every: 50\n",
        "[base, grpo_branch]": "[base, grpo, grpo_nokl]",
        "keep_steps: [2]": "keep_steps: []",
    },
}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    reason = obstacle()
    if reason:
        pytest.skip(reason)
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()


@pytest.fixture(scope="session")
def project(tmp_path_factory) -> Tree:
    """A copy of the project without results, with the suites of these tests."""
    root = tmp_path_factory.mktemp("project") / "sage"
    shutil.copytree(ROOT, root, ignore=LEFT_OUT, symlinks=True)
    for folder in ("data", "reports"):
        shutil.rmtree(root / folder, ignore_errors=True)
    tiny = (ROOT / "tests/workflow/tiny.yaml").read_text()
    for name, edits in SUITES.items():
        text = tiny.replace("tiny:", f"{name}:")
        for old, new in edits.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        (root / f"workflow/config/{name}.yaml").write_text(text)
    tree = Tree(root)
    tree.run("git", "init", "--quiet")
    tree.commit()
    return tree
