"""Tests on the real engine; `make test-vllm` installs its CPU build in an environment of its own."""

import importlib.util
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    if importlib.util.find_spec("vllm") is None:
        missing = pytest.mark.skip(reason="vllm is not installed; `make test-vllm` installs it beside .venv")
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(missing)
