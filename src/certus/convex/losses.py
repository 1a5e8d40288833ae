"""The solvers' versions of the classification losses: value, slope and curvature.

Written for speed (one exponential per score, in place); the verifier has its own
formulas and a test compares the two. Scores have shape (n, k), k = 1 for logistic;
``y`` is ±1 of shape (n,) for logistic and integer codes for softmax.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from certus.convex.design import Array
from certus.terms import Logistic, Softmax


class Slopes(NamedTuple):
    """Loss of each row, its slope in z, and what the curvature is made of."""

    value: Array  # (n,)
    slope: Array  # (n, k)
    state: Array  # logistic: p(1 − p), (n, 1); softmax: P, (n, k)


def evaluate(loss: Any, y: Array, z: Array) -> Slopes:
    """Loss, slope and curvature state at scores ``z``."""
    if isinstance(loss, Logistic):
        return _logistic(y, z)
    if isinstance(loss, Softmax):
        return _softmax(y, z)
    raise TypeError(f"no solver formulas for the loss {loss!r}")


def _logistic(y: Array, z: Array) -> Slopes:
    margin = y * z[:, 0]
    small = np.exp(-np.abs(margin))  # in (0, 1]: no overflow on either side
    value = np.log1p(small)
    value -= np.minimum(margin, 0.0)
    inverse = 1.0 / (1.0 + small)
    curvature = small * inverse * inverse
    probability = np.where(margin >= 0, small * inverse, inverse)  # of the other label
    return Slopes(value, (-y * probability)[:, None], curvature[:, None])


def _softmax(y: Array, z: Array) -> Slopes:
    rows = np.arange(len(y))
    shifted = z - z.max(axis=1, keepdims=True)
    own = shifted[rows, y].copy()
    P = np.exp(shifted, out=shifted)
    total = P.sum(axis=1)
    value = np.log(total) - own
    P /= total[:, None]
    slope = P.copy()
    slope[rows, y] -= 1.0
    return Slopes(value, slope, P)


def apply_curvature(loss: Any, state: Array, D: Array) -> Array:
    """ℓ''(z)·D by rows: h∘D for logistic, P∘D − P(P·D) for softmax."""
    if isinstance(loss, Logistic):
        return state * D
    PD = state * D
    PD -= state * PD.sum(axis=1, keepdims=True)
    return PD


def mean_curvature(loss: Any, state: Array, weight: Array) -> Array:
    """Weighted mean of the k × k curvature matrices."""
    total = weight.sum()
    if isinstance(loss, Logistic):
        return np.array([[float(weight @ state[:, 0]) / total]])
    weighted = state * weight[:, None]
    return np.diag(weighted.sum(axis=0) / total) - state.T @ weighted / total
