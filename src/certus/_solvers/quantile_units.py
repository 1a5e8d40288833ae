"""One problem of quantile, absolute or Huber regression, in the units of its solver.

Columns are centred and scaled, the target is measured in its own spread. More columns
than rows and no L1 part: the problem is solved in the span of the rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus._solvers.interior import FLAT, Kinked, KinkedProblem, Kinks, solve_kinked
from certus._solvers.problem import OnStep
from certus._solvers.shifts import exact_sum
from certus.certificate import Status
from certus.typing import Array


class TargetUnits(NamedTuple):
    """The target is ``unit`` times the solver's, plus ``shift``."""

    shift: float
    unit: float
    reference: float  # loss of the best constant, in the target's units


class QuantileTask(NamedTuple):
    """One problem in the target's own units; all weights are positive."""

    X: Any
    y: Array
    s: Array
    total: float
    loss: Kinked
    l1: float
    l2: float
    intercept: bool
    units: TargetUnits
    tol: float
    max_iter: int
    on_step: OnStep
    linear: Array | None = None  # Σ s·g·(x, 1) of rows that are left out, g known


class QuantileSolution(NamedTuple):
    """w with b last, g for each row, and how it ended."""

    W: Array
    g: Array
    gap: float
    status: Status
    n_iter: int


class ScaledProblem(NamedTuple):
    """A problem in the solver's units, and how to go back."""

    problem: KinkedProblem
    reference: float
    keep: Array
    scale: Array
    mean: Array
    task: QuantileTask

    def back(self, x: Array) -> Array:
        """The solver's x as w with b last."""
        units = self.task.units
        W = np.zeros(self.task.X.shape[1] + 1)
        W[:-1][self.keep] = x[:-1] * units.unit / self.scale
        if self.task.intercept:
            b = x[-1] * units.unit + units.shift
            W[-1] = exact_sum(b, -self.mean, W[:-1][self.keep])
        return W

    def forth(self, W: Array) -> Array:
        """W with b last as the solver's x."""
        units = self.task.units
        w = W[:-1][self.keep]
        b = (W[-1] + float(self.mean @ w) - units.shift) / units.unit
        return np.append(w * self.scale / units.unit, b if self.task.intercept else 0.0)


def to_units(task: QuantileTask) -> ScaledProblem:
    """The problem with centred and scaled columns."""
    X, s, units = task.X, task.s, task.units
    mean, spread, size = _columns(X, s, task.intercept)
    keep = spread > FLAT * size
    scale = np.ones(len(spread)) if task.l2 > 0 else np.where(keep, spread, 1.0)
    if sparse.issparse(X):
        A = X[:, keep].astype(np.float64) @ sparse.diags_array(1 / scale[keep])
        A = sparse.csr_array(A)
        mean = np.zeros(len(mean))
    else:
        A = np.ascontiguousarray(X[:, keep] if not keep.all() else X, dtype=np.float64)
        A = (A - mean[keep]) / scale[keep]
    unit, loss = units.unit, task.loss
    loss = Kinked(loss.up, loss.down, loss.bend / unit)
    linear = np.zeros(int(keep.sum()) + 1)
    if task.linear is not None:
        pull, sum_g = task.linear[:-1][keep], float(task.linear[-1])
        linear[:-1] = (pull - sum_g * mean[keep]) / scale[keep]
        linear[-1] = sum_g if task.intercept else 0.0
    problem = KinkedProblem(
        A,
        (task.y - units.shift) / unit,
        s,
        task.total,
        loss,
        _within(task, task.l1 / scale[keep]),
        task.l2 * unit,
        task.intercept,
        linear,
    )
    return ScaledProblem(
        problem, units.reference / unit, keep, scale[keep], mean[keep], task
    )


def _within(task: QuantileTask, l1: Array) -> Array:
    """The L1 levels, less the rounding of Xᵀ(sg)/Σs where that matters.

    A dual point that rounding puts outside the ball |Xᵀ(sg)|/Σs ≤ l1 must be scaled
    back, which costs a share rounding/l1 of the objective; one aimed as far inside
    costs rounding·‖w‖₁, however small l1 is.
    """
    slope = max(task.loss.up, task.loss.down)
    terms = 2 * (len(task.y) + 100)
    rounding = slope * min(terms * np.finfo(float).eps, 0.01 * task.tol)
    if task.l2 > 0:
        return l1
    return np.where(rounding > 0.01 * task.tol * l1, np.maximum(l1 - rounding, 0.0), l1)


def _columns(X: Any, s: Array, centre: bool) -> tuple[Array, Array, Array]:
    """Mean, spread about it (about 0 without centring) and size of each column."""
    share = s / s.sum()
    if sparse.issparse(X):
        size = np.sqrt(np.asarray(X.multiply(X).T @ share, dtype=np.float64)).ravel()
        return np.zeros(len(size)), size, size
    top = np.maximum(np.abs(X).max(axis=0).astype(np.float64), 1e-300)
    mean = share @ X if centre else np.zeros(X.shape[1])
    square = np.zeros(X.shape[1])
    raw = np.zeros(X.shape[1])
    block = 1 + (1 << 20) // max(1, X.shape[1])
    for i in range(0, len(X), block):
        part = X[i : i + block]
        square += share[i : i + block] @ np.square((part - mean) / top)
        raw += share[i : i + block] @ np.square(part / top)
    return np.asarray(mean, dtype=np.float64), top * np.sqrt(square), top * np.sqrt(raw)


def solve_plain(
    task: QuantileTask,
    start: Array | None = None,
    done: int = 0,
    slopes: Array | None = None,
) -> QuantileSolution:
    """All rows and columns at once."""
    n, d = task.X.shape
    if d > n and task.l1 == 0:
        return _in_span_of_rows(task, done)
    scaled = to_units(task)

    def on_step(objective: float, gap: float, x: Array) -> Status | None:
        return task.on_step(objective * task.units.unit, gap, scaled.back(x))

    found = solve_kinked(
        scaled.problem,
        scaled.reference,
        task.tol,
        max(task.max_iter - done, 0),
        on_step,
        None if start is None else scaled.forth(start),
        slopes,
    )
    return _finish(scaled.back(found.x), found, done)


def _finish(W: Array, found: Kinks, done: int) -> QuantileSolution:
    return QuantileSolution(W, found.g, found.gap, found.status, found.n_iter + done)


def row_space(A: Any) -> tuple[Array, Array]:
    """A in coordinates of its row space, and these: A = (first)(second)ᵀ, (d, r)."""
    K = A @ A.T
    K = K.toarray() if sparse.issparse(K) else K
    values, U = np.linalg.eigh(np.asarray(K, dtype=np.float64))
    on = values > 1e-12 * max(float(values.max(initial=0.0)), 1e-300)
    root = np.sqrt(values[on])
    return U[:, on] * root, np.asarray(A.T @ (U[:, on] / root))


def _in_span_of_rows(task: QuantileTask, done: int) -> QuantileSolution:
    """D > n: w = Aᵀc loses nothing, and A's row space has at most n dimensions."""
    scaled = to_units(task)
    q = scaled.problem
    reduced, lift = row_space(q.A)
    zeros = np.zeros(reduced.shape[1])
    small = q._replace(A=reduced, l1=zeros, linear=np.append(zeros, 0.0))

    def back(x: Array) -> Array:
        return scaled.back(np.append(lift @ x[:-1], x[-1]))

    def on_step(objective: float, gap: float, x: Array) -> Status | None:
        return task.on_step(objective * task.units.unit, gap, back(x))

    steps = max(task.max_iter - done, 0)
    found = solve_kinked(small, scaled.reference, task.tol, steps, on_step)
    return _finish(back(found.x), found, done)
