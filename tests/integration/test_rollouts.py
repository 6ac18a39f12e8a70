"""Annotated completions against the models they come from, and the rollout browser in a real browser."""

import csv
import json
import math
import shutil
import sys
from pathlib import Path

import chromium
import pytest
import torch
from tiny_project import ROOT, SFT, SUITE, finish, make_project

RUNS = [("base", 1), ("grpo_branch", 1)]


def cell(program: str, method: str, seed: int, *more: str) -> list[str]:
    return [sys.executable, "-m", program, "--config", SUITE, "--method", method, "--seed", str(seed), *more]


@pytest.fixture(scope="session")
def project(tmp_path_factory) -> Path:
    """A tiny suite, trained, sampled, graded and annotated."""
    root = make_project(
        tmp_path_factory.mktemp("rollouts"),
        {
            "[knights_n4, knights_n5]": "[knights_n4]",
            "steps: 20": "steps: 300",  # until some answers can be read, and some not
            "n: 8,": "n: 32,",
            "ks: [1, 8]": "ks: [1, 32]",
            "tau: 0.8": "tau: 0.1",
            "  versions:": "  rollouts: {problems: 2}\n  versions:",
        },
    )
    for name in ("claims", "reported"):
        shutil.copy(ROOT / f"workflow/config/{name}.yaml", root / "workflow/config")
    finish(root, SFT)
    for method, seed in RUNS:
        if method != "base":
            finish(root, cell("sage.train", method, seed))
        for program in ("sage.evaluate.sample", "sage.evaluate.verify"):
            finish(root, cell(program, method, seed, "--benchmark", "knights_n4"))
        finish(root, cell("sage.annotate", method, seed))
    finish(root, [sys.executable, "-m", "sage.report", "--config", SUITE])
    return root


def loaded(project: Path, method: str, name: str) -> dict:
    text = (project / f"reports/tiny/rollouts/{method}/seed1/{name}.js").read_text()
    start = f'rollouts("{method}/seed1/{name}",'
    assert text.startswith(start)
    return json.loads(text[len(start) : -2])


def test_the_signals_are_those_of_the_models(project):
    """Each against the plain model of transformers, one token after the other."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = project / "data/tiny/checkpoints"
    policy, anchor = (
        AutoModelForCausalLM.from_pretrained(folder / name / "model") for name in ("grpo_branch/seed1", "base")
    )
    tokenizer = AutoTokenizer.from_pretrained(folder / "base/model")
    part = loaded(project, "grpo_branch", "parts/knights_n4/1")
    assert part["completions"]
    for completion in part["completions"]:
        prompt = tokenizer(part["problem"])["input_ids"]
        tokens = tokenizer.convert_tokens_to_ids(completion["tokens"])
        with torch.no_grad():
            ours, reference = (m(torch.tensor([prompt + tokens])).logits[0].log_softmax(-1) for m in (policy, anchor))
        for t, token in enumerate(tokens):
            row = ours[len(prompt) + t - 1]
            entropy = -float((row.exp() * row).sum())
            assert completion["policy"][t] == pytest.approx(float(row[token]), abs=2e-4)
            assert completion["anchor"][t] == pytest.approx(float(reference[len(prompt) + t - 1][token]), abs=2e-4)
            assert completion["entropy"][t] == pytest.approx(entropy, abs=2e-4)
            assert completion["guide"][t] == pytest.approx(min(1.4, 1 + 0.5 * max(entropy - 0.1, 0)), abs=2e-4)
        assert any(q > 1.01 for q in completion["guide"])


def test_base_is_its_own_anchor_and_has_no_guide(project):
    for completion in loaded(project, "base", "parts/knights_n4/0")["completions"]:
        assert completion["policy"] == completion["anchor"]
        assert "guide" not in completion
        assert max(completion["entropy"]) < math.log(64)


def test_the_counts_are_those_of_the_metric_files(project):
    counts = json.loads((project / "data/tiny/metrics/base/seed1/knights_n4.counts.json").read_text())
    graded = {problem["id"]: problem["strict"] for problem in counts["problems"]}
    index = loaded(project, "base", "index")["knights_n4"]
    assert index["samples"] == counts["samples"]
    assert len(index["problems"]) == 2
    for number, problem in enumerate(index["problems"]):
        found = {verdict: count for verdict, count in graded[problem["id"]].items() if count}
        assert problem["verdicts"]["strict"] == found
        shown = [c["verdicts"]["strict"] for c in loaded(project, "base", f"parts/knights_n4/{number}")["completions"]]
        assert {verdict: shown.count(verdict) for verdict in found} == {v: min(n, 3) for v, n in found.items()}


def test_the_entropies_are_those_of_the_first_completions(project):
    table = list(csv.DictReader((project / "data/tiny/metrics/grpo_branch/seed1/entropy.csv").open()))
    shown = [
        completion
        for number in range(2)
        for completion in loaded(project, "grpo_branch", f"parts/knights_n4/{number}")["completions"]
        if completion["sample"] < 3
    ]
    assert len(shown) == 6
    values = [(h, q) for c in shown for h, q in zip(c["entropy"], c["guide"], strict=True)]
    for row in table:
        low = float(row["entropy"])
        inside = [q for h, q in values if low <= h + 1e-9 < low + 0.05]
        assert int(row["tokens"]) == len(inside)
        assert float(row["guide"]) == pytest.approx(sum(inside) / len(inside), abs=1e-4)
    assert sum(int(row["tokens"]) for row in table) == len(values)
    assert (project / "reports/tiny/figures/entropy.svg").is_file()


TRY = """
  const articles = () => [...document.querySelectorAll("article")];
  const columns = () => document.querySelectorAll("#columns > section");
  const drawn = () => until(() => document.body.dataset.drawn === location.hash);
  const choose = async (name, value) => {
    const select = document.querySelector(`select[name=${name}]`), before = location.hash;
    select.value = value;
    select.dispatchEvent(new Event("change", { bubbles: true }));
    await until(() => location.hash !== before);
    await drawn();
  };
  await drawn();
  const found = { first: articles().length, columns: columns().length };
  await choose("beside", "base");
  found.beside = columns().length;
  await choose("verdict", "wrong");
  found.wrong = articles().map(a => a.querySelector(".verdict").textContent);
  await choose("verdict", "error");
  found.none = document.querySelectorAll(".none").length;
  await choose("verdict", "");
  const before = document.querySelector(".task").textContent;
  document.dispatchEvent(new KeyboardEvent("keydown", { key: "n", bubbles: true }));
  await until(() => document.querySelector(".task").textContent !== before);
  await drawn();
  found.link = articles()[1].querySelector("a.link").hash;
  await until(() => document.querySelector(".tokens > span"));
  const token = document.querySelector(".tokens > span");
  token.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
  found.detail = document.getElementById("detail").textContent;
  document.body.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
  found.gone = document.getElementById("detail").hidden;
  document.querySelector(".tokens").focus();
  const press = () => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
  press(); press();
  found.second = document.getElementById("detail").textContent;
  found.shaded = [...document.querySelectorAll(".tokens > span")].filter(span => /more|less/.test(span.className)).length;
  return found;
"""


@chromium.NEEDED
@pytest.mark.parametrize("width", [1300, 360])
def test_the_browser_filters_compares_and_links(project, width):
    page = project / "reports/tiny/rollouts.html"
    found = chromium.visit(page, TRY, width)
    assert (found["columns"], found["beside"]) == (1, 2)
    assert found["first"] > 0
    kept = [
        c for method in ("grpo_branch", "base") for c in loaded(project, method, "parts/knights_n4/0")["completions"]
    ]
    wrong = sum(completion["verdicts"]["strict"] == "wrong" for completion in kept)
    assert 0 < wrong < len(kept)
    assert found["wrong"] == ["wrong (strict)"] * wrong
    assert found["none"] == 2
    assert found["wide"] <= 0
    part = loaded(project, "grpo_branch", "parts/knights_n4/1")
    assert [line.split()[-1] for line in found["detail"].splitlines()[1:]] == [
        f"{part['completions'][0][name][0]:.4f}" for name in ("policy", "anchor", "entropy", "guide")
    ]
    assert found["gone"]
    assert "(token 2)" in found["second"]
    assert found["shaded"] > 0
    followed = chromium.visit(
        page,
        """await until(() => document.querySelector("article.linked"));
        const { top, bottom } = document.querySelector("article.linked").getBoundingClientRect();
        return { text: document.querySelector("article.linked").id, seen: bottom > 0 && top < innerHeight };""",
        width,
        found["link"],
    )
    assert followed["text"] == f"grpo_branch-{part['completions'][1]['sample']}"
    assert followed["seen"]


@chromium.NEEDED
def test_a_page_without_parts_says_what_makes_them(project, tmp_path):
    page = Path(shutil.copy(project / "reports/tiny/rollouts.html", tmp_path))
    found = chromium.visit(
        page,
        """await until(() => document.querySelector(".empty"));
        return { text: document.querySelector(".empty").textContent };""",
    )
    assert "snakemake --cores 2 rollouts --configfile workflow/config/tiny.yaml" in found["text"]


@chromium.NEEDED
def test_a_link_to_what_is_not_here_says_so(project):
    found = chromium.visit(
        project / "reports/tiny/rollouts.html",
        """await until(() => document.getElementById("lost").textContent);
        return { text: document.getElementById("lost").textContent };""",
        link="#problem=n4-none",
    )
    assert "problem n4-none" in found["text"]
