"""Fits to blocks of rows (``certus.scale``): the same problems, the same attributes.

Least squares goes through the solver for rows in memory, over another design;
likelihoods are solved by Newton's method on sums. What a block cannot do is refused by
name.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus._core.rows import labelled_weights
from certus._solvers import block_newton, least_squares
from certus._solvers.block_design import BlockDesign
from certus._solvers.least_squares import LeastSquares
from certus._solvers.problem import SolverLimits, Start
from certus.base import Fitted
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.evidence import LinearWitness
from certus.linear_model.common import level_term, linear_attributes
from certus.objectives import Logistic, Softmax
from certus.typing import Array

__all__ = ["fit_least_squares", "fit_logistic"]


def refuse(model: Any, what: str) -> None:
    """Say that an option needs all rows in memory."""
    name = type(model).__name__
    raise NotImplementedError(
        f"{name} cannot do this over blocks: {what}. Pass rows in memory, or another "
        "setting."
    )


def fit_least_squares(model: Any, blocks: Any, alpha: float) -> Fitted:
    """Solve ridge or least squares (``alpha=0``) over blocks."""
    if model.positive:
        refuse(model, "positive=True")
    monitor = Monitor(model, blocks, None)
    design: Any = BlockDesign(blocks, bool(model.fit_intercept))
    method = model.solver if model.solver in ("cholesky", "svd", "qr") else "auto"
    Y = np.empty((0, design.targets))  # the design knows its targets
    penalties = [level_term(alpha / design.total)] * design.targets
    problem = LeastSquares(design, Y, penalties, method)
    solution = least_squares.solve(problem, Start(), SolverLimits(0.0, 1))
    flat = np.empty(0)
    found = linear_attributes(
        *(solution.coef, design.target_mean, design, flat, blocks.dtype),
        bool(model.fit_intercept),
    )
    for name, value in found.items():
        setattr(model, name, value)
    model.solver_, model.solver_reason_ = solution.method, solution.why
    monitor.close(found)
    return Fitted(Evidence("linear", LinearWitness()), blocks, None)


def fit_logistic(model: Any, blocks: Any, C: float) -> Fitted:
    """Solve L2-penalised logistic or softmax regression over blocks."""
    monitor = Monitor(model, blocks, None, None, model.max_time)
    seen = block_newton.survey(blocks)
    names = sorted(seen.labels)
    model.classes_ = np.array(names)
    if len(names) < 2:
        raise ValueError(
            f"The target has only one class ({names[0]}); classification needs samples "
            "of at least 2 classes."
        )
    given = np.array([seen.labels[name] for name in names])
    weights = _class_sums(model, given)
    k, weight = len(names), float(weights.sum())
    if np.count_nonzero(weights) < 2:
        raise ValueError("Only one class has a positive weight; at least 2 are needed.")
    frame = _frame(model, seen, k, weights / np.where(given > 0, given, 1.0))
    share = weights[weights > 0] / weight
    reference = float(-(share @ np.log(share)))
    if not model.fit_intercept:
        reference = float(np.log(k))
    level = 1.0 / (C * weight)
    problem = block_newton.SummedProblem(blocks, frame, weight, level, reference)

    def on_step(objective: float, gap: float, W: Array) -> Status | None:
        return monitor.step(objective, gap, lambda: _attributes(W, blocks.dtype))

    limits = SolverLimits(float(model.tol), int(model.max_iter), on_step)
    start = _best_constant(frame, weights, problem.k)
    solution = block_newton.solve(problem, Start(start), limits)
    W = solution.primal
    if k > 2:  # scores are free up to a constant for each row
        W = W - W.mean(axis=1, keepdims=True)
    if not model.fit_intercept:
        W[-1] = 0.0  # a pseudo-inverse leaves rounding there
    for name, value in _attributes(W, blocks.dtype).items():
        setattr(model, name, value)
    model.n_iter_ = np.array([solution.n_iter], dtype=np.int32)
    model.solver_, model.history_ = "Newton", monitor.history
    model.solver_reason_ = "sums over blocks keep nothing for a row"
    monitor.close({"coef_": model.coef_, "intercept_": model.intercept_})
    evidence = Evidence("linear", LinearWitness())
    return Fitted(evidence, blocks, None, None, solution.status)


def _class_sums(model: Any, given: Array) -> Array:
    """Σ of the row weights of each class, class weights multiplied in."""
    if model.class_weight is None:
        return given
    codes = np.arange(len(given))
    found = labelled_weights(
        given, model.class_weight, codes, model.classes_, "weights"
    )
    return np.asarray(found)


def _frame(model: Any, seen: Any, k: int, factors: Array) -> Any:
    moments = seen.moments
    spread = np.sqrt(np.diag(moments.scatter) / max(moments.weight, 1e-300))
    if not model.fit_intercept:
        spread = np.sqrt(np.square(spread) + np.square(moments.mean))
    free = bool(model.fit_intercept)
    return block_newton.RowFrame(
        Logistic() if k == 2 else Softmax(k),
        model.classes_,
        factors,
        moments.mean if free else np.zeros_like(moments.mean),
        np.where(spread > 0, spread, 1.0),
        free,
    )


def _best_constant(frame: Any, weights: Array, k: int) -> Array:
    W = np.zeros((len(frame.mean) + 1, k))
    if frame.intercept:
        logs = np.log(np.maximum(weights, 1e-12 * weights.sum()))
        W[-1] = logs[1] - logs[0] if k == 1 else logs - logs.mean()
    return W


def _attributes(W: Array, dtype: Any) -> dict[str, Array]:
    return {
        "coef_": np.ascontiguousarray(W[:-1].T).astype(dtype),
        "intercept_": W[-1].astype(dtype),
    }
