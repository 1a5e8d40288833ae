"""When a likelihood has no maximum: directions along which it rises for ever.

Classes: a direction (w, b) ≠ 0 with yᵢ(xᵢᵀw + b) ≥ 0 for every row, and > 0 for one,
lowers the logistic loss for ever (softmax: z_y − z_k ≥ 0 for every k). Counts: ≤ 0
where y = 0, ≥ 0 where y is at its most, = 0 between, and not 0 for one row: a cell of
counts at their limit. The direction is the witness; checking it takes one pass,
finding it a linear programme. Rows that should not move may do so by their own
rounding alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import null_space
from scipy.optimize import linprog

from certus import terms as t
from certus.certificate import Claim
from certus.verify.deciding import refused
from certus.verify.kernel.gap import Problem
from certus.verify.kernel.losses import one_hot
from certus.verify.kernel.reading import Array
from certus.verify.kernel.spaces import UNIT
from certus.verify.stating import Given

#: Cells of X that are looked at, at most, when rows between the limits must not move.
CELLS = 20_000_000


def limits(loss: Any, y: Array) -> tuple[Array, Array]:
    """Rows whose score may fall for ever (y at its least), and those that may rise."""
    if isinstance(loss, t.Logistic):
        return y < 0, y > 0
    top = loss.trials if isinstance(loss, t.Binomial) else np.inf
    return y == 0, y == top


def _moves(p: Problem, X: Any, way: Array) -> tuple[Array, Array]:
    """What must not be negative along a direction (d + 1, k), and its own rounding."""
    z = np.asarray(X @ way[:-1]) + way[-1]
    own = np.asarray(abs(X) @ np.abs(way[:-1])) + np.abs(way[-1])
    own = 2 * (X.shape[1] + 4) * UNIT * own
    if isinstance(p.loss, t.Softmax):
        at = p.y[:, None]
        ahead, its_own = (np.take_along_axis(each, at, axis=1) for each in (z, own))
        return ahead - z, its_own + own
    z, (fall, rise) = z[:, 0], limits(p.loss, p.y)
    return np.where(rise, z, np.where(fall, -z, -np.abs(z))), own[:, 0]


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


def refuse(p: Problem, given: Given, penalised: bool, objective: str) -> Claim | None:
    """A REFUSED claim with its direction, if one can be shown."""
    what, fix = "the classes are separated", "any finite C"
    theorem = "along a direction that separates the classes the likelihood rises for "
    theorem += "ever, so it has no maximum"
    if isinstance(p.loss, t.Poisson | t.Binomial):
        what = "a cell of counts at their limit lies"
        fix = "alpha > 0, or drop what tells these rows from the others"
        theorem = "along this direction the scores of rows whose count is at its limit "
        theorem += "run away and no other changes: the likelihood rises for ever"
    for way in _tries(p, given, penalised):
        if holds(p, p.space.given.astype(np.float64, copy=False), way):
            flat = np.asarray(way, dtype=float).T.ravel()
            shown = ", ".join(f"{x:.2g}" for x in flat[:4] / np.abs(flat).max())
            shown += ", …" if flat.size > 4 else ""
            return refused(
                "stationarity",
                f"no minimiser exists: {what} along (w, b) ∝ ({shown})",
                fix,
                objective=objective,
                theorem=theorem,
            )
    return None


def _tries(p: Problem, given: Given, penalised: bool) -> Iterator[Any]:
    """A penalty leaves only the intercept to run away: every count zero, or all full.

    Without one the witness is tried, the coefficients themselves for classes, and at
    last the direction that a search finds.
    """
    classes = isinstance(p.loss, t.Logistic | t.Softmax)
    if p.free and not classes:
        for rows, step in zip(limits(p.loss, p.y), (-1.0, 1.0)):
            if rows.all():
                yield np.append(np.zeros(p.space.width), step)
    if penalised:
        return
    if given.witness.direction is not None:
        yield given.witness.direction
    if classes:
        yield np.vstack([p.w.reshape(p.space.width, -1), np.atleast_2d(p.b)])
    if given.level == "full":
        yield from _search(p)


def _search(p: Problem) -> Iterator[Array]:
    """Maximise the sum of all moves over the unit box; whatever is found is checked."""
    A = sparse.csr_array(p.space.given).astype(np.float64)
    if p.free:
        A = sparse.hstack([A, np.ones((len(p.y), 1))], format="csr")
    scale = abs(A).max(axis=0).toarray().ravel()
    scale = np.where(scale > 0, scale, 1.0)
    A, k = A @ sparse.diags_array(1 / scale), 1
    if isinstance(p.loss, t.Softmax):
        k = p.loss.n_classes
        own = one_hot(p.y, k).T
        ahead = [[own[c] - (c == j) for c in range(k)] for j in range(k)]  # z_y − z_j
        M = sparse.block_array([[sparse.diags_array(x) @ A for x in r] for r in ahead])
        stay = np.zeros(len(p.y), dtype=bool)
    else:
        fall, rise = limits(p.loss, p.y)
        M = sparse.diags_array(rise * 1.0 - fall) @ A
        stay = ~(fall | rise)
    space: Any = sparse.eye_array(M.shape[1])
    if stay.any():
        if A.shape[0] * A.shape[1] > CELLS:
            return
        space = null_space(np.linalg.qr(A[stay].toarray(), mode="r"), rcond=1e-11)
    M = M @ space
    if not M.shape[1]:
        return
    total = np.asarray(M.sum(axis=0)).ravel()
    found = linprog(-total, A_ub=-M, b_ub=np.zeros(M.shape[0]), bounds=(-1, 1))
    if found.x is None or not -found.fun > 1e-9:
        return
    way = (space @ found.x).reshape(k, -1).T
    way[np.abs(way) < 1e-10 * np.abs(way).max()] = 0.0
    way = way / scale[:, None]
    yield way if p.free else np.vstack([way, np.zeros(k)])
