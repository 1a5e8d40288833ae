"""Least squares with a penalty that has kinks: fits and paths, whatever the penalty.

A penalty by coordinates goes to ``certus._solvers.lasso`` for each target by itself,
one on the norms of blocks to ``certus._solvers.blocks`` with all targets together, a
smooth one to ``certus._solvers.least_squares``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus._solvers import blocks, lasso, least_squares
from certus._solvers.blocks import BlockProblem
from certus._solvers.design import Design
from certus._solvers.lasso import QuadraticProblem
from certus._solvers.least_squares import LeastSquares
from certus._solvers.penalties import of_levels, operation
from certus._solvers.problem import Solution, SolverLimits, Start
from certus.base import Estimator, Fitted
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.evidence import LinearWitness
from certus.linear_model.common import (
    LinearRegressorBase,
    centred_target,
    limits_of,
    linear_attributes,
)
from certus.objectives import MultiTask, NoPenalty, Penalty
from certus.objectives.terms import L2
from certus.typing import Array, Matrix


class SparseRegressorBase(LinearRegressorBase):
    """``predict``, and ``coef_`` as a sparse matrix."""

    @property
    def sparse_coef_(self) -> Any:
        """``coef_`` as a sparse matrix."""
        return sparse.csr_matrix(self.coef_)


def penalty_of(
    alpha: float, l1_ratio: float, positive: bool = False, tasks: bool = False
) -> Penalty:
    """The penalty for scikit-learn's ``alpha``, ``l1_ratio`` and ``positive``.

    With ``tasks`` that of several targets that share their columns.
    """
    l1, l2 = float(alpha) * float(l1_ratio), float(alpha) * (1.0 - float(l1_ratio))
    if tasks and l1 > 0:
        return MultiTask(l1, l2)
    return of_levels(l1, l2, bool(positive))


class Minimiser:
    """Least squares on the same data with one penalty after another.

    Parameters
    ----------
    design : Design
        Columns, centred where there is an intercept.
    Y : ndarray of shape (n, targets)
        Targets, centred likewise; penalties by coordinates take one.
    """

    def __init__(self, design: Design, Y: Array) -> None:
        self.design, self.Y = design, Y
        self.reference = float(np.sum(design.average(Y * Y))) / 2
        self._problem: Any = None

    def solve(self, penalty: Penalty, start: Start, limits: SolverLimits) -> Solution:
        """Minimise; ``primal`` is (d,) or (d, targets)."""
        if isinstance(penalty, L2 | NoPenalty):
            problem = LeastSquares(self.design, self.Y, [penalty] * self.Y.shape[1])
            return least_squares.solve(problem, start, limits)
        blockwise = operation(penalty, "blocks") is not None
        if self._problem is not None:
            self._problem.penalise(penalty)
        elif blockwise:
            self._problem = BlockProblem(self.design, self.Y, penalty)
        else:
            self._problem = QuadraticProblem(self.design, self.Y[:, 0], penalty)
        return (blocks if blockwise else lasso).solve(self._problem, start, limits)


class PenaltyPath(NamedTuple):
    """Coefficients of shape (d, targets, penalties), gaps and rounds of each."""

    coefs: Array
    gaps: Array
    rounds: list[int]


def penalty_path(
    minimiser: Minimiser,
    penalties: Iterable[Penalty],
    start: Start,
    limits: SolverLimits,
) -> PenaltyPath:
    """Solve for each penalty, starting from the last one's solution."""
    coefs, gaps, rounds = [], [], []
    shape = (minimiser.design.d, minimiser.Y.shape[1])
    for penalty in penalties:
        found = minimiser.solve(penalty, start, limits)
        if found.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        coefs.append(found.primal.reshape(shape))
        gaps.append(found.gap * minimiser.reference)
        rounds.append(max(1, found.n_iter))
        start = Start()
    return PenaltyPath(np.stack(coefs, axis=-1), np.array(gaps), rounds)


def fit_penalised(
    model: Estimator,
    X: Matrix,
    y: Array,
    s: Array | None,
    penalty: Penalty,
    start: Array | None = None,
    *,
    joint: bool = False,
) -> Fitted:
    """Solve for each target, or ``joint``ly for all, and set the attributes."""
    free = bool(model.fit_intercept)
    design = Design(X, s, centre=free)
    Y, mean = centred_target(design, y, free)
    monitor = Monitor(model, X, y, None, model.max_time)
    coef = np.zeros((Y.shape[1], design.d))
    first = None if start is None else np.atleast_2d(start)
    if first is not None and first.shape != coef.shape:
        first = None
    solutions: list[Solution] = []
    gaps = []
    targets = [np.arange(len(coef))] if joint else np.arange(len(coef))[:, None]
    for which in targets:

        def state(w: Array, which: Array = which) -> dict[str, Any]:
            coef[which] = w.reshape(design.d, -1).T
            return linear_attributes(
                coef, mean, design, y, X.dtype, free, keep_row=joint
            )

        def on_step(objective: float, gap: float, w: Array, state: Any = state) -> Any:
            return monitor.step(objective, gap, lambda: state(w))

        minimiser = Minimiser(design, Y[:, which])
        begin = Start()
        if first is not None:
            begin = Start(first[which].T if joint else first[which[0]])
        solution = minimiser.solve(penalty, begin, limits_of(model, on_step))
        solutions.append(solution)
        found = state(solution.primal)
        gaps.append(solution.gap * minimiser.reference)
        if solution.status is Status.INTERRUPTED:
            break
    for name, value in found.items():
        setattr(model, name, value)
    single = len(targets) == 1
    steps = [one.n_iter for one in solutions]
    model.n_iter_ = steps[0] if single else steps
    model.dual_gap_ = gaps[0] if single else np.array(gaps)
    model.history_ = monitor.history
    monitor.close(found)
    endings = (one.status for one in solutions if one.status is not Status.SOLVED)
    worst = next(endings, Status.SOLVED)
    return Fitted(Evidence("linear", witness=LinearWitness()), X, y, s, worst)
