"""A training run seen and stopped from outside: where it stands, and signals that end it after a step.

In: signals, and the rows of the log. Out: ``progress.json`` in the work folder, and whether the run is to end.
"""

import signal
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

from sage import manifest
from sage.errors import Stopped

FILE = "progress.json"
EVERY = 1.0  # seconds between two writings
SIGNALS = (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT)


class Watch:
    """Context of a training loop: after SIGTERM, SIGUSR2 or SIGINT, :attr:`asked` is true and the loop saves and ends.

    A second SIGINT ends it at once. Outside the main thread, where no handler can be set, signals act as before.
    """

    def __init__(self, work: Path, step: int, steps: int) -> None:
        self.work, self.first, self.steps = work, step, steps
        self.asked, self.started, self.written = False, time.monotonic(), 0.0
        self.former: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Watch":
        if threading.current_thread() is threading.main_thread():
            self.former = {number: signal.signal(number, self._ask) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.former.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = True

    def tell(self, step: int, **values: float) -> None:
        """Write that ``step`` steps are done, with ``values`` of the last one, at most once a second."""
        now = time.monotonic()
        if now - self.written < EVERY and not self.asked:
            return
        self.written = now
        pace = (now - self.started) / max(step - self.first, 1)
        content = {"step": step, "steps": self.steps, "seconds_per_step": round(pace, 3), "time": round(time.time(), 1)}
        manifest.write_json(self.work / FILE, {**content, **{name: round(value, 6) for name, value in values.items()}})

    def end(self, step: int) -> None:
        """Raise :class:`Stopped` after ``step``, which has been saved; nothing happens after the last one."""
        if step < self.steps:
            raise Stopped(
                f"{self.work}: stopped by a signal after step {step} of {self.steps}; the same command goes on"
            )
