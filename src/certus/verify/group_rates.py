"""Decisions whose rates are equal across groups: none as equal is more accurate.

    V(π) = Σ oᵢ (yᵢπᵢ + (1 − yᵢ)(1 − πᵢ)),   o = s/Σs (accuracy)

with the probability πᵢ of choosing row i, computed here from thresholds and shares, or
from the answers of the classifiers and their weights. Rate m of group g is a weighted
mean of π over the rows of g that count in it. Multipliers λ with Σ₉ λₘ₉ = 0 bound the
value of every rule whose rates differ by at most ``gap``:

    V ≤ V(nobody) + max over rules h of Σ cᵢhᵢ + gap·Σ max(λ, 0),
    cᵢ = oᵢ(2yᵢ − 1) − Σₘ λₘ₉₍ᵢ₎·(share of row i in rate m)

For thresholds the maximum is taken in each group over all thresholds, for a mixture of
classifiers over those classifiers. Σ|c| ≤ 1 + Σ|λ|, which bounds the rounding of sums.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Status, Strength
from certus.evidence import MultipliersWitness
from certus.verify import data, stating
from certus.verify.attributes import attribute_of, codes_of, not_lent
from certus.verify.data import Array
from certus.verify.deciding import Number, gamma, proved, verdict
from certus.verify.kernel import reading
from certus.verify.marks import marks_of
from certus.verify.stating import Checked, Given

#: Accuracy that may be missing, and difference in rates beyond the gap.
TARGET = 1e-9
#: Which rows count in the rates of a criterion, by their truth.
RATES: dict[str, dict[str, tuple[bool, ...]]] = {
    "independence": {"selection rate": (False, True)},
    "separation": {"true positive rate": (True,), "false positive rate": (False,)},
    "true_positive_rate": {"true positive rate": (True,)},
    "false_positive_rate": {"false positive rate": (False,)},
}
_REFIT = "refit on these rows"


class Statement(NamedTuple):
    """Which rates are equal, up to what, and what a rule is worth."""

    criterion: str
    gap: float
    objective: str
    what: str  # the rules among which none is better


def _thresholds(model: Any) -> Statement:
    return _stated(model, model.objective, "rule of group thresholds")


def _reduction(model: Any) -> Statement:
    return _stated(model, "accuracy", "mixture of the classifiers found")


def _stated(model: Any, objective: Any, what: str) -> Statement:
    criterion, gap = model.criterion, model.gap
    sound = isinstance(gap, int | float) and not isinstance(gap, bool) and 0 <= gap <= 1
    named = isinstance(criterion, str) and criterion in RATES
    if not (sound and named and objective in ("accuracy", "balanced_accuracy")):
        raise stating.Refusal("criterion, gap or objective are not those of a fit")
    cls: Any = stating.known_class(model, READERS)
    if type(model).selection_probability is not cls.selection_probability:
        raise stating.Refusal(f"{type(model).__name__} decides in a way of its own")
    return Statement(criterion, float(gap), objective, what)


READERS: dict[str, stating.Reader] = {
    "GroupThresholds": _thresholds,
    "GroupReduction": _reduction,
}


class Rows(NamedTuple):
    """The rows as the formulas need them."""

    truth: Array
    group: Array  # number of each row's group among those of the model
    worth: Array  # o
    parts: list[Array]  # shares in each rate of the row's group
    k: int
    s: Array

    @property
    def each(self) -> list[Array]:
        """The rows of each group."""
        return [np.flatnonzero(self.group == g) for g in range(self.k)]


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """Judge decisions, with a :class:`~certus.evidence.MultipliersWitness`."""
    witness, X, y, sample_weight, level, sensitive = given
    marks = marks_of(X, y, sample_weight, holes=True)
    _require_sound(model)
    worth = stated.objective.replace("_", " ")
    columns = attribute_of(model, sensitive, X)
    if columns is None:
        claim = not_lent("duality_gap", f"{worth} of a {stated.what}")
        return [claim], Status.UNDECIDED, marks
    rows = _rows(model, stated, columns, y, sample_weight)
    p, best_rule = _rule(model, rows, X)
    if not isinstance(witness, MultipliersWitness):
        witness = MultipliersWitness()
    value = float(rows.worth @ np.where(rows.truth, p, 1 - p))
    best, size = _dual(rows, stated, witness.multipliers, best_rule)
    best = min(best, float(rows.worth.sum()))  # no rule is right on more than all
    lost = gamma(len(p) + 32) * (3 + 2 * size)
    solved = proved(
        *("duality_gap", Number(max(0.0, best - value), lost), TARGET),
        f"{worth} {value:.4f} on these rows, no {stated.what} is better",
        missed=f"{worth} {value:.4f} on these rows, {best:.4f} may be possible",
        objective=f"{worth} of a {stated.what}, rates within {stated.gap:g} of each "
        "other",
        theorem="weak duality: no such rule is worth more than the Lagrangian's "
        "largest value",
        fix=_REFIT,
    )
    claims = [solved, _difference(rows, stated, p)]
    status = verdict(claims)
    if witness.answered is not None:
        claims.append(_oracle(model, rows, stated, witness, X, level, value, best_rule))
    return claims, status, marks


# -- what is decided --------------------------------------------------------------


def _rule(model: Any, rows: Rows, X: Any) -> tuple[Array, Callable[[Array], float]]:
    """Probabilities of being chosen, and the most that Σ c over chosen rows can be."""
    if hasattr(model, "thresholds_"):
        z = _scores(model, X)
        p = np.zeros(len(z))
        for at, cuts, shares in zip(rows.each, model.thresholds_, model.mixing_):
            p[at] = (z[at][:, None] >= cuts) @ shares
        return np.clip(p, 0, 1), lambda c: sum(_best_cut(z[i], c[i]) for i in rows.each)
    chosen = [np.zeros(len(rows.truth)), np.ones(len(rows.truth))]
    chosen += [_chosen(model, found, X) for found in model.estimators_]
    H = np.column_stack(chosen)
    return np.clip(H @ model.weights_, 0, 1), lambda c: float((c @ H).max())


def _chosen(model: Any, estimator: Any, X: Any) -> Array:
    return np.asarray(estimator.predict(X) == model.classes_[-1], dtype=float)


def _scores(model: Any, X: Any) -> Array:
    """Scores of the second class; a threshold may lie beyond the largest."""
    estimator = model.estimator_
    if [*getattr(estimator, "classes_", model.classes_)] != [*model.classes_]:
        raise _odd("its estimator knows other classes")
    by_margin = hasattr(estimator, "decision_function")
    score = estimator.decision_function if by_margin else estimator.predict_proba
    z = np.asarray(score(X), dtype=np.float64)
    z = z[:, -1] if z.ndim == 2 else z
    if np.isnan(z).any():
        raise _odd("its scores hold NaN, which no threshold orders")
    most = np.finfo(np.float64).max
    return np.asarray(np.clip(z, -most, most))


def _best_cut(z: Array, c: Array) -> float:
    """The largest Σ c over the rows with z ≥ t, over all t."""
    levels, place = np.unique(z, return_inverse=True)
    sums = np.bincount(place, c, minlength=len(levels))[::-1].cumsum()
    return max(0.0, float(sums.max(initial=0.0)))


def _rows(
    model: Any, stated: Statement, columns: Array, y: Any, sample_weight: Any
) -> Rows:
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
            f"The group {strange[0]!r} was not among those of the fit. Pass the rows "
            "and the attribute of the fit."
        )
    group = np.array([known[name] for name in names], dtype=int)[numbers]
    worth = s / s.sum()
    if stated.objective == "balanced_accuracy":
        totals = np.where(truth, s[truth].sum(), s[~truth].sum())
        worth = np.divide(s, 2 * totals, out=np.zeros(n), where=totals > 0)
    parts = []
    for truths in RATES[stated.criterion].values():
        mine = s * np.isin(truth, truths)
        totals = np.bincount(group, mine, minlength=k)[group]
        parts.append(np.divide(mine, totals, out=np.zeros(n), where=totals > 0))
    return Rows(truth, group, worth, parts, k, s)


# -- bounds -----------------------------------------------------------------------


def _dual(
    rows: Rows, stated: Statement, found: Any, best_rule: Callable[[Array], float]
) -> tuple[float, float]:
    """The bound on the value, after making multipliers sum to zero; and Σ|λ|."""
    given, c, slack, size = np.asarray(found), rows.worth, 0.0, 0.0
    c = np.where(rows.truth, c, -c)
    sound = given.shape == (len(rows.parts), rows.k) and given.dtype.kind in "fi"
    if not sound or not np.isfinite(given).all():
        given = np.zeros((len(rows.parts), rows.k))
    for row, part in zip(given, rows.parts):
        present = np.bincount(rows.group, part > 0, minlength=rows.k) > 0
        if present.any():
            row = np.where(present, row - row[present].mean(), 0.0)
            c = c - row[rows.group] * part
            slack += stated.gap * float(np.maximum(row, 0.0).sum())
            size += float(np.abs(row).sum())
    nobody = float(rows.worth[~rows.truth].sum())
    return nobody + best_rule(c) + slack, size


def _oracle(
    model: Any,
    rows: Rows,
    stated: Statement,
    witness: MultipliersWitness,
    X: Any,
    level: str,
    value: float,
    best_rule: Callable[[Array], float],
) -> Claim:
    """What the estimator gains where it is fitted against other multipliers."""

    def refitted(c: Array) -> float:
        best, wanted, size = best_rule(c), c > 0, np.abs(c)
        used = wanted[size > 0]
        if level != "full" or not used.any() or used.all():
            return best
        fresh = copy.deepcopy(model.estimator)
        steps = getattr(fresh, "steps", None)
        name = f"{steps[-1][0]}__sample_weight" if steps else "sample_weight"
        labels = np.asarray(model.classes_)[wanted.astype(int)]
        fresh.fit(X, labels, **{name: size * (rows.s.sum() / size.sum())})
        return max(best, float(c @ _chosen(model, fresh, X)))

    found = max(0.0, _dual(rows, stated, witness.answered, refitted)[0] - value)
    seen = "now" if level == "full" else "as far as the search has seen"
    return Claim(
        *("oracle_gap", Strength.MEASURED, found),
        objective="error of the mixture less the Lagrangian's least value found",
        detail=f"refitted against the multipliers, the estimator gains {found:.2g} "
        f"at most, {seen}",
    )


def _difference(rows: Rows, stated: Statement, p: Array) -> Claim:
    """The largest difference in a rate between two groups."""
    worst, name = 0.0, ""
    for part, metric in zip(rows.parts, RATES[stated.criterion]):
        present = np.bincount(rows.group, part > 0, minlength=rows.k) > 0
        rate = np.bincount(rows.group, part * p, minlength=rows.k)[present]
        spread = float(rate.max(initial=0.0) - rate.min(initial=1.0))
        if len(rate) > 1 and spread >= worst:
            worst, name = spread, metric
    said = f"{name}s of groups differ by {worst:.2g}" if name else "one group only"
    return proved(
        *("criterion_difference", Number(worst, 2 * gamma(len(p) + 32))),
        *(stated.gap + TARGET, f"{said} (asked for {stated.gap:g})"),
        objective="largest difference between groups in the expected rates, on these "
        "rows",
        fix=_REFIT,
    )


# -- what may come from a file ----------------------------------------------------


def _require_sound(model: Any) -> None:
    """Raise if what may come from a file is not what a fit leaves."""
    names = ("groups_", "classes_", "thresholds_", "mixing_", "estimators_", "weights_")
    parts: list[Any] = [getattr(model, name, None) for name in names]
    groups, classes, cuts, mixing, found, shares = parts
    if not isinstance(groups, tuple | list) or not all(
        isinstance(label, Hashable) for label in groups
    ):
        raise _odd("its groups are no labels")
    if np.shape(np.asarray(classes)) not in ((1,), (2,)):
        raise _odd("it has neither one nor two classes")
    if hasattr(model, "estimators_"):
        whole = isinstance(found, list) and np.shape(shares) == (len(found) + 2,)
        if not (whole and found and _are_shares(shares)):
            raise _odd("a classifier has no share")
        return
    if not (
        all(isinstance(x, list) and len(x) == len(groups) for x in (cuts, mixing))
        and all(np.asarray(x).dtype.kind in "fiu" and np.ndim(x) == 1 for x in cuts)
        and all(_are_shares(x) and len(x) == len(t) for x, t in zip(mixing, cuts))
    ):
        raise _odd("a group has no threshold, or a threshold no share")


def _are_shares(values: Any) -> bool:
    """Whether these are probabilities, together one at most."""
    found = np.asarray(values)
    sound = found.dtype.kind in "fiu" and found.ndim == 1
    return bool(sound and np.all(found >= 0) and found.sum() <= 1 + TARGET)


def _odd(what: str) -> ValueError:
    return ValueError(
        f"This model is not what a fit leaves: {what}. Fit it again, or restore its "
        "file."
    )
