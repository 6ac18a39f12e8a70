"""The plan against what is really made: parameters, adapters, jobs, sequences, caches."""

from pathlib import Path

import pytest
from byte_model import SHAPE, llama
from test_adapter import LORA

from sage import config, grid, plan
from sage.policy import adapter
from sage.policy.model import make_model, make_tokenizer, shape_of
from sage.tasks import knights

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def in_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def suite(name):
    return config.load_suite(f"workflow/config/{name}.yaml")


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": False}, {"attention_bias": True}])
def test_parameters_are_those_of_a_llama(changes):
    model = llama(**changes)
    # a Llama with biases has one after the attention, too
    extra = 2 * 32 if changes.get("attention_bias") else 0
    assert plan.parameters(shape_of(model)) == sum(weight.numel() for weight in model.parameters()) - extra
    assert shape_of(llama()) == config.Shape(**SHAPE)


def test_parameters_are_those_of_a_model_made_from_nothing():
    laptop = suite("laptop")
    model = make_model(laptop.model, len(make_tokenizer(knights.VOCABULARY)), seed=0)
    assert plan.parameters(plan.shape(laptop)) == sum(weight.numel() for weight in model.parameters())
    assert plan.shape(laptop) == shape_of(model)


def test_parameters_of_the_published_model():
    """7,615,616,512 in the safetensors index of the hub's Qwen2.5-Math-7B, which is twice as many bytes."""
    assert plan.parameters(plan.shape(suite("qwen2.5-math-7b"))) == 7_615_616_512


def test_parameters_of_an_adapter():
    model = llama()
    adapter.add(model, LORA, seed=0)
    made = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    assert plan.adapter_parameters(config.Shape(**SHAPE), LORA.r, LORA.targets) == made


def test_sequences_are_counted_from_the_configuration():
    paper = suite("qwen2.5-math-7b")
    rows = dict(plan.tokens(paper))
    assert rows["a run: optimiser steps"] == "1,000"
    assert rows["a run: sequences"] == "8,000"
    assert rows["a cell of aime: sequences"] == f"{60 * 256:,}"
    assert rows["a cell of amc23: sequences"] == f"{40 * 256:,}"
    assert rows["a cell of math500: sequences"] == f"{134 * 256:,}"


def test_keys_and_values_of_a_sequence():
    """28 layers x 4 heads x 128 coordinates x 2 (keys, values) x 2 bytes are 57,344 bytes a token."""
    assert plan.cache(suite("r1-distill-qwen-7b"), 3, 6144) == 3 * 8192 * 57_344


@pytest.mark.parametrize("name", ["qwen2.5-math-7b", "r1-distill-qwen-7b", "laptop"])
def test_jobs_are_those_of_the_grid(name):
    chosen = suite(name)
    rows = {label: int(count.replace(",", "")) for label, count in plan.jobs(chosen)}
    made = ("process_data", "fetch_model", "train_base", "train_policy", "sample_benchmark")
    assert sum(rows[rule] for rule in made) == len(grid.manifests(chosen))
    assert rows["all"] == sum(rows.values()) - rows["all"]
