"""The language-model head beside full float32 logits: log-prob and entropy of each token, and the gradient.

Hidden size 896 and vocabulary 151,936, those of Qwen2.5-0.5B; 4,096 tokens, of which 1,024 are timed; one thread. Once with
a frozen head, as under LoRA, and once with a trained one. Memory is the peak of a new process above what it holds with
hidden states and head; the plain side is torch's own log_softmax, its gather, and p log p.
"""

from collections.abc import Callable
from functools import partial

import torch

from benchmarks.compare import Result, in_turn, peak, share
from sage.policy.forward import entropy_of
from sage.policy.head import head_scores

QWEN = (4096, 896, 151_936)  # tokens, hidden size, vocabulary
SMALL = (64, 16, 4096)
TRAINED = {
    "memory": "The gradient of the head itself, 519 MB, is in it on both sides.",
    "time": "The gradient of a trained head needs that of the loss, which is not there yet when the logits are: they are"
    " computed a second time, four large products in the place of three. That is the price of the memory.",
}


def inputs(size: tuple[int, int, int], trained: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return hidden states, head and targets."""
    tokens, width, words = size
    torch.set_num_threads(1)
    torch.manual_seed(0)
    hidden = torch.randn(tokens, width, requires_grad=True)
    return hidden, (torch.randn(words, width) / width**0.5).requires_grad_(trained), torch.arange(tokens)


def ours(size: tuple[int, int, int], trained: bool) -> Callable[[], None]:
    """Return our pass, forward and backward."""
    hidden, weight, targets = inputs(size, trained)
    return lambda: head_scores(hidden, weight, targets).logp.sum().backward()


def plain(size: tuple[int, int, int], trained: bool) -> Callable[[], None]:
    """Return the pass over all logits; the entropy is for the log, without a gradient."""
    hidden, weight, targets = inputs(size, trained)

    def work() -> None:
        logp = (hidden @ weight.T).log_softmax(-1)
        entropy_of(logp.detach())
        logp.gather(-1, targets[:, None]).sum().backward()

    return work


def results(small: bool = False) -> list[Result]:
    """Return time and memory, frozen and trained."""
    size, rounds = (SMALL, 2) if small else (QWEN, 3)
    part, found = (size[0] // 4, *size[1:]), []
    for trained in (False, True):
        what = f"head, hidden {size[1]}, vocabulary {size[2]:,}, {'trained' if trained else 'frozen'}"
        memory = [(peak(partial(ours, size), trained), peak(partial(plain, size), trained))]
        notes, times = TRAINED if trained else {}, in_turn(ours(part, trained), plain(part, trained), rounds)
        found += [
            share(f"{what}: peak memory of {size[0]:,} tokens", memory, "MB", "<= 0.1", notes.get("memory", "")),
            share(f"{what}: time", times, "s", "<= 1.2", notes.get("time", "")),
        ]
    return found
