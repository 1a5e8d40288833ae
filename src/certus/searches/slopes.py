"""Slopes for losses with kinks, when no solver stored any.

Away from a kink the slope of the loss is the dual point; at a kink any slope between
the two sides is allowed, and a solver finds the right one. Here the slopes of the rows
nearest to a kink are chosen from scores alone: for absolute and quantile losses by a
small linear system, for hinge and tube losses by a quadratic over a box, and for
Huber's loss with a scale by Newton steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linprog, lsq_linear, minimize

from certus.objectives import terms as t
from certus.typing import Array

#: Number of rows whose slopes are chosen, by level.
ROWS = {"quick": 300, "full": 2_000}
#: Most rows on the kink for which a system is solved.
MOST_ROWS = 1_000
#: Cells of X that are cast at a time.
CELLS = 1 << 18
#: Distance from the kink that counts as on it, as a share of the mean residual.
NEAR = 1e-8


class ScoredRows(NamedTuple):
    """Rows, their shares of the weight, and the scores of coefficients w on them."""

    X: Any
    s: Array  # their sum is one
    y: Array
    z: Array
    w: Array  # with that of the constant column, if there is one
    free: bool  # whether there is an intercept without a penalty
    constant: float = 0.0  # a further column of X


def chosen(loss: Any, penalty: Any, at: ScoredRows, u: Array, level: str) -> Array:
    """Slopes ``u`` of the loss, better ones where a score is near a kink."""
    if not isinstance(penalty, t.NoPenalty | t.L1 | t.L2 | t.L1L2):
        return u
    alpha = getattr(penalty, "alpha", 0.0)
    l1 = getattr(penalty, "l1", alpha * isinstance(penalty, t.L1))
    l2 = getattr(penalty, "l2", alpha * isinstance(penalty, t.L2))
    if isinstance(loss, t.Absolute | t.Quantile) and not at.constant:
        ends = (-1.0, 1.0) if isinstance(loss, t.Absolute) else (-loss.q, 1 - loss.q)
        return _on_kink(at, u, l1, l2, *ends)
    if isinstance(loss, t.Hinge | t.EpsilonInsensitive) and l2 and not (l1 or at.free):
        return _near_kink(loss, at, u, l2, level)
    return u


def _dense(X: Any) -> Array:
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)


def _pulled(at: ScoredRows, u: Array) -> Array:
    """Xᵀ(su), in float64; other dense X is cast a block at a time."""
    X, su = at.X, at.s * u
    if sparse.issparse(X) or X.dtype == np.float64:
        return np.asarray(X.T @ su, dtype=np.float64)
    step = max(1, CELLS // max(1, X.shape[1]))
    parts = (slice(i, i + step) for i in range(0, len(X), step))
    return np.asarray(sum(X[rows].astype(np.float64).T @ su[rows] for rows in parts))


# -- absolute and quantile losses -------------------------------------------------


def _on_kink(
    at: ScoredRows, u: Array, l1: float, l2: float, low: float, high: float
) -> Array:
    """A u with Xᵀ(su) near −∂Ω(w)."""
    s, r = at.s, np.abs(at.y - at.z)
    size = float(np.abs(at.z).max(initial=0.0) + np.abs(at.y).max(initial=0.0))
    reach = max(NEAR * float(s @ r), 64 * float(np.finfo(float).eps) * size)
    on = np.flatnonzero(r <= reach)
    if not 0 < len(on) <= MOST_ROWS:
        return u
    u = u.copy()
    u[on] = 0.0
    A = _dense(at.X[on]).T * s[on]
    goal = -l1 * np.sign(at.w) - l2 * at.w - _pulled(at, u)
    slack = np.where(at.w == 0, l1, 0.0)
    if at.free:
        A, goal = np.vstack([A, s[on]]), np.append(goal, -float(s @ u))
        slack = np.append(slack, 0.0)
    sizes = np.linalg.norm(A, axis=1)
    keep = sizes > 0
    A, goal, slack = (v[keep].T / sizes[keep] for v in (A, goal, slack))
    if keep.any():
        u[on] = _between(A.T, goal, slack, low, high)
    return u


def _between(A: Array, goal: Array, slack: Array, low: float, high: float) -> Array:
    """A u in [low, high] with abs(Au − goal) ≤ slack, or as close as possible."""
    exact = slack == 0
    # The smallest u: identical rows get the same.
    found = np.linalg.lstsq(A[exact], goal[exact], rcond=1e-12)[0]
    off = np.abs(A @ found - goal) - slack
    inside = low <= found.min() and found.max() <= high
    if inside and off.max() <= 1e-12 * np.abs(goal).max():
        return np.asarray(found)
    B, c, room = A[~exact], goal[~exact], slack[~exact]
    programme = linprog(
        np.zeros(A.shape[1]),
        A_ub=np.vstack([B, -B]),
        b_ub=np.concatenate([c + room, room - c]),
        A_eq=A[exact],
        b_eq=goal[exact],
        bounds=(low, high),
    )
    if programme.x is not None:
        return np.clip(programme.x, low, high)
    nearest = lsq_linear(A[exact], goal[exact], (low, high), method="bvls", tol=1e-14)
    return np.clip(nearest.x, low, high)


# -- hinge and tube ---------------------------------------------------------------


def _near_kink(loss: Any, at: ScoredRows, u: Array, l2: float, level: str) -> Array:
    """Slopes on the rows nearest to a kink that make the gap smallest.

    Between 0 and the outer slope ±1 the excess is linear in u, and its two ends differ
    by how far z is past the kink.
    """
    s, constant = at.s, at.constant
    if isinstance(loss, t.Hinge):
        outer, past = -at.y, loss.margin - at.y * at.z
    else:
        outer = np.where(at.z >= at.y, 1.0, -1.0)
        past = np.abs(at.z - at.y) - loss.epsilon
    inner = -outer if getattr(loss, "epsilon", None) == 0.0 else 0 * outer
    count = min(ROWS[level], len(s), 4 * (at.X.shape[1] + 1))
    rows = np.sort(np.argpartition(np.abs(past), count - 1)[:count])
    rest = u.copy()
    rest[rows] = 0.0
    v = np.append(_pulled(at, rest), constant * float(s @ rest))
    A = np.column_stack([_dense(at.X[rows]), np.full(count, constant)])
    A = A * s[rows, None]
    w = at.w if constant else np.append(at.w, 0.0)
    c = A @ (w + v / l2) - (s * past * outer)[rows]
    ends = np.sort([inner[rows], outer[rows]], axis=0)
    unit = float(np.abs(c).max(initial=0.0)) or 1.0
    if not (np.isfinite(A).all() and np.isfinite(c).all()):
        return u

    def gap(x: Array) -> tuple[float, Array]:
        slope = A @ (A.T @ x) / l2
        return float(x @ (slope / 2 + c)) / unit, (slope + c) / unit

    found = minimize(
        gap,
        np.clip(u[rows], *ends),
        jac=True,
        method="L-BFGS-B",
        bounds=ends.T,
        options={"maxiter": 300 if level == "quick" else 5_000, "ftol": 0.0},
    )
    rest[rows] = np.clip(found.x, *ends)
    return rest


# -- Huber's loss with a scale ----------------------------------------------------


def stepped(
    loss: Any, at: ScoredRows, strength: float, best: Callable[[Array], float]
) -> Array:
    """Slopes after a few Newton steps in b and columns X, at the best scale of each.

    With a weak penalty the bound is steep, so it needs slopes of a better point.
    ``best`` gives the scale for residuals.
    """
    d, s, epsilon, r = at.X.shape[1], at.s, loss.threshold, at.y - at.z
    X, ones = at.X, np.full((len(r), 1), float(at.free))
    A = sparse.hstack([X, ones]) if sparse.issparse(X) else np.hstack([X, ones])
    level, w = np.append(np.full(d, strength), 0.0), np.append(at.w[:d], 0.0)
    step, a = np.zeros(d + 1), np.zeros(len(r))
    for _ in range(4):
        there = r - A @ step
        scale = best(there) or 1.0
        a = np.clip(2 * there / scale, -2 * epsilon, 2 * epsilon)
        near = sparse.diags_array(2 / scale * s * (np.abs(there) <= epsilon * scale))
        H = A.T @ (near @ A)
        H = (H.toarray() if sparse.issparse(H) else H) + np.diag(level)
        slope = level * (w + step) - A.T @ (s * a)
        step = step - np.linalg.lstsq(H, slope, rcond=None)[0]
    return -a
