"""Smooth losses with an L2 penalty or none: preconditioned Newton-CG.

    min over W, b:  Σ sᵢ ℓ(yᵢ, xᵢᵀW + b)/Σs + ½·l2·‖W‖²

Each Newton system is solved by conjugate gradients, two products with X a step. The
preconditioner makes that one or two steps: the exact Hessian, taken on a subsample of
the rows when there are many (nk ≤ EXACT_SIDE); the Kronecker product of the mean
curvature and the second moments of X (many classes); or a diagonal (many columns).
Large problems first solve themselves on an eighth of their rows. Memory: X and a few
(n, k) arrays. Losses: those of ``certus.convex.losses``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, sparse

from certus.certificate import Status
from certus.convex.blas import cholesky
from certus.convex.design import Array
from certus.convex.losses import (
    Slopes,
    apply_curvature,
    constant_loss,
    evaluate,
    mean_curvature,
)
from certus.convex.penalties import curvature_of
from certus.convex.problem import OnStep, Solution, keep_going
from certus.terms import Logistic, Softmax

EXACT_SIDE = 700  # parameters up to which the whole Hessian is formed, for softmax
EXACT_BINARY = 3_000  # and for one score, whose Hessian is one weighted Gram matrix
KRONECKER_SIDE = 3_000
#: Cells of X up to which losses of numbers are solved further than they need be.
SMALL = 200_000
#: Rows that a preconditioner looks at, at least.
PRECONDITIONER_ROWS = 20_000


class Rows(NamedTuple):
    """Data of one problem; ``s`` sums to Σs, ``y`` as the loss wants it."""

    X: Any
    y: Array
    s: Array
    total: float

    def take(self, step: int) -> Rows:
        """Every ``step``-th row, as its own problem."""
        s = self.s[::step]
        return Rows(self.X[::step], self.y[::step], s, float(s.sum()))


class Point(NamedTuple):
    """An iterate with everything the next step needs. ``W`` is (d + 1, k), b last."""

    W: Array
    z: Array
    objective: float
    gradient: Array
    state: Array
    sides: Array


class NewtonProblem:
    """The objective over given rows.

    Parameters
    ----------
    rows : Rows
        Data.
    loss : term
        One of those that ``certus.convex.losses`` knows.
    penalty : term
        A smooth one: ``NoPenalty()`` or ``L2(alpha)``.
    intercept : bool
        Whether b is free; otherwise it stays 0.
    """

    def __init__(self, rows: Rows, loss: Any, penalty: Any, intercept: bool) -> None:
        self.rows, self.loss, self.intercept = rows, loss, intercept
        self.penalty, self.l2 = penalty, self._curvature(penalty)
        self.n, self.d = rows.X.shape
        self.k = loss.n_classes if isinstance(loss, Softmax) else 1
        self.classifies = isinstance(loss, Logistic | Softmax)
        self.sparse = sparse.issparse(rows.X)
        self.moments: Any = None  # eigenpairs of the second moments, once computed
        self._norm: float | None = None

    def _curvature(self, penalty: Any) -> float:
        return curvature_of("Newton-CG", penalty)

    def scores(self, W: Array) -> Array:
        """XW + b."""
        if not W[:-1].any():
            return np.tile(W[-1], (self.n, 1))
        return _product(self.rows.X, W[:-1]) + W[-1]

    def pull(self, U: Array) -> Array:
        """[X 1]ᵀ(s∘U)/Σs, shape (d + 1, k)."""
        sU = self.rows.s[:, None] * U
        out = np.empty((self.d + 1, U.shape[1]))
        out[:-1] = _t_product(self.rows.X, sU)
        out[-1] = sU.sum(axis=0) if self.intercept else 0.0
        return out / self.rows.total

    def at(self, W: Array, z: Array) -> Point:
        """Value and gradient at W with scores z."""
        slopes = evaluate(self.loss, self.rows.y, z, self.rows.s)
        objective = float(self.rows.s @ slopes.value) / self.rows.total
        objective += self.l2 * float(np.vdot(W[:-1], W[:-1])) / 2
        gradient = self.pull(slopes.slope)
        gradient[:-1] += self.l2 * W[:-1]
        return Point(W, z, objective, gradient, slopes.state, self.sides(slopes))

    def sides(self, slopes: Slopes) -> Array:
        """What an intercept's repair is measured against.

        Half of the mean abs slope for two classes, else each class's predicted share.
        """
        if self.k == 1:
            size = float(self.rows.s @ np.abs(slopes.slope[:, 0]))
            return np.array([size / (2 * self.rows.total)])
        return np.asarray(self.rows.s @ slopes.state) / self.rows.total

    def value(self, W: Array, z: Array) -> float:
        """Objective alone."""
        values = evaluate(self.loss, self.rows.y, z, self.rows.s).value
        penalty = self.l2 * float(np.vdot(W[:-1], W[:-1])) / 2
        return float(self.rows.s @ values) / self.rows.total + penalty

    def curve(self, point: Point, V: Array, XV: Array) -> Array:
        """Hessian times V, given XV = XV + V_b."""
        out = self.pull(apply_curvature(self.loss, point.state, XV))
        out[:-1] += self.l2 * V[:-1]
        return out

    def constant_objective(self) -> float:
        """Objective of the best model that ignores X; what gaps are relative to."""
        s, y = self.rows.s, self.rows.y
        if not self.classifies:
            return constant_loss(self.loss, y, s, self.intercept)
        if not self.intercept:
            return float(np.log(2.0 if self.k == 1 else self.k))
        codes = (y > 0).astype(int) if self.k == 1 else y
        share = np.bincount(codes, weights=s) / s.sum()
        share = share[share > 0]
        return float(-(share @ np.log(share)))

    def norm(self) -> float:
        """‖√s X‖_F, of centred columns where the verifier will centre them."""
        if self._norm is None:
            X, s = self.rows.X, self.rows.s
            if not self.classifies and (not self.sparse or X.format == "csr"):
                step = max(1, self.n // PRECONDITIONER_ROWS)  # an estimate serves
                X, s = X[::step], s[::step]
            square = _frobenius(X, s) ** 2
            share = float(s.sum()) / self.rows.total
            if self.intercept and not self.classifies:
                mean = _t_product(X, s[:, None])[:, 0] / max(float(s.sum()), 1e-300)
                square -= min(float(s.sum()) * float(mean @ mean), square * (1 - 1e-16))
            self._norm = float(np.sqrt(square / share)) if share > 0 else 0.0
        return self._norm


def solve(
    problem: NewtonProblem,
    start: Array,
    tol: float,
    max_iter: int,
    on_step: OnStep = keep_going,
) -> Solution:
    """Minimise to a relative gap (stationarity, if unpenalised) of ``tol``."""
    W, status, steps = start.copy(), Status.MAX_ITER, 0
    point, gap = None, np.inf
    try:
        step = _coarse_step(problem)
        if step > 1 and not start[:-1].any():
            part, free = problem.rows.take(step), problem.intercept
            coarse = NewtonProblem(part, problem.loss, problem.penalty, free)
            first = solve(coarse, W, 1e-4, 20)
            W = first.primal
            if first.status is Status.INTERRUPTED:
                return first
        reference = problem.constant_objective() or 1.0
        goal = 0.5 * tol
        if not problem.classifies and problem.n * problem.d <= SMALL:
            goal *= 1e-4  # two or three more steps that nobody notices
        point = problem.at(W, problem.scores(W))
        precondition, shrink = None, 0.0
        while True:
            gap = _gap(problem, point, reference)
            stop = on_step(point.objective, gap, point.W)
            if gap <= goal:
                status = Status.SOLVED
            elif stop is not None:
                status = stop
            elif _separated(problem, point):
                status = Status.NO_MINIMISER
            if status is not Status.MAX_ITER or steps >= max_iter:
                break
            steps += 1
            if precondition is None or shrink > 0.05:
                precondition = _preconditioner(problem, point)
            direction, pushed = _newton_direction(problem, point, precondition)
            new = _search(problem, point, direction, pushed)
            if new is None:
                status = Status.TOL_NOT_REACHED
                break
            before = float(np.linalg.norm(point.gradient))
            shrink = float(np.linalg.norm(new.gradient)) / max(before, 1e-300)
            point = new
        if status in (Status.MAX_ITER, Status.TOL_NOT_REACHED) and gap <= 0.5 * tol:
            status = Status.SOLVED
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return Solution(W if point is None else point.W, gap, status, steps)


def _coarse_step(problem: NewtonProblem) -> int:
    """Stride of the warm-up problem: 8 when that leaves rows to spare."""
    n, p = problem.n, (problem.d + 1) * problem.k
    enough = n // 8 >= max(2_000, 20 * p)
    plain = not problem.sparse or problem.rows.X.format == "csr"
    return 8 if enough and plain else 1


def _gap(problem: NewtonProblem, point: Point, reference: float) -> float:
    """What the verifier will find: ‖∇P‖²/(2·l2) plus what the intercept costs.

    Without a penalty: the gradient over its natural size, ‖Xᵀu‖/(‖X‖·‖u‖).
    """
    g, b = point.gradient, point.W[-1]
    square = float(np.vdot(g[:-1], g[:-1]))
    if problem.l2 > 0:
        if problem.classifies:
            offset = intercept_cost(b, g[-1], point.sides)
        else:
            offset = _offset_cost(problem, point)
        return (square / (2 * problem.l2) + offset) / reference
    slopes = evaluate(problem.loss, problem.rows.y, point.z, problem.rows.s).slope
    s = problem.rows.s
    size = np.sqrt(float(s @ np.square(slopes).sum(axis=1)) * problem.rows.total)
    norm = problem.norm()
    if size == 0.0 or norm == 0.0:
        return 0.0
    total = problem.rows.total
    inside = np.sqrt(square) * total / (norm * size / np.sqrt(total))
    return float(
        max(inside, np.abs(g[-1]).max() * np.sqrt(total) / (size / np.sqrt(total)))
    )


def intercept_cost(b: Array, g_b: Array, sides: Array) -> float:
    """Gap that repairing Σ s u = 0 adds.

    First order b·g_b, and the entropy of the share that is moved: t·log t, with t far
    above float64's smallest probabilities.
    """
    share = float((np.abs(g_b) / np.maximum(sides, 1e-300)).max(initial=0.0))
    return float(np.abs(b * g_b).sum()) + 40 * share


def _offset_cost(problem: NewtonProblem, point: Point) -> float:
    """As ``intercept_cost`` for a loss of numbers.

    Moving u by the share that Σ s u = 0 asks for costs its residual, and moves Xᵀu.
    """
    g_b = float(np.abs(point.gradient[-1, 0]))
    residual = abs(point.objective) / max(2 * float(point.sides[0]), 1e-300)
    moved = g_b * problem.norm() / np.sqrt(problem.rows.total)
    return g_b * residual + moved**2 / (2 * problem.l2)


def _separated(problem: NewtonProblem, point: Point) -> bool:
    """Without a penalty: whether the scores already put every row on its side."""
    if problem.l2 > 0 or not point.W.any() or not problem.classifies:
        return False
    y, z = problem.rows.y, point.z
    used = problem.rows.s > 0
    if problem.k == 1:
        return bool(np.min((y * z[:, 0])[used]) > 0)
    rows = np.arange(len(y))
    own = z[rows, y]
    others = z.copy()
    others[rows, y] = -np.inf
    return bool(np.min((own - others.max(axis=1))[used]) > 0)


def _newton_direction(
    problem: NewtonProblem, point: Point, precondition: Callable[[Array], Array]
) -> tuple[Array, Array]:
    """Conjugate gradients on HΔ = −g, and XΔ on the way."""
    g = point.gradient
    x, Xx = np.zeros_like(g), np.zeros_like(point.z)
    r = -g
    y = precondition(r)
    p, ry = y, float(np.vdot(r, y))
    first = ry
    forcing = min(0.1, max(0.0, first) ** 0.25) ** 2  # rounding may leave first < 0
    for _ in range(200):
        if ry <= 0:
            break
        Xp = problem.scores(p)
        Hp = problem.curve(point, p, Xp)
        curvature = float(np.vdot(p, Hp))
        if curvature <= 1e-300:
            break
        a = ry / curvature
        x, Xx, r = x + a * p, Xx + a * Xp, r - a * Hp
        y = precondition(r)
        new = float(np.vdot(r, y))
        if new <= forcing * first:
            break
        p, ry = y + (new / ry) * p, new
    return (x, Xx) if x.any() else (y, problem.scores(y))


def _search(
    problem: NewtonProblem, point: Point, direction: Array, pushed: Array
) -> Point | None:
    """Backtrack until the objective falls; None if it cannot in float64."""
    slope = float(np.vdot(point.gradient, direction))
    t = 1.0
    for _ in range(30):
        W, z = point.W + t * direction, point.z + t * pushed
        new = problem.at(W, z)
        if new.objective <= point.objective + 1e-4 * t * slope:
            return new
        # At the floor of float64 the gradient still tells progress.
        close = abs(t * slope) <= 1e-12 * max(1.0, abs(point.objective))
        norm = np.linalg.norm
        if close and norm(new.gradient) < 0.9 * norm(point.gradient):
            return new
        t /= 2
    return None


# -- preconditioners --------------------------------------------------------------


def _preconditioner(problem: NewtonProblem, point: Point) -> Callable[[Array], Array]:
    p = (problem.d + 1) * problem.k
    if problem.k == 1 and p <= EXACT_BINARY:
        return _exact(problem, point)
    if p <= EXACT_SIDE:
        return _exact(problem, point)
    if problem.d <= KRONECKER_SIDE:
        return _kronecker(problem, point)
    return _diagonal(problem, point)


def _sample(
    problem: NewtonProblem, point: Point, rows: int
) -> tuple[Any, Array, Array]:
    """Evenly spaced rows of X, of the curvature state and of the weights."""
    step = max(1, problem.n // max(rows, 1))
    if problem.sparse and problem.rows.X.format != "csr":
        step = 1
    return problem.rows.X[::step], point.state[::step], problem.rows.s[::step]


def _exact(problem: NewtonProblem, point: Point) -> Callable[[Array], Array]:
    """The Hessian on a sample of rows, factorised after scaling to unit diagonal."""
    m, k = problem.d + 1, problem.k
    X, state, s = _sample(problem, point, max(PRECONDITIONER_ROWS, 40 * problem.d))
    weight = s / s.sum()
    H = np.zeros((k, m, k, m))
    for a in range(k):
        for c in range(a, k):
            if k == 1:
                h = state[:, 0] * weight
            else:
                h = weight * state[:, a] * ((a == c) - state[:, c])
            H[a, :, c, :] = bordered_gram(X, h, problem.intercept)
            H[c, :, a, :] = H[a, :, c, :].T
    if k > 1:
        # Equal changes of all classes cancel: no curvature, and no gradient either. Any
        # curvature there leaves the direction as it is and the matrix definite.
        each = np.arange(m)
        free = np.einsum("ajaj->j", H) / k**2
        H[:, each, :, each] += free[:, None, None]
    H = H.reshape(k * m, k * m)
    penalty = np.tile(np.append(np.full(problem.d, problem.l2), 0.0), k)
    H.flat[:: k * m + 1] += penalty
    apply = _inverse(H)

    def precondition(R: Array) -> Array:
        return apply(R.T.ravel()).reshape(k, m).T

    return precondition


def _inverse(H: Array) -> Callable[[Array], Array]:
    """H⁻¹ by Cholesky where well-conditioned, else the pseudo-inverse."""
    diagonal = np.diag(H).copy()
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    M = H * scale[:, None] * scale
    M.flat[:: len(M) + 1] = 1.0
    factor = cholesky(M)
    if factor is not None:
        pivots = np.diag(factor)
        if pivots.min() > 1e-6 * pivots.max():
            return lambda v: scale * linalg.lapack.dpotrs(factor, scale * v)[0]
    values, Q = np.linalg.eigh(M)
    keep = values > 1e-13 * values.max()
    Q, values = Q[:, keep], values[keep]
    return lambda v: scale * (Q @ ((Q.T @ (scale * v)) / values))


def bordered_gram(X: Any, h: Array, intercept: bool) -> Array:
    """[X 1]ᵀ diag(h) [X 1]; without an intercept the border is zero."""
    d = X.shape[1]
    out = np.zeros((d + 1, d + 1))
    if sparse.issparse(X):
        out[:-1, :-1] = (X.T @ (sparse.diags_array(h) @ X)).toarray()
        border = np.asarray(X.T @ h)
    else:
        block = 1 + (1 << 20) // max(1, d)
        for i in range(0, len(h), block):
            rows = X[i : i + block].astype(np.float64, copy=False)
            part = h[i : i + block, None]
            if part.min(initial=0.0) < 0:
                out[:-1, :-1] += rows.T @ (rows * part)
            else:  # a symmetric update costs half
                scaled = rows * np.sqrt(part)
                out[:-1, :-1] += scaled.T @ scaled
        border = _t_product(X, h[:, None])[:, 0]
    if intercept:
        out[:-1, -1] = out[-1, :-1] = border
        out[-1, -1] = h.sum()
    return out


def _kronecker(problem: NewtonProblem, point: Point) -> Callable[[Array], Array]:
    """(mean curvature) ⊗ (second moments of X) + l2, inverted by eigenvectors."""
    X, state, s = _sample(problem, point, max(PRECONDITIONER_ROWS, 40 * problem.d))
    if problem.moments is None:  # they do not change with the iterate
        weight = s / s.sum()
        problem.moments = np.linalg.eigh(bordered_gram(X, weight, problem.intercept))
    outer, Q = problem.moments
    inner, R = np.linalg.eigh(mean_curvature(problem.loss, state, s))
    grid = np.outer(np.maximum(outer, 0.0), np.maximum(inner, 0.0)) + problem.l2
    grid[grid <= 1e-12 * grid.max()] = np.inf  # directions without curvature

    def precondition(V: Array) -> Array:
        return Q @ ((Q.T @ V @ R) / grid) @ R.T

    return precondition


def _diagonal(problem: NewtonProblem, point: Point) -> Callable[[Array], Array]:
    one = problem.k == 1
    curvature = point.state[:, :1] if one else point.state * (1 - point.state)
    h = problem.rows.s[:, None] * curvature / problem.rows.total
    X = problem.rows.X
    if problem.sparse:
        squares = np.asarray(X.multiply(X).T @ h)
    else:
        squares = np.zeros((problem.d, problem.k))
        block = 1 + (1 << 20) // max(1, problem.d)
        for i in range(0, problem.n, block):
            squares += (
                np.square(X[i : i + block], dtype=np.float64).T @ h[i : i + block]
            )
    D = np.vstack([squares + problem.l2, h.sum(axis=0)])
    D[1e-12 * D.max() >= D] = np.inf
    return lambda V: V / D


# -- products in float64 ----------------------------------------------------------


def _product(X: Any, W: Array) -> Array:
    if sparse.issparse(X) or X.dtype == np.float64:
        if W.shape[1] == 1:
            return np.asarray(X @ W[:, 0])[:, None]
        if sparse.issparse(X):
            return np.asarray(X @ W)
        return np.asarray(W.T @ X.T).T  # class-major: BLAS is 1.7 times faster so
    block = 1 + (1 << 20) // max(1, X.shape[1])
    parts = [X[i : i + block].astype(np.float64) @ W for i in range(0, len(X), block)]
    return np.concatenate(parts)


def _t_product(X: Any, U: Array) -> Array:
    if sparse.issparse(X):
        return np.asarray(X.T @ U)
    if X.dtype == np.float64:
        if U.shape[1] == 1:
            return np.asarray(U[:, 0] @ X)[:, None]
        return np.asarray(U.T @ X).T
    out = np.zeros((X.shape[1], U.shape[1]))
    block = 1 + (1 << 20) // max(1, X.shape[1])
    for i in range(0, len(X), block):
        out += X[i : i + block].astype(np.float64).T @ U[i : i + block]
    return out


def _frobenius(X: Any, s: Array) -> float:
    if sparse.issparse(X):
        return float(np.sqrt((X.multiply(X).T @ s).sum()))
    return float(np.sqrt(np.einsum("ij,ij,i->", X, X, s, dtype=np.float64)))
