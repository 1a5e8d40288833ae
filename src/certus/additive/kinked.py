"""Additive models with kinks: the quantile loss, total variation, signs of differences.

    mean ℓ(y, z) + Σₜ [tₜ Σ |w_a − w_b| + ½ qₜ Σ (w_a − w_b)² + ½ rₜ ‖wₜ‖²]

An interior point method (``certus.additive.interior``) whose linear systems are those
of Newton's method: rows at a kink of the loss, and differences at a kink of the
penalty, have a weight of their own in each step. Its dual variables of the rows are the
certificate's witness for the quantile loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from certus._solvers.losses import apply_curvature
from certus.additive.interior import KinkBoxes, Point, Smooth, follow
from certus.additive.layout import (
    Additive,
    Factor,
    TermLevels,
    penalty_slope,
    penalty_value,
)
from certus.additive.newton import Run, conjugate_gradients, factor_of
from certus.certificate import Status
from certus.objectives import Quantile, Squared
from certus.typing import Array

#: Weight of a difference at most, as a multiple of that of its cells.
MOST = 1e11
#: Weight of a row at a kink that is allowed at least.
LEAST = 1e3
#: Steps of conjugate gradients, and the share of the first square at which they end.
CAREFUL = 100, 1e-13
#: Differences below these shares of the largest value may be made exactly zero.
FLAT = tuple(10.0**-e for e in range(3, 14))


class Bends(NamedTuple):
    """Kinks of the penalty: levels of total variation and signs, for each edge."""

    variation: Array  # (e,)
    signs: Array  # (e, k)

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return bool(self.variation.any() or self.signs.any())


#: The kinks, and the problem with its boxes and products.
Stated = tuple[Bends, tuple[KinkBoxes, Smooth]]


def bends_of(p: Additive, levels: TermLevels, total: bool, signs: Array) -> Bends:
    """The kinks at these levels, which are those of variation if ``total``."""
    each = levels.smoothing[p.layout.edge_term]
    return Bends(each if total else np.zeros_like(each), signs)


def smooth_levels(levels: TermLevels, total: bool) -> TermLevels:
    """The levels of the squares in the penalty."""
    none = np.zeros_like(levels.smoothing)
    return levels._replace(smoothing=none) if total else levels


def whole_penalty(p: Additive, squares: TermLevels, bends: Bends, w: Array) -> float:
    """The penalty with its kinks."""
    a, b = p.layout.edges.T
    rough = float(bends.variation @ np.abs(w[b] - w[a]).sum(axis=1))
    return rough + penalty_value(p.layout, squares, w)


def solve_kinked(
    p: Additive, run: Run, bends: Bends, total: bool, limits: tuple[float, float, int]
) -> Array | None:
    """Minimise at the levels of ``run``; the dual point of the rows, if they have one.

    ``limits`` are the loss of a constant, the target of the gap, and the steps.
    """
    base, tol, most = limits
    used = p.share > 0
    if not used.all():
        p = p._replace(codes=p.codes[:, used], y=p.y[used], share=p.share[used])
    squares = smooth_levels(run.levels, total)
    kinks, smooth = _problem(p, squares, bends)
    count, size = len(p.share), run.w.size
    rows = isinstance(p.loss, Quantile)

    def told(at: Point, gap: float) -> bool:
        run.w, run.b = at.x[:size].reshape(run.w.shape), at.x[size:].copy()
        run.n_iter += 1
        z = p.scores(run.w, run.b)
        value = p.value(z) + whole_penalty(p, squares, bends, run.w)
        return run.tell(value, gap / base if base > 0 else 0.0)

    x = np.concatenate([run.w.ravel(), run.b])
    goal = max(1e-5 * tol * base, 1e-15 * base)
    at, solved = follow(kinks, smooth, x, base, goal, most, told)
    run.w, run.b = at.x[:size].reshape(run.w.shape).copy(), at.x[size:].copy()
    if run.status is None:
        run.status = Status.SOLVED if solved else Status.MAX_ITER
    if bends.any:
        about = bends, (kinks, smooth)
        run.w = _flattened(p, run, about, at.u, 0.05 * tol * base)
    if not rows:
        return None
    dual = np.zeros(len(used))
    dual[used] = at.u[:count] / p.share
    return dual


def _problem(
    p: Additive, squares: TermLevels, bends: Bends
) -> tuple[KinkBoxes, Smooth]:
    """Boxes and products: rows first, if their loss has a kink, then differences."""
    a, b = p.layout.edges.T
    k, size, n = p.k, p.layout.size, len(p.share)
    rows = isinstance(p.loss, Quantile)
    quadratic = rows or isinstance(p.loss, Squared)
    t, signs = bends.variation[:, None], bends.signs
    low = np.where(signs > 0, -np.inf, -t + 0 * signs)
    high = np.where(signs < 0, np.inf, t + 0 * signs)
    kept = (low < high).ravel()  # a difference without a kink has no box
    low, high = low.ravel()[kept], high.ravel()[kept]
    target, first = np.zeros(len(low)), n if rows else 0
    if rows:
        q = float(p.loss.q)
        low = np.concatenate([-q * p.share, low])
        high = np.concatenate([(1 - q) * p.share, high])
        target = np.concatenate([p.y, target])

    def parts(x: Array) -> tuple[Array, Array]:
        return x[: size * k].reshape(size, k), x[size * k :]

    def forward(x: Array) -> Array:
        w, c = parts(x)
        d = (w[b] - w[a]).ravel()[kept]
        return np.concatenate([p.scores(w, c)[:, 0], d]) if rows else d

    def back(u: Array) -> Array:
        flow = np.zeros(len(kept))
        flow[kept] = u[first:]
        out = np.zeros((size, k))
        for column, f in zip(out.T, flow.reshape(-1, k).T):
            column += np.bincount(b, f, size) - np.bincount(a, f, size)
        if rows:
            out += p.sums(u[:n, None])
        ends = np.array([u[:n].sum()]) if rows else np.zeros(k)
        return np.concatenate([out.ravel(), ends])

    def gradient(x: Array) -> Array:
        w, c = parts(x)
        out = penalty_slope(p.layout, squares, w)
        if rows:
            return np.append(out.ravel(), 0.0)
        u = p.slopes(p.scores(w, c))[1]
        return np.concatenate([(out + p.sums(u)).ravel(), u.sum(axis=0)])

    def factor(x: Array, W: Array) -> Callable[[Array], Array]:
        each = np.zeros(len(kept))
        each[kept] = W[first:]
        weights = each.reshape(-1, k)
        if k == 1:
            h = W[:n] if rows else None
            return _one_score(p, squares, weights[:, 0], *parts(x), h)
        return _several(p, squares, weights, *parts(x))

    def most(x: Array) -> Array:
        h = np.repeat(p.share[:, None], k, axis=1)
        if not rows:
            state = p.slopes(p.scores(*parts(x)))[2]
            h = np.column_stack([p.curvature(state, j) for j in range(k)])
        # A constant shape is held by its own level alone: the constant b can be moved.
        own = squares.shrinkage[p.layout.cell_term][:, None]
        mass = np.minimum(p.sums(h) + own, 10 * own)
        edges = MOST * np.minimum(mass[a], mass[b]).ravel()[kept]
        each = np.full(first, max(MOST * float(own.min()), LEAST))
        return np.concatenate([each, edges])

    smooth = Smooth(gradient, forward, back, factor, most, quadratic)
    return KinkBoxes(low, high, target), smooth


def _matrix(p: Additive, squares: TermLevels, extra: Array, h: Array) -> Factor:
    """The factor of one score's matrix, with weights of rows and of differences."""
    each = squares.smoothing[p.layout.edge_term] + extra
    return factor_of(p, squares, h, edges=each)


def _one_score(
    p: Additive, squares: TermLevels, extra: Array, w: Array, b: Array, h: Array | None
) -> Callable[[Array], Array]:
    if h is None:
        h = p.curvature(p.slopes(p.scores(w, b))[2], 0)
    made = _matrix(p, squares, extra, h)

    def solve(rhs: Array) -> Array:
        step, move = made.solve(-rhs[:-1], -float(rhs[-1]))
        return np.append(step, move)

    return solve


def _several(
    p: Additive, squares: TermLevels, extra: Array, w: Array, b: Array
) -> Callable[[Array], Array]:
    """Conjugate gradients for all scores, each score's own matrix first."""
    size, k = w.shape
    state = p.slopes(p.scores(w, b))[2]
    made = [_matrix(p, squares, extra[:, j], p.curvature(state, j)) for j in range(p.k)]
    left, right = p.layout.edges.T

    def product(x: Array, x0: Array) -> tuple[Array, Array]:
        D = apply_curvature(p.loss, state, p.scores(x, x0)) * p.share[:, None]
        out = p.sums(D) + penalty_slope(p.layout, squares, x)
        for column, f in zip(out.T, (extra * (x[right] - x[left])).T):
            column += np.bincount(right, f, size) - np.bincount(left, f, size)
        return out, D.sum(axis=0)

    def solve(rhs: Array) -> Array:
        g, g0 = -rhs[: size * k].reshape(size, k), -rhs[size * k :]
        x, x0 = conjugate_gradients(made, product, g, g0, *CAREFUL)
        return np.concatenate([x.ravel(), x0])

    return solve


def _flattened(p: Additive, run: Run, about: Stated, u: Array, goal: float) -> Array:
    """Cells whose difference is as good as zero get one value; signs hold exactly.

    The gap that the dual point ``u`` shows may grow to ``goal``.
    """
    a, b = p.layout.edges.T
    bends, (kinks, smooth) = about
    own = run.levels.shrinkage[p.layout.cell_term][:, None]
    ends = [np.where(np.isfinite(e), e, 0.0) for e in (kinks.low, kinks.high)]
    found, top = run.w, float(np.abs(run.w).max(initial=0.0))

    def gap(w: Array) -> float:
        x = np.concatenate([w.ravel(), run.b])
        r = smooth.forward(x) - kinks.target
        left = (smooth.gradient(x) + smooth.back(u))[: w.size].reshape(w.shape)
        lost = np.maximum(r, 0) * ends[1] + np.minimum(r, 0) * ends[0] - u * r
        return float(np.abs(lost).sum() + (left**2 / (2 * own)).sum())

    for share in FLAT:
        w = run.w.copy()
        for j in range(p.k):
            may = (bends.variation > 0) | (bends.signs[:, j] != 0)
            near = may & (np.abs(w[b, j] - w[a, j]) <= share * top)
            w[:, j] = _merged(w[:, j], a[near], b[near])
        if gap(w) <= goal:
            found = w
            break
    for j in range(p.k):
        in_order(found[:, j], a, b, bends.signs[:, j])
    return found


def _merged(w: Array, a: Array, b: Array) -> Array:
    """The mean of each group of cells that edges join."""
    n = len(w)
    joined = csr_array((np.ones(len(a)), (a, b)), (n, n))
    count, label = connected_components(joined, directed=False)
    mass = np.bincount(label, minlength=count)
    return np.asarray((np.bincount(label, w, count) / mass)[label])


def in_order(w: Array, left: Array, right: Array, signs: Array) -> None:
    """Values in the wrong order take that of the cell before."""
    for a, b, sign in zip(left, right, signs):
        if sign and sign * (w[b] - w[a]) < 0:
            w[b] = w[a]
