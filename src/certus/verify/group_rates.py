"""Decisions with equal rates across groups: no rule as equal is more accurate.

    V(π) = Σ oᵢ (yᵢπᵢ + (1 − yᵢ)(1 − πᵢ)),   o = s/Σs (accuracy)

with the probability πᵢ of choosing row i, computed here from thresholds and shares, or
from the answers of the classifiers and their weights. Rate m of group g is a weighted
mean of π over the rows of g that count in it. Multipliers λ with Σ₉ λₘ₉ = 0 bound the
value of every rule whose rates differ by at most ``max_difference``:

    V ≤ V(nobody) + max over rules h of Σ cᵢhᵢ + max_difference·Σ max(λ, 0),
    cᵢ = oᵢ(2yᵢ − 1) − Σₘ λₘ₉₍ᵢ₎·(share of row i in rate m)

For thresholds the maximum is taken in each group over all thresholds, for a mixture of
classifiers over those classifiers. Σ|c| ≤ 1 + Σ|λ|, which bounds the rounding of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Status
from certus.typing import Array, ArrayLike, Column, Fit, MatrixLike
from certus.verify import data, stating
from certus.verify.attributes import attribute_of, codes_of, not_lent
from certus.verify.data import marks_of
from certus.verify.deciding import Number, gamma, proved, verdict
from certus.verify.kernel import reading
from certus.verify.stating import Checked, Given

#: Allowed loss of accuracy, and allowed excess of the difference in rates.
TARGET = 1e-9
#: Which rows count in the rates of a criterion, by their truth.
RATES: dict[str, dict[str, tuple[bool, ...]]] = {
    "independence": {"selection rate": (False, True)},
    "separation": {"true positive rate": (True,), "false positive rate": (False,)},
    "true_positive_rate": {"true positive rate": (True,)},
    "false_positive_rate": {"false positive rate": (False,)},
}
_REFIT = "refit on these rows"
#: The most that Σ c over chosen rows can be, for numbers c.
Best = Callable[[Array], float]


class Statement(NamedTuple):
    """Which rates are equal, up to which difference, and the value of a rule."""

    criterion: str
    max_difference: float
    objective: str
    what: str  # the rules among which none is better


def _stated(what: str, model: Any) -> Statement:
    objective = getattr(model, "objective", "accuracy")
    named = isinstance(model.criterion, str) and model.criterion in RATES
    known = named and objective in ("accuracy", "balanced_accuracy")
    if not (known and stating.is_number(model.max_difference, most=1)):
        raise stating.Refusal("criterion, max_difference or objective is invalid")
    cls: Any = stating.known_class(model, READERS)
    if type(model).selection_probability is not cls.selection_probability:
        raise stating.Refusal(f"{type(model).__name__} overrides how it decides")
    return Statement(model.criterion, float(model.max_difference), objective, what)


READERS: dict[str, stating.Reader] = {
    "GroupThresholds": partial(_stated, "rule of group thresholds"),
    "GroupReduction": partial(_stated, "mixture of the classifiers found"),
}


class Grouped(NamedTuple):
    """The rows as the formulas need them."""

    truth: Array
    group: Array  # number of each row's group among those of the model
    worth: Array  # o
    parts: list[Array]  # shares in each rate of the row's group
    k: int

    def sums(self, values: Array) -> Array:
        """Of each group."""
        return np.bincount(self.group, values, minlength=self.k)


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Judge decisions, with a :class:`~certus.evidence.MultipliersWitness`."""
    witness, X, y, sample_weight, _, sensitive = given
    marks = marks_of(X, y, sample_weight, holes=True)
    _require_sound(model)
    worth = stated.objective.replace("_", " ")
    columns = attribute_of(model, sensitive, X)
    if columns is None:
        claim = not_lent("duality_gap", f"{worth} of a {stated.what}")
        return [claim], Status.UNDECIDED, marks
    rows = _rows(model, stated, columns, y, sample_weight)
    p, best_rule = _rule(model, rows, X)
    value = float(rows.worth @ np.where(rows.truth, p, 1 - p))
    multipliers = getattr(witness, "multipliers", None)
    best, size = _dual(rows, stated, multipliers, best_rule)
    best = min(best, float(rows.worth.sum()))  # no rule is right on more than all
    lost = gamma(len(p) + 32) * (3 + 2 * size)
    solved = proved(
        *("duality_gap", Number(max(0.0, best - value), lost), TARGET),
        f"{worth} {value:.4f} on these rows, and no {stated.what} is better",
        missed=f"{worth} {value:.4f} on these rows, but {best:.4f} may be possible",
        objective=f"{worth} of a {stated.what}, rates within "
        f"{stated.max_difference:g} of each other",
        theorem="weak duality: no such rule is better than the largest value of the "
        "Lagrangian",
        fix=_REFIT,
    )
    claims = [solved, _difference(rows, stated, p)]
    return claims, verdict(claims), marks


# -- what is decided --------------------------------------------------------------


def _rule(model: Fit, rows: Grouped, X: MatrixLike) -> tuple[Array, Best]:
    """Probabilities of being chosen, and the most that Σ c over chosen rows can be."""
    n = len(rows.truth)
    if hasattr(model, "thresholds_"):
        z, p = _scores(model, X), np.zeros(n)
        each = [np.flatnonzero(rows.group == g) for g in range(rows.k)]
        for at, cuts, shares in zip(each, model.thresholds_, model.mixing_):
            p[at] = (z[at][:, None] >= cuts) @ shares
        return np.clip(p, 0, 1), lambda c: sum(_best_cut(z[at], c[at]) for at in each)
    chosen = [found.predict(X) == model.classes_[-1] for found in model.estimators_]
    H = np.column_stack([np.zeros(n), np.ones(n), *chosen])
    return np.clip(H @ model.weights_, 0, 1), lambda c: float((c @ H).max())


def _scores(model: Fit, X: MatrixLike) -> Array:
    """Scores of the second class; a threshold may lie beyond the largest."""
    estimator = model.estimator_
    same = [*getattr(estimator, "classes_", model.classes_)] == [*model.classes_]
    stating.require(same, "its estimator was fitted on other classes")
    by_margin = hasattr(estimator, "decision_function")
    score = estimator.decision_function if by_margin else estimator.predict_proba
    z = np.asarray(score(X), dtype=np.float64)
    z = z[:, -1] if z.ndim == 2 else z
    unordered = np.isnan(z).any()
    stating.require(not unordered, "its scores hold NaN, which has no order")
    most = np.finfo(np.float64).max
    return np.asarray(np.clip(z, -most, most))


def _best_cut(z: Array, c: Array) -> float:
    """The largest Σ c over the rows with z ≥ t, over all t."""
    levels, place = np.unique(z, return_inverse=True)
    sums = np.bincount(place, c, minlength=len(levels))[::-1].cumsum()
    return float(sums.max(initial=0.0))


def _rows(
    model: Fit, stated: Statement, columns: Array, y: Column, sample_weight: Column
) -> Grouped:
    n, k = len(columns), len(model.groups_)
    truth = reading.codes(y, np.asarray(model.classes_)) == 1
    if len(truth) != n:
        raise ValueError(f"y has {len(truth)} rows and X has {n}.")
    s = data.row_weights(sample_weight, n)
    labels, numbers = codes_of(columns)
    names = [label[0] if len(label) == 1 else label for label in labels]
    known = {label: g for g, label in enumerate(model.groups_)}
    strange = [name for name in names if name not in known]
    if strange:
        raise ValueError(
            f"The group {strange[0]!r} was not in the data of the fit. Pass the rows "
            "and the attribute of the fit."
        )
    group = np.array([known[name] for name in names], dtype=int)[numbers]

    def shares(mine: Array, numbers: Array) -> Array:
        totals = np.bincount(numbers, mine, minlength=max(k, 2))[numbers]
        return np.divide(mine, totals, out=np.zeros(n), where=totals > 0)

    balanced = stated.objective == "balanced_accuracy"
    worth = shares(s, truth.astype(int)) / 2 if balanced else s / s.sum()
    counted = RATES[stated.criterion].values()
    parts = [shares(s * np.isin(truth, truths), group) for truths in counted]
    return Grouped(truth, group, worth, parts, k)


# -- bounds -----------------------------------------------------------------------


def _dual(
    rows: Grouped, stated: Statement, found: Column, best_rule: Best
) -> tuple[float, float]:
    """The bound on the value, after making multipliers sum to zero; and Σ|λ|."""
    given, slack, size = np.asarray(found), 0.0, 0.0
    c = np.where(rows.truth, rows.worth, -rows.worth)
    sound = given.shape == (len(rows.parts), rows.k) and given.dtype.kind in "fi"
    if not sound or not np.isfinite(given).all():
        given = np.zeros((len(rows.parts), rows.k))
    for row, part in zip(given, rows.parts):
        present = rows.sums(part) > 0
        if present.any():
            row = np.where(present, row - row[present].mean(), 0.0)
            c = c - row[rows.group] * part
            slack += stated.max_difference * float(np.maximum(row, 0.0).sum())
            size += float(np.abs(row).sum())
    nobody = float(rows.worth[~rows.truth].sum())
    return nobody + best_rule(c) + slack, size


def _difference(rows: Grouped, stated: Statement, p: Array) -> Claim:
    """The largest difference in a rate between two groups."""
    worst, name = 0.0, ""
    for part, metric in zip(rows.parts, RATES[stated.criterion]):
        rate = rows.sums(part * p)[rows.sums(part) > 0]
        spread = float(rate.max(initial=0.0) - rate.min(initial=1.0))
        if len(rate) > 1 and spread >= worst:
            worst, name = spread, metric
    said = f"{name}s of groups differ by {worst:.2g}" if name else "only one group"
    return proved(
        *("criterion_difference", Number(worst, 2 * gamma(len(p) + 32))),
        stated.max_difference + TARGET,
        f"{said} (asked for {stated.max_difference:g})",
        objective="largest difference between groups in the expected rates, on these "
        "rows",
        fix=_REFIT,
    )


# -- what may come from a file ----------------------------------------------------


def _require_sound(model: Fit) -> None:
    """Raise if values that may come from a file are not valid results of a fit."""
    groups, two = model.groups_, np.shape(np.asarray(model.classes_)) in ((1,), (2,))
    listed = isinstance(groups, tuple | list)
    labels = listed and all(isinstance(label, Hashable) for label in groups)
    stating.require(labels, "its groups are not labels")
    stating.require(two, "it does not have one or two classes")
    if hasattr(model, "estimators_"):
        found = model.estimators_
        whole = isinstance(found, list) and len(found) > 0
        whole = whole and _are_shares(model.weights_, len(found) + 2)
        stating.require(whole, "a classifier has no weight in the mixture")
        return
    both = (model.thresholds_, model.mixing_)
    whole = all(isinstance(x, list) and len(x) == len(groups) for x in both)
    for cuts, shares in zip(*both) if whole else ():
        numbers = np.asarray(cuts).dtype.kind in "fiu"
        whole = whole and numbers and _are_shares(shares, np.size(cuts))
    stating.require(whole, "a group has no threshold, or a threshold has no share")


def _are_shares(values: ArrayLike, n: int) -> bool:
    """Whether these are n probabilities with a sum of at most one."""
    found = np.asarray(values)
    sound = found.dtype.kind in "fiu" and found.shape == (n,)
    return bool(sound and np.all(found >= 0) and found.sum() <= 1 + TARGET)
