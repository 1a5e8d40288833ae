"""Compiled loops over a block of rows for mixtures of Gaussians.

    A[i, k] = log π_k N(x_i; μ_k, Σ_k),   r[i, k] = exp A[i, k] / Σ_l exp A[i, l]

and the sums Σᵢ r, Σᵢ r·(x − c), Σᵢ r·(x − c)(x − c)ᵀ about a point c per component.
Every difference is taken before it is squared, so that components far apart and narrow
lose no digits. ``root`` is U with Σ⁻¹ = UUᵀ, or its diagonal.
"""

from __future__ import annotations

import numpy as np

from certus._core.cache import kernel

#: Shares below this add nothing that float64 would keep.
NOTHING = 1e-30
FAR = -70.0  # its logarithm, and a little less


@kernel
def joint_full(X, means, root, constants, D, Y, A):
    """Fill A for components with matrices; D and Y are buffers for a block of X."""
    n, d = X.shape
    for k in range(means.shape[0]):
        for i in range(n):
            for j in range(d):
                D[i, j] = X[i, j] - means[k, j]
        np.dot(D[:n], root[k], Y[:n])
        for i in range(n):
            square = 0.0
            for j in range(d):
                square += Y[i, j] * Y[i, j]
            A[i, k] = constants[k] - 0.5 * square


@kernel
def joint_diag(X, means, root, constants, A):
    """Fill A for components whose columns are independent."""
    n, d = X.shape
    for i in range(n):
        for k in range(means.shape[0]):
            square = 0.0
            for j in range(d):
                y = (X[i, j] - means[k, j]) * root[k, j]
                square += y * y
            A[i, k] = constants[k] - 0.5 * square


@kernel
def subtract_top(A, tops):
    """Subtract each row's largest value, kept in ``tops``; exp is then NumPy's.

    Its exp treats eight numbers at once, which a compiled loop does not.
    """
    n, k_all = A.shape
    for i in range(n):
        top = A[i, 0]
        for k in range(1, k_all):
            top = A[i, k] if A[i, k] > top else top
        tops[i] = top
        for k in range(k_all):
            below = A[i, k] - top
            A[i, k] = below if below > FAR else FAR


@kernel
def normalise(A, tops):
    """Divide each row by its sum, whose logarithm is added to ``tops``."""
    n, k_all = A.shape
    for i in range(n):
        total = 0.0
        for k in range(k_all):
            total += A[i, k]
        scale = 1.0 / total
        for k in range(k_all):
            A[i, k] *= scale
        tops[i] += np.log(total)


@kernel
def choose(A, tops):
    """Make each row one-hot at its largest value, kept in ``tops``."""
    n, k_all = A.shape
    for i in range(n):
        best = 0
        for k in range(1, k_all):
            if A[i, k] > A[i, best]:
                best = k
        tops[i] = A[i, best]
        for k in range(k_all):
            A[i, k] = 0.0
        A[i, best] = 1.0


@kernel
def moments_full(X, about, R, D, sizes, first, second):
    """Add to Σ r, Σ r(x − c) and Σ r(x − c)(x − c)ᵀ, from rows that count."""
    n, d = X.shape
    for k in range(R.shape[1]):
        m = 0
        for i in range(n):
            r = R[i, k]
            if r > NOTHING:
                s = np.sqrt(r)
                sizes[k] += r
                for j in range(d):
                    D[m, j] = s * (X[i, j] - about[k, j])
                    first[k, j] += s * D[m, j]
                m += 1
        if m > 0:
            second[k] += np.dot(D[:m].T, D[:m])


@kernel
def moments_diag(X, about, R, sizes, first, second):
    """As :func:`moments_full`, with squares in place of products."""
    n, d = X.shape
    for i in range(n):
        for k in range(R.shape[1]):
            r = R[i, k]
            if r > NOTHING:
                sizes[k] += r
                for j in range(d):
                    z = X[i, j] - about[k, j]
                    first[k, j] += r * z
                    second[k, j] += r * z * z
