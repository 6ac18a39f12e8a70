"""The page: what was run, the main table, the figures with captions; it opens from the disk and asks no network."""

import re
from typing import Any

import jinja2
from markupsafe import Markup, escape

from sage import paths
from sage.report import claims, figures, patterns, reported, tables
from sage.report.read import Results


def environment() -> jinja2.Environment:
    """Return the environment of the templates."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("sage.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    made.filters.update(prose=prose, plain=lambda text: text.replace("`", ""))
    return made


def render(results: Results, found: claims.Findings) -> str:
    """Return the HTML of the report."""
    template, compared = environment().get_template("index.html"), reported.compare(results)
    looked_for = patterns.rows(results) if results.patterns else []
    return template.render(
        suite=results.suite,
        facts=facts(results),
        methods=methods(results),
        headings=tables.headings(results),
        rows=[{**row, "texts": [_cell(value) for value in row["values"]]} for row in tables.main_rows(results)],
        notes=tables.FOOTNOTES,
        findings={
            "headings": claims.HEADINGS,
            "rows": [claims.row(f) for f in found.rows],
            "note": claims.explanation(results, found),
        },
        reported={
            "headings": reported.HEADINGS,
            "rows": [reported.cells(r) for r in compared],
            "note": reported.note(),
        },
        patterns={
            "headings": ["Method", "n", *patterns.names(results)],
            "rows": [[label, str(n), *(tables.cell_text(v, "±") for v in values)] for label, n, values in looked_for],
            "notes": [patterns.NOTE, *patterns.definitions(results)],
        },
        problems=results.problems,
        figures=[
            {"name": name, "caption": drawing.caption, "data": drawing.data.format(suite=results.suite.name)}
            for name, drawing in figures.drawn(results).items()
        ],
        metrics=paths.DATA / results.suite.name / "metrics",
        command=f"python -m sage.report --config {results.suite.path}",
    )


def prose(text: str) -> Markup:
    """Return a sentence as HTML: words between backticks as code, ``+-`` as one sign."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text.replace("+-", "±")))))


def facts(results: Results) -> dict[str, str]:
    """Return what was run, from the metric files and the side files of the runs."""
    first = results.cells[0]
    suite = results.suite
    counts = {cell["benchmark"]: len(cell["problems"]) for cell in results.cells}
    found = {
        "Suite": f"{suite.name}: {len(suite.methods)} methods x {len(suite.seeds)} seeds x {len(suite.benchmarks)} benchmarks",
        "Benchmarks": ", ".join(f"{name} ({count} problems)" for name, count in counts.items()),
        "Samples": f"n = {first['n']} a problem at temperature {first['temperature']:g}, top-p {first['top_p']:g},"
        f" engine {first['engine']}",
        "Cells": f"{len(results.cells)} of {len(suite.methods) * len(suite.seeds) * len(suite.benchmarks)}",
    }
    for stage in ("training", "sampling"):
        mine = [run for run in results.runs if run["stage"] == stage]
        if mine:
            minutes = sum(run["seconds"] for run in mine) / 60
            length = f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"
            found[stage.capitalize()] = f"{len(mine)} runs, {length} in all"
    if results.runs:
        commits = sorted({run["commit"][:10] for run in results.runs if run["commit"]})
        found["Commits of the runs"] = ", ".join(commits) or "not in a git repository"
        versions = {(name, version) for run in results.runs for name, version in run["packages"].items()}
        found["Versions"] = ", ".join(f"{name} {version}" for name, version in sorted(versions)) or "unknown"
    return found


def methods(results: Results) -> list[dict[str, Any]]:
    """Return a row a method: what it optimises, its estimator by name."""
    colours = figures.palette(results)
    rows = []
    for name, method in results.suite.loaded_methods.items():
        aims = method.objective
        rows.append(
            {
                "name": name,
                "label": method.label,
                "colour": colours[method.label],
                "advantage": aims.advantage if aims else "–",
                "reducer": aims.reducer if aims else "–",
                "divergence": f"{aims.kl.estimator}, beta {aims.kl.beta * aims.kl.scale:g}"
                if aims and aims.kl
                else "none",
                "guide": (aims.guide if aims else None) or "none",
            }
        )
    return rows


def _cell(value: tuple[float, float] | None) -> dict[str, Any]:
    return {"text": tables.cell_text(value, "±"), "sort": "" if value is None else f"{value[0]:.6f}"}
