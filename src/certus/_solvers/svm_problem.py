"""What a support vector machine minimises, and the products its solvers need.

    P(w, b) = Σ sᵢ ℓ(xᵢᵀw + κ·b)/Σs + ½·l2·(‖w‖² + b²)

The losses are maxima over a box, as in ``certus._solvers.svm_kernels``; κ is the size
of a constant column that is never stored, and b is unpenalised if it is free.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus._core.threads import run_blocks
from certus._solvers.lines import line_products, runs_of
from certus._solvers.penalties import curvature_of
from certus._solvers.svm_kernels import row_squares
from certus.typing import Array

_BLOCK = 1 << 20


class DualBox(NamedTuple):
    """A loss as a maximum over a box; see ``certus._solvers.svm_kernels``."""

    t: Array
    low: Array
    high: Array
    epsilon: float
    width: float

    def take(self, step: int) -> DualBox:
        """Every ``step``-th row."""
        return self._replace(
            t=np.ascontiguousarray(self.t[::step]),
            low=np.ascontiguousarray(self.low[::step]),
            high=np.ascontiguousarray(self.high[::step]),
        )


def hinge_box(y: Array, squared: bool, top: float = 1.0) -> DualBox:
    """Hinge loss of labels ±1, its square, or (``top=inf``) the hard margin."""
    limit = np.inf if squared else top
    low, high = np.where(y > 0, -limit, 0.0), np.where(y > 0, 0.0, limit)
    return DualBox(y.astype(np.float64), low, high, 0.0, 0.5 if squared else 0.0)


def tube_box(y: Array, epsilon: float, squared: bool) -> DualBox:
    """Epsilon-insensitive loss of targets y, or its square."""
    limit = np.full(len(y), np.inf if squared else 1.0)
    width = 0.5 if squared else 0.0
    return DualBox(y.astype(np.float64), -limit, limit, float(epsilon), width)


class SVMRows:
    """Rows with a constant column of size ``scale`` that is never stored.

    Parameters
    ----------
    X : ndarray or CSR matrix
        Data.
    s : ndarray
        Weights.
    scale : float
        κ; zero for no intercept.
    """

    def __init__(self, X: Any, s: Array, scale: float) -> None:
        self.X, self.s, self.scale = X, s, scale
        self.n, self.d = X.shape
        self.total = float(s.sum())
        self.sparse = sparse.issparse(X)

    def dot(self, w: Array) -> Array:
        """Xw + κb."""
        if not w[:-1].any():
            return np.full(self.n, self.scale * w[-1])
        if self.sparse:
            z = line_products(self.X, w[:-1])
        elif self.X.dtype == np.float64:
            z = np.asarray(self.X @ w[:-1])
        else:
            z = np.concatenate([block @ w[:-1] for _, block in self.blocks()])
        z += self.scale * w[-1]
        return z

    def pull(self, u: Array) -> Array:
        """[X κ]ᵀ(s∘u)/Σs."""
        su = self.s * u
        out = np.empty(self.d + 1)
        if self.sparse:
            out[:-1] = self.X.T @ su
        elif self.X.dtype == np.float64:
            out[:-1] = su @ self.X
        else:
            out[:-1] = 0.0
            for start, block in self.blocks():
                out[:-1] += su[start : start + len(block)] @ block
        out[-1] = self.scale * su.sum()
        return out / self.total

    def blocks(self) -> Any:
        """Dense blocks in float64, with where they start."""
        rows = max(1, _BLOCK // max(1, self.d))
        for i in range(0, self.n, rows):
            yield i, self.X[i : i + rows].astype(np.float64, copy=False)

    def gram(self, members: Array, h: Array) -> Array:
        """[X κ]ᵀ diag(h) [X κ] over some rows."""
        out = np.zeros((self.d + 1, self.d + 1))
        border = np.zeros(self.d)
        if self.sparse:
            part = self.X[members].astype(np.float64)
            out[:-1, :-1] = (part.T @ (sparse.diags_array(h) @ part)).toarray()
            border = np.asarray(part.T @ h)
        else:
            rows = max(1, _BLOCK // max(1, self.d))
            root = np.sqrt(h)
            for i in range(0, len(members), rows):
                index = members[i : i + rows]
                part = self.X[index].astype(np.float64, copy=False)
                part *= root[i : i + rows, None]
                out[:-1, :-1] += part.T @ part
                border += root[i : i + rows] @ part
        out[:-1, -1] = out[-1, :-1] = self.scale * border
        out[-1, -1] = self.scale**2 * h.sum()
        return out

    def squares(self) -> Array:
        """‖xᵢ‖² + κ²."""
        if self.sparse:
            out, starts = np.empty(self.n), self.X.indptr

            def work(run: slice, _: Any) -> None:
                own = starts[run.start : run.stop + 1]
                row_squares(own, self.X.data, out[run])

            run_blocks(work, runs_of(starts))
            return out + self.scale**2
        parts = [np.einsum("ij,ij->i", b, b) for _, b in self.blocks()]
        return np.concatenate(parts) + self.scale**2

    def take(self, step: int) -> SVMRows:
        """Every ``step``-th row."""
        return SVMRows(self.X[::step], np.ascontiguousarray(self.s[::step]), self.scale)


class SvmProblem(NamedTuple):
    """One problem with one score per row."""

    rows: SVMRows
    box: DualBox
    penalty: Any  # a smooth one
    free: bool  # whether the constant column escapes the penalty
    constant: float = 0.0  # if any: the last column of X stands for one of this size

    @property
    def l2(self) -> float:
        """The level of ½·l2·‖w‖²."""
        return curvature_of("the support vector machine's solver", self.penalty)

    @property
    def levels(self) -> Array:
        """Penalty of each coordinate, that of b last."""
        out = np.full(self.rows.d + 1, self.l2)
        if self.free:
            out[-1] = 0.0
        if self.constant:
            out[-2] /= self.constant**2
        return out

    def reference(self) -> float:
        """P of the best constant, what gaps are relative to; it may be penalised."""
        box, s, scale = self.box, self.rows.s, self.rows.scale
        level = 0.0 if self.free or not scale else self.l2 / scale**2
        b = _best_constant(box, s, level * self.rows.total) if scale else 0.0
        r = b - box.t
        over = np.maximum(np.abs(r) - box.epsilon, 0.0)
        if box.width:
            bounded = np.where(r > 0, box.high, -box.low) > 0
            loss = np.where(bounded, over**2, 0.0)
        else:
            loss = over * np.where(r > 0, box.high, -box.low)
        return float(s @ loss) / self.rows.total + level * b * b / 2


def _best_constant(box: DualBox, s: Array, level: float) -> float:
    """The constant score of least Σ sℓ + ½·level·b², by bisection on the slope."""
    reach = 2 + 2 * float(np.abs(box.t).max(initial=0.0))
    low, high = -reach, reach
    for _ in range(60):
        b = (low + high) / 2
        r = b - box.t
        over = np.sign(r) * np.maximum(np.abs(r) - box.epsilon, 0.0)
        slope = 2 * over if box.width else np.sign(over)
        if s @ np.clip(slope, box.low, box.high) + level * b > 0:
            high = b
        else:
            low = b
    return (low + high) / 2
