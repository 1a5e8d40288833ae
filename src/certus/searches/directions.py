"""Directions along which a likelihood rises forever, by a linear programme.

The sum of all moves is maximised over the unit box. For classes the moves are z_y − z_k
for every other class k; for counts they are the scores of rows at their limits, and
rows between the limits must not move at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import null_space
from scipy.optimize import linprog

from certus.typing import Array

#: Largest number of cells of X when rows between the limits must not move.
CELLS = 20_000_000


def receding(X: Any, free: bool, fall: Array, rise: Array) -> Array | None:
    """A (w, b) along which some rows may only fall, others rise, and the rest stay."""
    A, scale = _scaled(X, free)
    M, stay = sparse.diags_array(rise * 1.0 - fall) @ A, ~(fall | rise)
    space: Any = sparse.eye_array(A.shape[1])
    if stay.any():
        if A.shape[0] * A.shape[1] > CELLS:
            return None
        space = null_space(np.linalg.qr(A[stay].toarray(), mode="r"), rcond=1e-11)
    return _farthest(M, space, 1, scale, free)


def separating(X: Any, free: bool, own: Array) -> Array | None:
    """A (W, b) along which each row's own class gets ahead of all others.

    ``own`` holds a one in the column of each row's class.
    """
    A, scale = _scaled(X, free)
    k, own = own.shape[1], own.T
    ahead = [[own[c] - (c == j) for c in range(k)] for j in range(k)]  # z_y − z_j
    M = sparse.block_array([[sparse.diags_array(x) @ A for x in row] for row in ahead])
    return _farthest(M, sparse.eye_array(M.shape[1]), k, scale, free)


def _scaled(X: Any, free: bool) -> tuple[Any, Array]:
    """X, with a column of ones for an intercept, in units of its columns; the units."""
    A = sparse.csr_array(X).astype(np.float64)
    if free:
        A = sparse.hstack([A, np.ones((A.shape[0], 1))], format="csr")
    scale = abs(A).max(axis=0).toarray().ravel()
    scale = np.where(scale > 0, scale, 1.0)
    return A @ sparse.diags_array(1 / scale), scale


def _farthest(M: Any, space: Any, k: int, scale: Array, free: bool) -> Array | None:
    """The x in ``space`` with Mx ≥ 0 and the largest sum, as (d + 1, k) numbers."""
    M = M @ space
    if not M.shape[1]:
        return None
    total = np.asarray(M.sum(axis=0)).ravel()
    found = linprog(-total, A_ub=-M, b_ub=np.zeros(M.shape[0]), bounds=(-1, 1))
    if found.x is None or not -found.fun > 1e-9:
        return None
    way = (space @ found.x).reshape(k, -1).T
    way[np.abs(way) < 1e-10 * np.abs(way).max()] = 0.0
    way = way / scale[:, None]
    return np.asarray(way if free else np.vstack([way, np.zeros(k)]))
