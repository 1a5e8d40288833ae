"""Lasso and elastic net by working sets and the Gram matrix of the working set.

    min over w:  ½·Σ sᵢ(yᵢ − aᵢᵀw)²/Σs + l1·‖w‖₁ + ½·l2·‖w‖²

A pass over all columns gives the gradient and the duality gap; the columns that
violate optimality most join the working set, whose problem is solved on its Gram
matrix: coordinate descent to find the support and signs, then one linear system that
is exact for that support (the objective is quadratic there). Paths are warm-started
and keep the Gram matrix. Memory: X, the columns of the working set and the square of
its size; sets beyond ``GRAM_SIDE`` run coordinate descent on the columns themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, sparse

from certus.certificate import Status
from certus.convex.blas import cholesky
from certus.convex.design import Array, Design, copy_columns
from certus.convex.kernels import descend_columns, descend_gram, descend_sparse
from certus.convex.problem import OnStep, Solution, keep_going
from certus.terms import L1, ElasticNet

#: Largest working set that keeps its Gram matrix (side² · 8 bytes).
GRAM_SIDE = 6_000
#: Working sets from this size on descend on a float32 copy, unless columns are so
#: small or large that float32 could not hold their squares.
HALF_SIDE, TINY, HUGE = 1_000, 1e-30, 1e30
#: Sparse working sets up to this size keep one from the start: exact, and cheap.
SMALL = 256
#: Coordinate-descent epochs between two exact solves.
EPOCHS = 10
#: Epochs on sparse columns between two looks at the gap; all but one skip the zeros.
SPARSE_EPOCHS = 8


class Gap(NamedTuple):
    """Primal value, duality gap relative to ``reference``, and what it rests on."""

    objective: float
    relative: float


class QuadraticSolver:
    """Holds the data of one lasso or elastic net between penalties.

    Parameters
    ----------
    design : Design
        Columns, centred where there is an intercept.
    y : ndarray of shape (n,)
        Targets, centred likewise.
    """

    def __init__(self, design: Design, y: Array) -> None:
        self.design, self.y = design, y
        self.correlation = design.t_dot(y)
        self.reference = float(design.average(y * y)) / 2
        self.w = np.zeros(design.d)
        self.residual = y.copy()
        self.gradient = -self.correlation  # of the loss, at w
        self.set = WorkingSet(design)

    def start_from(self, w: Array) -> None:
        """Begin at ``w`` instead of zero."""
        self.w = np.array(w, dtype=np.float64)
        self.residual = self.y - self.design.dot(self.w)
        self.gradient = -self.design.t_dot(self.residual)

    def solve(
        self,
        l1: float,
        l2: float,
        tol: float,
        max_iter: int,
        on_step: OnStep = keep_going,
    ) -> Solution:
        """Minimise at one penalty, starting from where the last call ended."""
        status, steps = Status.MAX_ITER, 0
        found = self.gap(l1, l2)
        try:
            while True:
                stop = on_step(found.objective, found.relative, self.w)
                if found.relative <= 0.9 * tol:
                    status = Status.SOLVED
                    break
                if stop is not None:
                    status = stop
                    break
                if steps >= max_iter:
                    break
                steps += 1
                before = found.objective
                self._admit(l1, l2)
                aim = max(self._patience() * found.relative, 0.3 * tol)
                stalled = not self._solve_members(l1, l2, aim * self.reference)
                self._refresh()
                found = self.gap(l1, l2)
                if stalled and found.objective >= before * (1 - 1e-15) and steps > 3:
                    status = Status.TOL_NOT_REACHED
                    break
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        return Solution(self.w.copy(), found.relative, status, steps)

    def gap(self, l1: float, l2: float) -> Gap:
        """P − D at the current point, with D from the rescaled residual."""
        square = float(self.design.average(self.residual**2))
        w = self.w
        omega = float(l1 * np.abs(w).sum() + l2 * (w @ w) / 2)
        primal = square / 2 + omega
        # The dual point −t·r needs Σ s y r, which is cheap and exact.
        cross = float(self.design.average(self.residual * self.y))
        gap = max(_gap(square, cross, w, self.gradient, l1, l2), 0.0)
        return Gap(primal, gap / self.reference if self.reference > 0 else 0.0)

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

    def _admit(self, l1: float, l2: float) -> None:
        """Grow the working set by the columns that violate optimality most."""
        support = np.flatnonzero(self.w)
        violation = np.abs(self.gradient + l2 * self.w) - l1
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

    def _solve_members(self, l1: float, l2: float, target: float) -> bool:
        members = self.set.members
        if not members.size:
            return False
        w = self.w[members].copy()
        if self.set.G is None and len(members) <= SMALL:
            self.set.form_gram()
        if self.set.G is not None:
            c = self.correlation[members]

            def done(w: Array, g: Array) -> bool:
                cross = 2 * self.reference - float(c @ w)
                return _gap(cross + float(w @ g), cross, w, g, l1, l2) <= target

            moved = solve_on_gram(self.set.G, c, w, l1, l2, done, self.set.rows)
        elif self.design.sparse:
            moved = self._descend_sparse(l1, l2, w, target)
        else:
            moved = self._descend_dense(l1, l2, w, target)
        self.w[members] = w
        return moved

    def _descend_sparse(self, l1: float, l2: float, w: Array, target: float) -> bool:
        """Coordinate descent on CSC columns; a set that stays slow gets its Gram."""
        design, held = self.design, self.set
        penalty: Any = ElasticNet(l1, l2) if l2 > 0 else L1(l1)
        C, mean = held.columns, design.mean[held.members]
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
            if _gap(pull @ true, pull @ self.y, w, g, l1, l2) <= target:
                return True
        held.form_gram()
        return True

    def _descend_dense(self, l1: float, l2: float, w: Array, target: float) -> bool:
        """Coordinate descent on dense columns, for sets without a Gram matrix."""
        design, held = self.design, self.set
        penalty: Any = ElasticNet(l1, l2) if l2 > 0 else L1(l1)
        mean = design.mean[held.members]
        h = (np.ones(design.n) if design.s is None else design.s) / design.total
        g0 = self.gradient[held.members].copy()
        delta = np.zeros(design.n)
        order = np.arange(len(held.members))
        for _ in range(20):
            change, _ = descend_columns(
                *(penalty, held.dense(), mean, h, held.curvature),
                *(g0, w, delta, order, 5, 0.0),
            )
            if change * np.abs(w).max(initial=0.0) <= 0.01 * target:
                break
        return True


class WorkingSet:
    """Columns of a design and their Gram matrix, in buffers that grow by doubling.

    Parameters
    ----------
    design : Design
        Where the columns come from.
    """

    def __init__(self, design: Design) -> None:
        self.design = design
        self.members = np.empty(0, dtype=np.intp)  # in order of arrival
        self.inside = np.zeros(design.d, dtype=bool)
        # Sparse columns are cheap to descend on; their Gram matrix comes if need be.
        self._gram: Array | None = None if design.sparse else np.empty((0, 0))
        self._half, self._halved = np.empty((0, 0), dtype=np.float32), 0
        self.columns: Any = None if design.sparse else np.empty((0, design.n))
        self.curvature = np.empty(0)
        self._h = (np.ones(design.n) if design.s is None else design.s) / design.total

    @property
    def G(self) -> Array | None:
        """Gram matrix of the members, or None where there are too many."""
        k = len(self.members)
        return None if self._gram is None else self._gram[:k, :k]

    @property
    def rows(self) -> Array:
        """Contiguous rows to descend along, which begin with those of ``G``.

        In float32 for large sets: descent waits for memory there.
        """
        k, old, size = len(self.members), self._halved, self.curvature
        assert self._gram is not None
        if k < HALF_SIDE or size.min() < TINY or size.max() > HUGE:
            return self._gram
        if old < k:
            self._half = H = grown(self._half, old, k)
            H[old:k, :k] = self._gram[old:k, :k]
            H[:old, old:k] = H[old:k, :old].T
            self._halved = k
        return self._half

    def dense(self) -> Array:
        """The members' dense columns, Fortran-ordered."""
        return self.columns[: len(self.members)].T

    def form_gram(self) -> None:
        """Gram matrix of all members, kept from now on, where it is small enough."""
        if len(self.members) <= GRAM_SIDE:
            mean = self.design.mean[self.members]
            self._gram = self.design.cross(self.columns, mean, self.columns, mean)
            self._halved = 0

    def dot(self, which: Array, values: Array) -> Array:
        """Centred columns at positions ``which``, times ``values``."""
        if not which.size:
            return np.zeros(self.design.n)
        if self.design.sparse:
            z = self.columns[:, which] @ values
        else:
            z = values @ self.columns[which]
        return np.asarray(z) - self.design.mean[self.members[which]] @ values

    def append(self, new: Array) -> None:
        """Add columns and their inner products with the members."""
        design, k, m = self.design, len(self.members), len(new)
        if design.sparse:
            fresh = design.X[:, new]
        else:
            self.columns = grown(self.columns, k, k + m, design.n)
            fresh = self.columns[k : k + m].T
            copy_columns(design.X, new, fresh.T)
        if k + m > GRAM_SIDE:
            self._gram = None
        if self._gram is not None:
            mean_new, mean_old = design.mean[new], design.mean[self.members]
            old = self.columns if design.sparse else self.columns[:k].T
            self._gram = G = grown(self._gram, k, k + m)
            if k:
                G[k : k + m, :k] = design.cross(fresh, mean_new, old, mean_old)
                G[:k, k : k + m] = G[k : k + m, :k].T
            G[k : k + m, k : k + m] = design.cross(fresh, mean_new, fresh, mean_new)
        if design.sparse:
            parts = [fresh] if self.columns is None else [self.columns, fresh]
            self.columns = sparse.hstack(parts, format="csc")
        if design.sparse:
            size = np.asarray(fresh.multiply(fresh).T @ self._h)
        else:
            size = np.einsum("ij,ij,j->i", fresh.T, fresh.T, self._h)
        size = size - design.mean[new] ** 2 * design.centred
        self.curvature = np.concatenate([self.curvature, size])
        self.members = np.concatenate([self.members, new])
        self.inside[new] = True

    def keep(self, which: Array) -> None:
        """Keep the members marked in ``which``."""
        on = np.flatnonzero(which)
        self.inside[self.members[~which]] = False
        self.members, self.curvature = self.members[on], self.curvature[on]
        k, self._halved = len(on), 0
        if self._gram is not None:
            self._gram[:k, :k] = self._gram[np.ix_(on, on)]
        if self.design.sparse:
            self.columns = self.columns[:, on]
        else:
            self.columns[:k] = self.columns[on]


def grown(buffer: Array, used: int, rows: int, width: int | None = None) -> Array:
    """A buffer of at least ``rows`` rows; square unless a ``width`` is given.

    Memory that is not written to costs nothing, so the first is generous.
    """
    if rows <= len(buffer):
        return buffer
    side = max(rows, 2 * len(buffer), 256)
    out = np.empty((side, side if width is None else width), dtype=buffer.dtype)
    columns = used if width is None else width
    out[:used, :columns] = buffer[:used, :columns]
    return out


def solve_on_gram(
    G: Array,
    c: Array,
    w: Array,
    l1: float,
    l2: float,
    done: Callable[[Array, Array], bool],
    rows: Array | None = None,
) -> bool:
    """Minimise ½wᵀGw − cᵀw + Ω(w) in place until ``done(w, Gw − c)``.

    Coordinate descent finds signs; once they settle, one linear system is exact for
    them. ``rows`` begin with G's, contiguous and perhaps in float32: the gradient then
    drifts by the rounding of the steps taken, and is taken from G itself now and again.
    Returns whether anything moved.
    """
    penalty: Any = ElasticNet(l1, l2) if l2 > 0 else L1(l1)
    size, rows = len(w), np.ascontiguousarray(G) if rows is None else rows
    g = G @ w - c
    floor = 1e-15 * max(l1, float(np.abs(c).max(initial=0.0)))
    signs, moved = np.zeros(size), False
    # An epoch costs size², the linear system support³/3: fewer epochs on large sets.
    epochs = max(3, EPOCHS * 300 // max(300, size))
    for turn in range(500):
        if turn % 10 == 9:
            np.subtract(G @ w, c, out=g)
        change, _ = descend_gram(penalty, rows, w, g, size, epochs, floor)
        moved = moved or change > 0
        if change <= floor or done(w, g):
            break
        now = np.sign(w)
        settled = np.array_equal(now, signs) or turn % 10 == 9
        if settled and _settle(G, c, w, g, l1, l2):
            np.subtract(G @ w, c, out=g)
            if done(w, g):
                break
            now = np.sign(w)
        signs = now
    return moved


def _gap(
    square: float, cross: float, w: Array, g: Array, l1: float, l2: float
) -> float:
    """P − D from the mean of r², the mean of ry, w and the gradient of the loss."""
    primal = square / 2 + l1 * float(np.abs(w).sum()) + l2 * float(w @ w) / 2
    size = np.abs(g)
    if l2 > 0:
        over = np.maximum(size - l1, 0.0)
        return primal - (cross - square / 2 - float(over @ over) / (2 * l2))
    top = float(size.max(initial=0.0))
    t = 1.0 if top <= l1 else l1 / top
    return primal - (t * cross - t * t * square / 2)


def _settle(G: Array, c: Array, w: Array, g: Array, l1: float, l2: float) -> bool:
    """Newton on the support: jump to the exact minimiser of its orthant.

    Signs that would flip are set to zero if that lowers the objective, else the step
    ends at the first of them. False where the system is too ill-conditioned.
    """
    support = np.flatnonzero(w)
    if not support.size:
        return False
    current, sign = w[support], np.sign(w[support])
    M = G[np.ix_(support, support)]
    M.flat[:: len(M) + 1] += l2
    factor = cholesky(M)
    if factor is None:
        return False
    diagonal = np.diag(factor)
    if diagonal.min() <= 1e-7 * diagonal.max():
        return False
    goal, _ = linalg.lapack.dpotrs(factor, c[support] - l1 * sign, lower=0)
    flips = goal * sign <= 0
    if flips.any():
        clipped = np.where(flips, 0.0, goal)
        d = clipped - current
        bend = linalg.blas.dtrmv(factor, d)
        change = d @ (g[support] + l2 * current) + (bend @ bend) / 2
        change += l1 * (np.abs(clipped).sum() - np.abs(current).sum())
        if change < 0:
            goal = clipped
        else:
            step = np.min(current[flips] / (current[flips] - goal[flips]))
            goal = current + step * (goal - current)
            goal[goal * sign <= 1e-14 * np.abs(current)] = 0.0
    w[support] = goal
    return True
