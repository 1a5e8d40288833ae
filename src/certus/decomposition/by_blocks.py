"""A matrix whose rows come by address, for singular values and for covariances.

Mean and scatter of all columns take one pass; a triangle with the same products, where
the smallest variance kept is lost in them, takes another.
"""

from __future__ import annotations

import numpy as np

from certus._solvers.block_design import BlockMoments, merge, moments_of, require_sound
from certus.blocks import Blocks, RowBlock, total
from certus.decomposition.moments import RowMoments, without_rounding
from certus.typing import Array


class BlockOperator:
    """A = X, or X less its column means: what a direct spectrum asks of a matrix.

    Parameters
    ----------
    blocks : Blocks
        Rows; at least as many as columns.
    centre : bool
        Whether column means are subtracted.
    """

    sparse, scale = False, 1.0

    def __init__(self, blocks: Blocks, centre: bool) -> None:
        self.blocks, self.centred, self.shape = blocks, centre, blocks.shape
        n, d = blocks.shape
        if n < max(2, d):
            raise ValueError(
                f"The blocks have {n:,} rows and {d:,} columns; pass a table with so "
                "few rows as an array."
            )
        self.X = np.empty((0, d))  # products are taken in float64
        found = total(blocks, moments_of_rows, merge=merge)
        self._means, self._scatter = found.mean, found.scatter
        self.mean = found.mean if centre else np.zeros(d)

    @property
    def side(self) -> int:
        """The number of singular values."""
        return self.shape[1]

    def gram(self, single: bool = False) -> Array:
        """AᵀA."""
        if self.centred:
            return self._scatter
        return self._scatter + self.shape[0] * np.outer(self._means, self._means)

    def squares(self) -> float:
        """‖A‖²."""
        return float(np.trace(self.gram()))

    def triangle(self) -> Array:
        """R with RᵀR = AᵀA, by orthogonal steps."""
        return np.asarray(total(self.blocks, _triangle, self.mean, merge=_stack))

    def t_dot(self, ones: Array) -> Array:
        """Aᵀ1, with A as it is."""
        return ((self._means - self.mean) * self.shape[0])[:, None]


def rows_of(block: RowBlock) -> Array:
    """X of a block, without NaN or inf and without weights."""
    if block.s is not None:
        raise ValueError("This model takes no sample_weight; leave it out of blocks.")
    X = np.asarray(block.X)
    require_sound(X, np.ones(1))
    return X


def moments_of_rows(block: RowBlock) -> BlockMoments:
    """Mean and scatter of the columns of one block."""
    X = rows_of(block)
    return moments_of(X, np.ones(len(X)))


def covariance_of_rows(blocks: Blocks, name: str) -> RowMoments:
    """Mean and covariance of all rows, in one pass; errors use ``name``."""
    n = len(blocks)
    if n < 2:
        raise ValueError(f"{name} needs at least 2 rows; the blocks have {n}.")
    seen = total(blocks, moments_of_rows, merge=merge)
    S = seen.scatter / n
    if not np.isfinite(np.trace(S)):
        raise ValueError(
            f"{name}: the squares of X are too large for float64. Standardise the "
            "columns (StandardScaler)."
        )
    variances = np.maximum(np.diag(S), 0.0).copy()
    found = RowMoments(n, seen.mean, variances, S)

    def ends(some: Array) -> tuple[Array, Array]:
        low, high = total(blocks, _ends, some, merge=_wider)
        return low, high

    return without_rounding(found, blocks.dtype, ends, name)


def _ends(block: RowBlock, some: Array) -> tuple[Array, Array]:
    X = rows_of(block)[:, some]
    return X.min(axis=0), X.max(axis=0)


def _wider(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
    return np.minimum(a[0], b[0]), np.maximum(a[1], b[1])


def _triangle(block: RowBlock, mean: Array) -> Array:
    return np.asarray(np.linalg.qr(rows_of(block) - mean, mode="r"))


def _stack(a: Array, b: Array) -> Array:
    return np.asarray(np.linalg.qr(np.vstack([a, b]), mode="r"))
