"""Quantile, absolute and Huber regression on raw data: the steps around the solver.

    min over w, b:  Σ sᵢ ℓ(yᵢ − xᵢᵀw − b)/Σs + l1·‖w‖₁ + ½·l2·‖w‖²

With many rows the fit of a sample tells most residuals' signs (Portnoy and Koenker,
1997): the loss of rows above and below a band is linear, the band is solved, and rows
whose sign was wrong join it. With many columns and an L1 part, columns join when they
violate optimality.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus._solvers.interior import Kinked
from certus._solvers.losses import constant_loss, middle
from certus._solvers.newton_problem import NewtonRows
from certus._solvers.penalties import levels_of
from certus._solvers.problem import Solution, SolverLimits, Start
from certus._solvers.quantile_units import (
    QuantileSolution,
    QuantileTask,
    TargetUnits,
    solve_plain,
)
from certus.certificate import Status
from certus.objectives import Huber
from certus.typing import Array

#: Rows from which a sample is solved first, and the share of rows in the band.
MANY_ROWS, SAMPLE, BAND = 20_000, 8, 0.15
#: Endings from outside.
EARLY = (Status.INTERRUPTED, Status.TIME_LIMIT, Status.STOPPED)
#: Columns from which a working set is used, if there is an L1 part.
MANY_COLUMNS = 400
#: Largest side of the dense matrix that each step factorises.
LARGEST_SIDE = 6_000


class KinkedRegression(NamedTuple):
    """Rows, a loss of residuals, and a penalty: l1·‖w‖₁ + ½·l2·‖w‖² or less."""

    rows: NewtonRows
    loss: Kinked
    penalty: Any
    intercept: bool


def solve(problem: KinkedRegression, start: Start, limits: SolverLimits) -> Solution:
    """Minimise to a relative gap of ``limits.tol``; ``dual`` is u = dℓ/dz.

    An interior point method has its own start.
    """
    rows, loss, penalty, intercept = problem
    levels, l2 = levels_of("interior point", penalty, rows.X.shape[1])
    l1 = float(levels.max(initial=0.0))
    if np.any(levels != l1):
        raise NotImplementedError(
            "the interior point method needs the same penalty level for all columns; "
            f"{type(penalty).__name__} has several."
        )
    used = rows.s > 0
    every = bool(used.all())
    X, y, s = (
        (rows.X, rows.y, rows.s)
        if every
        else (rows.X[used], rows.y[used], rows.s[used])
    )
    n, d = X.shape
    units = _units(y, s, loss, intercept)
    dual = np.zeros(len(rows.y))
    if units.unit == 0.0:
        W = np.append(np.zeros(d), units.shift)
        limits.on_step(0.0, 0.0, W)
        return Solution(W, 0.0, Status.SOLVED, 0, dual)
    task = QuantileTask(
        *(X, y, s, float(s.sum()), loss, float(l1), float(l2), intercept, units),
        *(float(limits.tol), limits.max_iter, limits.on_step),
    )
    if l1 > 0 and d > MANY_COLUMNS:
        found = _by_columns(task)
    else:
        _check_side(n, d, l1)
        found = _by_rows(task)
    dual[used] = -found.g
    if intercept and not loss.bend:
        found = _centre(task, found)
    return Solution(found.W, found.gap, found.status, found.n_iter, dual)


def _centre(task: QuantileTask, found: QuantileSolution) -> QuantileSolution:
    """Move b to the middle of the best constants for w, which may fill an interval."""
    r = _residual(task, np.append(found.W[:-1], 0.0))
    order = np.argsort(r)
    mass = np.cumsum(task.s[order])
    at = task.loss.up / (task.loss.up + task.loss.down) * mass[-1]
    ends = np.searchsorted(mass, [at - 1e-12 * mass[-1], at + 1e-12 * mass[-1]])
    low, high = r[order[np.minimum(ends, len(r) - 1)]]
    W = np.append(found.W[:-1], (low + high) / 2)
    if abs(W[-1] - found.W[-1]) > 1e-9 * task.units.unit and found.status not in EARLY:
        objective = float(task.s @ task.loss.value(r - W[-1])) / task.total
        objective += task.l1 * float(np.abs(W[:-1]).sum())
        task.on_step(objective + task.l2 * float(W[:-1] @ W[:-1]) / 2, found.gap, W)
    return found._replace(W=W)


def _check_side(n: int, d: int, l1: float) -> None:
    side = d if l1 > 0 else min(n, d)
    if side > LARGEST_SIDE:
        raise ValueError(
            f"{n:,} rows and {d:,} columns need a dense matrix of side {side:,} in "
            f"every step; the limit is {LARGEST_SIDE:,}. Use an L1 penalty "
            "(QuantileRegressor with alpha > 0), or fewer columns."
        )


def _units(y: Array, s: Array, loss: Kinked, intercept: bool) -> TargetUnits:
    shift = 0.0
    total = float(s.sum())
    if intercept:
        order = np.argsort(y)
        mass = np.cumsum(s[order])
        at = loss.up / (loss.up + loss.down) * mass[-1]
        shift = float(y[order[min(np.searchsorted(mass, at), len(y) - 1)]])
    reference = float(s @ loss.value(y - shift)) / total
    if loss.bend:  # ℓ(r) = Huber(r)/bend, with the threshold up·bend
        huber = Huber(loss.up * loss.bend)
        reference = constant_loss(huber, y, s, intercept) / loss.bend
    far = np.abs(y - shift)
    # The median distance: outliers must not make the others look like rounding.
    return TargetUnits(shift, middle(far, s) or float(s @ far) / total, reference)


# -- many rows --------------------------------------------------------------------


def _by_rows(task: QuantileTask) -> QuantileSolution:
    n, d = task.X.shape
    if n < MANY_ROWS or n < 40 * (d + 1) or task.loss.bend:
        return solve_plain(task)
    plain = sparse.issparse(task.X) and task.X.format != "csr"
    if plain:
        task = task._replace(X=task.X.tocsr())
    s = task.s[::SAMPLE]
    sample = task._replace(
        X=task.X[::SAMPLE],
        y=task.y[::SAMPLE],
        s=s,
        total=float(s.sum()),
        tol=1e-4,
    )
    first = solve_plain(sample)
    if first.status in EARLY:
        return first._replace(g=np.zeros(n), gap=np.inf)
    r = _residual(task, first.W)
    width = float(np.quantile(np.abs(r), BAND))
    band = np.abs(r) <= width
    found = first
    up, down = task.loss.up, task.loss.down
    for _ in range(8):
        fixed = np.where(r > 0, up, -down)
        found = _solve_band(task, band, fixed, found, r / max(width, 1e-300))
        if found.status not in (Status.SOLVED, Status.MAX_ITER):
            break
        r = _residual(task, found.W)
        wrong = ~band & (r * fixed < 0)
        if not wrong.any():
            return found._replace(gap=_gap(task, found, r))
        band |= wrong
        if band.sum() > n / 2:
            break
    if found.status in EARLY:
        return found
    return solve_plain(task, found.W)


def _residual(task: QuantileTask, W: Array) -> Array:
    X = task.X
    if not sparse.issparse(X) and X.dtype != np.float64:
        block = 1 + (1 << 20) // max(1, X.shape[1])
        parts = [
            X[i : i + block].astype(np.float64) @ W[:-1]
            for i in range(0, len(X), block)
        ]
        return task.y - np.concatenate(parts) - W[-1]
    return np.asarray(task.y - X @ W[:-1] - W[-1])


def _solve_band(
    task: QuantileTask, band: Array, fixed: Array, last: QuantileSolution, place: Array
) -> QuantileSolution:
    """Solve the band; the other rows' g is known, up to what the caller checks.

    ``place`` in [−1, 1] is where a row lies in the band, and a guess of its g.
    """
    inside = np.flatnonzero(band)
    known = np.where(band, 0.0, task.s * fixed)
    pulled = np.asarray(task.X.T @ known, dtype=np.float64)
    part = task._replace(
        X=task.X[inside],
        y=task.y[inside],
        s=task.s[inside],
        linear=np.append(pulled, known.sum()),
    )
    middle_g = (task.loss.up - task.loss.down) / 2
    half = (task.loss.up + task.loss.down) / 2
    slopes = middle_g + half * np.clip(place[inside], -1.0, 1.0)
    found = solve_plain(part, last.W, last.n_iter, slopes)
    g = fixed.copy()
    g[inside] = found.g
    return found._replace(g=g)


def _gap(task: QuantileTask, found: QuantileSolution, r: Array) -> float:
    """Relative P − D on all rows, with g scaled into an L1 penalty's dual ball."""
    s, total, w = task.s, task.total, found.W[:-1]
    v = np.asarray(task.X.T @ (s * found.g)) / total
    top = float(np.abs(v).max(initial=0.0))
    g = found.g
    if task.l2 == 0 and top > task.l1 > 0:
        g = g * (task.l1 / top)
    dual = float(s @ (g * (task.y - task.units.shift))) / total
    primal = float(s @ task.loss.value(r)) / total + task.l1 * float(np.abs(w).sum())
    if task.l2 > 0:
        over = np.maximum(np.abs(v) - task.l1, 0.0)
        dual -= float(over @ over) / (2 * task.l2)
        primal += task.l2 * float(w @ w) / 2
    return max(primal - dual, 0.0) / task.units.reference


# -- many columns -----------------------------------------------------------------


def _by_columns(task: QuantileTask) -> QuantileSolution:
    """Solve on a working set of columns; violators of |Xᵀ(sg)|/Σs ≤ l1 join."""
    d = task.X.shape[1]
    X = task.X.tocsc() if sparse.issparse(task.X) else task.X
    r = task.y - task.units.shift
    g = np.where(r > 0, task.loss.up, np.where(r < 0, -task.loss.down, 0.0))
    found = QuantileSolution(np.zeros(d + 1), g, np.inf, Status.MAX_ITER, 0)
    members = np.empty(0, dtype=np.intp)
    W = np.zeros(d + 1)
    while True:
        v = np.abs(np.asarray(X.T @ (task.s * found.g))) / task.total
        v[members] = 0.0
        wrong = np.flatnonzero(v > task.l1 * (1 + 0.1 * task.tol))
        room = max(100, len(members))
        if len(wrong) > room:
            wrong = wrong[np.argpartition(v[wrong], -room)[-room:]]
        if members.size and not wrong.size:
            gap = _gap(task, found._replace(W=W), _residual(task, W))
            return found._replace(W=W, gap=gap)
        members = np.union1d(members, wrong)
        if not members.size:
            members = np.array([int(np.argmax(v))])
        _check_side(len(task.y), len(members), task.l1)

        def on_step(
            objective: float, gap: float, part: Array, members: Array = members
        ) -> Status | None:
            return task.on_step(objective, gap, _spread(part, members, d))

        block = X[:, members]
        block = block.tocsr() if sparse.issparse(block) else block
        found = _by_rows(task._replace(X=block, on_step=on_step))
        W = _spread(found.W, members, d)
        if found.status not in (Status.SOLVED, Status.TOL_NOT_REACHED):
            return found._replace(W=W)


def _spread(part: Array, members: Array, d: int) -> Array:
    W = np.zeros(d + 1)
    W[members], W[-1] = part[:-1], part[-1]
    return W
