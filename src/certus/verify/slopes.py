"""A dual point for losses with kinks, when nobody left one.

Away from a kink the slope of the loss is the dual point; at a kink any slope between
the two sides is allowed, and the right one is what a solver finds. From scores alone
the verifier chooses those of the rows nearest to a kink: absolute and quantile losses
by a small linear system, hinge and tube by a quadratic over a box. Whatever comes out
is moved into the domain by the kernel, so that the bound holds; only its tightness
depends on how well this goes.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog, lsq_linear, minimize

from certus import terms as t
from certus.verify.data import dense, t_dot
from certus.verify.kernel import losses
from certus.verify.kernel.gap import Problem, columns
from certus.verify.kernel.reading import Array

#: Rows whose slopes are chosen, by level.
ROWS = {"quick": 300, "full": 2_000}
#: Most rows on the kink for which a system is solved.
MOST_ROWS = 1_000
#: Distance from the kink that counts as on it, as a share of the mean residual.
NEAR = 1e-8


def scores(p: Problem) -> Array:
    """The scores z = Xw + b."""
    z = p.space.look(columns(p.w), p.b, None).z
    return z if p.w.ndim == 2 else z[:, 0]


def chosen_dual(p: Problem, level: str) -> Array:
    """Slopes at z, better ones where z is near a kink."""
    z, penalty = scores(p), p.penalty
    u = np.asarray(losses.row_of(p.loss).slope(p.loss, p.y, z), dtype=float)
    if not isinstance(penalty, t.NoPenalty | t.L1 | t.L2 | t.ElasticNet):
        return u
    alpha = getattr(penalty, "alpha", 0.0)
    l1 = getattr(penalty, "l1", alpha * isinstance(penalty, t.L1))
    l2 = getattr(penalty, "l2", alpha * isinstance(penalty, t.L2))
    if isinstance(p.loss, t.Absolute | t.Quantile) and not p.space.constant:
        return _on_kink(p, z, u, l1, l2)
    if isinstance(p.loss, t.Hinge | t.EpsilonInsensitive) and l2 and not (l1 or p.free):
        return _near_kink(p, z, u, l2, level)
    return u


def _pulled(p: Problem, u: Array) -> Array:
    """Xᵀ(su)/Σs."""
    return t_dot(p.space.given, p.space.s * u / p.space.total)


# -- absolute and quantile losses -------------------------------------------------


def _on_kink(p: Problem, z: Array, u: Array, l1: float, l2: float) -> Array:
    """A u with Xᵀ(s∘u)/Σs near −∂Ω(w)."""
    s = p.space.s / p.space.total
    r = np.abs(p.y - z)
    size = float(np.abs(z).max(initial=0.0) + np.abs(p.y).max(initial=0.0))
    reach = max(NEAR * float(s @ r), 64 * float(np.finfo(float).eps) * size)
    on = np.flatnonzero(r <= reach)
    if not 0 < len(on) <= MOST_ROWS:
        return u
    u[on] = 0.0
    A = dense(p.space.given[on]).T * s[on]
    goal = -l1 * np.sign(p.w) - l2 * p.w - _pulled(p, u)
    slack = np.where(p.w == 0, l1, 0.0)
    if p.free:
        A, goal = np.vstack([A, s[on]]), np.append(goal, -float(s @ u))
        slack = np.append(slack, 0.0)
    size_of = np.linalg.norm(A, axis=1)
    keep = size_of > 0
    A, goal, slack = (v[keep].T / size_of[keep] for v in (A, goal, slack))
    if keep.any():
        u[on] = _between(A.T, goal, slack, *losses.row_of(p.loss).domain(p.loss, p.y))
    return u


def _between(A: Array, goal: Array, slack: Array, low: float, high: float) -> Array:
    """A u in [low, high] with abs(Au − goal) ≤ slack, as nearly as it can be had."""
    exact = slack == 0
    # The smallest u: rows that are copies of one another get the same.
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


def _near_kink(p: Problem, z: Array, u: Array, l2: float, level: str) -> Array:
    """Slopes on the rows nearest to a kink that make the gap smallest.

    Between 0 and the outer slope ±1 the excess is linear in u, and its two ends add up
    to the distance of z from the kink.
    """
    row, constant = losses.row_of(p.loss), p.space.constant
    s = p.space.s / p.space.total
    outer = -p.y if isinstance(p.loss, t.Hinge) else np.where(z >= p.y, 1.0, -1.0)
    inner = -outer if getattr(p.loss, "epsilon", None) == 0.0 else 0 * outer
    at_zero, at_outer = (
        row.excess(p.loss, p.y, z, row.natural_of(p.loss, p.y, end))[0]
        for end in (0 * outer, outer)
    )
    count = min(ROWS[level], len(s), 4 * (p.space.width + 1))
    rows = np.sort(np.argpartition(at_zero + at_outer, count - 1)[:count])
    rest = u.copy()
    rest[rows] = 0.0
    v = np.append(_pulled(p, rest), constant * float(s @ rest))
    A = (
        np.column_stack([dense(p.space.given[rows]), np.full(count, constant)])
        * s[rows, None]
    )
    w = p.w if constant else np.append(p.w, 0.0)
    c = A @ (w + v / l2) + (s * (at_outer - at_zero) * outer)[rows]
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
    u[rows] = np.clip(found.x, *ends)
    return u
