"""Squared hinge with an L1 penalty, the intercept penalised as liblinear does.

    min over w, b:  Σ sᵢ max(0, 1 − yᵢ(xᵢᵀw + κ·b))²/Σs + l1·(‖w‖₁ + |b|)

The constant column becomes a column like any other, and proximal Newton
(``certus.convex.prox_newton``) does the rest. Memory: a copy of X with that column.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from certus.convex.design import Array
from certus.convex.losses import evaluate
from certus.convex.newton import Rows
from certus.convex.problem import OnStep, Solution
from certus.convex.prox_newton import SparseProblem, solve_sparse
from certus.terms import SquaredHinge


class HingeProblem(SparseProblem):
    """The squared hinge's own reference value and duality gap."""

    def constant_objective(self) -> float:
        """P(0): every margin is missed by one."""
        return 1.0

    def gap(self, W: Array, b: Array, z: Array, gradient: Array) -> tuple[float, float]:
        """Objective and P − D, with D from the slopes scaled into the L1 ball."""
        s, total = self.rows.s, self.rows.total
        slopes = evaluate(self.loss, self.rows.y, z)
        primal = float(s @ slopes.value) / total + self.penalty(W)
        top = float(np.abs(gradient[:-1]).max(initial=0.0))
        t = min(1.0, self.l1 / top) if top > 0 else 1.0
        v = t * np.abs(slopes.slope[:, 0])
        dual = float(s @ (v - v * v / 4)) / total
        return primal, max(primal - dual, 0.0)


def solve_l1(
    X: Any,
    y: Array,
    s: Array,
    scale: float,
    level: float,
    tol: float,
    max_iter: int,
    on_step: OnStep,
) -> Solution:
    """Minimise; ``primal`` is (w, b) of length d + 1, ``extra["u"]`` the slopes."""
    n, d = X.shape
    if scale:
        constant = np.full((n, 1), scale, dtype=X.dtype)
        if sparse.issparse(X):
            X = sparse.hstack([X, sparse.csr_array(constant)], format="csc")
        else:
            X = np.hstack([X, constant])
    problem = HingeProblem(
        Rows(X, y, s, float(s.sum())), SquaredHinge(), level, 0.0, False
    )

    def flat(W: Array) -> Array:
        return np.append(W[:d, 0], W[d, 0] if scale else 0.0)

    found = solve_sparse(
        problem,
        np.zeros((X.shape[1] + 1, 1)),
        tol,
        max_iter,
        lambda objective, gap, W: on_step(objective, gap, flat(W)),
    )
    slopes = evaluate(SquaredHinge(), y, problem.scores(found.primal)).slope[:, 0]
    return found._replace(primal=flat(found.primal), extra={"u": slopes})
