"""The same fit in several processes, under ``torchrun``.

Every process makes the same call on the same data. Each takes its share of every batch,
and their results are combined by a weighted mean,

    g = Σᵣ Sᵣgᵣ / Σᵣ Sᵣ,   Sᵣ the weight of the rows of process r,

which is the gradient of the whole batch, for equal and unequal shares. The first
process decides for all when a run ends, and it alone writes checkpoints.
"""

from __future__ import annotations

import atexit
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch import distributed as dist


def count() -> int:
    """How many processes train together."""
    return dist.get_world_size() if _together() else 1


def rank() -> int:
    """The number of this process; the first one is 0."""
    return dist.get_rank() if _together() else 0


def _together() -> bool:
    return dist.is_available() and dist.is_initialized()


def join(rng: np.random.Generator) -> None:
    """Join the processes ``torchrun`` started, if it did; all draw as the first does.

    Parameters
    ----------
    rng : numpy.random.Generator
        Of the fit; takes the state of the first process's.
    """
    if dist.is_available() and dist.is_torchelastic_launched() and not _together():
        dist.init_process_group()
        atexit.register(dist.destroy_process_group)
    if count() > 1:
        rng.bit_generator.state = agreed(rng.bit_generator.state)


def agreed(value: Any) -> Any:
    """The value of the first process."""
    if count() == 1:
        return value
    said = [value]
    dist.broadcast_object_list(said)
    return said[0]


def alike(module: nn.Module) -> None:
    """Give a module the weights of the first process, whoever made the module."""
    if count() == 1:
        return
    for value in [*module.parameters(), *module.buffers()]:
        said = value.detach().clone(memory_format=torch.contiguous_format)
        dist.broadcast(said, src=0)
        value.data.copy_(said)


def anyone(flag: bool) -> bool:
    """Whether it holds in any process."""
    if count() == 1:
        return flag
    told = torch.tensor(float(flag))
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return bool(told)


def share(rows: Tensor | np.ndarray) -> tuple[Any, float]:
    """The rows of a batch that are this process's, and the factor of their weight.

    A process without rows computes on one row of weight zero, because the others wait
    for it.
    """
    if count() == 1:
        return rows, 1.0
    mine = rows[rank() :: count()]
    return (mine, 1.0) if len(mine) else (rows[:1], 0.0)


def bring_together(
    module: nn.Module,
    losses: dict[str, Tensor],
    weight: float | Tensor,
    vote: bool = False,
) -> tuple[dict[str, Tensor], Any]:
    """The mean over processes of gradients and losses, weighted, in one message.

    Parameters
    ----------
    module : nn.Module
        Its parameters' gradients are replaced.
    losses : dict of Tensor
        Numbers.
    weight : float or Tensor
        Of this process's rows.
    vote : bool
        Replace gradients by the sign of the sum of their signs instead.

    Returns
    -------
    losses : dict of Tensor
        Those of the whole batch.
    weight : float or Tensor
        Of all its rows.
    """
    if count() == 1:
        return losses, weight
    params = [p for p in module.parameters() if p.requires_grad]
    flat = _flat([torch.zeros_like(p) if p.grad is None else p.grad for p in params])
    told = torch.stack([v.detach().to(flat.dtype) for v in losses.values()])
    told = torch.cat([told, told.new_ones(1)]) * weight
    message = torch.cat([flat.sign() * (weight > 0) if vote else flat * weight, told])
    dist.all_reduce(message)
    flat, told = message[: len(flat)], message[len(flat) :]
    flat = flat.sign() if vote else flat / told[-1]
    for p, part in zip(params, flat.split([p.numel() for p in params])):
        if p.grad is not None or bool(part.any()):  # an unused one stays unused
            p.grad = part.reshape(p.shape).to(p.dtype).clone()
    return dict(zip(losses, told[:-1] / told[-1])), told[-1]


def _flat(parts: list[Tensor]) -> Tensor:
    return torch.cat([part.reshape(-1) for part in parts])


# Bare of types: DistributedDataParallel reads them, and those above are text to it.
def majority_vote(group, bucket):
    """Hook for ``DistributedDataParallel``: gradients become sign(Σᵣ sign(gᵣ)).

    With it, and stochastic gradient descent, each process sends the sign of each
    number only, and the majority decides in which direction a weight moves.

    Parameters
    ----------
    group : process group or None
        Who votes; None for all.
    bucket : torch.distributed.GradBucket
        Gradients that DistributedDataParallel hands over.

    Returns
    -------
    torch.futures.Future
        The signs of the majority; 0 where the votes are equal.

    Examples
    --------
    >>> from certus.neural_network import majority_vote
    >>> def train(rank, module):
    ...     parallel = torch.nn.parallel.DistributedDataParallel(module)
    ...     parallel.register_comm_hook(None, majority_vote)
    """
    signs = bucket.buffer().sign()
    sent = dist.all_reduce(signs, group=group, async_op=True).get_future()
    return sent.then(lambda done: done.value()[0].sign())
