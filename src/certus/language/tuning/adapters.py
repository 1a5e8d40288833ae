"""Low-rank adapters: W + s·B·A in place of each matrix W of attention and feed-forward.

B (rows × r) is zero at the start, so that tuning begins at the base; A (r × columns)
is drawn at random. W itself is not trained. Merging writes W + s·B·A into a network of
the base's own form: the sum is taken in float64 and rounded once.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from certus.neural_network.modules.transformer import Transformer
from certus.typing import Array

#: The matrices of a layer that get an adapter.
MATRICES = (
    "attention.qkv",
    "attention.output",
    "feed_forward.inner",
    "feed_forward.outer",
)


#: The two factors of a change of rank at most r: B (rows × r), A (r × columns).
Adapter = tuple[Array, Array]


class LowRank(nn.Module):
    """W ↦ W + s·B·A, a parametrisation of a matrix whose own entries are fixed."""

    def __init__(self, W: Tensor, rank: int, scale: float) -> None:
        super().__init__()
        rows, columns = W.shape
        self.scale = scale
        self.B = nn.Parameter(W.new_zeros(rows, rank))
        self.A = nn.Parameter(torch.randn(rank, columns).to(W) / math.sqrt(columns))

    def forward(self, W: Tensor) -> Tensor:
        """The changed matrix."""
        return torch.addmm(W, self.B, self.A, alpha=self.scale)


def with_adapters(network: Transformer, rank: int, scale: float) -> Transformer:
    """A copy of a network in which adapters are all that is trained.

    Parameters
    ----------
    network : Transformer
        Stays as it is.
    rank : int
        r, at most the network's width.
    scale : float
        s.
    """
    width = network.config["width"]
    if rank > width:
        raise ValueError(
            f"rank must be at most the width of the base, {width}, got {rank}."
        )
    module = copy.deepcopy(network).requires_grad_(False)
    for _, linear in _linears(module):
        part = LowRank(linear.weight, rank, scale)
        parametrize.register_parametrization(linear, "weight", part)
    return module


def adapters_of(module: Transformer) -> dict[str, Adapter]:
    """The adapters of a network by the name of the weights that they change."""
    found = {}
    for name, linear in _linears(module):
        part: Any = linear.get_submodule("parametrizations.weight.0")
        B, A = (p.detach().cpu().numpy().copy() for p in (part.B, part.A))
        found[f"{name}.weight"] = (B, A)
    return found


def merged(
    network: Transformer, adapters: Mapping[str, Adapter], scale: float
) -> Transformer:
    """A copy of a network whose matrices are W + s·B·A, rounded once."""
    module = copy.deepcopy(network)
    weights = dict(module.named_parameters())
    with torch.no_grad():
        for name, (B, A) in adapters.items():
            W = weights[name]
            change = scale * (B.astype(np.float64) @ A.astype(np.float64))
            total = W.detach().cpu().double() + torch.from_numpy(change)
            W.copy_(total.to(W.dtype))
    return module


def _linears(module: Transformer) -> Iterator[tuple[str, nn.Linear]]:
    for i, block in enumerate(module.layers):
        for name in MATRICES:
            linear = block.get_submodule(name)
            assert isinstance(linear, nn.Linear)
            yield f"layers.{i}.{name}", linear
