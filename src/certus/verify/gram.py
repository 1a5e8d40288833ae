"""The verifier's own kernel formulas, in plain NumPy float64.

``values`` are those of two sets of rows with a bound of their size and of the rounding
of each; ``sums`` their products with coefficients, block by block. Whether a kernel is
positive semidefinite follows from its form where that suffices, and is else computed.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, sparse
from scipy.spatial.distance import cdist

from certus.objectives import terms as t
from certus.typing import Array, Matrix, Places
from certus.verify import data
from certus.verify.blocks import over_blocks
from certus.verify.kernel.spaces import UNIT, gamma
from certus.verify.stating import Refusal

#: Kernel values held at a time by one thread.
BLOCK = 1 << 18
#: Above this gamma·‖x‖² inner products lose too many digits of a distance.
CANCELS = 1e4
#: A negative eigenvalue smaller than this share of the trace may be rounding.
SHARE = 1e-10


class Values(NamedTuple):
    """Kernel values; none is larger than ``top``, and each is off by ``error``."""

    K: Array
    top: float
    error: float
    #: Whether the closure properties of kernels alone show that it is one.
    positive: bool = False


def gram(kernel: t.Kernel, A: Matrix, B: Matrix) -> Array:
    """k(a, b) for all rows a of A and b of B."""
    return values(kernel, A, B).K


def values(kernel: t.Kernel, A: Matrix, B: Matrix) -> Values:
    """k(a, b) for all rows a of A and b of B, and how well they are computed."""
    slip = 2 * (A.shape[1] + 16) * UNIT
    match kernel:
        case t.Linear():
            top = _reach(A, B)
            return Values(_inner(A, B), top, slip * top, True)
        case t.Polynomial(degree, coef0, factor):
            top = float(np.power(abs(factor) * _reach(A, B) + abs(coef0), degree))
            # Other powers are infinitely steep somewhere.
            steps = degree + 4 if degree == 0 or degree >= 1 else math.inf
            K = np.asarray(np.power(_inner(A, B) * factor + coef0, degree))
            whole = float(degree).is_integer() and degree >= 0
            return Values(K, top, steps * slip * top, whole and min(coef0, factor) >= 0)
        case t.Sigmoid(factor, coef0):
            reach = abs(factor) * _reach(A, B) + abs(coef0)
            K = np.tanh(_inner(A, B) * factor + coef0)
            return Values(K, 1.0, slip * (reach + 4))
        case t.Gaussian(width):
            return _gaussian(B, float(width))(A)
        case t.Laplace(width, norm):
            distance, lost = _distance(_floats(A), _floats(B), int(norm), slip)
            K = np.exp(-width * distance)
            return Values(K, 1.0, 2 * slip + width * lost, width >= 0)
        case t.Sum(left, right):
            a, b = values(left, A, B), values(right, A, B)
            top, both = a.top + b.top, a.positive and b.positive
            return Values(a.K + b.K, top, a.error + b.error + slip * top, both)
        case t.Product(left, right):
            a, b = values(left, A, B), values(right, A, B)
            error = a.error * b.top + b.error * a.top + a.error * b.error
            top, both = a.top * b.top, a.positive and b.positive
            return Values(a.K * b.K, top, error + slip * top, both)
        case t.Scaled(factor, inner):
            a, size = values(inner, A, B), abs(factor)
            error = size * (a.error + slip * a.top)
            return Values(a.K * factor, size * a.top, error, a.positive and factor >= 0)
        case t.Exponentiated(inner):
            a = values(inner, A, B)
            top = math.exp(min(a.top, 700.0))
            error = top * (a.error + 4 * UNIT) * math.exp(min(a.error, 1.0))
            return Values(np.exp(a.K), top, error, a.positive)
        case t.Weighted(inner, function):
            a = values(inner, A, B)
            left, right = (np.asarray(function(M), float).ravel() for M in (A, B))
            size = float(np.abs(left).max() * np.abs(right).max())
            K, error = left[:, None] * a.K * right, size * (a.error + slip * a.top)
            return Values(K, size * a.top, error, a.positive)
        case t.Composed(inner, feature_map):
            return values(inner, _floats(feature_map(A)), _floats(feature_map(B)))
    raise TypeError(f"there is no formula for the kernel {kernel!r}")


def _floats(A: Matrix) -> Any:
    """Rows in float64: products of small integers would wrap around."""
    return A.astype(np.float64) if sparse.issparse(A) else np.asarray(A, dtype=float)


def _inner(A: Matrix, B: Matrix) -> Array:
    return data.dense(_floats(A) @ _floats(B).T)


def _square(A: Matrix) -> Array:
    A = _floats(A)
    squares = A * A if isinstance(A, np.ndarray) else A.multiply(A)
    return np.asarray(squares.sum(axis=1)).ravel()


def _reach(A: Matrix, B: Matrix) -> float:
    """The largest squared length of a row."""
    return float(max(_square(A).max(initial=0.0), _square(B).max(initial=0.0)))


def _gaussian(B: Matrix, width: float) -> Callable[[Matrix], Values]:
    """k(·, b) for all rows b of B, as a function of other rows."""
    base = _floats(B)
    dense = not sparse.issparse(base)
    origin = base.mean(axis=0) if dense else None
    base = base - origin if dense else base
    b, slip = width * _square(base), 2 * (B.shape[1] + 16) * UNIT
    stack = np.hstack if dense else functools.partial(sparse.hstack, format="csr")
    columns = stack([base, np.full((len(b), 1), -1.0), -b[:, None]]).T.copy()

    def of(A: Matrix) -> Values:
        near = _floats(A) - origin if dense else _floats(A)
        a = width * _square(near)
        reach = float(max(a.max(initial=0.0), b.max(initial=0.0)))
        if dense and reach > CANCELS:
            K = np.exp(-width * cdist(A, B, "sqeuclidean"))
            return Values(K, 1.0, 4 * slip, width >= 0)
        # −‖a − b‖² = (2a, ‖a‖², 1)ᵀ(b, −1, −‖b‖²): one product, and nothing to subtract
        rows = stack([2 * width * near, a[:, None], np.ones((len(a), 1))])
        K, error = data.dense(rows @ columns), slip * (4 + 4 * reach)
        if not dense:  # far from zero a square is negative by its rounding, and large
            np.minimum(K, 0.0, out=K)
        return Values(np.exp(K, out=K), 1.0 + error, error, width >= 0)

    return of


def _distance(A: Matrix, B: Matrix, norm: int, slip: float) -> tuple[Array, float]:
    """Distances in a norm, and what they lose beyond a share of themselves."""
    if not (sparse.issparse(A) or sparse.issparse(B)):
        return np.asarray(cdist(A, B, {1: "cityblock", 2: "euclidean"}[norm])), 0.0
    if norm == 1:
        raise ValueError("the Laplace kernel with norm=1 needs dense rows")
    both = _square(A)[:, None] + _square(B)
    square = both - 2 * _inner(A, B)
    distance = np.sqrt(np.where(square <= 16 * UNIT * both, 0.0, square))
    # The root of a difference that cancels.
    return distance, math.sqrt(8 * slip * _reach(A, B))


def against(kernel: t.Kernel, X: Matrix, some: Places) -> Callable[[Places], Values]:
    """k(·, x) for some of the rows x, as a function of the other rows.

    What depends on the rows x alone is computed once.
    """
    if isinstance(kernel, t.Precomputed):
        table = X[:, some]

        def stored(rows: Places) -> Values:
            K = data.dense(table[rows]).astype(np.float64)
            return Values(K, float(np.abs(K).max(initial=0.0)), 0.0)

        return stored
    if isinstance(kernel, t.Gaussian):
        formula = _gaussian(X[some], kernel.gamma)
    else:
        formula = functools.partial(values, kernel, B=X[some])
    return lambda rows: formula(X[rows])


def diagonal(kernel: t.Kernel, X: Matrix) -> Array:
    """k(x, x) for every row."""
    parts = (slice(i, i + 256) for i in range(0, X.shape[0], 256))
    own = [np.diagonal(against(kernel, X, part)(part).K) for part in parts]
    return np.concatenate(own)


class GramSums(NamedTuple):
    """Sums Z = K·C of m kernel values, for K + lack·I where that makes it a kernel."""

    Z: Array
    m: int
    top: float
    error: float
    lack: float

    def off(self, c: Array) -> float:
        """How far Σ c·k may be from its float value."""
        size = float(np.abs(c).sum()) * (1 + 1e-9)
        each = gamma(self.m + 16) * self.top + self.error
        return each * size + self.lack * float(np.abs(c).max(initial=0.0))


def sums(kernel: t.Kernel, X: Matrix, parts: list[Array], lack: float = 0) -> GramSums:
    """K·C for coefficients on all rows, a block at a time, on the threads allowed."""
    C = np.column_stack(parts)
    used = np.flatnonzero(C.any(axis=1))
    n, m = X.shape[0], len(used)
    Z = np.zeros(C.shape)
    if m == 0:
        return GramSums(Z, 0, lack, 0.0, lack)
    C, formula = C[used], against(kernel, X, used)

    def work(rows: slice) -> tuple[float, float]:
        found = formula(rows)
        Z[rows] = found.K @ C
        return found.top, found.error

    step, alone = max(1, BLOCK // m), n * m <= 4 * BLOCK
    top, error = np.max(list(over_blocks(work, n, step, alone=alone)), axis=0)
    return GramSums(Z, m, float(top) + lack, float(error), lack)


# -- whether it is a kernel -------------------------------------------------------


def look_into(kernel: t.Kernel, X: Matrix, trace: float) -> tuple[float, float, float]:
    """The multiple of I that makes K a kernel matrix, or inf and K's least eigenvalue.

    Last comes the asymmetry. What a Cholesky factor shows to be enough is tried:
    a factor that is found is that of a matrix within γₙ·trace (Rump); values that are
    off by ``error`` each, and half of an asymmetry, count n times.
    """
    K, _, error, _ = against(kernel, X, slice(None))(slice(None))
    n, skew = len(K), float(np.abs(K - K.T).max(initial=0.0))
    K = (K + K.T) / 2
    rounding = 2 * gamma(n + 4) * trace + n * (error + skew)
    for lift in (rounding, SHARE * trace):
        lifted = K.copy()
        lifted.flat[:: n + 1] += max(lift, np.finfo(float).tiny)
        try:
            linalg.cholesky(lifted, check_finite=False, overwrite_a=True)
            return lift + rounding, 0.0, skew
        except linalg.LinAlgError:
            continue
    least = linalg.eigvalsh(K, subset_by_index=[0, 0], check_finite=False)
    return math.inf, float(least[0]), skew


# -- kernels by their names and parameters ---------------------------------------------

#: Kernels by their names, of gamma and what else is stated.
FORMS: dict[str, Callable[[float, Any], Any]] = {
    "linear": lambda width, stated: t.Linear(),
    "poly": lambda width, stated: t.Polynomial(stated.degree, stated.coef0, width),
    "rbf": lambda width, stated: t.Gaussian(width),
    "laplacian": lambda width, stated: t.Laplace(width, 1),
    "sigmoid": lambda width, stated: t.Sigmoid(width, stated.coef0),
    "precomputed": lambda width, stated: t.Precomputed(),
}
FORMS["polynomial"] = FORMS["poly"]


def kernel_of(stated: Any, X: Matrix, s: Array) -> Any:
    """The term that the parameters stand for; "scale" is computed again."""
    name, gamma = stated.kernel, stated.gamma
    if isinstance(name, t.Kernel):
        return name
    if callable(name) and stated.options is None:
        return t.OwnKernel(name)
    if isinstance(name, str) and name in FORMS:
        if isinstance(gamma, str):
            gamma = _gamma(gamma, X, s if stated.weighted_gamma else np.ones(len(s)))
        width = 1.0 / X.shape[1] if gamma is None else float(gamma)
        return FORMS[name](width, stated)
    pairwise = sys.modules.get("sklearn.metrics.pairwise")
    if pairwise is None:
        raise Refusal(f"kernel={name!r} has no formula here")
    more: Any = {} if stated.gamma is None else {"gamma": stated.gamma}
    more = stated.options if callable(name) else {"filter_params": True, **more}
    formula = functools.partial(pairwise.pairwise_kernels, metric=name, **more)
    return t.OwnKernel(formula)


def _gamma(name: str, X: Matrix, s: Array) -> float:
    """1/(d·variance of all cells), or 1/d."""
    d, share = X.shape[1], s / s.sum()
    if name != "scale":
        return 1.0 / d
    A: Any = X.astype(np.float64)
    mean = float(share @ np.asarray(A.sum(axis=1)).ravel()) / d
    sparsely = sparse.issparse(A)
    squares = A.multiply(A) if sparsely else np.square(A - mean)
    variance = float(share @ np.asarray(squares.sum(axis=1)).ravel()) / d
    variance -= mean**2 if sparsely else 0.0
    return 1.0 / (d * variance) if variance > 0 else 1.0


def check_kernel(kernel: tuple[Any, ...], X: Matrix) -> None:
    """Raise unless the numbers of a kernel, and of its parts, are ones it can have."""
    if isinstance(kernel, t.Precomputed) and X.shape[0] != X.shape[1]:
        raise ValueError(
            f"X has shape {X.shape}; a precomputed kernel is a square matrix, one row "
            "and one column for each training row."
        )
    if isinstance(kernel, t.Gaussian | t.Laplace) and not kernel.gamma >= 0:
        raise ValueError(f"{kernel!r}: gamma must not be negative.")
    for part in kernel:
        if isinstance(part, float) and not math.isfinite(part):
            raise ValueError(f"{kernel!r} holds a parameter that is not finite.")
        if isinstance(part, tuple):
            check_kernel(part, X)


def text_of(kernel: t.Kernel) -> str:
    """The kernel as a certificate writes it."""
    parts = [f"{v:.4g}" for v in kernel if isinstance(v, int | float)]
    parts += [text_of(v) for v in kernel if isinstance(v, t.Kernel)]
    name = type(kernel).__name__
    return f"{name}({', '.join(parts)})" if parts else name
