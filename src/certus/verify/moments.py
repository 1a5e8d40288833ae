"""The passes over a matrix that tell whether directions are its principal ones.

A is X, or X less its column means. One pass gives its means, ‖A‖² and AᵀA applied to a
few directions; others look for a variance that was left out, or take the whole Gram
matrix.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, eigsh

from certus.verify import data
from certus.verify.blocks import add_up, over_blocks
from certus.verify.data import Array

#: Up to so many cells the probes take a second step: a few milliseconds.
STEPS = 1 << 24
#: Singular values between these ends have fourth powers that lose nothing.
SMALL, LARGE = 1e-60, 1e60


class Moments(NamedTuple):
    """What one pass tells: means of columns, ‖A‖², and PAᵀA for directions P as rows.

    And the projection of the rows that a fingerprint needs, where X is dense.
    """

    mean: Array
    squares: float
    products: Array
    projected: Array | None


class Data(NamedTuple):
    """The data, how they are read, and what the model says about them."""

    X: Any
    V: Array
    sigma: Array
    centred: bool
    shift: Array
    scale: float
    single: bool


def read(model: Any, X: Any, centred: bool) -> Data:
    """What the model says, refused where it makes no sense, at a scale that squares."""
    V = np.asarray(model.components_)
    single = V.dtype == np.float32
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
    scale, top = 1.0, float(np.abs(np.append(sigma, shift)).max())
    if top > 0 and not SMALL < top < LARGE:
        scale = float(2.0 ** -np.round(np.log2(top)))
        X, shift, sigma = X * scale, shift * scale, sigma * scale
    return Data(X, V, sigma, centred, shift, scale, single)


def probes_of(given: Data, most: int) -> Array:
    """Orthonormal rows, orthogonal to the components; none if nothing is left."""
    V = given.V
    k, d = V.shape
    count = min(most, d - k)
    if count <= 0:
        return np.zeros((0, d))
    some = np.random.default_rng(0).standard_normal((count, d))
    # The components may be no orthonormal rows; their Gram matrix makes up for it.
    solve = np.linalg.pinv(V @ V.T)
    for _ in range(2):
        some = np.linalg.qr((some - (some @ V.T @ solve) @ V).T)[0].T
    return np.asarray(some)


def moments(given: Data, P: Array) -> Moments:
    """One pass (sparse X: two) over the rows; ``P`` has a direction in each row."""
    X, (n, d) = given.X, given.X.shape
    far = is_far(given)
    base = given.shift if far else np.zeros(d)
    if sparse.issparse(X) and not far:
        values = X.data.astype(np.float64, copy=False)
        squares, projected = float(values @ values), None
        sums = np.asarray(X.T @ np.ones(n)).ravel()
        products = np.ascontiguousarray(data.t_dot(X, data.dot(X, P.T)).T)
    else:
        sums, squares, products, projected = _dense_pass(X, base if far else None, P)
    left = sums / n
    if given.centred:  # what remains of the mean, by a correction of rank one
        products = products - n * np.outer(P @ left, left)
        squares -= n * float(left @ left)
    return Moments(base + left, max(squares, 0.0), products, projected)


def is_far(given: Data) -> bool:
    """Whether rows lie so far from the origin that they are centred before products."""
    top, n = float(given.sigma.max(initial=0.0)), given.X.shape[0]
    return given.centred and n * float(given.shift @ given.shift) > 10 * top**2


def _dense(block: Any) -> Array:
    """Some rows in float64; the few of a sparse matrix that are looked at together."""
    block = block.toarray() if sparse.issparse(block) else block
    return np.asarray(block.astype(np.float64, copy=False))


def _dense_pass(
    X: Any, shift: Array | None, P: Array
) -> tuple[Array, float, Array, Array]:
    """Sums, sum of squares, PBᵀB of the rows B = X − shift, and the fingerprint's X u.

    All from one product: P has u and, after it is applied, a row of ones beside it.
    """
    k, (n, d) = len(P), X.shape
    u = data.direction(d)
    P = np.vstack([P, u])
    offset = 0.0 if shift is None else float(shift @ u)

    projected = np.empty(n)

    def look(part: slice) -> tuple[Array, float]:
        block = _dense(X[part])
        block = block if shift is None else block - shift
        z = P @ block.T
        projected[part] = z[k] + offset
        z[k] = 1.0
        return z @ block, float(np.vdot(block, block))

    out, squares = add_up(over_blocks(look, n, (1 << 20) // max(1, d)))
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
    """AᵀA, or AAᵀ if that is smaller, centred explicitly."""
    X, (n, d) = given.X, given.X.shape
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
