"""``HuberRegressor`` over blocks of rows: coefficients, scale and outliers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from certus._solvers import block_huber, block_newton
from certus._solvers.block_design import numbers
from certus._solvers.problem import SolverLimits, Start
from certus.base import Estimator, Fitted
from certus.blocks import RowBlock
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.linear_model.by_blocks import frame_of, refuse
from certus.objectives import Huber
from certus.typing import Array

if TYPE_CHECKING:
    from certus.blocks import Blocks

#: A scale below this share of a constant model's is that of residuals that vanish.
VANISHED = 1e-9


def fit_huber(model: Any, blocks: Blocks) -> Fitted:
    """Solve Huber regression with its scale over blocks."""
    if not model.alpha > 0:
        refuse(model, "alpha=0")
    epsilon, free = float(model.epsilon), bool(model.fit_intercept)
    if epsilon == 1.0:
        refuse(model, "epsilon=1, for which smaller scales are never worse")
    b, sigma, reference = block_huber.centre_of(blocks, epsilon, free)
    if not sigma > 0:
        refuse(model, "a constant target, whose scale is 0")
    unit = math.ldexp(1.0, math.frexp(sigma)[1])
    frame = frame_of(model, blocks, Huber(epsilon), np.zeros(0))
    weight = float(block_newton.survey(blocks, labels=False).weight)
    level = 2 * float(model.alpha) * unit / weight
    problem = block_huber.JointScaleProblem(
        *(blocks, frame, weight, level, reference / unit, (epsilon, unit))
    )
    start = np.zeros((len(frame.mean) + 2, 1))
    start[-2:, 0] = b / unit, sigma / unit
    warm = np.shape(getattr(model, "coef_", 0)) == (len(frame.mean),)
    warm &= bool(model.warm_start)
    if warm:
        start, problem.near = _before(model, problem, start), True
    monitor = Monitor(model, blocks, None, None, model.max_time)

    def on_step(objective: float, gap: float, W: Array) -> Status | None:
        found = _attributes(model, W, blocks.dtype)
        return monitor.step(objective * unit, gap, lambda: found)

    limits = SolverLimits(float(model.tol), int(model.max_iter), on_step)
    solution = block_newton.solve(problem, Start(start), limits)
    W = solution.primal
    if W[-1, 0] <= VANISHED * sigma:
        refuse(model, "residuals of which so many are zero that the scale vanishes")
    found = _attributes(model, W, blocks.dtype)
    for name, value in found.items():
        setattr(model, name, value)
    model.n_iter_, model.history_ = solution.n_iter, monitor.history
    model.solver_ = "Newton"
    model.solver_reason_ = "sums over blocks keep nothing for a row"
    w, b = model.coef_.astype(np.float64), float(model.intercept_)
    far = blocks.map(_outliers, w, b, model.scale_ * epsilon)
    model.outliers_ = np.concatenate([*far])
    monitor.close(found)
    return Fitted(Evidence("huber"), blocks, None, None, solution.status)


def _before(model: Estimator, problem: Any, start: Array) -> Array:
    """The coefficients of the last fit, in the units of the problem."""
    unit, frame, W = problem.given[1], problem.frame, start.copy()
    w = np.asarray(model.coef_, dtype=np.float64) / unit
    W[:-2, 0] = w * frame.scale
    if frame.intercept:
        W[-2, 0] = float(model.intercept_) / unit + frame.mean @ w
    scale = float(getattr(model, "scale_", 0.0)) / unit
    W[-1, 0] = scale if 0 < scale < math.inf else W[-1, 0]
    return W


def _attributes(model: Any, W: Array, dtype: Any) -> dict[str, Any]:
    b = W[-2, 0] if model.fit_intercept else 0.0
    return {
        "coef_": W[:-2, 0].astype(dtype),
        "intercept_": dtype.type(b),
        "scale_": float(W[-1, 0]),
    }


def _outliers(block: RowBlock, w: Array, b: float, most: float) -> Array:
    X, y, _ = numbers(block)
    return np.asarray(np.abs(y[:, 0] - (X @ w + b)) > most)
