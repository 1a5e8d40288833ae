"""Second derivatives ∂²ℓ/∂z² of the losses, in plain NumPy float64.

Where the curvature jumps, the larger of the two sides counts; where the slope itself
jumps, it is infinite.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, softmax

from certus import terms as t

Array = np.ndarray[Any, np.dtype[Any]]

#: Losses of the margin yz: labels are ±1.
MARGIN = (
    t.Logistic,
    t.Hinge,
    t.SquaredHinge,
    t.ModifiedHuber,
    t.ExponentialMargin,
    t.ZeroOne,
)


def curvature(loss: t.Loss, y: Array, z: Array) -> Array:
    """∂²ℓ/∂z² of each row: shape (n,), for softmax (n, n_classes, n_classes)."""
    if isinstance(loss, t.Softmax):
        P = softmax(z, axis=1)
        return np.asarray(P[:, :, None] * (np.eye(P.shape[1]) - P[:, None, :]))
    if isinstance(loss, MARGIN):
        return _margin_curvature(loss, y * z)
    if isinstance(loss, t.Poisson | t.Exponential | t.Binomial):
        return _likelihood_curvature(loss, y, z)
    return _residual_curvature(loss, np.abs(y - z))


def _residual_curvature(loss: t.Loss, e: Array) -> Array:
    match loss:
        case t.Squared():
            return np.ones(e.shape)
        case t.Absolute() | t.Quantile():
            return _jump(e == 0)
        case t.Huber(delta):
            return np.where(e <= delta, 1.0, 0.0)
        case t.Tukey(delta):
            x = np.minimum(e / delta, 1.0) ** 2
            return np.where(x < 1, (1 - x) * (1 - 5 * x), 0.0)
        case t.EpsilonInsensitive(epsilon):
            return _jump(e == epsilon)
        case t.SquaredEpsilonInsensitive(epsilon):
            return np.where(e >= epsilon, 2.0, 0.0)
    raise TypeError(f"no curvature for the loss {loss!r}")


def _margin_curvature(loss: t.Loss, m: Array) -> Array:
    match loss:
        case t.Logistic():
            return np.asarray(expit(m) * expit(-m))
        case t.Hinge(margin):
            return _jump(m == margin)
        case t.SquaredHinge():
            return np.where(m <= 1, 2.0, 0.0)
        case t.ModifiedHuber():
            return np.where(np.abs(m) <= 1, 2.0, 0.0)
        case t.ExponentialMargin():
            return np.exp(-m)
    return _jump(m == 0)  # 0-1


def _likelihood_curvature(loss: t.Loss, y: Array, z: Array) -> Array:
    match loss:
        case t.Poisson():
            return np.exp(z)
        case t.Exponential():
            return np.asarray(y * np.exp(-z))
        case t.Binomial(trials):
            return np.asarray(trials * expit(z) * expit(-z))
    raise TypeError(f"no curvature for the loss {loss!r}")


def _jump(where: Array) -> Array:
    return np.where(where, np.inf, 0.0)
