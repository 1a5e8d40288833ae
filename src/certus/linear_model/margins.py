"""Code that linear machines and the perceptron share: choose a method, run problems.

A fit consists of one problem per output (two classes: one). Each is solved on its own;
the dual points become the evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus._solvers import svm, svm_descent, svm_hard, svm_sparse
from certus._solvers.problem import Solution, SolverLimits, Start
from certus._solvers.svm_problem import DualBox, SvmProblem, SVMRows
from certus._solvers.svm_systems import PRIMAL_SIDE
from certus.base import Estimator, check_choice, check_number
from certus.callbacks import Monitor
from certus.certificate import Status
from certus.evidence import LinearWitness
from certus.linear_model.common import limits_of
from certus.objectives.terms import L1, L2
from certus.typing import Array, Matrix

#: Why a method is chosen.
REASONS = {
    "Newton on active rows": "the loss is smooth, and curved only on the active rows",
    "multipliers": "the loss has kinks, and few rows lie on them at the minimum",
    "dual descent": "sparse rows and many columns: it updates one row at a time",
    "proximal Newton": "with an L1 penalty, few columns stay in the model",
    "column descent": "an L1 penalty on sparse columns: it updates one column at a "
    "time",
    "hard margin": "C = inf allows no row on the wrong side",
}
#: How several problems ended, the worst first.
_WORST = (
    Status.INTERRUPTED,
    Status.TIME_LIMIT,
    Status.STOPPED,
    Status.NO_MINIMISER,
    Status.MAX_ITER,
    Status.TOL_NOT_REACHED,
    Status.SOLVED,
)


class MarginPart(NamedTuple):
    """One problem of a fit: targets, weights, and the loss as a box."""

    y: Array
    s: Array
    box: DualBox


class Solved(NamedTuple):
    """The solution of a problem, and the name of the method."""

    solution: Solution
    method: str

    @property
    def dual(self) -> Array:
        """Slopes of the rows, or their multipliers; all these methods give them."""
        assert self.solution.dual is not None
        return self.solution.dual


Solver = Callable[[MarginPart, SolverLimits], Solved]


def check_machine(model: Estimator) -> None:
    """Raise an error for invalid parameters."""
    check_number("C", model.C, open_low=True)
    check_number("tol", model.tol)
    check_number("intercept_scaling", model.intercept_scaling, open_low=True)
    check_number("max_iter", model.max_iter, 0, integer=True)
    check_number("max_time", model.max_time, none=True)
    check_choice("dual", model.dual, (True, False, "auto"))


def scale_of(model: Estimator) -> tuple[float, bool]:
    """Size of the constant column, and whether the penalty leaves it out."""
    if not model.fit_intercept:
        return 0.0, False
    free = bool(np.isinf(model.intercept_scaling))
    return (1.0 if free else float(model.intercept_scaling)), free


def machine_solver(model: Estimator, X: Any) -> Solver:
    """The method for this model's problem and shape."""
    X = X.tocsr() if sparse.issparse(X) and X.format != "csr" else X
    scale, free = scale_of(model)
    C = float(model.C)

    def hard(part: MarginPart, limits: SolverLimits) -> Solved:
        problem = svm_hard.HardMargin(SVMRows(X, part.s, scale), part.y, free)
        return Solved(svm_hard.solve(problem, Start(), limits), "hard margin")

    def lasso(part: MarginPart, limits: SolverLimits) -> Solved:
        penalty = L1(1 / (C * float(part.s.sum())))
        problem = svm_sparse.L1Machine(X, part.y, part.s, scale, penalty)
        found = svm_sparse.solve(problem, Start(), limits)
        return Solved(
            found, "column descent" if sparse.issparse(X) else "proximal Newton"
        )

    def plain(part: MarginPart, limits: SolverLimits) -> Solved:
        rows = SVMRows(X, part.s, scale)
        problem = SvmProblem(rows, part.box, L2(1 / (C * rows.total)), free)
        start = Start()
        if rows.sparse and rows.d > PRIMAL_SIDE and not free:
            found: Solution = svm_descent.solve(problem, start, limits)
            if found.status is not Status.TOL_NOT_REACHED:
                return Solved(found, "dual descent")
            start = Start(found.primal, found.dual)
        found = svm.solve(problem, start, limits)
        smooth = part.box.width > 0
        return Solved(found, "Newton on active rows" if smooth else "multipliers")

    if np.isinf(C):
        return hard
    return lasso if getattr(model, "penalty", "l2") == "l1" else plain


def solve_each(
    model: Estimator,
    X: Matrix,
    parts: list[MarginPart],
    solver: Solver,
    monitor: Monitor,
) -> list[Solved]:
    """Solve the problems one after another; Ctrl-C leaves the rest at zero."""
    points = [np.zeros(X.shape[1] + 1) for _ in parts]
    solved: list[Solved] = []
    for k, part in enumerate(parts):
        if solved and solved[-1].solution.status is Status.INTERRUPTED:
            ending = (np.inf, Status.INTERRUPTED, 0, np.zeros(len(part.y)))
            nothing = Solution(points[k], *ending)
            solved.append(Solved(nothing, solved[-1].method))
            continue

        def on_step(
            objective: float, gap: float, w: Array, k: int = k
        ) -> Status | None:
            points[k] = w
            return monitor.step(
                objective, gap, lambda: attributes_of(model, points, X.dtype)
            )

        solved.append(solver(part, limits_of(model, on_step)))
        points[k] = solved[-1].solution.primal
    return solved


def worst_status(solved: list[Solved]) -> Status:
    """How a fit of several problems ended."""
    return min((one.solution.status for one in solved), key=_WORST.index)


def attributes_of(
    model: Estimator, points: list[Array], dtype: np.dtype[Any]
) -> dict[str, Any]:
    """``coef_`` and ``intercept_`` of points (w, b) in units of the constant column."""
    W = np.vstack(points)
    scale, _ = scale_of(model)
    intercept: Any = (scale * W[:, -1]).astype(dtype) if scale else 0.0
    return {"coef_": W[:, :-1].astype(dtype), "intercept_": intercept}


def store_solver(model: Estimator, solved: list[Solved]) -> None:
    """Set ``n_iter_``, ``solver_`` and ``solver_reason_``."""
    model.n_iter_ = max(one.solution.n_iter for one in solved)
    model.solver_ = solved[0].method
    model.solver_reason_ = REASONS[model.solver_]


def dual_witness(model: Estimator, solved: list[Solved]) -> LinearWitness:
    """The dual point, unless it is the slope of a smooth loss at the solution."""
    smooth = model.loss.startswith("squared") and model.solver_ != "dual descent"
    if smooth and not any(getattr(one.solution, "moved", False) for one in solved):
        return LinearWitness()
    return LinearWitness(np.column_stack([one.dual for one in solved]))
