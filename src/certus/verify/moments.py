"""Passes over a matrix that show whether directions are its principal ones.

A is X, or X less its column means. One pass over B = X − 1bᵀ, b any point near the mean
(or zero), gives t = Bᵀ1, ‖B‖² and PBᵀB; with r = t/n, AᵀA = BᵀB − n·rrᵀ.

Rounding. For ‖p‖ = 1, columns in runs of 512 and m additions of rows,
|fl(Bp) − Bp| ≤ γ_{512+d/512}‖B‖ and |fl(Bᵀz) − Bᵀz| ≤ γ_m‖B‖‖z‖, with the shift
‖δr‖ ≤ γ_m‖B‖/√n: AᵀAp is off by at most γ_k‖B‖² + γ_m‖B‖(‖Ap‖ + 4√n‖r‖). The squares
of a block of c cells are added up √c at a time: ‖B‖² is off by γ_{2√c+b}‖B‖², b blocks.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.fingerprints import direction
from certus.typing import Array, Fit, Matrix
from certus.verify import data, stating
from certus.verify.block_moments import added_up
from certus.verify.blocks import add_up, cores, over_blocks
from certus.verify.covariance import covariance_about
from certus.verify.deciding import gamma, power_of_two
from certus.verify.recomputed import RecomputedBlocks

#: Up to this many cells the probes take a second step: a few milliseconds. Steps at
#: level "full".
STEPS, MANY = 1 << 24, 20
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
    again: RecomputedBlocks  # where the rows come as blocks


class Moments(NamedTuple):
    """What one pass tells: means of columns, ‖A‖², and PAᵀA for directions P as rows.

    And how far both may be off: the squares by ``wide``, a product by ``loose`` and
    ``each`` times ‖Ap‖. ``projected`` is what a fingerprint of dense rows needs,
    ``gram`` is AᵀA where it was formed.
    """

    mean: Array
    squares: float
    raw: float  # ‖B‖²
    products: Array
    loose: float
    each: float
    wide: float
    projected: Array | None
    gram: Array | None = None
    marks: Any = None  # of blocks


def read(model: Fit, X: Matrix, centred: bool, top: float | None = None) -> Data:
    """What the model says, refused where it makes no sense, at a scale that squares.

    ``top`` is the size of the data; by default, what the model says of it.
    """
    d = X.shape[1]
    V = data.fitted(model, "components_", (None, d), finite=True)
    unit = float(np.finfo(V.dtype if V.dtype.kind == "f" else np.float64).eps)
    sigma = data.fitted(model, "singular_values_", (len(V),), finite=True).astype(float)
    if (sigma < 0).any():
        raise ValueError("singular_values_ holds negative numbers. Fit it again.")
    shift = np.zeros(d)
    if centred:
        shift = data.fitted(model, "mean_", (d,), finite=True).astype(float)
    top = data.size_of(np.append(sigma, shift)) if top is None else top
    scale = 1.0 if SMALL < top < LARGE else power_of_two(top)
    if scale != 1.0 and stating.by_address(X):
        raise stating.Refusal(
            "the columns are too small or too large to be squared block by block",
            "scale the columns",
        )
    if scale != 1.0:
        X = X.astype(np.float64) * scale
    sizes = V.astype(float), sigma * scale, centred, shift * scale
    return Data(X, *sizes, scale, unit, RecomputedBlocks())


def probes_of(V: Array, most: int) -> Array:
    """Orthonormal rows, orthogonal to the components; none if nothing is left."""
    k, d = V.shape
    some = np.random.default_rng(0).standard_normal((max(min(most, d - k), 0), d))
    # The components may not be orthonormal; their Gram matrix corrects for that.
    solve = np.linalg.pinv(V @ V.T) if len(some) else np.zeros((k, k))
    for _ in range(2 if len(some) else 0):
        some = np.linalg.qr((some - (some @ V.T @ solve) @ V).T)[0].T
    return np.asarray(some)


def moments(given: Data, P: Array, whole: bool = False) -> Moments:
    """One pass over the rows; ``P`` has a direction in each row.

    ``whole`` takes the whole of AᵀA on the way, where X is dense.
    """
    X, (n, d) = given.X, given.X.shape
    if stating.by_address(X):
        return _of_blocks(given, P, whole)
    whole, far = whole and not sparse.issparse(X), is_far(given)
    base = given.shift if far or whole else np.zeros(d)
    gram = projected = None
    if whole:
        spread, left = covariance_about(X, base)
        gram, squares = n * spread.matrix, n * float(spread.diagonal.sum())
        products, m, k, deep = P @ gram, int(spread.share / gamma(1)) + 1, 0, d
    else:
        rows = max(64, CELLS // max(1, d))
        if sparse.issparse(X) and not far:
            X, rows = X.tocsr(), -(-n // cores())
        sums, squares, products, projected = _one_pass(X, base, P, rows)
        left, m = sums / n, min(rows, n) + n // rows + 1
        k, cells = min(d, WIDE) + d // WIDE + 1, min(rows, n) * d
        if sparse.issparse(X) and not far:  # additions of entries, and of blocks
            m = int(np.bincount(X.indices, minlength=1).max()) + cores()
            k, cells = int(np.diff(X.indptr).max()), X.nnz
        deep = 2 * math.isqrt(cells) + n // rows + 4
    raw, away = squares, math.sqrt(n) * float(np.linalg.norm(left))
    each = gamma(m + 8) * math.sqrt(raw)
    loose = gamma(k + 8) * squares + each * (4 * away if given.centred else 0.0)
    if gram is not None:  # summed over rows first: |E_ij| ≤ γ·N_i N_j
        loose, each = loose + gamma(m + 8) * squares, 0.0
    if given.centred:  # what remains of the mean, by a correction of rank one
        products = products - n * np.outer(P @ left, left)
        squares = max(squares - n * float(left @ left), 0.0)
        gram = None if gram is None else gram - n * np.outer(left, left)
    wide = loose + gamma(deep) * raw
    mean = base + left
    return Moments(mean, squares, raw, products, loose, each, wide, projected, gram)


def _of_blocks(given: Data, P: Array, whole: bool) -> Moments:
    """One pass over blocks of rows."""
    n, d = given.X.shape
    base = given.shift if is_far(given) or whole else np.zeros(d)
    found = added_up(given.X, given.again, base, P, whole)
    left, squares, gram = found.sums / n, found.squares, None
    products, k = found.products, d
    if whole:
        products, gram, k = P @ products, products, 0
    raw, away = squares, math.sqrt(n) * float(np.linalg.norm(left))
    each = gamma(found.depth + 8) * math.sqrt(raw)
    loose = gamma(k + 8) * squares + each * (4 * away if given.centred else 0.0)
    if gram is not None:
        loose, each = loose + gamma(found.depth + d + 8) * squares, 0.0
    if given.centred:
        products = products - n * np.outer(P @ left, left)
        squares = max(squares - n * float(left @ left), 0.0)
        gram = None if gram is None else gram - n * np.outer(left, left)
    wide = loose + gamma(found.deep) * raw
    more = (products, loose, each, wide, None, gram, found.marks)
    return Moments(base + left, squares, raw, *more)


def is_far(given: Data) -> bool:
    """Whether rows lie so far from the origin that they are centred before products."""
    top, n = float(given.sigma.max(initial=0.0)), given.X.shape[0]
    return given.centred and n * float(given.shift @ given.shift) > 10 * top**2


def _one_pass(
    X: Matrix, shift: Array, P: Array, rows: int
) -> tuple[Array, float, Array, Array]:
    """Sums, sum of squares, PBᵀB of the rows B = X − shift, and the fingerprint's X u.

    All from one product: P has u and, after it is applied, a row of ones beside it.
    Sparse rows stay sparse where they are not shifted.
    """
    k, (n, d) = len(P), X.shape
    u, moved = direction(d), bool(shift.any())
    P, offset = np.vstack([P, u]), float(shift @ u)
    thin = sparse.issparse(X) and not moved
    turned = np.ascontiguousarray(P.T) if thin else P.T
    columns = [slice(j, j + WIDE) for j in range(0, d, WIDE)]
    projected = np.empty(n)

    def look(part: slice) -> tuple[Array, float]:
        block: Any = X[part] if thin else data.dense(X[part])
        block = block.astype(np.float64, copy=False)
        block = block - shift if moved else block
        if thin:
            z = (block @ turned).T
        else:
            z = sum(P[:, some] @ block[:, some].T for some in columns)
        projected[part] = z[k] + offset
        z[k] = 1.0
        return z @ block, _sum_of_squares(block.data if thin else block)

    out, squares = add_up(over_blocks(look, n, rows))
    out = np.ascontiguousarray(out)
    return out[k], squares, out[:k], projected


def _sum_of_squares(values: Array) -> float:
    """The sum over m numbers in √m runs of √m: at most 2√m + 3 additions deep."""
    flat = values.ravel(order="K")
    run = math.isqrt(len(flat))
    square, rest = flat[: run * run].reshape(run, run), flat[run * run :]
    return float(np.vecdot(square, square).sum() + rest @ rest)


def variance_outside(given: Data, found: Moments, level: str) -> float:
    """A variance that some direction orthogonal to the components has at least.

    From the products of the probes, after further steps of subspace iteration.
    """
    V, L = given.V, found.products[len(given.V) :]
    # A cell of a sparse matrix costs about eight of a dense one.
    cells = 8 * given.X.nnz if sparse.issparse(given.X) else math.prod(given.X.shape)
    steps = MANY if level == "full" else int(cells <= STEPS)
    least = 0.0
    for step in range(steps + 1 if len(L) else 0):
        if step:
            W = np.linalg.qr(L.T)[0].T
            L = moments(given, W - (W @ V.T) @ V).products
        L = L - (L @ V.T) @ V
        least = max(least, float(np.linalg.norm(L, 2)))
    return least


def gram(given: Data, found: Moments) -> Array:
    """AᵀA, or AAᵀ if that is smaller, centred explicitly; off by γ_{n+d}‖B‖²."""
    X, (n, d) = given.X, given.X.shape
    if found.gram is not None:
        return found.gram
    if sparse.issparse(X) and not given.centred:
        X = X.astype(np.float64)
        return np.asarray((X.T @ X if n >= d else X @ X.T).toarray())
    m = found.mean if given.centred else np.zeros(d)
    step, total = max(4 * min(n, d), 1 << 14), np.zeros((min(n, d),) * 2)
    for i in range(0, max(n, d), step):
        part = slice(i, i + step)
        if n >= d:
            A = data.dense(X[part]).astype(np.float64) - m
        else:
            A = (data.dense(X[:, part]).astype(np.float64) - m[part]).T
        total += A.T @ A
    return total
