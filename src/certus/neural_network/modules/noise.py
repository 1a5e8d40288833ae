"""Noise on the weights of any network, in training only.

    f(x; θ + ε),  ε ~ N(0, σ²)

Expanded to second order the loss gains (σ²/2) tr ∇²L(θ): training prefers minima that
are flat. Noise on inputs is an ``augment`` of the estimators, and noise on targets
their ``label_smoothing``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class WeightNoise(nn.Module):
    """A network with noise on its weights, but not on its biases, in training.

    Parameters
    ----------
    module : nn.Module
        The network.
    std : float, default=0.1
        σ, standard deviation of the noise that is drawn again in each step.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import MLP, WeightNoise
    >>> net = WeightNoise(MLP(2, 8, 1), std=0.5)
    >>> x = torch.ones(1, 2)
    >>> bool(torch.equal(net(x), net(x))), bool(torch.equal(net.eval()(x), net(x)))
    (False, True)
    """

    def __init__(self, module: nn.Module, std: float = 0.1) -> None:
        super().__init__()
        if not 0 <= std < float("inf"):
            raise ValueError(f"std must be a number of at least 0, got {std!r}.")
        if not isinstance(module, nn.Module):
            raise TypeError(f"module must be an nn.Module, got {module!r}.")
        self.config = {"module": module, "std": std}
        self.module, self.std = module, std

    def forward(self, *inputs: Tensor) -> Any:
        """What the network gives, under noise in training mode."""
        if not self.training:
            return self.module(*inputs)
        noisy = {
            name: p + self.std * torch.randn_like(p)
            for name, p in self.module.named_parameters()
            if p.ndim > 1
        }
        return torch.func.functional_call(self.module, noisy, inputs)
