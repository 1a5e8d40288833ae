"""Interior points of problems with kinks: losses of residuals, differences, cones.

    minimise G(x) + Σⱼ max over lowⱼ ≤ uⱼ ≤ highⱼ of uⱼ(Ax − c)ⱼ

for a convex smooth G. With Ax − c = p − m, p, m ≥ 0, a primal-dual method follows
p(high − u) = m(u − low) = μ to μ = 0. An infinite side of the box is a constraint on
the sign. A step costs one linear system, solved twice. The u at the end is a dual
point, which the verifier checks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from certus.typing import Array

#: Share of the way to the boundary that a step takes, and steps without progress.
NEARLY, STALLED = 0.995, 25


class KinkBoxes(NamedTuple):
    """The boxes of u, and c."""

    low: Array
    high: Array
    target: Array


class Smooth(NamedTuple):
    """G and A by their products; ``factor(x, W)`` solves with ∇²G(x) + AᵀWA.

    ``most(x)`` are the largest weights W that floats can bear there.
    """

    gradient: Callable[[Array], Array]
    forward: Callable[[Array], Array]
    back: Callable[[Array], Array]
    factor: Callable[[Array, Array], Callable[[Array], Array]]
    most: Callable[[Array], Array]
    quadratic: bool  # whether G is


class Point(NamedTuple):
    """x and u, and both parts of Ax − c."""

    x: Array
    u: Array
    p: Array
    m: Array


class Residual(NamedTuple):
    """What is left of ∇G + Aᵀu = 0 and of p − m = Ax − c, and the products."""

    slope: Array
    split: Array
    above: Array  # p·(high − u)
    below: Array  # m·(u − low)

    def size(self, units: tuple[float, float, float], aim: float) -> float:
        """Its norm, the products compared with ``aim``, in given units."""
        off = [self.above[self.above > 0] - aim, self.below[self.below > 0] - aim]
        parts = self.slope / units[0], self.split / units[1]
        return float(
            np.sqrt(
                sum(float(a @ a) for a in parts)
                + sum(float(a @ a) for a in off) / units[2] ** 2
            )
        )


def start(kinks: KinkBoxes, g: Smooth, x: Array, size: float) -> Point:
    """Strictly inside, near x; ``size`` is that of the objective."""
    r = g.forward(x) - kinks.target
    width = kinks.high - kinks.low
    finite = np.isfinite(width)
    typical = float(np.median(width[finite])) if finite.any() else 0.0
    slack = 0.1 * float(np.abs(r).mean())
    if typical > 0:
        slack = max(slack, 0.5 * size / (typical * len(r)))
    slack += 1e-9 * float(np.abs(r).max(initial=0.0)) + 1e-12
    unit = typical or float(np.abs(g.gradient(x)).mean()) or 1.0
    low = np.where(np.isfinite(kinks.low), kinks.low, kinks.high - 2 * unit)
    high = np.where(np.isfinite(kinks.high), kinks.high, kinks.low + 2 * unit)
    p = np.where(np.isfinite(kinks.high), np.maximum(r, 0.0) + slack, 0.0)
    m = np.where(np.isfinite(kinks.low), np.maximum(-r, 0.0) + slack, 0.0)
    return Point(x, (low + high) / 2, p, m)


def residual(kinks: KinkBoxes, g: Smooth, at: Point) -> Residual:
    """How far a point is from solving the problem."""
    above, below = _sides(kinks, at.u)
    return Residual(
        g.gradient(at.x) + g.back(at.u),
        at.p - at.m - (g.forward(at.x) - kinks.target),
        np.where(at.p > 0, at.p * above, 0.0),
        np.where(at.m > 0, at.m * below, 0.0),
    )


def _sides(kinks: KinkBoxes, u: Array) -> tuple[Array, Array]:
    """Distances of u to the ends of its box; 1 where there is no end."""
    above = np.where(np.isfinite(kinks.high), kinks.high - u, 1.0)
    below = np.where(np.isfinite(kinks.low), u - kinks.low, 1.0)
    return above, below


def follow(
    kinks: KinkBoxes,
    g: Smooth,
    x: Array,
    size: float,
    goal: float,
    most: int,
    told: Callable[[Point, float], bool] = lambda at, gap: False,
) -> tuple[Point, bool]:
    """The last point, and whether its products add up to ``goal`` at most.

    ``size`` is that of the objective, from which the first products follow.
    ``told`` is called with each point and that sum, and may stop the run.
    """
    at = start(kinks, g, x, size)
    left = residual(kinks, g, at)
    best, since = np.inf, 0
    for _ in range(most):
        total = float(left.above.sum() + left.below.sum())
        off = float(np.abs(left.slope).sum() * np.abs(at.x).max(initial=0.0))
        off += float(np.abs(at.u) @ np.abs(left.split))
        if told(at, total):
            return at, False
        if total <= goal and off <= goal:
            return at, True
        since = 0 if max(total, off) < 0.9 * best else since + 1
        best = min(best, max(total, off))
        if since > STALLED or not np.isfinite(total):
            return at, total <= goal
        try:
            with np.errstate(all="ignore"):  # what is not finite ends the run below
                after = _step(kinks, g, at, left)
                left = residual(kinks, g, after)
        except (np.linalg.LinAlgError, RuntimeError):  # weights that floats cannot bear
            return at, total <= goal
        if not np.isfinite(after.x).all() or not np.isfinite(left.slope).all():
            return at, False
        at = after
    return at, False


def _step(kinks: KinkBoxes, g: Smooth, at: Point, left: Residual) -> Point:
    """Predict with μ = 0, then aim at the μ that the prediction allows."""
    above, below = _sides(kinks, at.u)
    has = at.p > 0, at.m > 0
    count = int(has[0].sum() + has[1].sum())
    mu = float(left.above.sum() + left.below.sum()) / max(count, 1)
    # A weight that is cut leaves p − m a little off, which later steps correct.
    W = np.minimum(1.0 / (at.p / above + at.m / below), g.most(at.x))
    solve = g.factor(at.x, W)
    r = at.p - at.m - left.split
    slope = left.slope - g.back(at.u)

    def direction(up: Array, down: Array) -> Point:
        """Newton's step to p(high − u) = up and m(u − low) = down."""
        shift = np.where(has[0], up / above, 0.0) - np.where(has[1], down / below, 0.0)
        dx = solve(-(slope + g.back(at.u + W * (r - shift))))
        du = W * (g.forward(dx) + r - shift)
        dp = np.where(has[0], (up + at.p * du) / above - at.p, 0.0)
        dm = np.where(has[1], (down - at.m * du) / below - at.m, 0.0)
        return Point(dx, du, dp, dm)

    none = np.zeros_like(at.u)
    guess = direction(none, none)
    far = _room(kinks, at, guess)
    p, m = at.p + far * guess.p, at.m + far * guess.m
    u = at.u + far * guess.u
    above_, below_ = _sides(kinks, u)
    then = float((p * above_)[has[0]].sum() + (m * below_)[has[1]].sum())
    share = min(1.0, max((then / max(mu * count, 1e-300)) ** 3, 1e-6))
    aim = share * mu
    if g.quadratic:
        move = direction(aim + guess.p * guess.u, aim - guess.m * guess.u)
        return _moved(at, move, min(1.0, NEARLY * _room(kinks, at, move)))
    aim = max(aim, 0.05 * mu)
    move = direction(np.full_like(none, aim), np.full_like(none, aim))
    far = min(1.0, NEARLY * _room(kinks, at, move))
    units = (
        max(float(np.abs(left.slope).max()), 1e-3 * float(np.abs(slope).max()), 1e-300),
        max(float(np.abs(left.split).max(initial=0.0)), 1e-3 * float(at.p.max()), 1e-9),
        max(mu, 1e-300),
    )
    before = left.size(units, aim)
    for _ in range(30):
        after = _moved(at, move, far)
        size = residual(kinks, g, after).size(units, aim)
        if size <= (1 - 0.01 * far) * before:
            break
        far /= 2
    return after


def _room(kinks: KinkBoxes, at: Point, move: Point) -> float:
    """The longest step, at most 1/NEARLY, that stays inside."""
    above, below = _sides(kinks, at.u)
    found = 1.0 / NEARLY
    for value, change in (
        (at.p, move.p),
        (at.m, move.m),
        (above, np.where(np.isfinite(kinks.high), -move.u, 0.0)),
        (below, np.where(np.isfinite(kinks.low), move.u, 0.0)),
    ):
        falls = change < 0
        if falls.any():
            found = min(found, float((-value[falls] / change[falls]).min()))
    return found


def _moved(at: Point, move: Point, far: float) -> Point:
    return Point(*(a + far * b for a, b in zip(at, move)))
