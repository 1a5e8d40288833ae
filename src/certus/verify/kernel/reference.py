"""What a gap is a share of: the value of the best model that ignores X.

P₀ must not be stated too large, so it is bounded from below by the kernel's own gap of
the problem without columns: P₀ ≥ P(c) − G(c) for any constant c. Where that is zero
within rounding (a constant target), P(0, 0) takes its place.
"""

from __future__ import annotations

import math

import numpy as np

from certus import terms as t
from certus.verify.kernel import gap, losses
from certus.verify.kernel.gap import Problem
from certus.verify.kernel.spaces import UNIT, Array, Linear, gamma


def least_constant(p: Problem) -> float:
    """A lower bound of P of the best model that ignores X, or of P(0, 0).

    Zero where it overflows: nothing is a share of that.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if losses.row_of(p.loss).takes in ("signs", "codes"):
            p = _row_for_each_label(p)
        best = _best(p)
        # Sums of weights are rounded, each by less than 40 units.
        found = (_at_zero(p) if best is None else max(best, 0.0)) * (1 - 1e-12)
    return found if math.isfinite(found) else 0.0


def _best(p: Problem) -> float | None:
    if p.y.ndim == 2:
        each = (p._replace(y=y, w=p.w[:, 0], b=p.b[:1]) for y in p.y.T)
        # A target that is constant adds nothing where others are not.
        known = [x for x in map(_best, each) if x is not None]
        return math.fsum(known) if known else None
    squared = isinstance(p.loss, t.Squared) and p.free
    return _variance(p) if squared else _at_best(p)


def _row_for_each_label(p: Problem) -> Problem:
    """One row for each label, with the weight of all its rows."""
    two = losses.row_of(p.loss).takes == "signs"
    labels = np.unique([p.y.min(), p.y.max()] if two else p.y)
    s = p.space.total * np.array([gap.mean(p, p.y == label) for label in labels])
    space = Linear(np.zeros((len(s), 0)), s, False, p.space.constant)
    return p._replace(space=space, y=labels)


def _variance(p: Problem) -> float | None:
    """½·mean (y − mean y)², less what the rounded mean and its sum may add."""
    middle = gap.mean(p, p.y)
    lost = 48 * UNIT * float(max(p.y.max(), -p.y.min()))
    lost = lost * lost  # a power would raise where this overflows
    value = float(gap.means_of(p, lambda rows: np.square(p.y[rows] - middle))) / 2
    return value * (1 - 1e-9) - lost if value > 8 * lost else None


def _without_columns(p: Problem, w: Array, b: Array, constant: float) -> Problem:
    space = Linear(np.zeros((len(p.y), 0)), p.space.s, False, constant)
    # Without columns nothing is pulled back, so that any penalty will do.
    penalty = p.penalty if constant else t.L2(1.0)
    return p._replace(space=space, penalty=penalty, w=w, b=b, dual=None)


def _primal_error(p: Problem, found: gap.Gap) -> float:
    """How far P may be from what was computed."""
    row, z = losses.row_of(p.loss), found.z
    delta = gap.score_error(p, z, found.u)
    off = gap.steep(p, z, 0 * found.u, delta) + 4 * gamma(len(z) + 40) * found.primal
    if row.bend == "exponential":
        off += UNIT * gap.mean(p, row.excess(p.loss, p.y, z, row.rest(p.loss, p.y))[1])
    return off


def _lower(p: Problem) -> float | None:
    """P(c) − G(c); None where P(c) is nothing but rounding."""
    found = gap.measure(p)
    off = _primal_error(p, found)
    if not found.primal > 8 * off:
        return None
    least = found.primal - off - found.stated
    return least if math.isfinite(least) else 0.0


def _lower_at(p: Problem, score: float) -> float | None:
    """The larger of two: the best constant may be a kink itself, or only near one."""
    if losses.row_of(p.loss).bend != "kink":
        return _lower(p)
    duals = (_between(p, score, near) for near in (1e-9, 64 * UNIT))
    found = (_lower(p._replace(dual=dual)) for dual in duals)
    return max((each for each in found if each is not None), default=None)


def _between(p: Problem, best: float, near: float) -> Array:
    """Slopes at the best constant that balance, where it lies on a kink."""
    row = losses.row_of(p.loss)
    # A penalised constant pulls back: mean u = −Ω'(x)/constant.
    level = float(getattr(p.penalty, "alpha", 0.0))
    goal = -level * best / p.space.constant**2 if p.space.constant else 0.0
    step = near * (abs(best) + float(np.abs(p.y).max()))
    sides = (np.full(len(p.y), x) for x in (best - step, best + step))
    low, high = (row.slope(p.loss, p.y, side) for side in sides)
    down, up = gap.mean(p, low) - goal, gap.mean(p, high) - goal
    if not down < 0 < up:
        return np.asarray(low if abs(down) < abs(up) else high, dtype=float)
    return np.asarray((up * low - down * high) / (up - down))


def _at_best(p: Problem) -> float | None:
    constant = p.space.constant
    if not (p.free or constant):
        return None  # nothing to choose: P(0, 0)
    if constant:
        x = _penalised(p)
        bare = _without_columns(p, np.array([x]), p.b, constant)
        return _lower_at(bare, constant * x)
    best = np.atleast_1d(losses.row_of(p.loss).best(p.loss, p.y, p.space.s))
    if not np.isfinite(best).all():
        return None
    bare = _without_columns(p, np.zeros((0, *p.w.shape[1:])), best, 0.0)
    return _lower_at(bare, float(best[0]))


def _penalised(p: Problem) -> float:
    """The best coefficient of a constant column that is penalised; any will do."""
    size, penalty = p.space.constant, p.penalty
    alpha = getattr(penalty, "alpha", 0.0)
    l1 = getattr(penalty, "l1", alpha * isinstance(penalty, t.L1))
    l2 = getattr(penalty, "l2", alpha * isinstance(penalty, t.L2))

    def pull(b: float) -> float:
        return l2 * b / size**2 + l1 * float(np.sign(b)) / size

    return losses.stationary(p.loss, p.y, p.space.s, pull) / size


def _at_zero(p: Problem) -> float:
    w = np.zeros((0, *p.w.shape[1:]))
    free = _without_columns(p, w, np.zeros(p.b.size), 0.0)._replace(free=False)
    found = gap.measure(free)
    return max(0.0, found.primal - _primal_error(free, found))
