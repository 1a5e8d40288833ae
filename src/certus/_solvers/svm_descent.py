"""Support vector machines on large sparse data: dual descent, one row at a time.

With β = −s∘u/(l2·Σs) the minimum has w = Σ βᵢxᵢ, and the dual is a quadratic over a
box. A sweep costs two passes over the stored values; rows that sit firmly at a corner
leave until the others are solved. Every so often the duality gap of the whole problem
decides, and the scores taken for it tell which rows come back. Memory: X by rows, at
most half of it again, and a few numbers per row and column.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus._solvers.problem import Solution, SolverLimits, Start
from certus._solvers.svm_kernels import descend
from certus._solvers.svm_problem import SvmProblem
from certus.certificate import Status
from certus.typing import Array

#: Stored values after which a sweep returns, so that Ctrl-C and time limits are obeyed.
CHUNK = 20_000_000
#: Rows that are visited one after another.
RUN = 16


def gap_of(problem: SvmProblem, z: Array, u: Array) -> tuple[float, float]:
    """Mean loss at z, and the mean of ℓ(z) + ℓ*(u) − uz: P − D where w is Σ βx."""
    box, s = problem.box, problem.rows.s
    r = z - box.t
    over = np.maximum(np.abs(r) - box.epsilon, 0.0)
    side = np.where(r > 0, box.high, -box.low)
    part = u * r - box.epsilon * np.abs(u)
    if box.width:
        loss = np.where(side > 0, over * over, 0.0)
        part -= 0.5 * box.width * u * u
    else:
        loss = over * side
    total = problem.rows.total
    return float(s @ loss) / total, float(s @ (loss - part)) / total


def _by_row(X: Any, starts: Array, stops: Array) -> tuple[Array, ...]:
    """Where each row starts and stops, its columns (unsigned) and its values."""
    return starts, stops, X.indices.view(f"u{X.indices.itemsize}"), X.data


class _SVMDescent:
    """State of one solve: who is active, and what the last sweeps found."""

    def __init__(self, problem: SvmProblem) -> None:
        rows, box = problem.rows, problem.box
        self.problem = problem
        self.X = rows.X.astype(np.float64, copy=False)
        self.csr = _by_row(self.X, self.X.indptr[:-1], self.X.indptr[1:])
        share = rows.s / (problem.l2 * rows.total)
        with np.errstate(invalid="ignore", divide="ignore"):
            self.low = np.where(share > 0, -share * box.high, 0.0)
            self.high = np.where(share > 0, -share * box.low, 0.0)
            self.width = np.where(share > 0, box.width / share, 0.0)
        self.share, self.square = share, rows.squares()
        self.beta, self.w = np.zeros(rows.n), np.zeros(rows.d + 1)
        self.every = np.flatnonzero(share > 0)
        self.active = self.every
        self.random = np.random.default_rng(0)
        self.sizes = np.diff(self.X.indptr) + 1
        self.cut = np.inf

    def sweep(self) -> tuple[float, float]:
        """Visit the active rows in random order; largest violation, and the work."""
        order = self._shuffled()
        keep = np.ones(len(order), dtype=np.bool_)
        ends = np.searchsorted(
            np.cumsum(self.sizes[order]), np.arange(1, 1 + self._pieces(order)) * CHUNK
        )
        worst, start = 0.0, 0
        for end in [*ends[:-1], len(order)]:
            part = slice(start, int(end))
            worst = max(worst, self._visit(order[part], keep[part]))
            start = int(end)
        stays = np.zeros(len(self.beta), dtype=np.bool_)
        stays[order[keep]] = True
        self.active = np.flatnonzero(
            stays
        )  # in their order, which is faster than sorting
        self.cut = worst if worst > 0 else np.inf
        return worst, float(self.sizes[order].sum())

    def _shuffled(self) -> Array:
        """The active rows, short runs of neighbours in random order.

        Neighbours are next to each other in memory, where the processor reads ahead.
        """
        whole = len(self.active) // RUN * RUN
        runs = self.active[:whole].reshape(-1, RUN)
        shuffled = self.random.permutation(runs).ravel()
        return np.concatenate([shuffled, self.active[whole:]])

    def _pieces(self, order: Array) -> int:
        return 1 + int(self.sizes[order].sum()) // CHUNK

    def _visit(self, order: Array, keep: Array) -> float:
        box = self.problem.box
        return float(
            descend(
                *(*self.csr, order, box.t, self.low, self.high, box.epsilon),
                *(self.width, self.square, self.problem.rows.scale),
                *(self.beta, self.w, self.cut, keep),
            )
        )

    def dual(self) -> Array:
        """U = −β·l2·Σs/s."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.share > 0, -self.beta / self.share, 0.0)

    def restore(self, z: Array) -> None:
        """All rows take part again, except those that scores z show at a corner."""
        box, b = self.problem.box, self.beta
        g = z - box.t + self.width * b
        up = np.where(b >= 0.0, g + box.epsilon, g - box.epsilon)
        down = np.where(b > 0.0, g + box.epsilon, g - box.epsilon)
        rising, falling = b < self.high, b > self.low
        near = (rising & (up <= self.cut)) | (falling & (-down <= self.cut))
        self.active = np.flatnonzero(near & (self.share > 0))
        if not len(self.active):
            self.active, self.cut = self.every, np.inf
        # Few rows are read faster from a copy in which they follow one another.
        few = self.X if 2 * len(self.active) > len(b) else self.X[self.active]
        starts, stops = self.X.indptr[:-1], self.X.indptr[1:]
        if few is not self.X:
            starts, stops = np.zeros((2, len(b)), dtype=few.indptr.dtype)
            starts[self.active], stops[self.active] = few.indptr[:-1], few.indptr[1:]
        self.csr = _by_row(few, starts, stops)


def solve(problem: SvmProblem, start: Start, limits: SolverLimits) -> Solution:
    """Minimise from zero; X must be CSR, the intercept not free."""
    tol = limits.tol
    state, status, sweeps = _SVMDescent(problem), Status.MAX_ITER, 0
    reference, gap, work = problem.reference() or 1.0, np.inf, 0.0
    everything = float(state.sizes.sum())
    # A gap far above the target is not worth a pass over the data.
    size = float(np.abs(problem.box.t).max(initial=0.0)) or 1.0
    level = min(0.3, 30 * np.sqrt(tol)) * size
    try:
        while sweeps < limits.max_iter:
            sweeps += 1
            worst, done = state.sweep()
            work += done
            reached = worst <= level or not len(state.active)
            if not reached and work < 6 * everything:
                continue
            z = problem.rows.dot(state.w)
            gap, objective = _measure(problem, state, z, reference)
            work = 0.0
            stop = limits.on_step(objective, gap, state.w)
            if gap <= 0.9 * tol:
                status = Status.SOLVED
                break
            if stop is not None:
                status = stop
                break
            if worst == 0.0 and len(state.active) == len(state.every):
                status = Status.TOL_NOT_REACHED
                break
            if reached:
                # The gap falls as the violations do, or as their squares.
                power = 0.25 if problem.box.width else 0.9
                fall = min(0.75, max(0.1, (0.9 * tol / gap) ** power))
                level = min(level, max(worst, 1e-300)) * fall
                state.restore(z)
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return Solution(state.w, gap, status, sweeps, state.dual())


def _measure(
    problem: SvmProblem, state: _SVMDescent, z: Array, reference: float
) -> tuple[float, float]:
    loss, gap = gap_of(problem, z, state.dual())
    objective = loss + problem.l2 * float(state.w @ state.w) / 2
    return max(gap, 0.0) / reference, objective
