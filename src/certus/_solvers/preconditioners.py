"""Preconditioners of Newton-CG: approximate inverses of the Hessian at a point.

The exact Hessian, on a subsample of the rows when there are many; the Kronecker product
of the mean curvature and the second moments of X (many classes); or a diagonal (many
columns).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from certus._core.blas import symmetric_inverse
from certus._solvers.losses import mean_curvature
from certus._solvers.newton_problem import NewtonPoint, NewtonProblem, bordered_gram
from certus.typing import Array

EXACT_SIDE = 700  # parameters up to which the whole Hessian is formed, for softmax
EXACT_BINARY = 3_000  # and for one score, whose Hessian is one weighted Gram matrix
KRONECKER_SIDE = 3_000
#: Rows that a preconditioner looks at, at least.
SAMPLE_ROWS = 20_000


def preconditioner(
    problem: NewtonProblem, point: NewtonPoint
) -> Callable[[Array], Array]:
    """The one for this problem's shape."""
    p = (problem.d + 1) * problem.k
    if problem.k == 1 and p <= EXACT_BINARY:
        return _exact(problem, point)
    if p <= EXACT_SIDE:
        return _exact(problem, point)
    if problem.d <= KRONECKER_SIDE:
        return _kronecker(problem, point)
    return _diagonal(problem, point)


def _sample(
    problem: NewtonProblem, point: NewtonPoint, rows: int
) -> tuple[Any, Array, Array]:
    """Evenly spaced rows of X, of the curvature state and of the weights."""
    step = max(1, problem.n // max(rows, 1))
    if problem.sparse and problem.rows.X.format != "csr":
        step = 1
    return problem.rows.X[::step], point.state[::step], problem.rows.s[::step]


def _exact(problem: NewtonProblem, point: NewtonPoint) -> Callable[[Array], Array]:
    """The Hessian on a sample of rows, factorised after scaling to unit diagonal."""
    m, k = problem.d + 1, problem.k
    X, state, s = _sample(problem, point, max(SAMPLE_ROWS, 40 * problem.d))
    weight = s / s.sum()
    H = np.zeros((k, m, k, m))
    for a in range(k):
        for c in range(a, k):
            if k == 1:
                h = state[:, 0] * weight
            else:
                h = weight * state[:, a] * ((a == c) - state[:, c])
            H[a, :, c, :] = bordered_gram(X, h, problem.intercept)
            H[c, :, a, :] = H[a, :, c, :].T
    if k > 1:
        # Equal changes of all classes cancel: no curvature, and no gradient either. Any
        # curvature there leaves the direction as it is and the matrix definite.
        each = np.arange(m)
        free = np.einsum("ajaj->j", H) / k**2
        H[:, each, :, each] += free[:, None, None]
    H = H.reshape(k * m, k * m)
    penalty = np.tile(np.append(np.full(problem.d, problem.l2), 0.0), k)
    H.flat[:: k * m + 1] += penalty
    apply = symmetric_inverse(H, pivot=1e-6, kept=1e-13)

    def precondition(R: Array) -> Array:
        return apply(R.T.ravel()).reshape(k, m).T

    return precondition


def _kronecker(problem: NewtonProblem, point: NewtonPoint) -> Callable[[Array], Array]:
    """(mean curvature) ⊗ (second moments of X) + l2, inverted by eigenvectors."""
    X, state, s = _sample(problem, point, max(SAMPLE_ROWS, 40 * problem.d))
    if problem.moments is None:  # they do not change with the iterate
        weight = s / s.sum()
        problem.moments = np.linalg.eigh(bordered_gram(X, weight, problem.intercept))
    outer, Q = problem.moments
    inner, R = np.linalg.eigh(mean_curvature(problem.loss, state, s))
    grid = np.outer(np.maximum(outer, 0.0), np.maximum(inner, 0.0)) + problem.l2
    grid[grid <= 1e-12 * grid.max()] = np.inf  # directions without curvature

    def precondition(V: Array) -> Array:
        return Q @ ((Q.T @ V @ R) / grid) @ R.T

    return precondition


def _diagonal(problem: NewtonProblem, point: NewtonPoint) -> Callable[[Array], Array]:
    one = problem.k == 1
    curvature = point.state[:, :1] if one else point.state * (1 - point.state)
    h = problem.rows.s[:, None] * curvature / problem.rows.total
    X = problem.rows.X
    if problem.sparse:
        squares = np.asarray(X.multiply(X).T @ h)
    else:
        squares = np.zeros((problem.d, problem.k))
        block = 1 + (1 << 20) // max(1, problem.d)
        for i in range(0, problem.n, block):
            squares += (
                np.square(X[i : i + block], dtype=np.float64).T @ h[i : i + block]
            )
    D = np.vstack([squares + problem.l2, h.sum(axis=0)])
    D[1e-12 * D.max() >= D] = np.inf
    return lambda V: V / D
