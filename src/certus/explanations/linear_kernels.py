"""The compiled loop of linear contributions: one pass, which memory bounds."""

from __future__ import annotations

from certus._core.cache import exact_kernel
from certus.typing import Array


@exact_kernel
def fill_differences(X: Array, centre: Array, w: Array, out: Array) -> None:
    """w_j (x_ij − c_j) for each cell."""
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            out[i, j] = w[j] * (X[i, j] - centre[j])
