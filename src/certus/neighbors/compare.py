"""Neighbours by direct comparison: distances in float64, straight from coordinates.

The k smallest pairs (distance, row), so that equal distances go to the row that comes
first. Costs n·d per query; given candidates, only theirs. This is the definition that
the faster paths (``tree``, ``screening``) reproduce, because they end with this code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from certus._core.threads import Stop, run_blocks, slices
from certus.neighbors import kernels
from certus.neighbors.metrics import NeighborMetric
from certus.typing import Array

#: Coordinates compared in one call of a loop: some 20 ms.
WORK = 1 << 24
#: Coordinates of X that stay in cache while the queries pass by.
TILE = 1 << 15
_NONE = np.empty((0, 0), dtype=np.int64)


def nearest(
    X: Any,
    Q: Any,
    k: int,
    metric: NeighborMetric,
    own: Array | None = None,
    candidates: Array | None = None,
) -> tuple[Array, Array]:
    """Reduced distances and rows of the k nearest, ascending.

    ``candidates`` lists rows for each query, −1 for none; a query with fewer than k is
    filled up with the distance ∞ and the row n. Q and X are both dense, or both CSR.
    """
    n_queries, n = Q.shape[0], X.shape[0]
    value = np.full((n_queries, k), np.inf)
    index = np.full((n_queries, k), n, dtype=np.int64)
    own = np.full(n_queries, -1, dtype=np.int64) if own is None else own
    width = max(1, X.nnz // n if sparse.issparse(X) else X.shape[1])
    listed = candidates is not None
    names = candidates if candidates is not None else _NONE
    if candidates is not None:
        tile, size = n, WORK // max(1, names.shape[1] * width)
    else:
        tile = max(1, min(n, max(64, TILE // width)))
        size = min(1024, WORK // (tile * width))
        if n_queries * n * width > WORK:  # enough for several threads
            size = min(size, -(-n_queries // 8))
    code = int(metric.code or 0)

    def work(block: slice, stopped: Stop) -> None:
        rest = (own[block], code, metric.p, value[block], index[block])
        few, q = names[block] if listed else names, Q[block]
        for part in slices(n, tile):
            if stopped():
                return
            where = (part.start, few, listed)
            if sparse.issparse(X):
                starts = X.indptr[part.start : part.stop + 1]
                rows = (q.indptr, q.indices, q.data, starts, X.indices, X.data)
                kernels.nearest_sparse(*rows, *where, *rest)
            else:
                kernels.nearest_dense(q, X[part], *where, *rest)
        kernels.sort_heaps(value[block], index[block])

    run_blocks(work, slices(n_queries, max(1, size)))
    return value, index
