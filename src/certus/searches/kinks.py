"""Interior points of quadratic problems whose differences have kinks or signs.

    minimise ½pᵀHp + vᵀp + Σₑ max over lowₑ ≤ uₑ ≤ highₑ of uₑ(Dp)ₑ

With Dp = a − b, a, b ≥ 0, a primal-dual method follows a(high − u) = b(u − low) = μ to
μ = 0. An infinite side of the box is a constraint on the sign. The u at the end are
flows, which the verifier checks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from certus.typing import Array

#: Share of the way to the boundary that a step takes.
NEARLY = 0.995
#: Steps at most, the weight of a difference at most, as a multiple of the levels of its
#: cells, and the products that end the run, as a share of the size of the problem.
STEPS, CUT, SMALL = 60, 1e9, 1e-12


class CostBoxes(NamedTuple):
    """D and the boxes of u."""

    D: Any
    low: Array
    high: Array

    def sides(self, u: Array) -> tuple[Array, Array]:
        """Distances of u to the ends of its box; 1 where there is no end."""
        above = np.where(np.isfinite(self.high), self.high - u, 1.0)
        below = np.where(np.isfinite(self.low), u - self.low, 1.0)
        return above, below


class Inside(NamedTuple):
    """p, u, and both parts of Dp."""

    p: Array
    u: Array
    a: Array
    b: Array

    def moved(self, move: Inside, far: float) -> Inside:
        """After a share of a step."""
        return Inside(*(x + far * dx for x, dx in zip(self, move)))


def boxed(H: Any, v: Array, p: Array, boxes: CostBoxes) -> Array:
    """The u of the problem, starting near p."""
    at = _start(boxes, v, p)
    size = float(np.abs(v) @ np.abs(p)) + 1e-300
    for _ in range(STEPS):
        above, below = boxes.sides(at.u)
        total = float(at.a @ above + at.b @ below)
        off = np.abs(H @ at.p + v + boxes.D.T @ at.u) @ np.abs(at.p)
        if max(total, float(off)) <= SMALL * size:
            break
        try:
            with np.errstate(all="ignore"):  # what is not finite ends the run
                after = _step(H, v, boxes, at)
        except RuntimeError:  # singular in floats
            break
        if not all(np.isfinite(part).all() for part in after):
            break
        at = after
    return at.u


def _start(boxes: CostBoxes, v: Array, p: Array) -> Inside:
    r = boxes.D @ p
    width = boxes.high - boxes.low
    finite = np.isfinite(width)
    typical = float(np.median(width[finite])) if finite.any() else 0.0
    size = float(np.abs(v) @ np.abs(p))
    slack = 0.1 * float(np.abs(r).mean()) + 1e-12
    slack += 0.5 * size / (typical * len(r)) if typical > 0 else 0.0
    unit = typical or float(np.abs(v).mean()) or 1.0
    low = np.where(np.isfinite(boxes.low), boxes.low, boxes.high - 2 * unit)
    high = np.where(np.isfinite(boxes.high), boxes.high, boxes.low + 2 * unit)
    a = np.where(np.isfinite(boxes.high), np.maximum(r, 0.0) + slack, 0.0)
    b = np.where(np.isfinite(boxes.low), np.maximum(-r, 0.0) + slack, 0.0)
    return Inside(p, (low + high) / 2, a, b)


def _step(H: Any, v: Array, boxes: CostBoxes, at: Inside) -> Inside:
    """Predict with μ = 0, then aim at the μ that the prediction allows."""
    D, (above, below) = boxes.D, boxes.sides(at.u)
    up, down = at.a > 0, at.b > 0
    count = max(1, int(up.sum() + down.sum()))
    mu = float(at.a @ above + at.b @ below) / count
    # A weight that is cut leaves a − b a little off, which later steps correct.
    W = 1.0 / (at.a / above + at.b / below)
    W = np.minimum(W, CUT * (abs(D) @ H.diagonal()))
    solve = splu((H + D.T @ sparse.diags_array(W) @ D).tocsc()).solve
    r, slope = D @ at.p, H @ at.p + v

    def direction(one: Array, two: Array) -> Inside:
        """Newton's step to a(high − u) = one and b(u − low) = two."""
        shift = np.where(up, one / above, 0.0) - np.where(down, two / below, 0.0)
        dp = solve(-(slope + D.T @ (at.u + W * (r - shift))))
        du = W * (D @ dp + r - shift)
        da = np.where(up, (one + at.a * du) / above - at.a, 0.0)
        db = np.where(down, (two - at.b * du) / below - at.b, 0.0)
        return Inside(dp, du, da, db)

    none = np.zeros_like(at.u)
    guess = direction(none, none)
    then = at.moved(guess, _room(boxes, at, guess))
    ends = boxes.sides(then.u)
    left = float(then.a @ ends[0] + then.b @ ends[1])
    aim = mu * min(1.0, max((left / max(mu * count, 1e-300)) ** 3, 1e-6))
    move = direction(aim + guess.a * guess.u, aim - guess.b * guess.u)
    return at.moved(move, min(1.0, NEARLY * _room(boxes, at, move)))


def _room(boxes: CostBoxes, at: Inside, move: Inside) -> float:
    """The longest step, at most 1/NEARLY, that stays inside."""
    above, below = boxes.sides(at.u)
    found = 1.0 / NEARLY
    for value, change in (
        (at.a, move.a),
        (at.b, move.b),
        (above, np.where(np.isfinite(boxes.high), -move.u, 0.0)),
        (below, np.where(np.isfinite(boxes.low), move.u, 0.0)),
    ):
        falls = change < 0
        if falls.any():
            found = min(found, float((-value[falls] / change[falls]).min()))
    return found
