"""Which records a step sees: pure functions of (seed, step), so that a resumed run goes on in the same order."""

from collections.abc import Sequence

import numpy as np

from sage import seeds


def rows_of_step(root: int, stream: str, size: int, per_step: int, step: int) -> list[int]:
    """Return the ``per_step`` rows of ``step`` (0-based): a new permutation of ``size`` rows every epoch."""
    positions = range(step * per_step, (step + 1) * per_step)
    orders = {
        epoch: seeds.generator(root, stream, "epoch", epoch).permutation(size)
        for epoch in {position // size for position in positions}
    }
    return [int(orders[position // size][position % size]) for position in positions]


def batches_by_length(root: int, lengths: Sequence[int], batch: int, epoch: int, pool: int = 16) -> list[np.ndarray]:
    """Return the batches of an epoch as arrays of rows: shuffled, similar lengths together, order shuffled again.

    Lengths are sorted inside pools of ``pool`` batches only, so that a batch stays a nearly random one; what is left
    over at the end of the epoch is dropped.
    """
    generator = seeds.generator(root, "order", "epoch", epoch)
    order, batches = generator.permutation(len(lengths)), []
    for start in range(0, len(order) - batch + 1, batch * pool):
        rows = order[start : start + batch * pool]
        rows = rows[np.argsort(np.asarray(lengths)[rows], kind="stable")]
        batches += [rows[i : i + batch] for i in range(0, len(rows) - batch + 1, batch)]
    return [batches[i] for i in generator.permutation(len(batches))]
