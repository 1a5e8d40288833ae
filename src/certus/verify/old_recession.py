"""When a likelihood of counts has no maximum: directions that recede for ever.

Poisson counts: along (w, b) with xᵀw + b ≤ 0 where y = 0 and = 0 where y > 0, < 0 for
one row, the loss of that row falls for ever and no other changes: a cell of zero
counts. Binomial counts: ≤ 0 where y = 0, ≥ 0 where y = trials, = 0 between. The
direction is the witness; checking it takes one pass, finding it a linear programme.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linprog

from certus import terms as t
from certus.certificate import Claim, Strength
from certus.verify import data
from certus.verify.data import Array

#: Cells of X that are looked at, at most, when a direction is searched for.
CELLS = 20_000_000


def free_rows(loss: t.Loss, y: Array) -> tuple[Array, Array]:
    """Rows that may fall (y at its least) and rows that may rise (y at its most)."""
    top = loss.trials if isinstance(loss, t.Binomial) else np.inf
    return y == 0, y == top


def recedes(X: Any, y: Array, s: Array, loss: t.Loss, direction: Array) -> bool:
    """Whether ``direction`` (w, b last) proves that no minimiser exists."""
    direction = np.asarray(direction, dtype=float).ravel()
    if not np.all(np.isfinite(direction)) or len(direction) != X.shape[1] + 1:
        return False
    used = s > 0
    change = (data.dot(X, direction[:-1]) + direction[-1])[used]
    fall, rise = (rows[used] for rows in free_rows(loss, y))
    # By how much each row goes where it must not, and the most it goes where it may.
    wrong = np.where(fall, change, np.where(rise, -change, np.abs(change)))
    gain = float(np.max(np.where(fall, -change, np.where(rise, change, 0.0))))
    unit = 64 * float(np.finfo(float).eps)
    reach = float(np.max(np.abs(direction[:-1]) * data.magnitudes(X), initial=0.0))
    if not gain > 1e3 * unit * (reach + abs(direction[-1])):
        return False
    below = np.flatnonzero(wrong > 0)
    if not below.size:
        return True
    rows = X[np.flatnonzero(used)[below]]
    own = data.dot(abs(rows), np.abs(direction[:-1])) + abs(direction[-1])
    return bool(np.all(wrong[below] <= unit * own))


def receding_direction(
    X: Any, y: Array, s: Array, loss: t.Loss, free: bool
) -> list[Array]:
    """Directions to try: in the null space of the rows that must not move."""
    used = s > 0
    X, y = X[used], y[used]
    n, d = X.shape
    if n * (d + 1) > CELLS:
        return []
    A = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)
    A = np.hstack([A, np.full((n, 1), 1.0 if free else 0.0)])
    scale = np.abs(A).max(axis=0)
    A = A / np.where(scale > 0, scale, 1.0)
    fall, rise = free_rows(loss, y)
    space = _null_space(A[~(fall | rise)], d + 1)
    if not free:
        space = space[:, np.abs(space[-1]) < 1e-9]
    moving = np.vstack([A[fall], -A[rise]]) @ space
    if space.shape[1] == 0 or len(moving) == 0:
        return []
    found = linprog(
        moving.sum(axis=0),
        A_ub=moving,
        b_ub=np.zeros(len(moving)),
        bounds=[(-1, 1)] * space.shape[1],
        method="highs",
    )
    if found.x is None or not found.fun < -1e-9:
        return []
    direction = space @ found.x
    direction[np.abs(direction) < 1e-10 * np.abs(direction).max()] = 0.0
    return [direction / np.where(scale > 0, scale, 1.0)]


def _null_space(A: Array, d: int) -> Array:
    """Orthonormal columns that no row of A sees, entries of pure rounding removed."""
    if not len(A):
        return np.eye(d)
    R = np.linalg.qr(A, mode="r") if len(A) > d else A
    _, sizes, V = np.linalg.svd(R, full_matrices=True)
    rank = int(np.sum(sizes > 1e-11 * max(float(sizes.max(initial=0.0)), 1e-300)))
    return np.asarray(V[rank:].T)


def refuse_counts(
    X: Any,
    y: Array,
    s: Array,
    loss: t.Loss,
    free: bool,
    penalised: bool,
    witness: Array | None,
    search: bool,
    objective: str,
) -> Claim | None:
    """A REFUSED claim with its direction, if one can be shown.

    A penalty leaves only the intercept to run away: every count zero, or all full.
    """
    constant = np.zeros(X.shape[1] + 1)
    constant[-1] = 1.0
    fall, rise = (rows[s > 0].all() for rows in free_rows(loss, y))
    candidates = []
    if free and (fall or rise):
        candidates = [-constant if fall else constant]
    if not penalised:
        candidates += [] if witness is None else [np.asarray(witness).ravel()]
        candidates += receding_direction(X, y, s, loss, free) if search else []
    for direction in candidates:
        if (not free and direction[-1] != 0) or not recedes(X, y, s, loss, direction):
            continue
        shown = direction / float(np.abs(direction).max())
        text = ", ".join(f"{v:.2g}" for v in shown[:4])
        more = ", …" if shown.size > 4 else ""
        return Claim(
            "stationarity",
            Strength.REFUSED,
            objective=objective,
            theorem="along this direction the scores of rows whose count is at its "
            "limit run away and no other changes: the likelihood rises for ever",
            detail="no minimiser exists: a cell of counts at their limit lies along "
            f"(w, b) ∝ ({text}{more})",
            fix="alpha > 0, or drop what tells these rows from the others",
        )
    return None
