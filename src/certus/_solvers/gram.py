"""Quadratics with a penalty, on a Gram matrix: coordinate descent, then Newton."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import linalg

from certus._core.blas import cholesky
from certus._solvers.kernels import descend_gram
from certus._solvers.penalties import operation
from certus.typing import Array

#: Coordinate-descent epochs between two exact solves.
EPOCHS = 10


def solve_on_gram(
    G: Array,
    c: Array,
    w: Array,
    penalty: Any,
    done: Callable[[Array, Array], bool],
    rows: Array | None = None,
) -> bool:
    """Minimise ½wᵀGw − cᵀw + Ω(w) in place until ``done(w, Gw − c)``.

    Coordinate descent finds signs; once they settle, one linear system is exact for
    them, if the penalty has pieces. ``rows`` begin with G's, contiguous and perhaps in
    float32: the gradient then drifts by the rounding of the steps taken, and is
    computed from G itself from time to time. Returns whether anything moved.
    """
    size, rows = len(w), np.ascontiguousarray(G) if rows is None else rows
    g = G @ w - c
    floor = 1e-15 * float(np.abs(c).max(initial=0.0))
    signs, moved = np.zeros(size), False
    # An epoch costs size², the linear system support³/3: fewer epochs on large sets.
    epochs = max(3, EPOCHS * 300 // max(300, size))
    pieces = operation(penalty, "piece") is not None
    for turn in range(500):
        if turn % 10 == 9:
            np.subtract(G @ w, c, out=g)
        change, _ = descend_gram(penalty, rows, w, g, size, epochs, floor)
        moved = moved or change > 0
        if change <= floor or done(w, g):
            break
        now = np.sign(w)
        settled = np.array_equal(now, signs) or turn % 10 == 9
        if pieces and settled and _settle(G, c, w, g, penalty):
            np.subtract(G @ w, c, out=g)
            if done(w, g):
                break
            now = np.sign(w)
        signs = now
    return moved


def _settle(G: Array, c: Array, w: Array, g: Array, penalty: Any) -> bool:
    """Newton on the support: jump to the exact minimiser of its orthant.

    Signs that would flip are set to zero if that lowers the objective, else the step
    ends at the first of them. False where the system is too ill-conditioned.
    """
    support = np.flatnonzero(w)
    if not support.size:
        return False
    slope, l2 = operation(penalty, "piece")(penalty, np.sign(w))
    current, sign, slope = w[support], np.sign(w[support]), slope[support]
    M = G[np.ix_(support, support)]
    M.flat[:: len(M) + 1] += l2
    factor = cholesky(M)
    if factor is None:
        return False
    diagonal, own = np.diag(factor), np.sqrt(np.diag(M))
    if np.any(diagonal <= 1e-7 * own):
        return False
    goal, _ = linalg.lapack.dpotrs(factor, c[support] - slope, lower=0)
    flips = goal * sign <= 0
    if flips.any():
        clipped = np.where(flips, 0.0, goal)
        d = clipped - current
        bend = linalg.blas.dtrmv(factor, d)
        change = d @ (g[support] + l2 * current) + (bend @ bend) / 2 + slope @ d
        if change < 0:
            goal = clipped
        else:
            step = np.min(current[flips] / (current[flips] - goal[flips]))
            goal = current + step * (goal - current)
            goal[goal * sign <= 1e-14 * np.abs(current)] = 0.0
    w[support] = goal
    return True
