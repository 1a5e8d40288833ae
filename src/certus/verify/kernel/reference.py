"""The reference value of a gap: the objective of the best model that ignores X.

P₀ must not be stated too large. For one score, P is convex in the constant c. Where its
slopes on both sides of c are g₋ ≤ 0 ≤ g₊, a minimiser lies between, and by convexity

    P₀ ≥ P(c) − 2h·max(−g₋, g₊)

if they are slopes at points h away, give or take less than h. For several scores it is
P(c) − G(c) by the kernel's own gap of the problem without columns. Where P₀ is zero
within rounding (a constant target), P(0, 0) takes its place.
"""

from __future__ import annotations

import math

import numpy as np

from certus.objectives import terms as t
from certus.typing import Array
from certus.verify.kernel import gap, losses
from certus.verify.kernel.gap import Problem
from certus.verify.kernel.spaces import UNIT, Space, gamma

#: Targets in steps of one that span less than this are counted.
SPAN = 1 << 10
#: How far from c slopes are looked at, in units of c and the targets.
STEPS = (64 * UNIT, 1e-12, 1e-9, 1e-6)


def least_constant(p: Problem) -> float:
    """A lower bound of P of the best model that ignores X, or of P(0, 0).

    Zero where it overflows, because a share would make no sense.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        # Sums of weights are rounded, those of counted rows once for each.
        lost = 1e-12 + 4 * gamma(len(p.y))
        p = _counted(p)
        best = _best(p)
        if best is None:
            value, off = _value(p, np.zeros(p.b.size))
            best = value - off
        found = max(best, 0.0) * (1 - lost)
    return found if math.isfinite(found) else 0.0


def _counted(p: Problem) -> Problem:
    """One row for each target, with the weight of all its rows, where these are few."""
    low = p.y.min()
    if p.y.ndim == 2 or not p.y.max() - low < SPAN:
        return p
    codes = (p.y - low).astype(np.intp)
    if (codes + low != p.y).any():
        return p
    mass = np.bincount(codes, p.space.s)
    labels = np.flatnonzero(mass)
    space = Space(np.zeros((len(labels), 0)), mass[labels], False, p.space.constant)
    return p._replace(space=space, y=low + labels)


def _best(p: Problem) -> float | None:
    if p.y.ndim == 2:
        each = (p._replace(y=y, w=p.w[:, 0], b=p.b[:1]) for y in p.y.T)
        # A target that is constant adds nothing where others are not.
        known = [x for x in map(_best, each) if x is not None]
        return math.fsum(known) if known else None
    if not (p.free or p.space.constant):
        return None  # nothing to choose: P(0, 0)
    if isinstance(p.loss, t.Squared) and p.free:
        return _variance(p)
    return _between(p) if p.w.ndim == 1 else _of_classes(p)


def _variance(p: Problem) -> float | None:
    """½·mean (y − mean y)², less what the rounded mean and its sum may add."""
    middle = gap.mean(p, p.y)
    lost = 48 * UNIT * float(max(p.y.max(), -p.y.min()))
    lost = lost * lost  # a power would raise where this overflows
    value = float(gap.means_of(p, lambda rows: np.square(p.y[rows] - middle))) / 2
    return value * (1 - 1e-9) - lost if value > 8 * lost else None


def _between(p: Problem) -> float | None:
    """The bound from slopes on both sides; None where P(c) is nothing but rounding."""
    row, (l1, l2) = losses.row_of(p.loss), _levels(p)

    def pull(c: float) -> float:
        return l2 * c + l1 * float(np.sign(c))

    if p.space.constant:
        c = losses.stationary(p.loss, p.y, p.space.s, pull)
    else:
        c = row.best(p.loss, p.y, p.space.s)
    if not math.isfinite(c):
        return None
    primal, off = _value(p, np.array([c]))
    primal += l1 * abs(c) + l2 * c * c / 2
    if not primal > 8 * off:
        return None
    rest = row.rest(p.loss, p.y)

    def slope(c: float) -> tuple[float, float]:
        """P'(c) from below and from above."""
        each = row.slope(p.loss, p.y, np.full(len(p.y), c))
        size = gap.mean(p, np.abs(each) + rest) + abs(pull(c))
        middle, lost = gap.mean(p, each) + pull(c), (64 + abs(c)) * UNIT * size
        return middle - lost, middle + lost

    reach = abs(c) + float(np.abs(p.y).max()) + float(getattr(p.loss, "margin", 0.0))
    # Without a sign P may fall on; where it is flat a minimiser lies within reach.
    far = 2 * reach if row.bend == "kink" or row.takes == "numbers" else math.inf
    least = 0.0
    for h in (share * reach for share in STEPS):
        (down, low), (high, up) = slope(c - h), slope(c + h)
        wrong = max(low, -high)
        lost = off + 3 * h * max(-down, up) + (wrong * far if wrong > 0 else 0.0)
        least = max(least, primal * (1 - 8 * UNIT) - lost)
        if lost <= off + 1e-9 * primal:
            break
    return least


def _levels(p: Problem) -> tuple[float, float]:
    """Ω of a constant column in units of its score c, l1·|c| + l2·c²/2, or less."""
    size = p.space.constant or math.inf
    match p.penalty:
        case t.L1(alpha):
            return alpha / size, 0.0
        case t.L2(alpha):
            return 0.0, alpha / size / size
        case t.L1L2(l1, l2):
            return l1 / size, l2 / size / size
    return 0.0, 0.0


def _value(p: Problem, c: Array) -> tuple[float, float]:
    """Mean ℓ at constant scores, and how far it may be from what was computed."""
    rest = losses.row_of(p.loss).rest(p.loss, p.y)
    z = np.full(rest.shape, c, dtype=float)
    value, noise = gap.excess_of(p, z, rest)
    delta = gap.evaluation_error(p, z, 0 * z)
    off = gap.steep(p, z, 0 * z, delta) + 4 * gamma(len(z) + 40) * value
    return value, off + UNIT * noise


def _of_classes(p: Problem) -> float | None:
    """P(c) − G(c) for the log-shares of the classes."""
    best = losses.row_of(p.loss).best(p.loss, p.y, p.space.s)
    # Without columns nothing is pulled back, so that any penalty will do.
    space = Space(np.zeros((len(p.y), 0)), p.space.s, False)
    bare = p._replace(space=space, penalty=t.L2(1.0), w=p.w[:0], b=best, dual=None)
    primal, off = _value(p, best)
    least = primal - off - gap.measure(bare).stated
    return (least if math.isfinite(least) else 0.0) if primal > 8 * off else None
