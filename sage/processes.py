"""Processes that belong to another one: they end with it, and see as much of the machine as it gives them."""

import ctypes
import os

PR_SET_PDEATHSIG = 1  # prctl(2): the signal that a process gets when its parent dies


def die_with_parent(number: int) -> None:
    """Have the kernel send this process the signal ``number`` when its parent dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number))


def see_devices(first: int, count: int = 1) -> None:
    """Have this process, and those that it starts, see ``count`` of its CUDA devices only, from number ``first`` (0, ...) on.

    It must be called before anything asks CUDA for its devices. Where there are not as many, it sees fewer, or none.
    """
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    known = map(str, range(first + count)) if seen is None else seen.split(",")
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(list(known)[first : first + count])
