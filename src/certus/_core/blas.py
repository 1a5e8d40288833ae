"""Cholesky factors on one thread, and inverses computed from them.

NumPy and SciPy each bring a BLAS with its own threads. A threaded factorisation waits
for its other thread at every column: on two idle cores that gains a quarter, on a busy
machine it took up to fifty times as long, and the threads of one library keep
spinning while the other works. Up to ``ONE_THREAD`` columns a single thread is as good
and steady.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from certus.base import thread_pools
from certus.typing import Array

ONE_THREAD = 4_000


def cholesky(M: Array) -> Array | None:
    """Upper U with UᵀU = M, Fortran-ordered; None if M is not positive definite."""
    few = len(M) <= ONE_THREAD
    limit = thread_pools().limit(limits=1, user_api="blas")
    with limit if few else contextlib.nullcontext():
        # M is symmetric, so its transpose is the same matrix in Fortran order.
        factor, info = dpotrf(M.T, lower=0, clean=0)
    return np.asarray(factor) if info == 0 else None


def symmetric_inverse(
    H: Array, pivot: float = 1e-7, kept: float | None = None
) -> Callable[[Array], Array]:
    """H⁻¹ by Cholesky where well-conditioned, else on its range.

    ``pivot`` is the smallest share of the largest pivot for the former, ``kept`` the
    share of the largest eigenvalue above which others count as not zero.
    """
    diagonal = np.diag(H).copy()
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    M = H * scale[:, None] * scale
    M.flat[:: len(M) + 1] = 1.0
    factor = cholesky(M)
    if factor is not None:
        pivots = np.diag(factor)
        if pivots.min() > pivot * pivots.max():
            return lambda v: np.asarray(scale * dpotrs(factor, scale * v)[0])
    values, Q = np.linalg.eigh(M)
    share = 1e-15 * len(M) if kept is None else kept
    some = values > share * values.max()
    Q, values = Q[:, some], values[some]
    return lambda v: np.asarray(scale * (Q @ ((Q.T @ (scale * v)) / values)))
