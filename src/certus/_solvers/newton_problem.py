"""A smooth loss over rows with a free or no intercept: values, gradients, curvature.

    P(W, b) = Σ sᵢ ℓ(yᵢ, xᵢᵀW + b)/Σs + Ω(W)

What Newton's method and its proximal form minimise. Columns far from zero are moved
near it (``certus._solvers.shifts``): points inside the solvers are of the moved rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus._solvers.losses import Slopes, apply_curvature, constant_loss, evaluate
from certus._solvers.penalties import curvature_of
from certus._solvers.problem import OnStep, Start
from certus._solvers.shifts import far_shift
from certus.objectives import Logistic, Softmax
from certus.typing import Array

#: Rows that an estimate of a norm looks at, at least.
SAMPLE_ROWS = 20_000


class NewtonRows(NamedTuple):
    """Data of one problem; ``s`` sums to Σs, ``y`` as the loss wants it."""

    X: Any
    y: Array
    s: Array
    total: float

    def take(self, step: int) -> NewtonRows:
        """Every ``step``-th row, as its own problem."""
        s = self.s[::step]
        return NewtonRows(self.X[::step], self.y[::step], s, float(s.sum()))


class NewtonPoint(NamedTuple):
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
    rows : NewtonRows
        Data.
    loss : term
        One of those that ``certus._solvers.losses`` knows.
    penalty : term
        A smooth one: ``NoPenalty()`` or ``L2(alpha)``.
    intercept : bool
        Whether b is free; otherwise it stays 0.
    """

    far = 100.0  # spreads from zero at which columns are moved: fewer cost few digits

    def __init__(
        self, rows: NewtonRows, loss: Any, penalty: Any, intercept: bool
    ) -> None:
        self.penalty, self.l2 = penalty, self._curvature(penalty)
        self.loss, self.intercept = loss, intercept
        self.shift = far_shift(rows.X, self.far) if intercept else None
        self.rows = rows if self.shift is None else rows._replace(X=self.shift.X)
        self.n, self.d = rows.X.shape
        self.k = loss.n_classes if isinstance(loss, Softmax) else 1
        self.classifies = isinstance(loss, Logistic | Softmax)
        self.sparse = sparse.issparse(rows.X)
        self.moments: Any = None  # eigenpairs of the second moments, once computed
        self._norm: float | None = None

    def begin(self, start: Start) -> Array:
        """The start as a point of the moved rows; zero where there is none."""
        if start.primal is None:
            return np.zeros((self.d + 1, self.k))
        if self.shift is None:
            return start.primal.copy()
        return self.shift.forth(start.primal)

    def end(self, W: Array) -> Array:
        """A point of the moved rows as one of the rows given."""
        return W if self.shift is None else self.shift.back(W)

    def watched(self, on_step: OnStep) -> OnStep:
        """``on_step`` for points of the moved rows."""
        shift = self.shift
        if shift is None:
            return on_step
        return lambda objective, gap, W: on_step(objective, gap, shift.near(W))

    def scores_at(self, W: Array) -> Array:
        """XW + b at a point of the rows given."""
        return self.scores(W if self.shift is None else self.shift.forth(W))

    def _curvature(self, penalty: Any) -> float:
        return curvature_of("Newton-CG", penalty)

    def scores(self, W: Array) -> Array:
        """XW + b."""
        if not W[:-1].any():
            return np.tile(W[-1], (self.n, 1))
        return product(self.rows.X, W[:-1]) + W[-1]

    def pull(self, U: Array) -> Array:
        """[X 1]ᵀ(s∘U)/Σs, shape (d + 1, k)."""
        sU = self.rows.s[:, None] * U
        out = np.empty((self.d + 1, U.shape[1]))
        out[:-1] = t_product(self.rows.X, sU)
        out[-1] = sU.sum(axis=0) if self.intercept else 0.0
        return out / self.rows.total

    def at(self, W: Array, z: Array) -> NewtonPoint:
        """Value and gradient at W with scores z."""
        slopes = evaluate(self.loss, self.rows.y, z, self.rows.s)
        objective = float(self.rows.s @ slopes.value) / self.rows.total
        objective += self.l2 * float(np.vdot(W[:-1], W[:-1])) / 2
        gradient = self.pull(slopes.slope)
        gradient[:-1] += self.l2 * W[:-1]
        return NewtonPoint(W, z, objective, gradient, slopes.state, self.sides(slopes))

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

    def curve(self, point: NewtonPoint, V: Array, XV: Array) -> Array:
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
                step = max(1, self.n // SAMPLE_ROWS)  # an estimate serves
                X, s = X[::step], s[::step]
            square = frobenius(X, s) ** 2
            share = float(s.sum()) / self.rows.total
            if self.intercept and not self.classifies:
                mean = t_product(X, s[:, None])[:, 0] / max(float(s.sum()), 1e-300)
                square -= min(float(s.sum()) * float(mean @ mean), square * (1 - 1e-16))
            self._norm = float(np.sqrt(square / share)) if share > 0 else 0.0
        return self._norm


# -- products in float64 ----------------------------------------------------------


def product(X: Any, W: Array) -> Array:
    """XW in float64."""
    if sparse.issparse(X) or X.dtype == np.float64:
        if W.shape[1] == 1:
            return np.asarray(X @ W[:, 0])[:, None]
        if sparse.issparse(X):
            return np.asarray(X @ W)
        return np.asarray(W.T @ X.T).T  # class-major: BLAS is 1.7 times faster this way
    block = 1 + (1 << 20) // max(1, X.shape[1])
    parts = [X[i : i + block].astype(np.float64) @ W for i in range(0, len(X), block)]
    return np.concatenate(parts)


def t_product(X: Any, U: Array) -> Array:
    """XᵀU in float64."""
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


def frobenius(X: Any, s: Array) -> float:
    """‖√s X‖_F."""
    if sparse.issparse(X):
        return float(np.sqrt((X.multiply(X).T @ s).sum()))
    return float(np.sqrt(np.einsum("ij,ij,i->", X, X, s, dtype=np.float64)))


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
        border = t_product(X, h[:, None])[:, 0]
    if intercept:
        out[:-1, -1] = out[-1, :-1] = border
        out[-1, -1] = h.sum()
    return out
