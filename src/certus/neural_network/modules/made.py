"""Layers of a flow: each column is moved by a map whose parameters others decide.

    zⱼ = f(xⱼ; t(x_{<j}))   autoregressive, one masked network for all columns (MADE)
    zⱼ = f(xⱼ; t(x_A))      coupling, j outside A; columns of A are copied

The Jacobian is triangular in the order of the columns, so log |det| = Σ log f′. The
networks' last weights are zero at the start: a new layer is the identity.

An autoregressive inverse finds one column after the other. Hidden units are in order of
their degree (the columns they see), so that each is computed once, as soon as its
inputs are known: the inverse of all columns costs as many products as one pass forward.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

#: Networks see columns within ± this; beyond, nothing was learnt.
REACH = 2.0


class MaskedLinear(nn.Linear):
    """A linear layer in which some weights are always zero.

    Parameters
    ----------
    mask : bool array of shape (outputs, inputs)
        Where a weight is allowed.
    """

    mask: Tensor

    def __init__(self, mask: np.ndarray) -> None:
        super().__init__(mask.shape[1], mask.shape[0])
        allowed = torch.as_tensor(mask, dtype=self.weight.dtype)
        self.register_buffer("mask", allowed)

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, inputs) to (batch, outputs)."""
        return F.linear(x, self.weight * self.mask, self.bias)


def _to_zero(layer: Any) -> None:
    """Last weights of zero: the parameters of all maps are those of the identity."""
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)


def _effective(layer: Any) -> tuple[Tensor, Tensor]:
    """The weights that count, and the bias."""
    return layer.weight * layer.mask, layer.bias


class Autoregressive(nn.Module):
    """All columns, each moved by a map that depends on those before it.

    Parameters
    ----------
    n_inputs : int
        Number of columns.
    hidden : tuple of int
        Units of the hidden layers.
    each : map
        Such as :class:`certus.neural_network.modules.spline.Spline`.
    reverse : bool
        Whether the last column comes first.
    """

    def __init__(
        self, n_inputs: int, hidden: tuple[int, ...], each: Any, reverse: bool
    ) -> None:
        super().__init__()
        self.d, self.each, self.sizes = n_inputs, each, hidden
        self.reverse = reverse
        # The columns from first to last; a reversal is also the place of each.
        self.columns = list(range(n_inputs))[:: -1 if reverse else 1]
        degrees = [np.array(self.columns) + 1]
        degrees += [1 + np.arange(h) * (n_inputs - 1) // h for h in hidden]
        if n_inputs == 1:  # nothing comes before the only column
            degrees[1:] = [np.zeros(h, int) for h in hidden]
        masks = [b[:, None] >= a for a, b in pairwise(degrees)]
        masks.append(np.repeat(degrees[0][:, None] > degrees[-1], each.n_params, 0))
        self.net = nn.ModuleList([MaskedLinear(mask) for mask in masks])
        _to_zero(self.net[-1])
        #: For each column in order, how many units of each layer it depends on.
        self.counts = [
            [int((degree <= i).sum()) for degree in degrees[1:]]
            for i in range(n_inputs)
        ]

    def forward(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Moved rows (batch, columns), and log |det| of each."""
        h = u.clamp(-REACH, REACH)
        for layer in self.net[:-1]:
            h = torch.relu(layer(h))
        t = self.net[-1](h).unflatten(-1, (self.d, -1))
        v, log_slope = self.each(u, t)
        return v, log_slope.sum(-1)

    def inverse(self, v: Tensor) -> Tensor:
        """The u that gives v, one column after the other."""
        layers = [_effective(m) for m in self.net]
        first, (out, bias) = layers[0], layers[-1]
        columns = self.columns
        first = first[0][:, columns], first[1]
        out, bias = out.unflatten(0, (self.d, -1)), bias.unflatten(0, (self.d, -1))
        u = torch.empty_like(v)
        seen = v.new_zeros(self.d, len(v))  # in order, as the networks see them
        states = [v.new_zeros(h, len(v)) for h in self.sizes]
        done = [0] * len(self.sizes)
        for i, column in enumerate(columns):
            below, known = seen, i
            for k, (weight, shift) in enumerate([first, *layers[1:-1]]):
                a, b = done[k], self.counts[i][k]
                if b > a:
                    new = torch.addmm(
                        shift[a:b, None], weight[a:b, :known], below[:known]
                    )
                    states[k][a:b] = new.relu_()
                below, known, done[k] = states[k], b, b
            t = torch.addmm(
                bias[column, :, None], out[column, :, :known], below[:known]
            )
            u[:, column] = self.each.inverse(v[:, column], t.T)
            seen[i] = u[:, column].clamp(-REACH, REACH)
        return u


class Coupling(nn.Module):
    """Half of the columns moved by maps that depend on the other half.

    Parameters
    ----------
    n_inputs : int
        Number of columns, at least two.
    hidden : tuple of int
        Units of the hidden layers.
    each : map
        Such as :class:`certus.neural_network.modules.spline.Spline`.
    reverse : bool
        Whether even columns move, in place of odd ones.
    """

    def __init__(
        self, n_inputs: int, hidden: tuple[int, ...], each: Any, reverse: bool
    ) -> None:
        super().__init__()
        self.d, self.each, self.reverse = n_inputs, each, reverse
        even, odd = list(range(0, n_inputs, 2)), list(range(1, n_inputs, 2))
        self.copied, self.moved = (odd, even) if reverse else (even, odd)
        sizes = [len(self.copied), *hidden, len(self.moved) * each.n_params]
        self.net = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(sizes)])
        _to_zero(self.net[-1])

    def _params(self, u: Tensor) -> Tensor:
        h = u[:, self.copied].clamp(-REACH, REACH)
        for layer in self.net[:-1]:
            h = torch.relu(layer(h))
        return self.net[-1](h).unflatten(-1, (len(self.moved), -1))

    def forward(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Moved rows (batch, columns), and log |det| of each."""
        moved, log_slope = self.each(u[:, self.moved], self._params(u))
        v = u.clone()
        v[:, self.moved] = moved
        return v, log_slope.sum(-1)

    def inverse(self, v: Tensor) -> Tensor:
        """The u that gives v."""
        u = v.clone()
        u[:, self.moved] = self.each.inverse(v[:, self.moved], self._params(v))
        return u
