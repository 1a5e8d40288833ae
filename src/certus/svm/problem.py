"""One support vector problem: soft or hard margin, classifier or regressor.

The hard margin is the soft one with a cost that no variable reaches. If the variables
reach every cost there is no hard margin, because the classes share a point: a convex
combination of the rows of one that equals one of the other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import linalg
from scipy.optimize import nnls

from certus.certificate import Status
from certus.kernels.evaluate import own_threads
from certus.kernels.rows import KernelRows
from certus.objectives import terms as t
from certus.svm import smo
from certus.typing import Array, MatrixLike

#: Costs tried for a hard margin, in units of the mean k(x, x).
COSTS = (1e3, 1e6, 1e9)
#: Largest number of rows for a direct search of a common point of two classes.
FEW = 600


class SolvedPart(NamedTuple):
    """A solved problem: signed coefficients of its rows, b, and how it ended."""

    coef: Array
    b: float
    status: Status
    n_iter: int
    hulls: Array | None = None


def solve_part(
    kernel: t.Kernel,
    X: MatrixLike,
    y: Array,
    cost: Array,
    epsilon: float | None,
    tol: float,
    max_iter: int | None,
    megabytes: float,
    on_step: smo.OnStep,
) -> SolvedPart:
    """Solve for ``cost`` (C times the weights); infinite costs mean a hard margin."""
    with own_threads():
        rows = KernelRows(kernel, X, megabytes)
        if np.isinf(cost).any():
            return _hard(rows, y, cost > 0, tol, max_iter, on_step)
        return _soft(rows, y, cost, epsilon, tol, max_iter, on_step)


def _soft(
    rows: KernelRows,
    y: Array,
    cost: Array,
    epsilon: float | None,
    tol: float,
    max_iter: int | None,
    on_step: smo.OnStep,
    hard: bool = False,
) -> SolvedPart:
    box = smo.DualProblem(rows, **smo.as_variables(y, cost, epsilon))
    found = smo.solve(box, tol, max_iter, on_step, hard)
    coef = np.bincount(box.row, weights=found.beta, minlength=rows.n)
    return SolvedPart(coef, found.b, found.status, found.n_iter)


def _hard(
    rows: KernelRows,
    y: Array,
    used: Array,
    tol: float,
    max_iter: int | None,
    on_step: smo.OnStep,
) -> SolvedPart:
    shared = _common_point(rows, y, used)
    unit = mean_diagonal(rows)
    part = None
    for size in COSTS[:1] if shared is not None else COSTS:
        cost = np.where(used, size / unit, 0.0)
        part = _soft(rows, y, cost, None, tol, max_iter, on_step, hard=True)
        reached = float(np.abs(part.coef).max(initial=0.0)) > 0.999 * size / unit
        if shared is None and not reached:
            return part
        if part.status in (Status.TIME_LIMIT, Status.STOPPED, Status.INTERRUPTED):
            break
    assert part is not None
    hulls = np.abs(part.coef) if shared is None else shared
    if part.status in (Status.SOLVED, Status.TOL_NOT_REACHED, Status.MAX_ITER):
        part = part._replace(status=Status.NO_MINIMISER)
    return part._replace(hulls=hulls)


def mean_diagonal(rows: KernelRows) -> float:
    """The mean kernel value of a row with itself, over at most 50 rows."""
    few = np.unique(np.linspace(0, rows.n - 1, 50).astype(int))
    level = float(np.mean(np.diagonal(rows.square(few))))
    return level if level > 0 else 1.0


def _common_point(rows: KernelRows, y: Array, used: Array) -> Array | None:
    """Weights of two equal convex combinations, one of each class, if there are any.

    Non-negative least squares in the coordinates of the kernel's own feature map.
    """
    index = np.flatnonzero(used)
    if len(index) > FEW:
        return None
    K = rows.square(index)
    if not np.isfinite(K).all():
        return None
    values, vectors = linalg.eigh((K + K.T) / 2, check_finite=False)
    keep = values > max(values.max(initial=0.0), 0.0) * 1e-14
    if not keep.any():
        features = np.zeros((1, len(index)))
    else:
        features = (vectors[:, keep] * np.sqrt(values[keep] / values.max())).T
    signs = y[index]
    A = np.vstack([features * signs, signs > 0, signs < 0])
    try:
        alpha, residual = nnls(A, np.r_[np.zeros(len(features)), 1.0, 1.0])
    except RuntimeError:  # too many exchanges: nothing is known
        return None
    if residual > 1e-7:
        return None
    hulls = np.zeros(rows.n)
    hulls[index] = alpha
    return hulls
