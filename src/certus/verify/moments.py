"""The passes over a matrix that tell whether directions are its principal ones.

A is X, or X less its column means. One pass over B = X − 1bᵀ, b any point near the mean
(or zero), gives t = Bᵀ1, ‖B‖² and PBᵀB; with r = t/n, AᵀA = BᵀB − n·rrᵀ.

Rounding. For ‖p‖ = 1, columns in runs of 512 and m additions of rows,
|fl(Bp) − Bp| ≤ γ_{512+d/512}‖B‖ and |fl(Bᵀz) − Bᵀz| ≤ γ_m‖B‖‖z‖, with the shift
‖δr‖ ≤ γ_m‖B‖/√n: AᵀAp is off by at most γ_k‖B‖² + γ_m‖B‖(‖Ap‖ + 4√n‖r‖).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, eigsh

from certus.verify import data
from certus.verify.blocks import add_up, over_blocks
from certus.verify.covariance import covariance_about
from certus.verify.data import Array
from certus.verify.deciding import gamma

#: Up to so many cells the probes take a second step: a few milliseconds.
STEPS = 1 << 24
#: Cells of X handled at a time, and columns multiplied at a time.
CELLS, WIDE = 1 << 19, 512
#: Singular values between these ends have fourth powers that lose nothing.
SMALL, LARGE = 1e-60, 1e60


class Data(NamedTuple):
    """The data in float64's range, and what the model says about them."""

    X: Any
    V: Array
    sigma: Array
    centred: bool
    shift: Array
    scale: float
    unit: float  # rounding of the model's own numbers


class Moments(NamedTuple):
    """What one pass tells: means of columns, ‖A‖², and PAᵀA for directions P as rows.

    And how far both may be off: the squares by ``loose``, a product by ``loose`` and
    ``each`` times ‖Ap‖. ``projected`` is what a fingerprint of dense rows needs,
    ``gram`` is AᵀA where it was formed.
    """

    mean: Array
    squares: float
    raw: float  # ‖B‖²
    products: Array
    loose: float
    each: float
    projected: Array | None
    gram: Array | None = None


def read(model: Any, X: Any, centred: bool, top: float | None = None) -> Data:
    """What the model says, refused where it makes no sense, at a scale that squares.

    ``top`` is the size of the data; by default, what the model says of it.
    """
    V = np.asarray(model.components_)
    unit = float(np.finfo(V.dtype if V.dtype.kind == "f" else np.float64).eps)
    V = V.astype(np.float64)
    sigma = np.asarray(model.singular_values_, dtype=np.float64)
    d = X.shape[1]
    if V.ndim != 2 or V.shape[1] != d:
        raise ValueError(
            f"X has {d} columns and the model was fitted on {V.shape[-1]}."
        )
    sound = np.isfinite(V).all() and np.isfinite(sigma).all() and (sigma >= 0).all()
    if sigma.shape != V.shape[:1] or not sound:
        raise ValueError("The model's components make no sense. Fit it again.")
    shift = np.zeros(d)
    if centred:
        shift = np.asarray(model.mean_, dtype=np.float64)
        if shift.shape != (d,) or not np.isfinite(shift).all():
            raise ValueError("The model's mean makes no sense. Fit it again.")
    scale = 1.0
    top = float(np.abs(np.append(sigma, shift)).max()) if top is None else top
    if top > 0 and not SMALL < top < LARGE:
        scale = math.ldexp(1.0, -math.frexp(top)[1])
        X = X.astype(np.float64) * scale
        shift, sigma = shift * scale, sigma * scale
    return Data(X, V, sigma, centred, shift, scale, unit)


def size_of(X: Any) -> float:
    """The largest entry, in size."""
    values = X.data if sparse.issparse(X) else X
    return max(float(values.max(initial=0)), -float(values.min(initial=0)))


def probes_of(V: Array, most: int) -> Array:
    """Orthonormal rows, orthogonal to the components; none if nothing is left."""
    k, d = V.shape
    count = max(min(most, d - k), 0)
    some = np.random.default_rng(0).standard_normal((count, d))
    # The components may be no orthonormal rows; their Gram matrix makes up for it.
    solve = np.linalg.pinv(V @ V.T) if count else np.zeros((k, k))
    for _ in range(2 if count else 0):
        some = np.linalg.qr((some - (some @ V.T @ solve) @ V).T)[0].T
    return np.asarray(some)


def moments(given: Data, P: Array, whole: bool = False) -> Moments:
    """One pass (sparse X: two) over the rows; ``P`` has a direction in each row.

    ``whole`` takes the whole of AᵀA on the way, where X is dense.
    """
    X, (n, d) = given.X, given.X.shape
    whole, far = whole and not sparse.issparse(X), is_far(given)
    base = given.shift if far or whole else np.zeros(d)
    gram = projected = None
    if sparse.issparse(X) and not far:
        X = X.astype(np.float64)
        squares = float(X.data @ X.data)
        left = np.asarray(X.T @ np.ones(n)).ravel() / n
        products = np.ascontiguousarray(np.asarray(X.T @ (X @ P.T)).T)
        m, k = _longest(X)
    elif whole:
        spread, left = covariance_about(X, base)
        gram, squares = n * spread.matrix, n * float(spread.diagonal.sum())
        products, m, k = P @ gram, int(spread.share / gamma(1)) + 1, 0
    else:
        rows = max(64, CELLS // max(1, d))
        sums, squares, products, projected = _dense_pass(X, base, P, rows)
        left, m = sums / n, min(rows, n) + n // rows + 1
        k = min(d, WIDE) + d // WIDE + 1
    raw, away = squares, math.sqrt(n) * float(np.linalg.norm(left))
    each = gamma(m + 8) * math.sqrt(raw)
    loose = gamma(k + 8) * squares + each * (4 * away if given.centred else 0.0)
    if gram is not None:  # summed over rows first: |E_ij| ≤ γ·N_i N_j
        loose, each = loose + gamma(m + 8) * squares, 0.0
    if given.centred:  # what remains of the mean, by a correction of rank one
        products = products - n * np.outer(P @ left, left)
        squares = max(squares - n * float(left @ left), 0.0)
        gram = None if gram is None else gram - n * np.outer(left, left)
    return Moments(base + left, squares, raw, products, loose, each, projected, gram)


def _longest(X: Any) -> tuple[int, int]:
    """Most entries of a column and of a row of a sparse matrix."""
    along, across = np.diff(X.indptr), np.bincount(X.indices, minlength=1)
    most = int(along.max(initial=0)), int(across.max(initial=0))
    return most if X.format == "csc" else most[::-1]


def is_far(given: Data) -> bool:
    """Whether rows lie so far from the origin that they are centred before products."""
    top, n = float(given.sigma.max(initial=0.0)), given.X.shape[0]
    return given.centred and n * float(given.shift @ given.shift) > 10 * top**2


def _dense(block: Any) -> Array:
    """Some rows in float64; the few of a sparse matrix that are looked at together."""
    block = block.toarray() if sparse.issparse(block) else block
    return np.asarray(block.astype(np.float64, copy=False))


def _dense_pass(
    X: Any, shift: Array, P: Array, rows: int
) -> tuple[Array, float, Array, Array]:
    """Sums, sum of squares, PBᵀB of the rows B = X − shift, and the fingerprint's X u.

    All from one product: P has u and, after it is applied, a row of ones beside it.
    """
    k, (n, d) = len(P), X.shape
    u = data.direction(d)
    P = np.vstack([P, u])
    offset, moved = float(shift @ u), bool(shift.any())
    columns = [slice(j, j + WIDE) for j in range(0, d, WIDE)]
    projected = np.empty(n)

    def look(part: slice) -> tuple[Array, float]:
        block = _dense(X[part])
        block = block - shift if moved else block
        z = P[:, columns[0]] @ block[:, columns[0]].T
        for some in columns[1:]:
            z += P[:, some] @ block[:, some].T
        projected[part] = z[k] + offset
        z[k] = 1.0
        return z @ block, float(np.vdot(block, block))

    out, squares = add_up(over_blocks(look, n, rows))
    return out[k], squares, out[:k], projected


def variance_outside(given: Data, found: Moments, probes: Array, level: str) -> float:
    """A variance that some direction orthogonal to the components has at least."""
    k, V = len(given.V), given.V
    if not len(probes):
        return 0.0
    L = found.products[k:]
    L = L - (L @ V.T) @ V
    least = float(np.linalg.norm(L, 2))
    # A cell of a sparse matrix costs about eight of a dense one.
    cells = 8 * given.X.nnz if sparse.issparse(given.X) else given.X.size
    if level == "quick" and cells <= STEPS and least > 0:
        W = np.linalg.qr(L.T)[0].T
        L = moments(given, W - (W @ V.T) @ V).products
        return max(least, float(np.linalg.norm(L - (L @ V.T) @ V, 2)))
    return max(least, _longer(given, found)) if level == "full" else least


def _longer(given: Data, found: Moments) -> float:
    """As :func:`variance_outside`, by a Lanczos iteration on the deflated operator."""
    X, V = given.X, given.V
    d = X.shape[1]
    if d - len(V) < 3:
        return 0.0
    m = found.mean if given.centred else np.zeros(d)

    def product(v: Array) -> Array:
        v = v.ravel() - V.T @ (V @ v.ravel())
        z = data.dot(X, v) - m @ v
        w = data.t_dot(X, z) - m * z.sum()
        return np.asarray(w - V.T @ (V @ w))

    start = np.random.default_rng(1).standard_normal(d)
    operator = LinearOperator((d, d), matvec=product, dtype=np.float64)
    top = eigsh(operator, k=1, v0=start, tol=1e-3, return_eigenvectors=False)
    return float(top[0])


def gram(given: Data, found: Moments) -> Array:
    """AᵀA, or AAᵀ if that is smaller, centred explicitly; off by γ_{n+d}‖B‖²."""
    X, (n, d) = given.X, given.X.shape
    if found.gram is not None:
        return found.gram
    m = found.mean if given.centred else np.zeros(d)
    if sparse.issparse(X) and not is_far(given):
        X = X.astype(np.float64)
        if n >= d:
            return np.asarray((X.T @ X).toarray()) - n * np.outer(m, m)
        Xm = np.asarray(X @ m).ravel()
        return np.asarray((X @ X.T).toarray()) - Xm[:, None] - Xm + m @ m
    if n < d:
        wide = max(4 * n, 1 << 14)
        slabs = (slice(j, j + wide) for j in range(0, d, wide))
        parts = [_dense(X[:, part]) - m[part] for part in slabs]
        return np.asarray(sum((A @ A.T for A in parts), np.zeros((n, n))))
    rows = max(4 * d, 1 << 14)
    blocks = (_dense(X[i : i + rows]) - m for i in range(0, n, rows))
    return np.asarray(sum((A.T @ A for A in blocks), np.zeros((d, d))))
