"""Kernel matrices, in blocks, through BLAS, for the solvers.

``evaluate(kernel, A, B)`` is k(a, b) for all pairs of rows, in float64, of dense or
sparse rows. The Gaussian kernel, which most machines use, has a path of its own: one
matrix product that gives the exponents, then the exponential, on as many threads as
allowed. The verifier has its own formulas; a test compares the two.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

from certus.base import thread_budget, thread_pools
from certus.objectives import terms as t
from certus.typing import Array, DTypeLike, Matrix, MatrixLike

#: Entries of a block handled at a time: its inner products stay in the second cache.
BLOCK = 1 << 18
#: Entries from which a second thread pays.
MANY = 1 << 19
#: Beyond this gamma·‖x‖², distances are taken by differences: cancellation would show.
STEEP = 1e4
#: Up to this gamma·‖x‖² exponents are accurate enough in single precision.
MILD = 32.0


def evaluate(kernel: t.Kernel, A: Any, B: Any) -> Array:
    """The matrix k(a, b) over rows a of A and b of B.

    Parameters
    ----------
    kernel : kernel of ``certus.objectives``
        What to evaluate.
    A, B : array or sparse matrix
        Rows; the same number of columns.

    Returns
    -------
    array of shape (len(A), len(B))
        float64.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.kernels.evaluate import evaluate
    >>> from certus.objectives import Polynomial
    >>> A, B = np.array([[1.0, 2.0]]), np.array([[3.0, 0.5]])
    >>> evaluate(Polynomial(2, coef0=1.0), A, B)
    array([[25.]])
    """
    match kernel:
        case t.Linear():
            return dot(A, B)
        case t.Polynomial(degree, coef0, gamma):
            return np.asarray((gamma * dot(A, B) + coef0) ** degree)
        case t.Sigmoid(gamma, coef0):
            return np.tanh(gamma * dot(A, B) + coef0)
        case t.Gaussian(gamma):
            other = Points(B, gamma)
            return other.block(other.like(A))
        case t.Laplace(gamma, norm):
            return np.exp(-gamma * distances(A, B, norm))
        case t.Sum(left, right):
            return evaluate(left, A, B) + evaluate(right, A, B)
        case t.Product(left, right):
            return evaluate(left, A, B) * evaluate(right, A, B)
        case t.Scaled(factor, inner):
            return factor * evaluate(inner, A, B)
        case t.Exponentiated(inner):
            return np.exp(evaluate(inner, A, B))
        case t.Weighted(inner, function):
            f, g = (np.ravel(np.asarray(function(M), dtype=float)) for M in (A, B))
            return f[:, None] * evaluate(inner, A, B) * g
        case t.Composed(inner, feature_map):
            return evaluate(inner, _mapped(feature_map, A), _mapped(feature_map, B))
        case t.OwnKernel(function):
            return _given(function, A, B)
    raise TypeError(f"{kernel!r} cannot be evaluated on rows.")


def _mapped(feature_map: Callable[..., Any], A: Matrix) -> Any:
    mapped = feature_map(A)
    return mapped if sparse.issparse(mapped) else np.asarray(mapped, dtype=float)


def _given(function: Callable[..., Any], A: Any, B: Any) -> Array:
    K = function(A, B)
    K = np.asarray(K.toarray() if sparse.issparse(K) else K, dtype=np.float64)
    n, m = (M.shape[0] if hasattr(M, "shape") else len(M) for M in (A, B))
    if K.shape != (n, m):
        raise ValueError(
            f"The kernel function returned shape {K.shape} for {n} and {m} rows. It "
            "must return one row for each row of its first argument, one column for "
            "each row of its second."
        )
    return K


def dot(A: Any, B: Any) -> Array:
    """Inner products of rows as a dense float64 matrix."""
    G = A @ B.T
    return np.asarray(G.toarray() if sparse.issparse(G) else G, dtype=np.float64)


def squared_norms(A: Any) -> Array:
    """‖a‖² of each row."""
    if sparse.issparse(A):
        return np.asarray(A.multiply(A).sum(axis=1), dtype=np.float64).ravel()
    return np.einsum("ij,ij->i", A, A, dtype=np.float64)


def distances(A: Matrix, B: Matrix, norm: int) -> Array:
    """‖a − b‖ for all pairs, by differences where the rows are dense."""
    if not (sparse.issparse(A) or sparse.issparse(B)):
        metric = "cityblock" if norm == 1 else "euclidean"
        return np.asarray(cdist(_double(A), _double(B), metric))
    if norm == 1:
        raise ValueError(
            "The Laplace kernel with norm=1 needs dense rows. Use norm=2, or "
            "X.toarray()."
        )
    a, b = squared_norms(A), squared_norms(B)
    square = a[:, None] + b - 2 * dot(A, B)
    noise = 8 * np.finfo(np.float64).eps * (a[:, None] + b)
    return np.sqrt(np.where(square > noise, square, 0.0))


def _double(A: Matrix) -> Array:
    return np.ascontiguousarray(A, dtype=np.float64)


# -- the Gaussian path ------------------------------------------------------------


class Centred(NamedTuple):
    """Rows with the centre taken off, and their squared norms."""

    X: Any
    norms: Array


class Points:
    """Rows against which Gaussian kernels are evaluated again and again.

    The exponent is one inner product, of rows lengthened by two: (√2γ·x, −γ‖x‖², 1)
    with (√2γ·z, 1, −γ‖z‖²).
    """

    def __init__(self, B: Matrix, gamma: float) -> None:
        self.gamma = float(gamma)
        self.centre = None
        if not sparse.issparse(B):
            B = _double(B)
            self.centre = B.mean(axis=0)
        self.rows = self.like(B)
        self.largest = self.gamma * float(self.rows.norms.max(initial=0.0))
        self.steep = self.centre is not None and self.largest > STEEP
        self._right: dict[Any, Any] = {}

    def like(self, A: Any) -> Centred:
        """Other rows, prepared in the same way."""
        if self.centre is None:
            A = A if sparse.issparse(A) else sparse.csr_array(A)
            A = A.tocsr().astype(np.float64, copy=False)
        else:
            A = A.toarray() if sparse.issparse(A) else A
            A = np.ascontiguousarray(_double(A) - self.centre)
        return Centred(A, squared_norms(A))

    def block(self, A: Centred) -> Array:
        """exp(−gamma·‖a − b‖²) as a new array."""
        out = np.empty((A.X.shape[0], self.rows.X.shape[0]))
        self.fill(A, out, np.arange(len(out)))
        return out

    def fill(self, A: Centred, out: Array, slots: Array) -> None:
        """The same, written into rows ``slots`` of ``out`` (float64 or float32)."""
        m, n = A.X.shape[0], self.rows.X.shape[0]
        if m == 0 or n == 0:
            return
        if self.steep:
            out[slots] = np.exp(-self.gamma * cdist(A.X, self.rows.X, "sqeuclidean"))
            return
        # Single precision where the result is single and its exponent small.
        dtype = out.dtype if self.largest <= MILD else np.dtype(np.float64)
        left, right = self._left(A, dtype), self._columns(dtype)
        tall = min(m, 512)
        width = max(64, BLOCK // tall)
        buffers: dict[int, Array] = {}

        def work(start: int) -> None:
            stop = min(start + width, n)
            own = buffers.setdefault(get_ident(), np.empty(tall * width, dtype))
            for first in range(0, m, tall):
                last = min(first + tall, m)
                shape = (last - first, stop - start)
                E = own[: shape[0] * shape[1]].reshape(shape)
                exponents(left, right, first, last, start, stop, E)
                np.exp(E, out=E)
                out[slots[first:last], start:stop] = E

        spread(work, range(0, n, width), m * n)

    def times(self, A: Centred, coef: Array) -> Array:
        """The same times ``coef``, block by block: the matrix is never held."""
        m, n = A.X.shape[0], self.rows.X.shape[0]
        out = np.zeros((m, *coef.shape[1:]))
        if self.steep or m == 0 or n == 0:
            for first in range(0, m, max(1, BLOCK // max(n, 1))):
                rows = slice(first, first + max(1, BLOCK // n))
                K = np.exp(-self.gamma * cdist(A.X[rows], self.rows.X, "sqeuclidean"))
                out[rows] = K @ coef
            return out
        dtype = np.dtype(np.float64)
        left, right = self._left(A, dtype), self._columns(dtype)
        wide = min(n, 1024)
        tall = max(16, BLOCK // wide)
        buffers: dict[int, Array] = {}

        def work(first: int) -> None:
            last = min(first + tall, m)
            own = buffers.setdefault(get_ident(), np.empty(tall * wide))
            for start in range(0, n, wide):
                stop = min(start + wide, n)
                shape = (last - first, stop - start)
                E = own[: shape[0] * shape[1]].reshape(shape)
                exponents(left, right, first, last, start, stop, E)
                np.exp(E, out=E)
                out[first:last] += E @ coef[start:stop]

        spread(work, range(0, m, tall), m * n)
        return out

    def _left(self, A: Centred, dtype: DTypeLike) -> Any:
        ones = np.ones(len(A.norms))
        return _lengthen(A.X, self.gamma, (-self.gamma * A.norms, ones), dtype)

    def _columns(self, dtype: DTypeLike) -> Any:
        """The rows, lengthened and transposed, kept for the next call."""
        if dtype not in self._right:
            rows, ones = self.rows, np.ones(len(self.rows.norms))
            wide = _lengthen(
                rows.X, self.gamma, (ones, -self.gamma * rows.norms), dtype
            )
            sparse_rows = sparse.issparse(wide)
            self._right[dtype] = wide if sparse_rows else np.ascontiguousarray(wide.T)
        return self._right[dtype]


def _lengthen(
    X: MatrixLike, gamma: float, more: tuple[Array, Array], dtype: DTypeLike
) -> Any:
    scaled = X * np.sqrt(2 * gamma)
    if sparse.issparse(X):
        tail = sparse.csr_array(np.column_stack(more))
        return sparse.hstack([scaled, tail], format="csr", dtype=np.float64)
    return np.column_stack([scaled, *more]).astype(dtype)


def exponents(
    left: Any, right: Any, first: int, last: int, start: int, stop: int, out: Array
) -> None:
    """Inner products of rows first:last with rows start:stop, into ``out``."""
    if sparse.issparse(right):
        out[...] = (left[first:last] @ right[start:stop].T).toarray()
    else:
        np.matmul(left[first:last], right[:, start:stop], out=out)


#: The threads of the current fit, while :func:`own_threads` is active.
_TEAM: ContextVar[tuple[int, ThreadPoolExecutor] | None] = ContextVar(
    "team", default=None
)


@contextlib.contextmanager
def own_threads() -> Iterator[None]:
    """Keep BLAS to one thread and share the work of ``spread`` among ours instead.

    Two sets of threads that wait for each other by spinning cost more than they bring.
    """
    if _TEAM.get() is not None:
        yield
        return
    budget = thread_budget()
    pool = ThreadPoolExecutor(budget)
    token = _TEAM.set((budget, pool))
    try:
        with thread_pools().limit(limits=1, user_api="blas"):
            yield
    finally:
        _TEAM.reset(token)
        pool.shutdown(wait=True)


def spread(work: Callable[[int], None], starts: Any, entries: int) -> None:
    """Run ``work(start)`` for each start, on several threads if it is worth it."""
    starts = list(starts)
    if entries < MANY or len(starts) == 1:
        for start in starts:
            work(start)
        return
    with own_threads():
        team = _TEAM.get()
        assert team is not None
        budget, pool = team
        if budget == 1:
            for start in starts:
                work(start)
        else:
            list(pool.map(work, starts))


def is_positive(kernel: t.Kernel) -> bool:
    """Whether the form of the kernel alone makes every Gram matrix semidefinite."""
    match kernel:
        case t.Linear():
            return True
        case t.Polynomial(degree, coef0, gamma):
            return degree >= 0 and float(degree).is_integer() and min(coef0, gamma) >= 0
        case t.Gaussian(gamma) | t.Laplace(gamma, _):
            return gamma >= 0
        case t.Sum(left, right) | t.Product(left, right):
            return is_positive(left) and is_positive(right)
        case t.Scaled(factor, inner):
            return factor >= 0 and is_positive(inner)
        case t.Exponentiated(inner) | t.Weighted(inner, _) | t.Composed(inner, _):
            return is_positive(inner)
    return False
