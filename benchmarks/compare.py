"""Two ways to do the same thing, timed in turn in one run, and what each takes of memory.

A ratio is formed within a round, from neighbours in time, so that a machine that is busy with something else for a while
slows both sides of it; the median of the rounds' ratios is what is reported, their smallest and largest its spread.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

MB = 2**20


@dataclass(frozen=True)
class Result:
    """One line of ``results.json``; without a peer, ``ratio`` is the number itself."""

    name: str
    ours: float
    peer: float | None
    unit: str
    ratio: float
    spread: tuple[float, float]  # smallest and largest of the rounds
    target: str | None  # ">= 3" or "<= 0.5", of the ratio
    note: str = ""  # why it falls short, or what else is to be known; stands in README.md only

    @property
    def holds(self) -> bool | None:
        """Whether the ratio reaches its target; None without one."""
        if self.target is None:
            return None
        sign, bound = self.target.split()
        return self.ratio >= float(bound) if sign == ">=" else self.ratio <= float(bound)


def seconds(work: Callable[[], object]) -> float:
    """Return how long ``work`` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_turn(ours: Callable[[], object], peer: Callable[[], object], rounds: int) -> list[tuple[float, float]]:
    """Return the seconds of each after a round that is not counted: ours, the peer's, ours, the peer's, and so on."""
    return [(seconds(ours), seconds(peer)) for _ in range(rounds + 1)][1:]


def faster(name: str, pairs: Sequence[tuple[float, float]], target: str | None, note: str = "") -> Result:
    """Return how many times faster ours is, from seconds (ours, peer) of each round."""
    return _result(name, pairs, "s", [peer / ours for ours, peer in pairs], target, note)


def share(name: str, pairs: Sequence[tuple[float, float]], unit: str, target: str | None, note: str = "") -> Result:
    """Return ours as a share of the peer's, from (ours, peer) of each round."""
    return _result(name, pairs, unit, [ours / peer for ours, peer in pairs], target, note)


def alone(name: str, values: Sequence[float], unit: str, target: str | None, note: str = "") -> Result:
    """Return a number that has no peer."""
    middle = statistics.median(values)
    return Result(name, middle, None, unit, middle, (min(values), max(values)), target, note)


def _result(
    name: str,
    pairs: Sequence[tuple[float, float]],
    unit: str,
    ratios: list[float],
    target: str | None,
    note: str,
) -> Result:
    ours, peer = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Result(name, ours, peer, unit, statistics.median(ratios), (min(ratios), max(ratios)), target, note)


def peak(prepare: Callable[..., Callable[[], object]], *arguments: Any) -> float:
    """Return by how many MB the resident memory of a new process peaks while it runs what ``prepare`` returns.

    The peak is Linux's high-water mark, set back before the run; what the process held by then (modules, model, inputs) is
    taken off it.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_peak, prepare, arguments).result()


def _peak(prepare: Callable[..., Callable[[], object]], arguments: tuple[Any, ...]) -> float:
    work = prepare(*arguments)
    Path("/proc/self/clear_refs").write_text("5")
    before = _resident("VmRSS")
    work()
    return (_resident("VmHWM") - before) / MB


def _resident(which: str) -> int:
    """Return bytes of this process: ``VmRSS`` now, ``VmHWM`` at most since its mark was set back."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(f"{which}:")]
    return int(line.split()[1]) * 1024
