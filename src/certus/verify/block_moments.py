"""The passes of ``moments`` over blocks of rows: the same sums, block by block.

Each block gives what a pass over its own rows gives; the tree that adds them up is
counted among the additions of rows.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Status
from certus.fingerprints import direction
from certus.typing import Array
from certus.verify.block_sums import mark_of, marks_of
from certus.verify.covariance import Spread, covariance_about
from certus.verify.deciding import gamma
from certus.verify.recomputed import RecomputedBlocks, summed

#: Rows that are worked on together.
RUN = 4096


class RowSums(NamedTuple):
    """Of the rows B = X − shift: their number, sums, ‖B‖², and PBᵀB or BᵀB."""

    rows: int
    sums: Array
    squares: float
    products: Array
    depth: int  # additions of rows, and of squares
    deep: int
    marks: tuple[dict[str, Any], ...]


def row_sums(block: Any, shift: Array, P: Array, whole: bool) -> RowSums:
    """Of one block; ``whole`` takes BᵀB in place of PBᵀB."""
    X = np.asarray(block.X)
    (n, d), ones = X.shape, np.ones(len(X))
    along = [X[i : i + RUN] @ direction(d) for i in range(0, n, RUN)]
    mark = (mark_of(X, np.zeros(n), ones, np.concatenate([np.zeros(0), *along])),)
    if whole:
        spread, left = covariance_about(X, shift)
        M = spread.matrix if spread.formed else spread.matrix.T @ spread.matrix
        depth = int(spread.share / gamma(1)) + 1
        total = n * float(spread.diagonal.sum())
        return RowSums(n, n * left, total, n * M, depth, d, mark)
    sums, squares, products = np.zeros(d), 0.0, np.zeros((len(P), d))
    step = max(64, (1 << 18) // max(1, d))
    for i in range(0, n, step):
        B = np.asarray(X[i : i + step], dtype=np.float64) - shift
        sums += B.sum(axis=0)
        squares += float(np.vecdot(B, B).sum())
        products += (P @ B.T) @ B
    depth = min(n, step) + n // step + 1
    return RowSums(n, sums, squares, products, depth, d + depth, mark)


def join(a: RowSums, b: RowSums) -> RowSums:
    """The sums of both sets of rows."""
    pairs: Any = zip(a, b, strict=True)
    most = {name: max(getattr(a, name), getattr(b, name)) for name in ("depth", "deep")}
    return RowSums(*(x + y for x, y in pairs))._replace(**most)


def added_up(
    blocks: Any, again: RecomputedBlocks, shift: Array, P: Array, whole: bool
) -> RowSums:
    """Of all blocks; the depth counts the tree too."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = summed(blocks, again, join, row_sums, shift, P, whole)
    if not np.isfinite(found.squares):
        raise ValueError("X holds NaN, infinite or very large numbers.")
    more = math.ceil(math.log2(len(blocks.keys) + 1)) + 2
    return found._replace(depth=found.depth + more, deep=found.deep + more)


def covariance(
    blocks: Any, again: RecomputedBlocks, point: Array
) -> tuple[Spread, Array, dict[str, Any]]:
    """Σ(x − p)(x − p)ᵀ/n, the mean of x − p, and the fingerprint of all rows."""
    n, d = blocks.shape
    found = added_up(blocks, again, point, np.zeros((0, d)), True)
    S, share = found.products / n, gamma(found.depth + d + 8)
    marks = marks_of(found.marks, blocks.shape, str(blocks.dtype), float(n))
    return Spread(S, np.diag(S).copy(), True, share), found.sums / n, marks


def with_workers(
    claims: list[Claim], status: Status, again: RecomputedBlocks, blocks: Any
) -> tuple[list[Claim], Status]:
    """The claims, and that blocks computed elsewhere agree, where some were."""
    if not again.count:
        return claims, status
    agree = again.claim(len(blocks.keys))
    return [*claims, agree], status if agree.met else Status.REFUTED
