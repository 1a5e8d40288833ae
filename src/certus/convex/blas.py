"""Cholesky factors on one thread.

NumPy and SciPy each bring a BLAS with its own threads. A threaded factorisation meets
its other thread at every column: on two idle cores that gains a quarter, on a busy
machine it was seen to take fifty times as long, and the threads of one library keep
spinning while the other works. Up to ``ONE_THREAD`` columns a single thread is as good
and steady.
"""

from __future__ import annotations

import contextlib

import numpy as np
from scipy.linalg.lapack import dpotrf

from certus.base import thread_pools
from certus.convex.design import Array

ONE_THREAD = 4_000


def cholesky(M: Array) -> Array | None:
    """Upper U with UᵀU = M, Fortran-ordered; None if M is not positive definite."""
    few = len(M) <= ONE_THREAD
    limit = thread_pools().limit(limits=1, user_api="blas")
    with limit if few else contextlib.nullcontext():
        # M is symmetric, so its transpose is the same matrix in Fortran order.
        factor, info = dpotrf(M.T, lower=0, clean=0)
    return np.asarray(factor) if info == 0 else None
