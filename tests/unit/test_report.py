"""The report's numbers against numpy, its holes, and that the same files give the same bytes."""

import csv
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from sage import grid, paths
from sage.config import Suite, load_suite
from sage.errors import UserError
from sage.evaluate.verify import SCHEMA
from sage.report.build import build

ROOT = Path(__file__).parents[2]
N = 256


def curve(suite: str, method: str, seed: int, benchmark: str, grade: str) -> list[float]:
    """Return a made-up curve, another for every cell."""
    start = (sum(map(ord, f"{suite}{method}{benchmark}{grade}")) * (7 + seed)) % 97 / 200
    return [round(1 - (1 - start) * k**-0.4, 10) for k in range(1, N + 1)]


def write_metrics(root: Path, suite: Suite) -> None:
    for method, seed, benchmark in grid.cells(suite):
        curves = {grade: curve(suite.name, method, seed, benchmark, grade) for grade in ("strict", "answer")}
        objective = suite.method(method).objective
        kl = objective.kl if objective else None
        content = {
            "schema": SCHEMA, "suite": suite.name, "method": method, "label": suite.method(method).label, "seed": seed,
            "benchmark": benchmark, "n": N, "engine": "transformers", "temperature": 1.0, "top_p": 1.0,
            "kl": kl.estimator if kl else None, "beta": kl.beta if kl else None,
            "guide": objective.guide if objective else None, "primary": "strict", "grades": ["strict", "answer"],
            "problems": [{"id": "a"}, {"id": "b"}], "curve": curves, "chance": [1 - 0.9375**k for k in range(1, N + 1)],
        }  # fmt: skip
        file = root / paths.metrics(suite.name, method, seed) / f"{benchmark}.counts.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content))
        more = {
            "schema": SCHEMA,
            "avg@256": {"strict": 0.1, "answer": 0.2},
            "maj": {"maj@16": seed / 8},
            "distinct": 3.5,
        }
        file.with_name(f"{benchmark}.answers.json").write_text(json.dumps(more))
    for log in grid.training_logs(suite):
        rows = [f"{step},{0.1 + step / 100},{0.3 - step / 100},0.01,20,0.5,1.02" for step in range(10)]
        (root / log).write_text("\n".join(["step,reward,entropy,kl,length,grad_norm,guide_mean", *rows, ""]))


@pytest.fixture
def suite(tmp_path, monkeypatch) -> Suite:
    """The demo suite with made-up metric files, in an empty folder that is the working directory."""
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    monkeypatch.chdir(tmp_path)
    suite = load_suite("workflow/config/demo.yaml")
    write_metrics(tmp_path, suite)
    return suite


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_the_numbers_are_those_of_the_files(suite):
    build(suite)
    folder = paths.report(suite.name)
    table = rows(folder / "tables/main.csv")
    assert {"suite", "method", "seed", "benchmark", "metric", "k", "value"} <= set(table[0])
    strict = [row for row in table if row["metric"] == "strict"]
    assert len(strict) == len(list(grid.cells(suite))) * len(suite.evaluate.ks)
    for row in strict:
        expected = curve(suite.name, row["method"], int(row["seed"]), row["benchmark"], "strict")[int(row["k"]) - 1]
        assert float(row["value"]) == expected
    numbers = json.loads((folder / "numbers.json").read_text())
    values = [curve(suite.name, "grpo", seed, "knights_n5", "answer")[255] for seed in suite.seeds]
    assert numbers["grpo.knights_n5.answer.pass@256.mean"] == pytest.approx(statistics.mean(values), abs=1e-6)
    assert numbers["grpo.knights_n5.answer.pass@256.std"] == pytest.approx(np.std(values, ddof=1), abs=1e-6)
    assert numbers["grpo.knights_n5.answer.pass@256.n"] == len(suite.seeds)
    text = f"{statistics.mean(values):.3f} {{}} {statistics.stdev(values):.3f}"
    assert text.format("+-") in (folder / "tables/main.md").read_text()
    assert text.format("$\\pm$") in (folder / "tables/main.tex").read_text()
    assert text.format("±") in (folder / "index.html").read_text()


def test_the_table_of_answers_and_its_hole(suite):
    for seed in suite.seeds:
        (paths.metrics(suite.name, "grpo", seed) / "knights_n4.answers.json").unlink()
    build(suite)
    folder = paths.report(suite.name) / "tables"
    lines = (folder / "answers.md").read_text().splitlines()
    assert "| Benchmark | Method | n | strict avg@256 | answer avg@256 | maj@16 | distinct |" in lines
    assert "| knights_n4 | GRPO | 0 | – | – | – | – |" in lines
    values = [seed / 8 for seed in suite.seeds]
    middle = f"{statistics.mean(values):.3f} +- {statistics.stdev(values):.3f}"
    assert f"| knights_n5 | GRPO | 2 | 0.100 +- 0.000 | 0.200 +- 0.000 | {middle} | 3.500 +- 0.000 |" in lines
    found = [row for row in rows(folder / "answers.csv") if row["metric"] == "maj@16"]
    assert len(found) == len(list(grid.cells(suite))) - len(suite.seeds)
    assert all(float(row["value"]) == int(row["seed"]) / 8 for row in found)


def test_the_findings_compare_the_methods_of_the_suite_seed_by_seed(suite):
    build(suite)
    text = (paths.report(suite.name) / "findings.md").read_text()
    values = {
        name: np.array(
            [[curve(suite.name, name, seed, b, "strict")[0] for seed in suite.seeds] for b in suite.benchmarks]
        )
        for name in ("grpo_branch", "grpo")
    }
    difference = values["grpo_branch"] - values["grpo"]
    [line] = [x for x in text.splitlines() if x.startswith("| Branch raises pass@1 |")]
    test = stats.ttest_rel(values["grpo_branch"].mean(0), values["grpo"].mean(0))
    assert f"| {difference.mean():+.3f} [{test.confidence_interval().low:+.3f}, " in line
    assert f"| {', '.join(f'{x:+.3f}' for x in difference.mean(1))} |" in line
    assert f"| {values['grpo_branch'].mean():.3f}, {values['grpo'].mean():.3f} |" in line
    assert "DAPO" not in text
    assert "Branch raises pass@1" in (paths.report(suite.name) / "index.html").read_text()


def test_the_level_of_guessing_stands_beside_the_answers(suite):
    build(suite)
    page = (paths.report(suite.name) / "index.html").read_text()
    assert f"{1 - 0.9375:.3f}" in page
    assert page.count('class="chance') == len(suite.benchmarks)


def test_the_page_needs_no_network_and_all_its_files_are_there(suite):
    build(suite)
    folder = paths.report(suite.name)
    page = (folder / "index.html").read_text()
    links = re.findall(r'(?:src|href)="([^"#]+)"', page)
    assert len(links) >= 10
    assert not [link for link in links if not (folder / link).is_file()]
    assert "//" not in "".join(links)
    assert not re.search(r"@import|url\(|fetch\(", page)


def break_file(path: Path, how: str) -> None:
    if how == "missing":
        path.unlink()
    elif how == "half written":
        path.write_text(path.read_text()[:100])
    elif how == "another schema":
        path.write_text(json.dumps({**json.loads(path.read_text()), "schema": SCHEMA + 1}))


@pytest.mark.parametrize("how", ["missing", "half written", "another schema"])
def test_a_hole_is_shown_and_never_filled(suite, capsys, how):
    for seed in suite.seeds:
        break_file(paths.metrics(suite.name, "grpo", seed) / "knights_n4.counts.json", how)
    break_file(paths.metrics(suite.name, "grpo_nokl", 1) / "knights_n4.counts.json", how)
    build(suite)
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 3
    assert all(line.startswith("warning: data/demo/metrics/grpo") for line in warnings)
    folder = paths.report(suite.name)
    assert "3 file(s) are missing or broken" in (folder / "index.html").read_text()
    numbers = json.loads((folder / "numbers.json").read_text())
    assert not [name for name in numbers if name.startswith("grpo.knights_n4.")]
    assert numbers["grpo_nokl.knights_n4.strict.pass@1.n"] == 1
    assert numbers["grpo_nokl.knights_n4.strict.pass@1.std"] is None
    [line] = [x for x in (folder / "tables/main.md").read_text().splitlines() if x.startswith("| knights_n4 | GRPO |")]
    assert "–" in line
    assert " 0 " in line


def test_no_metric_file_at_all(suite):
    for file in grid.counts(suite):
        file.unlink()
    with pytest.raises(UserError, match="no metric file"):
        build(suite)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def test_the_same_files_give_the_same_bytes(suite, tmp_path):
    found = []
    for salt in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "sage.report", "--config", "workflow/config/demo.yaml"]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        found.append(contents(tmp_path / "reports"))
    assert len(found[0]) >= 14
    assert found[0] == found[1]


def test_what_a_former_report_left_is_removed(suite):
    stale = paths.report(suite.name) / "figures/old.svg"
    stale.parent.mkdir(parents=True)
    stale.write_text("")
    build(suite)
    assert not stale.exists()
