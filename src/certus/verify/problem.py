"""A linear model as convex problems with one score each, or one softmax.

P(w, b) = Σ sᵢ ℓ(yᵢ, xᵢᵀw + b) / Σ s + Ω(w): what is to be judged, in the verifier's own
normalisation, and its value for the best model that ignores X, by which gaps are
measured. Terms and targets for which the formulas would not be true are refused here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from certus import terms as t
from certus.certificate import Evidence
from certus.verify import data
from certus.verify.claims import EPS
from certus.verify.data import Array
from certus.verify.domains import (
    check_intercept_scale,
    check_level,
    check_pair,
    check_targets,
    check_terms,
)
from certus.verify.formulas import LOSSES, one_hot


class Problem(NamedTuple):
    """One convex problem and the point to judge."""

    loss: t.Loss
    penalty: t.Penalty
    X: Any
    y: Array
    s: Array
    w: Array
    b: Any
    intercept: str  # "none" | "free" | "penalised"
    scale: float = 1.0  # of the constant column when the intercept is penalised
    dual: Array | None = None  # u, where the slopes at a kink do not tell it


def scores(p: Problem) -> Array:
    """The scores z = Xw + b."""
    return data.dot(p.X, p.w) + p.b


def problems_of(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any
) -> tuple[list[Problem], Array, Array]:
    """The model as one or several problems with a single score each, or one softmax."""
    n, params = X.shape[0], evidence.params
    target = params.get("target", "numbers")
    coef = data.plain(model.coef_)
    if coef.shape[-1] != X.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} columns and the model was fitted on {coef.shape[-1]}."
        )
    classes = None if target == "numbers" else np.asarray(model.classes_)
    if classes is None:
        labels = data.numbers(y, n)
    else:
        labels = data.codes(y, classes)
        if len(labels) != n:
            raise ValueError(f"y has {len(labels)} rows and X has {n}.")
    class_weight = params.get("class_weight")
    counts = params.get("class_counts", "weights")
    on_positives = params.get("class_weight_on") == "positives"
    positives = class_weight is not None and on_positives
    on_rows = None if positives else class_weight
    s = data.weights(sample_weight, on_rows, labels, classes, n, counts)
    free = params.get("intercept", "free")
    loss, penalty = evidence.terms
    check_terms(loss, penalty)
    scale = check_intercept_scale(float(params.get("intercept_scale", 1.0)))
    common = (free, scale)
    intercept = np.asarray(model.intercept_, dtype=float)
    if target == "codes":
        if coef.shape[0] != getattr(loss, "n_classes", -1):
            raise ValueError(f"{loss!r} and {coef.shape[0]} scores do not go together.")
        b = intercept if intercept.ndim else np.full(coef.shape[0], float(intercept))
        penalty = _penalty_of(penalty, params, 0, s)
        problem = Problem(loss, penalty, X, labels, s, coef.T, b, *common)
        return [problem], s, labels.astype(float)
    if target == "signs" and classes is not None:
        check_pair(classes)
        targets = np.where(labels == 1, 1.0, -1.0)[:, None]
    elif target == "one_vs_rest":
        targets = (
            2 * one_hot(labels, len(classes)) - 1 if classes is not None else labels
        )
    else:
        targets = labels.reshape(n, -1)
    outputs = coef.size // X.shape[1]
    if outputs != targets.shape[1]:
        raise ValueError(
            f"y has {targets.shape[1]} columns and the model predicts {outputs}."
        )
    coefs = coef.reshape(targets.shape[1], -1)
    intercepts = np.broadcast_to(intercept.ravel(), (targets.shape[1],))
    duals = _duals(evidence, targets.shape)
    problems = []
    for k in range(targets.shape[1]):
        y_k = np.ascontiguousarray(targets[:, k])
        s_k = s
        if positives and classes is not None:
            each = data.class_weights(class_weight, s, labels, classes, counts)
            s_k = np.where(labels == k, s * each[k], s)
        check_targets(loss, y_k, s_k)
        omega = _penalty_of(penalty, params, k, s_k)
        problem = Problem(
            *(loss, omega, X, y_k, s_k, coefs[k], float(intercepts[k]), *common),
            dual=duals[k],
        )
        problems.append(problem)
    return problems, s, labels.astype(float)


def _duals(evidence: Evidence, shape: tuple[int, ...]) -> list[Array | None]:
    """Column k of the evidence's ``dual`` for problem k; None where it cannot fit."""
    dual = evidence.arrays.get("dual")
    if dual is None or np.size(dual) != np.prod(shape) or not np.isfinite(dual).all():
        return [None] * shape[1]
    return list(np.asarray(dual, dtype=float).reshape(shape).T)


def _penalty_of(
    penalty: t.Penalty, params: Mapping[str, Any], k: int, s: Array
) -> t.Penalty:
    """Ω of problem k, for a loss that is a weighted mean.

    ``alphas``: one L2 level per target, as scikit-learn's Ridge allows. ``penalty_of``:
    whether Ω was stated beside the "mean", the "sum" or, as SGD does, Σ sℓ/n ("rows").
    """
    alphas = params.get("alphas")
    if alphas is not None:
        penalty = t.L2(float(alphas[k]))
        check_level(penalty.alpha, penalty)
    stated = params.get("penalty_of", "mean")
    if stated == "mean":
        return penalty
    factor = (1.0 if stated == "sum" else len(s)) / float(s.sum())
    levels: Any = penalty
    return type(penalty)(*(level * factor for level in levels))


def constant_value(p: Problem) -> float:
    """P of the best model that ignores X (b = 0 unless the intercept is free)."""
    value = LOSSES[type(p.loss)].value
    n, total = len(p.y), p.s.sum()
    if isinstance(p.loss, t.Softmax):
        share = np.bincount(p.y, weights=p.s, minlength=p.loss.n_classes) / total
        if p.intercept != "free":
            return float(np.log(p.loss.n_classes))
        return float(-(share[share > 0] @ np.log(share[share > 0])))
    if p.intercept != "free":
        return float((p.s @ value(p.loss, p.y, np.zeros(n))) / total)
    b = _best_constant(p)
    if not np.isfinite(b):
        return 0.0
    best = float((p.s @ value(p.loss, p.y, np.full(n, b))) / total)
    if isinstance(p.loss, t.Squared) and best <= (4 * EPS * np.abs(p.y).max()) ** 2:
        return 0.0
    return best


def _best_constant(p: Problem) -> float:
    mean = (p.s @ p.y) / p.s.sum()
    with np.errstate(divide="ignore"):
        if isinstance(p.loss, t.Squared):
            return float(mean)
        if isinstance(p.loss, t.Poisson | t.Exponential):
            return float(np.log(mean))
        if isinstance(p.loss, t.Binomial):
            return float(np.log(mean) - np.log(p.loss.trials - mean))
        if isinstance(p.loss, t.Logistic | t.ExponentialMargin):
            odds = np.log1p(mean) - np.log1p(-mean)
            return float(odds / 2 if isinstance(p.loss, t.ExponentialMargin) else odds)
    if isinstance(p.loss, t.Absolute | t.Quantile):
        order = np.argsort(p.y)
        mass = np.cumsum(p.s[order])
        q = p.loss.q if isinstance(p.loss, t.Quantile) else 0.5
        at = int(np.searchsorted(mass, q * mass[-1]))
        return float(p.y[order[min(at, len(order) - 1)]])
    # Any other loss: the derivative in b is monotone, so bisect.
    slope = LOSSES[type(p.loss)].derivative
    reach = 2 + 2 * float(np.abs(p.y).max())

    def total_slope(b: float) -> float:
        return float(p.s @ slope(p.loss, p.y, np.full(len(p.y), b)))

    if not total_slope(-reach) < 0:
        return -reach
    if not total_slope(reach) > 0:
        return reach
    return float(brentq(total_slope, -reach, reach, xtol=1e-15 * reach, maxiter=200))
