"""One view of the data for every solver: dense or sparse, centred and weighted.

A design stands for A = X − 1mᵀ (m = 0 without centring) and the weighted mean
normalisation: ``t_dot(u)`` is Aᵀ(s∘u)/Σs and ``gram`` is AᵀSA/Σs. X is never copied to
be centred, and sparse X is never densified; products are taken in float64.

Large products go through NumPy's BLAS alone: SciPy brings another one, and the idle
threads of one spin while the other works (alternating them made a fit 1.7 times
slower).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from certus.base import require_finite

Array = np.ndarray[Any, np.dtype[Any]]

_BLOCK = 1 << 21


class Design:
    """Dense (either order) or CSC data, its weights and column means.

    Parameters
    ----------
    X : ndarray, CSR or CSC matrix
        Rows are samples.
    s : ndarray or None
        Row weights; None means ones.
    centre : bool
        Whether an unpenalised intercept is eliminated by centring the columns.
    """

    def __init__(self, X: Any, s: Array | None, centre: bool) -> None:
        self.sparse, self.dtype = sparse.issparse(X), X.dtype
        if self.sparse:
            X = X.tocsc() if X.format != "csc" else X
            if X.dtype != np.float64:
                X = X.astype(np.float64)
        self.X, self.s = X, s
        self.n, self.d = X.shape
        self.total = float(self.n if s is None else s.sum())
        self.centred = centre
        self._gram: Array | None = None
        self.mean = np.zeros(self.d)
        if centre:
            ones = np.ones(self.n) if s is None else s
            self.mean = self._t_raw(ones) / self.total
        # Finite means prove that every cell is finite; without them one pass does.
        if not centre or not np.isfinite(self.mean).all():
            require_finite(X)

    # -- full passes -----------------------------------------------------------

    def dot(self, w: Array) -> Array:
        """A w."""
        if self.sparse or self.X.dtype == np.float64:
            z = np.asarray(self.X @ w)
        else:
            z = np.concatenate([block @ w for block in self._blocks()])
        return z - self.mean @ w if self.centred else z

    def t_dot(self, u: Array) -> Array:
        """Aᵀ(s∘u)/Σs."""
        su = self.weighted(u)
        v = self._t_raw(su) / self.total
        if self.centred:
            v -= np.multiply.outer(self.mean, su.sum(axis=0) / self.total)
        return v

    def weighted(self, u: Array) -> Array:
        """s∘u by rows."""
        if self.s is None:
            return u
        return self.s * u if u.ndim == 1 else self.s[:, None] * u

    def average(self, u: Array) -> Any:
        """Σ s u / Σ s."""
        return (u.sum(axis=0) if self.s is None else self.s @ u) / self.total

    def _t_raw(self, u: Array) -> Array:
        if self.sparse:
            return np.asarray(self.X.T @ u)
        if self.X.dtype == np.float64:
            return np.asarray(u @ self.X if u.ndim == 1 else (u.T @ self.X).T)
        out = np.zeros((self.d, *u.shape[1:]))
        start = 0
        for block in self._blocks():
            out += block.T @ u[start : start + len(block)]
            start += len(block)
        return out

    def _blocks(self) -> Any:
        rows = max(1, _BLOCK // max(1, self.d))
        for i in range(0, self.n, rows):
            yield self.X[i : i + rows].astype(np.float64, copy=False)

    # -- columns ---------------------------------------------------------------

    def cross(
        self, left: Any, left_mean: Array, right: Any, right_mean: Array
    ) -> Array:
        """AₗᵀSAᵣ/Σs for two sets of raw columns."""
        weighted = right if self.s is None else _scale_rows(right, self.s)
        product = left.T @ weighted
        product = product.toarray() if sparse.issparse(product) else product
        out = np.asarray(product) / self.total
        return out - np.outer(left_mean, right_mean) if self.centred else out

    def gram(self) -> Array:
        """AᵀSA/Σs, computed once and kept; for d small enough to hold d²."""
        if self._gram is None:
            self._gram = self._compute_gram()
        return self._gram

    def _compute_gram(self) -> Array:
        if self.sparse:
            every = np.arange(self.d)
            return self.cross(self.X, self.mean[every], self.X, self.mean[every])
        G = np.zeros((self.d, self.d))
        rows = _gram_rows(self.n, self.d, self.s is None, self.X.dtype)
        root = None if self.s is None else np.sqrt(self.s)
        for i in range(0, self.n, rows):
            block = self.X[i : i + rows].astype(np.float64, copy=False)
            if root is not None:
                block = block * root[i : i + rows, None]
            G += block.T @ block  # NumPy recognises the symmetric update
        G /= self.total
        return G - np.outer(self.mean, self.mean) if self.centred else G


def _gram_rows(n: int, d: int, plain: bool, dtype: Any) -> int:
    """Whole X at once when it needs no copy, else blocks of about 16 MB."""
    if plain and dtype == np.float64:
        return n
    return max(256, _BLOCK // max(1, d))


def copy_columns(X: Array, index: Array, out: Array) -> None:
    """Columns of dense X into the rows of ``out``, without a second copy on the way."""
    block = max(1024, _BLOCK // max(1, len(index)))
    for i in range(0, len(X), block):
        out[:, i : i + block] = X[i : i + block, index].T


def _scale_rows(A: Any, s: Array) -> Any:
    if sparse.issparse(A):
        return sparse.diags_array(s) @ A
    return A * s[:, None]
