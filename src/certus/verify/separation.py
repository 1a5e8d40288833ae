"""When a likelihood has no maximum: directions along which it rises for ever.

Classes: a direction (w, b) ≠ 0 with yᵢ(xᵢᵀw + b) ≥ 0 for every row, and > 0 for one,
lowers the logistic loss for ever (softmax: z_y − z_k ≥ 0 for every k). Counts: ≤ 0
where y = 0, ≥ 0 where y is at its most, = 0 between, and not 0 for one row: a cell of
counts at their limit. The direction is the witness; checking it takes one pass,
finding it a linear programme. Rows that should not move may do so by their own
rounding alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from certus import terms as t
from certus.certificate import Claim
from certus.verify.deciding import refused
from certus.verify.kernel.gap import Problem
from certus.verify.kernel.reading import Array
from certus.verify.kernel.spaces import UNIT

#: Cells of X that are looked at, at most, when a direction is searched for.
CELLS = 20_000_000


def matrix_of(p: Problem) -> Any:
    """X in float64, as it was given: dense or sparse."""
    X = p.space.given
    return X.astype(np.float64) if sparse.issparse(X) else np.asarray(X, dtype=float)


def _moves(p: Problem, X: Any, way: Array) -> tuple[Array, Array]:
    """What must not be negative along a direction (d + 1, k), and its own rounding."""
    z = np.asarray(X @ way[:-1]) + way[-1]
    own = np.asarray(abs(X) @ np.abs(way[:-1])) + np.abs(way[-1])
    own = 2 * (X.shape[1] + 4) * UNIT * own
    rows = np.arange(len(p.y))
    if isinstance(p.loss, t.Softmax):
        z, own = z[rows, p.y][:, None] - z, own[rows, p.y][:, None] + own
        others = np.ones(z.shape, dtype=bool)
        others[rows, p.y] = False
        return z[others], own[others]
    z, own = z[:, 0], own[:, 0]
    if isinstance(p.loss, t.Logistic):
        return p.y * z, own
    fall, rise = limits(p.loss, p.y)
    stay = ~(fall | rise)
    moves = np.where(fall, -z, z)
    return (
        np.concatenate([moves[~stay], -np.abs(z[stay])]),
        np.concatenate([own[~stay], own[stay]]),
    )


def limits(loss: Any, y: Array) -> tuple[Array, Array]:
    """Rows that may fall (y at its least) and rows that may rise (y at its most)."""
    top = loss.trials if isinstance(loss, t.Binomial) else np.inf
    return y == 0, y == top


def holds(p: Problem, X: Any, way: Any) -> bool:
    """Whether a direction proves that no minimiser exists, up to rounding."""
    way = np.asarray(way, dtype=float)
    way = way[:, None] if way.ndim == 1 else way
    k = p.loss.n_classes if isinstance(p.loss, t.Softmax) else 1
    if way.shape != (X.shape[1] + 1, k) or not np.isfinite(way).all():
        return False
    if not p.free and way[-1].any():
        return False  # it moves an intercept that the model does not have
    with np.errstate(over="ignore", invalid="ignore"):
        moves, own = _moves(p, X, way)
    most = float(np.max(moves - 1e3 * own, initial=-np.inf))
    return bool(np.isfinite(moves).all() and np.all(moves >= -own) and most > 0)


def refuse_classes(
    p: Problem, witness: Any, search: bool, objective: str
) -> Claim | None:
    """A REFUSED claim with the direction that separates, if one can be shown."""
    X = matrix_of(p)
    own = np.vstack([p.w.reshape(X.shape[1], -1), np.atleast_2d(p.b)])
    tries = [own] if witness is None else [witness, own]
    if search:
        tries += _separating(p, X)
    for way in tries:
        if holds(p, X, way):
            return refused(
                "stationarity",
                "no minimiser exists: the classes are separated along "
                f"(w, b) ∝ ({_shown(way)})",
                "any finite C",
                objective=objective,
                theorem="along a direction that separates the classes the likelihood "
                "rises for ever, so it has no maximum",
            )
    return None


def refuse_counts(
    p: Problem, witness: Any, penalised: bool, search: bool, objective: str
) -> Claim | None:
    """A REFUSED claim with its direction, if one can be shown.

    A penalty leaves only the intercept to run away: every count zero, or all full.
    """
    fall, rise = (rows.all() for rows in limits(p.loss, p.y))
    constant = np.zeros(p.space.width + 1)
    constant[-1] = -1.0 if fall else 1.0
    tries = [constant] if p.free and (fall or rise) else []
    if not penalised:
        tries += [] if witness is None else [witness]
    if not tries and (penalised or not search):
        return None
    X = matrix_of(p)
    if not penalised and search:
        tries += _receding(p, X)
    for way in tries:
        if holds(p, X, way):
            return refused(
                "stationarity",
                "no minimiser exists: a cell of counts at their limit lies along "
                f"(w, b) ∝ ({_shown(way)})",
                "alpha > 0, or drop what tells these rows from the others",
                objective=objective,
                theorem="along this direction the scores of rows whose count is at its "
                "limit run away and no other changes: the likelihood rises for ever",
            )
    return None


def _shown(way: Any) -> str:
    flat = np.asarray(way, dtype=float).T.ravel()
    flat = flat / max(float(np.abs(flat).max()), 1e-300)
    return ", ".join(f"{v:.2g}" for v in flat[:4]) + (", …" if flat.size > 4 else "")


# -- searches: whatever they find is checked --------------------------------------


def _separating(p: Problem, X: Any) -> list[Array]:
    """Maximise the sum of margins over the unit box; empty if nothing separates."""
    n, d = X.shape
    A = sparse.csr_array(X)
    scale = np.asarray(abs(A).max(axis=0).toarray()).ravel()
    scale = np.where(scale > 0, scale, 1.0)
    A = A @ sparse.diags_array(1 / scale)
    A = sparse.hstack([A, np.full((n, 1), 1.0 if p.free else 0.0)], format="csr")
    if isinstance(p.loss, t.Softmax):
        M, k = _class_differences(A, p.y, p.loss.n_classes), p.loss.n_classes
    else:
        M, k = sparse.diags_array(p.y.astype(float)) @ A, 1
    found = linprog(
        -np.asarray(M.sum(axis=0)).ravel(),
        A_ub=-M,
        b_ub=np.zeros(M.shape[0]),
        bounds=([(-1, 1)] * d + [(-1, 1) if p.free else (0, 0)]) * k,
        method="highs",
    )
    if found.x is None or not -found.fun > 1e-9:
        return []
    way = found.x.reshape(k, d + 1).T.copy()
    way[:-1] /= scale[:, None]
    return [way]


def _class_differences(A: Any, y: Array, n_classes: int) -> Any:
    """Rows z_y − z_k for every sample and other class k, as a sparse matrix."""
    blocks = []
    for k in range(n_classes):
        rows = np.flatnonzero(y != k)
        parts = [
            sparse.diags_array(((y[rows] == c) * 1.0) - (c == k)) @ A[rows]
            for c in range(n_classes)
        ]
        blocks.append(sparse.hstack(parts, format="csr"))
    return sparse.vstack(blocks, format="csr")


def _receding(p: Problem, X: Any) -> list[Array]:
    """Directions in the null space of the rows that must not move."""
    n, d = X.shape
    if n * (d + 1) > CELLS:
        return []
    A = np.asarray(X.toarray() if sparse.issparse(X) else X)
    A = np.hstack([A, np.full((n, 1), 1.0 if p.free else 0.0)])
    scale = np.abs(A).max(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    A = A / scale
    fall, rise = limits(p.loss, p.y)
    space = _null_space(A[~(fall | rise)], d + 1)
    if not p.free:
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
    way = space @ found.x
    way[np.abs(way) < 1e-10 * np.abs(way).max()] = 0.0
    return [way / scale]


def _null_space(A: Array, d: int) -> Array:
    """Orthonormal columns that no row of A sees, entries of pure rounding removed."""
    if not len(A):
        return np.eye(d)
    R = np.linalg.qr(A, mode="r") if len(A) > d else A
    _, sizes, V = np.linalg.svd(R, full_matrices=True)
    rank = int(np.sum(sizes > 1e-11 * max(float(sizes.max(initial=0.0)), 1e-300)))
    return np.asarray(V[rank:].T)
