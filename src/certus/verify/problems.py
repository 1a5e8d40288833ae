"""A fitted linear model as convex problems of the kernel, in the model's normalisation.

One problem, one for each target or class, or one softmax: rows of positive weight,
targets, coefficients and a space that they share. Targets, labels and weights are read
again here; nothing is taken from the fit.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus.objectives import terms as t
from certus.searches import slopes
from certus.typing import Array, Column, Fit, Matrix, MatrixLike
from certus.verify.blocks import over_blocks
from certus.verify.kernel import losses, penalties, reading
from certus.verify.kernel.gap import Problem, columns
from certus.verify.kernel.losses import one_hot
from certus.verify.kernel.reading import Weights
from certus.verify.kernel.spaces import Space
from certus.verify.stated_linear import Statement


class Rows(NamedTuple):
    """The data of a statement: all rows, with targets as numbers and their weights."""

    X: Matrix
    y: Array  # numbers, or codes of labels
    given: Weights
    classes: Array  # none of a regression


def rows_of(
    model: Fit, stated: Statement, X: MatrixLike, y: Column, sample_weight: Column
) -> Rows:
    """X, targets and weights as the verifier reads them."""
    X = reading.as_matrix(X)
    n = X.shape[0]
    given = reading.weights(sample_weight, n)
    if stated.target in ("numbers", "tasks"):
        return Rows(X, reading.numbers(y, n), given, np.zeros(0))
    classes = np.asarray(model.classes_)
    rows = Rows(X, reading.codes(y, classes, n), given, classes)
    if stated.class_weight_on == "rows":
        rows = rows._replace(given=_weighed(stated, rows, np.arange(len(classes))))
    return rows


def _weighed(stated: Statement, rows: Rows, chosen: int | Array) -> Weights:
    """Row weights times those of the chosen classes."""
    if stated.class_weight is None:
        return rows.given
    each = reading.class_weights(
        *(stated.class_weight, rows.given, rows.y, rows.classes, stated.class_counts)
    )
    factors = np.ones(len(each))
    factors[chosen] = each[chosen]
    return reading.times_classes(rows.given, factors, rows.y)


def problems_of(model: Any, stated: Statement, rows: Rows, dual: Any) -> list[Problem]:
    """The problems whose solution the coefficients claim to be."""
    coef, intercept = reading.plain(model.coef_), reading.plain(model.intercept_)
    d = rows.X.shape[1]
    if coef.shape[-1:] != (d,):
        width = coef.shape[-1] if coef.ndim else 0
        raise ValueError(f"X has {d} columns, but the model was fitted on {width}.")
    coef, targets = coef.reshape(-1, d).astype(np.float64), targets_of(stated, rows)
    k = len(coef)
    if len(targets) != k:
        raise ValueError(f"y has {len(targets)} columns, but the model predicts {k}.")
    if intercept.size not in (1, k):
        raise ValueError(f"intercept_ has {intercept.size} values, but coef_ {k} rows.")
    b = np.broadcast_to(intercept.ravel().astype(np.float64), (k,))
    parts = list(zip(targets, coef, b[:, None], _columns(dual, (len(rows.y), k))))
    if stated.target in ("codes", "tasks"):  # one problem with k scores
        y = rows.y if stated.target == "codes" else np.column_stack(targets)
        parts = [(y, coef.T, b, None)]
    found, space = [], None
    for i, (y, w, b, u) in enumerate(parts):
        given = rows.given
        if stated.class_weight_on == "positives":
            given = _weighed(stated, rows, i)
        # Rows of weight zero may hold anything, and are left out.
        used: Any = slice(None) if given.s.all() else given.s > 0
        if space is None or given is not rows.given:
            X = rows.X if given.s.all() else rows.X[used]
            space = _space(stated, X, given.s[used])
        losses.check_targets(stated.loss, y[used])
        if space.constant:
            w, b = np.append(w, b[0] / space.constant), np.zeros(1)
        penalty, u = _penalty(stated, given, i), u if u is None else u[used]
        more = (y[used], w, b, stated.intercept == "free", u)
        found.append(Problem(stated.loss, penalty, space, *more))
    return found


def _space(stated: Statement, X: Matrix, s: Array) -> Space:
    scale = stated.scale if stated.intercept == "penalised" else 0.0
    if stated.intercept == "penalised" and not 0 < scale < np.inf:
        raise ValueError(f"intercept_scaling must be above 0, got {scale!r}.")
    return Space(X, s, stated.intercept == "free", scale, over_blocks)


def targets_of(stated: Statement, rows: Rows) -> list[Array]:
    """The target of each problem, on all rows."""
    k = len(rows.classes)
    match stated.target:
        case "codes":
            return [rows.y] * k
        case "signs" if k > 2:
            raise ValueError(f"y has {k} different labels, but this loss needs two.")
        case "signs":
            return [np.where(rows.y == 1, 1.0, -1.0)]
        case "one_vs_rest":
            return list(2 * one_hot(rows.y, k).T - 1)
    return list(np.ascontiguousarray(rows.y.reshape(len(rows.y), -1).T))


def _penalty(stated: Statement, given: Weights, k: int) -> Any:
    """Ω of problem k, for a loss that is a weighted mean."""
    penalty = stated.penalty
    if isinstance(penalty, list):
        if k >= len(penalty):
            raise ValueError(f"there are {len(penalty)} penalties, but more targets.")
        penalty = penalty[k]
    row = penalties.row_of(penalty)
    if stated.penalty_of == "mean":
        return penalty
    return row.scaled(penalty, given.level(1.0, rows=stated.penalty_of == "rows"))


def _columns(dual: Array | None, shape: tuple[int, int]) -> list[Array | None]:
    """Column k of a stated dual point for problem k; none where it cannot fit."""
    dual = np.asarray(np.zeros(0) if dual is None else dual)
    found = sound(dual.reshape(shape) if dual.size == math.prod(shape) else dual, shape)
    return [None] * shape[1] if found is None else list(found.T)


def scores(p: Problem) -> Array:
    """The scores z = Xw + b."""
    z = p.space.look(columns(p.w), p.b, None).z
    return z if p.w.ndim == 2 else z[:, 0]


def at(p: Problem, z: Array) -> slopes.ScoredRows:
    """The problem as a search sees it."""
    s = p.space.s / p.space.total
    return slopes.ScoredRows(p.space.given, s, p.y, z, p.w, p.free, p.space.constant)


def chosen_dual(p: Problem, level: str, z: Array | None = None) -> Array:
    """Slopes at scores z; at a kink a search may choose any slope between both sides.

    The kernel moves what comes back into the domain, so that the bound holds; only its
    tightness depends on how well the search goes.
    """
    z, row = scores(p) if z is None else z, losses.row_of(p.loss)
    u = np.asarray(row.slope(p.loss, p.y, z), dtype=float)
    found = sound(slopes.chosen(p.loss, p.penalty, at(p, z), u, level), u.shape)
    return u if found is None else found


def sound(u: Array | None, shape: tuple[int, ...]) -> Array | None:
    """The given numbers, if they can be a dual point."""
    u = np.asarray(u)
    numbers = u.dtype.kind == "f" and u.shape == shape
    return u.astype(float) if numbers and np.isfinite(u).all() else None


def describe(stated: Statement, penalty: t.Penalty) -> str:
    """The objective as one line of text."""
    shift = "" if stated.intercept == "none" else " + b"
    text = losses.row_of(stated.loss).text.format(**stated.loss._asdict())
    squared = isinstance(stated.loss, t.Squared)
    if squared:
        bars = "‖‖" if stated.target == "tasks" else "()"
        text = f"½·mean {bars[0]}y − Xw{shift.replace('+', '−')}{bars[1]}²"
    name = "‖w‖"
    if stated.intercept == "penalised":
        name = "‖w,b‖" if stated.scale == 1 else f"‖w,b/{stated.scale:.4g}‖"
    more = penalties.row_of(penalty).text(penalty, name)
    if more:
        text += f",  {more}" if more.startswith("w ≥") else f" + {more}"
    return text if squared else f"{text},  z = Xw{shift}"
