"""What submitit runs inside a job: the training command as a child process, and the signals that reach it.

SLURM announces a time limit or a preemption by SIGUSR2: the child ends after its step, its state saved, and submitit has the
job requeued. A requeue by hand and an expired grace send SIGTERM: the child saves, and SLURM starts the job again.
"""

import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from submitit.helpers import DelayedSubmission

from sage.cli import STOPPED
from sage.processes import die_with_parent

STARTS = "starts"
KEPT = "results"
AFTER_STOP = 120.0  # seconds in which SLURM ends a job whose training has saved and stopped
FRUITLESS = 3  # starts in a row without a new state, after which a job is not going anywhere


class TrainingFailed(Exception):
    """The training has failed and would fail again."""


class TrainingKilled(Exception):
    """Something from outside has ended the training; another start goes on from its last state."""


@dataclass
class Training:
    """A training command with its job folder, its state file, and the small results to be kept a copy of.

    ``grace`` is how long, in seconds, a step may take to end after a signal.
    """

    command: list[str]
    folder: Path
    state: Path
    results: list[Path]
    grace: float
    child: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    def __call__(self) -> None:
        """Train; raises :class:`TrainingFailed` or :class:`TrainingKilled`."""
        in_slurm = "SLURM_JOB_ID" in os.environ
        if not in_slurm:
            die_with_parent(signal.SIGTERM)
        self._note_start()
        # A session of its own: Ctrl-C in the terminal of a local launcher is for the launcher.
        self.child = subprocess.Popen(
            self.command, start_new_session=True, preexec_fn=lambda: die_with_parent(signal.SIGKILL)
        )
        signal.signal(signal.SIGTERM, self._pass_on)  # in the place of submitit's handler, which does nothing
        status = self.child.wait()
        if status == STOPPED and in_slurm:
            time.sleep(AFTER_STOP)
        if status == STOPPED or status < 0:
            how = "stopped by a signal" if status == STOPPED else f"killed by {signal.Signals(-status).name}"
            raise TrainingKilled(f"the training was {how}")
        if status:
            raise TrainingFailed(f"the training ended with exit status {status}")
        self._keep_results()

    def checkpoint(self) -> DelayedSubmission:
        """End the child after its step, and return what the requeued job has to do. Called by submitit at SIGUSR2."""
        if self.child:
            self.child.send_signal(signal.SIGUSR2)
            deadline = time.monotonic() + self.grace
            # Not child.wait(): the call that this one interrupts may hold its lock.
            while time.monotonic() < deadline and not os.waitid(
                os.P_PID, self.child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT
            ):
                time.sleep(0.05)
        return DelayedSubmission(Training(self.command, self.folder, self.state, self.results, self.grace))

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if self.child:
            self.child.send_signal(number)

    def _note_start(self) -> None:
        """Note which state the job starts from; raises :class:`TrainingFailed` where it starts from it over and over."""
        saved = str(self.state.stat().st_mtime_ns) if self.state.exists() else "none"
        file = self.folder / STARTS
        starts = [*(file.read_text().split() if file.exists() else []), saved]
        file.write_text("\n".join(starts) + "\n")
        if len(starts) >= FRUITLESS + 1 and len(set(starts[-FRUITLESS - 1 :])) == 1:
            raise TrainingFailed(
                f"{FRUITLESS} starts ended before anything was saved: raise runtime, or lower save_every"
            )

    def _keep_results(self) -> None:
        """Keep a copy of the small results: Snakemake removes its own before a launcher of its next run attaches."""
        shutil.rmtree(self.folder / KEPT, ignore_errors=True)
        for path in self.results:
            target = self.folder / KEPT / path
            target.parent.mkdir(parents=True)
            shutil.copy2(path, target)


def restore_results(folder: Path, results: list[Path]) -> bool:
    """Put back those of ``results`` that are gone; return whether all are there."""
    for path in results:
        kept = folder / KEPT / path
        if not path.exists() and kept.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(kept, path)
    return all(path.exists() for path in results)
