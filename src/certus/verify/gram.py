"""The verifier's own kernel formulas, in plain NumPy float64.

``gram`` is the matrix of kernel values of two sets of rows, ``products`` its product
with coefficients, block by block, ``diagonal`` the values k(x, x). Whether a kernel is
positive semidefinite is read off its form where that suffices, else looked into.
"""

from __future__ import annotations

import math
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, sparse
from scipy.spatial.distance import cdist

from certus import terms as t
from certus.verify.blocks import over_blocks
from certus.verify.data import Array

UNIT = 2.0**-53
#: Kernel values held at a time by one thread.
_BLOCK = 1 << 18
#: Above this gamma·‖x‖² inner products lose too many digits of a distance.
_CANCELS = 1e4


def gram(kernel: t.Kernel, A: Any, B: Any) -> Array:
    """k(a, b) for all rows a of A and b of B."""
    match kernel:
        case t.Linear():
            return _inner(A, B)
        case t.Polynomial(degree, coef0, gamma):
            return np.asarray(np.power(_inner(A, B) * gamma + coef0, degree))
        case t.Sigmoid(gamma, coef0):
            return np.tanh(_inner(A, B) * gamma + coef0)
        case t.Gaussian(gamma):
            return _gaussian(A, B, float(gamma))
        case t.Laplace(gamma, norm):
            return np.exp(-gamma * _distance(A, B, int(norm)))
        case t.Sum(left, right):
            return gram(left, A, B) + gram(right, A, B)
        case t.Product(left, right):
            return gram(left, A, B) * gram(right, A, B)
        case t.Scaled(factor, inner):
            return gram(inner, A, B) * factor
        case t.Exponentiated(inner):
            return np.exp(gram(inner, A, B))
        case t.Weighted(inner, function):
            left = np.asarray(function(A), dtype=float).reshape(-1, 1)
            right = np.asarray(function(B), dtype=float).reshape(1, -1)
            return left * gram(inner, A, B) * right
        case t.Composed(inner, feature_map):
            mapped = [feature_map(M) for M in (A, B)]
            dense = [m if sparse.issparse(m) else np.asarray(m, float) for m in mapped]
            return gram(inner, *dense)
    raise TypeError(f"no formula for the kernel {kernel!r}")


def _floats(A: Any) -> Any:
    """Rows in float64: products of small integers would wrap around."""
    return A.astype(np.float64) if sparse.issparse(A) else np.asarray(A, dtype=float)


def _inner(A: Any, B: Any) -> Array:
    G = _floats(A) @ _floats(B).T
    return np.asarray(G.toarray() if sparse.issparse(G) else G)


def _square(A: Any) -> Array:
    A = _floats(A)
    if sparse.issparse(A):
        return np.asarray(A.power(2).sum(axis=1)).ravel()
    return np.asarray((A * A).sum(axis=1))


def _gaussian(A: Any, B: Any, gamma: float) -> Array:
    if not (sparse.issparse(A) or sparse.issparse(B)):
        origin = np.asarray(B, dtype=float).mean(axis=0)
        A, B = np.asarray(A, dtype=float) - origin, np.asarray(B, dtype=float) - origin
    a, b = _square(A), _square(B)
    dense = not sparse.issparse(A)
    if dense and gamma * max(a.max(initial=0.0), b.max(initial=0.0)) > _CANCELS:
        return np.exp(-gamma * cdist(A, B, "sqeuclidean"))
    K = _inner(A, B)
    K *= 2 * gamma
    K -= (gamma * a)[:, None]
    K -= gamma * b
    np.minimum(K, 0.0, out=K)
    return np.exp(K, out=K)


def _distance(A: Any, B: Any, norm: int) -> Array:
    if not (sparse.issparse(A) or sparse.issparse(B)):
        metric = {1: "cityblock", 2: "euclidean"}[norm]
        return np.asarray(cdist(np.asarray(A, float), np.asarray(B, float), metric))
    if norm == 1:
        raise ValueError("the Laplace kernel with norm=1 needs dense rows")
    a, b = _square(A)[:, None], _square(B)
    square = a + b - 2 * _inner(A, B)
    return np.sqrt(np.where(square <= 8 * np.finfo(float).eps * (a + b), 0.0, square))


def diagonal(kernel: t.Kernel, X: Any) -> Array:
    """k(x, x) for every row."""
    if isinstance(kernel, t.Precomputed):
        return np.asarray(X.diagonal() if sparse.issparse(X) else np.diagonal(X), float)
    if isinstance(kernel, t.Gaussian | t.Laplace):
        return np.ones(X.shape[0])
    out = np.empty(X.shape[0])
    for i in range(0, X.shape[0], 256):
        rows = X[i : i + 256]
        out[i : i + 256] = np.diagonal(gram(kernel, rows, rows))
    return out


class Sizes(NamedTuple):
    """The largest abs(k(x, x')), and a bound of the rounding of each value."""

    top: float
    error: float


def sizes(kernel: t.Kernel, X: Any) -> Sizes:
    """How large the values of a kernel are, and how well they are computed."""
    d = X.shape[1]
    slip = 2 * (d + 16) * UNIT
    match kernel:
        case t.Precomputed():
            return Sizes(float(abs(X).max()), 0.0)
        case t.Linear():
            top = float(_square(X).max())
            return Sizes(top, slip * top)
        case t.Polynomial(degree, coef0, gamma):
            inner = abs(gamma) * float(_square(X).max()) + abs(coef0)
            top = inner**degree
            return Sizes(top, (degree + 4) * slip * top)
        case t.Sigmoid(gamma, coef0):
            inner = abs(gamma) * float(_square(X).max()) + abs(coef0)
            return Sizes(1.0, slip * (inner + 4))
        case t.Gaussian(gamma):
            return Sizes(1.0, slip * (4 + 4 * gamma * _reach(X)))
        case t.Laplace(gamma, _):
            if not sparse.issparse(X):
                return Sizes(1.0, 2 * slip)
            # Distances from inner products: the root of a difference that cancels.
            lost = math.sqrt(4 * slip * float(_square(X).max()))
            return Sizes(1.0, 2 * slip + gamma * lost)
        case t.Sum(left, right):
            a, b = sizes(left, X), sizes(right, X)
            return Sizes(a.top + b.top, a.error + b.error + slip * (a.top + b.top))
        case t.Product(left, right):
            a, b = sizes(left, X), sizes(right, X)
            both = a.top * b.top
            cross = a.error * b.top + b.error * a.top + a.error * b.error
            return Sizes(both, cross + slip * both)
        case t.Scaled(factor, inner):
            a = sizes(inner, X)
            return Sizes(factor * a.top, factor * (a.error + slip * a.top))
        case t.Exponentiated(inner):
            a = sizes(inner, X)
            top = math.exp(min(a.top, 700.0))
            return Sizes(top, top * (a.error + 4 * UNIT) * math.exp(min(a.error, 1.0)))
        case t.Weighted(inner, function):
            a = sizes(inner, X)
            most = float(np.abs(np.asarray(function(X), dtype=float)).max()) ** 2
            return Sizes(most * a.top, most * (a.error + slip * a.top))
        case t.Composed(inner, feature_map):
            mapped = feature_map(X)
            return sizes(
                inner, mapped if sparse.issparse(mapped) else np.asarray(mapped)
            )
    raise TypeError(f"no formula for the kernel {kernel!r}")


def _reach(X: Any) -> float:
    """The largest squared distance from the mean, from which inner products lose."""
    if sparse.issparse(X):
        return 4 * float(_square(X).max())
    low = X.min(axis=0).astype(float)
    return float(np.square(X.max(axis=0).astype(float) - low).sum())


def products(kernel: t.Kernel, X: Any, support: Array, coef: Array) -> Array:
    """K[:, support] @ coef, a block of rows at a time, on the threads allowed."""
    n, m = X.shape[0], len(support)
    out = np.zeros((n, coef.shape[1]))
    if m == 0:
        return out
    X = X.tocsr() if sparse.issparse(X) else X
    own = isinstance(kernel, t.Precomputed)
    base = X[:, support] if own else X[support]
    step = max(1, _BLOCK // m)
    gaussian = None
    if isinstance(kernel, t.Gaussian) and not sparse.issparse(X):
        gaussian = _Gaussian(base, kernel.gamma)
    buffers: dict[int, Array] = {}

    def work(rows: slice) -> None:
        if gaussian is not None:
            room = buffers.setdefault(get_ident(), np.empty(step * m))
            K = gaussian.block(X[rows], room)
        else:
            K = base[rows] if own else gram(kernel, X[rows], base)
        out[rows] = np.asarray(K @ coef, dtype=float)

    for _ in over_blocks(work, n, step, alone=n * m <= 4 * _BLOCK):
        pass
    return out


class _Gaussian:
    """As :func:`_gaussian`, with what belongs to B computed once and room reused."""

    def __init__(self, B: Any, gamma: float) -> None:
        self.gamma = float(gamma)
        self.B = np.asarray(B, dtype=float)
        self.origin = self.B.mean(axis=0)
        shifted = self.B - self.origin
        self.b = self.gamma * _square(shifted)
        self.columns = np.ascontiguousarray(2 * self.gamma * shifted.T)

    def block(self, A: Any, room: Array) -> Array:
        A = np.asarray(A, dtype=float) - self.origin
        a = self.gamma * _square(A)
        if max(a.max(initial=0.0), self.b.max(initial=0.0)) > _CANCELS:
            return _gaussian(A + self.origin, self.B, self.gamma)
        K = room[: len(A) * len(self.b)].reshape(len(A), len(self.b))
        np.matmul(A, self.columns, out=K)
        K -= self.b
        K -= a[:, None]
        return np.exp(K, out=K)


def given_matrix(kernel: t.Given, X: Any) -> Array:
    """The whole matrix of a kernel that is a user's function."""
    K = kernel.function(X, X)
    K = np.asarray(K.toarray() if sparse.issparse(K) else K, dtype=float)
    if K.ndim != 2 or K.shape[0] != K.shape[1]:
        raise ValueError(f"the kernel function returned shape {K.shape}, not a square")
    return K


def positive_by_form(kernel: t.Kernel) -> bool:
    """Whether the closure properties of kernels alone show it."""
    match kernel:
        case t.Linear():
            return True
        case t.Polynomial(degree, coef0, gamma):
            whole = float(degree) == int(degree) and degree >= 0
            return bool(whole and coef0 >= 0 and gamma >= 0)
        case t.Gaussian(gamma) | t.Laplace(gamma, _):
            return bool(gamma >= 0)
        case t.Sum(left, right) | t.Product(left, right):
            return positive_by_form(left) and positive_by_form(right)
        case t.Scaled(factor, inner):
            return bool(factor >= 0 and positive_by_form(inner))
        case t.Exponentiated(inner) | t.Weighted(inner, _) | t.Composed(inner, _):
            return positive_by_form(inner)
    return False


def smallest_eigenpair(kernel: t.Kernel, X: Any, slack: float) -> tuple[float, float]:
    """Smallest eigenvalue (0 if a Cholesky factor shows ≥ −slack) and the asymmetry."""
    if isinstance(kernel, t.Precomputed):
        K = np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=float)
    else:
        K = gram(kernel, X, X)
    asymmetry = float(np.abs(K - K.T).max(initial=0.0))
    K = (K + K.T) / 2
    lifted = K.copy()
    lifted.flat[:: len(K) + 1] += max(slack, np.finfo(float).tiny)
    try:
        linalg.cholesky(lifted, check_finite=False, overwrite_a=True)
        return 0.0, asymmetry
    except linalg.LinAlgError:
        values = linalg.eigvalsh(K, subset_by_index=[0, 0], check_finite=False)
        return float(values[0]), asymmetry
