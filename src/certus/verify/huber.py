"""Huber regression with its scale, as scikit-learn's HuberRegressor states it.

    P(w, b, σ) = σ + (1/S)·Σ sᵢ φ(rᵢ, σ) + (alpha/S)·‖w‖²,   r = y − Xw − b, σ ≥ 0

with φ(r, σ) = r²/σ where abs(r) ≤ epsilon·σ, else 2·epsilon·abs(r) − epsilon²·σ: the
perspective of Huber's loss, so jointly convex. φ is the supremum of a·r − σa²/4 over
abs(a) ≤ 2·epsilon. Hence for every such a with Σ sa = 0 and (1/S)·Σ sa² ≤ 4

    D(a) = (1/S)·Σ sᵢaᵢyᵢ − S·‖v‖²/(4·alpha) ≤ min P,   v = Xᵀ(s∘a)/S.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from certus import terms as t
from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.claims import EPS, Found, backward_gap_claim, gap_claim, shape_claim
from certus.verify.data import Array
from certus.verify.domains import check_level, check_terms


def perspective(r: Array, scale: float, epsilon: float) -> Array:
    """φ(r, σ); its limit 2·epsilon·abs(r) at σ = 0."""
    size = np.abs(r)
    if scale == 0.0:
        return 2 * epsilon * size
    far = 2 * epsilon * size - epsilon**2 * scale
    return np.where(size <= epsilon * scale, size * (size / scale), far)


def dual_point(r: Array, scale: float, epsilon: float) -> Array:
    """A = ∂φ/∂r; at σ = 0 one of its limits."""
    if scale > 0.0:
        return np.clip(2 * r / scale, -2 * epsilon, 2 * epsilon)
    return 2 * epsilon * np.sign(r)


def feasible(a: Array, s: Array, epsilon: float, free: bool) -> Array:
    """Into the box; onto Σ sa = 0 by shrinking the heavier side; into the ball."""
    a = np.clip(a, -2 * epsilon, 2 * epsilon)
    if free:
        up, down = float(s @ np.maximum(a, 0)), float(s @ np.maximum(-a, 0))
        if up > down:
            a = np.where(a > 0, a * (down / up), a)
        elif down > up:
            a = np.where(a < 0, a * (up / down), a)
    square = float(s @ (a * a)) / float(s.sum())
    return a if square <= 4 else a * (2 / np.sqrt(square))


def best_scale(r: Array, s: Array, epsilon: float) -> float:
    """The σ that minimises P for given residuals, by sorting them."""
    order = np.argsort(np.abs(r))
    square, weight = np.square(r[order]), s[order]
    inside = np.cumsum(weight * square)
    room = s.sum() - epsilon**2 * (s.sum() - np.cumsum(weight))
    with np.errstate(divide="ignore", invalid="ignore"):
        guess = np.where(room > 0, inside / np.maximum(room, 1e-300), 0.0)
    next_square = np.append(square[1:], np.inf)
    limit = epsilon**2 * guess
    fits = (room > 0) & (square <= limit * (1 + 1e-12)) & (limit <= next_square)
    if not fits.any():
        return 0.0
    return float(np.sqrt(guess[np.argmax(fits)]))


def reference(y: Array, s: Array, epsilon: float, free: bool) -> float:
    """P of the median (of 0 without an intercept) with its own best scale."""
    b = 0.0
    if free:
        order = np.argsort(y)
        mass = np.cumsum(s[order])
        b = float(y[order[np.searchsorted(mass, mass[-1] / 2)]])
    unit = float(np.abs(y - b).max(initial=0.0))
    if unit <= 4 * EPS * abs(b):
        return 0.0
    r = (y - b) / unit
    scale = best_scale(r, s, epsilon)
    return unit * (scale + float(s @ perspective(r, scale, epsilon)) / float(s.sum()))


#: Above this value the best b and σ are looked for, as repairs cost to first order.
REFINE = 1e-7
#: Largest n·d² for which Newton steps towards a better dual point are taken.
STEPS_COST = 2e9


class Point(NamedTuple):
    """What is judged: data, weights and parameters of the objective."""

    X: Any
    y: Array
    s: Array
    w: Array
    b: float
    scale: float
    epsilon: float
    alpha: float
    free: bool  # whether the intercept is
    dual: Array | None = None


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def joint_gap(p: Point) -> Found:
    """(P − D) over P of the median; without a penalty, see ``_without_penalty``."""
    if p.scale < 0:
        return Found(np.inf, 0.0)
    total, w = float(p.s.sum()), p.w.astype(float)
    r = p.y - data.dot(p.X, w) - p.b
    a = dual_point(r, p.scale, p.epsilon) if p.dual is None else -p.dual
    found = _bound(p, w, r, a, total)
    if p.dual is not None or not REFINE < found.value < np.inf or p.scale == 0:
        return found
    better = _bound(p, w, r, balanced(p, r), total)
    found = min(found, better, key=lambda f: f.value)
    size = p.X.shape[0] * p.X.shape[1] ** 2
    if found.value > 1e-6 and p.X.shape[1] <= 2000 and size <= STEPS_COST:
        better = _bound(p, w, r, stepped(p, w, r), total)
        found = min(found, better, key=lambda f: f.value)
    return found


def stepped(p: Point, w: Array, r: Array) -> Array:
    """Slopes a few Newton steps further on.

    A weak penalty makes the bound steep: S‖v‖²/(4·alpha). Slopes of any other point are
    as good a dual point, and those of a better one make it tight.
    """
    total, d = float(p.s.sum()), p.X.shape[1]
    level = np.append(np.full(d, 2 * p.alpha / total), 0.0)
    x = np.append(w, p.b)
    for _ in range(3):
        scale = best_scale(r, p.s, p.epsilon)
        if scale == 0.0:
            break
        a = dual_point(r, scale, p.epsilon)
        near = np.flatnonzero(np.abs(r) <= p.epsilon * scale)
        gradient = level * x - np.append(data.t_dot(p.X, p.s * a), p.s @ a) / total
        rows, weight = p.X[near], p.s[near]
        H = np.zeros((d + 1, d + 1))
        H[:-1, :-1] = _gram(rows, weight)
        H[:-1, -1] = H[-1, :-1] = data.t_dot(rows, weight)
        H[-1, -1] = weight.sum()
        H = H * (2 / (scale * total)) + np.diag(level)
        if not p.free:
            H[-1], H[:, -1], gradient[-1] = 0.0, 0.0, 0.0
        x = x - np.linalg.lstsq(H, gradient, rcond=None)[0]
        r = p.y - data.dot(p.X, x[:-1]) - x[-1]
    return balanced(p, r)


def _gram(rows: Any, weight: Array) -> Array:
    if hasattr(rows, "toarray"):
        return np.asarray((rows.T @ rows.multiply(weight[:, None])).toarray())
    G = np.zeros((rows.shape[1], rows.shape[1]))
    block = 1 + (1 << 18) // max(1, rows.shape[1])
    for i in range(0, len(rows), block):
        part = rows[i : i + block].astype(np.float64, copy=False)
        G += part.T @ (part * weight[i : i + block, None])
    return G


def balanced(p: Point, r: Array) -> Array:
    """Slopes at the best b and σ for w: feasible without a repair, but for rounding."""
    shift, scale = 0.0, p.scale
    for _ in range(12):
        scale = best_scale(r - shift, p.s, p.epsilon)
        if scale == 0.0:
            break
        t = (r - shift) / scale
        slope = float(p.s @ np.clip(t, -p.epsilon, p.epsilon))
        inside = float(p.s @ (np.abs(t) <= p.epsilon))
        if not p.free or inside == 0 or abs(slope) <= 1e-15 * float(p.s.sum()):
            break
        shift += scale * slope / inside
    return dual_point(r - shift, scale, p.epsilon)


def _bound(p: Point, w: Array, r: Array, a: Array, total: float) -> Found:
    a = feasible(a, p.s, p.epsilon, p.free)
    v = data.t_dot(p.X, p.s * a) / total
    base = reference(p.y, p.s, p.epsilon, p.free)
    reach = float(data.magnitudes(p.X) @ np.abs(w)) + abs(p.b)
    unit = float(np.finfo(np.float32).eps) if p.w.dtype == np.float32 else EPS
    lean = 8 * unit * reach * float(np.sqrt(p.s @ (a * a) / total))
    if p.alpha == 0:
        return _without_penalty(p, r, a, v, base, lean, unit)
    extra = p.alpha * float(w @ w) / total + total * float(v @ v) / (4 * p.alpha)
    gap, size = _gap(p, r, a)
    return _relative(gap + extra, 8 * EPS * (size + extra) + lean, base)


def _gap(p: Point, r: Array, a: Array) -> tuple[float, float]:
    """σ + mean φ(r, σ) − mean a·y, and the size of what was added up."""
    total = float(p.s.sum())
    losses = perspective(r, p.scale, p.epsilon)
    earned = a * (p.y - p.b)  # Σ sa = 0 where b is free, and b = 0 elsewhere
    gap = p.scale + float(p.s @ losses - p.s @ earned) / total
    return gap, p.scale + float(p.s @ (np.abs(losses) + np.abs(earned))) / total


def _without_penalty(
    p: Point, r: Array, a: Array, v: Array, base: float, lean: float, unit: float
) -> Found:
    """D needs v = 0: it is that of X + E, E = −a(aᵀSX)/‖a‖². Or a = 0, whose D is 0.

    The value is the larger of the gap and ‖E‖/‖X‖.
    """
    total, square = float(p.s.sum()), float((p.s * a) @ a)
    norm_X = data.spread(p.X, p.s, p.free)
    share = lift = 0.0
    at_zero, size = _gap(p, r, np.zeros(len(r)))
    least = _relative(at_zero, 8 * EPS * size + lean, base)
    if square > 0 and norm_X > 0:
        share = float(np.linalg.norm(v)) * total / (norm_X * float(np.sqrt(square)))
        columns = float(np.linalg.norm(data.magnitudes(p.X)))
        lift = max(1.0, float(np.sqrt(total)) * columns / norm_X)
        r = r + a * (total * float(v @ p.w) / square)
    gap, size = _gap(p, r, a)
    found = _relative(gap, 8 * EPS * size + lean, base)
    found = Found(max(found.value, share), found.allowance + 8 * unit * lift)
    return min(found, least, key=lambda f: f.value - f.allowance)


def _relative(gap: float, rounding: float, base: float) -> Found:
    if not np.isfinite(gap):
        return Found(np.inf, 0.0)
    if base <= 0:
        return Found(0.0 if gap <= rounding else np.inf, 0.0)
    return Found(max(gap, 0.0) / base, rounding / base)


def check_huber(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """Judge ``coef_``, ``intercept_`` and ``scale_`` on the joint objective.

    ``evidence.params``: epsilon, alpha, intercept ("free", "none"), tol, fix.
    ``evidence.arrays``: ``dual``, u = −a for each row, where the scale is 0.
    """
    X = data.as_matrix(X)
    n, params = X.shape[0], evidence.params
    y = data.numbers(y, n).reshape(n, -1)[:, 0]
    s = data.weights(sample_weight, None, y, None, n)
    marks = data.fingerprint(X, y, s)
    w, b = data.plain(model.coef_), float(model.intercept_)
    if w.shape != (X.shape[1],):
        raise ValueError(
            f"X has {X.shape[1]} columns and the model was fitted on {w.shape[-1]}."
        )
    epsilon, alpha = float(params["epsilon"]), float(params["alpha"])
    check_level(alpha, t.L2(alpha))
    check_terms(t.Huber(epsilon), t.NoPenalty())
    tol, fix = float(params.get("tol", 1e-6)), str(params.get("fix", ""))
    free, scale = params.get("intercept", "free") == "free", float(model.scale_)
    sound = np.isfinite(w).all() and np.isfinite([b, scale]).all() and scale >= 0
    if not sound or (b != 0 and not free):
        return [_broken(tol)], Status.DIVERGED, marks
    dual = evidence.arrays.get("dual")
    if dual is not None and (np.shape(dual) != (n,) or not np.isfinite(dual).all()):
        dual = None
    found = joint_gap(Point(X, y, s, w, b, scale, epsilon, alpha, free, dual))
    objective = _describe(epsilon, alpha, float(s.sum()), free)
    if alpha > 0:
        claim = gap_claim(found, tol, objective, fix, 1, "P(the median)")
    else:
        claim = backward_gap_claim(found, tol, objective, fix, 1)
    r = np.abs(y - data.dot(X, w) - b)
    far = int(np.sum(r > epsilon * scale))
    outliers = Claim(
        "outliers",
        Strength.MEASURED,
        far / n,
        detail=f"{far:,} of {n:,} rows lie beyond {epsilon:g} times the scale "
        f"{scale:.4g}",
    )
    solved = claim.strength is not Strength.REFUSED and claim.met
    status = Status.SOLVED if solved else Status.TOL_NOT_REACHED
    return [claim, outliers, shape_claim(model, X, s, level, evidence)], status, marks


def _broken(tol: float) -> Claim:
    return Claim(
        "duality_gap",
        Strength.PROVED,
        np.inf,
        tol,
        met=False,
        detail="the coefficients hold NaN or infinite values, the scale is negative, "
        "or there is an intercept where none was asked for",
        fix="standardise the columns",
    )


def _describe(epsilon: float, alpha: float, total: float, free: bool) -> str:
    score = "Xw + b" if free else "Xw"
    text = f"σ + mean σ·H_{epsilon:.3g}((y − z)/σ)"
    if alpha > 0:
        text += f" + {alpha / total:.4g}·‖w‖²"
    return f"{text},  z = {score}"
