"""Hard margins: the widest one, or that there is none.

    min ½(‖w‖² + (b/κ)²)  subject to  yᵢ(xᵢᵀw + b) ≥ 1        (b unpenalised if free)

A hyperplane that separates is rescaled until its smallest yf is at least 1. For weights
a ≥ 0 (with Σ ay = 0 if b is free), v = Σ ayx and any t ≥ 0, what it has too much is

    ½‖w‖² − min ≤ ½‖w − tv‖² + t·Σ a(yf − 1),

a sum of terms that are not negative, and convex in a. Weights with Σ ayx = 0 and
Σ ay = 0 are two convex combinations, one of each class, that are the same point:
nothing separates them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from certus.certificate import Claim, Status, Strength
from certus.evidence import LinearWitness
from certus.verify.blocks import over_blocks
from certus.verify.deciding import (
    MARGIN,
    Number,
    claim_of,
    impossible,
    refused,
    status_of,
    worst_of,
)
from certus.verify.kernel.gap import Problem, columns
from certus.verify.kernel.reading import Array
from certus.verify.kernel.spaces import TINY, UNIT, Linear, gamma
from certus.verify.stated_linear import Statement

#: Share of its terms to which a sum that should vanish may differ from zero.
ROUNDING = 512 * UNIT
#: Rows that a linear programme of the verifier may hold.
PROGRAMME_ROWS = 20_000
_OBJECTIVE = {
    "free": "½·‖w‖²  subject to  y·(Xw + b) ≥ 1",
    "penalised": "½·‖w,b‖²  subject to  y·(Xw + b) ≥ 1",
    "none": "½·‖w‖²  subject to  y·Xw ≥ 1",
}


def judge_margin(
    stated: Statement, witness: LinearWitness, problems: list[Problem], level: str
) -> tuple[list[Claim], Status]:
    """The gap of a separating hyperplane; or why there is none."""
    found = [hard_gap(p) for p in problems]
    k = worst_of([each for each, _ in found])
    objective = _OBJECTIVE[stated.intercept]
    if np.isfinite(found[k][0].most):
        claim = claim_of(
            *(MARGIN, found[k][0], stated.tol, objective, stated.fix, len(problems))
        )
        widths = [width for _, width in found]
        return [claim, _width_claim(widths)], status_of(claim)
    refusal = _refusal(problems, witness, stated, level, objective)
    if refusal is not None:
        return [refusal], Status.NO_MINIMISER
    detail = "the hyperplane does not separate the classes"
    fix = "a finite C, or a larger max_iter"
    return [impossible(MARGIN, stated.tol, detail, fix)], Status.TOL_NOT_REACHED


def hard_gap(p: Problem) -> tuple[Number, float]:
    """The excess as a share of ½‖w‖², infinite if it does not separate; the margin."""
    n, w = len(p.y), columns(p.w)
    a = np.zeros(n) if p.dual is None else np.maximum(p.dual, 0.0)
    top = float(a.max(initial=0.0))
    a = a / top if 0.0 < top < np.inf else np.zeros(n)  # only its direction matters
    a, share = _balanced(a, p.y) if p.free else (a, 0.0)
    # Weights of rows do not count here, only which rows have one.
    whole = Linear(p.space.given, np.ones(n), p.free, p.space.constant, over_blocks)
    seen = whole.look(w, p.b, lambda rows, _: (a[rows] * p.y[rows])[:, None])
    f, v = p.y * seen.z[:, 0], n * seen.V[:, 0]
    slack = float(
        np.sqrt(n) * whole.score_error(w, p.b)[0] + 4 * UNIT * np.abs(f).max()
    )
    margin = float(f.min()) - slack
    length = float(np.linalg.norm(p.w)) * (1 + (len(p.w) + 8) * UNIT)
    if not (margin > 0 and length > 0):
        return Number(np.inf), 0.0
    primal = length**2 / margin**2 / 2
    square, total = float(v @ v), float(a.sum())
    if not (square > 0.0 and total > 0.0):
        return Number(1.0), margin / length
    size = float(np.linalg.norm(a))
    error = (gamma(whole.depth + 64) + 2 * share) * whole.norms * np.sqrt(n) * size
    error = float(np.linalg.norm(error + 4 * UNIT * np.abs(v) + 2 * n * TINY))
    t = total / square
    apart = float(np.linalg.norm(p.w / margin - t * v))
    off = t * error + 8 * UNIT * (length / margin + t * np.sqrt(square))
    above = np.maximum(f / margin - 1, 0.0)
    computed = apart**2 / 2 + t * float(a @ above)
    bound = (apart + off) ** 2 / 2 - apart**2 / 2 + share * primal
    bound += t * total * 4 * (slack / margin + UNIT) + 2 * gamma(n + 24) * computed
    return Number.share(computed, bound, primal * (1 - 1e-12)), margin / length


def _balanced(a: Array, y: Array) -> tuple[Array, float]:
    """Shrink the class that outweighs the other, so that Σ ay = 0; and what is left."""
    plus, minus = float(a[y > 0].sum()), float(a[y < 0].sum())
    if min(plus, minus) <= 0.0:
        return np.zeros_like(a), 0.0
    scale = np.where(y > 0, min(1.0, minus / plus), min(1.0, plus / minus))
    a = np.asarray(a * scale)
    total = float(a.sum())
    off = abs(float((a * y).sum())) + 40 * UNIT * total
    return a, 2 * off / (total - off) if off < total / 2 else 1.0


def combination_holds(X: Any, y: Array, s: Array, a: Array, intercept: bool) -> bool:
    """Whether a proves that no hyperplane separates the rows, up to rounding.

    With an intercept a must weigh both classes alike; without, the hyperplanes pass
    through the origin and Σ ayx = 0 is enough.
    """
    a = np.asarray(a, dtype=float).ravel()
    if a.shape != (len(y),) or not np.isfinite(a).all() or a.min() < 0:
        return False
    if np.any(a[s <= 0] > 0) or not a.sum() > 0:
        return False
    a = a / a.sum()
    if intercept and abs(float(a @ y)) > ROUNDING:
        return False
    rows = np.flatnonzero(a)
    part, weight = X[rows], a[rows]
    if intercept and not sparse.issparse(part):
        # Measured from one of the rows, a large offset lends no size to small sums.
        part = np.asarray(part, dtype=float) - np.asarray(part[0], dtype=float)
    left = _pulled(part, weight * y[rows])
    size = _pulled(abs(part), weight)
    return bool(np.all(np.abs(left) <= ROUNDING * size))


def coinciding_combination(X: Any, y: Array, intercept: bool) -> Array | None:
    """Weights a ≥ 0 with Σ ayx = 0, Σ ay = 0 and Σ a = 2 by a linear programme."""
    n, d = X.shape
    if n > PROGRAMME_ROWS:
        return None
    if intercept and not sparse.issparse(X):
        X = np.asarray(X, dtype=float) - np.asarray(X[0], dtype=float)
    S = sparse.csr_array(X).astype(np.float64)
    sizes = abs(S).max(axis=0).toarray().ravel()
    S = S @ sparse.diags_array(1 / np.where(sizes > 0, sizes, 1.0))
    signed = (sparse.diags_array(y.astype(float)) @ S).T
    sums = np.vstack([y > 0, y < 0]) if intercept else np.ones((1, n))
    M = sparse.vstack([signed, sparse.csr_array(sums.astype(float))], format="csr")
    target = np.concatenate([np.zeros(d), np.ones(len(sums))])
    found = linprog(np.zeros(n), A_eq=M, b_eq=target, bounds=(0, None), method="highs")
    if found.x is None:
        return None
    few = np.flatnonzero(found.x > 1e-9)
    A, part = M[:, few].toarray(), found.x[few]
    for _ in range(3):  # to rounding: the programme stops at its own tolerance
        part = part - np.linalg.lstsq(A, A @ part - target, rcond=None)[0]
    if not few.size or part.min() < 0:
        return None
    out = np.zeros(n)
    out[few] = part
    return out


def _pulled(A: Any, u: Array) -> Array:
    return np.asarray(A.astype(np.float64).T @ u)


# -- claims -----------------------------------------------------------------------


def _width_claim(widths: list[float]) -> Claim:
    text = ", ".join(f"{width:.4g}" for width in widths[:4])
    more = ", …" if len(widths) > 4 else ""
    return Claim(
        "margin",
        Strength.MEASURED,
        min(widths),
        objective="min yf/‖w‖",
        detail=f"every row is at least {text}{more} away from the hyperplane",
    )


def _refusal(
    problems: list[Problem],
    witness: LinearWitness,
    stated: Statement,
    level: str,
    note: str,
) -> Claim | None:
    """The witness of the evidence or, at level full, one of our own."""
    moved = stated.intercept != "none"
    for p in problems:
        given = witness.combination
        tries: list[Array | None] = [] if given is None else [given]
        X = p.space.given
        if level == "full":
            tries.append(coinciding_combination(X, p.y, moved))
        for a in tries:
            if a is not None and combination_holds(
                X, p.y, p.space.s, np.asarray(a), moved
            ):
                return refusal_claim("duality_gap", p.y, np.asarray(a), note, moved)
    return None


def refusal_claim(
    name: str, y: Array, a: Array, objective: str, intercept: bool
) -> Claim:
    """REFUSED: no hyperplane separates, and these rows show it."""
    plus, minus = int(np.sum(a[y > 0] > 0)), int(np.sum(a[y < 0] > 0))
    if intercept:
        detail = (
            "no hyperplane separates the classes: a convex combination of "
            f"{_rows(plus)} of one is the same point as one of {_rows(minus)} of the "
            "other"
        )
    else:
        detail = (
            "no hyperplane through the origin separates the classes: weights on "
            f"{plus + minus} rows have Σ ayx = 0"
        )
    return refused(
        name,
        detail,
        "any finite C, or other columns",
        objective=objective,
        theorem="a hyperplane with yf > 0 on all rows has Σ ayf > 0 for a ≥ 0, yet "
        "Σ ayx = 0 and Σ ay = 0 make that sum zero",
        allowance=ROUNDING,
    )


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
