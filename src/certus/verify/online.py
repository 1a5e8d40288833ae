"""Checks of the perceptron: its weights are the sum of its mistakes.

With the mistake counts m as witness, w = Σ ηᵢmᵢyᵢxᵢ (inputs x with a constant 1 where
an intercept is fitted) is recomputed. What follows from it:

- ‖w‖² ≤ Σ ηᵢ²mᵢ‖xᵢ‖²: an update is made where y⟨x, w⟩ ≤ 0 (norm growth);
- if w separates with margin γ, then mistakes ≤ R²/γ² (Novikov), R the largest ‖x‖;
- no hyperplane at all has a margin above ‖Σ ηmyx‖/Σ ηm;
- where weights a ≥ 0 make Σ ayx zero no hyperplane separates: mistakes between two
  visits of one state do, up to rounding.

A perceptron that leaves rows on the wrong side has no claim but its measured error.
Rounding: a sum of k products p is off by at most γₖΣ|p|, and Σⱼ|xⱼwⱼ| ≤ ‖x‖‖w‖.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.certificate import Claim, Status, Strength
from certus.evidence import MistakesWitness
from certus.fingerprints import direction
from certus.searches import overlaps
from certus.typing import Array, ArrayLike, Fit, Matrix
from certus.verify import data, stating
from certus.verify import deciding as bd
from certus.verify.blocks import over_blocks
from certus.verify.deciding import TINY, Number, gamma, power_of_two
from certus.verify.kernel import reading
from certus.verify.margin import coincidence, left_over
from certus.verify.stating import Checked, Given

#: Largest difference between w and the sum of its mistakes, as a share of the parts;
#: coefficients kept in float32 were rounded once.
SUM_TARGET, SUM_TARGET_32 = 1e-9, 1e-6
#: Sums with this share of their terms left over are zero.
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


def _perceptron(model: Fit) -> Statement:
    fitted = bool(model.fit_intercept)
    if not stating.is_ours(model):
        fix = "certus.linear_model.Perceptron"
        return Statement(1.0, None, "ovr", fitted, False, fix)
    if model.penalty is not None:
        raise stating.Refusal(
            f"penalty={model.penalty!r}: shrunk weights are not a sum of updates",
            "penalty=None",
        )
    fix = f"raise max_iter (now {model.max_iter}); data that no hyperplane separates "
    fix += "need LinearSVC or LogisticRegression"
    rule = (float(model.eta0), model.class_weight, model.multi_class)
    return Statement(*rule, fitted, True, fix)


READERS: dict[str, stating.Reader] = {"Perceptron": _perceptron}


class Problems(NamedTuple):
    """Binary perceptrons, a column each: labels, steps, weights and history.

    η and w are in units of a power of two, which no claim depends on.
    """

    y: Array  # (n, k) of ±1, and 0 where a row was not seen
    eta: Array  # (n, k)
    w: Array  # (d + 1, k), b last
    m: Array | None = None  # mistakes
    start: Array | None = None

    @property
    def parts(self) -> Array:
        """The steps taken, η·m."""
        return self.eta * (0.0 if self.m is None else self.m)


class Walk(NamedTuple):
    """One pass over the rows (x, 1); x and w are multiplied by ``unit``."""

    w: Array
    start: Array
    scores: Array  # (n, k)
    sums: Array  # (d + 1, k), Σ ηmyx
    lengths: Array  # ‖x‖, from above
    reach: Array  # Σ ηm‖x‖, the size of the sums
    error: float  # rounding of the sums, as a share of it
    projected: Array  # for the fingerprint
    unit: float

    @property
    def sizes(self) -> Array:
        """‖w‖ of each problem."""
        return _norms(self.w)


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Judge a perceptron, with a :class:`~certus.evidence.MistakesWitness` or none."""
    witness, X, y, s, level, _ = given
    X = reading.as_matrix(X)
    n, d = X.shape
    labels = reading.codes(y, np.asarray(data.listed(model, "classes_")), n)
    coef = data.fitted(model, "coef_", (None, d))
    if stated.ours:
        bd.refuse_weights(model, s)
    s = data.row_weights(s, n)
    if not isinstance(witness, MistakesWitness):
        witness = MistakesWitness()
    p = _problems(model, stated, witness, labels, s > 0)
    walk = _walk(p, X, stated.intercept)
    marks = data.fingerprint(X, labels.astype(float), s, walk.projected)
    if np.any(p.eta[p.y != 0] == 0):
        fix = "use a positive class_weight: rows of weight 0 have no effect"
        stated = stated._replace(fix=fix)
    target = SUM_TARGET_32 if coef.dtype == np.float32 else SUM_TARGET
    finite, known = bool(np.isfinite(p.w).all()), p.m is not None
    sums = [_sum_claim(p, walk, target, stated.fix)] if known or not finite else []
    if not finite:
        return sums, Status.DIVERGED, marks
    true, error = all(bool(c.met) for c in sums), error_claim(p.y, walk.scores)
    fresh, x = known and p.start is None, "(x, 1)" if stated.intercept else "x"
    grown = [_growth(p, walk, target)] if fresh and true else []
    if not error.value:
        made = np.zeros(p.y.shape[1]) if p.m is None else p.m.sum(axis=0)
        bound = bound_claim(made, _bounds(p, walk), x, stated.fix, fresh, true)
        return [bound, *sums, error, *grown], bd.status_of(bound), marks
    if not true:
        return [*sums, error], bd.status_of(sums[0]), marks
    shown = _separation_claims(p, witness, X, level, stated.intercept)
    if shown and witness.period:
        cycle = _cycle_claim(shown[0], witness.period)
        return [cycle, *sums, error, *grown], Status.NO_MINIMISER, marks
    if not shown and fresh:
        shown = [limit_claim(_limit(p, walk), x)]
    error = replace(error, fix=stated.fix)
    return [error, *sums, *grown, *shown], Status.UNDECIDED, marks


def _problems(
    model: Any, stated: Statement, witness: MistakesWitness, labels: Array, used: Array
) -> Problems:
    k, each = len(model.classes_), np.ones(len(model.classes_))
    if stated.class_weight is not None:
        rows, known = reading.Weights(np.ones(len(labels))), np.asarray(model.classes_)
        each = reading.class_weights(stated.class_weight, rows, labels, known, "rows")
    own = labels[:, None] == np.arange(k)
    if k == 2 or stated.several == "ovo":
        pairs = np.array(list(combinations(range(k), 2)))
        y = 1.0 * own[:, pairs[:, 1]] - own[:, pairs[:, 0]]
        weight = np.repeat(each[labels][:, None], len(pairs), axis=1)
    else:
        y, weight = np.where(own, 1.0, -1.0), np.where(own, each, 1.0)
    coef = data.fitted(model, "coef_", (y.shape[1], None)).astype(np.float64)
    b = data.fitted(model, "intercept_", (len(coef),)).astype(np.float64)
    w, eta, m, start = np.vstack([coef.T, b]), stated.eta0 * weight, None, None
    unit = power_of_two(float(np.abs(w).max(initial=0.0)))
    if witness.mistakes is not None:
        m, unit = _counts(witness.mistakes, y), power_of_two(float(eta.max()))
        first = np.asarray(witness.start)
        start = first.T * unit if first.shape == w.shape[::-1] else None
    return Problems(np.where(used[:, None], y, 0.0), eta * unit, w * unit, m, start)


def _counts(found: ArrayLike, y: Array) -> Array:
    """Counts of mistakes; NaN if they are not counts."""
    m = np.asarray(found)
    if m.shape != y.shape or m.dtype.kind not in "fiu":
        return np.full(y.shape, np.nan)
    m = m.astype(float)
    whole = (m >= 0) & (m < 2.0**53) & (m == np.round(m)) & (m * (y == 0) == 0)
    return m if whole.all() else np.full(y.shape, np.nan)


@np.errstate(all="ignore")
def _walk(p: Problems, X: Matrix, intercept: bool, unit: float = 1.0) -> Walk:
    """Read the rows; once more in other units where squares leave float64's range."""
    (n, d), steps, w = X.shape, p.parts * p.y, p.w * unit
    lift = unit if intercept else 0.0
    both = np.column_stack([w[:-1], direction(d)])
    scores, squares = np.empty((n, both.shape[1])), np.empty(n)
    rows: Any = X if isinstance(X, np.ndarray) else X.tocsr()
    size = max(64, CELLS // max(1, d))

    def read(part: slice) -> Any:
        block = rows[part].astype(np.float64, copy=False)
        block = block if unit == 1 else block * unit
        scores[part] = block @ both
        if sparse.issparse(block):
            squares[part] = block.power(2) @ np.ones(d)
        else:
            squares[part] = np.einsum("ij,ij->i", block, block)
        return block.T @ steps[part]

    sums = sum(over_blocks(read, n, size), np.zeros((d, steps.shape[1])))
    lengths = np.sqrt((squares + lift**2) * (1 + gamma(d + 4)) + d * TINY)
    if unit == 1 and not LOW < lengths.max() < 1 / LOW:
        other = power_of_two(max(data.size_of(X), lift))
        if other != 1:
            again = _walk(p, X, intercept, other)
            return again._replace(projected=scores[:, -1])
    sums = np.vstack([sums, lift * steps.sum(axis=0)])
    shown = scores[:, :-1] + lift * w[-1]
    start = np.zeros_like(w) if p.start is None else p.start * unit
    reach = np.einsum("ij,i->j", p.parts, lengths)  # without waking BLAS's threads
    reach = (reach + _norms(start)) * (1 - gamma(n + 8))
    error = gamma(16 + min(n, size) + n // size + d)
    sizes = (lengths, np.maximum(reach, TINY), error)  # no update reaches nowhere
    return Walk(w, start, shown, sums, *sizes, scores[:, -1], unit)


def _norms(V: Array) -> Array:
    """‖v‖ of each column, without over- or underflow of squares."""
    return np.array([bd.length(v) for v in V.T])


# -- claims -----------------------------------------------------------------------


def _sum_claim(p: Problems, walk: Walk, target: float, fix: str) -> Claim:
    with np.errstate(all="ignore"):
        off = _norms(walk.w - walk.sums - walk.start) / walk.reach
        rounding = walk.error * (2 + walk.sizes / walk.reach)
    each = [Number(*map(float, both)) for both in zip(off, rounding)]
    each = each if np.isfinite(p.w).all() else [Number(np.inf)]
    worst = each[bd.worst_of(each, target)]
    made = 0.0 if p.m is None else float(p.m.sum())
    return bd.proved(
        *("update_sum", worst, target),
        f"the weights are the sum of {made:,.0f} updates, recomputed",
        objective=_RULE,
        theorem="each update adds ηyx, so the counts of updates determine the weights",
        missed=f"the weights differ from the sum of their updates by {worst.most:.2g}",
        fix=fix,
    )


def _bounds(p: Problems, walk: Walk) -> Array:
    """R²/γ² of each problem, from above; infinite where rounding hides the margin."""
    seen, r, d = p.y != 0, walk.lengths[:, None], len(walk.w)
    size = walk.sizes * (1 + gamma(d + 8))
    f = p.y * walk.scores - gamma(d + 4) * r * size - d * TINY
    with np.errstate(divide="ignore", invalid="ignore"):
        uneven = (p.eta * seen).max(axis=0) / np.where(seen, p.eta, np.inf).min(axis=0)
        margin = np.where(seen, f, np.inf).min(axis=0) / size
        bounds = np.square(uneven * (r * seen).max(axis=0) / margin) * (1 + gamma(32))
    return np.where((margin > 0) & (bounds < np.inf), bounds, np.inf)


def bound_claim(
    made: Array, bounds: Array, x: str, fix: str, fresh: bool = True, true: bool = True
) -> Claim:
    """Novikov's bound on the mistakes of the worst of the problems, on inputs ``x``.

    If the weights did not start at zero (not ``fresh``), it is the bound from that
    start.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where((made == 0) & (bounds == 0), 0.0, made / bounds)  # no rows
    worst = int(np.argmax(np.where(bounds < np.inf, share, np.inf)))
    value, bound = float(made[worst]), float(bounds[worst])
    met: bool | None = bool(true and (not fresh or value <= bound))
    detail = f"all rows are correct after {value:,.0f} mistakes; the bound is "
    detail += f"{bound:,.0f}"
    if not fresh:
        detail = "all rows are correct; from w = 0 no order of these rows needs more "
        detail += f"than {bound:,.0f} mistakes"
    if not true:
        value, detail = np.inf, "the recorded mistakes do not give these weights"
    elif bound == np.inf:
        met, fix = None, "centre and scale the columns (StandardScaler)"
        detail = "undecided: rounding errors alone may move a row across the hyperplane"
    return Claim(
        *("mistake_bound", Strength.PROVED, value if fresh else bound),
        *(bound if fresh else None, met),
        f"R²/γ², R = largest ‖{x}‖, γ = smallest y⟨{x}, w⟩/‖w‖",
        "Novikov: an update raises ⟨w, w*⟩ by at least γ and ‖w‖² by at most R², so "
        "mistakes ≤ R²/γ² for every hyperplane w* of margin γ; here the one found",
        detail=detail,
        fix="" if met else fix,
    )


def error_claim(y: Array, scores: Array) -> Claim:
    """How many rows are on the wrong side; y is 0 where a row was not seen."""
    seen, k = int(np.count_nonzero(y)), y.shape[1]
    wrong = int(np.count_nonzero((y != 0) & (y * scores <= 0)))
    detail = f"{wrong:,} of {seen:,} rows are on the wrong side"
    detail += f" (over {k} problems)" if k > 1 else ""
    return bd.measured("training_error", wrong / seen, detail)


def _growth(p: Problems, walk: Walk, slack: float) -> Claim:
    room = np.einsum("ij,i->j", p.eta * p.parts, np.square(walk.lengths))
    rounding = gamma(len(p.y) + 4 * len(p.w) + 32)
    return growth_claim(walk.sizes**2, room, rounding, slack, "x")


def growth_claim(
    squares: Array, room: Array, rounding: float, slack: float, x: str
) -> Claim:
    """The claim that ‖w‖² is at most what the updates allow, up to a share of it."""
    worst = float((squares / np.maximum(room, TINY)).max())
    return bd.proved(
        *("norm_growth", Number(worst, worst * rounding), 1 + slack),
        f"‖w‖² is {worst:.2g} of the largest value that its updates allow",
        objective=f"‖w‖²/Σ η²m‖{x}‖²",
        theorem=f"an update where y⟨{x}, w⟩ ≤ 0 raises ‖w‖² by at most η²‖{x}‖²",
    )


def _limit(p: Problems, walk: Walk) -> float:
    """‖Σ ηmyx‖/Σ ηm, from above."""
    total = p.parts.sum(axis=0) * (1 - gamma(2 * len(p.y) + 32))
    sizes = _norms(walk.sums) + 2 * walk.error * walk.reach
    limits = np.divide(sizes, total, out=sizes + np.inf, where=total > 0)
    return float(limits.min()) / walk.unit


def limit_claim(limit: float, x: str) -> Claim:
    """The claim that no hyperplane at all has a wider margin."""
    return bd.proved(
        *("margin_limit", Number(limit), None),
        f"no hyperplane separates the rows by more than {limit:.2g}",
        objective=f"‖Σ ηmy{x}‖/Σ ηm",
        theorem="a hyperplane of margin γ has γ·Σ ηm ≤ ⟨w, w*⟩ ≤ ‖w‖",
    )


def _separation_claims(
    p: Problems, witness: MistakesWitness, X: Matrix, level: str, intercept: bool
) -> list[Claim]:
    """Claims that no hyperplane separates, by the witness's cycle or our own search."""
    (n, k), which, cycle = p.y.shape, witness.which, np.asarray(witness.cycle)
    tries: list[tuple[Array, Any]] = []
    if cycle.shape == (n,) and cycle.dtype.kind in "fiu" and which in range(k):
        tries.append((p.y[:, which], cycle * p.eta[:, which]))
    if level == "full":
        tries += [(y, overlaps.coinciding(X, y, intercept)) for y in p.y.T]
    for y, a in tries:
        left = left_over(X, y, a, intercept)
        if left.within(COINCIDE):
            claim = bd.proved(
                *("separation", left, COINCIDE),
                coincidence(y, np.ravel(a), intercept),
                objective="max |Σ ayxⱼ|/Σ a|xⱼ|",
                theorem="a hyperplane with yf ≥ γ has γ·Σ a ≤ Σ ayf ≤ "
                "value·Σ a(|w|ᵀ|x| + |b|) for every a ≥ 0, x measured from a row",
            )
            return [claim]
    return []


def _cycle_claim(shown: Claim, period: int) -> Claim:
    """REFUSED: a state was repeated, so the run cycles forever."""
    often = "epoch" if period == 1 else f"{period} epochs"
    detail = f"the weights repeat every {often}, so the mistakes never end: "
    fix, words = "LinearSVC or LogisticRegression", {"objective": _RULE}
    words["theorem"] = shown.theorem
    return bd.refused("mistake_bound", detail + shown.detail, fix, **words)
