"""Dual points at kinks, and bounds for problems without a penalty.

At a kink the slope is an interval, and the coefficients do not tell which of its points
makes the bound tight. Any point gives a true bound; a good one solves a small linear
system over the rows that lie on the kink. Without a penalty a dual point must satisfy
Xᵀ(s∘u) = 0 exactly; the smallest change of X that brings this about has rank one, and
the bound then holds for the changed X.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linprog, lsq_linear

from certus import terms as t
from certus.verify import data
from certus.verify.data import Array
from certus.verify.formulas import LOSSES, split_penalty

#: Most rows on the kink for which the system is solved.
MOST_ROWS = 1_000
#: Distance from the kink that counts as on it, as a share of the mean residual.
NEAR = 1e-8


def kink_dual(
    loss: t.Loss,
    penalty: t.Penalty,
    X: Any,
    y: Array,
    s: Array,
    w: Array,
    z: Array,
    free: bool,
) -> Array:
    """A u with Xᵀ(s∘u)/Σs near −∂Ω(w), for the absolute and the quantile loss."""
    u = np.asarray(LOSSES[type(loss)].derivative(loss, y, z), dtype=float)
    low, high = (-1.0, 1.0)
    if isinstance(loss, t.Quantile):
        low, high = -loss.q, 1 - loss.q
    r = np.abs(y - z)
    eps = float(np.finfo(float).eps)
    reach = max(
        NEAR * float(s @ r) / float(s.sum()),
        64 * eps * float(np.abs(z).max(initial=0.0) + np.abs(y).max(initial=0.0)),
    )
    on = np.flatnonzero((r <= reach) & (s > 0))
    if not 0 < len(on) <= MOST_ROWS:
        return u
    u[on] = 0.0
    l1, l2 = split_penalty(penalty)
    total = float(s.sum())
    block = X[on]
    block = block.toarray() if hasattr(block, "toarray") else block
    A = np.asarray(block, dtype=float).T * s[on]
    goal = -total * (l1 * np.sign(w) + l2 * w) - data.t_dot(X, s * u)
    slack = np.where((w == 0) & (l1 > 0), total * l1, 0.0)
    if free:
        A, goal = np.vstack([A, s[on]]), np.append(goal, -float(s @ u))
        slack = np.append(slack, 0.0)
    size = np.linalg.norm(A, axis=1)
    keep = size > 0
    A, goal, slack = (v[keep].T / size[keep] for v in (A, goal, slack))
    if keep.any():
        u[on] = _between(A.T, goal, slack, low, high)
    return u


def _between(A: Array, goal: Array, slack: Array, low: float, high: float) -> Array:
    """A u in [low, high] with abs(Au − goal) ≤ slack, as nearly as it can be had."""
    exact = slack == 0
    # The smallest u: rows that are copies of one another get the same.
    found = np.linalg.lstsq(A[exact], goal[exact], rcond=1e-12)[0]
    inside = found.min() >= low and found.max() <= high
    if inside and np.all(
        np.abs(A @ found - goal) <= slack + 1e-12 * np.abs(goal).max()
    ):
        return np.asarray(found)
    B, c, room = A[~exact], goal[~exact], slack[~exact]
    programme = linprog(
        np.zeros(A.shape[1]),
        A_ub=np.vstack([B, -B]) if len(B) else None,
        b_ub=np.concatenate([c + room, room - c]) if len(B) else None,
        A_eq=A[exact] if exact.any() else None,
        b_eq=goal[exact] if exact.any() else None,
        bounds=(low, high),
        method="highs",
    )
    if programme.x is not None:
        return np.clip(programme.x, low, high)
    nearest = lsq_linear(A[exact], goal[exact], (low, high), method="bvls", tol=1e-14)
    return np.clip(nearest.x, low, high)


class Changed(NamedTuple):
    """What a dual point proves once X is changed so that it is feasible."""

    primal: float  # mean loss of (w, b) on X + E
    dual: float  # lower bound of its minimum
    unchanged: float  # mean loss of (w, b) on X; no loss is below 0
    size: float  # of what was added up, for rounding
    share: float  # ‖E‖/‖X‖, columns centred where the intercept is free
    lift: float  # rounding of that share, in units of eps


def changed(
    loss: t.Loss, X: Any, y: Array, s: Array, w: Array, z: Array, u: Array, free: bool
) -> Changed:
    """E = −u(uᵀSX)/‖u‖² makes (X + E)ᵀ(s∘u) = 0."""
    formulas, total = LOSSES[type(loss)], float(s.sum())
    v = data.t_dot(X, s * u)
    square = float((s * u) @ u)
    norm_X = data.spread(X, s, free)
    share = lift = 0.0
    unchanged = float(s @ formulas.value(loss, y, z)) / total
    if square > 0 and norm_X > 0:
        share = float(np.linalg.norm(v)) / (norm_X * float(np.sqrt(square)))
        columns = float(np.linalg.norm(data.magnitudes(X)))
        lift = max(1.0, float(np.sqrt(total)) * columns / norm_X)
        z = z - u * (float(v @ w) / square)
    losses = formulas.value(loss, y, z)
    conjugates = formulas.conjugate(loss, y, u)
    return Changed(
        float(s @ losses) / total,
        -float(s @ conjugates) / total,
        unchanged,
        float(s @ (np.abs(losses) + np.abs(conjugates))) / total,
        share,
        lift,
    )


def steepness(
    loss: t.Loss, penalty: t.Penalty, X: Any, y: Array, s: Array, w: Array, z: Array
) -> tuple[float, float]:
    """The gradient over its natural size, for a loss that need not be convex.

    Returns ‖Xᵀ(s∘u)/Σs + l2·w‖/(‖X‖‖u‖/Σs + l2‖w‖), and the mean of u over the root of
    its mean square.
    """
    u = LOSSES[type(loss)].derivative(loss, y, z)
    total, l2 = float(s.sum()), split_penalty(penalty)[1]
    norm_u = float(np.sqrt((s * u) @ u))
    reach = float(np.abs(y).max(initial=0.0) + np.abs(z).max(initial=0.0))
    noise = 64 * float(np.finfo(float).eps) * reach * float(np.sqrt(total))
    if norm_u <= noise and l2 == 0.0:  # the residuals are rounding
        return 0.0, 0.0
    size = data.spread(X, s, False) * norm_u / total + l2 * float(np.linalg.norm(w))
    slope = float(np.linalg.norm(data.t_dot(X, s * u) / total + l2 * w))
    drift = abs(float(s @ u)) / (norm_u * float(np.sqrt(total))) if norm_u else 0.0
    return slope / size if size > 0 else 0.0, drift
