"""A network that equals a given piecewise linear function, without any training.

g(x) = y₀ + Σᵢ cᵢ (x − xᵢ)₊ with one ReLU for each knot xᵢ, where cᵢ is by how much the
slope changes there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from certus.neural_network.modules.mlp import MLP
from certus.typing import ArrayLike


def piecewise_linear_network(x: ArrayLike, y: ArrayLike) -> MLP:
    """The ReLU network that joins points by straight lines, as ``np.interp`` does.

    It has one hidden layer of a unit for each point, is constant beyond the first and
    the last, and computes in float64.

    Parameters
    ----------
    x : array of shape (n_points,)
        Knots, all different, in any order.
    y : array of shape (n_points,) or (n_points, n_outputs)
        Values there.

    Returns
    -------
    MLP
        From (batch, 1) to (batch, n_outputs).

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import piecewise_linear_network
    >>> net = piecewise_linear_network([0, 1, 3], [0, 2, 1])
    >>> net(torch.tensor([[-1.0], [0.5], [1.0], [2.0], [9.0]]).double())[:, 0].tolist()
    [0.0, 1.0, 2.0, 1.5, 1.0]
    >>> net.output.weight.tolist()  # changes of slope
    [[2.0, -2.5, 0.5]]
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.ndim != 1 or not len(x) or y.ndim not in (1, 2) or len(y) != len(x):
        raise ValueError(
            "x must be a vector of knots and y must hold a value or a vector for "
            f"each knot; got shapes {x.shape} and {y.shape}."
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("Points must be finite; leave out those with NaN or infinity.")
    order = np.argsort(x)
    x, y = x[order], y.reshape(len(y), -1)[order]
    if (np.diff(x) == 0).any():
        raise ValueError("Knots must be distinct; keep only one of each.")
    slopes = np.diff(y, axis=0) / np.diff(x)[:, None]
    flat = np.zeros((1, y.shape[1]))
    changes = np.diff(np.concatenate((flat, slopes, flat)), axis=0)
    net = MLP(1, (len(x),), y.shape[1]).double()
    hidden: Any = net.layers[0].linear
    hidden.weight.data[:] = 1.0
    hidden.bias.data[:] = torch.from_numpy(-x)
    net.output.weight.data[:] = torch.from_numpy(changes.T.copy())
    net.output.bias.data[:] = torch.from_numpy(y[0].copy())
    return net
