"""Code that models of a covariance share: read dense rows, compute mean and covariance.

    m = Σx/n,   S = Σ(x − m)(x − m)ᵀ/n

are sums over rows, taken block by block; S is then all that a fit looks at. Where rows
are fewer than columns S is never formed: the centred rows are used instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from certus.base import Model, require_finite, validate_data
from certus.typing import Array, MatrixLike

#: Cells of a block of rows, so that it stays in cache while it is multiplied.
BLOCK = 1 << 17
#: Up to this many columns the covariance is formed, however few the rows.
SMALL = 256


class RowMoments(NamedTuple):
    """Mean and covariance S of n rows.

    ``matrix`` is S itself where ``formed``, else the centred rows over √n.
    """

    n: int
    mean: Array
    variances: Array
    matrix: Array
    formed: bool = True

    def scaled(self, u: Array) -> RowMoments:
        """Those of the rows with column j multiplied by u[j]."""
        matrix = self.matrix * u
        if self.formed:
            matrix *= u[:, None]
        return RowMoments(
            self.n, self.mean * u, self.variances * u * u, matrix, self.formed
        )

    def columns(self, some: Array) -> RowMoments:
        """Those of some of the columns."""
        matrix = self.matrix[:, some]
        if self.formed:
            matrix = matrix[some]
        return RowMoments(
            self.n, self.mean[some], self.variances[some], matrix, self.formed
        )

    def times(self, B: Array) -> Array:
        """S @ B."""
        product = self.matrix @ B
        return np.asarray(product if self.formed else self.matrix.T @ product)

    def eigen(self, k: int) -> tuple[Array, Array]:
        """The k largest eigenvalues, falling, and their vectors as columns.

        Each vector's largest entry is positive, so that equal data give equal signs.
        """
        small = self.matrix if self.formed else self.matrix @ self.matrix.T
        m = len(small)
        k = min(k, m)
        if k == 0:
            return np.zeros(0), np.zeros((len(self.variances), 0))
        values, V = eigh(small, subset_by_index=(m - k, m - 1), check_finite=False)
        values, V = np.maximum(values[::-1], 0.0), V[:, ::-1]
        if not self.formed:
            V = self.matrix.T @ V
            norms = np.linalg.norm(V, axis=0)
            V = V / np.where(norms > 0, norms, 1.0)
        largest = V[np.abs(V).argmax(axis=0), np.arange(V.shape[1])]
        return values, V * np.where(largest < 0, -1.0, 1.0)


def moments(X: Array, name: str) -> RowMoments:
    """Mean and covariance of the rows of X in float64; errors use ``name``."""
    n, d = X.shape
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.asarray(np.ones(n, dtype=X.dtype) @ X, dtype=np.float64) / n
        if d > n and d > SMALL:
            rows = (X - mean) / np.sqrt(n)
            found = RowMoments(n, mean, np.einsum("ij,ij->j", rows, rows), rows, False)
        else:
            found = _by_blocks(X, mean)
        if not np.isfinite(found.variances.sum()):
            raise ValueError(
                f"{name}: the squares of X are too large for float64. Standardise the "
                "columns (StandardScaler)."
            )

    def ends(some: Array) -> tuple[Array, Array]:
        return X[:, some].min(axis=0), X[:, some].max(axis=0)

    return without_rounding(found, X.dtype, ends, name)


def _by_blocks(X: Array, mean: Array) -> RowMoments:
    """By sums over blocks; the rounding error of ``mean`` is removed at the end."""
    n, d = X.shape
    size = max(1, BLOCK // d)
    square, rest = np.zeros((d, d)), np.zeros(d)
    for i in range(0, n, size):
        block = np.subtract(X[i : i + size], mean, dtype=np.float64)
        square += block.T @ block
        rest += block.sum(axis=0)
    rest /= n
    square = square / n - np.outer(rest, rest)
    return RowMoments(n, mean + rest, np.maximum(np.diag(square), 0.0).copy(), square)


def without_rounding(
    found: RowMoments,
    dtype: Any,
    ends: Callable[[Array], tuple[Array, Array]],
    name: str,
) -> RowMoments:
    """Columns that hold one value have that mean and exactly no variance.

    ``ends`` gives the least and the largest value of some columns.
    """
    unit = float(np.finfo(dtype).eps)
    bound = np.square(4 * unit * np.abs(found.mean)) + 1e-290
    some = np.flatnonzero(found.variances <= bound)
    low, high = ends(some) if len(some) else (some, some)
    for i, j in enumerate(some):
        if low[i] == high[i]:
            found.mean[j] = low[i]
            found.variances[j] = 0.0
            found.matrix[:, j] = 0.0
            if found.formed:
                found.matrix[j] = 0.0
        elif found.variances[j] <= 1e-290:
            raise ValueError(
                f"{name}: column {j} of X varies by less than 1e-145, too little to be "
                "squared. Standardise the columns (StandardScaler)."
            )
    return found


class DenseTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Model):
    """Takes dense rows and gives factors; abstract."""

    def _dense(self, X: MatrixLike, reset: bool = False) -> Any:
        X = validate_data(
            self,
            X,
            reset=reset,
            dtype=[np.float64, np.float32],
            ensure_min_samples=2 if reset else 1,
            ensure_all_finite=False,
        )
        require_finite(X, type(self).__name__)
        return X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
