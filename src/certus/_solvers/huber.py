"""Huber regression with its scale: Newton's method, then bisection where it fails.

    min over w, b, σ ≥ 0:  σ + (1/S)·Σ sᵢ σ·H(rᵢ/σ) + (alpha/S)·‖w‖²

With σ at its best for the residuals the problem is smooth in (w, b), and Newton's
method solves it (``certus._solvers.newton``). Where so many residuals vanish that σ
nearly does, the function of σ alone is searched instead: it is convex with the slope
1 − mean a²/4, a the dual point for that σ, which takes one interior point solve.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import linalg, sparse

from certus._solvers import newton, quantile
from certus._solvers.interior import Kinked
from certus._solvers.losses import HuberScale, huber_scale
from certus._solvers.newton_problem import NewtonProblem, NewtonRows
from certus._solvers.penalties import of_levels
from certus._solvers.problem import Solution, SolverLimits, Start
from certus._solvers.quantile import KinkedRegression
from certus._solvers.quantile_units import row_space
from certus.certificate import Status
from certus.typing import Array

NEWTON = ("Newton-CG", "smooth, with the scale at its best for the residuals")
SEARCH = ("interior point", "so many residuals are zero that the scale is nearly zero")
#: After this many Newton steps it counts as stuck at residuals of zero.
NEWTON_STEPS = 50
#: Values of σ tried, at most.
TRIALS = 80


class HuberProblem(NamedTuple):
    """Rows, the loss with its threshold, the level of the penalty."""

    rows: NewtonRows
    loss: HuberScale
    alpha: float
    intercept: bool


@dataclass(frozen=True)
class HuberSolution(Solution):
    """A solution, its σ, and the name of the method with why it was chosen."""

    scale: float = 0.0
    method: tuple[str, str] = NEWTON


def solve(problem: HuberProblem, start: Start, limits: SolverLimits) -> HuberSolution:
    """Minimise over w, b and σ; ``dual`` is given for small scales alone.

    With more columns than rows w lies in the span of the rows, so that n coordinates
    do: from the start for dense X, for sparse X once the scale is searched.
    """
    rows, loss, alpha, intercept = problem
    wide = rows.X.shape[1] > rows.X.shape[0]
    lift: Array | None = None

    def back(W: Array) -> Array:
        return W if lift is None else np.concatenate([lift @ W[:-1], W[-1:]])

    def watch(objective: float, gap: float, W: Array) -> Status | None:
        return limits.on_step(objective, gap, back(W))

    if wide and not sparse.issparse(rows.X):
        lift, R = linalg.qr(rows.X.T.astype(np.float64), mode="economic")
        rows = rows._replace(X=np.ascontiguousarray(R.T))
        if start.primal is not None:
            W = start.primal
            start = Start(np.concatenate([lift.T @ W[:-1], W[-1:]]))
    penalty = of_levels(0.0, 2 * alpha / rows.total)
    smooth = NewtonProblem(rows, loss, penalty, intercept)
    few = min(limits.max_iter, NEWTON_STEPS)
    found = newton.solve(smooth, start, SolverLimits(limits.tol, few, watch))
    r = rows.y - smooth.scores_at(found.primal)[:, 0]
    scale = huber_scale(r, rows.s, loss.epsilon)
    size = float(np.abs(rows.y).max(initial=0.0))
    solved = found.status is Status.SOLVED and scale > 1e-9 * size
    spent = found.status is Status.MAX_ITER and few == limits.max_iter
    if solved or spent or found.status in quantile.EARLY:
        ending = (found.gap, found.status, found.n_iter)
        return HuberSolution(back(found.primal), *ending, scale=scale)
    reference = smooth.constant_objective() or 1.0
    if wide and lift is None:
        reduced, lift = row_space(rows.X)
        rows = rows._replace(X=reduced)
    kinked = KinkedRegression(rows, Kinked(1.0, 1.0), penalty, intercept)
    inner = limits._replace(on_step=watch)
    other = _search(kinked, loss.epsilon, reference, inner)
    steps = min(found.n_iter + other.n_iter, limits.max_iter)
    return replace(other, primal=back(other.primal), n_iter=steps)


def _search(
    problem: KinkedRegression, epsilon: float, reference: float, limits: SolverLimits
) -> HuberSolution:
    """Bisection on the sign of 1 − mean a²/4; the gap is σ times that, if positive."""
    rows, tol = problem.rows, limits.tol

    def at(sigma: float) -> tuple[Solution, float]:
        loss = Kinked(2 * epsilon, 2 * epsilon, sigma / 2)

        def watch(objective: float, gap: float, W: Array) -> Status | None:
            return limits.on_step(objective + sigma, gap, W)

        inner = SolverLimits(min(tol, 1e-12), limits.max_iter, watch)
        found = quantile.solve(problem._replace(loss=loss), Start(), inner)
        assert found.dual is not None
        mean = float(rows.s @ np.square(found.dual)) / rows.total
        return found, 1 - mean / 4

    def done(found: Solution, sigma: float) -> HuberSolution:
        solved = found.gap <= tol or found.status is Status.SOLVED
        status = Status.SOLVED if solved else found.status
        ending = (found.gap, status, found.n_iter, found.dual)
        return HuberSolution(found.primal, *ending, scale=sigma, method=SEARCH)

    found, slope = at(0.0)
    stopped = found.status in quantile.EARLY
    if slope >= 0 or stopped:
        return done(found, 0.0)
    low, low_slope = 0.0, slope
    high = float(np.sqrt(rows.s @ np.square(rows.y) / rows.total))
    best, best_slope = at(high)
    for trial in range(TRIALS):
        if best_slope * high <= 0.25 * tol * reference or best.status in quantile.EARLY:
            break
        if low == 0.0:  # scales may be tiny: look for the power first
            sigma = high / 16
        elif trial % 3:  # a secant step, not too near either end
            share = low_slope / (low_slope - best_slope)
            sigma = low + (high - low) * min(max(share, 0.02), 0.98)
        else:
            sigma = (low + high) / 2
        found, slope = at(sigma)
        if found.status in quantile.EARLY:
            return replace(done(best, high), status=found.status)
        if slope >= 0:
            high, best, best_slope = sigma, found, slope
        else:
            low, low_slope = sigma, slope
    return done(best, high)
