"""The process in which vLLM runs: it answers the calls of :class:`sage.rollout.vllm.VllmEngine` and ends with its caller.

In: over a connection, the name of a method of :class:`Server` and its arguments. Out: any number of ``("progress", count)``,
then ``("done", result)`` or ``("error", text)``.
"""

import logging
import os
import signal
import threading
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from sage.processes import die_with_parent

# vLLM's engine runs in this very process: one process less to be left behind, and a schedule that is always the same.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),
}


def serve(connection: Connection, caller: int, options: dict[str, Any], threads: int) -> None:
    """Start vLLM with ``options`` on ``threads`` threads of the CPU, and answer until the process ``caller`` is gone."""
    die_with_parent(signal.SIGKILL)
    if os.getppid() != caller:  # it ended before it could be watched
        return
    # Those are sent to the whole group: the caller says when to end.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    logging.getLogger("torch._library").setLevel(logging.ERROR)  # says at each start that CPUs have no Triton
    os.environ.update(ENVIRONMENT, OMP_NUM_THREADS=str(threads))
    try:
        server = Server(options, lambda count: connection.send(("progress", count)))
        connection.send(("done", None))
        while True:
            name, arguments = connection.recv()
            connection.send(("done", getattr(server, name)(*arguments)))
    except (EOFError, BrokenPipeError):
        os._exit(0)  # vLLM takes seconds to take itself apart
    except Exception as error:  # vLLM raises many kinds, and none of them leaves an engine that goes on
        connection.send(("error", f"{type(error).__name__}: {error}"))


class Server:
    """vLLM with one model and, where it is enabled, one adapter."""

    def __init__(self, options: dict[str, Any], progress: Callable[[int], object]) -> None:
        from tqdm import tqdm
        from vllm import LLM

        tqdm.set_lock(threading.RLock())  # its own is a semaphore that would be reported as leaked
        self.llm, self.progress = LLM(**options), progress
        self.adapter: Any = None

    def generate(
        self, prompts: list[list[int]], seeds: list[list[int]], options: dict[str, Any]
    ) -> list[tuple[list[int], list[float | None], str]]:
        """Return tokens, log-probs and finish reason of a completion for each seed of each prompt, flat."""
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt

        flat = [(prompt, seed) for prompt, mine in zip(prompts, seeds, strict=True) for seed in mine]
        self.llm.enqueue(
            [TokensPrompt(prompt_token_ids=prompt) for prompt, _ in flat],
            [SamplingParams(**options, seed=seed, logprobs=0, flat_logprobs=True) for _, seed in flat],
            lora_request=self.adapter,
            use_tqdm=False,
        )
        engine: Any = self.llm.llm_engine
        found = dict[int, Any]()
        while engine.has_unfinished_requests():
            done = [output for output in engine.step() if output.finished]
            found |= {int(output.request_id): output.outputs[0] for output in done}
            self.progress(len(done))
        outputs = [found[number] for number in sorted(found)]  # vLLM numbers requests in the order of their coming
        return [(list(o.token_ids), list(o.logprobs.logprobs), o.finish_reason) for o in outputs]

    def load_adapter(self, folder: str, number: int) -> None:
        """Sample with the adapter in ``folder`` from now on; the former one goes."""
        from vllm.lora.request import LoRARequest

        former, self.adapter = self.adapter, LoRARequest(str(number), number, folder)
        self.llm.llm_engine.add_lora(self.adapter)
        if former:
            self.llm.llm_engine.remove_lora(former.lora_int_id)

    def load_weights(self, folder: str) -> None:
        """Sample with the weights in ``folder`` from now on; keys and values of the former ones are forgotten."""
        self.llm.collective_rpc("reload_weights", kwargs={"weights_path": folder})
        self.llm.apply_model(renew_tied_head)
        self.llm.reset_prefix_cache()

    def sleep(self) -> None:
        """Give the device's memory back; weights wait in the host's."""
        self.llm.sleep(level=1)

    def wake(self) -> None:
        """Take the device's memory again."""
        self.llm.wake_up()


def renew_tied_head(model: Any) -> None:
    """Pack the head again: on CPUs a head that is the embedding multiplies by a copy that vLLM's reload leaves as it was."""
    head = model.lm_head
    if hasattr(head, "cpu_linear"):
        head.quant_method.process_weights_after_loading(head)
