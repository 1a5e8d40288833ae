"""Weights of rows that show two classes to overlap, by a linear programme."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from certus.typing import Array

#: Largest number of rows in a linear programme.
PROGRAMME_ROWS = 20_000


def coinciding(X: Any, y: Array, intercept: bool) -> Array | None:
    """Weights a ≥ 0 with Σ ayx = 0, Σ ay = 0 and Σ a = 2, if there are any.

    Without an intercept Σ ay need not vanish. Rows with y = 0 have no weight.
    """
    n, d = X.shape
    if n > PROGRAMME_ROWS:
        return None
    X = X.astype(np.float64)
    # Measured from a row, an offset does not make small sums look large.
    S = sparse.csr_array(X - X[0] if intercept and not sparse.issparse(X) else X)
    sizes = abs(S).max(axis=0).toarray().ravel()
    S = S @ sparse.diags_array(1 / np.where(sizes > 0, sizes, 1.0))
    signed = (sparse.diags_array(y.astype(float)) @ S).T
    sums = np.vstack([y > 0, y < 0]) if intercept else np.abs(y)[None]
    M = sparse.vstack([signed, sparse.csr_array(sums.astype(float))], format="csr")
    target = np.concatenate([np.zeros(d), np.ones(len(sums))])
    found = linprog(np.zeros(n), A_eq=M, b_eq=target)
    if found.x is None:
        return None
    few = np.flatnonzero((found.x > 1e-9) & (y != 0))
    A, part = M[:, few].toarray(), found.x[few]
    for _ in range(3):  # to rounding: the programme stops at its own tolerance
        part = part - np.linalg.lstsq(A, A @ part - target, rcond=None)[0]
    if not few.size or part.min() < 0:
        return None
    out = np.zeros(n)
    out[few] = part
    return out
