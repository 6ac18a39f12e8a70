"""Grade completions: equal ones once, and those that could run for ever in processes that can be killed.

In: (record, completion) pairs. Out: a verdict of each grade for each, in the same order. A task whose grader may not end
says so by ``TIMEOUT``; it then runs in worker processes (:mod:`sage.evaluate.worker`), plain child processes with pipes, so
that grading works from any thread and from inside a job. One bad answer costs its own time-out and delays nobody.
"""

import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sage.progress import bar

if TYPE_CHECKING:
    from sage.tasks import Record

START_UP = 120.0  # seconds until a worker has imported what it needs
Verdicts = dict[str, str]


class Grader:
    """Grades completions of one task; to be closed, or used in a ``with`` statement. ``label``: of a progress bar."""

    def __init__(self, task: Any, workers: int | None = None, label: str = "") -> None:
        self.task, self.label = task, label
        name, count = task.__name__.rsplit(".", 1)[-1], workers or len(os.sched_getaffinity(0))
        self.pool = Pool(name, count, task.TIMEOUT) if task.TIMEOUT else None

    def __enter__(self) -> "Grader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes."""
        if self.pool:
            self.pool.close()

    def grade(self, records: Sequence["Record"], texts: Sequence[str]) -> list[Verdicts]:
        """Return the verdicts of ``texts[i]`` as an answer to ``records[i]``; a failing grader gives ``error``."""
        regions = [self.task.region(record, text) for record, text in zip(records, texts, strict=True)]
        keys = [(record.id, record.answer, region) for record, region in zip(records, regions, strict=True)]
        distinct = {key: (record, key[2]) for key, record in zip(keys, records, strict=True)}
        found = {key: dict.fromkeys(self.task.GRADES, "unparseable") for key in distinct if key[2] is None}
        at_once = {key: self.task.quick(*job) for key, job in distinct.items() if key not in found}
        found.update({key: verdicts for key, verdicts in at_once.items() if verdicts is not None})
        todo = {key: job for key, job in distinct.items() if key not in found}
        found.update(zip(todo, self._run(list(todo.values())), strict=True))
        return [found[key] for key in keys]

    def _run(self, jobs: list[tuple["Record", str]]) -> list[Verdicts]:
        shown = {"unit": "answer", "disable": not self.label}
        if not self.pool:
            return [score(self.task, *job) for job in bar(jobs, self.label, **shown)]
        with bar(None, self.label, total=len(jobs), **shown) as progress:
            verdicts = self.pool.run(jobs, progress.update)
        return [v if isinstance(v, dict) else dict.fromkeys(self.task.GRADES, v) for v in verdicts]


def score(task: Any, record: "Record", region: str) -> Verdicts:
    """Return the task's verdicts; an exception, as for a gold answer that cannot be read, is an ``error``."""
    try:
        return dict(task.score(record, region))
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        print(f"error: problem {record.id}: the grader failed ({text})", file=sys.stderr, flush=True)
        return dict.fromkeys(task.GRADES, "error")


class Pool:
    """Worker processes of one task; each has one job at a time."""

    def __init__(self, task: str, workers: int, timeout: float) -> None:
        self.task, self.count, self.timeout = task, workers, timeout
        self.lock, self.workers = threading.Lock(), list[_Worker]()

    def close(self) -> None:
        """Kill the workers."""
        for worker in self.workers:
            worker.kill()
        self.workers = []

    def run(self, jobs: list[tuple["Record", str]], done: Callable[[], Any]) -> list[Verdicts | str]:
        """Return the verdicts of each job; ``timeout`` or ``error`` where its worker had to be killed, or died.

        ``done`` is called after each job.
        """
        results: list[Verdicts | str | None] = [None] * len(jobs)
        with self.lock, selectors.DefaultSelector() as selector:
            while len(self.workers) < min(self.count, len(jobs)):
                self.workers.append(_Worker(self.task))
            for worker in self.workers:
                selector.register(worker.output, selectors.EVENT_READ, worker)
            waiting = iter(range(len(jobs)))
            remaining = len(jobs)
            for worker in self.workers:
                if worker.ready:
                    self._give(worker, jobs, waiting)
            while remaining:
                for key, _ in selector.select(max(0.0, min(w.deadline for w in self.workers) - time.monotonic())):
                    worker = key.data
                    job, answer = worker.job, worker.read()
                    if answer is None:
                        continue
                    if job is not None:
                        results[job], remaining = answer, remaining - 1
                        done()
                    if worker.dead:
                        worker = self._replace(worker, selector)
                    if worker.ready:
                        self._give(worker, jobs, waiting)
                for worker in [w for w in self.workers if w.deadline <= time.monotonic()]:
                    if worker.job is not None:
                        results[worker.job], remaining = "timeout", remaining - 1
                        done()
                    self._replace(worker, selector)
        return [result for result in results if result is not None]

    def _give(self, worker: "_Worker", jobs: list[tuple["Record", str]], waiting: Iterator[int]) -> None:
        for number in waiting:
            record, region = jobs[number]
            worker.start(number, record, region, self.timeout)
            break

    def _replace(self, worker: "_Worker", selector: selectors.BaseSelector) -> "_Worker":
        if not worker.served:
            raise RuntimeError(
                f"a grading process of task {self.task} does not start: `python -m sage.evaluate.worker`"
            )
        selector.unregister(worker.output)
        worker.kill()
        new = _Worker(self.task)
        self.workers[self.workers.index(worker)] = new
        selector.register(new.output, selectors.EVENT_READ, new)
        return new


class _Worker:
    """One child process: what it is doing, until when it may, and what it has written so far."""

    def __init__(self, task: str) -> None:
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sage.evaluate.worker", task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            bufsize=0,
        )
        assert self.process.stdin and self.process.stdout
        self.input, self.output = self.process.stdin, self.process.stdout
        self.buffer, self.dead, self.served = b"", False, False
        self.job: int | None = None
        self.ready, self.deadline = False, time.monotonic() + START_UP

    def start(self, number: int, record: "Record", region: str, timeout: float) -> None:
        """Give the worker job ``number``."""
        self.job, self.ready, self.deadline = number, False, time.monotonic() + timeout
        line = json.dumps({"record": asdict(record), "region": region}).encode() + b"\n"
        try:
            view = memoryview(line)
            while view:
                view = view[self.input.write(view) :]
        except BrokenPipeError:
            pass  # it died: reading says so

    def read(self) -> Verdicts | str | None:
        """Return the answer to its job, "error" where it died, None while there is no whole line."""
        part = os.read(self.output.fileno(), 1 << 16)
        if not part:
            self.dead, self.deadline = True, float("inf")
            return "error"
        self.buffer += part
        if not self.buffer.endswith(b"\n"):
            return None
        answer = json.loads(self.buffer)
        self.buffer, self.job, self.ready, self.served, self.deadline = b"", None, True, True, float("inf")
        return dict(answer)

    def kill(self) -> None:
        """Kill the process and wait for its end."""
        self.process.kill()
        self.input.close()
        self.output.close()
        self.process.wait()
