"""Least squares with a penalty that is a sum over coordinates, by working sets.

    min over w:  ½·Σ sᵢ(yᵢ − aᵢᵀw)²/Σs + Ω(w)

A pass over all columns gives the gradient and the duality gap; the columns that
violate optimality most join the working set, whose problem is solved on its Gram
matrix: coordinate descent to find the support and signs, then one linear system that
is exact for that support (the objective is quadratic there). Paths are warm-started
and keep the Gram matrix. Memory: X, the columns of the working set and the square of
its size; sets beyond ``GRAM_SIDE`` run coordinate descent on the columns themselves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from certus._solvers.design import Design
from certus._solvers.gram import solve_on_gram
from certus._solvers.kernels import descend_columns, descend_sparse
from certus._solvers.penalties import PENALTIES, operation, require
from certus._solvers.problem import Solution, SolverLimits, Start
from certus._solvers.working_set import WorkingSet
from certus.certificate import Status
from certus.typing import Array

#: What this solver asks of a penalty; "piece", if there is one, makes it exact.
NEEDS = ("value", "prox", "distance", "conjugate", "polar")
#: Sparse working sets up to this size keep one from the start: exact, and cheap.
SMALL = 256
#: Epochs on sparse columns between two looks at the gap; all but one skip the zeros.
SPARSE_EPOCHS = 8


class LassoGap(NamedTuple):
    """Primal value, duality gap relative to ``reference``, and what it rests on."""

    objective: float
    relative: float


class QuadraticProblem:
    """One lasso, elastic net or the like, and how far it is solved.

    Parameters
    ----------
    design : Design
        Columns, centred where there is an intercept.
    y : ndarray of shape (n,)
        Targets, centred likewise.
    penalty : term
        A sum over coordinates. ``penalise`` changes it; the point and the working set
        stay, which makes paths fast.
    """

    def __init__(self, design: Design, y: Array, penalty: Any) -> None:
        self.design, self.y = design, y
        self.penalise(penalty)
        self.correlation = design.t_dot(y)
        self.reference = float(design.average(y * y)) / 2
        self.w = np.zeros(design.d)
        self.residual = y.copy()
        self.gradient = -self.correlation  # of the loss, at w
        self.set = WorkingSet(design)
        self._sizes: Array | None = None  # mean squares of the columns, when needed

    def penalise(self, penalty: Any) -> None:
        """Take another penalty; one that lacks an operation is refused by name."""
        row = require("coordinate descent", penalty, *NEEDS)
        if row.blocks is not None:
            raise NotImplementedError(
                f"this solver steps along coordinates; {type(penalty).__name__} "
                "penalises blocks of coefficients. Use certus._solvers.blocks."
            )
        self.penalty = row.take(penalty, np.arange(self.design.d))

    def start_from(self, w: Array) -> None:
        """Stand at ``w``."""
        self.w = np.array(w, dtype=np.float64)
        self.residual = self.y - self.design.dot(self.w)
        self.gradient = -self.design.t_dot(self.residual)

    def advance(self, relative: float, tol: float) -> bool:
        """Grow the working set and solve on it; whether anything moved."""
        self._admit(self.penalty)
        aim = max(self._patience() * relative, 0.3 * tol)
        moved = self._solve_members(self.penalty, aim)
        self._refresh()
        return moved

    def gap(self) -> LassoGap:
        """P − D at the current point, with D from the rescaled residual.

        For a cone without L1 and L2 parts no multiple of the residual is feasible; the
        largest share of a column in its violation stands for the gap there.
        """
        penalty = self.penalty
        square = float(self.design.average(self.residual**2))
        # The dual point −t·r needs Σ s y r, which is cheap and exact.
        cross = float(self.design.average(self.residual * self.y))
        primal = square / 2 + operation(penalty, "value")(penalty, self.w)
        gap = max(quadratic_gap(penalty, square, cross, self.w, self.gradient), 0.0)
        if np.isinf(gap) and np.isfinite(primal):
            return LassoGap(primal, self._violation(penalty, square))
        return LassoGap(primal, gap / self.reference if self.reference > 0 else 0.0)

    def _violation(self, penalty: Any, square: float) -> float:
        """Largest distance to the subdifferential over ‖xⱼ‖‖r‖, within the set."""
        off = operation(penalty, "distance")(penalty, self.w, self.gradient)
        if self._sizes is None:
            self._sizes = self.design.column_squares()
        size = np.sqrt(self._sizes * square)
        share = np.divide(off, size, out=np.zeros_like(off), where=size > 0)
        return float(share.max(initial=0.0))

    def _patience(self) -> float:
        """How far to solve on the working set before the next pass over all columns.

        Small dense sets are nearly free beside a pass, large ones are not.
        """
        if self.design.sparse and len(self.set.members) > SMALL:
            return 0.1
        cheap = 25 * len(self.set.members) ** 2 < self.design.n * self.design.d
        return 0.03 if cheap else 0.15

    def _refresh(self) -> None:
        """Residual and gradient at w: one pass over the support, one over all."""
        on = np.flatnonzero(self.w[self.set.members])
        self.residual = self.y - self.set.dot(on, self.w[self.set.members[on]])
        self.gradient = -self.design.t_dot(self.residual)

    def _admit(self, penalty: Any) -> None:
        """Grow the working set by the columns that violate optimality most."""
        support = np.flatnonzero(self.w)
        violation = operation(penalty, "distance")(penalty, self.w, self.gradient)
        outside = ~self.set.inside
        candidates = np.flatnonzero(outside & (violation > 0))
        # Forming the Gram matrix of 2√d columns costs about one pass over X; beyond
        # that the set may double, but a support has no more than n columns.
        double = min(len(support), max(0, self.design.n - len(support)))
        room = max(64, double, int(2 * np.sqrt(self.design.d)))
        if len(candidates) > room:
            best = np.argpartition(violation[candidates], -room)[-room:]
            candidates = candidates[best]
        new = np.union1d(support[outside[support]], candidates)
        if not new.size:
            return
        if 2 * len(self.set.members) > 3 * max(512, len(support)):
            self._forget(max(64, len(support) // 4))
        self.set.append(new)

    def _forget(self, spare: int) -> None:
        """Drop zero members but for the ``spare`` ones nearest to entering.

        Every member lengthens every step of coordinate descent.
        """
        members = self.set.members
        used = self.w[members] != 0
        size = np.where(used, 0.0, np.abs(self.gradient[members]))
        near = np.argpartition(size, -spare)[-spare:]
        used[near] = True
        self.set.keep(used)

    # -- the problem on the working set -----------------------------------------

    def _solve_members(self, penalty: Any, aim: float) -> bool:
        members, target = self.set.members, aim * self.reference
        if not members.size:
            return False
        part = operation(penalty, "take")(penalty, members)
        w = self.w[members].copy()
        if self.set.G is None and len(members) <= SMALL:
            self.set.form_gram()
        if self.set.G is not None:
            c, G = self.correlation[members], self.set.G

            def done(w: Array, g: Array) -> bool:
                cross = 2 * self.reference - float(c @ w)
                square = cross + float(w @ g)
                gap = quadratic_gap(part, square, cross, w, g)
                if np.isfinite(gap):
                    return gap <= target
                off = operation(part, "distance")(part, w, g)
                size = np.sqrt(np.diag(G) * max(square, 0.0))
                return bool(np.all(off <= 0.1 * aim * size))

            moved = solve_on_gram(G, c, w, part, done, self.set.rows)
        elif self.design.sparse:
            moved = self._descend_sparse(part, w, target)
        else:
            moved = self._descend_dense(part, w, target)
        self.w[members] = w
        return moved

    def _descend_sparse(self, penalty: Any, w: Array, target: float) -> bool:
        """Coordinate descent on CSC columns; a set that stays slow gets its Gram."""
        design, held = self.design, self.set
        C, mean = held.columns, held.off
        share: Any = (1.0 if design.s is None else design.s) / design.total
        by_entry = share if design.s is None else share[C.indices]
        weighted = C.data * by_entry
        r, shift = self.residual.copy(), 0.0
        for _ in range(20):
            _, _, shift = descend_sparse(
                *(penalty, C.data, weighted, C.indices, C.indptr, mean),
                *(held.curvature, w, r, shift, SPARSE_EPOCHS),
            )
            true = r + shift
            pull = share * true
            g = -np.asarray(C.T @ pull) + mean * float(pull.sum())
            # Without BLAS: once its threads wake, they take time from ours for a while.
            square, cross = (np.einsum("i,i", pull, x) for x in (true, self.y))
            if quadratic_gap(penalty, square, cross, w, g) <= target:
                return True
        held.form_gram()
        return True

    def _descend_dense(self, penalty: Any, w: Array, target: float) -> bool:
        """Coordinate descent on dense columns, for sets without a Gram matrix."""
        design, held = self.design, self.set
        h = (np.ones(design.n) if design.s is None else design.s) / design.total
        g0 = self.gradient[held.members].copy()
        delta = np.zeros(design.n)
        order = np.arange(len(held.members))
        for _ in range(20):
            change, _ = descend_columns(
                *(penalty, held.dense(), h, held.curvature),
                *(g0, w, delta, order, 5, 0.0),
            )
            if change * np.abs(w).max(initial=0.0) <= 0.01 * target:
                break
        return True


def solve(problem: QuadraticProblem, start: Start, limits: SolverLimits) -> Solution:
    """Minimise to a relative gap of ``limits.tol``, from where the problem stands."""
    if start.primal is not None:
        problem.start_from(start.primal)
    tol, status, steps = limits.tol, Status.MAX_ITER, 0
    found = problem.gap()
    try:
        while True:
            stop = limits.on_step(found.objective, found.relative, problem.w)
            if found.relative <= 0.9 * tol:
                status = Status.SOLVED
                break
            if stop is not None or steps >= limits.max_iter:
                status = stop or status
                break
            steps += 1
            before = found.objective
            stalled = not problem.advance(found.relative, tol)
            found = problem.gap()
            if stalled and found.objective >= before * (1 - 1e-15) and steps > 3:
                status = Status.TOL_NOT_REACHED
                break
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return Solution(problem.w.copy(), found.relative, status, steps)


def quadratic_gap(
    penalty: Any, square: float, cross: float, w: Array, g: Array
) -> float:
    """P − D from the means of r² and of ry, w and the gradient of the loss."""
    row: Any = PENALTIES[type(penalty)]
    t = row.polar(penalty, g)
    if t <= 0.0:
        return np.inf
    dual = t * cross - t * t * square / 2 - row.conjugate(penalty, t * g)
    return float(square / 2 + row.value(penalty, w) - dual)
