"""The report's numbers against numpy, its holes, and that the same files give the same bytes."""

import csv
import json
import os
import re
import shutil
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
from sage.report import claims, figures, reported
from sage.report.build import build, redraw
from sage.report.read import read

ROOT = Path(__file__).parents[2]
N = 256


def curve(suite: str, method: str, seed: int, benchmark: str, grade: str) -> list[float]:
    """Return a made-up curve, another for every cell."""
    start = (sum(map(ord, f"{suite}{method}{benchmark}{grade}")) * (7 + seed)) % 97 / 200
    return [round(1 - (1 - start) * k**-0.4, 10) for k in range(1, N + 1)]


def write_metrics(root: Path, suite: Suite) -> None:
    for method, seed, benchmark in grid.cells(suite):
        curves = {grade: curve(suite.name, method, seed, benchmark, grade) for grade in ("strict", "answer")}
        objective, right = suite.method(method).objective, seed * (method != "base")
        kl = objective.kl if objective else None
        content = {
            "schema": SCHEMA, "suite": suite.name, "method": method, "label": suite.method(method).label, "seed": seed,
            "benchmark": benchmark, "n": N, "engine": "transformers", "temperature": 1.0, "top_p": 1.0, "samples": "0" * 64,
            "kl": kl.estimator if kl else None, "beta": kl.beta if kl else None,
            "guide": objective.guide if objective else None, "primary": "strict", "grades": ["strict", "answer"],
            "problems": [{"id": name, "strict": {"correct": c}, "answer": {"correct": c}} for name, c in
                         (("a", 0), ("b", 200 + right), ("c", right - 1 if right else 0))],
            "curve": curves, "chance": [1 - 0.9375**k for k in range(1, N + 1)],
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


ENTROPY = figures.FIGURES["entropy"]
QUICK = ("first_against_last", "claims")  # figures that are drawn where a test is not about figures


@pytest.fixture
def suite(tmp_path, monkeypatch) -> Suite:
    """The demo suite with made-up metric files, in an empty folder that is the working directory."""
    monkeypatch.setattr(figures, "FIGURES", {name: figures.FIGURES[name] for name in QUICK})
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
    [found] = [
        row for row in rows(paths.report(suite.name) / "tables/findings.csv") if row["text"] == "Branch raises pass@1"
    ]
    assert float(found["low"]) == pytest.approx(test.confidence_interval().low)
    assert found["problems_low"] == found["problems_high"] == "0"  # the same counts under both methods
    assert "DAPO" not in text
    assert "Branch raises pass@1" in (paths.report(suite.name) / "index.html").read_text()


def test_support_is_told_against_base_of_the_same_seed(suite):
    """Problem a is never solved, b always, c by base in no seed and by the others in seed 2 only."""
    build(suite)
    table = rows(paths.report(suite.name) / "tables/support.csv")
    assert len(table) == len(suite.methods) * len(suite.benchmarks) * 3
    for row in table:
        gained = int(row["method"] != "base" and row["problem"] == "c")
        both = 2 * (row["problem"] == "b")
        found = [int(row[state]) for state in ("solved by both", "gained", "lost", "solved by neither")]
        assert found == [both, gained, 0, 2 - both - gained]


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
    elif how == "no object":
        path.write_text("[]")
    elif how == "lacks a curve":
        path.write_text(json.dumps({name: x for name, x in json.loads(path.read_text()).items() if name != "curve"}))


@pytest.mark.parametrize("how", ["missing", "half written", "another schema", "no object", "lacks a curve"])
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


def test_a_hole_is_seen_in_the_figures_and_in_the_findings(suite):
    for seed in suite.seeds:
        break_file(paths.metrics(suite.name, "grpo", seed) / "knights_n4.counts.json", "missing")
    results = read(suite)
    assert results.missing("knights_n4", ["Base", "GRPO"]) == [f"GRPO: 0 of {len(suite.seeds)} seeds"]
    assert not results.missing("knights_n5", ["Base", "GRPO"])
    drawn = figures.pass_at_k(results, None)
    texts = [text.get_text() for axis in drawn.axes for text in axis.texts]
    assert texts
    assert all(text == f"not whole:\nGRPO: 0 of {len(suite.seeds)} seeds" for text in texts)
    build(suite)
    assert "| Branch raises pass@1 | too few seeds |" in (paths.report(suite.name) / "findings.md").read_text()


@pytest.mark.parametrize("text", ["", "step,rew", "step,reward,entropy\n0,0.1,0.2\n1,0.1", "step,reward\n"])
def test_half_a_step_log_is_named_and_left_out(suite, capsys, text):
    log = paths.training_log(suite.name, "grpo", 1)
    log.write_text(text)
    build(suite)
    [warning] = capsys.readouterr().err.splitlines()
    assert warning.startswith(f"warning: {log}: ")
    assert str(log) in (paths.report(suite.name) / "index.html").read_text()


def test_half_a_side_file_is_named_and_the_rest_is_told(suite, capsys):
    for seed, text in ((1, '{"seconds": 9000, "commit": "abc"}'), (2, '{"seconds": 90')):
        paths.training_log(suite.name, "grpo", seed).with_suffix(".run.json").write_text(text)
    build(suite)
    [warning] = capsys.readouterr().err.splitlines()
    assert "data/demo/metrics/grpo/seed2/training.run.json: not valid JSON" in warning
    assert "2 runs, 2.5 hours in all" in (paths.report(suite.name) / "index.html").read_text()


def test_one_figure_is_drawn_again_alone(suite):
    build(suite)
    folder = paths.report(suite.name) / "figures"
    before = contents(folder)
    for file in folder.iterdir():
        file.unlink()
    redraw(suite, "claims")
    assert contents(folder) == {name: text for name, text in before.items() if Path(name).stem == "claims"}


def latex_rows(text: str) -> list[str]:
    """Return the rows of a table after checking that its environments nest, and that no special character is bare."""
    opened = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert not opened
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert not re.search(r"(?<!\\)[%#_]", body)
    assert body.count("{") == body.count("}")
    assert body.isascii()
    return [line for line in text.splitlines() if line.endswith("\\\\")]


def test_the_tables_are_sound_latex(suite):
    build(suite)
    for name, columns, count in (("main.tex", 10, 9 + 2), ("claims.tex", 6, 7)):
        table = latex_rows((paths.report(suite.name) / "tables" / name).read_text())
        assert {len(re.findall(r"(?<!\\)&", row)) for row in table} == {columns - 1}
        assert len(table) == count


LATEX = shutil.which("pdflatex") or shutil.which("tectonic")


@pytest.mark.skipif(LATEX is None, reason="neither pdflatex nor tectonic is here")
def test_the_paper_output_compiles(suite, tmp_path):
    build(suite)
    parts = "".join(
        f"\\input{{{paths.report(suite.name)}/tables/{name}.tex}}" for name in ("numbers", "main", "claims")
    )
    (tmp_path / "paper.tex").write_text(
        "\\documentclass{article}\\usepackage{booktabs}\\begin{document}" + parts
        + "\\sagenumber{grpo.knights_n4.strict.pass@1.mean}\\end{document}"
    )  # fmt: skip
    done = subprocess.run([LATEX, "paper.tex"], cwd=tmp_path, input="", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "paper.pdf").is_file()


def test_every_number_has_a_macro(suite):
    build(suite)
    folder = paths.report(suite.name)
    numbers = json.loads((folder / "numbers.json").read_text())
    macros = dict(re.findall(r"csname sage:(.+?)\\endcsname\{(.*)\}", (folder / "tables/numbers.tex").read_text()))
    assert macros["grpo.knights_n4.strict.pass@1.mean"] == f"{numbers['grpo.knights_n4.strict.pass@1.mean']:.3f}"
    assert macros["grpo_branch-grpo.strict.pass@1.n"] == str(len(suite.seeds))
    assert macros["grpo_branch-grpo.strict.pass@1.verdict"] in ("holds", "contradicted", "inside the noise")
    assert set(macros) == {name for name, value in numbers.items() if value is not None}


def test_the_papers_figures_stand_beside_ours_where_they_apply(suite, monkeypatch):
    build(suite)
    assert not (paths.report(suite.name) / "tables/reported.md").exists()
    figure = reported.Figure(method="grpo", k=1, average=0.5, aime=0.25)
    paper = reported.Paper(benchmarks=["knights_n4", "knights_n5"], figures=[figure])
    monkeypatch.setattr(reported, "load", lambda: reported.Reported(source="a paper", suites={suite.name: paper}))
    build(suite)
    values = [
        np.mean([curve(suite.name, "grpo", seed, b, "strict")[0] for b in suite.benchmarks]) for seed in suite.seeds
    ]
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    line = (
        f"| GRPO | average | 1 | 0.500 | {np.mean(values):.3f} [{low:.3f}, {high:.3f}] | {np.mean(values) - 0.5:+.3f} |"
    )
    text = (paths.report(suite.name) / "tables/reported.md").read_text()
    assert line in text
    assert text.count("GRPO") == 1
    assert "a paper" in (paths.report(suite.name) / "index.html").read_text()


def test_the_shipped_reported_figures_name_methods_that_are_there(monkeypatch):
    monkeypatch.chdir(ROOT)
    for paper in reported.load().suites.values():
        assert all((paths.METHODS / f"{figure.method}.yaml").is_file() for figure in paper.figures)


def test_patterns_are_shown_where_they_were_looked_for(suite):
    shares = {"constraint set-up": 0.5, "structural reasoning": 0.25, "proof by contradiction": 0.125}
    for seed in suite.seeds:
        content = {"method": "grpo", "benchmarks": {b: {"shares": shares} for b in suite.benchmarks}}
        paths.patterns(suite.name, "grpo", seed).write_text(json.dumps(content))
    build(suite)
    text = (paths.report(suite.name) / "tables/patterns.md").read_text()
    assert f"| GRPO | {len(suite.seeds)} | 0.500 +- 0.000 | 0.250 +- 0.000 | 0.125 +- 0.000 |" in text
    assert "| Base | 0 | – | – | – |" in text
    assert "a role is supposed" in text


def test_claims_are_about_the_grade_that_is_rewarded(suite):
    for path in grid.counts(suite):
        content = json.loads(path.read_text())
        content |= {"primary": "answer", "grades": ["answer"], "curve": {"answer": content["curve"]["answer"]}}
        path.write_text(json.dumps(content))
    rows = claims.findings(read(suite)).rows
    assert rows
    for finding in rows:
        assert finding.claim.metric == "answer"
        assert finding.difference.n == len(suite.seeds)


def test_entropies_are_drawn_where_tokens_were_annotated(suite, monkeypatch):
    monkeypatch.setitem(figures.FIGURES, "entropy", ENTROPY)
    figure = paths.report(suite.name) / "figures/entropy.svg"
    build(suite)
    assert not figure.exists()
    assert "figures/entropy.svg" not in (paths.report(suite.name) / "index.html").read_text()
    with pytest.raises(UserError, match="--figure entropy: nothing to draw"):
        redraw(suite, "entropy")
    shares, guide = [0.5, 0.25, 0.25], [1.0, 1.0, 1.4]
    for method in ("base", "grpo", "grpo_branch"):
        for seed in suite.seeds:
            rows = [
                f"{b},{0.5 * i:.4f},{int(400 * share)},{q if method == 'grpo_branch' else ''}"
                for b in suite.benchmarks
                for i, (share, q) in enumerate(zip(shares, guide, strict=True))
            ]
            paths.entropies(suite.name, method, seed).write_text(
                "\n".join(["benchmark,entropy,tokens,guide", *rows, ""])
            )
    results = read(suite)
    drawn = figures.entropy(results, claims.findings(results))
    top, bottom = drawn.axes[0], drawn.axes[len(suite.benchmarks)]
    assert [line.get_label() for line in top.lines] == ["Base", "GRPO", "GRPO + Branch", "tau of Branch"]
    assert [list(line.get_ydata()) for line in top.lines[:3]] == [shares] * 3
    assert [line.get_label() for line in bottom.lines] == ["GRPO + Branch", "tau of Branch"]
    assert list(bottom.lines[0].get_ydata()) == guide
    assert bottom.lines[1].get_xdata()[0] == suite.guides.branch.tau
    paths.entropies(suite.name, "grpo", 1).write_text("benchmark,entropy\n")
    assert any("entropy.csv: no table of entropies" in line for line in read(suite).problems)


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
