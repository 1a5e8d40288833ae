"""The dual of support vector machines, solved by blocks.

    minimise ½βᵀKβ − tᵀβ   subject to   Σβ = 0,  low ≤ β ≤ high

A classifier has t = y and one variable for each row; a regressor has two for each row,
with targets y ∓ epsilon. Outside, a working set of several hundred variables is chosen:
the largest violations, and the free ones of the last set. Its kernel rows come from one
matrix product. Inside, pairs are moved by second-order selection on the small matrix.
Near the end the free variables are solved for exactly, as a linear system.

Cost: rows of the kernel matrix that ever enter a working set, about the number of
support vectors, times n; memory: the store of rows (see ``rows``), a few vectors of n.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve

from certus._core.blas import cholesky
from certus.certificate import Status
from certus.kernels.compiled import minimise_block
from certus.kernels.rows import KernelRows
from certus.svm.face import Face, face_step
from certus.typing import Array

#: Problems up to this many variables are one working set.
SMALL = 1_000
#: Variables in a working set of larger problems.
WORKING = 1_536
#: Most free variables solved for exactly.
EXACT = 2_500
#: Working sets between two steps on all free variables, where these are many.
FACE_EVERY = 6
#: Working sets that cost as much as an exact solve for the free variables.
WORTH = 30.0
#: Numbers a compiled call may touch: about a fifth of a second.
PATIENCE = 4e7

#: Working sets in which the gap must halve, else the fit gives up.
PATIENT = 300

#: Called with (objective, gap, β, b); a status means stop.
OnStep = Callable[[float, float, Array, float], Status | None]


class DualProblem(NamedTuple):
    """The problem: variable i has kernel row ``row[i]``."""

    rows: KernelRows
    row: Array
    target: Array
    low: Array
    high: Array


class DualSolution(NamedTuple):
    """β, the constant b, the scores Kβ of all rows, and how it ended."""

    beta: Array
    b: float
    f: Array
    gap: float
    status: Status
    n_iter: int


class SMOPoint(NamedTuple):
    """Objective, gap and other numbers at an iterate."""

    b: float
    primal: float
    gap: float
    violation: float


def best_constant(v: Array, low: Array, high: Array) -> float:
    """Argmin over b of Σ max(low·(v − b), high·(v − b)); the middle if not unique."""
    use = high > low
    v, width = v[use], (high - low)[use]
    if not len(v):
        return 0.0
    order = np.argsort(v, kind="stable")
    slope = np.cumsum(width[order]) - high[use].sum()
    flat = 1e-12 * width.sum()
    k = int(np.searchsorted(slope, -flat))
    k = min(k, len(v) - 1)
    right = k
    while right < len(v) - 1 and slope[right] <= flat:
        right += 1
    return float((v[order[k]] + v[order[right]]) / 2)


def _excess(box: DualProblem, beta: Array, e: Array) -> tuple[float, float]:
    """Σ max(low·e, high·e), and that minus Σ βe: loss, and the part that is gap."""
    loss = np.where(e > 0, box.high * e, box.low * e)
    return float(loss.sum()), float((loss - beta * e).sum())


def reference(box: DualProblem) -> float:
    """The objective of the best constant."""
    b = best_constant(box.target, box.low, box.high)
    return _excess(box, np.zeros(len(box.low)), box.target - b)[0]


def look(
    box: DualProblem, beta: Array, f: Array, unit: float, careful: bool = True
) -> SMOPoint:
    """Objective, gap (relative to ``unit``, else to it) and violation, f = Kβ."""
    v = box.target - f[box.row]
    rising, falling = beta < box.high, beta > box.low
    top = float(np.max(v, where=rising, initial=-np.inf))
    bottom = float(np.min(v, where=falling, initial=np.inf))
    middle = np.isfinite(top) and np.isfinite(bottom)
    if careful or not middle:
        b = best_constant(v, box.low, box.high)
    else:
        b = (top + bottom) / 2
    loss, gap = _excess(box, beta, v - b)
    primal = loss + float(beta @ f[box.row]) / 2
    share = gap / (unit or max(primal, 1e-300))
    return SMOPoint(b, primal, share, top - bottom)


def choose(box: DualProblem, beta: Array, v: Array, last: Array, size: int) -> Array:
    """The next working set: free variables of the last one, then violations."""
    taken = np.zeros(len(beta), dtype=bool)
    free = (beta[last] > box.low[last]) & (beta[last] < box.high[last])
    taken[last[free][: size // 2]] = True
    for may, sign in ((beta < box.high, -1.0), (beta > box.low, 1.0)):
        room = (size - int(taken.sum())) // (2 if sign < 0 else 1)
        pool = np.flatnonzero(may & ~taken)
        if len(pool) > room:
            pool = pool[np.argpartition(sign * v[pool], room)[:room]]
        taken[pool] = True
    return np.flatnonzero(taken)


def solve(
    box: DualProblem,
    tol: float,
    max_iter: int | None,
    on_step: OnStep,
    own_unit: bool = False,
) -> DualSolution:
    """Solve until the relative gap is at most ``tol``, or ``on_step`` says stop.

    The gap is relative to the best constant or, with ``own_unit``, to the objective.
    """
    m, rows = len(box.target), box.rows
    beta, f = np.zeros(m), np.zeros(rows.n)
    unit = reference(box)
    if unit <= 0.0:
        return DualSolution(beta, _flat(box), f, 0.0, Status.SOLVED, 0)
    unit = 0.0 if own_unit else unit
    size = m if m <= SMALL else min(WORKING, rows.capacity)
    last, steps, fresh = np.empty(0, dtype=np.int64), 0, True
    polished, stale = look(box, beta, f, unit).violation, 0
    best, since, rounds = np.inf, 0, 0
    gaps: deque[float] = deque(maxlen=4)
    face: Face | None = None
    status = Status.SOLVED
    try:
        while True:
            point = look(box, beta, f, unit, careful=m <= 4 * SMALL or fresh)
            if point.gap <= tol / 2 and not fresh:
                f, fresh = total_scores(box, beta), True
                continue
            stop = on_step(point.primal, point.gap, beta, point.b)
            if point.gap <= tol / 2 or stop is not None:
                status = stop or status
                break
            if max_iter is not None and steps >= max_iter:
                status = Status.MAX_ITER
                break
            slow = _rounds_left(gaps, point.gap, tol / 2) > WORTH or m <= SMALL
            best, since = (point.gap, 0) if point.gap < best / 2 else (best, since + 1)
            if since > PATIENT:
                status = Status.TOL_NOT_REACHED
                break
            if slow and point.violation <= 1e-2 * polished and _few_free(box, beta):
                polished = max(point.violation, 1e-300)
                improved = polish(box, beta, f, unit, point)
                if improved is not None:
                    beta, f = improved
                    fresh = rows.exact
                    continue
            if (rounds := rounds + 1) % FACE_EVERY == 0 and _many_free(box, beta):
                face = Face(box) if face is None else face
                if face_step(face, beta, f):
                    fresh = False
                    continue
            before = point.violation
            work = choose(box, beta, box.target - f[box.row], last, size)
            left = int(1e15) if max_iter is None else max_iter - steps
            done, change = _move(box, beta, f, work, max(0.1 * before, 1e-15), left)
            steps += done
            last, fresh = work, False
            stale = 0 if change > 0.0 else stale + 1
            if stale > 2:  # rounding: no pair can be moved any more
                status = Status.TOL_NOT_REACHED
                break
    except KeyboardInterrupt:
        status, fresh = Status.INTERRUPTED, False
    if not fresh:
        f = total_scores(box, beta)
    point = look(box, beta, f, unit)
    return DualSolution(beta, point.b, f, point.gap, status, steps)


def _rounds_left(gaps: deque[float], gap: float, target: float) -> float:
    """Working sets until ``target``, should the gap go on falling as it did."""
    gaps.append(gap)
    fall = np.log(gaps[0] / gap) / (len(gaps) - 1) if len(gaps) > 1 else 0.0
    return float(np.log(gap / target) / fall) if fall > 0 else np.inf


def _flat(box: DualProblem) -> float:
    return best_constant(box.target, box.low, box.high)


def _few_free(box: DualProblem, beta: Array) -> bool:
    free = int(np.count_nonzero((beta > box.low) & (beta < box.high)))
    return 0 < free <= EXACT


def _many_free(box: DualProblem, beta: Array) -> bool:
    free = int(np.count_nonzero((beta > box.low) & (beta < box.high)))
    return EXACT < free <= box.rows.capacity


def total_scores(box: DualProblem, beta: Array) -> Array:
    """Kβ for all rows, in float64."""
    used = np.flatnonzero(beta)
    coef = np.bincount(box.row[used], weights=beta[used], minlength=box.rows.n)
    index = np.flatnonzero(coef)
    return box.rows.product(index, coef[index])


def _move(
    box: DualProblem, beta: Array, f: Array, work: Array, eps: float, max_steps: int
) -> tuple[int, float]:
    """Minimise over the working set; β and f are changed. Steps, and total change."""
    index = np.unique(box.row[work])
    slots = box.rows.fetch(index)
    place = slots[np.searchsorted(index, box.row[work])]
    K = box.rows.gather(place, box.row[work])
    old = beta[work]
    new, v = old.copy(), box.target[work] - f[box.row[work]]
    low, high = box.low[work], box.high[work]
    limit = int(min(max_steps, PATIENCE / len(work)))
    done, _ = minimise_block(K, new, v, low, high, eps, limit)
    delta = new - old
    beta[work] = new
    _add(box, work, delta, f)
    return int(done), float(np.abs(delta).sum())


def _add(box: DualProblem, work: Array, delta: Array, f: Array) -> None:
    """F += K δ for a change of the variables ``work``, from rows of the store."""
    coef = np.bincount(box.row[work], weights=delta, minlength=box.rows.n)
    index = np.flatnonzero(coef)
    # In portions that fit the store beside each other.
    for part in np.array_split(index, max(1, -(-len(index) // box.rows.capacity))):
        if len(part):
            box.rows.add(part, coef[part], f)


# -- the exact solve on the free variables ------------------------------------------


def polish(
    box: DualProblem, beta: Array, f: Array, unit: float, point: SMOPoint
) -> tuple[Array, Array] | None:
    """Newton's step on the free variables, shortened at bounds, which then drop out.

    Returns β and Kβ if the gap has become smaller, else None.
    """
    new, scores = beta.copy(), f
    for _ in range(50 if len(beta) <= SMALL else 4):
        free = np.flatnonzero((new > box.low) & (new < box.high))
        if not len(free):
            break
        direction = _newton(box, free, scores)
        if direction is None:
            return None
        room = np.where(direction > 0, box.high[free], box.low[free]) - new[free]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(direction != 0, room / direction, np.inf)
        step = min(1.0, float(ratio.min()))
        hit = ratio <= step * (1 + 1e-12)
        bound = np.where(direction > 0, box.high[free], box.low[free])
        before = new[free]
        moved = np.where(hit, bound, new[free] + step * direction)
        new[free] = np.clip(moved, box.low[free], box.high[free])
        _rebalance(box, new, free)
        if box.rows.exact:
            scores = total_scores(box, new)
        else:
            scores = scores.copy()
            _add(box, free, new[free] - before, scores)
        if step == 1.0:
            break
    after = look(box, new, scores, unit)
    return (new, scores) if after.gap < point.gap else None


def _newton(box: DualProblem, free: Array, f: Array) -> Array | None:
    """The d with K d + b = t − f on the free variables and Σd = 0."""
    K = box.rows.square(box.row[free])
    v = box.target[free] - f[box.row[free]]
    level = float(np.trace(K)) / len(K)
    for jitter in (1e-14, 1e-12, 1e-10):
        M = K.copy()
        M.flat[:: len(M) + 1] += jitter * max(level, 1e-300)
        factor = cholesky(M)
        if factor is not None:
            break
    else:
        return None
    ones = cho_solve((factor, False), np.ones(len(K)), check_finite=False)
    d = np.zeros(len(K))
    residual = v
    for _ in range(3):  # refinement undoes the jitter
        x = cho_solve((factor, False), residual, check_finite=False)
        d += x - (x.sum() / ones.sum()) * ones
        residual = v - K @ d
        residual = residual - residual.mean()
    return d if np.isfinite(d).all() else None


def _rebalance(box: DualProblem, beta: Array, free: Array) -> None:
    """Add the rounding error of Σβ to the free variable farthest from its bounds."""
    drift = float(beta.sum())
    room = np.minimum(beta[free] - box.low[free], box.high[free] - beta[free])
    k = int(np.argmax(room))
    if abs(drift) < room[k]:
        beta[free[k]] -= drift


def as_variables(y: Array, cost: Array, epsilon: float | None) -> dict[str, Any]:
    """Rows, targets, bounds: a classifier (y = ±1) or, with epsilon, a regressor."""
    n = len(y)
    if epsilon is None:
        high, low = np.where(y > 0, cost, 0.0), np.where(y > 0, 0.0, -cost)
        return {"row": np.arange(n), "target": y, "low": low, "high": high}
    zero = np.zeros(n)
    return {
        "row": np.concatenate([np.arange(n), np.arange(n)]),
        "target": np.concatenate([y - epsilon, y + epsilon]),
        "low": np.concatenate([zero, -cost]),
        "high": np.concatenate([cost, zero]),
    }
