"""The ways to install the project agree: pyproject.toml, environment.yml, requirements.lock and what is installed."""

import tomllib
from importlib import metadata
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def by_name(lines: list[str]) -> dict[str, Requirement]:
    requirements = [Requirement(line) for line in lines]
    assert len({canonicalize_name(r.name) for r in requirements}) == len(requirements)
    return {canonicalize_name(r.name): r for r in requirements}


def pinned(requirement: Requirement) -> str:
    [specifier] = requirement.specifier
    assert specifier.operator == "=="
    return specifier.version


def lock() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return {name: pinned(r) for name, r in by_name([line for line in lines if not line.startswith("#")]).items()}


def conda() -> list:
    return yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]


def conda_pip() -> dict[str, Requirement]:
    [section] = [part["pip"] for part in conda() if isinstance(part, dict)]
    return by_name(section)


def test_the_lock_takes_every_requirement():
    versions = lock()
    for name, requirement in by_name(PROJECT["dependencies"] + EXTRAS["test"]).items():
        assert versions[name] in requirement.specifier, requirement


def test_the_lock_is_installed():
    differ = {name: v for name, v in lock().items() if Version(metadata.version(name)).public != v}
    assert not differ, "run `make setup`"


def test_the_extra_for_slurm_is_installed():
    assert {name: metadata.version(name) for name in by_name(EXTRAS["slurm"])} == {
        name: pinned(requirement) for name, requirement in by_name(EXTRAS["slurm"]).items()
    }


def test_the_lock_names_no_build_of_one_machine():
    assert not [line for line in (ROOT / "requirements.lock").read_text().splitlines() if "+" in line or "@" in line]
    assert not [name for name in lock() if name.startswith(("nvidia", "cuda", "triton"))]


def test_conda_has_the_same_names():
    whole = by_name(PROJECT["dependencies"] + EXTRAS["test"] + EXTRAS["remotes"] + EXTRAS["vllm"])
    assert conda_pip().keys() == whole.keys()


def test_conda_has_the_same_versions():
    asked = by_name(PROJECT["dependencies"] + [line for extra in EXTRAS.values() for line in extra])
    for name, requirement in conda_pip().items():
        assert pinned(requirement) in asked[name].specifier, requirement
        assert pinned(requirement) == lock().get(name, pinned(requirement)), requirement


def test_conda_has_a_python_that_the_project_takes():
    [python] = [part for part in conda() if isinstance(part, str) and part.startswith("python=")]
    assert python == "python=3.11"
    assert PROJECT["requires-python"] == ">=3.11"


def test_the_required_packages_are_there():
    required = {"dvc", "snakemake", "torch", "transformers", "vllm", "pandas", "seaborn", "submitit"}
    assert required <= conda_pip().keys()


def test_dvc_sends_nothing():
    assert "analytics = false" in (ROOT / ".dvc/config").read_text()
