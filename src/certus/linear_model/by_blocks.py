"""Fits to blocks of rows (``certus.scale``): the same problems, the same attributes.

Least squares goes through the solver for rows in memory, over another design;
likelihoods are solved by Newton's method on sums. What a block cannot do is refused by
name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from certus._core.rows import labelled_weights
from certus._solvers import block_newton, least_squares
from certus._solvers.block_design import BlockDesign
from certus._solvers.block_newton import RowFrame
from certus._solvers.design import Design
from certus._solvers.least_squares import LeastSquares
from certus._solvers.problem import SolverLimits, Start
from certus.base import Estimator, Fitted
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.evidence import LinearWitness
from certus.linear_model.common import level_term, linear_attributes
from certus.linear_model.families import check_range
from certus.linear_model.penalised import Minimiser
from certus.objectives import Logistic, Loss, Penalty, Softmax, SquaredHinge
from certus.typing import Array

if TYPE_CHECKING:
    from certus.blocks import Blocks

__all__ = ["fit_family", "fit_least_squares", "fit_logistic", "fit_squared_hinge"]


def refuse(model: Estimator, what: str) -> None:
    """Say that an option needs all rows in memory."""
    name = type(model).__name__
    raise NotImplementedError(
        f"{name} cannot be fitted to blocks with {what}. Pass rows in memory, or use "
        "another setting."
    )


def fit_least_squares(
    model: Estimator, blocks: Blocks, alpha: float, design: Any = None
) -> Fitted:
    """Solve ridge or least squares (``alpha=0``) over blocks.

    ``design`` is the :class:`BlockDesign` of the blocks, if already computed.
    """
    if model.positive:
        refuse(model, "positive=True")
    monitor = Monitor(model, blocks, None)
    if design is None:
        design = BlockDesign(blocks, bool(model.fit_intercept))
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


def fit_penalised(model: Estimator, blocks: Blocks, penalty: Penalty) -> Fitted:
    """Solve lasso or elastic net: on d + 1 rows that have the Gram matrix of all."""
    free = bool(model.fit_intercept)
    monitor = Monitor(model, blocks, None, None, model.max_time)
    summed = BlockDesign(blocks, free)
    A, y = summed.few_rows()
    design = Design(A, None, centre=False)
    flat = np.empty(0)

    def end(w: Array) -> dict[str, Any]:
        coef: Any = w.reshape(1, -1)
        rows: Any = summed
        return linear_attributes(
            coef, summed.target_mean, rows, flat, blocks.dtype, free
        )

    def on_step(objective: float, gap: float, w: Array) -> Status | None:
        return monitor.step(objective, gap, lambda: end(w))

    minimiser = Minimiser(design, y)
    limits = SolverLimits(1e-3 * float(model.tol), int(model.max_iter), on_step)
    solution = minimiser.solve(penalty, Start(), limits)
    found = end(solution.primal)
    for name, value in found.items():
        setattr(model, name, value)
    model.n_iter_, model.history_ = solution.n_iter, monitor.history
    model.dual_gap_ = solution.gap * minimiser.reference
    monitor.close(found)
    return Fitted(
        Evidence("linear", LinearWitness()), blocks, None, None, solution.status
    )


def fit_logistic(model: Estimator, blocks: Blocks, C: float) -> Fitted:
    """Solve L2-penalised logistic or softmax regression over blocks."""
    k, weights, factors = labels_of(model, blocks)
    weight, free = float(weights.sum()), bool(model.fit_intercept)
    share = weights[weights > 0] / weight
    reference = float(-(share @ np.log(share))) if free else float(np.log(k))
    loss: Any = Logistic() if k == 2 else Softmax(k)
    frame = frame_of(model, blocks, loss, factors)
    level = 1.0 / (C * weight)
    problem = block_newton.SummedProblem(blocks, frame, weight, level, reference)
    start = _best_constant(frame, weights, problem.k)
    monitor = Monitor(model, blocks, None, None, model.max_time)

    def end(W: Array) -> dict[str, Array]:
        if k > 2:  # scores are free up to a constant for each row
            W = W - W.mean(axis=1, keepdims=True)
        return _attributes(W, blocks.dtype)

    status, steps = run(model, problem, start, monitor, end)
    model.n_iter_ = np.array([steps], dtype=np.int32)
    return Fitted(Evidence("linear", LinearWitness()), blocks, None, None, status)


def fit_family(model: Estimator, blocks: Blocks, loss: Loss, alpha: float) -> Fitted:
    """Solve a generalised linear model with an L2 penalty over blocks."""
    seen = block_newton.survey(blocks, labels=False)
    if not seen.weight > 0:
        raise ValueError("sample_weight must not be all zero.")
    check_range(loss, np.array([seen.least]))
    frame = frame_of(model, blocks, loss, np.zeros(0))
    free = bool(model.fit_intercept)
    b = np.array([np.log(max(seen.mean / seen.weight, 1e-300)) if free else 0.0])
    reference = block_newton.constant_loss(blocks, frame, b) / seen.weight
    problem = block_newton.SummedProblem(blocks, frame, seen.weight, alpha, reference)
    start = np.zeros((len(frame.mean) + 1, 1))
    start[-1] = b
    monitor = Monitor(model, blocks, None, None, model.max_time)

    def end(W: Array) -> dict[str, Array]:
        b = W[-1, 0] if free else 0.0
        dtype = blocks.dtype
        return {"coef_": W[:-1, 0].astype(dtype), "intercept_": dtype.type(b)}

    status, model.n_iter_ = run(model, problem, start, monitor, end)
    return Fitted(Evidence("linear", LinearWitness()), blocks, None, None, status)


def fit_squared_hinge(model: Estimator, blocks: Blocks, constant: float) -> Fitted:
    """Solve a support vector machine with squared hinge loss over blocks."""
    k, weights, factors = labels_of(model, blocks)
    if k > 2:
        refuse(model, f"{k} classes, one against the rest (LogisticRegression can)")
    weight = float(weights.sum())
    frame = frame_of(model, blocks, SquaredHinge(), factors, bool(constant))
    share = weights / weight
    free = bool(model.fit_intercept)
    reference = float(4 * share.prod()) if free else 1.0
    level = 1.0 / (float(model.C) * weight)
    problem = block_newton.SummedProblem(
        *(blocks, frame, weight, level, reference, constant)
    )
    start = np.zeros((len(frame.mean) + 1, 1))
    monitor = Monitor(model, blocks, None, None, getattr(model, "max_time", None))
    status, steps = run(
        *(model, problem, start, monitor, lambda W: _attributes(W, blocks.dtype))
    )
    model.n_iter_ = steps
    return Fitted(Evidence("linear", LinearWitness()), blocks, None, None, status)


def run(
    model: Estimator, problem: Any, start: Array, monitor: Monitor, end: Any
) -> tuple[Status, int]:
    """Newton's method on sums; sets the attributes that ``end`` makes of W."""
    free = problem.frame.intercept

    def on_step(objective: float, gap: float, W: Array) -> Status | None:
        return monitor.step(objective, gap, lambda: end(W))

    limits = SolverLimits(float(model.tol), int(model.max_iter), on_step)
    solution = block_newton.solve(problem, Start(start), limits)
    W = solution.primal
    if not free:
        W[-1] = 0.0
    found = end(W)
    for name, value in found.items():
        setattr(model, name, value)
    model.solver_, model.history_ = "Newton", monitor.history
    model.solver_reason_ = "sums over blocks keep nothing for a row"
    monitor.close(found)
    return solution.status, solution.n_iter


def labels_of(model: Estimator, blocks: Blocks) -> tuple[int, Array, Array]:
    """Number of classes, their weights, and the factor of each; sets ``classes_``."""
    seen = block_newton.survey(blocks, labels=True)
    names = sorted(seen.labels)
    model.classes_ = np.array(names)
    if len(names) < 2:
        raise ValueError(
            f"The target has only one class ({names[0]}); classification needs samples "
            "of at least 2 classes."
        )
    given = np.array([seen.labels[name] for name in names])
    weights = _class_sums(model, given)
    if np.count_nonzero(weights) < 2:
        raise ValueError("Only one class has a positive weight; at least 2 are needed.")
    return len(names), weights, weights / np.where(given > 0, given, 1.0)


def frame_of(
    model: Estimator,
    blocks: Blocks,
    loss: Loss,
    factors: Array,
    penalised: bool = False,
) -> Any:
    """How rows become numbers of the problem; moved only if the intercept is free."""
    some = block_newton.few(blocks, block_newton.EACH * len(blocks.names))
    classes = model.classes_ if len(factors) else np.zeros(0)
    free = bool(model.fit_intercept)
    frame = block_newton.frame_of(some, loss, classes, factors, free and not penalised)
    return frame._replace(intercept=free)


def _class_sums(model: Estimator, given: Array) -> Array:
    """Σ of the row weights of each class, class weights multiplied in."""
    if model.class_weight is None:
        return given
    codes = np.arange(len(given))
    found = labelled_weights(
        given, model.class_weight, codes, model.classes_, "weights"
    )
    return np.asarray(found)


def _best_constant(frame: RowFrame, weights: Array, k: int) -> Array:
    W = np.zeros((len(frame.mean) + 1, k))
    if frame.intercept:
        logs = np.log(np.maximum(weights, 1e-12 * weights.sum()))
        W[-1] = logs[1] - logs[0] if k == 1 else logs - logs.mean()
    return W


def _attributes(W: Array, dtype: np.dtype[Any]) -> dict[str, Array]:
    return {
        "coef_": np.ascontiguousarray(W[:-1].T).astype(dtype),
        "intercept_": W[-1].astype(dtype),
    }
