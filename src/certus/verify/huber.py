"""Huber regression with its scale, as scikit-learn's HuberRegressor states it.

    P(w, b, σ) = σ + mean φ(r, σ) + (alpha/S)·‖w‖²,   r = y − Xw − b, σ ≥ 0

with φ(r, σ) = r²/σ where abs(r) ≤ epsilon·σ, else 2·epsilon·abs(r) − epsilon²·σ: the
perspective of Huber's loss, so jointly convex. For a fixed σ it is 2/σ times Huber's
loss with threshold epsilon·σ (at σ = 0, 2·epsilon times the absolute loss): a problem
of the kernel with slopes u. For slopes a = 2u/σ with mean a² ≤ 4 the joint gap is

    P − min P ≤ (2/σ)·(its gap) + σ(1 − mean a²/4).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from certus import terms as t
from certus.certificate import Claim, Status, Strength
from certus.evidence import LinearWitness
from certus.verify import linear
from certus.verify.curved import scores
from certus.verify.data import direction
from certus.verify.deciding import (
    GAP,
    MOVED,
    Number,
    Wording,
    claim_of,
    impossible,
    status_of,
)
from certus.verify.kernel import gap, reading
from certus.verify.kernel.gap import Problem, norm
from certus.verify.kernel.moved import measure_moved
from certus.verify.kernel.reading import Array
from certus.verify.kernel.spaces import UNIT
from certus.verify.problems import problems_of, rows_of
from certus.verify.slopes import chosen_dual
from certus.verify.stated_linear import Statement as Linear
from certus.verify.stated_linear import advice
from certus.verify.stating import Checked, Given, Reader, tol_of

#: Above this value better slopes are looked for, as repairs cost to first order.
REFINE = 1e-7
#: Largest n·d² for which Newton steps towards a better dual point are taken.
STEPS_COST = 2e9


class Statement(NamedTuple):
    """Σ s[σ + σ·H_epsilon((y − z)/σ)] + alpha·‖w‖², jointly in w, b and σ."""

    epsilon: float
    alpha: float
    intercept: str
    tol: float
    fix: str


def _read(model: Any) -> Statement:
    intercept = "free" if model.fit_intercept else "none"
    fix = advice(model, "HuberRegressor")
    tol = tol_of(model)
    return Statement(float(model.epsilon), float(model.alpha), intercept, tol, fix)


READERS: dict[str, Reader] = {"HuberRegressor": _read}


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """Judge ``coef_``, ``intercept_`` and ``scale_`` on the joint objective."""
    witness, X, y, sample_weight, level, _ = given
    if not (stated.epsilon > 0 and stated.alpha >= 0):
        raise ValueError("epsilon must be positive, and alpha not negative.")
    plain = Linear(t.Absolute(), t.L2(1.0), intercept=stated.intercept)
    rows = rows_of(model, plain, X, y, sample_weight)
    dual = witness.dual if isinstance(witness, LinearWitness) else None
    p = problems_of(model, plain, rows, dual)[0]
    words, scale = GAP if stated.alpha > 0 else MOVED, float(model.scale_)
    w = reading.plain(model.coef_)
    sound = np.isfinite(w).all() and np.isfinite([*p.b, scale]).all() and scale >= 0
    if not sound or (np.any(model.intercept_) and not p.free):
        detail = (
            "the coefficients hold NaN or infinite values, the scale is negative, or "
            "there is an intercept where none was asked for"
        )
        claim = impossible(words, stated.tol, detail, "standardise the columns")
        return [claim], Status.DIVERGED, linear.marks_of(rows, None)
    strength = rows.given.level(2 * stated.alpha)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        found, z, probed = _joint(p, scale, stated.epsilon, strength, words)
    claim = claim_of(words, found, stated.tol, _describe(stated, strength), stated.fix)
    claim = replace(
        claim, theorem=claim.theorem.replace("best constant model", "the median")
    )
    far = int(np.sum(np.abs(p.y - z) > stated.epsilon * scale))
    detail = (
        f"{far:,} of {len(z):,} rows lie beyond {stated.epsilon:g} times the scale "
    )
    outliers = Claim(
        "outliers", Strength.MEASURED, far / len(z), detail=detail + f"{scale:.4g}"
    )
    shape = linear.shape_claim(model, rows, plain, level)
    return [claim, outliers, shape], status_of(claim), linear.marks_of(rows, probed)


def _joint(
    p: Problem, scale: float, epsilon: float, strength: float, words: Wording
) -> tuple[Number, Array, Array]:
    """The joint gap as a share of P of the median, by the best of a few dual points."""
    probe: Array | None = direction(p.space.width)
    z = scores(p)
    r = p.y - z
    factor = 2 / scale if scale > 0 else 2 * epsilon
    loss: Any = t.Huber(epsilon * scale) if scale > 0 else t.Absolute()
    fixed = p._replace(loss=loss, penalty=t.L2(strength / factor))
    base = reference(p.y, p.space.s, epsilon, p.free) * (1 - 1e-9)
    base = base or reference(p.y, p.space.s, epsilon, False) * (1 - 1e-9)
    if p.dual is not None:
        tries = [np.asarray(p.dual) / factor]
    elif scale == 0:
        tries = [chosen_dual(fixed, "quick")]
    else:
        tries = [np.clip(-r, -epsilon * scale, epsilon * scale)]
    found, probed = _bound(fixed, tries[0], scale, factor, base, words, probe)
    if p.dual is None and scale > 0 and REFINE < found.most < math.inf:
        for better in _better(p, r, epsilon, strength):
            each, _ = _bound(fixed, better / factor, scale, factor, base, words, None)
            found = min(found, each, key=lambda f: f.most)
            if found.most <= 1e-6:
                break
    return found, z, probed


def _bound(
    p: Problem,
    u: Array,
    scale: float,
    factor: float,
    base: float,
    words: Wording,
    probe: Array | None,
) -> tuple[Number, Array]:
    """The gap for a fixed scale, and what the scale adds to it."""
    # Into the ball mean a² ≤ 4, a little inside for rounding.
    size = norm(p, u) * factor
    u = u * (2 / size * (1 - 1e-12)) if size > 2 * (1 - 1e-12) else u
    p = p._replace(dual=u)
    if words is MOVED:
        moved = measure_moved(p, probe)
        extra, off = _scale_excess(p, moved.u, moved.slack, scale, factor)
        moved = moved._replace(
            computed=factor * moved.computed + extra,
            bound=factor * moved.bound + off,
            still=factor * moved.still + scale,
            still_bound=factor * moved.still_bound + 4 * UNIT * scale,
        )
        return Number(*moved.value(base)), moved.probe
    seen = gap.measure(p, probe)
    extra, off = _scale_excess(p, seen.u, seen.slack, scale, factor)
    computed, bound = factor * seen.computed + extra, factor * seen.bound + off
    return Number.share(computed * (1 + 4 * UNIT), bound, base), seen.probe


def _scale_excess(
    p: Problem, u: Array, slack: float, scale: float, factor: float
) -> tuple[float, float]:
    """σ(1 − mean a²/4) at the dual point, and how much its feasible neighbour adds."""
    square = min((norm(p, u) * factor) ** 2 / 4, 1.0)
    return scale * (1 - square), scale * (2 * slack + 1e-11) * square


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
    if unit <= 8 * UNIT * abs(b):
        return 0.0
    r = (y - b) / unit
    scale = best_scale(r, s, epsilon)
    return unit * (scale + float(s @ perspective(r, scale, epsilon)) / float(s.sum()))


def perspective(r: Array, scale: float, epsilon: float) -> Array:
    """φ(r, σ); its limit 2·epsilon·abs(r) at σ = 0."""
    size = np.abs(r)
    if scale == 0.0:
        return 2 * epsilon * size
    far = 2 * epsilon * size - epsilon**2 * scale
    return np.where(size <= epsilon * scale, size * (size / scale), far)


# -- choices: slopes of a better point are as good a dual point -------------------


def _better(p: Problem, r: Array, epsilon: float, strength: float) -> Any:
    """Slopes 2r/σ at the best b and σ for w; then a few Newton steps further on."""
    yield _balanced(p, r, epsilon)
    n, d = p.space.n, p.space.width
    if d <= 2000 and n * d * d <= STEPS_COST:
        yield _stepped(p, r, epsilon, strength)


def _slopes(r: Array, scale: float, epsilon: float) -> Array:
    """dφ/dz = −a."""
    return -np.clip(2 * r / scale, -2 * epsilon, 2 * epsilon)


def _balanced(p: Problem, r: Array, epsilon: float) -> Array:
    """Slopes at the best b and σ for w: feasible without a repair, but for rounding."""
    s, shift, scale = p.space.s, 0.0, 0.0
    for _ in range(12):
        scale = best_scale(r - shift, s, epsilon)
        if scale == 0.0:
            return np.zeros(len(r))
        x = (r - shift) / scale
        slope = float(s @ np.clip(x, -epsilon, epsilon))
        inside = float(s @ (np.abs(x) <= epsilon))
        if not p.free or inside == 0 or abs(slope) <= 1e-15 * p.space.total:
            break
        shift += scale * slope / inside
    return _slopes(r - shift, scale, epsilon)


def _stepped(p: Problem, r: Array, epsilon: float, strength: float) -> Array:
    """A weak penalty makes the bound steep: it wants slopes of a better point."""
    s, total, d, X = p.space.s, p.space.total, p.space.width, p.space.given
    level = np.append(np.full(d, strength), 0.0)
    x = np.append(p.w, p.b[0])
    for _ in range(3):
        scale = best_scale(r, s, epsilon)
        if scale == 0.0:
            break
        a = -_slopes(r, scale, epsilon)
        near = np.flatnonzero(np.abs(r) <= epsilon * scale)
        pulled = np.asarray((s * a) @ X, dtype=float)
        gradient = level * x - np.append(pulled, s @ a) / total
        rows, weight = X[near], s[near]
        H = np.zeros((d + 1, d + 1))
        H[:-1, :-1] = _gram(rows, weight)
        H[:-1, -1] = H[-1, :-1] = np.asarray(weight @ rows, dtype=float)
        H[-1, -1] = weight.sum()
        H = H * (2 / (scale * total)) + np.diag(level)
        if not p.free:
            H[-1], H[:, -1], gradient[-1] = 0.0, 0.0, 0.0
        x = x - np.linalg.lstsq(H, gradient, rcond=None)[0]
        r = p.y - np.asarray(X @ x[:-1], dtype=float) - x[-1]
    return _balanced(p, r, epsilon)


def _gram(rows: Any, weight: Array) -> Array:
    if hasattr(rows, "toarray"):
        return np.asarray((rows.T @ rows.multiply(weight[:, None])).toarray())
    G = np.zeros((rows.shape[1], rows.shape[1]))
    block = 1 + (1 << 18) // max(1, rows.shape[1])
    for i in range(0, len(rows), block):
        part = rows[i : i + block].astype(np.float64, copy=False)
        G += part.T @ (part * weight[i : i + block, None])
    return G


def _describe(stated: Statement, strength: float) -> str:
    score = "Xw + b" if stated.intercept == "free" else "Xw"
    text = f"σ + mean σ·H_{stated.epsilon:.3g}((y − z)/σ)"
    if stated.alpha > 0:
        text += f" + {strength / 2:.4g}·‖w‖²"
    return f"{text},  z = {score}"
