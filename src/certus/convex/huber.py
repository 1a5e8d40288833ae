"""Huber regression with its scale: Newton's method, and what it leaves to bisection.

    min over w, b, σ ≥ 0:  σ + (1/S)·Σ sᵢ σ·H(rᵢ/σ) + (alpha/S)·‖w‖²

With σ at its best for the residuals the problem is smooth in (w, b), and Newton's
method solves it (``certus.convex.newton``). Where so many residuals vanish that σ
nearly does, the function of σ alone is searched instead: it is convex with the slope
1 − mean a²/4, a the dual point for that σ, which takes one interior point solve.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg, sparse

from certus.certificate import Status
from certus.convex import newton, quantile
from certus.convex.design import Array
from certus.convex.interior import Kinked
from certus.convex.losses import HuberScale, huber_scale
from certus.convex.penalties import of_levels
from certus.convex.problem import OnStep, Solution

NEWTON = ("Newton-CG", "smooth, with the scale at its best for the residuals")
SEARCH = ("interior point", "so many residuals vanish that the scale nearly does")
#: Newton steps after which it is taken to be stuck where residuals vanish.
NEWTON_STEPS = 50
#: Values of σ tried, at most.
TRIALS = 80


def solve_joint(
    rows: newton.Rows,
    loss: HuberScale,
    alpha: float,
    intercept: bool,
    start: Array,
    tol: float,
    max_iter: int,
    on_step: OnStep,
) -> Solution:
    """Minimise; ``extra`` holds "scale", "method" and, for small scales, "dual".

    With more columns than rows w lies in the span of the rows, so that n coordinates
    do: from the start for dense X, for sparse X once the scale is searched.
    """
    wide = rows.X.shape[1] > rows.X.shape[0]
    lift: Array | None = None

    def back(W: Array) -> Array:
        return W if lift is None else np.concatenate([lift @ W[:-1], W[-1:]])

    def watch(objective: float, gap: float, W: Array) -> Status | None:
        return on_step(objective, gap, back(W))

    if wide and not sparse.issparse(rows.X):
        lift, R = linalg.qr(rows.X.T.astype(np.float64), mode="economic")
        rows = rows._replace(X=np.ascontiguousarray(R.T))
        start = np.concatenate([lift.T @ start[:-1], start[-1:]])
    penalty = of_levels(0.0, 2 * alpha / rows.total)
    problem = newton.NewtonProblem(rows, loss, penalty, intercept)
    few = min(max_iter, NEWTON_STEPS)
    found = newton.solve(problem, start, tol, few, watch)
    r = rows.y - problem.scores(found.primal)[:, 0]
    scale = huber_scale(r, rows.s, loss.epsilon)
    size = float(np.abs(rows.y).max(initial=0.0))
    solved = found.status is Status.SOLVED and scale > 1e-9 * size
    spent = found.status is Status.MAX_ITER and few == max_iter
    if solved or spent or found.status in quantile.EARLY:
        extra = {"scale": scale, "method": NEWTON}
        return found._replace(primal=back(found.primal), extra=extra)
    reference = problem.constant_objective() or 1.0
    if wide and lift is None:
        reduced, lift = quantile.row_space(rows.X)
        rows = rows._replace(X=reduced)
    other = _search(
        rows, loss.epsilon, penalty, intercept, tol, max_iter, reference, watch
    )
    other = other._replace(primal=back(other.primal))
    return other._replace(n_iter=min(found.n_iter + other.n_iter, max_iter))


def _search(
    rows: newton.Rows,
    epsilon: float,
    penalty: Any,
    intercept: bool,
    tol: float,
    max_iter: int,
    reference: float,
    on_step: OnStep,
) -> Solution:
    """Bisection on the sign of 1 − mean a²/4; the gap is σ times that, if positive."""

    def at(sigma: float) -> tuple[Solution, float]:
        kinked = Kinked(2 * epsilon, 2 * epsilon, sigma / 2)
        fine = min(tol, 1e-12)

        def watch(objective: float, gap: float, W: Array) -> Status | None:
            return on_step(objective + sigma, gap, W)

        found = quantile.solve(rows, kinked, penalty, intercept, fine, max_iter, watch)
        mean = float(rows.s @ np.square(found.extra["dual"])) / rows.total
        return found, 1 - mean / 4

    def done(found: Solution, sigma: float) -> Solution:
        extra: dict[str, Any] = {**found.extra, "scale": sigma, "method": SEARCH}
        relative = found.gap <= tol or found.status is Status.SOLVED
        ending = Status.SOLVED if relative else found.status
        return found._replace(extra=extra, status=ending)

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
            return done(best, high)._replace(status=found.status)
        if slope >= 0:
            high, best, best_slope = sigma, found, slope
        else:
            low, low_slope = sigma, slope
    return done(best, high)
