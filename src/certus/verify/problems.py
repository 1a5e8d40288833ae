"""A fitted linear model as convex problems of the kernel, in its own normalisation.

One problem, one for each target or class, or one softmax: rows of positive weight,
targets, coefficients and a space that they share. Targets, labels and weights are read
anew here; nothing is taken from the fit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from certus import terms as t
from certus.verify.blocks import over_blocks
from certus.verify.kernel import losses, penalties, reading
from certus.verify.kernel.gap import Problem
from certus.verify.kernel.losses import one_hot
from certus.verify.kernel.reading import Array, Weights
from certus.verify.kernel.spaces import Linear
from certus.verify.stated_linear import Statement


class Rows(NamedTuple):
    """The data of a statement: all rows, with targets as numbers and their weights."""

    X: Any
    y: Array  # numbers, or codes of labels
    given: Weights
    classes: Array | None


def rows_of(model: Any, stated: Statement, X: Any, y: Any, sample_weight: Any) -> Rows:
    """X, targets and weights as the verifier reads them."""
    X = reading.as_matrix(X)
    n = X.shape[0]
    given = reading.weights(sample_weight, n)
    if stated.target in ("numbers", "tasks"):
        return Rows(X, reading.numbers(y, n), given, None)
    classes = np.asarray(model.classes_)
    labels = reading.codes(y, classes, n)
    if stated.class_weight is not None and stated.class_weight_on == "rows":
        each = reading.class_weights(
            *(stated.class_weight, given, labels, classes, stated.class_counts)
        )
        given = reading.times_classes(given, each, labels)
    return Rows(X, labels, given, classes)


def problems_of(model: Any, stated: Statement, rows: Rows, dual: Any) -> list[Problem]:
    """The problems whose solution the coefficients claim to be."""
    coef, intercept = reading.plain(model.coef_), reading.plain(model.intercept_)
    d = rows.X.shape[1]
    if coef.shape[-1:] != (d,):
        width = coef.shape[-1] if coef.ndim else 0
        raise ValueError(f"X has {d} columns and the model was fitted on {width}.")
    losses.row_of(stated.loss)
    coef = coef.reshape(-1, d).astype(np.float64)
    targets = _targets(stated, rows)
    if len(coef) != len(targets):
        raise ValueError(
            f"y has {len(targets)} columns and the model predicts {len(coef)}."
        )
    if intercept.size not in (1, len(coef)):
        raise ValueError(
            f"intercept_ has {intercept.size} values for {len(coef)} rows of coef_."
        )
    b = np.broadcast_to(intercept.ravel().astype(np.float64), (len(coef),))
    if stated.target in ("codes", "tasks"):
        y = rows.y if stated.target == "codes" else np.column_stack(targets)
        omega = penalty_of(stated, rows.given, 0)
        return [_problem(stated, omega, rows, y, rows.given, coef.T, b, None)]
    duals = _columns(dual, (len(rows.y), len(targets)))
    found, shared = [], None
    for k, y_k in enumerate(targets):
        given = _given(stated, rows, k)
        omega = penalty_of(stated, given, k)
        p = _problem(stated, omega, rows, y_k, given, coef[k], b[[k]], duals[k], shared)
        shared = p.space if given is rows.given else None
        found.append(p)
    return found


def _targets(stated: Statement, rows: Rows) -> list[Array]:
    match stated.target:
        case "codes":
            return [rows.y] * len(rows.classes if rows.classes is not None else ())
        case "signs":
            if rows.classes is not None and len(rows.classes) > 2:
                raise ValueError(
                    f"y has {len(rows.classes)} different labels; a loss of one score "
                    "needs two."
                )
            return [np.where(rows.y == 1, 1.0, -1.0)]
        case "one_vs_rest":
            k = len(rows.classes if rows.classes is not None else ())
            return list(2 * one_hot(rows.y, k).T - 1)
    return list(np.ascontiguousarray(rows.y.reshape(len(rows.y), -1).T))


def _given(stated: Statement, rows: Rows, k: int) -> Weights:
    """Weights of problem k; of each class against the rest, its own may be weighed."""
    if stated.class_weight is None or stated.class_weight_on == "rows":
        return rows.given
    classes = rows.classes if rows.classes is not None else np.zeros(0)
    each = reading.class_weights(
        *(stated.class_weight, rows.given, rows.y, classes, stated.class_counts)
    )
    factors = np.ones(len(classes))
    factors[k] = each[k]
    return reading.times_classes(rows.given, factors, rows.y)


def penalty_of(stated: Statement, given: Weights, k: int) -> Any:
    """Ω of problem k, for a loss that is a weighted mean."""
    penalty = stated.penalty
    if isinstance(penalty, list):
        if k >= len(penalty):
            raise ValueError(f"{len(penalty)} penalties for more targets.")
        penalty = penalty[k]
    row = penalties.row_of(penalty)
    if stated.penalty_of == "mean":
        return penalty
    return row.scaled(penalty, given.level(1.0, rows=stated.penalty_of == "rows"))


def _problem(
    stated: Statement,
    omega: Any,
    rows: Rows,
    y: Array,
    given: Weights,
    w: Array,
    b: Array,
    dual: Array | None,
    shared: Linear | None = None,
) -> Problem:
    """Rows of weight zero may hold anything, and are left out."""
    free = stated.intercept == "free"
    penalised = stated.intercept == "penalised"
    constant = stated.scale if penalised else 0.0
    if penalised and not 0 < constant < np.inf:
        raise ValueError(f"intercept_scaling={constant!r} must be positive and finite.")
    used = given.s > 0
    space = shared
    if used.all():
        if space is None:
            space = Linear(rows.X, given.s, free, constant, over_blocks)
    else:
        y, dual = y[used], None if dual is None else dual[used]
        if space is None:
            space = Linear(rows.X[used], given.s[used], free, constant, over_blocks)
    losses.check_targets(stated.loss, y)
    if constant:
        w, b = np.append(w, b[0] / constant), np.zeros(1)
    return Problem(stated.loss, omega, space, y, w, b, free, dual)


def _columns(dual: Any, shape: tuple[int, int]) -> list[Array | None]:
    """Column k of a stated dual point for problem k; none where it cannot fit."""
    if dual is None:
        return [None] * shape[1]
    dual = np.asarray(dual)
    if dual.dtype.kind != "f" or dual.size != shape[0] * shape[1]:
        return [None] * shape[1]
    if not np.isfinite(dual).all():
        return [None] * shape[1]
    return list(dual.astype(float).reshape(shape).T)


def describe(stated: Statement, penalty: Any) -> str:
    """The objective as one line of text."""
    score = "Xw" if stated.intercept == "none" else "Xw + b"
    text = losses.row_of(stated.loss).text.format(**stated.loss._asdict())
    squared = isinstance(stated.loss, t.Squared)
    if squared:
        residual = "y − Xw" if stated.intercept == "none" else "y − Xw − b"
        text = f"½·mean ({residual})²"
        if stated.target == "tasks":
            text = f"½·mean ‖{residual}‖²"
    name = "‖w‖"
    if stated.intercept == "penalised":
        name = "‖w,b‖" if stated.scale == 1 else f"‖w,b/{stated.scale:.4g}‖"
    more = penalties.row_of(penalty).text(penalty, name)
    if more:
        text += f",  {more}" if more.startswith("w ≥") else f" + {more}"
    return text if squared else f"{text},  z = {score}"
