"""Euclidean neighbours through float32 products, with exactly the results of float64.

With rows centred at m and scaled, q' and x', one matrix product in float32 gives
s ≈ ‖x'‖² − 2q'·x' = ‖q' − x'‖² − ‖q'‖² for a tile of rows and a block of queries. The
error of cast, product and sum is at most

    a·‖q'‖² + 2a·‖x'‖²,   a = 1.05·(d + 4)·2⁻²⁴,

so with (1 − 2.1a)‖x'‖² in place of ‖x'‖² each score, less a·‖q'‖², is a lower bound.
The c > k smallest scores are kept, their distances computed in float64, and a query is
done if its k-th distance lies below the bound of every row left out. Where it does not
(ties, or clusters finer than float32), a second product lists all rows whose bound
reaches the k-th distance, and these are compared in float64; where even that list is
long, all rows are.

Products cost 2·n·d per query in float32. Memory: the tiles, and 12·c bytes per query.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from certus._core.threads import Stop, run_blocks, slices
from certus.neighbors import kernels
from certus.neighbors.compare import nearest
from certus.neighbors.metrics import NeighborMetric
from certus.typing import Array, Matrix

#: Queries handled together; with their tiles this sets the memory of a search.
SLAB = 16_384
#: Queries and rows of one product: its result stays in the second-level cache.
BLOCK, TILE = 256, 1024
#: Elements of X prepared at a time.
CHUNK = 1 << 23
#: Longest list of the second product.
ROOM = 4096
#: Queries this far outside the rows, in units of 2⁻²⁰ of them, are not screened.
FAR = 2.0**30
#: Coordinates above which the bound's first-order terms no longer suffice.
WIDEST = 100_000
#: Product terms that vanish in float32, per coordinate.
VANISHED = 2.0**-90


def spare(k: int) -> int:
    """How many scores to keep for k neighbours."""
    return k + 8 + k // 4


class DenseScreen:
    """Rows in memory, centred and scaled for float32."""

    dtype = np.float32

    def __init__(self, X: Array) -> None:
        self.X, (self.n, d) = X, X.shape
        few = np.unique(np.linspace(0, self.n - 1, min(self.n, 1024)).astype(int))
        self.mean = X[few].mean(axis=0, dtype=np.float64)
        low, high = float(X.min()), float(X.max())
        reach = max(high - float(self.mean.min()), float(self.mean.max()) - low)
        self.scale = math.ldexp(1.0, 20 - math.frexp(reach)[1]) if reach > 0 else 1.0
        self.slack = 1.05 * (d + 4) * 2.0**-24
        self.lost = (d + 1) * VANISHED
        self.relative = 4 * (d + 4) * 2.0**-53

    def queries(self, Q: Array) -> tuple[Array, Array, Array]:
        """Float32 queries, their squared norms, and which ones are too far away."""
        out = np.empty((len(Q), Q.shape[1] + 1), dtype=np.float32)
        norms = np.empty((len(Q), 2))
        kernels.prepare(Q, self.mean, self.scale, 1.0, 0.0, out, norms)
        far = ~(norms[:, 1] <= FAR)
        out[far] = 0.0
        return out, np.where(far, 0.0, norms[:, 0]), far

    def chunks(self) -> Iterator[list[tuple[int, Array]]]:
        """Yield tiles: their first row, and the rows in float32."""
        d = self.X.shape[1]
        shrink = 1.0 - 2.1 * self.slack
        for part in slices(self.n, max(TILE, CHUNK // (d + 1))):
            rows = self.X[part]
            out = np.empty((len(rows), d + 1), dtype=np.float32)
            norms = np.empty((len(rows), 2))

            def work(
                s: slice,
                stopped: Stop,
                rows: Array = rows,
                out: Array = out,
                norms: Array = norms,
            ) -> None:
                place = (out[s], norms[s])
                kernels.prepare(rows[s], self.mean, self.scale, -2.0, shrink, *place)

            run_blocks(work, slices(len(rows), 8 * TILE))
            yield [(part.start + t.start, out[t]) for t in slices(len(rows), TILE)]

    def scores(self, q: Array, rows: Array, room: Array) -> Array:
        """Scores of queries against rows, written to the start of ``room``."""
        out = room[: len(q) * len(rows)].reshape(len(q), len(rows))
        return np.matmul(q, rows.T, out=out)


class SparseScreen:
    """CSR rows; products in float64, never densified, no centring."""

    dtype = np.float64

    def __init__(self, X: Any) -> None:
        self.X, self.n = X, X.shape[0]
        longest = int(np.diff(X.indptr).max(initial=0))
        self.scale = 1.0
        self.slack = 1.05 * (longest + 4) * 2.0**-53
        self.lost = (longest + 1) * 2.0**-1020
        self.relative = 8 * (longest + 4) * 2.0**-53

    def queries(self, Q: Matrix) -> tuple[Any, Array, Array]:
        """The queries and their squared norms; none is too far away."""
        return Q, _square_norms(Q), np.zeros(Q.shape[0], dtype=bool)

    def chunks(self) -> Iterator[list[tuple[int, tuple[Any, Array]]]]:
        """Yield tiles: their first row, the rows, and their shrunk squared norms."""
        for part in slices(self.n, TILE):
            rows = self.X[part].astype(np.float64)
            shrunk = _square_norms(rows) * (1.0 - 2.1 * self.slack)
            yield [(part.start, (rows.T.tocsr(), shrunk))]

    def scores(self, q: Array, rows: tuple[Any, Array], room: Array) -> Array:
        """Scores of queries against rows."""
        product = (q @ rows[0]).toarray()
        product *= -2.0
        product += rows[1]
        return np.asarray(product)


def _square_norms(X: Any) -> Array:
    return np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel()


def screened(
    X: Any, Q: Matrix, k: int, metric: NeighborMetric, own: Array
) -> tuple[Array, Array]:
    """Squared distances and rows of the k nearest, as ``compare.nearest`` has them."""
    side = SparseScreen(X) if sparse.issparse(X) else DenseScreen(X)
    value = np.empty((Q.shape[0], k))
    index = np.empty((Q.shape[0], k), dtype=np.int64)
    for slab in slices(Q.shape[0], SLAB):
        value[slab], index[slab] = _search(side, Q[slab], k, metric, own[slab])
    return value, index


def _search(
    side: DenseScreen | SparseScreen,
    Q: Any,
    k: int,
    metric: NeighborMetric,
    own: Array,
) -> tuple[Array, Array]:
    q, norms, far = side.queries(Q)
    keep = min(side.n, spare(k))
    score = np.full((Q.shape[0], keep), np.inf, dtype=side.dtype)
    names = np.full((Q.shape[0], keep), -1, dtype=np.int64)
    for tiles in side.chunks():

        def work(block: slice, stopped: Stop, tiles: Any = tiles) -> None:
            room = np.empty(BLOCK * TILE, dtype=side.dtype)
            for first, rows in tiles:
                if stopped():
                    return
                scores = side.scores(q[block], rows, room)
                kernels.screen(scores, first, score[block], names[block])

        run_blocks(work, slices(Q.shape[0], BLOCK))
    value, index = nearest(side.X, Q, k, metric, own, names)
    # What was left out has a score of at least the largest kept.
    least = score[:, 0] + norms * (1.0 - 1.01 * side.slack) - side.lost
    reached = value[:, -1] * side.scale**2
    sure = (reached < least * (1.0 - side.relative)) | (keep == side.n)
    unsure = np.flatnonzero(~sure & ~far)
    for part in slices(len(unsure), SLAB // 8):
        rows = unsure[part]
        bound = reached[rows] * (1.0 + side.relative) + side.lost
        bound -= norms[rows] * (1.0 - 1.01 * side.slack)
        _second(side, Q, q, rows, bound, k, metric, own, (value, index))
    if far.any():
        value[far], index[far] = nearest(side.X, Q[far], k, metric, own[far])
    return value, index


def _second(
    side: DenseScreen | SparseScreen,
    Q: Matrix,
    q: Array,
    rows: Array,
    bound: Array,
    k: int,
    metric: NeighborMetric,
    own: Array,
    out: tuple[Array, Array],
) -> None:
    """Compare all rows whose bound reaches the k-th distance found so far."""
    found = np.full((len(rows), min(side.n, ROOM)), -1, dtype=np.int32)
    counts = np.zeros(len(rows), dtype=np.int64)
    limit = bound.astype(side.dtype)
    limit = np.nextafter(limit, np.array(np.inf, dtype=side.dtype))
    few = q[rows]
    for tiles in side.chunks():

        def work(block: slice, stopped: Stop, tiles: Any = tiles) -> None:
            room = np.empty(BLOCK * TILE, dtype=side.dtype)
            for first, data in tiles:
                if stopped():
                    return
                scores = side.scores(few[block], data, room)
                place = (found[block], counts[block])
                kernels.collect(scores, first, limit[block], *place)

        run_blocks(work, slices(len(rows), BLOCK))
    long = counts > found.shape[1]
    for group, listed in ((rows[~long], True), (rows[long], False)):
        if len(group):
            width = int(counts[~long].max(initial=0))
            names = found[~long, :width].astype(np.int64) if listed else None
            exact = nearest(side.X, Q[group], k, metric, own[group], names)
            out[0][group], out[1][group] = exact
