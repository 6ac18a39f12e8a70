"""What a killed run needs to go on: weights, optimiser, step, log. Written atomically into the work folder.

No generator's state is in it: each draw is a function of (seed, step), so a resumed run draws what it would have drawn.
"""

import csv
import io
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from sage import manifest

FILE = "state.pt"


@dataclass
class State:
    """Progress of a run: steps done, a row of the log for each, and a row of seconds per phase for each."""

    step: int = 0
    log: list[dict[str, float]] = field(default_factory=list)
    seconds: list[dict[str, float]] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)  # e.g. schedules


def unfrozen(model: nn.Module) -> dict[str, Tensor]:
    """Return the part of a model's state that training changes: all of it, or an adapter's weights alone."""
    frozen = {n for n, p in model.named_parameters(remove_duplicate=False) if not p.requires_grad}
    return {name: tensor for name, tensor in model.state_dict().items() if name not in frozen}


def save_state(work: Path, state: State, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """Write the state atomically and durably."""
    temporary = work / f".{FILE}.{os.getpid()}"
    with temporary.open("wb") as file:
        content = {"state": vars(state), "model": unfrozen(model), "optimiser": optimiser.state_dict()}
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(work / FILE)


def load_state(work: Path, model: nn.Module, optimiser: torch.optim.Optimizer) -> State:
    """Return the state in ``work`` and load its tensors; a new one where there is none."""
    if not (work / FILE).is_file():
        return State()
    content = torch.load(work / FILE, weights_only=True, map_location="cpu")
    model.load_state_dict({**model.state_dict(), **content["model"]})
    optimiser.load_state_dict(content["optimiser"])
    state = State(**content["state"])
    print(f"{work}: goes on after step {state.step}", flush=True)
    return state


def write_table(path: Path, rows: list[dict[str, float]]) -> None:
    """Write rows as CSV, six significant digits, atomically."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: v if isinstance(v, int) else f"{v:.6g}" for k, v in row.items()} for row in rows)
    manifest.write_atomic(path, text.getvalue())


class Clock:
    """Seconds per named phase of one step; a profiler that runs sees the phases, too."""

    def __init__(self, *phases: str) -> None:
        self.started = time.perf_counter()
        self.phases = dict.fromkeys(phases, 0.0)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent inside to ``name``."""
        started = time.perf_counter()
        try:
            with record_function(f"phase {name}"):
                yield
                if torch.cuda.is_available():
                    torch.cuda.synchronize()  # what was only queued belongs to this phase
        finally:
            self.phases[name] += time.perf_counter() - started

    def row(self, step: int) -> dict[str, float]:
        """Return the step's row of the table of seconds."""
        return {"step": step, **self.phases, "total": time.perf_counter() - self.started}
