"""The page of the rollout browser. It holds no completion: it loads those that ``python -m sage.annotate`` has written.

So it is a part of every report and opens in a clone without payloads, where it says what would bring the completions.
"""

import json
from typing import Any

from markupsafe import Markup

from sage.report import figures
from sage.report.page import environment
from sage.report.read import Results


def render(results: Results) -> str:
    """Return the HTML of the rollout browser."""
    text = json.dumps(content(results), separators=(",", ":")).replace("<", "\\u003c")
    return environment().get_template("rollouts.html").render(suite=results.suite, content=Markup(text))


def content(results: Results) -> dict[str, Any]:
    """Return what the page must know: the grid, which samples were graded, and the scales of the shadings."""
    suite, colours = results.suite, figures.palette(results)
    guides = suite.guides
    return {
        "benchmarks": suite.benchmarks,
        "seeds": suite.seeds,
        "methods": {name: {"label": label, "colour": colours[label]} for name, label in results.labels.items()},
        "primary": results.cells[0]["primary"],
        "samples": {f"{c['method']}/{c['seed']}/{c['benchmark']}": c["samples"] for c in results.cells},
        # the value that has no shade, and the distance from it with the fullest one
        "scales": {"entropy": [0, 1.5], "gap": [0, 2], "guide": [1, max(guides.q_max - 1, 1 - guides.q_min)]},
        "config": str(suite.path),
        "command": f"snakemake --cores 2 rollouts --configfile {suite.path}",
    }
