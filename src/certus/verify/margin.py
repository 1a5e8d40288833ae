"""Hard margins: the widest one, or a proof that there is none.

    min ½(‖w‖² + (b/κ)²)  subject to  yᵢ(xᵢᵀw + b) ≥ 1        (b unpenalised if free)

A hyperplane whose smallest yf is m > 0 has no hinge loss max(0, m − yf), so that for
every λ > 0 its gap in the kernel's problem

    mean max(0, m − yf) + ½λ‖w‖²

bounds λ times the excess of ½‖w‖² among those with yf ≥ m: none of these has a
loss, on all rows or on some. Weights a ≥ 0 with Σ ayx = 0 and Σ ay = 0 are two convex
combinations, one of each class, that are the same point: nothing separates them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from certus.certificate import Claim, Status
from certus.objectives import terms as t
from certus.searches import overlaps
from certus.typing import Array, Matrix
from certus.verify import deciding
from certus.verify.blocks import add_up, over_blocks
from certus.verify.deciding import MARGIN, Number, measured
from certus.verify.kernel import gap
from certus.verify.kernel.gap import Problem, columns
from certus.verify.kernel.spaces import TINY, UNIT, Space, gamma
from certus.verify.stated_linear import Statement
from certus.verify.stating import Given

#: Share of its terms to which a sum that should vanish may differ from zero.
ROUNDING = 512 * UNIT
#: Rows added up at a time.
ROWS = 4096
_OBJECTIVE = {
    "free": "½·‖w‖²  subject to  y·(Xw + b) ≥ 1",
    "penalised": "½·‖w,b‖²  subject to  y·(Xw + b) ≥ 1",
    "none": "½·‖w‖²  subject to  y·Xw ≥ 1",
}


def judge_margin(
    stated: Statement, problems: list[Problem], given: Given
) -> tuple[list[Claim], Status, None]:
    """The gap of a separating hyperplane; or why there is none."""
    found, widths = zip(*(hard_gap(p) for p in problems))
    worst = found[deciding.worst_of(list(found))]
    if np.isfinite(worst.most):
        more = (stated.tol, _OBJECTIVE[stated.intercept], stated.fix, len(problems))
        claim = deciding.claim_of(MARGIN, worst, *more)
        text = ", ".join(f"{width:.4g}" for width in widths[:4])
        text += ", …" if len(widths) > 4 else ""
        detail = f"every row is at least {text} away from the hyperplane"
        width = measured("margin", min(widths), detail, objective="min yf/‖w‖")
        return [claim, width], deciding.status_of(claim), None
    for p in problems:
        refusal = _refusal(p, stated, given)
        if refusal is not None:
            return [refusal], Status.NO_MINIMISER, None
    detail = "the hyperplane does not separate the classes"
    fix = "set a finite C, or raise max_iter"
    claim = deciding.impossible(MARGIN, stated.tol, detail, fix)
    return [claim], Status.TOL_NOT_REACHED, None


def hard_gap(p: Problem) -> tuple[Number, float]:
    """The excess as a share of ½‖w‖², infinite if it does not separate; the margin."""
    n, X, more = len(p.y), p.space.given, (p.free, p.space.constant, over_blocks)
    whole = Space(X, np.ones(n), *more)  # weights of rows do not count here
    z = whole.look(columns(p.w), p.b, None).z[:, 0]
    off = float(np.sqrt(n) * whole.score_error(columns(p.w), p.b)[0])
    least = float(np.min(p.y * z)) - off - 4 * UNIT * float(np.abs(z).max())
    length = float(np.linalg.norm(p.w))
    if not (least > 0 and length > 0):
        return Number(np.inf), 0.0
    # What is above the minimum for the rows that a weighs is so for all of them.
    a = np.zeros(n) if p.dual is None else np.maximum(p.dual, 0.0)
    rows = np.flatnonzero(a)
    if not rows.size:
        return Number(1.0), least / length
    y, q = p.y[rows], a[rows] / a.max()
    space = Space(X[rows], np.ones(len(rows)), *more)
    p = p._replace(loss=t.Hinge(least), space=space, y=y, dual=-y * q)
    seen, _, dual = gap.look(p, None)
    v, _ = gap.pulled_back(p, seen, dual, len(rows))
    share, square = gap.mean(p, dual.natural), float(v @ v)
    if not (share > 0.0 and square > 0.0):
        return Number(1.0), least / length
    level = square / (least * share)  # the λ for which the bound is best
    found = gap.measure(p._replace(penalty=t.L2(level)))
    size = level * length**2 / 2 * (1 - 2 * gamma(len(p.w) + 16))
    return Number.share(found.computed, found.bound, size), least / length


def left_over(X: Matrix, y: Array, a: Array | None, intercept: bool) -> Number:
    """Largest share of its terms that is left of Σ ayxⱼ, and with an intercept of Σ ay.

    Infinite unless a holds weights ≥ 0 on rows with a sign. Without an intercept the
    hyperplanes pass through the origin, and the two classes may have different weights.
    """
    a = np.ravel(np.zeros(0) if a is None else a)
    sound = a.dtype.kind in "fiu" and a.shape == y.shape
    sound = sound and bool(np.isfinite(a).all() and (a >= 0).all())
    rows = np.flatnonzero(a) if sound else np.zeros(0, dtype=int)
    if not rows.size or not y[rows].all():
        return Number(np.inf)
    a, y, first = a[rows] / a.max(), y[rows], X[rows[:1]].astype(np.float64)

    def sums(part: slice) -> tuple[Array, Array]:
        A = X[rows[part]].astype(np.float64)
        # Measured from a row, an offset lends no size to small sums.
        A = A - first if intercept and not sparse.issparse(A) else A
        return A.T @ (a * y)[part], abs(A).T @ a[part]

    left, size = add_up(over_blocks(sums, len(rows), ROWS))
    left, size = np.append(left, intercept * (a @ y)), np.append(size, a.sum())
    left = np.abs(left) + len(rows) * TINY  # products may vanish
    share = np.divide(left, size, out=np.zeros(len(size)), where=size > 0)
    return Number(float(share.max()), gamma(ROWS + len(rows) // ROWS + 16))


def combination_holds(X: Matrix, y: Array, s: Array, a: Any, intercept: bool) -> bool:
    """Whether a proves that no hyperplane separates the rows, up to rounding."""
    return left_over(X, np.where(s > 0, y, 0.0), a, intercept).value <= ROUNDING


def coincidence(y: Array, a: Array, intercept: bool) -> str:
    """What weights a ≥ 0 with Σ ayx = 0 (and Σ ay = 0) say, as a sentence."""
    counts = [int(np.sum(a[y == side] > 0)) for side in (1, -1)]
    plus, minus = ("1 row" if count == 1 else f"{count:,} rows" for count in counts)
    if not intercept:
        said = "no hyperplane through the origin separates the classes: weights on "
        return f"{said}{sum(counts)} rows have Σ ayx = 0"
    said = f"no hyperplane separates the classes: a convex combination of {plus} of one"
    return f"{said} is the same point as a convex combination of {minus} of the other"


def _refusal(p: Problem, stated: Statement, given: Given) -> Claim | None:
    """Refuse: no hyperplane separates, by the witness or (level full) a search."""
    moved, X = stated.intercept != "none", p.space.given
    a = given.witness.combination
    if not combination_holds(X, p.y, p.space.s, a, moved):
        a = overlaps.coinciding(X, p.y, moved) if given.level == "full" else None
        if not combination_holds(X, p.y, p.space.s, a, moved):
            return None
    return deciding.refused(
        MARGIN.name,
        coincidence(p.y, np.ravel(a), moved),
        "set a finite C, or use other columns",
        objective=_OBJECTIVE[stated.intercept],
        theorem="a hyperplane with yf > 0 on all rows has Σ ayf > 0 for a ≥ 0, yet "
        "Σ ayx = 0 and Σ ay = 0 make that sum zero",
        allowance=ROUNDING,
    )
