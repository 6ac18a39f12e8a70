"""The two places where a job can run, SLURM and this machine, behind one interface on top of submitit."""

import os
import shlex
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import submitit
from submitit.core.core import Job
from submitit.local.local import LocalJob
from submitit.slurm.slurm import SlurmExecutor, SlurmJob

from sage.cluster.slurm import Queued, queue
from sage.errors import UserError

NO_LIMIT = 60 * 24 * 365  # minutes
REQUEUES = 1000  # submitit counts each SIGUSR2 near the time limit; what bounds starts is the progress between them


class Launcher(Protocol):
    """Submits a task, and knows what became of it."""

    def submit(self, task: Any, folder: Path, name: str, resources: dict[str, Any]) -> Job:
        """Start a job whose files are in ``folder``; raises :class:`UserError` where it is refused."""

    def job(self, folder: Path, job: str) -> Job:
        """Return a job that was submitted before."""

    def queued(self, job: Job) -> Queued | None:
        """Return where a job stands, None once it is over."""

    def final_state(self, job: Job) -> str:
        """Return in which state a job ended that is over: ``COMPLETED``, or SLURM's word for what it died of."""

    def cancel(self, job: Job) -> None:
        """End a job for good."""


class Slurm:
    """Jobs of a SLURM cluster."""

    def submit(self, task: Any, folder: Path, name: str, resources: dict[str, Any]) -> Job:
        """See :class:`Launcher`."""
        try:
            executor = SlurmExecutor(folder, max_num_timeout=REQUEUES)
            executor.update_parameters(**parameters(name, resources, task.grace))
            with _uninterrupted():
                return executor.submit(task)
        except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError, RuntimeError) as error:
            lines = str(error).strip().splitlines()
            raise UserError(f"{name}: sbatch refused the job ({lines[-1] if lines else error})") from None

    def job(self, folder: Path, job: str) -> Job:
        """See :class:`Launcher`."""
        return SlurmJob(folder, job)

    def queued(self, job: Job) -> Queued | None:
        """See :class:`Launcher`; a SLURM that does not answer has nothing to say of a job, so that it counts as queued."""
        found = queue([job.job_id])
        return Queued("UNKNOWN", "", "", "squeue does not answer") if found is None else found.get(job.job_id)

    def final_state(self, job: Job) -> str:
        """See :class:`Launcher`; asks the accounting, which may lag behind the queue."""
        for _ in range(30):
            state = str(job.get_info(mode="force").get("State", "")).split(" ")[0]
            if state and state not in ("PENDING", "RUNNING", "COMPLETING", "REQUEUED"):
                return state
            time.sleep(1)
        return "UNKNOWN"

    def cancel(self, job: Job) -> None:
        """See :class:`Launcher`."""
        job.cancel(check=False)


class Local:
    """Jobs on this machine, which outlive their launcher."""

    def submit(self, task: Any, folder: Path, name: str, resources: dict[str, Any]) -> Job:
        """See :class:`Launcher`."""
        executor = submitit.LocalExecutor(folder)
        gpus = resources.get("gpu", 0)
        executor.update_parameters(timeout_min=NO_LIMIT, gpus_per_node=gpus, stderr_to_stdout=True)
        # The process inherits what is passed over: Ctrl-C is for the launcher, which decides what it means.
        former = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGHUP)}
        try:
            return executor.submit(task)
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def job(self, folder: Path, job: str) -> Job:
        """See :class:`Launcher`."""
        return LocalJob(folder, job)

    def queued(self, job: Job) -> Queued | None:
        """See :class:`Launcher`; a process counts only while it is submitit's, as its number may be given again."""
        with suppress(ChildProcessError):
            os.waitpid(int(job.job_id), os.WNOHANG)  # a child of ours that has ended would stay as a zombie
        try:
            words = Path("/proc", job.job_id, "cmdline").read_bytes()
        except OSError:
            return None
        ours = not words or b"submitit.local._local" in words  # none in the first moment of a process
        return Queued("RUNNING", os.uname().nodename, "", "") if ours else None

    def final_state(self, job: Job) -> str:
        """See :class:`Launcher`."""
        return "COMPLETED" if job.paths.result_pickle.exists() else "KILLED"

    def cancel(self, job: Job) -> None:
        """See :class:`Launcher`."""
        if self.queued(job):
            os.kill(int(job.job_id), signal.SIGTERM)


LAUNCHERS: dict[str, type[Slurm] | type[Local]] = {"slurm": Slurm, "local": Local}


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold signals back, from sbatch too: interrupted after it has submitted, it would leave an orphan."""
    held = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, held)


def parameters(name: str, resources: dict[str, Any], grace: float) -> dict[str, Any]:
    """Return the sbatch parameters, in submitit's names, for resources in Snakemake's.

    SIGUSR2 comes ``grace`` seconds before the time limit, so that the step that is running can end.
    """
    extra: dict[str, Any] = {"requeue": True}
    for option in shlex.split(str(resources.get("slurm_extra", ""))):
        key, _, value = option.lstrip("-").partition("=")
        extra[key] = value or True
    gres = {"gres": resources["gres"]} if "gres" in resources else {}
    if not gres and resources.get("gpu"):
        model = resources.get("gpu_model")
        gres = {"gres": f"gpu:{model}:{resources['gpu']}" if model else f"gpu:{resources['gpu']}"}
    named = {
        "partition": resources.get("slurm_partition"),
        "account": resources.get("slurm_account"),
        "qos": resources.get("qos"),
        "constraint": resources.get("constraint"),
        "mem": f"{resources['mem_mb']}MB" if "mem_mb" in resources else None,
    }
    return {
        "job_name": name,
        "time": int(resources.get("runtime", 60)),
        "cpus_per_task": int(resources.get("cpus_per_task", 1)),
        "signal_delay_s": int(grace),
        "stderr_to_stdout": True,
        "additional_parameters": extra,
        **gres,
        **{key: value for key, value in named.items() if value},
    }
