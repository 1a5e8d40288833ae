"""Squared hinge with an L1 penalty, the intercept penalised as liblinear does.

    min over w, b:  Σ sᵢ max(0, 1 − yᵢ(xᵢᵀw + κ·b))²/Σs + l1·(‖w‖₁ + |b|)

The constant column becomes a column like any other. Dense data go to proximal Newton
(``certus._solvers.prox_newton``); sparse data, of which many columns may stay, to
descent along one column at a time. Memory: a copy of X with the constant column.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus._solvers.losses import evaluate
from certus._solvers.newton_problem import NewtonRows
from certus._solvers.penalties import operation
from certus._solvers.problem import Solution, SolverLimits, Start
from certus._solvers.prox_newton import SparseProblem
from certus._solvers.prox_newton import solve as solve_dense
from certus._solvers.svm_kernels import descend_columns
from certus.certificate import Status
from certus.objectives import SquaredHinge
from certus.objectives.terms import L1
from certus.typing import Array


class HingeProblem(SparseProblem):
    """The squared hinge's own reference value and duality gap."""

    scale = 0.0  # of the constant column, the last one

    def constant_objective(self) -> float:
        """P of the best constant: the last column, if it is one, and its L1 level.

        With p and q the weights of the classes, p(1 − z)² + q(1 + z)² + level·abs(b).
        """
        if not self.scale:
            return 1.0
        s, y = self.rows.s / self.rows.total, self.rows.y
        level = self.penalty.alpha / self.scale
        lean = float(s @ y)  # p − q, as p + q = 1
        z = np.sign(lean) * max(abs(lean) - level / 2, 0.0)
        return float(1 + z * z - 2 * lean * z + level * abs(z))

    def gap(self, W: Array, b: Array, z: Array, gradient: Array) -> tuple[float, float]:
        """Objective and P − D, with D from the slopes scaled into the L1 ball."""
        s, total = self.rows.s, self.rows.total
        slopes = evaluate(self.loss, self.rows.y, z)
        primal = float(s @ slopes.value) / total + self.omega(W)
        t = operation(self.penalty, "polar")(self.penalty, gradient[:-1])
        v = t * np.abs(slopes.slope[:, 0])
        dual = float(s @ (v - v * v / 4)) / total
        return primal, max(primal - dual, 0.0)


class L1Machine(NamedTuple):
    """Rows without their constant column, whose size is ``scale`` (0: none)."""

    X: Any
    y: Array
    s: Array
    scale: float
    penalty: L1


def solve(problem: L1Machine, start: Start, limits: SolverLimits) -> Solution:
    """Minimise from zero; ``primal`` is (w, b) of length d + 1, ``dual`` the slopes."""
    X, y, s, scale, penalty = problem
    n, d = X.shape
    if scale:
        constant = np.full((n, 1), scale, dtype=X.dtype)
        if sparse.issparse(X):
            X = sparse.hstack([X, sparse.csr_array(constant)], format="csc")
        else:
            X = np.hstack([X, constant])
    rows = NewtonRows(X, y, s, float(s.sum()))
    hinge = HingeProblem(rows, SquaredHinge(), penalty, False)
    hinge.scale = scale

    def flat(W: Array) -> Array:
        return np.append(W[:d, 0], W[d, 0] if scale else 0.0)

    def step(objective: float, gap: float, W: Array) -> Status | None:
        return limits.on_step(objective, gap, flat(W))

    inner = limits._replace(on_step=step)
    found = (_descend if hinge.sparse else solve_dense)(hinge, Start(), inner)
    slopes = evaluate(SquaredHinge(), y, hinge.scores(found.primal)).slope[:, 0]
    return replace(found, primal=flat(found.primal), dual=slopes)


def _descend(problem: HingeProblem, start: Start, limits: SolverLimits) -> Solution:
    """Sweeps over all columns, and between them over those that matter."""
    X, y = problem.rows.X.tocsc(), problem.rows.y
    s = problem.rows.s / problem.rows.total
    columns = (X.indptr, X.indices, X.data.astype(np.float64, copy=False))
    W, short = np.zeros((problem.d + 1, 1)), np.ones(problem.n)
    w, every = W[:-1, 0], np.arange(problem.d)
    random, status, sweeps, gap = np.random.default_rng(0), Status.MAX_ITER, 0, np.inf

    def sweep(order: Array) -> tuple[float, Array]:
        order = random.permutation(order)
        keep = np.ones(len(order), dtype=np.bool_)
        level = problem.penalty.alpha
        worst = descend_columns(*(*columns, order, y, s, level, w, short, keep))
        return float(worst), order[keep]

    try:
        while sweeps < limits.max_iter:
            sweeps += 1
            worst, active = sweep(every)
            for _ in range(50):
                inner, _ = sweep(active)
                if inner <= 0.1 * worst:
                    break
            z = problem.scores(W)
            short[:] = 1 - y * z[:, 0]  # without the drift of many updates
            gradient = problem.pull(evaluate(problem.loss, y, z).slope)
            objective, gap = problem.gap(W[:-1], W[-1], z, gradient)
            stop = limits.on_step(objective, gap, W)
            if gap <= 0.9 * limits.tol:
                status = Status.SOLVED
                break
            if stop is not None:
                status = stop
                break
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return Solution(W, gap, status, sweeps)
