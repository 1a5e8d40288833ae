"""When a likelihood has no maximum: directions that separate the classes.

A direction (w, b) ≠ 0 with yᵢ(xᵢᵀw + b) ≥ 0 for every row, and > 0 for one, lowers the
logistic loss for ever (softmax: z_y − z_k ≥ 0 for every k). The direction is the
witness; checking it takes one pass, finding it a linear programme.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from certus import terms as t
from certus.verify import data
from certus.verify.data import Array


def margins(X: Any, y: Array, loss: t.Loss, direction: Array) -> tuple[Array, Array]:
    """Smallest and largest margin of each row along ``direction``.

    ``direction`` has shape (d + 1, k), the last row b. Two classes have one margin;
    softmax has z_y − z_k for every other class k.
    """
    z = data.dot(X, direction[:-1]) + direction[-1]
    if not isinstance(loss, t.Softmax):
        m = np.asarray(y * z.ravel())
        return m, m
    rows = np.arange(len(y))
    own = z[rows, y].copy()
    z[rows, y] = -np.inf
    smallest = own - z.max(axis=1)
    z[rows, y] = np.inf
    return smallest, own - z.min(axis=1)


def separates(X: Any, y: Array, s: Array, loss: t.Loss, direction: Array) -> bool:
    """Whether ``direction`` proves that no minimiser exists, up to rounding."""
    if not np.all(np.isfinite(direction)) or direction.shape[0] != X.shape[1] + 1:
        return False
    used = s > 0
    with np.errstate(over="ignore", invalid="ignore"):
        m, most = (part[used] for part in margins(X, y, loss, direction))
        reach = data.magnitudes(X) @ np.abs(direction[:-1]).max(axis=1)
    unit = 64 * float(np.finfo(float).eps)
    slack = unit * float(reach + np.abs(direction[-1]).max())
    if not (np.isfinite(m).all() and m.min() >= -slack and most.max() > 1e3 * slack):
        return False
    # Rounding excuses a negative margin only up to the size of its own row.
    below = np.flatnonzero(used)[m < 0]
    own = data.dot(abs(X[below]), np.abs(direction[:-1]).max(axis=1))
    return bool(np.all(m[m < 0] >= -unit * (own + np.abs(direction[-1]).max())))


def separating_direction(X: Any, y: Array, loss: t.Loss, free: bool) -> list[Array]:
    """Maximise the sum of margins over the unit box; empty if nothing separates.

    Cost: one linear programme with a row per sample (and other class).
    """
    n, d = X.shape
    scale = data.magnitudes(X)
    scale = np.where(scale > 0, scale, 1.0)
    A = sparse.csr_array(X) @ sparse.diags_array(1 / scale)
    A = sparse.hstack([A, np.full((n, 1), 1.0 if free else 0.0)], format="csr")
    if isinstance(loss, t.Softmax):
        M = _class_differences(A, y, loss.n_classes)
        k = loss.n_classes
    else:
        M, k = sparse.diags_array(y.astype(float)) @ A, 1
    found = linprog(
        -np.asarray(M.sum(axis=0)).ravel(),
        A_ub=-M,
        b_ub=np.zeros(M.shape[0]),
        bounds=([(-1, 1)] * d + [(-1, 1) if free else (0, 0)]) * k,
        method="highs",
    )
    if found.x is None or not -found.fun > 1e-9:
        return []
    direction = found.x.reshape(k, d + 1).T.copy()
    direction[:-1] /= scale[:, None]
    return [direction]


def _class_differences(A: Any, y: Array, n_classes: int) -> Any:
    """Rows z_y − z_k for every sample and other class k, as a sparse matrix."""
    blocks = []
    for k in range(n_classes):
        rows = np.flatnonzero(y != k)
        parts = [
            sparse.diags_array(((y[rows] == c) * 1.0) - (c == k)) @ A[rows]
            for c in range(n_classes)
        ]
        blocks.append(sparse.hstack(parts, format="csr"))
    return sparse.vstack(blocks, format="csr")
