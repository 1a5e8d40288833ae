"""Checks of the perceptron: its weights are the sum of its mistakes.

With mistake counts m as evidence, w = Σ ηᵢmᵢyᵢxᵢ (inputs x with a constant 1 where an
intercept is fitted) is recomputed. What follows from it:

- ‖w‖² ≤ Σ ηᵢ²mᵢ‖xᵢ‖²: an update is made where y⟨x, w⟩ ≤ 0 (norm growth);
- if w separates with margin γ, then mistakes ≤ R²/γ² (Novikov), R the largest ‖x‖;
- no hyperplane at all has a margin above ‖w‖/Σ ηᵢmᵢ;
- mistakes between two visits of one state have Σ Δm·η·y·x = 0: nothing separates.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.data import Array
from certus.verify.margin import (
    coinciding_combination,
    combination_holds,
    refusal_claim,
)

EPS = float(np.finfo(np.float64).eps)
#: Cells up to which rows' norms are taken at level quick, whatever the outcome.
SMALL = 5_000_000
#: Largest relative difference between w and the sum of its mistakes.
SUM_TARGET = 1e-9
_RULE = "w = Σ ηmyx, an update where y·(xᵀw + b) ≤ 0"


class Pupil(NamedTuple):
    """One binary perceptron: labels ±1 (0 where it saw nothing) and its history."""

    y: Array
    eta: Array
    w: Array  # (d + 1), b last
    mistakes: Array | None
    start: Array | None


class Facts(NamedTuple):
    """What the verifier finds about one perceptron."""

    deviation: float  # of w from the sum of mistakes, relative; nan if unknown
    allowance: float
    made: int
    wrong: int
    seen: int
    margin: float  # min y⟨x, w⟩/‖w‖ on augmented inputs
    radius: float
    growth: float  # ‖w‖²/Σ η²m‖x‖²
    limit: float  # ‖w‖/Σ ηm
    uneven: float  # largest η over smallest


def check_perceptron(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """Judge a perceptron.

    ``evidence.params``: target ("signs", "one_vs_rest", "one_vs_one"), intercept,
    eta0, class_weight, class_weight_on, fix. ``evidence.arrays``: ``mistakes`` (n, k),
    ``start`` (k, d + 1), ``cycle`` (n,) of problem ``which``.
    """
    X = data.as_matrix(X)
    labels = data.codes(y, np.asarray(model.classes_))
    if len(labels) != X.shape[0]:
        raise ValueError(f"y has {len(labels)} rows and X has {X.shape[0]}.")
    ones = np.ones(X.shape[0])
    marks = data.fingerprint(X, labels.astype(float), ones)
    coef = data.plain(model.coef_)
    if coef.shape[-1] != X.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} columns and the model was fitted on {coef.shape[-1]}."
        )
    if not np.isfinite(coef).all() or not np.isfinite(model.intercept_).all():
        claim = _sum_claim(np.inf, 0.0, "the weights hold NaN or infinite values", "")
        return [claim], Status.DIVERGED, marks
    pupils = _pupils(model, evidence, labels, coef)
    intercept = bool(evidence.params.get("intercept", True))
    unit = float(np.finfo(np.float32).eps) if coef.dtype == np.float32 else EPS
    facts = _facts(pupils, X, intercept, unit, level)
    claims, status = _claims(pupils, facts, evidence, X, level, intercept)
    return claims, status, marks


def _pupils(model: Any, evidence: Evidence, labels: Array, coef: Array) -> list[Pupil]:
    params, k = evidence.params, len(model.classes_)
    target = params.get("target", "signs")
    if target == "signs":
        signs = [np.where(labels == 1, 1.0, -1.0)]
    elif target == "one_vs_rest":
        signs = [np.where(labels == j, 1.0, -1.0) for j in range(k)]
    else:
        pairs = [(i, j) for i in range(k) for j in range(i + 1, k)]
        signs = [1.0 * (labels == j) - 1.0 * (labels == i) for i, j in pairs]
    coef = coef.reshape(-1, coef.shape[-1])
    b = np.broadcast_to(np.asarray(model.intercept_, dtype=float).ravel(), len(coef))
    if len(coef) != len(signs):
        raise ValueError(f"the model has {len(coef)} scores, its labels {len(signs)}.")
    ones = np.ones(len(labels))
    each = np.ones(k)
    if params.get("class_weight") is not None:
        classes = np.asarray(model.classes_)
        each = data.class_weights(params["class_weight"], ones, labels, classes)
    mistakes, start = evidence.arrays.get("mistakes"), evidence.arrays.get("start")
    if mistakes is not None and np.shape(mistakes) != (len(labels), len(signs)):
        mistakes = np.full((len(labels), len(signs)), np.nan)  # other data: no sum fits
    pupils = []
    for j, y in enumerate(signs):
        weight = each[labels]
        if target == "one_vs_rest":
            weight = np.where(labels == j, each[j], 1.0)
        m = None if mistakes is None else np.asarray(mistakes[:, j], dtype=float)
        first = None if start is None else np.asarray(start[j], dtype=float)
        w = np.append(coef[j].astype(np.float64), b[j])
        eta = float(params.get("eta0", 1.0)) * weight
        pupils.append(Pupil(y, eta, w, m, first))
    return pupils


def _row_norms(X: Any, intercept: bool) -> Array:
    """‖x‖² of each row, with the constant."""
    if sparse.issparse(X):
        squares = np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel()
    else:
        rows = max(1, (1 << 18) // max(1, X.shape[1]))
        parts = [X[i : i + rows] for i in range(0, X.shape[0], rows)]
        squares = np.concatenate(
            [np.einsum("ij,ij->i", p, p, dtype=np.float64) for p in parts]
        )
    return np.asarray(squares + (1.0 if intercept else 0.0))


def _facts(
    pupils: list[Pupil], X: Any, intercept: bool, unit: float, level: str
) -> list[Facts]:
    """Two products with X for all problems together; rows' norms where they matter."""
    W = np.column_stack([p.w for p in pupils])
    one = len(pupils) == 1  # a product with a vector is the faster one
    Z = data.dot(X, W[:-1, 0] if one else W[:-1]).reshape(len(pupils[0].y), -1) + W[-1]
    F = Z * (pupils[0].y[:, None] if one else np.column_stack([p.y for p in pupils]))
    sums, sizes = _sums_of(pupils, X, intercept)
    views = [F[:, j] if p.y.all() else F[p.y != 0, j] for j, p in enumerate(pupils)]
    wrong = [int(np.count_nonzero(f <= 0)) for f in views]
    small = X.shape[0] * X.shape[1] <= SMALL
    norms = None
    if small or level == "full" or not any(wrong):
        norms = _row_norms(X, intercept)
    facts = []
    for j, p in enumerate(pupils):
        seen = p.y != 0
        length = float(np.linalg.norm(p.w))
        margin = float(views[j].min()) / length if length > 0 else 0.0
        radius = np.nan if norms is None else float(np.sqrt(norms[seen].max()))
        eta = p.eta if p.y.all() else p.eta[seen]
        uneven = float(eta.max() / eta.min()) if eta.min() > 0 else np.inf
        common = (wrong[j], int(seen.sum()), margin, radius)
        if p.mistakes is None or sums is None:
            unknown = np.nan if p.mistakes is None else np.inf
            facts.append(Facts(unknown, 0.0, 0, *common, np.nan, np.nan, uneven))
            continue
        made, weight = int(p.mistakes.sum()), p.eta * p.mistakes
        off = float(np.linalg.norm(p.w - sums[:, j]))
        deviation = off / sizes[j] if sizes[j] > 0 else off
        allowance = unit + EPS * (16 + 2 * np.sqrt(made))
        growth = np.nan
        if norms is not None:
            room = float((p.eta * weight) @ norms)
            growth = length**2 / room if room > 0 else 0.0
        limit = length / float(weight.sum()) if made else np.inf
        facts.append(Facts(deviation, allowance, made, *common, growth, limit, uneven))
    return facts


def _sums_of(
    pupils: list[Pupil], X: Any, intercept: bool
) -> tuple[Array | None, list[float]]:
    """Σ η·m·y·x of each problem, and its size; None for counts that are none."""
    columns, sizes = [], []
    typical = float(np.linalg.norm(data.magnitudes(X))) + 1.0
    for p in pupils:
        m = p.mistakes
        if m is None or not (np.isfinite(m).all() and np.all(m >= 0)):
            return None, []
        if np.any(m != np.round(m)) or np.any(m[p.y == 0] > 0):
            return None, []
        columns.append(p.eta * m * p.y)
        start = 0.0 if p.start is None else float(np.linalg.norm(p.start))
        sizes.append(float((p.eta * m).sum()) * typical + start)
    U = columns[0][:, None] if len(columns) == 1 else np.column_stack(columns)
    last = U.sum(axis=0) if intercept else np.zeros(U.shape[1])
    inner = data.t_dot(X, U[:, 0] if len(pupils) == 1 else U)
    sums = np.vstack([inner.reshape(X.shape[1], -1), last])
    for j, p in enumerate(pupils):
        if p.start is not None:
            sums[:, j] += p.start
    return sums, sizes


# -- claims -----------------------------------------------------------------------


def _claims(
    pupils: list[Pupil],
    facts: list[Facts],
    evidence: Evidence,
    X: Any,
    level: str,
    intercept: bool,
) -> tuple[list[Claim], Status]:
    fix = str(evidence.params.get("fix", ""))
    known = all(p.mistakes is not None for p in pupils)
    fresh = known and all(p.start is None for p in pupils)
    sums = _sums(facts, fix) if known else None
    rest = [_error_claim(facts)]
    true = sums is None or bool(sums.met)
    fresh = fresh and true
    if fresh and not np.isnan(facts[0].growth):
        rest.append(_growth_claim(facts))
    separates = all(f.wrong == 0 and f.margin > 0 for f in facts)
    if separates:
        bound = _bound_claim(facts, fresh, true, fix, intercept)
        claims = [bound, *([sums] if sums else []), *rest]
        return claims, Status.SOLVED if true else Status.TOL_NOT_REACHED
    witness = _witness(pupils, evidence, X, level, intercept)
    period = int(evidence.params.get("period", 0))
    if witness is not None and period and true:
        refusal = _cycle_claim(*witness, period, intercept)
        return [refusal, *([sums] if sums else []), *rest], Status.NO_MINIMISER
    if witness is not None and true:
        rest.append(_separation_claim(*witness, intercept))
    elif fresh:
        rest.append(_limit_claim(facts, intercept))
    claims = [*([sums] if sums else []), *rest]
    return claims, Status.SOLVED if true else Status.TOL_NOT_REACHED


def _sums(facts: list[Facts], fix: str) -> Claim:
    worst = max(facts, key=lambda f: f.deviation - f.allowance)
    made = sum(f.made for f in facts)
    close = worst.deviation <= SUM_TARGET + worst.allowance
    if close:
        detail = f"the weights are the sum of {made:,} updates, recomputed"
    else:
        detail = "the weights differ from the sum of their updates by a share of "
        detail += f"{worst.deviation:.2g}"
    return _sum_claim(worst.deviation, worst.allowance, detail, "" if close else fix)


def _sum_claim(value: float, allowance: float, detail: str, fix: str) -> Claim:
    met = bool(value <= SUM_TARGET + allowance)
    return Claim(
        "update_sum",
        Strength.PROVED,
        value,
        SUM_TARGET,
        met,
        _RULE,
        "each update adds ηyx, so the counts of updates determine the weights",
        (),
        None,
        allowance,
        detail,
        fix,
    )


def _bound_claim(
    facts: list[Facts], fresh: bool, true: bool, fix: str, intercept: bool
) -> Claim:
    """Novikov's bound for the worst of the problems."""
    bounds = [(f.uneven * f.radius / f.margin) ** 2 for f in facts]
    k = max(range(len(facts)), key=lambda j: facts[j].made / bounds[j])
    f, bound = facts[k], bounds[k]
    theorem = (
        "Novikov: an update raises ⟨w, w*⟩ by at least γ and ‖w‖² by at most R², so "
        "mistakes ≤ R²/γ² for every hyperplane w* of margin γ; here the one found"
    )
    x = "(x, 1)" if intercept else "x"
    note = f"R²/γ², R = largest ‖{x}‖, γ = smallest y⟨{x}, w⟩/‖w‖"
    if true and not fresh:
        return Claim(
            "mistake_bound",
            Strength.PROVED,
            bound,
            None,
            True,
            note,
            theorem,
            detail=f"all rows on their side; from w = 0 no order of these rows costs "
            f"more than {bound:,.0f} mistakes",
        )
    met = bool(true and f.made <= bound * (1 + 1e-9))
    detail = f"all rows on their side after {f.made:,} mistakes; the bound is "
    detail += f"{bound:,.0f}"
    if not met:
        detail = "the mistakes on record do not make these weights"
    return Claim(
        "mistake_bound",
        Strength.PROVED,
        float(f.made) if true else np.inf,
        bound,
        met,
        note,
        theorem,
        (),
        None,
        0.0,
        detail,
        "" if met else fix,
    )


def _error_claim(facts: list[Facts]) -> Claim:
    wrong, seen = sum(f.wrong for f in facts), sum(f.seen for f in facts)
    share = wrong / seen
    detail = f"{wrong:,} of {seen:,} rows on the wrong side"
    if len(facts) > 1:
        detail += f" (over {len(facts)} problems)"
    return Claim("training_error", Strength.MEASURED, share, detail=detail)


def _growth_claim(facts: list[Facts]) -> Claim:
    worst = max(f.growth for f in facts)
    met = bool(worst <= 1 + 1e-6)
    return Claim(
        "norm_growth",
        Strength.PROVED,
        worst,
        1.0,
        met,
        "‖w‖²/Σ η²m‖x‖²",
        "an update where y⟨x, w⟩ ≤ 0 raises ‖w‖² by at most η²‖x‖²",
        detail=f"‖w‖² is {worst:.2g} of what its updates allow",
    )


def _limit_claim(facts: list[Facts], intercept: bool) -> Claim:
    limit = min(f.limit for f in facts)
    return Claim(
        "margin_limit",
        Strength.PROVED,
        limit,
        None,
        True,
        "‖w‖/Σ ηm" + (" on inputs (x, 1)" if intercept else ""),
        "a hyperplane of margin γ has γ·Σ ηm ≤ ⟨w, w*⟩ ≤ ‖w‖",
        detail=f"no hyperplane separates the rows by more than {limit:.2g}",
    )


def _witness(
    pupils: list[Pupil], evidence: Evidence, X: Any, level: str, intercept: bool
) -> tuple[Pupil, Array] | None:
    """The cycle of the evidence if it holds, or one of our own at level full."""
    cycle = evidence.arrays.get("cycle")
    k = int(evidence.params.get("which", 0))
    tries = []
    if cycle is not None and k < len(pupils) and len(cycle) == len(pupils[k].y):
        tries.append((pupils[k], np.asarray(cycle, dtype=float) * pupils[k].eta))
    if level == "full":
        for p in pupils:
            seen = p.y != 0
            part = coinciding_combination(X[seen], p.y[seen], intercept)
            if part is not None:
                a = np.zeros(len(p.y))
                a[seen] = part
                tries.append((p, a))
    for p, a in tries:
        if combination_holds(X, p.y, (p.y != 0) * 1.0, a, intercept):
            return p, a
    return None


def _cycle_claim(p: Pupil, a: Array, period: int, intercept: bool) -> Claim:
    """REFUSED: the state came back, so nothing new will happen."""
    claim = refusal_claim("mistake_bound", p.y, a, _RULE, intercept)
    plural = "epoch" if period == 1 else f"{period} epochs"
    return dataclasses.replace(
        claim,
        detail=f"the weights come back every {plural} and mistakes never end: "
        f"{claim.detail}",
        fix="LinearSVC or LogisticRegression",
    )


def _separation_claim(p: Pupil, a: Array, intercept: bool) -> Claim:
    """PROVED: whatever the order, mistakes never end."""
    claim = refusal_claim("separation", p.y, a, "", intercept)
    return dataclasses.replace(claim, strength=Strength.PROVED, met=True, fix="")
