"""Least squares with a penalty on the norms of blocks, by working sets.

    min over W:  ½·Σ sᵢ‖yᵢ − aᵢᵀW‖²/Σs + Ω(W)

W has one row for each column of X and one column for each task; a block is a group of
rows of W (group lasso: one task; multi-task lasso: every row is a block). As in
``certus._solvers.lasso``, the blocks that violate optimality most join the working set,
whose problem is solved by block coordinate descent, extrapolated from its last iterates
(Anderson) wherever that lowers the objective: on the Gram matrix, or on the columns
themselves once there are more of them than rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus._solvers.design import Design
from certus._solvers.kernels import descend_block_columns, descend_blocks
from certus._solvers.lasso import LassoGap, quadratic_gap
from certus._solvers.penalties import block_norms, operation, prox, require
from certus._solvers.problem import Solution, SolverLimits, Start
from certus._solvers.working_set import WorkingSet
from certus.certificate import Status
from certus.typing import Array

#: What this solver asks of a penalty.
NEEDS = ("value", "prox", "distance", "conjugate", "polar", "blocks")
#: Sets up to this size keep their Gram matrix.
SMALL = 512
#: Gram matrices up to this size are solved as far as rounding allows: it is cheap.
EXACT = 10_000
#: Iterates that an extrapolation is made from.
MEMORY = 5
#: Rounds of which one visits the blocks that are zero, and the gap is looked at.
EVERY = 5


class BlockProblem:
    """One problem and how far it is solved.

    Parameters
    ----------
    design : Design
        Columns, centred where there is an intercept.
    Y : ndarray of shape (n, tasks)
        Targets, centred likewise.
    penalty : term
        A sum over blocks. ``penalise`` changes it for one with the same blocks; the
        point and the working set stay.
    """

    def __init__(self, design: Design, Y: Array, penalty: Any) -> None:
        self.design, self.Y = design, Y
        self.penalise(penalty)
        self.sizes = np.bincount(self.blocks)
        self.order = np.argsort(self.blocks, kind="stable")  # columns, block by block
        self.ends = np.cumsum(self.sizes)
        self.correlation = design.t_dot(Y)
        self.reference = self._mean(Y, Y) / 2
        self.W = np.zeros((design.d, Y.shape[1]))
        self.residual = Y.copy()
        self.gradient = -self.correlation
        # Beyond as many columns as rows, columns are read faster than their products.
        self.set = WorkingSet(design, None if design.sparse else max(SMALL, design.n))
        self.chosen = np.empty(0, dtype=np.intp)  # blocks in order of arrival

    def penalise(self, penalty: Any) -> None:
        """Take another penalty; one that lacks an operation is refused by name."""
        row: Any = require("block descent", penalty, *NEEDS)
        self.penalty = row.take(penalty, np.arange(self.design.d))
        self.blocks = row.blocks(self.penalty, self.design.d)

    def start_from(self, W: Array) -> None:
        """Stand at ``W``."""
        self.W = np.array(W, dtype=np.float64)
        self.residual = self.Y - self.design.dot(self.W)
        self.gradient = -self.design.t_dot(self.residual)

    def advance(self, relative: float, tol: float) -> None:
        """Grow the working set and solve on it: to the end, once it is complete."""
        aim = 0.2 * tol
        if self._admit(self.penalty):
            aim = max(0.05 * relative, aim)
        self._solve_members(aim * self.reference)
        self._refresh()

    def gap(self) -> LassoGap:
        """P − D at the current point, with D from the rescaled residual."""
        penalty = self.penalty
        square = self._mean(self.residual, self.residual)
        cross = self._mean(self.residual, self.Y)
        primal = square / 2 + operation(penalty, "value")(penalty, self.W)
        gap = max(quadratic_gap(penalty, square, cross, self.W, self.gradient), 0.0)
        return LassoGap(primal, gap / self.reference if self.reference > 0 else 0.0)

    def _mean(self, A: Array, B: Array) -> float:
        return float(np.vdot(self.design.weighted(A), B)) / self.design.total

    def _refresh(self) -> None:
        """Residual and gradient at W: one pass over the support, one over all."""
        members = self.set.members
        on = np.flatnonzero(self.W[members].any(axis=1))
        fitted = self.set.dot(on, self.W[members[on]])
        self.residual = self.Y - fitted.reshape(self.Y.shape)
        self.gradient = -self.design.t_dot(self.residual)

    def _admit(self, penalty: Any) -> bool:
        """Grow the working set by the blocks that violate optimality most, if any."""
        violation = operation(penalty, "distance")(penalty, self.W, self.gradient)
        used = block_norms(self.W, self.blocks) > 0
        outside = np.ones(len(used), dtype=bool)
        outside[self.chosen] = False
        candidates = np.flatnonzero(outside & (violation > 0) & ~used)
        support = int(self.sizes[used].sum())
        room = max(64, 3 * support // 2, int(2 * np.sqrt(self.design.d)))
        candidates = candidates[np.argsort(-violation[candidates])]
        fits = int(np.sum(np.cumsum(self.sizes[candidates]) <= room))
        candidates = candidates[: max(1, fits)]
        new = np.union1d(candidates, np.flatnonzero(outside & used))
        if not new.size:
            return False
        if 2 * len(self.set.members) > 3 * max(512, support):
            self._forget(used)
        parts = [self.order[self.ends[b] - self.sizes[b] : self.ends[b]] for b in new]
        self.set.append(np.concatenate(parts))
        self.chosen = np.concatenate([self.chosen, new])
        return True

    def _forget(self, used: Array) -> None:
        """Drop blocks that are zero: each lengthens every step."""
        kept = used[self.chosen]
        self.set.keep(np.repeat(kept, self.sizes[self.chosen]))
        self.chosen = self.chosen[kept]

    def _solve_members(self, target: float) -> None:
        if not self.set.members.size:
            return
        if self.set.G is None:
            self.set.form_gram()
        W = np.ascontiguousarray(self.W[self.set.members].T)  # (tasks, members)
        if self.set.G is None and self.design.sparse:
            _descend_sparse(self, W, target)
        else:
            W = _descend(
                _OnGram(self) if self.set.G is not None else _OnColumns(self), W, target
            )
        self.W[self.set.members] = W.T


def solve(problem: BlockProblem, start: Start, limits: SolverLimits) -> Solution:
    """Minimise to a relative gap of ``limits.tol``, from where the problem stands."""
    if start.primal is not None:
        problem.start_from(start.primal)
    status, steps, stalls = Status.MAX_ITER, 0, 0
    found = problem.gap()
    try:
        while True:
            stop = limits.on_step(found.objective, found.relative, problem.W)
            if found.relative <= 0.5 * limits.tol:  # the verifier adds its rounding
                status = Status.SOLVED
                break
            if stop is not None or steps >= limits.max_iter:
                status = stop or status
                break
            steps += 1
            before = found
            problem.advance(found.relative, limits.tol)
            found = problem.gap()
            # Near the minimum the objective stands still long before the gap.
            higher = found.objective >= before.objective * (1 - 1e-15)
            stalls += higher and found.relative > 0.8 * before.relative
            if stalls > 4:
                status = Status.TOL_NOT_REACHED
                break
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return Solution(problem.W.copy(), found.relative, status, steps)


# -- the problem on the working set -----------------------------------------------


class _Inner:
    """The problem on the members: W is (tasks, members), ``state`` goes with it."""

    def __init__(self, problem: BlockProblem) -> None:
        members, sizes = problem.set.members, problem.sizes[problem.chosen]
        self.problem, self.penalty = problem, problem.penalty
        self.part = operation(self.penalty, "take")(self.penalty, members)
        self.starts = np.concatenate([[0], np.cumsum(sizes)])
        self.C = np.ascontiguousarray(problem.correlation[members].T)
        self.floor = 1e-15 * float(np.abs(self.C).max(initial=0.0))

    def objective(self, W: Array, state: Array) -> float:
        square, _ = self.sums(W, state)
        return square / 2 + float(operation(self.part, "value")(self.part, W.T))

    def violation(self, W: Array, state: Array) -> float:
        g = self.gradient(state)
        return float(operation(self.part, "distance")(self.part, W.T, g.T).max())

    def gap(self, W: Array, state: Array) -> float:
        square, cross = self.sums(W, state)
        return quadratic_gap(self.part, square, cross, W.T, self.gradient(state).T)

    def lower(self, new: tuple[Array, Array], old: tuple[Array, Array]) -> bool:
        """Whether one point and its state are better than another."""
        change = self.objective(*new) - self.objective(*old)
        if abs(change) > 1e-13 * self.problem.reference:
            return change < 0
        return self.violation(*new) < self.violation(*old)

    # What the two forms do in their own way.

    exact = False  # whether it is solved as far as rounding allows

    def at(self, W: Array) -> Array:
        """The state of W."""
        raise NotImplementedError

    def gradient(self, state: Array) -> Array:
        """Of the loss, (tasks, members)."""
        raise NotImplementedError

    def sums(self, W: Array, state: Array) -> tuple[float, float]:
        """Means of the squared residual, and of residual times target."""
        raise NotImplementedError

    def descend(self, W: Array, state: Array, every: bool) -> float:
        """One round in place; the largest change in units of the gradient.

        Blocks that are zero are visited if ``every``.
        """
        raise NotImplementedError


class _OnGram(_Inner):
    """The state is WG − C."""

    def __init__(self, problem: BlockProblem) -> None:
        super().__init__(problem)
        assert problem.set.G is not None
        self.G = problem.set.G
        self.curvature = _block_curvature(self.G, self.starts)
        self.exact = self.G.size <= EXACT

    def at(self, W: Array) -> Array:
        return np.asarray(W @ self.G - self.C)

    def gradient(self, state: Array) -> Array:
        return state

    def sums(self, W: Array, state: Array) -> tuple[float, float]:
        cross = 2 * self.problem.reference - float(np.vdot(self.C, W))
        return cross + float(np.vdot(W, state)), cross

    def descend(self, W: Array, state: Array, every: bool) -> float:
        shape = (self.problem.set.rows, self.starts, self.problem.chosen)
        rest = (self.curvature, W, state, every)
        return float(descend_blocks(self.penalty, *shape, *rest))


class _OnColumns(_Inner):
    """The state is the residual, (tasks, n)."""

    def __init__(self, problem: BlockProblem) -> None:
        super().__init__(problem)
        design = problem.design
        self.A = problem.set.dense().T
        self.Y = np.ascontiguousarray(problem.Y.T)
        self.h = np.broadcast_to(1.0 if design.s is None else design.s, design.n)
        self.h = self.h / design.total
        self.curvature = np.empty(len(problem.chosen))
        for b, (i, j) in enumerate(zip(self.starts, self.starts[1:])):
            A = self.A[i:j]
            self.curvature[b] = _top_eigenvalue((A * self.h) @ A.T)

    def at(self, W: Array) -> Array:
        return np.asarray(self.Y - W @ self.A)

    def gradient(self, state: Array) -> Array:
        return np.asarray(-(state * self.h) @ self.A.T)

    def sums(self, W: Array, state: Array) -> tuple[float, float]:
        weighted = state * self.h
        return float(np.vdot(weighted, state)), float(np.vdot(weighted, self.Y))

    def descend(self, W: Array, state: Array, every: bool) -> float:
        shape = (self.A, self.h, self.starts, self.problem.chosen)
        rest = (self.curvature, W, state, every)
        return float(descend_block_columns(self.penalty, *shape, *rest))


def _descend(inner: _Inner, W: Array, target: float) -> Array:
    """Epochs until the gap on the members is ``target``, with extrapolation."""
    state, largest = inner.at(W), np.inf
    history: list[Array] = []
    for turn in range(2000):
        history.append(W.copy())
        every = turn % EVERY == 0
        change = inner.descend(W, state, every)
        if every:
            largest = change
            if change <= inner.floor:
                break
        if len(history) == MEMORY + 1:
            better = _extrapolate([*history, W])
            history = []
            if better is not None:
                there = inner.at(better)
                if inner.lower((better, there), (W, state)):
                    W, state = better, there
        if turn % EVERY == 0 and inner.gap(W, state) <= target:
            state = inner.at(W)  # it drifts, and rows in float32 add to that
            done = not inner.exact or largest <= 1e3 * inner.floor
            if done and inner.gap(W, state) <= target:
                break
        elif turn % 20 == 19:
            state = inner.at(W)
    return W


def _descend_sparse(problem: BlockProblem, W: Array, target: float) -> None:
    """Block descent on sparse columns, for sets without a Gram matrix, in place."""
    held, design = problem.set, problem.design
    sizes = problem.sizes[problem.chosen]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    residual = problem.residual.copy()
    for _ in range(20):
        change = 0.0
        for k, b in enumerate(problem.chosen):
            cut = slice(starts[k], starts[k + 1])
            A = held.columns[:, cut].toarray() - held.off[cut]
            sA = design.weighted(A) / design.total
            curvature = _top_eigenvalue(A.T @ sA)
            if curvature <= 0.0:
                continue
            x = W[:, cut] + (residual.T @ sA) / curvature
            size = float(np.linalg.norm(x))
            kept = prox(problem.penalty, int(b), size, 1 / curvature)
            new = x * (kept / max(size, 1e-300))
            residual -= A @ (new - W[:, cut]).T
            change = max(change, curvature * float(np.abs(new - W[:, cut]).max()))
            W[:, cut] = new
        if change * float(np.abs(W).sum()) <= 0.1 * target:
            break


def _block_curvature(G: Array, starts: Array) -> Array:
    """The largest eigenvalue of each diagonal block."""
    sizes = np.diff(starts)
    out = np.diag(G)[starts[:-1]].copy()
    for b in np.flatnonzero(sizes > 1):
        cut = slice(starts[b], starts[b + 1])
        out[b] = _top_eigenvalue(G[cut, cut])
    return out


def _top_eigenvalue(G: Array) -> float:
    """Not below the largest eigenvalue."""
    return float(np.linalg.eigvalsh(G)[-1] * (1 + 1e-12))


def _extrapolate(history: list[Array]) -> Array | None:
    """The combination of iterates whose steps cancel best (Anderson)."""
    points = np.array([point.ravel() for point in history])
    steps = np.diff(points, axis=0)
    inner = steps @ steps.T
    scale = float(np.trace(inner))
    if scale <= 0.0:
        return None
    inner.flat[:: len(inner) + 1] += 1e-12 * scale
    try:
        weights = np.linalg.solve(inner, np.ones(len(inner)))
    except np.linalg.LinAlgError:
        return None
    if not np.isfinite(weights).all() or weights.sum() == 0.0:
        return None
    better = (weights / weights.sum()) @ points[1:]
    better[points[-1] == 0.0] = 0.0
    return np.asarray(better.reshape(history[0].shape))
