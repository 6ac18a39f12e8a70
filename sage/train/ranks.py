"""The processes that train one policy together, one a GPU: which part each has, what all found, the sum of gradients.

In: ``rl.processes`` and, in each process, the environment that torchrun gives it. Each rank samples, grades and scores its
part of a generation batch; the gradients are added, and every rank makes the same optimiser step with the same weights. One
process alone is rank 0 of 1, which gets back whatever it gives.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn, ParamSpec, TypeVar

import torch
from torch import distributed, nn

from sage.cli import FAILED, STOPPED
from sage.errors import Stopped, UserError
from sage.processes import die_with_parent, see_devices

T = TypeVar("T")
P = ParamSpec("P")
SIGNALS = "SIGTERM,SIGUSR2,SIGINT,SIGHUP"
PATIENCE = 24 * 3600  # seconds that ranks have to end their step and save; who sent the signal has less of it
LAST_WORD = 1.0  # seconds in which the first rank says why all end


class Ranks:
    """The processes of a run, of which this one is number ``rank`` of ``size``."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    @property
    def first(self) -> bool:
        """Whether this one writes files and says where the run stands."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """Return this rank's part of ``items``: as many as every other's, side by side."""
        part = len(items) // self.size
        return items[self.rank * part : (self.rank + 1) * part]

    def gather(self, work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> list[T]:
        """Return what ``work`` returns on each rank, in their order.

        A :class:`UserError` or :class:`Stopped` of one ends all: the first rank raises it, the others end in silence.
        """
        if self.size == 1:
            return [work(*arguments, **options)]
        mine: tuple[T | None, Exception | None]
        try:
            mine = work(*arguments, **options), None
        except (UserError, Stopped) as error:
            mine = None, error
        found: list = [mine] * self.size
        distributed.all_gather_object(found, mine)
        errors = [error for _, error in found if error]
        if errors and self.first:
            raise errors[0]
        if errors:
            time.sleep(LAST_WORD)
            raise SystemExit(STOPPED if isinstance(errors[0], Stopped) else FAILED)
        return [value for value, _ in found]

    def agree(self, work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Return what ``work`` returns on every rank; raises RuntimeError where it is not the same on all of them."""
        first, *others = self.gather(work, *arguments, **options)
        if any(other != first for other in others):
            raise RuntimeError(f"{getattr(work, '__name__', work)} differs between ranks: {[first, *others]}")
        return first

    def check_weights(self, parameters: Iterable[nn.Parameter]) -> None:
        """Raise RuntimeError where the sum of all weights is not the same on every rank."""

        def sum_of_weights() -> float:
            return sum(float(p.detach().double().sum()) for p in parameters)

        if self.size > 1:
            self.agree(sum_of_weights)

    def add_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Put the sum over ranks in the place of each gradient; none counts as 0."""
        if self.size == 1:
            return
        pending = []
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            pending.append(distributed.all_reduce(parameter.grad, async_op=True))
        for work in pending:
            work.wait()


@contextmanager
def joined(processes: int) -> Iterator[Ranks]:
    """Give this process's :class:`Ranks`; raises :class:`UserError` where torchrun started another number of them."""
    size, here = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("LOCAL_RANK", 0))
    if size != processes:
        raise UserError(f"rl.processes: {processes}, but torchrun has started {size}; start as many, or change it")
    if size == 1:
        yield Ranks()
        return
    die_with_parent(signal.SIGKILL)
    see_devices(here)
    ranks = Ranks(int(os.environ["RANK"]), size)
    if not ranks.first:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 (until the process ends): what is said is said once
    on_cuda = torch.cuda.is_available()
    distributed.init_process_group("cpu:gloo,cuda:nccl" if on_cuda else "gloo")
    try:
        if len(set(ranks.gather(lambda: on_cuda))) > 1:
            raise UserError(f"rl.processes: {size}, but there are fewer CUDA devices; ask for as many, or lower it")
        yield ranks
    finally:
        distributed.destroy_process_group()


def started() -> bool:
    """Return whether torchrun has started this process."""
    return "RANK" in os.environ


def start(processes: int, arguments: Sequence[str]) -> NoReturn:
    """Start ``python -m sage.train`` with ``arguments`` as so many ranks by torchrun's agent, and end as they end."""
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)  # what ends a rank, it says itself
    options = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=str(os.getpid()),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        shutdown_timeout=PATIENCE,
        signals_to_handle=SIGNALS,
    )
    try:
        elastic_launch(options, sys.executable)("-m", "sage.train", *arguments)
    except SignalException:
        _outlast_the_ranks()
        raise SystemExit(STOPPED) from None
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        if failure.exitcode < 0:
            signal.signal(-failure.exitcode, signal.SIG_DFL)
            os.kill(os.getpid(), -failure.exitcode)  # whoever waits for us learns what killed it
        raise SystemExit(failure.exitcode) from None
    raise SystemExit(0)


def _outlast_the_ranks() -> None:
    """Wait until the ranks have ended their step: another signal has ended the agent's own wait, and they die with us."""
    for name in SIGNALS.split(","):
        signal.signal(signal.Signals[name], signal.SIG_IGN)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
