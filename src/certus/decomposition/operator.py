"""Data as a linear operator: A = X, or A = X − 1mᵀ with the column means m.

Products, Gram matrices and triangular factors of A are taken in blocks of rows that
are centred on the way, so that X is never copied whole and a large mean costs no digit;
sparse X is never densified and centred by a correction of rank one. Blocks do not
depend on the number of threads and are summed in order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from certus._core.cache import kernel
from certus._core.threads import run_blocks, slices
from certus.base import require_finite
from certus.typing import Array

#: Cells of a centred block; it stays in cache.
CELLS = 1 << 19
#: Cells of a block whose Gram matrix is taken: larger, as that is written to memory.
GRAM_CELLS = 1 << 21
#: Sums of blocks that are kept apart, whatever the number of threads.
LANES = 4
#: Up to this many columns a lane holds a matrix of its own; beyond, BLAS has the
#: threads.
NARROW = 1_500
#: Squares of cells between these ends lose nothing, in float64 and in float32; others
#: are scaled.
RANGE = ((1e-120, 1e120), (1e-12, 1e12))


@kernel
def _sparse_rows(
    indptr: Array, indices: Array, data: Array, B: Array, out: Array, lo: int, hi: int
) -> None:
    """Rows lo … hi of a CSR matrix times B."""
    width = B.shape[1]
    for i in range(lo, hi):
        for c in range(width):
            out[i, c] = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            value, j = data[p], indices[p]
            for c in range(width):
                out[i, c] += value * B[j, c]


class Operator:
    """A = X, centred or not, by its products; all in float64.

    Parameters
    ----------
    X : ndarray, CSR or CSC matrix
        Rows are samples.
    centre : bool
        Whether column means are subtracted.
    """

    def __init__(self, X: Any, centre: bool) -> None:
        self.X, self.centred, self.shape = X, centre, X.shape
        self.sparse = bool(sparse.issparse(X))
        d = X.shape[1]
        self.rows = max(1, CELLS // max(1, d))
        self.mean, self.scale, self.far = np.zeros(d), 1.0, False
        self._find_scale()
        if not centre:
            require_finite(X)
            return
        self._find_means()

    @property
    def side(self) -> int:
        """The smaller of the two lengths, and the number of singular values."""
        return int(min(self.shape))

    # -- centring and scaling ------------------------------------------------------

    def _find_scale(self) -> None:
        """A power of two that brings cells whose squares would be lost into range."""
        values = self.X.data if self.sparse else self.X
        low, high = RANGE[np.dtype(values.dtype).itemsize == 4]
        some = values[:: max(1, len(values) // 1_000)]
        largest = float(np.abs(some).max(initial=0.0))
        if not (low < largest < high):  # the rows looked at do not tell
            largest = float(np.abs(values).max(initial=0.0))
        if 0.0 < largest < low or high < largest < np.inf:
            self.scale = float(2.0 ** -np.round(np.log2(largest)))
            if self.sparse:
                self.X = self.X.astype(np.float64) * self.scale

    def _find_means(self) -> None:
        """Means, and whether they are large; finite means prove finite cells."""
        n, d = self.shape
        if self.sparse:
            mean = np.asarray(self.X.T @ np.ones(n)).ravel() / (n * self.scale)
        else:
            ones = np.ones(n)
            mean = self._sum(lambda p: ones[p] @ self.block(p), (d,)) / (n * self.scale)
        if not np.isfinite(mean).all():
            require_finite(self.X)
            raise np.linalg.LinAlgError("the sum of a column overflows")
        self.mean = mean
        if self.sparse:
            return
        some = (self.X[:: max(1, n // 512)] - mean) * self.scale
        spread, size = np.square(some).sum(axis=1).mean(), mean * self.scale
        self.far = not size @ size <= spread
        if size @ size > 1e4 * spread:
            # Sums of large cells were rounded: add the mean of what is left.
            left = self._sum(lambda p: self.block(p).sum(axis=0), (d,))
            self.mean = mean + left / (n * self.scale)

    @property
    def late(self) -> Array | None:
        """Means still to be subtracted from products of blocks."""
        if not self.centred or (self.far and not self.sparse):
            return None
        return self.mean * self.scale

    def block(
        self, part: slice, dtype: Any = np.float64, centre: bool = False
    ) -> Array:
        """Some rows of dense X, centred if the mean is large or on demand."""
        rows = self.X[part]
        if not (self.far or (centre and self.centred)):
            rows = np.asarray(rows, dtype=dtype)
            return rows if self.scale == 1.0 else rows * self.scale
        out = np.empty(rows.shape, dtype=dtype)
        np.subtract(rows, self.mean, out=out, casting="same_kind")
        if self.scale != 1.0:
            out *= self.scale
        return out

    def _sum(
        self,
        part: Callable[[slice], Array],
        shape: tuple[int, ...],
        rows: int | None = None,
        lanes: int = LANES,
    ) -> Array:
        """Σ part(rows) over blocks of rows: lanes beside each other, summed in order.

        One lane leaves the threads to BLAS.
        """
        rows = rows or self.rows
        areas = self._lanes(lanes)
        sums = [np.zeros(shape) for _ in areas]

        def work(lane: int, stop: Any) -> None:
            start, end = areas[lane].start, areas[lane].stop
            for i in range(start, end, rows):
                if stop():
                    return
                sums[lane] += part(slice(i, min(i + rows, end)))

        run_blocks(work, range(len(areas)))
        return np.asarray(sum(sums[1:], sums[0]))

    def _lanes(self, lanes: int) -> list[slice]:
        n = self.shape[0]
        return slices(n, max(-(-n // lanes), self.rows))

    # -- products ------------------------------------------------------------------

    def dot(self, B: Array) -> Array:
        """A B."""
        B = np.ascontiguousarray(B, dtype=np.float64)
        if self.sparse:
            out = _threaded(self._csr, B)
        else:
            out = np.empty((self.shape[0], B.shape[1]))

            def work(part: slice, stop: Any) -> None:
                out[part] = self.block(part) @ B

            run_blocks(work, slices(self.shape[0], self.rows))
        return out if self.late is None else out - self.late @ B

    def t_dot(self, U: Array) -> Array:
        """Aᵀ U."""
        U = np.ascontiguousarray(U, dtype=np.float64)
        if self.sparse:
            out = _threaded(self._csc, U)
        else:
            shape = (self.shape[1], U.shape[1])
            out = self._sum(lambda part: self.block(part).T @ U[part], shape)
        return out if self.late is None else out - np.outer(self.late, U.sum(axis=0))

    @cached_property
    def _csr(self) -> Any:
        return self.X.tocsr()

    @cached_property
    def _csc(self) -> Any:
        """Xᵀ by its rows, so that this product streams too."""
        return self.X.T.tocsr()

    def squares(self) -> float:
        """‖A‖² (Frobenius), the sum of all squared singular values."""
        if self.sparse:
            values = self.X.data.astype(np.float64, copy=False)
            out = float(values @ values)
        else:

            def part(rows: slice) -> Array:
                block = self.block(rows)
                return np.array([np.vdot(block, block)])

            out = float(self._sum(part, (1,))[0])
        if self.late is not None:
            out -= self.shape[0] * float(self.late @ self.late)
        return max(out, 0.0)

    # -- small matrices ------------------------------------------------------------

    def gram(self, single: bool = False) -> Array:
        """AᵀA, or AAᵀ if there are fewer rows than columns.

        ``single`` multiplies in float32 and sums the blocks in float64.
        """
        n, d = self.shape
        if self.sparse:
            return self._sparse_gram()
        if n < d:
            return self._row_gram()

        dtype = np.float32 if single else np.float64

        def part(rows: slice) -> Array:
            block = self.block(rows, dtype)
            return np.asarray(block.T @ block)  # NumPy recognises the symmetric update

        lanes = LANES if d <= NARROW else 1
        G = self._sum(part, (d, d), max(GRAM_CELLS // d, 2 * d), lanes)
        return G if self.late is None else G - n * np.outer(self.late, self.late)

    def _row_gram(self) -> Array:
        n, d = self.shape
        out = np.zeros((n, n))
        for part in slices(d, max(CELLS // n, 2 * n)):
            block = np.asarray(self.X[:, part], dtype=np.float64) - self.mean[part]
            block = np.ascontiguousarray(block)
            if self.scale != 1.0:
                block *= self.scale
            out += block @ block.T
        return out

    def _sparse_gram(self) -> Array:
        n, d = self.shape
        X = self.X.astype(np.float64)
        m = self.mean * self.scale
        if n >= d:
            return np.asarray((X.T @ X).toarray()) - n * np.outer(m, m)
        Xm = np.asarray(X @ m).ravel()
        return np.asarray((X @ X.T).toarray()) - Xm[:, None] - Xm + m @ m

    def triangle(self) -> Array:
        """R with RᵀR = AᵀA, by orthogonal steps over blocks of rows; A dense, n ≥ d."""
        d = self.shape[1]
        areas = self._lanes(LANES if d <= NARROW else 1)
        found: list[Array] = [np.zeros((0, d)) for _ in areas]
        size = max(4 * d, self.rows)

        def work(lane: int, stop: Any) -> None:
            start, end = areas[lane].start, areas[lane].stop
            for i in range(start, end, size):
                if stop():
                    return
                block = self.block(slice(i, min(i + size, end)), centre=True)
                stacked = np.vstack([found[lane], block])
                found[lane] = np.asarray(np.linalg.qr(stacked, mode="r"))

        run_blocks(work, range(len(areas)))
        return np.asarray(np.linalg.qr(np.vstack(found), mode="r"))

    def dense(self) -> Array:
        """A itself, as a new array."""
        return np.array(self.block(slice(None), centre=True))


def _threaded(S: Any, B: Array) -> Array:
    """CSR matrix times dense matrix, blocks of about equally many entries."""
    out = np.empty((S.shape[0], B.shape[1]))
    cuts = np.searchsorted(S.indptr, np.linspace(0, S.nnz, 17))
    cuts[0], cuts[-1] = 0, S.shape[0]

    def work(part: tuple[int, int], stop: Any) -> None:
        _sparse_rows(S.indptr, S.indices, S.data, B, out, *part)

    run_blocks(work, [(a, b) for a, b in pairwise(cuts.tolist()) if b > a])
    return out
