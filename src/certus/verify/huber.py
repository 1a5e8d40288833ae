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
from functools import partial
from typing import Any

import numpy as np

from certus.certificate import Claim, Status
from certus.fingerprints import direction
from certus.objectives import terms as t
from certus.searches import slopes
from certus.typing import Array
from certus.verify import deciding
from certus.verify.deciding import GAP, MOVED, Number, measured
from certus.verify.kernel import gap
from certus.verify.kernel.gap import Problem, norm
from certus.verify.kernel.losses import weighted_quantile
from certus.verify.kernel.moved import measure_moved
from certus.verify.kernel.spaces import UNIT
from certus.verify.problems import at, chosen_dual, scores, sound
from certus.verify.stated_linear import Statement

#: Above this value better slopes are searched, because repairs cost to first order.
REFINE = 1e-7
#: Largest n·d² for which Newton steps towards a better dual point are taken.
STEPS_COST = 2e9


def judge_scale(
    stated: Statement, p: Problem, scale: float
) -> tuple[list[Claim], Status, Array]:
    """The joint gap of coefficients and scale; how many rows the scale cuts off."""
    epsilon, z = stated.loss.threshold, scores(p)
    strength = getattr(p.penalty, "alpha", 0.0)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        found, probed = _joint(p, z, scale, strength)
    objective = f"σ + mean σ·H_{epsilon:.3g}((y − z)/σ)"
    objective += f" + {strength / 2:.4g}·‖w‖²" if strength > 0 else ""
    objective += ",  z = Xw + b" if p.free else ",  z = Xw"
    words = GAP if strength > 0 else MOVED
    theorem = words.theorem.replace("best constant model", "the median")
    words = words._replace(theorem=theorem)
    claim = deciding.claim_of(words, found, stated.tol, objective, stated.fix)
    far = int(np.sum(np.abs(p.y - z) > epsilon * scale))
    cut = f"{far:,} of {len(z):,} rows lie more than {epsilon:g} times the scale away"
    outliers = measured("outliers", far / len(z), f"{cut} {scale:.4g}")
    return [claim, outliers], deciding.status_of(claim), probed


def _joint(p: Problem, z: Array, scale: float, strength: float) -> tuple[Number, Array]:
    """The joint gap as a share of P of the median, by the best of a few dual points."""
    epsilon, s = p.loss.threshold, p.space.s
    factor = 2 / scale if scale > 0 else 2 * epsilon
    loss: Any = t.Huber(epsilon * scale) if scale > 0 else t.Absolute()
    fixed = p._replace(loss=loss, penalty=t.L2(strength / factor))
    base = reference(p.y, s, epsilon, p.free) or reference(p.y, s, epsilon, False)
    more = (scale, factor, base * (1 - 1e-9))
    u = chosen_dual(fixed, "quick", z) if p.dual is None else p.dual / factor
    best = partial(best_scale, s=s, epsilon=epsilon)
    found, probed = _bound(fixed, u, *more, direction(p.space.width))
    for X in (p.space.given[:, :0], p.space.given):
        few = len(z) * (X.shape[1] + 1) ** 2 <= STEPS_COST
        if p.dual is None and scale > 0 and REFINE < found.most < math.inf and few:
            steps = slopes.stepped(p.loss, at(p, z)._replace(X=X), strength, best)
            other = sound(steps, z.shape)
            if other is not None:
                each, _ = _bound(fixed, other / factor, *more, None)
                found = min(found, each, key=lambda number: number.most)
    return found, probed


def _bound(
    p: Problem, u: Array, scale: float, factor: float, base: float, probe: Array | None
) -> tuple[Number, Array]:
    """The gap for a fixed scale, and what σ(1 − mean a²/4) adds to it."""
    # Into the ball mean a² ≤ 4, a little inside for rounding.
    size = norm(p, u) * factor
    u = u * (2 / size * (1 - 1e-12)) if size > 2 * (1 - 1e-12) else u
    p = p._replace(dual=u)
    seen: Any = (gap.measure if p.penalty.alpha > 0 else measure_moved)(p, probe)
    square = min((norm(p, seen.u) * factor) ** 2 / 4, 1.0)
    computed = factor * seen.computed + scale * (1 - square)
    # The exactly feasible neighbour of u is shorter by its slack.
    bound = factor * seen.bound + scale * (2 * seen.slack + 1e-11) * square
    if p.penalty.alpha > 0:
        return Number.share(computed * (1 + 4 * UNIT), bound, base), seen.probe
    still = factor * seen.still + scale
    off = factor * seen.still_bound + 4 * UNIT * scale
    seen = seen._replace(computed=computed, bound=bound, still=still, still_bound=off)
    return Number(*seen.value(base)), seen.probe


def best_scale(r: Array, s: Array, epsilon: float) -> float:
    """The σ that minimises P for given residuals, by sorting them."""
    order = np.argsort(np.abs(r))
    square, weight = np.square(r[order]), s[order]
    room = s.sum() - epsilon**2 * (s.sum() - np.cumsum(weight))
    with np.errstate(divide="ignore", invalid="ignore"):
        guess = np.where(room > 0, np.cumsum(weight * square) / room, 0.0)
    limit = epsilon**2 * guess
    fits = (square <= limit * (1 + 1e-12)) & (limit <= np.append(square[1:], np.inf))
    fits &= room > 0
    return float(np.sqrt(guess[np.argmax(fits)])) if fits.any() else 0.0


def reference(y: Array, s: Array, epsilon: float, free: bool) -> float:
    """P of the median (of 0 without an intercept) with its own best scale."""
    b = weighted_quantile(y, s, 0.5) if free else 0.0
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
