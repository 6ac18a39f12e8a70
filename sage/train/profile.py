"""Where the time of a training run goes: a trace and a table of a few of its steps, which leave no other trace.

In: what a training run reads. Out: ``trace.json.gz``, for https://ui.perfetto.dev or chrome://tracing, and ``table.txt``: the
phases of a step and the operators, by their own time, in ``logs/{suite}/profile``. Results, state and work of the run itself
are neither read nor written.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.profiler import ProfilerActivity, profile

from sage import manifest, paths
from sage.train.ranks import Ranks
from sage.train.rl import Run

if TYPE_CHECKING:
    from sage.config import Suite

STEPS = 2  # after one that is not profiled
OPERATORS = 40


def main(suite: "Suite", method: str, seed: int) -> Path:
    """Profile the first steps of ``method`` with ``seed``; return the folder of trace and table."""
    folder = paths.LOGS / suite.name / "profile" / method / f"seed{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(suite, method, seed, Ranks(), work=folder)
    run.step(0)
    on_cuda = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    with profile(activities=[ProfilerActivity.CPU, *on_cuda]) as profiler:
        for step in range(1, STEPS + 1):
            run.step(step)
    profiler.export_chrome_trace(str(folder / "trace.json.gz"))
    order = "self_cuda_time_total" if on_cuda else "self_cpu_time_total"
    operators = profiler.key_averages().table(sort_by=order, row_limit=OPERATORS, max_name_column_width=48)
    manifest.write_atomic(folder / "table.txt", f"{phases(run.state.seconds[1:])}\n\n{operators}")
    return folder


def phases(rows: list[dict[str, float]]) -> str:
    """Return mean seconds of each phase of a step and its share of the whole, as lines."""
    mean = {name: sum(row[name] for row in rows) / len(rows) for name in rows[0] if name != "step"}
    lines = [f"{name:10} {seconds:10.4f} {seconds / mean['total']:8.1%}" for name, seconds in mean.items()]
    return "\n".join([f"{'phase':10} {'seconds':>10} {'share':>8}", *lines])
