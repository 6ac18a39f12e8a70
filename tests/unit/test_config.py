"""The configuration: every shipped file loads; each fault is one line that names file, key and fix."""

import json
from pathlib import Path

import pytest
import yaml

from sage import config, paths
from sage.errors import UserError
from sage.strict import read_yaml

ROOT = Path(__file__).parents[2]
SUITES = sorted(set((ROOT / "workflow/config").glob("*.yaml")) - {ROOT / paths.CLAIMS, ROOT / paths.REPORTED})
METHODS = sorted((ROOT / paths.METHODS).glob("*.yaml"))


@pytest.fixture(autouse=True)
def in_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def changed(tmp_path, change) -> Path:
    content = read_yaml(ROOT / "workflow/config/demo.yaml")
    change(content["demo"])
    path = tmp_path / "suite.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.mark.parametrize("path", SUITES, ids=lambda p: p.stem)
def test_every_shipped_suite_loads(path):
    suite = config.load_suite(path)
    assert suite.name == path.stem
    assert suite.title


@pytest.mark.parametrize("path", METHODS, ids=lambda p: p.stem)
def test_every_shipped_method_loads(path):
    assert config.load_method(path.stem).label


def test_labels_are_unique():
    labels = [config.load_method(path.stem).label for path in METHODS]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("name", ["suite.schema.json", "method.schema.json"])
def test_schemas_are_in_step_with_the_types(name):
    assert json.loads((ROOT / "workflow/schemas" / name).read_text()) == config.schemas()[name]


FAULTS = {
    "unknown key": (lambda s: s["rl"].update(lerning_rate=1.0), r"suite\.yaml: demo: rl: unknown key 'lerning_rate'"),
    "nearest key": (lambda s: s["rl"].update(promts=1), r"did you mean 'prompts'"),
    "wrong type": (lambda s: s["rl"].update(steps="many"), r"rl\.steps: .*integer.*'many'"),
    "unknown method": (
        lambda s: s.update(methods=["base", "grpo_brunch"]),
        r"'grpo_brunch' \(did you mean 'grpo_branch'",
    ),
    "unknown task": (lambda s: s["datasets"]["rl"].update(task="knight"), r"knight.*did you mean 'knights'"),
    "unknown spec key": (lambda s: s["datasets"]["rl"].update(peple=3), r"datasets\.rl: unknown key 'peple'"),
    "no such data set": (lambda s: s["rl"].update(dataset="rll"), r"rl\.dataset: no data set 'rll'.*did you mean 'rl'"),
    "k beyond n": (lambda s: s["evaluate"].update(ks=[1, 512]), r"evaluate\.ks: 512 is more than sample\.n \(256\)"),
    "a seed twice": (lambda s: s.update(seeds=[1, 1]), r"seeds: 1 stands twice"),
    "updates": (lambda s: s["rl"].update(updates=3), r"updates: 3 must divide prompts"),
    "no fine-tuning of nothing": (lambda s: s.update(sft=None), r"demo: sft: null, but the model is made from nothing"),
    "steps and epochs": (lambda s: s["sft"].update(epochs=2), r"sft: steps: give steps or epochs"),
    "made and pretrained at once": (
        lambda s: s["model"].update(source={"hub": "a/b"}),
        r"suite\.yaml: demo: model: unknown key 'heads'",
    ),
    "missing key": (lambda s: s.pop("guides"), r"guides: Field required"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_line_naming_file_key_and_fix(tmp_path, fault):
    change, message = FAULTS[fault]
    with pytest.raises(UserError, match=message) as raised:
        config.load_suite(changed(tmp_path, change))
    assert "\n" not in str(raised.value)


def test_malformed_yaml_names_file_and_line(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("demo:\n  seeds: [1, 2\n  title: x\n")
    with pytest.raises(UserError, match=r"bad\.yaml, line 3: not valid YAML"):
        config.load_suite(path)
    path.write_text("demo: {title: a, title: b}\n")
    with pytest.raises(UserError, match="'title' appears twice"):
        config.load_suite(path)
    with pytest.raises(UserError, match=r"nothing\.yaml: no such file"):
        config.load_suite(tmp_path / "nothing.yaml")


def test_numbers_like_3e_4_are_numbers(tmp_path):
    path = tmp_path / "numbers.yaml"
    path.write_text("{a: 3e-4, b: 1, c: 1.5, d: -2E+3, e: text, f: 2024-01}")
    assert read_yaml(path) == {"a": 3e-4, "b": 1, "c": 1.5, "d": -2000.0, "e": "text", "f": "2024-01"}


def test_a_guide_without_a_divergence_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "METHODS", tmp_path)
    (tmp_path / "odd.yaml").write_text(
        "{label: Odd, objective: {advantage: group_normalised, reducer: grpo, clip: [0.2, 0.2], kl: null, guide: branch}}"
    )
    with pytest.raises(UserError, match="a guide shapes the anchor"):
        config.load_method("odd")


def test_a_stage_key_depends_on_what_the_stage_reads_only(tmp_path):
    stages = {
        "data": {"dataset": "rl"},
        "sft": {},
        "rl": {"method": "grpo"},
        "sample": {},
        "verify": {"method": "grpo"},
    }

    def keys(change):
        suite = config.load_suite(changed(tmp_path, change))
        return {stage: suite.stage_key(stage, **options) for stage, options in stages.items()}

    before = keys(lambda s: None)
    assert keys(lambda s: s.update(note="another note", title="another title")) == before
    assert keys(lambda s: s["sample"].update(batch=7, shards=9, workers=2)) == before
    assert keys(lambda s: s["guides"]["branch"].update(tau=0.1)) == before  # grpo has no guide

    def differ(change):
        return {stage for stage, key in keys(change).items() if key != before[stage]}

    assert differ(lambda s: s["rl"].update(steps=7)) == {"rl"}
    assert differ(lambda s: s["sft"].update(steps=7)) == {"sft"}
    assert differ(lambda s: s["sample"].update(temperature=0.5)) == {"sample"}
    assert differ(lambda s: s["datasets"]["rl"].update(size=10)) == {"data"}
    assert differ(lambda s: s["versions"].update(verify=2)) == {"verify"}


def test_a_stage_key_of_a_pretrained_model_depends_on_what_the_stage_reads_only(tmp_path):
    stages = {"fetch": {}, "rl": {"method": "grpo"}, "sample": {}}
    content = read_yaml(ROOT / "workflow/config/smollm2.yaml")

    def keys(**changes):
        suite = {**content["smollm2"], **{k: v for k, v in changes.items() if k == "adapter"}}
        suite["model"] = {**suite["model"], **{k: v for k, v in changes.items() if k != "adapter"}}
        (tmp_path / "suite.yaml").write_text(yaml.safe_dump({"smollm2": suite}))
        loaded = config.load_suite(tmp_path / "suite.yaml")
        return {stage: loaded.stage_key(stage, **options) for stage, options in stages.items()}

    def differ(**changes):
        return {stage for stage, key in keys(**changes).items() if key != keys()[stage]}

    assert differ(source={"folder": "elsewhere"}) == {"fetch"}
    assert differ(dtype="bfloat16") == {"fetch"}
    assert differ(shape={**content["smollm2"]["model"]["shape"], "layers": 31}) == set()
    assert differ(stop=None) == differ(max_prompt_tokens=7) == {"rl", "sample"}
    assert differ(over_long="skip") == {"rl"}
    assert differ(adapter={**content["smollm2"]["adapter"], "r": 4}) == {"rl"}


def test_keys_that_came_later_are_no_part_of_a_key_at_their_default(tmp_path):
    def key(change):
        return config.load_suite(changed(tmp_path, change)).stage_key("rl", method="grpo")

    assert key(lambda s: s["rl"].update(min_p=0.0)) == key(lambda s: None)
    assert key(lambda s: s["rl"]["optimiser"].update(kind="adamw")) == key(lambda s: None)
    assert key(lambda s: s["rl"].update(min_p=0.01)) != key(lambda s: None)
