"""A dual point for hinge and tube losses when nobody left one.

Away from a kink the slope of the loss is the dual point; at a kink any slope between
the two sides is allowed, and the right one is what a solver finds. From scores alone
the verifier takes the rows nearest to a kink and chooses their slopes so that the dual
value is largest: a small quadratic over a box. Whatever comes out is feasible, so the
bound holds; only its tightness depends on how well this goes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize

from certus import terms as t
from certus.verify import data
from certus.verify.data import Array

#: Rows whose slopes are chosen, by level.
ROWS = {"quick": 300, "full": 2_000}


def _nearest(loss: Any, y: Array, z: Array) -> tuple[Array, Array, Array, Array]:
    """Distance to the nearest kink, bounds of u there, and the slope of ℓ*(u)."""
    one, zero = np.ones(len(y)), np.zeros(len(y))
    if isinstance(loss, t.Hinge):
        low, high = np.where(y > 0, -one, zero), np.where(y > 0, zero, one)
        return np.abs(loss.margin - y * z), low, high, loss.margin * y
    epsilon = float(loss.epsilon)
    above = z >= y
    distance = np.abs(np.abs(z - y) - epsilon)
    if epsilon == 0.0:
        return distance, -one, one, y
    low, high = np.where(above, zero, -one), np.where(above, one, zero)
    return distance, low, high, y + np.where(above, epsilon, -epsilon)


def sharpen(
    loss: t.Hinge | t.EpsilonInsensitive,
    l2: float,
    X: Any,
    y: Array,
    s: Array,
    z: Array,
    u: Array,
    constant: float,
    level: str,
) -> Array:
    """Replace the slopes u on the rows nearest to a kink by better ones.

    ``constant`` is the size of the intercept's column, 0 for none. A free intercept
    would ask for Σ s·u = 0 as well, which this does not do.
    """
    distance, low, high, slope = _nearest(loss, y, z)
    distance = np.where(s > 0, distance, np.inf)
    count = min(ROWS[level], int((s > 0).sum()), 4 * (X.shape[1] + 1))
    rows = np.sort(np.argpartition(distance, count - 1)[:count])
    total = float(s.sum())
    rest = u.copy()
    rest[rows] = 0.0
    v = np.append(data.t_dot(X, s * rest), constant * float(s @ rest)) / total
    part = X[rows]
    part = part.toarray() if hasattr(part, "toarray") else part
    A = np.column_stack([np.asarray(part, dtype=float), np.full(count, constant)])
    A *= (s[rows] / total)[:, None]
    K = A @ A.T / l2
    c = A @ v / l2 + s[rows] * slope[rows] / total
    unit = float(np.abs(c).max(initial=0.0)) or 1.0
    if not (np.isfinite(K).all() and np.isfinite(c).all()):
        return u

    def negative_dual(x: Array) -> tuple[float, Array]:
        Kx = K @ x
        return float(x @ Kx / 2 + c @ x) / unit, (Kx + c) / unit

    found = minimize(
        negative_dual,
        np.clip(u[rows], low[rows], high[rows]),
        jac=True,
        method="L-BFGS-B",
        bounds=np.column_stack([low[rows], high[rows]]),
        options={"maxiter": 300 if level == "quick" else 5_000, "ftol": 0.0},
    )
    better = u.copy()
    if np.isfinite(found.x).all():
        better[rows] = np.clip(found.x, low[rows], high[rows])
    return better
