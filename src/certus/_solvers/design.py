"""One view of the data for every solver: dense or sparse, centred and weighted.

A design stands for A = X − 1mᵀ (m = 0 without centring) and the weighted mean
normalisation: ``t_dot(u)`` is Aᵀ(s∘u)/Σs and ``gram`` is AᵀSA/Σs. X is never copied to
be centred, and sparse X is never densified; products are taken in float64.

Where a mean is small beside its column's spread, it is subtracted from products:
Σxxᵀ − n·mmᵀ loses few digits there. A mean ``FAR`` times the spread (a year, a time
stamp) would cost 2·log₁₀ of that ratio, so blocks of rows are shifted by it before the
product; so are sparse columns without zeros, once.

Large products go through NumPy's BLAS alone: SciPy brings another one, and the idle
threads of one spin while the other works (alternating them made a fit 1.7 times
slower).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from certus._core.threads import Stop, run_blocks, slices
from certus._solvers.lines import line_products
from certus.base import require_finite
from certus.typing import Array

_BLOCK = 1 << 21
#: Entries of a block that is shifted on the way: it stays in the processor's cache.
_SHIFTED_BLOCK = 1 << 18
#: Parts of the rows whose moments are taken by themselves, by whichever thread is free.
_PARTS = 8
#: Numbers at least, and columns from and to, of which moments are taken in one pass.
_MANY, _COLUMNS = 1 << 20, (32, 512)
#: Means beyond this many standard deviations are subtracted before products.
FAR = 4.0


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
    targets : ndarray of shape (n,) or (n, k), optional
        What the Gram matrix is wanted for: where rows are many and dense, it and
        Aᵀy/Σs are found in the pass that finds the means.
    """

    def __init__(
        self, X: Any, s: Array | None, centre: bool, targets: Array | None = None
    ) -> None:
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
        self.shift: Array | None = None  # of dense X, taken from each block of rows
        self.rest = self.mean  # what products still have to subtract
        self._pulled: Array | None = None
        sums = None
        if targets is not None and self._takes_one_pass():
            sums = self._take_moments(targets)
        if centre:
            ones = np.ones(self.n) if s is None else s
            sums = self._t_raw(ones) if sums is None else sums
            self.mean = self.rest = sums / self.total
            if np.isfinite(self.mean).all():
                self._shift_far_columns(ones)
        # Finite sums prove that every cell is finite; without them one pass does.
        if sums is None or not np.isfinite(sums).all():
            require_finite(X)
        if self.shift is not None:
            self._gram = self._pulled = None
        elif centre and self._gram is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                self._gram -= np.outer(self.rest, self.rest)

    def _takes_one_pass(self) -> bool:
        if self.sparse or self.s is not None or not self.X.flags.c_contiguous:
            return False
        fits = _COLUMNS[0] <= self.d <= _COLUMNS[1] and self.n >= 4 * self.d
        if self.X.size < _MANY or not fits:
            return False
        rows = self.X[:: max(1, self.n // 64)].astype(np.float64)
        return not is_far(rows, rows.mean(axis=0)).any()

    def _take_moments(self, targets: Array) -> Array:
        """Keep XᵀX/n and Xᵀy/n, y less its mean if X will be; return Σx."""
        Y = np.array(targets, dtype=np.float64).reshape(self.n, -1)
        for _ in range(2 * self.centred):  # the second removes rounding of the first
            Y -= Y.mean(axis=0)
        step = min(1 << 13, max(256, _SHIFTED_BLOCK // self.d))
        found: dict[int, tuple[Array, Array, Array]] = {}

        def work(rows: slice, stop: Stop) -> None:
            G, B = np.zeros((self.d, self.d)), np.zeros((Y.shape[1], self.d))
            sums, room = np.zeros(self.d), np.empty_like(G)
            for i in range(rows.start, rows.stop, step):
                if stop():
                    return
                part = slice(i, min(i + step, rows.stop))
                A = self.X[part].astype(np.float64, copy=False)
                sums += A.sum(axis=0)  # the quickest to read A, then in cache
                B += Y[part].T @ A
                G += np.matmul(A.T, A, out=room)  # NumPy sees that it is symmetric
            found[rows.start] = G, B, sums

        with np.errstate(over="ignore", invalid="ignore"):
            run_blocks(work, slices(self.n, -(-self.n // _PARTS)))
            parts = zip(*(found[start] for start in sorted(found)), strict=True)
            G, B, sums = (np.sum(each, axis=0) for each in parts)
        self._gram, self._pulled = G / self.total, B.T / self.total
        return np.asarray(sums)

    def _shift_far_columns(self, ones: Array) -> None:
        if self.sparse:
            shift = _far_full_columns(self.X, self.mean)
            if shift.any():
                parts = np.repeat(shift, np.diff(self.X.indptr))
                kept = (self.X.data - parts, self.X.indices, self.X.indptr)
                self.X = type(self.X)(kept, shape=self.X.shape)
        else:
            shift = self.mean
            if not is_far(self.X, self.mean).any():
                return
            self.shift = shift
        if shift.any():
            self.rest = self._t_raw(ones) / self.total
            self.mean = shift + self.rest

    # -- full passes -----------------------------------------------------------

    def dot(self, w: Array) -> Array:
        """A w."""
        if self._whole:
            z = np.asarray(self.X @ w)
        else:
            z = np.concatenate([block @ w for block in self._blocks()])
        return z - self.rest @ w if self.centred else z

    def t_dot(self, u: Array) -> Array:
        """Aᵀ(s∘u)/Σs."""
        su = self.weighted(u)
        v = self._t_raw(su) / self.total
        if self.centred:
            v -= np.multiply.outer(self.rest, su.sum(axis=0) / self.total)
        return v

    def t_dot_targets(self, Y: Array) -> Array:
        """As :meth:`t_dot`, for the targets passed to the constructor, if any."""
        return self.t_dot(Y) if self._pulled is None else self._pulled

    def weighted(self, u: Array) -> Array:
        """s∘u by rows."""
        if self.s is None:
            return u
        return self.s * u if u.ndim == 1 else self.s[:, None] * u

    def average(self, u: Array) -> Any:
        """Σ s u / Σ s."""
        return (u.sum(axis=0) if self.s is None else self.s @ u) / self.total

    @property
    def _whole(self) -> bool:
        """Whether products take X as it is."""
        return self.sparse or (self.X.dtype == np.float64 and self.shift is None)

    def _t_raw(self, u: Array) -> Array:
        if self.sparse:
            return line_products(self.X, u)
        if self._whole:
            return np.asarray(u @ self.X if u.ndim == 1 else (u.T @ self.X).T)
        out = np.zeros((self.d, *u.shape[1:]))
        start = 0
        for block in self._blocks():
            out += block.T @ u[start : start + len(block)]
            start += len(block)
        return out

    def _blocks(self, least: int = 1) -> Any:
        """Float64 rows, shifted; a shifted block lasts until the next one."""
        size = _BLOCK if self.shift is None else _SHIFTED_BLOCK
        rows = max(least, size // max(1, self.d))
        if self.shift is None:
            for i in range(0, self.n, rows):
                yield self.X[i : i + rows].astype(np.float64, copy=False)
            return
        order: Any = "F" if self.X.flags.f_contiguous else "C"
        room = np.empty((min(rows, self.n), self.d), order=order)
        for i in range(0, self.n, rows):
            block = self.X[i : i + rows]
            out = room[: len(block)]
            yield np.subtract(block, self.shift, out=out, dtype=np.float64)

    def pull_residual(self, Y: Array, which: Array, W: Array) -> Array:
        """Aᵀ(s∘(Y − AW))/Σs for some of the targets."""
        return self.t_dot(Y[:, which] - self.dot(W))

    def dense_rows(self, Y: Array) -> tuple[Array, Array, float]:
        """√(s/Σs)·A and targets, both times a power of two near 1/max abs A."""
        X = self.X.toarray() if self.sparse else self.X
        A = np.asarray(X, dtype=np.float64) - (self.rest if self.sparse else self.mean)
        if self.centred:  # once more: removes the rounding of a large mean
            A -= self.average(A)
        root = np.sqrt((np.ones(self.n) if self.s is None else self.s) / self.total)
        top = float(np.abs(A).max(initial=0.0))
        ordinary = top == 0.0 or 1e-100 < top < 1e100
        scale = 1.0 if ordinary else float(2.0 ** -np.round(np.log2(top)))
        A *= scale
        A *= root[:, None]
        return A, Y * (root[:, None] * scale), scale

    # -- columns ---------------------------------------------------------------

    def columns(self, index: Array, out: Array) -> None:
        """Columns of dense A into the rows of ``out``, centred on the way."""
        copy_columns(self.X, index, out, self.mean[index] if self.centred else None)

    def cross(self, left: Any, right: Any, off: tuple[Array, Array]) -> Array:
        """AₗᵀSAᵣ/Σs for two sets of columns, ``off`` holds the means still to subtract.

        Those of dense columns from :meth:`columns` are zero already.
        """
        weighted = right if self.s is None else _scale_rows(right, self.s)
        product = left.T @ weighted
        product = product.toarray() if sparse.issparse(product) else product
        out = np.asarray(product) / self.total
        return out - np.outer(*off) if self.centred and self.sparse else out

    def column_squares(self) -> Array:
        """Mean squares of the columns of A."""
        h = (np.ones(self.n) if self.s is None else self.s) / self.total
        if self.sparse:
            out = np.asarray(self.X.multiply(self.X).T @ h)
        else:
            out, start = np.zeros(self.d), 0
            for block in self._blocks():
                out += h[start : start + len(block)] @ np.square(block)
                start += len(block)
        return np.maximum(out - self.rest**2, 0.0) if self.centred else out

    def gram(self) -> Array:
        """AᵀSA/Σs, computed once and kept; for d small enough to hold d²."""
        if self._gram is None:
            self._gram = self._compute_gram()
        return self._gram

    def _compute_gram(self) -> Array:
        if self.sparse:
            return self.cross(self.X, self.X, (self.rest, self.rest))
        G = np.zeros((self.d, self.d))
        if self.s is None and self._whole:
            G += self.X.T @ self.X  # NumPy recognises the symmetric update
        else:
            root, start = None if self.s is None else np.sqrt(self.s), 0
            for block in self._blocks(256):
                end = start + len(block)
                if root is not None:
                    block = block * root[start:end, None]
                G += block.T @ block
                start = end
        G /= self.total
        return G - np.outer(self.rest, self.rest) if self.centred else G


def is_far(X: Array, mean: Array, ratio: float = FAR) -> Array:
    """Which columns of dense X have a mean ``ratio`` times their spread, by a sample.

    A column that is constant in the sample does not count: no digits can be lost.
    """
    rows = X[:: max(1, len(X) // 64)].astype(np.float64) - mean
    with np.errstate(over="ignore"):
        spread = np.sqrt(np.square(rows).mean(axis=0))
    size = np.abs(mean)
    return (size > ratio * spread) & (spread > 1e-14 * size)


def _far_full_columns(X: Any, mean: Array) -> Array:
    """The means of far columns of CSC X that hold no zeros, else 0."""
    shift = np.zeros(X.shape[1])
    full = np.flatnonzero((np.diff(X.indptr) == X.shape[0]) & (mean != 0))
    if full.size and X.has_canonical_format:
        for j in full:
            column = X.data[X.indptr[j] : X.indptr[j + 1], None]
            shift[j] = mean[j] * is_far(column, mean[j : j + 1])[0]
    return shift


def copy_columns(X: Array, index: Array, out: Array, mean: Array | None = None) -> None:
    """Columns of dense X, less ``mean``, into the rows of ``out``; no second copy."""
    block = max(1024, _BLOCK // max(1, len(index)))
    for i in range(0, len(X), block):
        part, to = X[i : i + block, index].T, out[:, i : i + block]
        if mean is None:
            to[...] = part
        else:
            np.subtract(part, mean[:, None], out=to, dtype=np.float64)


def _scale_rows(A: Any, s: Array) -> Any:
    if sparse.issparse(A):
        return sparse.diags_array(s) @ A
    return A * s[:, None]
