"""A design whose rows come by address: moments in one pass over the blocks.

Each block is centred at its own means, and moments are merged by pairs (Chan, Golub and
LeVeque): Σxxᵀ − n·mmᵀ over all rows would lose 2·log₁₀ digits of a mean far from zero,
this loses none. Offers what direct least squares asks of a ``Design``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from certus.blocks import RowBlock, total
from certus.typing import Array

#: Said where the rows to learn from have no target.
NO_TARGET = "The blocks have no target. Pass target= to certus.scale.blocks."


#: Rows that are worked on together.
ROWS = 4096


class BlockMoments(NamedTuple):
    """Rows, weight, means and Σ s(a − m)(a − m)ᵀ of the columns [X, Y]."""

    rows: int
    weight: float
    mean: Array
    scatter: Array


def numbers(block: RowBlock) -> tuple[Array, Array, Array]:
    """X, y as columns, and weights; NaN and inf are refused."""
    X = np.asarray(block.X)
    s = np.ones(len(X)) if block.s is None else np.asarray(block.s, dtype=np.float64)
    if block.y is None:
        raise ValueError(NO_TARGET)
    try:
        y = np.asarray(block.y, dtype=np.float64).reshape(len(X), -1)
    except ValueError:
        raise ValueError("The target must hold numbers; this is a regressor.") from None
    require_sound(X, s)
    if not np.isfinite(y).all():
        raise ValueError("The target holds NaN or infinite values. Drop those rows.")
    return X, y, s


def require_sound(X: Array, s: Array) -> None:
    """Raise an error for NaN and inf in X, and for weights that cannot be used."""
    if not np.isfinite(X.sum(dtype=np.float64)) and not np.isfinite(X).all():
        raise ValueError("The table holds NaN or infinite values. Fill or drop them.")
    if not np.isfinite(s).all() or s.min(initial=0.0) < 0:
        raise ValueError("sample_weight must be finite and not negative.")


def moments_of(X: Array, s: Array, Y: Array | None = None) -> BlockMoments:
    """The moments of some rows of [X, Y], centred at their own means."""
    weight, even = float(s.sum()), bool((s == 1.0).all())
    mean = np.concatenate([_means(A, s, even, weight) for A in _both(X, Y)])
    d = len(mean)
    off, scatter = np.zeros(d), np.zeros((d, d))
    for i in range(0, len(X), ROWS):  # a few rows stay in cache
        part = slice(i, i + ROWS)
        A = np.hstack([np.asarray(B[part], np.float64) for B in _both(X, Y)])
        A -= mean
        if even:
            off += A.sum(axis=0)
        else:
            off += s[part] @ A
            A *= np.sqrt(s[part])[:, None]
        scatter += A.T @ A
    off /= weight if weight > 0 else 1.0  # what rounding left of the means
    scatter -= np.outer(off, off) * weight
    return BlockMoments(len(X), weight, mean + off, scatter)


def _both(X: Array, Y: Array | None) -> list[Array]:
    return [X] if Y is None else [X, Y]


def _means(A: Array, s: Array, even: bool, weight: float) -> Array:
    if not weight > 0:
        return np.zeros(A.shape[1])
    if even:
        return np.asarray(A.sum(axis=0, dtype=np.float64) / weight)
    return np.asarray((s @ A) / weight)


def merge(a: BlockMoments, b: BlockMoments) -> BlockMoments:
    """The moments of both sets of rows."""
    weight = a.weight + b.weight
    share = b.weight / weight if weight > 0 else 0.0
    gap = b.mean - a.mean
    scatter = a.scatter + b.scatter + np.outer(gap, gap) * (a.weight * share)
    return BlockMoments(a.rows + b.rows, weight, a.mean + share * gap, scatter)


def _moments(block: RowBlock) -> BlockMoments:
    X, y, s = numbers(block)
    return moments_of(X, s, y)


def _triangle(block: RowBlock, mean: Array) -> Array:
    X, y, s = numbers(block)
    A = (np.hstack([X, y]) - mean) * np.sqrt(s)[:, None]
    return np.asarray(np.linalg.qr(A, mode="r"))


def _stack(a: Array, b: Array) -> Array:
    return np.asarray(np.linalg.qr(np.vstack([a, b]), mode="r"))


def _residual(block: RowBlock, mean: Array, which: Array, W: Array) -> Array:
    X, y, s = numbers(block)
    d = X.shape[1]
    A = X - mean[:d]
    R = (y - mean[d:])[:, which] - A @ W
    return A.T @ (s[:, None] * R)


class BlockDesign:
    """A = X − 1mᵀ (m = 0 without centring), by blocks; its targets are centred too.

    Parameters
    ----------
    blocks : Blocks
        Rows with a target.
    centre : bool
        Whether an unpenalised intercept is eliminated by centring the columns.
    """

    sparse = False

    def __init__(self, blocks: Any, centre: bool) -> None:
        self.blocks, self.centred, self.dtype = blocks, centre, blocks.dtype
        self.n, self.d = blocks.shape
        found: BlockMoments = total(blocks, _moments, merge=merge)
        if not found.weight > 0:
            raise ValueError("sample_weight must not be all zero.")
        self.total = found.weight
        self.rest = np.zeros(self.d)  # nothing is left to subtract from products
        self._mean = found.mean if centre else np.zeros_like(found.mean)
        self.mean, self.target_mean = self._mean[: self.d], self._mean[self.d :]
        M = found.scatter
        if not centre:
            M = M + found.weight * np.outer(found.mean, found.mean)
        self._gram, self._pulled = M[: self.d, : self.d], M[: self.d, self.d :]
        self._square = M[self.d :, self.d :] / self.total
        self._gram, self._pulled = self._gram / self.total, self._pulled / self.total

    @property
    def targets(self) -> int:
        """Number of targets."""
        return len(self.target_mean)

    def gram(self) -> Array:
        """AᵀSA/Σs."""
        return self._gram

    def t_dot_targets(self, Y: Array) -> Array:
        """AᵀSY/Σs; the targets are those of the blocks."""
        return self._pulled

    def pull_residual(self, Y: Array, which: Array, W: Array) -> Array:
        """Aᵀ(s∘(Y − AW))/Σs for some of the targets; one pass."""
        return (
            np.asarray(total(self.blocks, _residual, self._mean, which, W)) / self.total
        )

    def dense_rows(self, Y: Array) -> tuple[Array, Array, float]:
        """A triangle with the products of √(s/Σs)·[A, Y], in place of all rows."""
        R = total(self.blocks, _triangle, self._mean, merge=_stack) / np.sqrt(
            self.total
        )
        return R[:, : self.d], R[:, self.d :], 1.0

    def few_rows(self) -> tuple[Array, Array]:
        """D + 1 rows and targets whose mean products are those of all rows.

        A root of the Gram matrix of [A, Y], whose columns are scaled first.
        """
        size = np.sqrt(np.append(np.diag(self._gram), np.diag(self._square)))
        size = np.where(size > 0, size, 1.0)
        M = np.block([[self._gram, self._pulled], [self._pulled.T, self._square]])
        values, V = np.linalg.eigh(M / size / size[:, None])
        root = np.sqrt(np.maximum(values, 0.0) * len(M))[:, None] * V.T * size
        return np.ascontiguousarray(root[:, : self.d]), root[:, self.d :]
