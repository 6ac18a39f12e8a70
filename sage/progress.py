"""Progress bars that suit a terminal and a log file alike."""

import sys
from collections.abc import Iterable
from typing import Any


def bar(items: Iterable[Any] | None, label: str, **options: Any) -> Any:
    """Return a tqdm bar over ``items``; in a log file it prints a line every few seconds only."""
    from tqdm import tqdm

    interval = 0.5 if sys.stderr.isatty() else 10.0
    return tqdm(items, desc=label, mininterval=interval, dynamic_ncols=True, **options)
