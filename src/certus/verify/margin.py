"""Checks of hard margins: the widest one, or that there is none.

    min ½(‖w‖² + (b/κ)²)  subject to  yᵢ(xᵢᵀw + b) ≥ 1        (b unpenalised if free)

A hyperplane that separates is rescaled until its smallest yf is 1. For weights a ≥ 0
(with Σ ay = 0 if b is free) every feasible point has ½‖w‖² ≥ (Σa)²/(2‖Σ ayx‖²), which
is the dual value at the best multiple of a. Weights with Σ ayx = 0 and Σ ay = 0 are two
convex combinations, one of each class, that are the same point: nothing separates them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.claims import shape_claim
from certus.verify.data import Array
from certus.verify.domains import check_intercept
from certus.verify.problem import Problem, problems_of, scores

EPS = float(np.finfo(np.float64).eps)
#: Share of its terms to which a sum that should vanish may differ from zero.
ROUNDING = 256 * EPS
#: Rows that a linear programme of the verifier may hold.
PROGRAMME_ROWS = 20_000
_OBJECTIVE = {
    "free": "½·‖w‖²  subject to  y·(Xw + b) ≥ 1",
    "penalised": "½·‖w,b‖²  subject to  y·(Xw + b) ≥ 1",
    "none": "½·‖w‖²  subject to  y·Xw ≥ 1",
}


def check_margin(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """Judge a hard margin; ``evidence.arrays``: ``dual`` (a ≥ 0), ``combination``."""
    X = data.as_matrix(X)
    problems, s, y_used = problems_of(model, evidence, X, y, sample_weight)
    marks = data.fingerprint(X, y_used, s)
    tol = float(evidence.params.get("tol", 1e-6))
    finite = np.isfinite(data.plain(model.coef_)).all()
    if not finite or not np.isfinite(model.intercept_).all():
        return [_not_finite(tol)], Status.DIVERGED, marks
    intercept = evidence.params.get("intercept", "free")
    if wrong := check_intercept(intercept, model.intercept_):
        claim = dataclasses.replace(_not_finite(tol), detail=wrong, fix="fit again")
        return [claim], Status.TOL_NOT_REACHED, marks
    found = [hard_gap(p) for p in problems]
    worst = max(range(len(found)), key=lambda k: found[k][0] - found[k][1])
    p, (value, allowance) = problems[worst], found[worst]
    note = f"duality gap of  {_OBJECTIVE[p.intercept]}"
    if np.isfinite(value):
        claim = _gap_claim(value, allowance, tol, note, evidence)
        status = Status.SOLVED if claim.met else Status.TOL_NOT_REACHED
        return (
            [claim, _width_claim(problems), shape_claim(model, X, s, level, evidence)],
            status,
            marks,
        )
    refusal = _refusal(problems, evidence, level, note)
    if refusal is not None:
        return [refusal], Status.NO_MINIMISER, marks
    claim = Claim(
        "duality_gap",
        Strength.PROVED,
        np.inf,
        tol,
        False,
        note,
        detail="the hyperplane does not separate the classes",
        fix="a finite C, or a larger max_iter",
    )
    return [claim], Status.TOL_NOT_REACHED, marks


def hard_gap(p: Problem) -> tuple[float, float]:
    """(P − D)/P of the rescaled point and its rounding; inf if it does not separate."""
    used = p.s > 0
    z = scores(p)
    f = (p.y * z)[used]
    smallest = float(f.min())
    reach = float(data.magnitudes(p.X) @ np.abs(p.w)) + abs(float(p.b))
    unit = float(np.finfo(np.float32).eps) if p.w.dtype == np.float32 else EPS
    slack = 8 * unit * reach
    if not smallest > slack:
        return np.inf, 0.0
    w = p.w.astype(np.float64)
    size = float(w @ w)
    if p.intercept == "penalised":
        size += (float(p.b) / p.scale) ** 2
    primal = size / 2 / smallest**2
    a = np.zeros(len(p.y)) if p.dual is None else np.maximum(p.dual, 0.0)
    a = np.where(used, a, 0.0)
    top = float(a.max(initial=0.0))
    if not (top > 0.0 and np.isfinite(top)):
        return 1.0, 0.0
    a = a / top  # only its direction matters
    if p.intercept == "free":
        a = _balance(a, p.y)
    v = data.t_dot(p.X, a * p.y)
    square = float(v @ v)
    if p.intercept == "penalised":
        square += (p.scale * float(a @ p.y)) ** 2
    total = float(a.sum())
    if not (square > 0.0 and total > 0.0):
        return 1.0, 0.0
    dual = total**2 / (2 * square)
    length = float(np.sqrt(square))
    spread = float(np.linalg.norm(data.magnitudes(p.X))) * total
    rounding = 2 * slack / smallest + 16 * EPS * (1 + spread / length)
    return max(0.0, (primal - dual) / primal), rounding


def _balance(a: Array, y: Array) -> Array:
    """Shrink the class that outweighs the other, so that Σ ay = 0."""
    plus, minus = float(a[y > 0].sum()), float(a[y < 0].sum())
    if min(plus, minus) <= 0.0:
        return np.zeros_like(a)
    scale = np.where(y > 0, min(1.0, minus / plus), min(1.0, plus / minus))
    return np.asarray(a * scale)


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
    left = data.t_dot(part, weight * y[rows])
    size = data.t_dot(abs(part), weight)
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


# -- claims -----------------------------------------------------------------------


def _not_finite(tol: float) -> Claim:
    return Claim(
        "duality_gap",
        Strength.PROVED,
        np.inf,
        tol,
        met=False,
        detail="the coefficients hold NaN or infinite values",
        fix="standardise the columns",
    )


def _gap_claim(
    value: float, allowance: float, tol: float, note: str, evidence: Evidence
) -> Claim:
    met = bool(value <= tol + allowance)
    asked = f"(asked for {tol:.0e})"
    if met:
        close = f"{value:.1e}" if value >= 1e-16 else "rounding"
        detail = f"within {close} of the widest margin's ½‖w‖² {asked}"
    else:
        detail = f"may be {value:.2g} above the widest margin's ½‖w‖² {asked}"
    return Claim(
        "duality_gap",
        Strength.PROVED,
        value,
        tol,
        met,
        note,
        "weak duality: every separating hyperplane with yf ≥ 1 has ½‖w‖² ≥ "
        "(Σa)²/(2‖Σayx‖²); as a share of ½‖w‖²",
        (),
        None,
        allowance,
        detail,
        "" if met else str(evidence.params.get("fix", "")),
    )


def _width_claim(problems: list[Problem]) -> Claim:
    widths = []
    for p in problems:
        f = (p.y * scores(p))[p.s > 0]
        widths.append(float(f.min()) / float(np.linalg.norm(p.w.astype(np.float64))))
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
    problems: list[Problem], evidence: Evidence, level: str, note: str
) -> Claim | None:
    """The witness of the evidence or, at level full, one of our own."""
    k = int(evidence.params.get("which", 0))
    witness = evidence.arrays.get("combination")
    tries = [] if witness is None or k >= len(problems) else [(problems[k], witness)]
    if level == "full":
        for p in problems:
            used = p.s > 0
            part = coinciding_combination(p.X[used], p.y[used], p.intercept != "none")
            if part is not None:
                a = np.zeros(len(p.y))
                a[used] = part
                tries.append((p, a))
    for p, a in tries:
        if combination_holds(p.X, p.y, p.s, a, p.intercept != "none"):
            return refusal_claim("duality_gap", p.y, a, note, p.intercept != "none")
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
    return Claim(
        name,
        Strength.REFUSED,
        objective=objective,
        theorem="a hyperplane with yf > 0 on all rows has Σ ayf > 0 for a ≥ 0, yet "
        "Σ ayx = 0 and Σ ay = 0 make that sum zero",
        allowance=ROUNDING,
        detail=detail,
        fix="any finite C, or other columns",
    )


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
