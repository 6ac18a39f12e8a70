"""Run one training: here (``inline``), as a detached process (``local``) or as a SLURM job (``slurm``), and wait for it.

A launcher that starts while a job of the same run is there attaches to it. A job that was killed is submitted again, and
goes on from its last state; one that failed is reported, with its reason, its log and the command that runs it again.
"""

import fcntl
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from sage.cluster.run import Run
from sage.errors import UserError

if TYPE_CHECKING:
    from submitit.core.core import Job

    from sage.cluster.launchers import Launcher

LOOK = 1.0  # seconds between two looks at the result's file
ASK = (2.0, 30.0)  # least and most seconds between two questions to SLURM: a twentieth of the time waited so far
SAY = 60.0  # seconds between two lines of progress
GRACE = 90.0  # seconds in which a step can end before its job does
RESUBMISSIONS = 3  # after a kill
LOG_LINES = 15


class LaunchFailed(UserError):
    """The training did not end well; the message says why, and what to do."""


class Failure(Exception):
    """A job is over without its result; ``again`` says whether another submission may help."""

    def __init__(self, reason: str, *, again: bool) -> None:
        super().__init__(reason)
        self.again = again


def launch(run: Run, launcher: str, resources: dict[str, Any]) -> None:
    """Train ``run`` and return when its results are there; raises :class:`UserError`."""
    if launcher == "inline":
        sys.stdout.flush()
        os.execv(run.command[0], run.command)
    from sage.cluster.launchers import LAUNCHERS

    key, more = run.key(), int(resources.get("resubmissions", RESUBMISSIONS))
    with _alone(run), _Interrupts(str(resources.get("on_interrupt", "cancel"))) as interrupts:
        waiting = Waiting(run, LAUNCHERS[launcher](), resources, interrupts)
        for left in reversed(range(more + 1)):
            try:
                return waiting.wait(waiting.attach(key) or waiting.submit(launcher, key))
            except Failure as failure:
                _say(run, f"{failure}; log: {waiting.log}")
                if not failure.again or not left:
                    raise LaunchFailed(_report(run, waiting.log, str(failure))) from None


class Waiting:
    """The wait of one launcher for the jobs of one run."""

    def __init__(self, run: Run, launcher: "Launcher", resources: dict[str, Any], interrupts: "_Interrupts") -> None:
        self.run, self.launcher, self.resources, self.interrupts = run, launcher, resources, interrupts
        self.log = run.folder

    def attach(self, key: str) -> "Job | None":
        """Return the job of an earlier launcher that this one can wait for; one of another configuration is cancelled."""
        record = self.run.record()
        if not record or record["outcome"]:
            return None  # a job that has delivered its result is not asked again: the workflow wants a new one
        job = self.launcher.job(self.run.folder.absolute(), record["job"])
        if record["key"] != key or type(self.launcher).__name__.lower() != record["launcher"]:
            _say(self.run, f"job {record['job']} belongs to another configuration or launcher and is cancelled")
            self.launcher.cancel(job)
            return None
        _say(self.run, f"attached to job {record['job']}, submitted before")
        self.log = self.run.log(record["job"])
        return job

    def submit(self, launcher: str, key: str) -> "Job":
        """Submit a job and write its record."""
        from sage.cluster import task

        folder = self.run.folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / task.STARTS).unlink(missing_ok=True)
        training = task.Training(
            self.run.command,
            folder,
            self.run.work / "state.pt",
            self.run.results,
            float(self.resources.get("grace", GRACE)),
        )
        name = f"{self.run.suite.name}-{self.run.name.replace(' seed ', '-s')}"
        job = self.launcher.submit(training, folder.absolute(), name, self.resources)
        record = {"job": job.job_id, "launcher": launcher, "key": key, "submitted": round(time.time()), "outcome": None}
        self.run.write_record(record)
        self.log = self.run.log(job.job_id)
        _say(self.run, f"submitted job {job.job_id}; log: {self.log}")
        return job

    def wait(self, job: "Job") -> None:
        """Return when the job has ended well; raises :class:`Failure`."""
        started, asked, said, last = time.monotonic(), 0.0, 0.0, ""
        while not job.paths.result_pickle.exists():
            self.interrupts.obey(self, job)
            now = time.monotonic()
            if now - asked >= min(max((now - started) / 20, ASK[0]), ASK[1]):
                asked = now
                queued = self.launcher.queued(job)
                if queued is None and not job.paths.result_pickle.exists():
                    self._over(job)
                state = f"{queued.state} {queued.node or queued.reason}" if queued else ""
                if queued and (state != last or now - said >= SAY):
                    said, last = now, state
                    left = f", {queued.left} left" if queued.left else ""
                    _say(self.run, f"job {job.job_id}: {state}{left}{progress(self.run)}")
            time.sleep(LOOK)
        self._over(job)

    def _over(self, job: "Job") -> None:
        """Return where the job has ended well; raises :class:`Failure` with the reason."""
        from sage.cluster.task import restore_results

        try:
            if job.paths.result_pickle.exists() and job._get_outcome_and_result()[0] == "success":
                if not restore_results(self.run.folder, self.run.results):
                    raise Failure(f"job {job.job_id} ended well, but its results are gone", again=True)
                _say(self.run, f"job {job.job_id}: done")
                return self._close("done")
            raise self._failure(job)
        except Failure as failure:
            self._close(str(failure))
            raise

    def _close(self, outcome: str) -> None:
        self.run.write_record({**(self.run.record() or {}), "outcome": outcome, "ended": round(time.time())})

    def _failure(self, job: "Job") -> Failure:
        """Return why a job that is over has no result."""
        said = job._get_outcome_and_result()[1] if job.paths.result_pickle.exists() else ""
        raised = re.search(r"(TrainingFailed|TrainingKilled): (.*)", said)
        if raised and raised[1] == "TrainingFailed":
            return Failure(f"job {job.job_id}: {_last_error(self.log) or raised[2]}", again=False)
        state = self.launcher.final_state(job)
        if state == "OUT_OF_MEMORY" or _hit_memory_limit(self.log):
            asked = f"mem_mb={self.resources['mem_mb']}" if "mem_mb" in self.resources else "the partition's default"
            return Failure(f"job {job.job_id}: out of memory ({asked}); raise mem_mb of the rule", again=False)
        if state == "CANCELLED":
            return Failure(f"job {job.job_id}: cancelled by a user or an administrator", again=False)
        reason = raised[2] if raised else f"it ended as {state} without a result"
        return Failure(f"job {job.job_id}: {reason}", again=True)


class _Interrupts:
    """What ends a launcher before its job. It is noted only, so that no submission goes without its record.

    At a signal the job is cancelled, or goes on in the mode ``detach``. Where the process that waits for the launcher is
    gone (Snakemake was killed), the job goes on, and its record stays open for the next launcher.
    """

    def __init__(self, mode: str) -> None:
        if mode not in ("cancel", "detach"):
            raise UserError(f"on_interrupt: '{mode}' is neither cancel nor detach; set one of them in the profile")
        self.mode, self.number, self.callers = mode, 0, _callers()

    def __enter__(self) -> "_Interrupts":
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = number

    def obey(self, waiting: Waiting, job: "Job") -> None:
        """Cancel or leave the job where a signal has come or nobody waits; raises :class:`SystemExit` then."""
        if not self.number and _callers() == self.callers:
            return
        if self.number and self.mode == "cancel":
            waiting.launcher.cancel(job)
            waiting._close("cancelled")
            _say(waiting.run, f"job {job.job_id} is cancelled; the next start goes on from its last state")
        else:
            _say(waiting.run, f"job {job.job_id} goes on; the next start attaches to it")
        raise SystemExit(128 + self.number)


def _callers() -> list[str]:
    """Return who waits for this process: its parent (Snakemake's shell) and the parent's parent, with their start times."""
    found, process = list[str](), os.getppid()
    for _ in range(2):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            break
        found.append(f"{process} {fields[19]}")
        process = int(fields[1])
    return found


@contextmanager
def _alone(run: Run) -> Iterator[None]:
    """Wait until no other launcher has this run: after a kill of Snakemake the old one may still be waiting."""
    run.folder.mkdir(parents=True, exist_ok=True)
    with (run.folder / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            _say(run, "another launcher is waiting for this run; this one waits for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def progress(run: Run) -> str:
    """Return what a run has last said of itself, as the end of a line: step, reward or loss, pace, minutes to go."""
    told = run.progress()
    if not told:
        return ""
    values = "".join(f", {name} {told[name]:.3f}" for name in ("reward", "loss") if name in told)
    left = (told["steps"] - told["step"]) * told["seconds_per_step"]
    pace = f"{told['seconds_per_step']:.2g} s a step, {left / 60:.0f} min to go"
    return f", step {told['step']} of {told['steps']}{values}, {pace}"


def _say(run: Run, text: str) -> None:
    with suppress(BrokenPipeError):  # the reader may have been interrupted along with us
        print(f"{run.name}: {text}", flush=True)


def _hit_memory_limit(log: Path) -> bool:
    """Return whether SLURM says in a log that memory ran out: where a step is killed for it, the job's state is FAILED only."""
    text = log.read_text(errors="replace") if log.is_file() else ""
    return bool(re.search(r"slurmstepd.*(exceeded (job )?memory limit|oom.?kill|out of memory)", text, re.IGNORECASE))


def _last_error(log: Path) -> str:
    """Return the last line of a log that names an error."""
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    named = [line.strip() for line in lines if re.match(r"(error: |(\w+\.)*\w*(Error|Exception|NonFinite)\b)", line)]
    ours = [line for line in named if "TrainingFailed" not in line]  # what the task says of the training's end
    return ours[-1].removeprefix("error: ") if ours else ""


def _report(run: Run, log: Path, reason: str) -> str:
    """Return the message of a run that failed, and print the end of its log before."""
    if log.is_file():
        for line in log.read_text(errors="replace").splitlines()[-LOG_LINES:]:
            _say(run, f"| {line}")
    return f"{run.name}: {reason}; log: {log}; once mended: {run.rerun}"
