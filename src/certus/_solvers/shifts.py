"""Columns far from zero, moved near it before an iteration begins.

With a free intercept Xw + b = (X − 1mᵀ)w + (b + mᵀw) for any m: solvers work on the
moved rows, and b is carried back in doubled precision. The Hessian of a column whose
mean is r times its spread has a condition number near r², so that time stamps cost
Newton's method every digit it has. Only where some column is far is X copied; sparse
columns are moved if they hold no zeros.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus._solvers.design import FAR, is_far
from certus.typing import Array

_SAMPLE = 64  # rows whose means and spreads tell which columns are far
_SPLIT = 2.0**27 + 1  # Veltkamp's constant: halves of a float64


class Shift(NamedTuple):
    """Rows moved by ``mean``, and how points move with them."""

    X: Any
    mean: Array

    def forth(self, W: Array) -> Array:
        """A point of the raw rows, b last, as one of the moved rows."""
        out = np.array(W, dtype=np.float64)
        out[-1] += self.mean @ out[:-1]
        return out

    def near(self, W: Array) -> Array:
        """As ``back``, in plain float64: for callbacks."""
        out = W.copy()
        out[-1] -= self.mean @ W[:-1]
        return out

    def back(self, W: Array) -> Array:
        """A point of the moved rows as one of the raw rows, b rounded once."""
        out = W.copy()
        columns = W.reshape(len(W), -1).T
        b = [exact_sum(w[-1], -self.mean, w[:-1]) for w in columns]
        out[-1] = b if W.ndim == 2 else b[0]
        return out


def far_shift(X: Any, ratio: float = FAR) -> Shift | None:
    """X moved so that no column is ``ratio`` spreads from zero; None: nothing to do.

    The means of some rows are good enough, because any shift is correct.
    """
    if sparse.issparse(X):
        return _sparse_shift(X, ratio)
    rows = X[:: max(1, X.shape[0] // _SAMPLE)]
    mean = rows.mean(axis=0, dtype=np.float64)
    mean = np.where(is_far(rows, mean, ratio), mean, 0.0)
    if not mean.any() or not np.isfinite(mean).all():
        return None
    return Shift(np.subtract(X, mean, dtype=np.float64), mean)


def _sparse_shift(X: Any, ratio: float) -> Shift | None:
    step = max(1, X.shape[0] // _SAMPLE)
    full = _columns_without_zeros(X if X.format == "csc" else X[::step])
    if full.size:
        full = full[_columns_without_zeros(X[:, full])]
    if not full.size or not X.has_canonical_format:
        return None
    part = X[:, full][::step].toarray().astype(np.float64)
    mean = np.zeros(X.shape[1])
    near = part.mean(axis=0)
    mean[full] = np.where(is_far(part, near, ratio), near, 0.0)
    if not mean.any() or not np.isfinite(mean).all():
        return None
    moved = X.tocsr()
    data = moved.data - mean[moved.indices]
    kept = (data, moved.indices, moved.indptr)
    return Shift(type(moved)(kept, shape=X.shape).asformat(X.format), mean)


def _columns_without_zeros(X: Any) -> Array:
    return np.flatnonzero(np.diff(X.tocsc().indptr) == X.shape[0])


def exact_sum(first: float, a: Array, b: Array) -> float:
    """``first`` + aᵀb, rounded once; not so beyond float64's range."""
    with np.errstate(over="ignore", invalid="ignore"):
        product = a * b
        on = np.flatnonzero(product)
        a, b, product = a[on], b[on], product[on]
        error = _low_part(a, b, product)
        plain = float(first + product.sum())
    if not np.isfinite(plain):
        return plain
    error[~np.isfinite(error)] = 0.0  # beyond 1e300 nothing is left to carry
    return math.fsum([first, *product.tolist(), *error.tolist()])


def _low_part(a: Array, b: Array, product: Array) -> Array:
    """What rounding took from a·b (Dekker)."""
    a_high = _SPLIT * a - (_SPLIT * a - a)
    b_high = _SPLIT * b - (_SPLIT * b - b)
    a_low, b_low = a - a_high, b - b_high
    rest = a_high * b_high - product
    rest += a_high * b_low + a_low * b_high
    return np.asarray(rest + a_low * b_low)
