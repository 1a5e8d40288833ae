"""Compiled products of a sparse matrix with a table: Y = A·X, a row of A at a time.

    y_i = Σ_j a_ij x_j   over the entries of row i, in CSR

A row of X is read as one piece of memory, so the cost is that of fetching it. Rows of
A are shared out to threads by the number of their entries.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from certus._core.cache import kernel
from certus._core.threads import Stop, run_blocks
from certus.typing import Array

#: Products of a block; fewer than two blocks are not worth a second thread.
BLOCK = 1 << 21


@kernel
def multiply_rows(
    first: int,
    last: int,
    indptr: Array,
    indices: Array,
    data: Array,
    X: Array,
    out: Array,
) -> None:
    """Rows ``first`` to ``last`` of A·X."""
    d = X.shape[1]
    for i in range(first, last):
        for k in range(d):
            out[i, k] = 0
        begin, end = indptr[i], indptr[i + 1]
        t = begin
        # Two entries at a time: their rows of X are fetched together.
        while t + 1 < end:
            a, b = data[t], data[t + 1]
            p, q = indices[t], indices[t + 1]
            for k in range(d):
                out[i, k] += a * X[p, k] + b * X[q, k]
            t += 2
        if t < end:
            a, p = data[t], indices[t]
            for k in range(d):
                out[i, k] += a * X[p, k]


def multiply(indptr: Array, indices: Array, data: Array, X: Array) -> Array:
    """A·X for a CSR matrix A and a table X in C order, in the dtype of X.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.edge_kernels import multiply
    >>> starts, others = np.array([0, 2, 2]), np.array([0, 1])
    >>> multiply(starts, others, np.array([1.0, 3.0]), np.array([[1.0], [2.0]]))
    array([[7.],
           [0.]])
    """
    n, d = len(indptr) - 1, X.shape[1]
    out = np.empty((n, d), dtype=X.dtype)

    def work(part: tuple[int, int], stopped: Stop) -> None:
        multiply_rows(*part, indptr, indices, data, X, out)

    run_blocks(work, blocks_of(indptr, d))
    return out


def product(A: Any, X: Array) -> Array:
    """A·X for a CSR matrix of SciPy and an array of one or two axes."""
    X = np.ascontiguousarray(X)
    table = X if X.ndim == 2 else X[:, None]
    data = A.data.astype(X.dtype, copy=False)
    found = multiply(A.indptr, A.indices, data, table)
    return found if X.ndim == 2 else found[:, 0]


def blocks_of(indptr: Array, d: int) -> list[tuple[int, int]]:
    """Rows in parts of about the same number of products."""
    n, total = len(indptr) - 1, int(indptr[-1]) * max(1, d)
    many = max(1, min(n, total // BLOCK))
    cuts = np.searchsorted(indptr, np.linspace(0, int(indptr[-1]), many + 1)[1:-1])
    ends = [0, *np.unique(cuts[(cuts > 0) & (cuts < n)]).tolist(), n]
    return list(pairwise(ends))
