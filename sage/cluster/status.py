"""The grid of suite x method x seed: which training runs are done, running, queued, failed or missing.

It reads manifests, job records and what the runs say of themselves, and asks SLURM once for all jobs.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sage import grid, manifest
from sage.cluster.launch import progress
from sage.cluster.run import Run
from sage.cluster.slurm import Queued, queue
from sage.errors import UserError

if TYPE_CHECKING:
    from sage.config import Suite

LAST_LINES = 3


@dataclass(frozen=True)
class Standing:
    """Where a run stands: one word, and what else there is to say of it."""

    run: Run
    word: str
    detail: str = ""
    more: tuple[str, ...] = ()


def show(configs: Sequence[str] | None) -> None:
    """Print the standing of every training run of the suites; every suite of the project without ``configs``."""
    from sage import paths
    from sage.config import load_suite

    files = configs or sorted(str(file) for file in (paths.METHODS.parent).glob("*.yaml") if file.stem != "claims")
    suites = [load_suite(file) for file in files]
    runs = [run for suite in suites for run in training_runs(suite)]
    records = {run: run.record() for run in runs}
    waiting = [r["job"] for r in records.values() if r and not r["outcome"] and r["launcher"] == "slurm"]
    found = queue(waiting)
    if found is None:
        raise UserError("squeue: SLURM does not answer; try again, or see `sinfo`")
    for suite in suites:
        mine = [_standing(run, records[run], found) for run in runs if run.suite is suite]
        print("\n".join(_lines(suite, mine)))


def training_runs(suite: "Suite") -> list[Run]:
    """Return the runs of a suite, the fine-tuning first."""
    return [
        Run(suite, "base", 0),
        *(Run(suite, method, seed) for method in grid.trained(suite) for seed in suite.seeds),
    ]


def _standing(run: Run, record: dict[str, Any] | None, found: dict[str, Queued]) -> Standing:
    job = f"job {record['job']}" if record else ""
    open_job = record and not record["outcome"]
    if record and open_job and record["launcher"] == "local":
        from sage.cluster.launchers import Local

        local = Local()
        found = {record["job"]: q} if (q := local.queued(local.job(run.folder, record["job"]))) else {}
    queued = found.get(record["job"]) if record and open_job else None
    if queued and queued.state in ("RUNNING", "COMPLETING"):
        left = f", {queued.left} left" if queued.left else ""
        return Standing(run, "running", f"{job} on {queued.node}{left}{progress(run)}")
    if queued:
        return Standing(run, "queued", f"{job}, {queued.state.lower()} ({queued.reason}){progress(run)}")
    if (run.checkpoint / manifest.NAME).is_file():
        return Standing(run, "done")
    if record and record["outcome"] not in (None, "done"):
        return Standing(run, "failed", record["outcome"], _epilogue(run, record))
    if record and open_job:
        return Standing(run, "ended", f"{job} is over; the next start of its launcher takes its result", _rerun(run))
    return Standing(run, "missing", progress(run).lstrip(", "))


def _epilogue(run: Run, record: dict[str, Any]) -> tuple[str, ...]:
    log = run.log(record["job"])
    lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:] if log.is_file() else []
    return (*(f"| {line}" for line in lines), f"log: {log}", *_rerun(run))


def _rerun(run: Run) -> tuple[str, ...]:
    return (f"again: {run.rerun}",)


def _lines(suite: "Suite", standings: list[Standing]) -> list[str]:
    """Return a suite as text: how many runs stand where, the grid, and what there is to say of single runs."""
    words = [standing.word for standing in standings]
    total = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(sorted(words)))
    now = time.strftime("%H:%M:%S")
    lines = [f"{suite.name}, {now}: {total}"]
    methods = list(dict.fromkeys(standing.run.method for standing in standings))
    width = max(map(len, methods))
    for method in methods:
        mine = [standing for standing in standings if standing.run.method == method]
        cells = [s.word if method == "base" else f"{s.run.seed}: {s.word}" for s in mine]
        lines.append(f"  {method:<{width}}  " + "  ".join(f"{cell:<11}" for cell in cells).rstrip())
    for standing in standings:
        if standing.detail:
            lines.append(f"  {standing.run.name}: {standing.word}, {standing.detail}")
        lines += [f"      {line}" for line in standing.more]
    return lines
