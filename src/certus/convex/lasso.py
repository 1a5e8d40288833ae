"""Lasso and elastic net by working sets and the Gram matrix of the working set.

    min over w:  ½·Σ sᵢ(yᵢ − aᵢᵀw)²/Σs + l1·‖w‖₁ + ½·l2·‖w‖²

A pass over all columns gives the gradient and the duality gap; the columns that
violate optimality most join the working set, whose problem is solved on its Gram
matrix: coordinate descent to find the support and signs, then one linear system that is exact
for that support (the objective is quadratic there). Paths are warm-started and keep
the Gram matrix. Memory: X, plus the square of the working set; sets beyond
``GRAM_SIDE`` columns run coordinate descent on the columns themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from certus.certificate import Status
from certus.convex.design import Array, Design
from certus.convex.kernels import descend_columns, descend_gram
from certus.convex.problem import OnStep, Solution, keep_going
from certus.terms import L1, ElasticNet

#: Largest working set that keeps its Gram matrix (side² · 8 bytes).
GRAM_SIDE = 6_000
#: Coordinate-descent epochs between two exact solves.
EPOCHS = 10


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
        self.members = np.empty(0, dtype=np.intp)  # working set, in order of arrival
        self.position = np.full(design.d, -1, dtype=np.intp)
        self.columns: Any = None
        self.G = np.empty((0, 0))

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
                aim = max(0.3 * found.relative if len(self.members) else 0.0, 0.3 * tol)
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
        size = np.abs(self.gradient)
        if l2 > 0:
            over = np.maximum(size - l1, 0.0)
            dual = cross - square / 2 - float(over @ over) / (2 * l2)
        else:
            top = float(size.max(initial=0.0))
            t = 1.0 if top <= l1 else l1 / top
            dual = t * cross - t * t * square / 2
        gap = max(primal - dual, 0.0)
        return Gap(primal, gap / self.reference if self.reference > 0 else 0.0)

    def _refresh(self) -> None:
        """Residual and gradient at w: one pass over the support, one over all."""
        members = self.members
        values = self.w[members]
        on = np.flatnonzero(values)
        if self.columns is not None and on.size:
            z = self.columns[:, on] @ values[on]
            if self.design.centred:
                z = z - self.design.mean[members[on]] @ values[on]
            self.residual = self.y - z
        else:
            self.residual = self.y.copy()
        self.gradient = -self.design.t_dot(self.residual)

    def _admit(self, l1: float, l2: float) -> None:
        """Grow the working set by the columns that violate optimality most."""
        support = np.flatnonzero(self.w)
        violation = np.abs(self.gradient + l2 * self.w) - l1
        outside = self.position < 0
        missing = support[outside[support]]
        candidates = np.flatnonzero(outside & (violation > 0))
        room = max(64, len(support))
        if len(candidates) > room:
            best = np.argpartition(violation[candidates], -room)[-room:]
            candidates = candidates[best]
        new = np.union1d(missing, candidates)
        if not new.size:
            return
        if len(self.members) > 2 * max(256, len(support)) and self.G.size:
            self._forget(support)
        self._append(new)

    def _forget(self, support: Array) -> None:
        """Drop members that are zero and far from entering; keeps paths lean."""
        size = np.abs(self.gradient[self.members])
        cut = np.quantile(size, 0.5)
        keep = (self.w[self.members] != 0) | (size >= cut)
        self.position[self.members[~keep]] = -1
        self.members = self.members[keep]
        self.position[self.members] = np.arange(len(self.members))
        self.columns = self.columns[:, np.flatnonzero(keep)]
        if self.G.size:
            self.G = np.ascontiguousarray(self.G[np.ix_(keep, keep)])

    def _append(self, new: Array) -> None:
        design = self.design
        fresh = design.columns(new)
        mean_new, mean_old = design.mean[new], design.mean[self.members]
        k, m = len(self.members), len(new)
        if k + m <= GRAM_SIDE and (k == 0 or self.G.size):
            G = np.empty((k + m, k + m))
            G[:k, :k] = self.G
            if k:
                G[k:, :k] = design.cross(fresh, mean_new, self.columns, mean_old)
                G[:k, k:] = G[k:, :k].T
            G[k:, k:] = design.cross(fresh, mean_new, fresh, mean_new)
            self.G = G
        else:
            self.G = np.empty((0, 0))
        self.columns = fresh if k == 0 else _beside(self.columns, fresh)
        self.members = np.concatenate([self.members, new])
        self.position[new] = np.arange(k, k + m)

    # -- the problem on the working set -----------------------------------------

    def _solve_members(self, l1: float, l2: float, target: float) -> bool:
        members = self.members
        if not members.size:
            return False
        w = self.w[members].copy()
        if not self.G.size:
            moved = self._descend_on_columns(l1, l2, w, target)
        else:
            c = self.correlation[members]

            def done(w: Array, g: Array) -> bool:
                return _gram_gap(c, w, g, l1, l2, self.reference) <= target

            moved = solve_on_gram(self.G, c, w, l1, l2, done)
        self.w[members] = w
        return moved

    def _descend_on_columns(
        self, l1: float, l2: float, w: Array, target: float
    ) -> bool:
        design, members = self.design, self.members
        penalty: Any = ElasticNet(l1, l2) if l2 > 0 else L1(l1)
        X = self.columns.toarray() if design.sparse else self.columns
        mean = design.mean[members]
        h = (np.ones(design.n) if design.s is None else design.s) / design.total
        curvature = np.einsum("ij,ij,i->j", X, X, h) - mean**2 * design.centred
        g0 = self.gradient[members].copy()
        delta = np.zeros(design.n)
        order = np.arange(len(members))
        for _ in range(20):
            change, _ = descend_columns(
                penalty, X, mean, h, curvature, g0, w, delta, order, 5, 0.0
            )
            if change * np.abs(w).max(initial=0.0) <= 0.01 * target:
                break
        return True


def _beside(left: Any, right: Any) -> Any:
    if hasattr(left, "toarray"):
        from scipy import sparse

        return sparse.hstack([left, right], format="csc")
    return np.concatenate([left.T, right.T]).T  # stays Fortran-ordered


def solve_on_gram(
    G: Array,
    c: Array,
    w: Array,
    l1: float,
    l2: float,
    done: Callable[[Array, Array], bool],
) -> bool:
    """Minimise ½wᵀGw − cᵀw + Ω(w) in place until ``done(w, Gw − c)``.

    Coordinate descent finds signs; once they repeat, one linear system is exact for
    them. Returns whether anything moved.
    """
    penalty: Any = ElasticNet(l1, l2) if l2 > 0 else L1(l1)
    size = len(w)
    g = G @ w - c
    floor = 1e-15 * max(l1, float(np.abs(c).max(initial=0.0)))
    signs, moved = np.zeros(size), False
    for _ in range(500):
        change, _ = descend_gram(penalty, G, w, g, size, EPOCHS, floor)
        moved = moved or change > 0
        if change <= floor or done(w, g):
            break
        now = np.sign(w)
        if np.array_equal(now, signs) and _settle(G, c, w, g, l1, l2):
            np.subtract(G @ w, c, out=g)
            if done(w, g):
                break
            now = np.sign(w)
        signs = now
    return moved


def _gram_gap(
    c: Array, w: Array, g: Array, l1: float, l2: float, reference: float
) -> float:
    """Duality gap of the problem on the working set, from its gradient g = Gw − c."""
    cross = 2 * reference - c @ w
    square = cross + w @ g
    primal = square / 2 + l1 * np.abs(w).sum() + l2 * (w @ w) / 2
    size = np.abs(g)
    if l2 > 0:
        over = np.maximum(size - l1, 0.0)
        return float(primal - (cross - square / 2 - (over @ over) / (2 * l2)))
    top = size.max(initial=0.0)
    t = 1.0 if top <= l1 else l1 / top
    return float(primal - (t * cross - t * t * square / 2))


def _settle(G: Array, c: Array, w: Array, g: Array, l1: float, l2: float) -> bool:
    """Newton on the support: jump to the exact minimiser of its orthant.

    Signs that would flip are set to zero if that lowers the objective, else the step
    ends at the first of them. False where the system is too ill-conditioned.
    """
    support = np.flatnonzero(w)
    if not support.size:
        return False
    current, sign = w[support], np.sign(w[support])
    M = G[np.ix_(support, support)].T  # symmetric; Fortran order for LAPACK
    M.flat[:: len(M) + 1] += l2
    factor, info = linalg.lapack.dpotrf(M, lower=0, overwrite_a=1, clean=0)
    diagonal = np.diag(factor)
    if info != 0 or diagonal.min() <= 1e-7 * diagonal.max():
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
