"""Checks of the perceptron: its weights are the sum of its mistakes.

With the mistake counts m as witness, w = Σ ηᵢmᵢyᵢxᵢ (inputs x with a constant 1 where
an intercept is fitted) is recomputed. What follows from it:

- ‖w‖² ≤ Σ ηᵢ²mᵢ‖xᵢ‖²: an update is made where y⟨x, w⟩ ≤ 0 (norm growth);
- if w separates with margin γ, then mistakes ≤ R²/γ² (Novikov), R the largest ‖x‖;
- no hyperplane at all has a margin above ‖Σ ηmyx‖/Σ ηm;
- weights a ≥ 0 bound every margin by ‖Σ ayx‖/Σ a: mistakes between two visits of one
  state make that zero, up to rounding.

A perceptron that leaves rows on the wrong side solves nothing: its error is measured.
Rounding: a sum of k products p is off by at most γₖΣ|p|, and Σⱼ|xⱼwⱼ| ≤ ‖x‖‖w‖.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.certificate import Claim, Status, Strength
from certus.evidence import MistakesWitness
from certus.verify import data, stating
from certus.verify.data import Array
from certus.verify.deciding import (
    TINY,
    Number,
    gamma,
    length,
    power_of_two,
    proved,
    refuse_weights,
    status_of,
)
from certus.verify.kernel import reading
from certus.verify.margin import coinciding_combination
from certus.verify.stating import Checked, Given

#: Largest difference between w and the sum of its mistakes, as a share of the parts;
#: coefficients kept in float32 were rounded once.
SUM_TARGET, SUM_TARGET_32 = 1e-9, 1e-6
#: Two convex combinations this close, as a share of the rows' length, coincide.
COINCIDE = 1e-12
#: Cells read at a time, and lengths whose squares lost nothing to float64's range.
CELLS, LOW = 1 << 17, 1e-140
_RULE = "w = Σ ηmyx, an update where y·(xᵀw + b) ≤ 0"


class Statement(NamedTuple):
    """The rule: size of an update, weights of classes, and which problems."""

    eta0: float
    class_weight: Any
    several: str  # "ovr" or "ovo"
    intercept: bool
    ours: bool  # takes no sample_weight, and keeps a record of its mistakes
    fix: str


def _perceptron(model: Any) -> Statement:
    fitted = bool(model.fit_intercept)
    if not stating.is_ours(model):
        return Statement(1.0, None, "ovr", fitted, False, "certus.linear.Perceptron")
    if model.penalty is not None:
        raise stating.Refusal(
            f"penalty={model.penalty!r}: weights that shrink are no sum of mistakes",
            "penalty=None",
        )
    fix = f"raise max_iter (now {model.max_iter}); data that no hyperplane separates "
    fix += "need LinearSVC or LogisticRegression"
    rule = (float(model.eta0), model.class_weight, model.multi_class)
    return Statement(*rule, fitted, True, fix)


READERS: dict[str, stating.Reader] = {"Perceptron": _perceptron}


class Pupil(NamedTuple):
    """One binary perceptron: labels ±1 (0 where it saw nothing) and its history."""

    y: Array
    eta: Array
    w: Array  # (d + 1), b last
    m: Array | None
    start: Array | None

    @property
    def scale(self) -> float:
        """The power of two that makes the largest entry of w about one."""
        return power_of_two(float(np.abs(self.w).max(initial=0.0)))

    @property
    def unit(self) -> float:
        """The same for η."""
        return power_of_two(float(self.eta.max(initial=0.0)))

    @property
    def steps(self) -> Array:
        """η·m·y, in that unit."""
        m = 0.0 if self.m is None else self.m
        return np.asarray(self.eta * self.unit * m * self.y)


class Walk(NamedTuple):
    """One pass over the rows (x, 1), which are multiplied by ``unit``."""

    scores: Array  # (n, k), of w·scale
    sums: Array  # (d + 1, k), Σ steps·x
    lengths: Array  # ‖x‖, from above
    projected: Array  # for the fingerprint
    unit: float
    terms: int  # operations behind an entry of a sum


class Facts(NamedTuple):
    """What is found about one perceptron; margins from below, sizes from above."""

    wrong: int
    seen: int
    ratio: float  # largest length / margin; inf if rows are not surely on their side
    made: int = 0
    deviation: float = 0.0  # of w from the sum of mistakes, as a share of the parts
    allowance: float = 0.0
    growth: float = np.nan  # ‖w‖²/Σ η²m‖x‖²
    limit: float = np.inf  # ‖Σ ηmyx‖/Σ ηm


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """Judge a perceptron, with a :class:`~certus.evidence.MistakesWitness` or none."""
    witness, X, y, s, level, _ = given
    X = reading.as_matrix(X)
    labels = reading.codes(y, np.asarray(model.classes_))
    coef = reading.plain(model.coef_)
    if (len(labels), coef.shape[-1]) != X.shape:
        raise ValueError(
            f"X has shape {X.shape}; y has {len(labels)} rows, and the model was "
            f"fitted on {coef.shape[-1]} columns."
        )
    if stated.ours:
        refuse_weights(model, s)
    s = data.row_weights(s, len(labels))
    pupils = _pupils(model, stated, witness, labels, s > 0)
    if not all(np.isfinite(p.w).all() for p in pupils):
        marks = data.fingerprint(X, labels.astype(float), s)
        claim = _sum_claim([Facts(0, 0, 0.0, 0, np.inf)], 0.0, stated.fix)
        return [claim], Status.DIVERGED, marks
    walk = _walk(pupils, X, stated.intercept)
    marks = data.fingerprint(X, labels.astype(float), s, walk.projected)
    facts = [_facts(p, j, walk) for j, p in enumerate(pupils)]
    if any(np.any(p.eta[p.y != 0] == 0) for p in pupils):
        fix = "a positive class_weight: rows of weight 0 teach nothing"
        stated = stated._replace(fix=fix)
    target = SUM_TARGET_32 if coef.dtype == np.float32 else SUM_TARGET
    known = all(p.m is not None for p in pupils)
    sums = [_sum_claim(facts, target, stated.fix)] if known else []
    fresh = known and all(p.start is None for p in pupils)
    true, error = all(bool(c.met) for c in sums), _error_claim(facts, "")
    grown = [_growth_claim(facts, target)] if fresh and true else []
    if not any(f.wrong for f in facts):
        bound = _bound_claim(facts, fresh, true, stated)
        return [bound, *sums, error, *grown], status_of(bound), marks
    if not true:
        return [*sums, error], status_of(sums[0]), marks
    shown = _combination(pupils, witness, X, level, stated.intercept)
    if shown and isinstance(witness, MistakesWitness) and witness.period:
        cycle = _cycle_claim(shown[0], witness.period)
        return [cycle, *sums, error, *grown], Status.NO_MINIMISER, marks
    if not shown and fresh:
        shown = [_limit_claim(facts, stated.intercept)]
    error = _error_claim(facts, stated.fix)
    return [error, *sums, *grown, *shown], Status.UNDECIDED, marks


def _pupils(
    model: Any, stated: Statement, witness: Any, labels: Array, used: Array
) -> list[Pupil]:
    n, k = len(labels), len(model.classes_)
    signs = [np.where(labels == j, 1.0, -1.0) for j in range(k)][k == 2 :]
    one = k == 2 or stated.several == "ovo"
    if one and k > 2:
        pairs = combinations(range(k), 2)
        signs = [1.0 * (labels == j) - 1.0 * (labels == i) for i, j in pairs]
    coef = reading.plain(model.coef_).astype(np.float64)
    coef = coef.reshape(-1, coef.shape[-1])
    if len(coef) != len(signs):
        raise ValueError(f"the model has {len(coef)} scores, its labels {len(signs)}.")
    b = np.broadcast_to(np.asarray(model.intercept_, dtype=float).ravel(), len(coef))
    each = np.ones(k)
    if stated.class_weight is not None:
        classes = np.asarray(model.classes_)
        each = reading.class_weights(
            stated.class_weight, reading.Weights(np.ones(n)), labels, classes, "rows"
        )
    pupils = []
    for j, y in enumerate(signs):
        weight = each[labels] if one else np.where(labels == j, each[j], 1.0)
        m = start = None
        if isinstance(witness, MistakesWitness) and witness.mistakes is not None:
            m = _counts(witness.mistakes, j, (n, len(signs)), y)
            first: Any = witness.start
            if np.shape(first) == (len(signs), coef.shape[1] + 1):
                start = np.asarray(first[j], dtype=np.float64)
        w = np.append(coef[j], b[j])
        pupils.append(Pupil(np.where(used, y, 0.0), stated.eta0 * weight, w, m, start))
    return pupils


def _counts(found: Any, j: int, shape: tuple[int, int], y: Array) -> Array:
    """Counts of mistakes; NaN, which adds up to nothing, where they are none."""
    bad = np.full(shape[0], np.nan)
    if np.shape(found) != shape or np.asarray(found).dtype.kind not in "fiu":
        return bad
    m = np.asarray(found[:, j], dtype=float)
    whole = (m >= 0) & (m < 2.0**53) & (m == np.round(m)) & (m * (y == 0) == 0)
    return m if whole.all() else bad


def _walk(pupils: list[Pupil], X: Any, intercept: bool, unit: float = 1.0) -> Walk:
    """Read the rows; once more in other units where squares leave float64's range."""
    n, d = X.shape
    W = np.column_stack([p.w * p.scale for p in pupils])
    U = np.column_stack([p.steps for p in pupils])
    both = np.column_stack([W[:-1], data.direction(d)])
    scores, squares = np.empty((n, both.shape[1])), np.empty(n)
    sums, lift = np.zeros((d, len(pupils))), unit if intercept else 0.0
    rows = X.tocsr() if sparse.issparse(X) else X
    size = max(64, CELLS // max(1, d))
    with np.errstate(all="ignore"):
        for i in range(0, n, size):
            part = slice(i, i + size)
            block = rows[part].astype(np.float64, copy=False)
            block = block if unit == 1 else block * unit
            scores[part] = block @ both
            sums += block.T @ U[part]
            if sparse.issparse(block):
                squares[part] = np.asarray(block.multiply(block).sum(axis=1)).ravel()
            else:
                squares[part] = np.einsum("ij,ij->i", block, block)
        lengths = np.sqrt((squares + lift**2) * (1 + gamma(d + 4)) + d * TINY)
        if unit == 1 and not LOW < lengths.max() < 1 / LOW:
            cells = X.data if sparse.issparse(X) else X
            ends = float(cells.max(initial=0)), -float(cells.min(initial=0))
            other = power_of_two(max(*ends, lift))
            if other != 1:
                again = _walk(pupils, X, intercept, other)
                return again._replace(projected=scores[:, -1])
        sums = np.vstack([sums, lift * U.sum(axis=0)])
        shown = scores[:, :-1] + lift * W[-1]
    terms = 16 + min(n, size) + n // size
    return Walk(shown, sums, lengths, scores[:, -1], unit, terms)


def _facts(p: Pupil, j: int, walk: Walk) -> Facts:
    d, seen = len(p.w), p.y != 0
    f, r, eta = (p.y * walk.scores[:, j])[seen], walk.lengths[seen], p.eta[seen]
    size = length(p.w * p.scale) * (1 + gamma(d + 8))
    least = float((f - gamma(d + 4) * r * size - d * TINY).min())
    uneven = eta.max() / eta.min() if eta.min() > 0 else np.inf
    ratio = float(uneven * r.max() * size / least) if least > 0 else np.inf
    common = (int(np.count_nonzero(f <= 0)), len(f), ratio * (1 + gamma(8)))
    if p.m is None:
        return Facts(*common)
    with np.errstate(all="ignore"):
        unit, parts = p.unit * walk.unit, np.abs(p.steps)
        w, start = p.w * unit, np.zeros(d) if p.start is None else p.start * unit
        total, reach = float(parts.sum()), float(parts @ walk.lengths) + length(start)
        off, error = length(w - walk.sums[:, j] - start), gamma(walk.terms + d)
        if not reach > 0:  # no update at all
            return Facts(*common, 0, 0.0 if off == 0 else np.inf)
        room = float((p.eta * p.unit * parts) @ np.square(walk.lengths))
        limit = (length(walk.sums[:, j]) + error * reach) / max(total, TINY)
        error *= 2 + length(w) / reach
        if not np.isfinite(off / reach + error):
            return Facts(*common, 0, np.inf)
        growth = length(w) ** 2 / room if room > 0 else 0.0
    return Facts(*common, int(p.m.sum()), off / reach, error, growth, limit / walk.unit)


# -- claims -----------------------------------------------------------------------


def _sum_claim(facts: list[Facts], target: float, fix: str) -> Claim:
    worst = max(facts, key=lambda f: f.deviation + f.allowance)
    value, made = worst.deviation, sum(f.made for f in facts)
    return proved(
        *("update_sum", Number(value, worst.allowance), target),
        f"the weights are the sum of {made:,} updates, recomputed",
        objective=_RULE,
        theorem="each update adds ηyx, so the counts of updates determine the weights",
        missed=f"the weights differ from the sum of their updates by {value:.2g} of it",
        fix=fix,
    )


def _bound_claim(
    facts: list[Facts], fresh: bool, true: bool, stated: Statement
) -> Claim:
    """Novikov's bound for the worst of the problems."""
    f = max(facts, key=lambda f: (f.ratio == np.inf, f.made / f.ratio**2))
    bound, x = f.ratio**2, "(x, 1)" if stated.intercept else "x"
    met: bool | None = bool(true and (not fresh or f.made <= bound))
    value, fix = float(f.made) if fresh else bound, stated.fix
    detail = f"after {f.made:,} mistakes; the bound is {bound:,.0f}"
    if not fresh:
        detail = f"; from w = 0 no order of these rows costs more than {bound:,.0f} "
        detail += "mistakes"
    detail = f"all rows on their side{detail if detail[0] == ';' else ' ' + detail}"
    if not true:
        value, detail = np.inf, "the mistakes on record do not make these weights"
    elif bound == np.inf:
        met, fix = None, "centre and scale the columns (StandardScaler)"
        detail = "undecided: rounding alone may move a row across the hyperplane"
    return Claim(
        *("mistake_bound", Strength.PROVED, value, bound if fresh else None, met),
        f"R²/γ², R = largest ‖{x}‖, γ = smallest y⟨{x}, w⟩/‖w‖",
        "Novikov: an update raises ⟨w, w*⟩ by at least γ and ‖w‖² by at most R², so "
        "mistakes ≤ R²/γ² for every hyperplane w* of margin γ; here the one found",
        detail=detail,
        fix="" if met else fix,
    )


def _error_claim(facts: list[Facts], fix: str) -> Claim:
    wrong, seen = sum(f.wrong for f in facts), sum(f.seen for f in facts)
    detail = f"{wrong:,} of {seen:,} rows on the wrong side"
    if len(facts) > 1:
        detail += f" (over {len(facts)} problems)"
    named = ("training_error", Strength.MEASURED, wrong / seen)
    return Claim(*named, detail=detail, fix=fix)


def _growth_claim(facts: list[Facts], slack: float) -> Claim:
    worst = max(f.growth for f in facts)
    found = Number(worst, worst * max(f.allowance for f in facts))
    return proved(
        *("norm_growth", found, 1 + slack),
        f"‖w‖² is {worst:.2g} of what its updates allow",
        objective="‖w‖²/Σ η²m‖x‖²",
        theorem="an update where y⟨x, w⟩ ≤ 0 raises ‖w‖² by at most η²‖x‖²",
    )


def _limit_claim(facts: list[Facts], intercept: bool) -> Claim:
    limit = min(f.limit for f in facts)
    return Claim(
        *("margin_limit", Strength.PROVED, limit, None, True),
        "‖Σ ηmyx‖/Σ ηm" + (" on inputs (x, 1)" if intercept else ""),
        "a hyperplane of margin γ has γ·Σ ηm ≤ ⟨w, w*⟩ ≤ ‖w‖",
        detail=f"no hyperplane separates the rows by more than {limit:.2g}",
    )


def _combination(
    pupils: list[Pupil], witness: Any, X: Any, level: str, intercept: bool
) -> list[Claim]:
    """That nothing separates, by the cycle of the witness or our own search."""
    tries = []
    if isinstance(witness, MistakesWitness) and isinstance(witness.which, int):
        cycle = np.asarray(witness.cycle)
        for p in pupils[witness.which : witness.which + 1]:
            if cycle.shape == p.y.shape and cycle.dtype.kind in "fiu":
                tries.append((p, cycle * p.eta))
    for p in pupils if level == "full" else ():
        part = coinciding_combination(X[p.y != 0], p.y[p.y != 0], intercept)
        if part is not None:
            tries.append((p, np.zeros(len(p.y))))
            tries[-1][1][p.y != 0] = part
    claims = (_separation_claim(p, a, X, intercept) for p, a in tries)
    return [claim for claim in claims if claim is not None and claim.met][:1]


def _separation_claim(p: Pupil, a: Array, X: Any, intercept: bool) -> Claim | None:
    """PROVED: whatever the order, mistakes never end; None where a is no weight."""
    if not (np.isfinite(a).all() and a.min() >= 0 and (a * (p.y == 0) == 0).all()):
        return None
    used = np.flatnonzero(a)
    if not len(used):
        return None
    alone = Pupil(p.y[used], np.ones(len(used)), p.w, a[used] / a.max(), None)
    walk = _walk([alone], X[used], intercept)
    value = length(walk.sums[:, 0]) / float(np.abs(alone.steps) @ walk.lengths)
    plus, minus = (_rows(int(np.sum(alone.y == side))) for side in (1, -1))
    said = f"no hyperplane separates the classes: a convex combination of {plus} of one"
    said += f" is the same point as one of {minus} of the other"
    if not intercept:
        said = "no hyperplane through the origin separates the classes: weights on "
        said += f"{len(used)} rows have Σ ayx = 0"
    return proved(
        *("separation", Number(value, gamma(walk.terms + len(p.w))), COINCIDE, said),
        objective="‖Σ ayx‖/Σ a‖x‖",
        theorem="a hyperplane of margin γ has γ·Σ a ≤ ‖Σ ayx‖ for every a ≥ 0",
    )


def _cycle_claim(shown: Claim, period: int) -> Claim:
    """REFUSED: the state came back, so nothing new will happen."""
    often = "epoch" if period == 1 else f"{period} epochs"
    detail = f"the weights come back every {often} and mistakes never end: "
    fix, theorem = "LinearSVC or LogisticRegression", shown.theorem
    named = ("mistake_bound", Strength.REFUSED, None, None, None, _RULE, theorem)
    return Claim(*named, detail=detail + shown.detail, fix=fix)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
