"""The hard-margin support vector machine, or the reason why none exists.

    min ½(‖w‖² + b²)  subject to  yᵢ(xᵢᵀw + κ·b) ≥ 1        (b unpenalised if free)

by the method of multipliers, as in ``certus._solvers.svm`` with slopes of any size. If
no hyperplane separates the classes the multipliers grow without end, and a linear
programme on the rows that carry them finds weights a ≥ 0 with Σ aᵢyᵢxᵢ = 0 and
Σ aᵢyᵢ = 0: two convex combinations, one of each class, that are the same point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from certus._solvers.problem import Solution, SolverLimits, Start
from certus._solvers.svm import Smoothed, SVMPoint
from certus._solvers.svm_problem import SvmProblem, SVMRows, hinge_box
from certus._solvers.svm_systems import newton_direction
from certus.certificate import Status
from certus.objectives.terms import L2
from certus.typing import Array

#: Rows that a linear programme may hold.
PROGRAMME_ROWS = 20_000
#: A margin below this share of the data's radius cannot be found.
HOPELESS = 1e-3


class HardMargin(NamedTuple):
    """Rows with labels ±1, and whether the intercept is free."""

    rows: SVMRows
    y: Array
    free: bool


@dataclass(frozen=True)
class Margin(Solution):
    """The widest margin; or two ``combination``s that are the same point.

    ``primal`` has length d + 1 and, if it separates, smallest y·z of 1; ``dual`` holds
    the multipliers.
    """

    combination: Any = None


def solve(problem: HardMargin, start: Start, limits: SolverLimits) -> Margin:
    """The widest margin, from zero."""
    rows, y, free = problem
    used = rows.s > 0
    state = _Hard(_unit_problem(rows, y, used, free), y, used, limits)
    try:
        state.run()
    except KeyboardInterrupt:
        state.status = Status.INTERRUPTED
    w, a = state.scaled(), np.abs(state.u)
    ending = (state.gap, state.status, state.steps)
    return Margin(w, *ending, dual=a, combination=state.combination)


def _unit_problem(rows: SVMRows, y: Array, used: Array, free: bool) -> SvmProblem:
    plain = SVMRows(rows.X, used.astype(np.float64), rows.scale)
    plain.total = 1.0
    return SvmProblem(plain, hinge_box(y, False, np.inf), L2(1.0), free)


class _Hard:
    """The outer loop of the method of multipliers."""

    def __init__(
        self,
        problem: SvmProblem,
        y: Array,
        used: Array,
        limits: SolverLimits,
    ) -> None:
        self.problem, self.y, self.used, self.tol = problem, y, used, limits.tol
        self.max_iter, self.on_step = limits.max_iter, limits.on_step
        self.w, self.u = np.zeros(problem.rows.d + 1), np.zeros(len(y))
        self.smallest, self.gap, self.steps = 0.0, np.inf, 0
        self.status = Status.MAX_ITER
        self.combination: Array | None = None

    def scaled(self) -> Array:
        """W with smallest y·z of 1, where it separates."""
        return self.w / self.smallest if self.smallest > 0 else self.w

    def run(self) -> None:
        """Move the centre to the multipliers, lower delta, until the gap is closed."""
        squares = self.problem.rows.squares()[self.used]
        self.radius = float(np.sqrt(squares.max(initial=0.0))) or 1.0
        delta, best, tried = float(squares.mean()) or 1.0, np.inf, 0
        point: SVMPoint | None = None
        for _ in range(60):
            model = Smoothed(self.problem, delta, self.u)
            start = self.w if point is None else point.w
            z = self.problem.rows.dot(start) if point is None else point.z
            point = self._newton(model, model.at(start, z))
            self.w, self.u = point.w, np.where(self.used, point.u, 0.0)
            if self._look(point):
                return
            reach = self._largest_margin(point) / self.radius
            if self.smallest <= 0 and reach < HOPELESS * 0.1**tried:
                tried += 2
                self.combination = coinciding_combination(
                    self.problem.rows, self.y, np.abs(self.u), self.problem_has_b
                )
                if self.combination is not None:
                    self.status = Status.NO_MINIMISER
                    return
            if not self.gap < 0.1 * best:
                delta /= 5
            best = min(best, self.gap)
        self.status = Status.TOL_NOT_REACHED

    @property
    def problem_has_b(self) -> bool:
        """Whether a hyperplane need not pass through the origin."""
        return self.problem.rows.scale > 0

    def _newton(self, model: Smoothed, point: SVMPoint) -> SVMPoint:
        for _ in range(30):
            size = float(self.problem.levels @ (point.w * point.w)) / 2
            if point.rest <= 1e-3 * min(self.gap, 1.0) * max(size, 1e-300):
                break
            if self.steps >= self.max_iter:
                break
            self.steps += 1
            p = newton_direction(
                self.problem, point.inside, point.gradient, model.delta, 1e-6
            )
            q = self.problem.rows.dot(p)
            length = model.search(point, p, q) if np.isfinite(p).all() else 0.0
            if length == 0.0:
                break
            point = model.at(point.w + length * p, point.z + length * q)
        return point

    def _largest_margin(self, point: SVMPoint) -> float:
        """No hyperplane has a margin above ‖Σ aᵢyᵢxᵢ‖/Σ aᵢ."""
        v = point.gradient - self.problem.levels * point.w
        v = v[:-1] if self.problem.free else v
        total = float(np.abs(point.u[self.used]).sum())
        return float(np.linalg.norm(v)) / max(total, 1e-300)

    def _look(self, point: SVMPoint) -> bool:
        """Primal and dual value of the rescaled point; whether to stop."""
        margins = (self.y * point.z)[self.used]
        self.smallest = float(margins.min())
        primal = np.inf
        if self.smallest > 0:
            size = float(self.problem.levels @ (point.w * point.w)) / 2
            primal = size / self.smallest**2
            dual = 1 / (2 * max(self._largest_margin(point), 1e-300) ** 2)
            self.gap = max(0.0, 1 - dual / primal) if primal > 0 else np.inf
        stop = self.on_step(primal, self.gap, self.scaled())
        if self.gap <= 0.5 * self.tol:
            self.status = Status.SOLVED
        elif stop is not None:
            self.status = stop
        elif self.steps < self.max_iter:
            return False
        return True


def coinciding_combination(
    rows: SVMRows, y: Array, a: Array, intercept: bool
) -> Array | None:
    """Weights that show the classes' hulls meet, sought among rows with large a.

    With an intercept each class's weights sum to one; without, all of them do, and the
    point is the origin.
    """
    members = np.flatnonzero(a > 0)
    if len(members) > PROGRAMME_ROWS:
        members = members[np.argsort(-a[members])[:PROGRAMME_ROWS]]
    if not members.size:
        return None
    M, target = _equations(rows.X[members], y[members], intercept)
    found = linprog(
        np.zeros(len(members)), A_eq=M, b_eq=target, bounds=(0, None), method="highs"
    )
    if found.x is None:
        return None
    part = _refined(M, target, np.maximum(found.x, 0.0))
    if part is None:
        return None
    out = np.zeros(len(y))
    out[members] = part
    return out


def _equations(X: Any, y: Array, intercept: bool) -> tuple[Any, Array]:
    """Σ a·y·x = 0 in columns of size one, and the sums that a must have."""
    if intercept and not sparse.issparse(X):
        X = X - X[0]  # the classes weigh alike, so that an offset cancels
    S = sparse.csr_array(X).astype(np.float64)
    sizes = abs(S).max(axis=0).toarray().ravel()
    S = S @ sparse.diags_array(1 / np.where(sizes > 0, sizes, 1.0))
    parts = [(sparse.diags_array(y.astype(np.float64)) @ S).T]
    if intercept:
        sums = np.vstack([y > 0, y < 0]).astype(np.float64)
    else:
        sums = np.ones((1, len(y)))
    parts.append(sparse.csr_array(sums))
    M = sparse.vstack(parts, format="csr")
    return M, np.concatenate([np.zeros(S.shape[1]), np.ones(len(sums))])


def _refined(M: Any, target: Array, a: Array) -> Array | None:
    """The same combination to rounding: least squares on its few rows."""
    few = np.flatnonzero(a > 1e-9 * a.max(initial=0.0))
    if not few.size or len(few) > 5_000:
        return None
    A = M[:, few].toarray()
    part = a[few]
    for _ in range(3):
        part = part - np.linalg.lstsq(A, A @ part - target, rcond=None)[0]
    if part.min() < 0:
        return None
    out = np.zeros(len(a))
    out[few] = part
    return out
