"""Attention: which states answer a query, and at which time steps they are.

    cᵗ = Σₛ αₛ eₛ,   α = softmax(score(hᵗ, e)),   score = hᵀWe/√d or vᵀtanh(Wh + Ue)

States say what was read; a clock added to what is read says when.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from certus.neural_network.modules.arguments import require_choice


class Attention(nn.Module):
    """Mixes states by how well each answers a query; a softmax over the time.

    Parameters
    ----------
    query : int
        Width of a query, the decoder's state.
    width : int
        Width of the states.
    kind : {"dot", "additive"}
        Score of a state e for a query h: hᵀWe/√d, or vᵀtanh(Wh + Ue).

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules.attention import Attention
    >>> look = Attention(4, 6)
    >>> states, mask = torch.randn(1, 3, 6), torch.tensor([[True, True, False]])
    >>> context, weights = look(torch.randn(1, 2, 4), states, mask)
    >>> context.shape, weights[..., 2].tolist()
    (torch.Size([1, 2, 6]), [[0.0, 0.0]])
    """

    def __init__(self, query: int, width: int, kind: str = "dot") -> None:
        super().__init__()
        require_choice("kind", kind, ("dot", "additive"))
        self.kind = kind
        self.key = nn.Linear(width, query, bias=False)
        if kind == "additive":
            self.query = nn.Linear(query, query)
            self.score = nn.Linear(query, 1, bias=False)

    def forward(self, h: Tensor, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Contexts (batch, steps, width) and weights (batch, steps, time)."""
        keys = self.key(states)  # (batch, time, query)
        if self.kind == "dot":
            scores = h @ keys.transpose(1, 2) / math.sqrt(h.shape[-1])
        else:
            pairs = self.query(h)[:, :, None] + keys[:, None]
            scores = self.score(torch.tanh(pairs))[..., 0]
        scores = scores.masked_fill(~mask[:, None], -torch.inf)
        weights = torch.softmax(scores, dim=2)  # (batch, steps, time)
        return weights @ states, weights


class EncodedSources(NamedTuple):
    """What a decoder sees of the sources."""

    summary: Tensor  # (batch, width): its first state is made from it
    states: Tensor  # (batch, time, width): attention looks at them
    mask: Tensor  # (batch, time): False where a source is over


class Clock(nn.Module):
    """Places in a sequence as vectors: a linear map of sines of many wavelengths.

    A recurrent state would have to learn to count; with it attention can go by places
    from the first.

    Parameters
    ----------
    width : int
        Components of the vectors.
    """

    waves: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        waves = torch.logspace(0, math.log10(4096), 16)  # in steps for a radian
        self.register_buffer("waves", waves, persistent=False)
        self.output = nn.Linear(32, width, bias=False)

    def forward(self, t: Tensor) -> Tensor:
        """From (...) places to (..., width)."""
        turns = t[..., None] / self.waves
        return self.output(torch.cat([torch.sin(turns), torch.cos(turns)], dim=-1))
