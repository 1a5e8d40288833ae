"""Least squares with a penalty on the norms of blocks, by working sets.

    min over W:  ½·Σ sᵢ‖yᵢ − aᵢᵀW‖²/Σs + Ω(W)

W has one row for each column of X and one column for each task; a block is a group of
rows of W (group lasso: one task; multi-task lasso: every row is a block). As in
``certus.convex.lasso``, the blocks that violate optimality most join the working set,
whose problem is solved on its Gram matrix: block coordinate descent, extrapolated from
its last iterates (Anderson) wherever that lowers the objective. Sets beyond
``GRAM_SIDE`` columns descend on the columns themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.certificate import Status
from certus.convex.design import Array, Design
from certus.convex.kernels import descend_blocks
from certus.convex.lasso import Gap, quadratic_gap
from certus.convex.penalties import block_norms, operation, prox, require
from certus.convex.problem import Limits, Solution, Start
from certus.convex.working_set import WorkingSet

#: What this solver asks of a penalty.
NEEDS = ("value", "prox", "distance", "conjugate", "polar", "blocks")
#: Gram matrices up to this size are solved as far as rounding allows: nobody notices.
SMALL = 10_000
#: Iterates that an extrapolation is made from.
MEMORY = 5


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
        order = np.argsort(self.blocks, kind="stable")
        self.columns = np.split(order, np.cumsum(self.sizes)[:-1])
        self.correlation = design.t_dot(Y)
        self.reference = self._mean(Y, Y) / 2
        self.W = np.zeros((design.d, Y.shape[1]))
        self.residual = Y.copy()
        self.gradient = -self.correlation
        self.set = WorkingSet(design)
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

    def advance(self, aim: float) -> None:
        """Grow the working set and solve on it."""
        self._admit(self.penalty)
        self._solve_members(self.penalty, aim * self.reference)
        self._refresh()

    def gap(self) -> Gap:
        """P − D at the current point, with D from the rescaled residual."""
        penalty = self.penalty
        square = self._mean(self.residual, self.residual)
        cross = self._mean(self.residual, self.Y)
        primal = square / 2 + operation(penalty, "value")(penalty, self.W)
        gap = max(quadratic_gap(penalty, square, cross, self.W, self.gradient), 0.0)
        return Gap(primal, gap / self.reference if self.reference > 0 else 0.0)

    def _mean(self, A: Array, B: Array) -> float:
        return float(np.vdot(self.design.weighted(A), B)) / self.design.total

    def _refresh(self) -> None:
        """Residual and gradient at W: one pass over the support, one over all."""
        members = self.set.members
        on = np.flatnonzero(self.W[members].any(axis=1))
        fitted = self.set.dot(on, self.W[members[on]])
        self.residual = self.Y - fitted.reshape(self.Y.shape)
        self.gradient = -self.design.t_dot(self.residual)

    def _admit(self, penalty: Any) -> None:
        """Grow the working set by the blocks that violate optimality most."""
        violation = operation(penalty, "distance")(penalty, self.W, self.gradient)
        used = block_norms(self.W, self.blocks) > 0
        outside = np.ones(len(used), dtype=bool)
        outside[self.chosen] = False
        candidates = np.flatnonzero(outside & (violation > 0) & ~used)
        support = int(self.sizes[used].sum())
        room = max(64, support, int(2 * np.sqrt(self.design.d)))
        candidates = candidates[np.argsort(-violation[candidates])]
        fits = int(np.sum(np.cumsum(self.sizes[candidates]) <= room))
        candidates = candidates[: max(1, fits)]
        new = np.union1d(candidates, np.flatnonzero(outside & used))
        if not new.size:
            return
        if 2 * len(self.set.members) > 3 * max(512, support):
            self._forget(used)
        self.set.append(np.concatenate([self.columns[b] for b in new]))
        self.chosen = np.concatenate([self.chosen, new])

    def _forget(self, used: Array) -> None:
        """Drop blocks that are zero: each lengthens every step."""
        kept = used[self.chosen]
        self.set.keep(np.repeat(kept, self.sizes[self.chosen]))
        self.chosen = self.chosen[kept]

    # -- the problem on the working set -----------------------------------------

    def _solve_members(self, penalty: Any, target: float) -> None:
        members = self.set.members
        if not members.size:
            return
        if self.set.G is None:
            self.set.form_gram()
        starts = np.concatenate([[0], np.cumsum(self.sizes[self.chosen])])
        W = np.ascontiguousarray(self.W[members].T)  # (tasks, members)
        if self.set.G is None:
            self._descend_columns(penalty, W, starts, target)
        else:
            part = operation(penalty, "take")(penalty, members)
            W = self._descend_gram(penalty, part, W, starts, target)
        self.W[members] = W.T

    def _descend_gram(
        self, penalty: Any, part: Any, W: Array, starts: Array, target: float
    ) -> Array:
        G, C = self.set.G, np.ascontiguousarray(self.correlation[self.set.members].T)
        assert G is not None
        curvature = _block_curvature(G, starts)
        g = W @ G - C
        history: list[Array] = []
        floor = 1e-15 * float(np.abs(C).max(initial=0.0))

        def objective(W: Array, g: Array) -> float:
            value = operation(part, "value")(part, W.T)
            return float(np.vdot(W, g - C)) / 2 + value

        def violation(W: Array, g: Array) -> float:
            return float(operation(part, "distance")(part, W.T, g.T).max())

        def lower(new: Array, pull: Array, W: Array, g: Array) -> bool:
            change = objective(new, pull) - objective(W, g)
            noise = 1e-13 * self.reference
            if abs(change) > noise:
                return change < 0
            return violation(new, pull) < violation(W, g)

        def gap_at(W: Array, g: Array) -> float:
            cross = 2 * self.reference - float(np.vdot(C, W))
            square = cross + float(np.vdot(W, g))
            return quadratic_gap(part, square, cross, W.T, g.T)

        for turn in range(2000):
            history.append(W.copy())
            change = descend_blocks(
                *(penalty, self.set.rows, starts, self.chosen),
                *(curvature, W, g, 1, floor),
            )
            if change <= floor:
                break
            if len(history) == MEMORY + 1:
                history.append(W.copy())
                better = _extrapolate(history)
                history = []
                if better is not None:
                    pull = better @ G - C
                    if lower(better, pull, W, g):
                        W, g = better, pull
            if turn % 5 == 4 and gap_at(W, g) <= target:
                g = W @ G - C  # rows in float32 let it drift
                done = G.size > SMALL or change <= 1e3 * floor
                if done and gap_at(W, g) <= target:
                    break
            elif turn % 20 == 19:
                g = W @ G - C
        return W

    def _descend_columns(
        self, penalty: Any, W: Array, starts: Array, target: float
    ) -> None:
        """Block descent on the columns, for sets without a Gram matrix, in place."""
        held, design = self.set, self.design
        columns: Any = held.columns if design.sparse else held.dense()
        residual = self.residual.copy()
        for _ in range(20):
            change = 0.0
            for k, b in enumerate(self.chosen):
                cut = slice(starts[k], starts[k + 1])
                A = columns[:, cut]
                A = (A.toarray() - held.off[cut]) if design.sparse else A
                sA = design.weighted(A) / design.total
                curvature = float(np.linalg.norm(A.T @ sA, 2))
                if curvature <= 0.0:
                    continue
                x = W[:, cut] + (residual.T @ sA) / curvature
                size = float(np.linalg.norm(x))
                kept = prox(penalty, int(b), size, 1 / curvature)
                new = x * (kept / max(size, 1e-300))
                residual -= A @ (new - W[:, cut]).T
                change = max(change, curvature * float(np.abs(new - W[:, cut]).max()))
                W[:, cut] = new
            if change * float(np.abs(W).sum()) <= 0.1 * target:
                break


def solve(problem: BlockProblem, start: Start, limits: Limits) -> Solution:
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
            problem.advance(max(0.05 * found.relative, 0.2 * limits.tol))
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


def _block_curvature(G: Array, starts: Array) -> Array:
    """The largest eigenvalue of each diagonal block."""
    sizes = np.diff(starts)
    out = np.diag(G)[starts[:-1]].copy()
    for b in np.flatnonzero(sizes > 1):
        block = G[starts[b] : starts[b + 1], starts[b] : starts[b + 1]]
        out[b] = np.linalg.eigvalsh(block)[-1] * (1 + 1e-12)
    return out


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
