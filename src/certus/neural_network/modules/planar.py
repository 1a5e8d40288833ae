"""Planar layers: space is bent along one direction.

    z = x + û tanh(w·x + b),   det = 1 + ŵ sech²(w·x + b),  ŵ = w·û

They are invertible where ŵ ≥ −1 (Rezende and Mohamed's condition), so û is u moved
along w until ŵ = softplus(w·u + log(e − 1)) − 1 > −1; at u = 0 the layer is the
identity. The inverse searches one number, a = w·x with a + ŵ tanh(a + b) = w·z.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.neural_network.modules.increasing import solve

#: ŵ is at least −1 + this.
LEAST = 1e-3


class Planar(nn.Module):
    """One planar layer.

    Parameters
    ----------
    n_inputs : int
        Number of columns.
    """

    def __init__(self, n_inputs: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(n_inputs) / math.sqrt(n_inputs))
        self.u = nn.Parameter(torch.zeros(n_inputs))
        self.b = nn.Parameter(0.5 * torch.randn(1))

    def direction(self) -> tuple[Tensor, Tensor]:
        """û and w·û, which is above −1."""
        inner = self.w @ self.u
        start = math.log(math.e - 1)
        wanted = (1 - LEAST) * (F.softplus(inner + start) - 1)
        length = (self.w @ self.w).clamp(min=1e-12)
        return self.u + (wanted - inner) / length * self.w, wanted

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Moved rows (batch, columns), and log |det| of each."""
        u, inner = self.direction()
        h = torch.tanh(x @ self.w + self.b)
        return x + h[:, None] * u, torch.log1p(inner * (1 - h * h))

    def inverse(self, z: Tensor) -> Tensor:
        """The x that gives z."""
        u, inner = self.direction()

        def along(a: Tensor) -> tuple[Tensor, Tensor]:
            h = torch.tanh(a + self.b)
            return a + inner * h, 1 + inner * (1 - h * h)

        target = z @ self.w
        a = solve(along, target, inner.abs().expand_as(target))
        return z - torch.tanh(a + self.b)[:, None] * u
