"""A step on all free variables at once, when there are too many to factor.

Working sets of a thousand converge slowly once several thousand variables are free:
each set moves against the others. Here the quadratic is minimised over all of them,
bounds ignored, by conjugate gradients on the rows in the store; the result is brought
back into the box, and taken if it lowers the objective.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg

from certus.typing import Array

#: Most products with the kernel in one step.
MOST = 25
#: Rows whose kernel columns precondition: K ≈ LLᵀ + level·I (Nyström).
LANDMARKS = 500
#: Share of the gradient that conjugate gradients may leave.
LEAVE = 0.3


class Face:
    """Steps on the free variables of one problem; landmarks are found once."""

    def __init__(self, box: Any) -> None:
        few = np.unique(np.linspace(0, box.rows.n - 1, LANDMARKS).astype(int))
        slots = box.rows.fetch(few)
        columns = box.rows.store[slots].T.astype(np.float64)
        values, vectors = linalg.eigh(columns[few], check_finite=False)
        keep = values > 1e-6 * values.max()
        self.L = columns @ (vectors[:, keep] / np.sqrt(values[keep]))
        own = np.diagonal(columns[few])
        covered = np.einsum("ij,ij->i", self.L, self.L)
        self.level = max(float(np.mean(own)) - float(np.mean(covered)), 1e-3)
        self.box = box

    def preconditioner(self, free: Array) -> Any:
        """The map r ↦ (LLᵀ + level·I)⁻¹r on the free variables, kept to Σ = 0."""
        L = self.L[self.box.row[free]]
        inner = L.T @ L
        inner.flat[:: len(inner) + 1] += self.level
        core = linalg.cho_factor(inner, check_finite=False)

        def invert(r: Array) -> Array:
            return (r - L @ linalg.cho_solve(core, L.T @ r)) / self.level

        ones = invert(np.ones(len(free)))
        share = ones / ones.sum()

        def apply(r: Array) -> Array:
            x = invert(r)
            return np.asarray(x - x.sum() * share)

        return apply


def face_step(face: Face, beta: Array, f: Array) -> bool:
    """Change β and f = Kβ by a step that lowers the objective; False if none does."""
    box = face.box
    free = np.flatnonzero((beta > box.low) & (beta < box.high))
    v = box.target[free] - f[box.row[free]]
    d = _descend(box, free, v, face.preconditioner(free))
    for scale in (1.0, 0.25, 0.05):
        new = _into_box(beta[free] + scale * d, box.low[free], box.high[free])
        change = new - beta[free]
        pushed = _product(box, free, change)
        gain = float(v @ change) - float(change @ pushed[box.row[free]]) / 2
        if gain > 0.0:
            beta[free] = new
            f += pushed
            return True
    return False


def _product(box: Any, free: Array, d: Array) -> Array:
    """K d for all rows, from the store."""
    coef = np.bincount(box.row[free], weights=d, minlength=box.rows.n)
    index = np.flatnonzero(coef)
    out = np.zeros(box.rows.n)
    if len(index):
        box.rows.add(index, coef[index], out)
    return out


def _descend(box: Any, free: Array, v: Array, precondition: Any) -> Array:
    """Conjugate gradients for ½dᵀKd − vᵀd with Σd = 0."""
    d = np.zeros(len(free))
    residual = v
    z = precondition(residual)
    direction, rho = z, float(residual @ z)
    limit = LEAVE**2 * rho
    for _ in range(MOST):
        pushed = _product(box, free, direction)[box.row[free]]
        curvature = float(direction @ pushed)
        if curvature <= 0.0:
            break
        step = rho / curvature
        d += step * direction
        residual = residual - step * pushed
        z = precondition(residual)
        rho, last = float(residual @ z), rho
        if rho <= limit:
            break
        direction = z + (rho / last) * direction
    return d


def _into_box(goal: Array, low: Array, high: Array) -> Array:
    """The nearest point with low ≤ x ≤ high and the same sum as before the step.

    Free variables sum to minus the bounded ones, before and after: the shift μ in
    clip(goal − μ) is found by bisection.
    """
    total = float(goal.sum())
    reach = float(np.abs(goal).max()) + float((high - low).max())
    left, right = -reach, reach
    for _ in range(80):
        middle = (left + right) / 2
        if np.clip(goal - middle, low, high).sum() > total:
            left = middle
        else:
            right = middle
    x = np.clip(goal - (left + right) / 2, low, high)
    inside = (x > low) & (x < high)
    room = np.where(inside, np.minimum(x - low, high - x), 0.0)
    k = int(np.argmax(room))
    drift = float(x.sum()) - total
    if abs(drift) < room[k]:
        x[k] -= drift
    return x
