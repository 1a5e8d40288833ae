"""Directions along which a likelihood rises forever, so that it has no maximum.

A direction (w, b) moves the score of each row. Two classes: no score may move against
its label; softmax: none may gain on the score of the row's own class. Counts: rows at
the end of their range may only move outwards (y = 0 down, y = trials up), the others
not at all. If one row moves and none breaks its rule, the likelihood only rises.

To find one is a linear programme: the largest sum of allowed moves within a box. The
result is the fit's witness; the verifier decides whether it proves anything.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import null_space
from scipy.optimize import linprog

from certus.objectives import Loss, Softmax
from certus.typing import Array, Matrix

#: Cells of X up to which counts are searched: their null space is a dense matrix.
CELLS = 20_000_000
#: Moves and entries below this are rounding of the programme's solver.
_NOISE = 1e-9


# -- classes ----------------------------------------------------------------------


def separating_direction(X: Matrix, y: Array, loss: Loss, free: bool) -> Array | None:
    """A direction along which no row moves against its label, or None.

    ``y`` holds ±1, or codes for a softmax. Returns shape (d + 1, k), the intercept last
    and 0 unless it is ``free``. The programme has a row per sample and other class.
    """
    A, scale = _scaled_columns(X, free)
    k = 1
    moves = sparse.diags_array(np.asarray(y, dtype=float)) @ A
    if isinstance(loss, Softmax):
        k = loss.n_classes
        moves = _against_others(A, y, k)
    best = _most_moved(moves)
    if best is None:
        return None
    return _with_intercept(best.reshape(k, -1).T / scale[:, None], free)


def separates(X: Matrix, y: Array, s: Array, loss: Loss, direction: Array) -> bool:
    """Whether no row of positive weight moves against its label, and one with it."""
    if not np.isfinite(direction).all():
        return False
    X, y = X[s > 0], y[s > 0]
    z = X @ direction[:-1] + direction[-1]
    if not isinstance(loss, Softmax):
        moved = y * z.ravel()
        return _only_forward(moved, moved, _rounding(X, direction))
    of_row = np.arange(len(y)), y
    gains = z[of_row][:, None] - z
    gains[of_row] = np.nan  # of its own class over itself
    least, most = np.nanmin(gains, axis=1), np.nanmax(gains, axis=1)
    return _only_forward(least, most, 2 * _rounding(X, direction))


def _against_others(A: Any, y: Array, k: int) -> Any:
    """Rows z_y − z_c of every sample and other class c, in (d + 1)·k unknowns."""
    cells = A.tocoo()
    n, width = A.shape
    rows, columns, values = [], [], []
    for c in range(k):
        other = y[cells.row] != c
        row, column, value = cells.row[other], cells.col[other], cells.data[other]
        rows += [row + c * n] * 2
        columns += [y[row] * width + column, c * width + column]
        values += [value, -value]
    places = np.concatenate(rows), np.concatenate(columns)
    return sparse.csr_array((np.concatenate(values), places), shape=(n * k, width * k))


# -- counts -----------------------------------------------------------------------


def at_limits(loss: Loss, y: Array) -> tuple[Array, Array]:
    """Rows whose score may fall (y at its least), and may rise (y at its most)."""
    return y == 0, y == getattr(loss, "trials", np.inf)


def receding_direction(
    X: Matrix, y: Array, s: Array, loss: Loss, free: bool
) -> Array | None:
    """A direction that only moves rows at their limits, and outwards; or None.

    Shape (d + 1,), the intercept last. It lies in the null space of all other rows.
    """
    X, y = X[s > 0], y[s > 0]
    if X.shape[0] * (X.shape[1] + 1) > CELLS:
        return None
    A, scale = _scaled_columns(X, free)
    A = A.toarray()
    fall, rise = at_limits(loss, y)
    still = A[~(fall | rise)]
    space = np.eye(A.shape[1])
    if len(still):
        space = null_space(np.linalg.qr(still, mode="r"), rcond=1e-11)
    best = _most_moved(np.vstack([-A[fall], A[rise]]) @ space)
    if best is None:
        return None
    direction = space @ best
    size = np.abs(direction).max()
    direction[np.abs(direction) < 0.1 * _NOISE * size] = 0.0
    # A row that must not move stays fixed to its last digit, as the check requires.
    idle, used = np.abs(A @ direction) < _NOISE * size, direction != 0
    part = A[np.ix_(idle, used)]
    direction[used] -= np.linalg.lstsq(part, part @ direction[used], rcond=1e-11)[0]
    return _with_intercept((direction / scale)[:, None], free).ravel()


def recedes(X: Matrix, y: Array, s: Array, loss: Loss, direction: Array) -> bool:
    """Whether rows of positive weight move outwards from their limits or not at all."""
    if not np.isfinite(direction).all():
        return False
    X, y = X[s > 0], y[s > 0]
    z = X @ direction[:-1] + direction[-1]
    fall, rise = at_limits(loss, y)
    outwards = np.where(fall, -z, z)
    least = np.where(fall | rise, outwards, -np.abs(z))
    most = np.where(fall | rise, outwards, 0.0)
    return _only_forward(least, most, _rounding(X, direction[:, None]))


# -- common -----------------------------------------------------------------------


def _scaled_columns(X: Matrix, free: bool) -> tuple[Any, Array]:
    """X with a constant for a free intercept, each column at most 1; the divisors."""
    A = sparse.csr_array(X, dtype=np.float64)
    if free:
        A = sparse.hstack([A, np.ones((A.shape[0], 1))], format="csr")
    scale = np.zeros(A.shape[1])
    np.maximum.at(scale, A.indices, np.abs(A.data))
    scale[scale == 0] = 1.0
    return A @ sparse.diags_array(1 / scale), scale


def _with_intercept(direction: Array, free: bool) -> Array:
    return direction if free else np.vstack([direction, np.zeros(direction.shape[1])])


def _most_moved(moves: Any) -> Array | None:
    """The point of the unit box with the largest sum of moves, none of them below 0."""
    if 0 in moves.shape:
        return None
    found = linprog(
        -np.asarray(moves.sum(axis=0)).ravel(),
        A_ub=-moves,
        b_ub=np.zeros(moves.shape[0]),
        bounds=(-1, 1),
        method="highs",
    )
    return found.x if found.x is not None and -found.fun > _NOISE else None


def _rounding(X: Matrix, direction: Array) -> Array:
    """How much rounding may change the score of each row along a direction."""
    size = np.abs(direction).max(axis=1)
    return 64 * np.finfo(float).eps * (abs(X) @ size[:-1] + size[-1])


def _only_forward(least: Array, most: Array, rounding: Array) -> bool:
    """Whether no row goes back, beyond rounding, and one goes forward."""
    return bool((least >= -rounding).all() and (most > 1e3 * rounding).any())
