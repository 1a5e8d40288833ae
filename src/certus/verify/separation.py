"""When a likelihood has no maximum: directions along which it rises forever.

Classes: a direction (w, b) ≠ 0 with yᵢ(xᵢᵀw + b) ≥ 0 for every row, and > 0 for one,
lowers the logistic loss forever (softmax: z_y − z_k ≥ 0 for every k). Counts: ≤ 0
where y = 0, ≥ 0 where y is at its most, = 0 between, and not 0 for one row: a cell of
counts at their limit. The direction is the witness, and checking it takes one pass;
at level "full" a search may find one by a linear programme. Rows that should not move
may do so by their own rounding alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from certus.certificate import Claim
from certus.objectives import terms as t
from certus.searches import directions
from certus.typing import Array, ArrayLike, Matrix
from certus.verify.deciding import refused
from certus.verify.kernel.gap import Problem
from certus.verify.kernel.losses import one_hot
from certus.verify.kernel.spaces import UNIT
from certus.verify.stating import Given


def limits(loss: t.Loss, y: Array) -> tuple[Array, Array]:
    """Rows whose score may fall forever (y at its least), and those that may rise."""
    if isinstance(loss, t.Logistic):
        return y < 0, y > 0
    top = loss.trials if isinstance(loss, t.Binomial) else np.inf
    return y == 0, y == top


def _moves(p: Problem, X: Matrix, way: Array) -> tuple[Array, Array]:
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


def holds(p: Problem, X: Matrix, way: ArrayLike) -> bool:
    """Whether a direction proves that no minimiser exists, up to rounding."""
    way = np.asarray(way)
    way = way[:, None] if way.ndim == 1 else way
    k = p.loss.n_classes if isinstance(p.loss, t.Softmax) else 1
    numbers = way.dtype.kind in "fiu" and way.shape == (X.shape[1] + 1, k)
    if not numbers or not np.isfinite(way).all():
        return False
    if not p.free and way[-1].any():
        return False  # it moves an intercept that the model does not have
    with np.errstate(over="ignore", invalid="ignore"):
        moves, own = _moves(p, X, way.astype(float))
    most = float(np.max(moves - 1e3 * own, initial=-np.inf))
    return bool(np.isfinite(moves).all() and np.all(moves >= -own) and most > 0)


def refuse(p: Problem, given: Given, penalised: bool, objective: str) -> Claim | None:
    """A REFUSED claim with its direction, if one can be shown."""
    what, fix = "the classes are separated", "set a finite C"
    theorem = "along a direction that separates the classes the likelihood keeps "
    theorem += "rising, so it has no maximum"
    if isinstance(p.loss, t.Poisson | t.Tweedie | t.Binomial):
        what = "a group of rows whose counts are at their limit lies"
        fix = "set alpha > 0, or drop the columns that separate these rows"
        theorem = "along this direction the scores of rows whose count is at its limit "
        theorem += "grow, no others change, and the likelihood keeps rising"
    for way in _tries(p, given, penalised):
        if holds(p, p.space.given.astype(np.float64, copy=False), way):
            flat = np.asarray(way, dtype=float).T.ravel()
            shown = ", ".join(f"{x:.2g}" for x in flat[:4] / np.abs(flat).max())
            shown += ", …" if flat.size > 4 else ""
            return refused(
                "stationarity",
                f"there is no minimum: {what} along (w, b) ∝ ({shown})",
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
        X = p.space.given
        if isinstance(p.loss, t.Softmax):
            found = directions.separating(X, p.free, one_hot(p.y, p.loss.n_classes))
        else:
            found = directions.receding(X, p.free, *limits(p.loss, p.y))
        if found is not None:
            yield found
