"""Matrix products for the checkers, and reading what a fit has stored.

Everything is computed in float64. Dense blocks of another dtype are cast a block at a
time, so checking never doubles the memory of X; sparse X is never densified.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from certus import fingerprints
from certus.typing import Array, Column, Fit, Matrix, Shape
from certus.verify.kernel import reading

_BLOCK = 1 << 18  # elements handled at a time, so that they stay in cache


def dot(X: Matrix, w: Array) -> Array:
    """X @ w in float64."""
    if sparse.issparse(X) or X.dtype == np.float64:
        return np.asarray(X @ w, dtype=np.float64)
    return np.concatenate([X[rows].astype(np.float64) @ w for rows in _blocks(X)])


def t_dot(X: Matrix, u: Array) -> Array:
    """Xᵀ @ u in float64."""
    if sparse.issparse(X) or X.dtype == np.float64:
        return np.asarray(X.T @ u, dtype=np.float64)
    parts = (X[rows].astype(np.float64).T @ u[rows] for rows in _blocks(X))
    return np.asarray(sum(parts))


def _blocks(X: Matrix) -> list[slice]:
    step = max(1, _BLOCK // max(1, X.shape[1]))
    return [slice(i, i + step) for i in range(0, max(1, X.shape[0]), step)]


def dense(X: Matrix) -> Array:
    """Rows as a dense array; used for a few rows of a sparse matrix at a time."""
    return np.asarray(X if isinstance(X, np.ndarray) else X.toarray())


def size_of(X: Matrix) -> float:
    """The largest entry, in size."""
    values = X if isinstance(X, np.ndarray) else X.data
    return max(float(values.max(initial=0)), -float(values.min(initial=0)))


def fitted(
    model: Fit, name: str, shape: Shape = None, *, finite: bool = False
) -> Array:
    """Numbers that a fit has stored, of a given shape; None stands for any length."""
    try:
        found, wrong = reading.plain(getattr(model, name)), ""
    except ValueError:
        found, wrong, shape = np.zeros(0), "does not hold numbers", None
    if finite and not np.isfinite(found).all():
        wrong = "holds NaN or infinite values"
    sizes = found.shape if shape is None else shape
    pairs = zip(sizes, found.shape)
    if len(sizes) != found.ndim or any(a not in (None, b) for a, b in pairs):
        wrong = f"has shape {found.shape}, but the columns of X require {shape}"
    if wrong:
        said = f"{name} of this {type(model).__name__} {wrong}"
        raise ValueError(f"{said}. Fit it again, or restore its file.")
    return found


def named(what: str, which: Array | list[int]) -> str:
    """Name some columns or rows: "columns 0, 4"; the first five of many."""
    shown = ", ".join(str(int(i)) for i in which[:5])
    what = f"{what}s" if len(which) > 1 else what
    return f"{what} {shown} …" if len(which) > 5 else f"{what} {shown}"


def listed(model: Fit, name: str) -> Any:
    """Ids, words or labels that a fit has stored, as a list."""
    found = getattr(model, name)
    if not isinstance(found, list | tuple) and np.ndim(found) != 1:
        text = f"{name} of this {type(model).__name__} is not a list. Fit it again."
        raise ValueError(text)
    return found


def row_weights(sample_weight: Column, n: int) -> Array:
    """The given row weights, read by the kernel."""
    given = reading.weights(sample_weight, n)
    return np.ldexp(given.s, given.power)


#: Columns up to which they are summed one by one.
NARROW = 8


def fingerprint(
    X: Matrix, y: Array, s: Array, projected: Array | None = None
) -> dict[str, Any]:
    """The fingerprint of the rows; NaN and inf in X are refused.

    Every cell enters with a weight that is not zero, so that NaN and inf are found.
    ``projected`` is X @ direction(d), if a pass of the checker has computed it already.
    """
    # Sums without BLAS where little is summed: its threads would keep turning
    # afterwards, and slow whatever the user does next.
    with np.errstate(over="ignore", invalid="ignore"):
        if projected is None:
            column, d = fingerprints.direction(X.shape[1]), X.shape[1]
            few = d <= NARROW and isinstance(X, np.ndarray)
            projected = np.einsum("ij,j", dense(X), column) if few else dot(X, column)
        top = size_of(projected)
    if not np.isfinite(top):
        reading.refuse_holes(X)
    return fingerprints.of_table(X, y, s, projected, top)


def marks_of(
    X: Any, y: object, sample_weight: Column, *, holes: bool = False
) -> dict[str, Any]:
    """Fingerprint of rows of any kind; NaN is allowed where the model accepts it."""
    X = X if hasattr(X, "shape") or hasattr(X, "__len__") else np.asarray(X)
    n = sum(X.shape[:1]) if hasattr(X, "shape") else len(X)
    if not n:
        raise ValueError("X must have one entry per row, but is empty.")
    s = row_weights(sample_weight, n)
    return fingerprints.of_rows(X, y, s, holes=holes)
