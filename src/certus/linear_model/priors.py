"""The data-dependent prior of a randomised classifier: rows, their scale, its width.

The prior N(M₀, λI) may look at some of the rows, which are then not counted. Its
choices, the split and a short list of λ, are fixed here before any row is seen.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse

from certus.typing import Array, Matrix

#: Variances λ that a fit tries, smallest first; the bound grows with their number.
VARIANCES = tuple(2.0**power for power in range(-18, 1, 2))


def split_rows(n: int, n_prior: int, seed: int | None) -> tuple[Array, Array]:
    """Rows for the prior and rows that are counted, drawn by ``seed`` or in order.

    Examples
    --------
    >>> from certus.linear_model.priors import split_rows
    >>> split_rows(5, 2, None)
    (array([0, 1]), array([2, 3, 4]))
    """
    chosen = np.zeros(n, dtype=bool)
    if seed is None:
        chosen[:n_prior] = True
    else:
        chosen[np.random.default_rng(seed).permutation(n)[:n_prior]] = True
    return np.flatnonzero(chosen), np.flatnonzero(~chosen)


def typical_length(X: Matrix, rows: Array, constant: float) -> float:
    """Root mean square of ‖(x, constant)‖ over some rows; 1 where that is 0."""
    part = X[rows]
    cells = np.asarray(part.data if sparse.issparse(part) else part, dtype=np.float64)
    largest = float(np.abs(cells).max(initial=0.0))
    if largest > 0:  # squares of cells at most 1 stay in range
        cells = cells / largest
    own = largest * math.sqrt(float(np.square(cells).sum()) / max(1, len(rows)))
    return math.hypot(own, constant) or 1.0


def scaled_rows(X: Matrix, rows: Array, constant: float, length: float) -> Any:
    """Some rows divided by ``length``; a constant, if there is one, comes last."""
    part = X[rows].astype(np.float64) / length
    if constant == 0:
        return part
    last = np.full((len(rows), 1), constant / length)
    if sparse.issparse(part):
        return sparse.hstack([part, sparse.csr_matrix(last)], format="csr")
    return np.column_stack([part, last])
