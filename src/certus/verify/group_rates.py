"""Decisions whose rates are equal across groups: none as equal is more accurate.

    V(π) = Σ oᵢ (yᵢπᵢ + (1 − yᵢ)(1 − πᵢ)),   o = s/Σs (accuracy)

with the probability πᵢ of choosing row i. Rate m of group g is a weighted mean of π
over the rows of g that count in it. Multipliers λ with Σ₉ λₘ₉ = 0 bound the value of
every rule whose rates differ by at most ``gap``:

    V ≤ V(nobody) + max over rules h of Σ cᵢhᵢ + gap·Σ max(λ, 0),
    cᵢ = oᵢ(2yᵢ − 1) − Σₘ λₘ₉₍ᵢ₎·(share of row i in rate m)

For thresholds the maximum is taken in each group over all thresholds, for a mixture of
classifiers over those classifiers.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.attributes import attribute_of, codes_of, not_lent
from certus.verify.data import Array
from certus.verify.marks import marks_of

Checked = tuple[list[Claim], Status, dict[str, Any]]
#: Accuracy that may be missing, and difference in rates beyond the gap.
TARGET = 1e-9
#: Which rows count in the rates of a criterion, by their truth.
RATES: dict[str, dict[str, tuple[bool, ...]]] = {
    "independence": {"selection rate": (False, True)},
    "separation": {
        "true positive rate": (True,),
        "false positive rate": (False,),
    },
    "true_positive_rate": {"true positive rate": (True,)},
    "false_positive_rate": {"false positive rate": (False,)},
}
#: What a rule may be worth.
WORTH = ("accuracy", "balanced_accuracy")


class Stated(NamedTuple):
    """The rows as the formulas need them."""

    truth: Array
    group: Array  # number of each row's group among those of the model
    worth: Array  # o
    parts: list[Array]  # shares in each rate of the row's group
    names: list[str]
    k: int
    s: Array


def check_group_thresholds(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> Checked:
    """Judge thresholds by group; ``evidence``: as :func:`check_group_mixture`."""

    def bound(stated: Stated, c: Array) -> float:
        z = np.asarray(model._scores(X), dtype=np.float64)
        return sum(_best_cut(z[at], c[at]) for at in _each(stated))

    return _check(
        model, evidence, X, y, sample_weight, bound, "rule of group thresholds"
    )


def check_group_mixture(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> Checked:
    """Judge a mixture of classifiers.

    ``evidence.params``: criterion, gap, objective;
    ``evidence.arrays``: ``multipliers``, one row per rate, one column per group, and
    perhaps ``answered``, others that the estimator was fitted against: at level "full"
    it is once more.
    """

    def bound(stated: Stated, c: Array) -> float:
        return float((c @ np.asarray(model._decisions(X), dtype=np.float64)).max())

    def refitted(stated: Stated, c: Array) -> float:
        best = bound(stated, c)
        answer = model._answer(c, X, stated.s) if level == "full" else None
        return (
            best if answer is None else max(best, float(c @ model._chosen(answer, X)))
        )

    def oracle(stated: Stated, value: float) -> list[Claim]:
        answered = evidence.arrays.get("answered")
        if answered is None:
            return []
        gap = float(evidence.params["gap"])
        return [_oracle_claim(_dual(stated, answered, gap, refitted) - value, level)]

    what = "mixture of the classifiers found"
    return _check(model, evidence, X, y, sample_weight, bound, what, oracle)


def _oracle_claim(missing: float, level: str) -> Claim:
    seen = "now" if level == "full" else "as far as the search has seen"
    found = max(0.0, missing)
    return Claim(
        "oracle_gap",
        Strength.MEASURED,
        found,
        objective="error of the mixture less the Lagrangian's least value found",
        detail=f"refitted against the multipliers, the estimator gains {found:.2g} "
        f"at most, {seen}",
    )


def _check(
    model: Any,
    evidence: Evidence,
    X: Any,
    y: Any,
    sample_weight: Any,
    bound: Any,
    what: str,
    more: Any = None,
) -> Checked:
    marks = marks_of(X, y, sample_weight, holes=True)
    _require_sound(model, evidence)
    objective = str(evidence.params["objective"]).replace("_", " ")
    gap = float(evidence.params["gap"])
    columns = attribute_of(model, evidence, X)
    if columns is None:
        claim = not_lent("duality_gap", f"{objective} of {what}")
        return [claim], Status.TOL_NOT_REACHED, marks
    stated = _state(model, evidence, columns, y, sample_weight)
    lent = columns if getattr(model, "sensitive_columns", None) is None else None
    p = np.asarray(model.selection_probability(X, sensitive=lent), dtype=float)
    if not np.all((p >= 0) & (p <= 1)):
        raise _odd("it chooses rows with what is no probability")
    value = float(stated.worth @ np.where(stated.truth, p, 1 - p))
    best = _dual(stated, evidence.arrays["multipliers"], gap, bound)
    best = min(best, float(stated.worth.sum()))  # no rule is right on more than all
    n = len(p)
    rounding = 8 * np.finfo(float).eps * np.sqrt(n)
    missing = max(0.0, best - value)
    equal = _difference(stated, p, gap, rounding)
    met = bool(missing <= TARGET + rounding and equal.met)
    detail = f"{objective} {value:.4f} on these rows, no {what} is better"
    if not equal.met:
        detail = f"{objective} {value:.4f} on these rows, but rates differ too much"
    elif not met:
        detail = f"{objective} {value:.4f} on these rows, {best:.4f} may be possible"
    solved = Claim(
        "duality_gap",
        Strength.PROVED,
        missing,
        TARGET,
        met,
        f"{objective} of a {what}, rates within {gap:g} of each other",
        "weak duality: no such rule is worth more than the Lagrangian's largest value",
        (),
        None,
        rounding,
        detail,
        "" if met else "refit on these rows",
    )
    status = Status.SOLVED if met else Status.TOL_NOT_REACHED
    rest = [] if more is None else more(stated, value)
    return [solved, equal, *rest], status, marks


def _require_sound(model: Any, evidence: Evidence) -> None:
    """Raise if what may come from a file is not what a fit leaves."""
    params = evidence.params
    gap = params.get("gap")
    criterion, objective = params.get("criterion"), params.get("objective")
    if not (isinstance(criterion, str) and criterion in RATES) or not (
        isinstance(objective, str) and objective in WORTH
    ):
        raise _odd("criterion or objective is unknown")
    if isinstance(gap, bool) or not (isinstance(gap, int | float) and 0 <= gap <= 1):
        raise _odd(f"gap is {gap!r:.40}")
    if "multipliers" not in evidence.arrays:
        raise _odd("it has no multipliers")
    for name, values in evidence.arrays.items():
        if name != "sensitive" and not _are_numbers(values):
            raise _odd(f"{name} are no numbers")
    groups = getattr(model, "groups_", None)
    if not (
        isinstance(groups, tuple | list)
        and all(isinstance(label, Hashable) for label in groups)
    ):
        raise _odd("its groups are no labels")
    classes: Any = getattr(model, "classes_", None)
    if np.shape(classes) not in ((1,), (2,)):
        raise _odd("it has neither one nor two classes")
    if evidence.kind == "group_thresholds":
        _require_cuts(model, len(groups))
        return
    found = getattr(model, "estimators_", None)
    shares: Any = getattr(model, "weights_", None)
    if not (isinstance(found, list) and found and _are_numbers(shares)) or (
        np.shape(shares) != (len(found) + 2,)
    ):
        raise _odd("a classifier has no share")


def _require_cuts(model: Any, k: int) -> None:
    cuts: Any = getattr(model, "thresholds_", None)
    shares: Any = getattr(model, "mixing_", None)
    if not (
        all(isinstance(x, list) and len(x) == k for x in (cuts, shares))
        and all(_are_numbers(x) and np.ndim(x) == 1 for x in (*cuts, *shares))
        and [len(x) for x in cuts] == [len(x) for x in shares]
    ):
        raise _odd("a group has no threshold, or a threshold no share")


def _are_numbers(values: Any) -> bool:
    try:
        return np.asarray(values).dtype.kind in "fiu"
    except ValueError:  # parts of different lengths
        return False


def _odd(what: str) -> ValueError:
    return ValueError(
        f"This model is not what a fit leaves: {what}. Fit it again, or restore its "
        "file."
    )


def _state(
    model: Any, evidence: Evidence, columns: Array, y: Any, sample_weight: Any
) -> Stated:
    n = len(columns)
    truth = data.codes(y, np.asarray(model.classes_)) == 1
    if len(truth) != n:
        raise ValueError(f"y has {len(truth)} rows and X has {n}.")
    s = data.weights(sample_weight, None, truth, None, n)
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
    k = len(model.groups_)
    worth = s / s.sum()
    if evidence.params["objective"] == "balanced_accuracy":
        worth = s / (2 * np.where(truth, s[truth].sum(), s[~truth].sum()))
    rates = RATES[evidence.params["criterion"]]
    parts = []
    for truths in rates.values():
        mine = s * np.isin(truth, truths)
        totals = np.array([mine[group == g].sum() for g in range(k)])
        parts.append(
            np.divide(mine, totals[group], out=np.zeros(n), where=totals[group] > 0)
        )
    return Stated(truth, group, worth, parts, list(rates), k, s)


def _each(stated: Stated) -> list[Array]:
    return [np.flatnonzero(stated.group == g) for g in range(stated.k)]


def _dual(stated: Stated, found: Any, gap: float, bound: Any) -> float:
    """The bound on the value, after making the multipliers sum to zero."""
    multipliers = np.asarray(found, dtype=float)
    c = np.where(stated.truth, stated.worth, -stated.worth)
    slack = 0.0
    if multipliers.shape != (len(stated.parts), stated.k):
        multipliers = np.zeros((len(stated.parts), stated.k))
    if not np.isfinite(multipliers).all():
        multipliers = np.zeros_like(multipliers)
    for row, part in zip(multipliers, stated.parts):
        present = np.bincount(stated.group, part > 0, minlength=stated.k) > 0
        row = np.where(present, row, 0.0)
        if present.any():
            row = np.where(present, row - row[present].mean(), 0.0)
        c = c - row[stated.group] * part
        slack += gap * float(np.maximum(row, 0.0).sum())
    nobody = float(stated.worth[~stated.truth].sum())
    return nobody + float(bound(stated, c)) + slack


def _best_cut(z: Array, c: Array) -> float:
    """The largest Σ c over the rows with z ≥ t, over all t."""
    levels, place = np.unique(z, return_inverse=True)
    sums = np.bincount(place, c, minlength=len(levels))[::-1].cumsum()
    return max(0.0, float(sums.max(initial=0.0)))


def _difference(stated: Stated, p: Array, gap: float, rounding: float) -> Claim:
    """The largest difference in a rate between two groups."""
    worst, name = 0.0, ""
    for part, metric in zip(stated.parts, stated.names):
        present = np.bincount(stated.group, part > 0, minlength=stated.k) > 0
        rate = np.bincount(stated.group, part * p, minlength=stated.k)[present]
        spread = float(rate.max(initial=0.0) - rate.min(initial=1.0))
        if len(rate) > 1 and spread >= worst:
            worst, name = spread, metric
    met = bool(worst <= gap + TARGET + rounding)
    said = f"{name}s of groups differ by {worst:.2g}" if name else "one group only"
    return Claim(
        "criterion_difference",
        Strength.PROVED,
        worst,
        gap,
        met,
        "largest difference between groups in the expected rates, on these rows",
        "",
        (),
        None,
        TARGET + rounding,
        f"{said} (asked for {gap:g})",
        "" if met else "refit on these rows",
    )
