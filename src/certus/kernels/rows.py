"""A bounded store of kernel rows.

A solver asks for rows of the n × n kernel matrix by number. Stored rows are returned,
the others are computed together, in one matrix product, and take the places of the rows
unused for longest. The store never exceeds its budget; it holds float64 where the whole
matrix is small, float32 otherwise (exact sums are then taken by :meth:`product`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from certus.kernels import evaluate as ev
from certus.kernels.compiled import add_rows, gather_square
from certus.objectives import terms as t
from certus.typing import Array, Matrix

#: Rows of an exact product computed at a time.
CHUNK = 1 << 21
#: Bytes up to which a whole matrix is kept in float64.
SMALL = 128e6
#: The store holds at least this many rows, whatever the budget.
FEWEST = 1_024


class KernelRows:
    """Rows of the kernel matrix of X with itself.

    Parameters
    ----------
    kernel : kernel of ``certus.objectives``
        With ``Precomputed()``, X is the matrix itself.
    X : array or sparse matrix
        Training rows.
    megabytes : float
        Budget of the store.
    """

    def __init__(self, kernel: t.Kernel, X: Any, megabytes: float = 1000.0) -> None:
        self.kernel, self.X, self.n = kernel, X, X.shape[0]
        self.whole = isinstance(kernel, t.Precomputed)
        self._points = (
            ev.Points(X, kernel.gamma) if type(kernel) is t.Gaussian else None
        )
        if self.whole:
            self.store = np.ascontiguousarray(X, dtype=np.float64)
            self.slot = np.arange(self.n)
            return
        budget = megabytes * 1e6
        single = 8.0 * self.n * self.n > min(budget, SMALL)
        dtype = np.float32 if single else np.float64
        width = np.dtype(dtype).itemsize * self.n
        capacity = int(min(self.n, max(min(FEWEST, self.n), budget // max(1, width))))
        self.store = np.empty((capacity, self.n), dtype=dtype)
        self.slot = np.full(self.n, -1)
        self._owner = np.full(capacity, -1)
        self._used = np.zeros(capacity, dtype=np.int64)
        self._clock = 0

    @property
    def exact(self) -> bool:
        """Whether rows are kept in float64."""
        return bool(self.store.dtype == np.float64)

    @property
    def capacity(self) -> int:
        """How many rows fit."""
        return len(self.store)

    def fetch(self, index: Array) -> Array:
        """Places in ``store`` of distinct rows ``index``, at most ``capacity``."""
        if self.whole:
            return np.ascontiguousarray(self.slot[index])
        self._clock += 1
        have = self.slot[index] >= 0
        self._used[self.slot[index[have]]] = self._clock
        missing = index[~have]
        if len(missing):
            # Free places come first: they have never been used.
            places = np.argpartition(self._used, len(missing) - 1)[: len(missing)]
            places = places[np.argsort(places)]
            gone = self._owner[places]
            self.slot[gone[gone >= 0]] = -1
            self._compute(missing, places)
            self._owner[places], self.slot[missing] = missing, places
            self._used[places] = self._clock
        return np.ascontiguousarray(self.slot[index])

    def _compute(self, index: Array, places: Array) -> None:
        if self._points is not None:
            rows = self._points.rows
            part = ev.Centred(rows.X[index], rows.norms[index])
            self._points.fill(part, self.store, places)
        else:
            self.store[places] = ev.evaluate(self.kernel, self.X[index], self.X)

    def add(self, index: Array, change: Array, f: Array) -> None:
        """F += Σ change·K[index], from rows of the store."""
        self._accumulate(self.fetch(index), change, f)

    def _accumulate(self, slots: Array, change: Array, f: Array) -> None:
        change = np.ascontiguousarray(change)
        half = max(1 << 12, -(-self.n // 4))

        def work(start: int) -> None:
            stop = min(start + half, self.n)
            add_rows(self.store, slots, change, f, start, stop)

        ev.spread(work, range(0, self.n, half), len(slots) * self.n)

    def gather(self, slots: Array, columns: Array) -> Array:
        """Entries of rows of the store, in float64."""
        out = np.empty((len(slots), len(columns)))
        columns, some = np.ascontiguousarray(columns), max(1, -(-len(slots) // 4))

        def work(start: int) -> None:
            part = slice(start, start + some)
            gather_square(self.store, slots[part], columns, out[part])

        ev.spread(work, range(0, len(slots), some), out.size)
        return out

    def square(self, index: Array) -> Array:
        """K[index, index] in float64, computed again."""
        if self.whole:
            return self.store[np.ix_(index, index)]
        if self.exact and len(index) and np.all(self.slot[index] >= 0):
            return self.store[np.ix_(self.slot[index], index)]
        return ev.evaluate(self.kernel, self.X[index], self.X[index])

    def product(self, index: Array, coef: Array) -> Array:
        """K[:, index] @ coef in float64, block by block, nothing kept."""
        if self.exact and coef.ndim == 1 and np.all(self.slot[index] >= 0):
            f = np.zeros(self.n)
            self._accumulate(np.ascontiguousarray(self.slot[index]), coef, f)
            return f
        if self.whole:
            return np.asarray(coef.T @ self.store[index]).T
        return multiply(self.kernel, self.X, self.X[index], coef)


def multiply(kernel: t.Kernel, A: Matrix, B: Matrix, coef: Array) -> Array:
    """k(A, B) @ coef, holding only a block of the matrix at a time."""
    n, m = A.shape[0], B.shape[0]
    out = np.zeros((n, *coef.shape[1:]))
    if m == 0 or n == 0:
        return out
    if type(kernel) is t.Gaussian:
        points = ev.Points(B, kernel.gamma)
        return points.times(points.like(A), coef)
    step = max(1, CHUNK // m)
    for first in range(0, n, step):
        out[first : first + step] = (
            ev.evaluate(kernel, A[first : first + step], B) @ coef
        )
    return out


def as_rows(X: Any) -> Any:
    """Rows as float64 in C order, or CSR: what products by blocks want."""
    if sparse.issparse(X):
        return X.tocsr().astype(np.float64, copy=False)
    return np.ascontiguousarray(X, dtype=np.float64)
