"""The update alone beside TRL's loss path: the anchor's log-probs, forward, backward, optimiser step, on one batch.

SmolLM2-135M with LoRA, its whole vocabulary, one thread. TRL scores completions by a head in chunks of its own. Memory is
the peak of a new process above what it holds before the update.
"""

from collections.abc import Callable

from benchmarks.cases import Ours, scratch, smollm2, trl_trainer, trl_update
from benchmarks.compare import Result, faster, in_turn, peak, share

NOTES = {
    "update, peak memory": "What both keep is mostly the layers' activations, and TRL's head works in chunks, too; ours"
    " reads a prompt once a group. Smaller micro-batches (`micro_batch_tokens`) take less, as would recomputed layers, which"
    " ours has not."
}


def ours(small: bool, micro_batch_tokens: int | None = None) -> Callable[[], None]:
    """Return our update of one experience; ``micro_batch_tokens``: in the place of the suite's."""
    case = smollm2(small)
    training = Ours(case.with_rl(micro_batch_tokens=micro_batch_tokens) if micro_batch_tokens else case)
    experience = training.collect()
    return lambda: training.update(experience)


def peer(small: bool, recomputing: bool = False) -> Callable[[], None]:
    """Return TRL's update of the same experience; ``recomputing``: layers keep nothing but their input."""
    case = smollm2(small)
    experience = Ours(case).collect()
    with scratch() as folder:
        return trl_update(trl_trainer(case, 1, folder), experience, recomputing)


def results(small: bool = False) -> list[Result]:
    """Return the comparison in time, and in memory with the micro-batches of each and with smaller ones of ours."""
    theirs = peak(peer, small)
    pairs = {
        "update, peak memory": (peak(ours, small), theirs, "<= 0.5"),
        "update, peak memory, in micro-batches of 300 tokens": (peak(ours, small, 300), theirs, None),
        "update, peak memory, TRL recomputing its layers": (peak(ours, small), peak(peer, small, True), None),
    }
    return [
        faster("update, SmolLM2-135M with LoRA", in_turn(ours(small), peer(small), 2 if small else 5), ">= 1"),
        *[share(name, [(a, b)], "MB", target, NOTES.get(name, "")) for name, (a, b, target) in pairs.items()],
    ]
