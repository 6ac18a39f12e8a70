"""What SLURM says of jobs: the queue while they are in it."""

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Queued:
    """A job in the queue: SLURM's state, node(s), time left (days-hours:minutes:seconds), and why it waits."""

    state: str
    node: str
    left: str
    reason: str


def queue(jobs: Iterable[str]) -> dict[str, Queued] | None:
    """Return those of ``jobs`` that are in the queue, by their id; None where SLURM does not answer."""
    wanted = set(jobs)
    if not wanted:
        return {}
    # A list of jobs would be refused as a whole for one that has left the queue.
    command = ["squeue", "--noheader", "--me", "--format=%i|%T|%N|%L|%r"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    rows = (line.strip().split("|", 4) for line in done.stdout.splitlines())
    return {job: Queued(*rest) for job, *rest in rows if job in wanted}
