"""A finished run of a tiny suite in a copy of the project, made once; every test works in a copy of its own."""

import shutil
from pathlib import Path

import pytest
from project_tree import LEFT_OUT, SUITE, Tree

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Tree:
    root = tmp_path_factory.mktemp("finished") / "sage"
    shutil.copytree(ROOT, root, ignore=LEFT_OUT)
    shutil.rmtree(root / "data")
    shutil.rmtree(root / "reports", ignore_errors=True)
    shutil.copy(Path(__file__).with_name("tiny.yaml"), root / SUITE)
    tree = Tree(root)
    tree.run("git", "init", "--quiet")
    tree.commit()
    tree.snakemake("all")
    tree.make("dvc-yaml")
    tree.run("dvc", "repro")
    tree.commit()
    return tree


@pytest.fixture
def tree(finished, tmp_path) -> Tree:
    return Tree(Path(shutil.copytree(finished.root, tmp_path / "sage", symlinks=True)))


@pytest.fixture
def clone(finished, tmp_path) -> Tree:
    """A clone of the finished project, with shuffled file times."""
    tree = Tree(tmp_path / "clone")
    finished.run("git", "clone", "--quiet", ".", str(tree.root))
    tree.shuffle_times()
    return tree
