"""The covariance of rows about a point, as the verifier computes it: one pass, float64.

Where rows are fewer than columns it is never formed; the centred rows stand for it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus.verify.data import Array

EPS = float(np.finfo(np.float64).eps)
#: Up to so many rows or columns, eigenvalues are computed.
EIGEN = 2_000
_BLOCK = 1 << 17
_SMALL = 1024


class Spread(NamedTuple):
    """Covariance about a point: itself, or centred rows over √n that stand for it."""

    matrix: Array
    diagonal: Array
    formed: bool

    def times(self, B: Array) -> Array:
        """S @ B."""
        product = self.matrix @ B
        return np.asarray(product if self.formed else self.matrix.T @ product)

    def eigen(self) -> tuple[Array, Array]:
        """Eigenvalues, falling, and vectors as columns."""
        if self.formed:
            values, V = np.linalg.eigh(self.matrix)
            return values[::-1], V[:, ::-1]
        _, s, Vt = np.linalg.svd(self.matrix, full_matrices=False)
        return np.square(s), Vt.T

    def scaled(self, u: Array, some: Array | None = None) -> Spread:
        """That of some columns, each multiplied by its number in u."""
        some = np.ones(len(self.diagonal), dtype=bool) if some is None else some
        matrix = self.matrix[:, some] * u
        if self.formed:
            matrix = matrix[some] * u[:, None]
        return Spread(matrix, self.diagonal[some] * u * u, self.formed)

    def about_the_mean(self, shift: Array) -> Spread:
        """The covariance about the mean, which lies at ``shift``."""
        if self.formed:
            matrix = self.matrix - np.outer(shift, shift)
            return Spread(matrix, np.diag(matrix).copy(), True)
        rows = self.matrix - shift / math.sqrt(len(self.matrix))
        return Spread(rows, np.einsum("ij,ij->j", rows, rows), False)


def covariance_about(X: Any, point: Array) -> tuple[Spread, Array]:
    """Σ(x − p)(x − p)ᵀ/n and mean of x − p, in one pass over the rows."""
    n, d = X.shape
    if d > n and d > _SMALL:
        rows = X - point
        shift = rows.mean(axis=0)
        rows = rows / math.sqrt(n)
        return Spread(rows, np.einsum("ij,ij->j", rows, rows), False), shift
    square, total = np.zeros((d, d)), np.zeros(d)
    size = max(1, _BLOCK // d)
    for i in range(0, n, size):
        block = np.subtract(X[i : i + size], point, dtype=np.float64)
        square += block.T @ block
        total += block.sum(axis=0)
    square /= n
    return Spread(square, np.diag(square).copy(), True), total / n
