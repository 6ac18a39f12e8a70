"""Reducers: how token losses become one number. They differ only in a weight per sequence.

The weights of a whole optimiser step are computed once, from the lengths; loss = sum_i w_i sum_t loss_it. So the step's
gradient cannot depend on how it is cut into micro-batches. ``lengths`` counts the unmasked completion tokens of the N
sequences of the optimiser step, [N]; weights are float64, [N]; an empty sequence has nothing to weight.
"""

import torch
from torch import Tensor


def grpo(lengths: Tensor) -> Tensor:
    """Return 1 / (N |y_i|): the mean over a sequence's tokens, then over sequences. Source: DeepSeekMath, eq. 3."""
    return 1.0 / (lengths.double().clamp_min(1.0) * len(lengths))


def dapo(lengths: Tensor) -> Tensor:
    """Return 1 / sum_j |y_j|: the mean over all tokens of the optimiser step. Source: DAPO (2503.14476), eq. 8."""
    return (1.0 / lengths.double().sum().clamp_min(1.0)).expand(len(lengths))


def bnpo(lengths: Tensor, local_batch: int) -> Tensor:
    """Return the token mean over each local batch of ``local_batch`` sequences, then the mean over local batches.

    The local batch is a number of the configuration, not the micro-batch that happens to fit; equal to :func:`dapo`
    where it is the whole step. Source: what the official code of SAGE, through TRL, runs under this name.
    """
    if len(lengths) % local_batch:
        raise ValueError(f"{len(lengths)} sequences a step are not a multiple of local_batch = {local_batch}")
    groups = lengths.double().view(-1, local_batch)
    weights = 1.0 / (groups.sum(dim=1, keepdim=True).clamp_min(1.0) * len(groups))
    return weights.expand_as(groups).flatten()


def dr_grpo(lengths: Tensor, max_tokens: int) -> Tensor:
    """Return 1 / (N L): the sum over tokens over a constant. Source: Dr. GRPO (arXiv 2503.20783)."""
    return torch.full((len(lengths),), 1.0 / (len(lengths) * max_tokens), dtype=torch.double)


def sequence_weights(reducer: str, lengths: Tensor, *, local_batch: int, max_tokens: int) -> Tensor:
    """Return the weights of ``reducer``, [N] float64."""
    if reducer == "bnpo":
        return bnpo(lengths, local_batch)
    if reducer == "dr_grpo":
        return dr_grpo(lengths, max_tokens)
    return {"grpo": grpo, "dapo": dapo}[reducer](lengths)
