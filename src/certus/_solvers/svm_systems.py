"""Newton systems of support vector machines, by whichever side is smaller.

    (levels + AᵀHA)·p = −g,   A the rows near a kink, H = s/(delta·Σs)

The matrix of columns where there are few, the inner products of the rows where those
are fewer, conjugate gradients where both are many.
"""

from __future__ import annotations

import numpy as np

from certus._core.blas import symmetric_inverse
from certus._solvers.svm_problem import SvmProblem
from certus.typing import Array

#: Columns up to which the Newton matrix is formed, and rows for its dual form.
PRIMAL_SIDE = 2_000
DUAL_SIDE = 2_000
#: Rows near a kink beyond which a sample of them makes the Newton matrix.
SAMPLE_ROWS = 20_000


def newton_direction(
    problem: SvmProblem, inside: Array, g: Array, delta: float, forcing: float
) -> Array:
    """Solve the system; ``inside`` marks the rows near a kink."""
    rows = problem.rows
    members = np.flatnonzero(inside)
    h = rows.s[members] / (delta * rows.total)
    if not members.size:
        levels = problem.levels
        if problem.free:
            levels[-1] = np.inf  # nothing is curved in b, and its gradient is zero
        return np.asarray(-g / levels)
    few = members.size < rows.d // 2 and not (problem.free or problem.constant)
    if few and rows.d > 300 and members.size <= DUAL_SIDE:
        return _dual_direction(problem, members, h, g)
    if rows.d <= PRIMAL_SIDE:
        return _primal_direction(problem, members, h, g)
    return _conjugate_gradients(problem, members, h, g, forcing)


def _primal_direction(problem: SvmProblem, members: Array, h: Array, g: Array) -> Array:
    stride = members.size // max(SAMPLE_ROWS, 200 * problem.rows.d)
    if stride > 1:  # the direction need not be exact: the gradient is
        part = h[::stride]
        members, h = members[::stride], part * (h.sum() / part.sum())
    H = problem.rows.gram(members, h)
    H.flat[:: len(H) + 1] += problem.levels
    return -symmetric_inverse(H)(g)


def _dual_direction(problem: SvmProblem, members: Array, h: Array, g: Array) -> Array:
    """By the matrix of inner products of the rows, for more columns than rows."""
    rows = problem.rows
    A = rows.X[members].astype(np.float64)
    K = A @ A.T
    K = np.asarray(K.toarray() if rows.sparse else K) + rows.scale**2
    K /= problem.l2
    K.flat[:: len(K) + 1] += 1 / h
    Ag = np.asarray(A @ g[:-1]) + rows.scale * g[-1]
    x = symmetric_inverse(K)(Ag / problem.l2)
    p = -g.copy()
    p[:-1] += A.T @ x
    p[-1] += rows.scale * x.sum()
    return np.asarray(p / problem.l2)


def _conjugate_gradients(
    problem: SvmProblem, members: Array, h: Array, g: Array, forcing: float
) -> Array:
    """With a diagonal preconditioner, to a residual of ``forcing``."""
    rows, levels = problem.rows, problem.levels
    A = rows.X[members].astype(np.float64)
    squares = A.multiply(A).T @ h if rows.sparse else np.square(A).T @ h
    D = levels + np.append(np.asarray(squares), rows.scale**2 * h.sum())
    D[D <= 0.0] = np.inf

    def curve(v: Array) -> Array:
        bent = h * (np.asarray(A @ v[:-1]) + rows.scale * v[-1])
        return levels * v + np.append(A.T @ bent, rows.scale * bent.sum())

    x, r = np.zeros_like(g), -g
    y = r / D
    p, ry = y, float(r @ y)
    first = ry
    for _ in range(min(2 * len(g), 1_000)):
        Hp = curve(p)
        bend = float(p @ Hp)
        if not bend > 0.0:
            break
        a = ry / bend
        x, r = x + a * p, r - a * Hp
        y = r / D
        new = float(r @ y)
        if new <= forcing**2 * first:
            break
        p, ry = y + (new / ry) * p, new
    return x
