"""Compiled loops over observed ratings: their errors, and one solve per row.

    (G + λI + Σ_i s_i z_i z_iᵀ) w_u = Σ_i s_i (x_i − c_i) z_i,  i ∈ Ω_u

with s the weight of an entry. Rows are those of a CSR matrix; the same solve serves
users, items (on the transpose), implicit counts (G = ZᵀZ) and any other weighted
factorisation with biases.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numba.extending import register_jitable

from certus._core.cache import kernel
from certus._core.threads import run_blocks
from certus.typing import Array

#: Multiplications after which a kernel returns, so that Ctrl-C is obeyed.
CHUNK = 50_000_000
#: A pivot below this share of its diagonal belongs to a singular system.
SINGULAR = 1e-12


@kernel
def squared_errors(
    first: int,
    last: int,
    indptr: Array,
    indices: Array,
    values: Array,
    weights: Array,
    W: Array,
    Z: Array,
    b: Array,
    c: Array,
) -> float:
    """Σ s·e² over the entries of rows ``first`` to ``last``."""
    K = W.shape[1]
    weighted = len(weights) > 0
    zero = W.dtype.type(0)
    e = np.empty(4, W.dtype)
    total = 0.0
    for u in range(first, last):
        end = indptr[u + 1]
        for t in range(indptr[u], end, 4):
            # Four entries at a time, the last one repeated, hide each other's delays.
            i, j = indices[t], indices[min(t + 1, end - 1)]
            p, q = indices[min(t + 2, end - 1)], indices[min(t + 3, end - 1)]
            e0, e1, e2, e3 = zero, zero, zero, zero
            for k in range(K):
                x = W[u, k]
                e0 += x * Z[i, k]
                e1 += x * Z[j, k]
                e2 += x * Z[p, k]
                e3 += x * Z[q, k]
            e[0], e[1], e[2], e[3] = e0, e1, e2, e3
            for s in range(t, min(t + 4, end)):
                error = float(values[s] - b[u] - c[indices[s]] - e[s - t])
                total += error * error * (weights[s] if weighted else 1.0)
    return total


@kernel
def squared_norms(F: Array, f: Array, reg: Array, reg_bias: Array) -> float:
    """Σ λ‖row‖² of factors and of their biases."""
    total = 0.0
    for u in range(len(F)):
        own = 0.0
        for k in range(F.shape[1]):
            x = float(F[u, k])
            own += x * x
        total += reg[u] * own + reg_bias[u] * float(f[u]) ** 2
    return total


@kernel
def implicit_errors(
    first: int,
    last: int,
    indptr: Array,
    indices: Array,
    weights: Array,
    W: Array,
    Z: Array,
) -> float:
    """Σ (1 + s)(1 − z)² − z² over the entries of rows ``first`` to ``last``.

    Added to Σ z² over all users and items it is the loss of all of them.
    """
    K = W.shape[1]
    total = 0.0
    for u in range(first, last):
        w = W[u]
        for t in range(indptr[u], indptr[u + 1]):
            z = Z[indices[t]]
            product = W.dtype.type(0)
            for k in range(K):
                product += w[k] * z[k]
            e = 1.0 - float(product)
            total += weights[t] * e * e + 2.0 * e - 1.0
    return total


@register_jitable
def add_entries(
    t: int,
    end: int,
    indices: Any,
    values: Any,
    weights: Any,
    other: Any,
    other_bias: Any,
    biased: bool,
    Y: Any,
    A: Any,
    rhs: Any,
) -> None:
    """Add Σ s·y yᵀ to the lower triangle of A, and Σ s·(x − c)·y to ``rhs``."""
    K, n = other.shape[1], len(rhs)
    weighted = len(weights) > 0
    scale, pull = np.zeros(4), np.zeros(4)
    while t < end:
        # Four entries at a time: the triangle is read and written once for all.
        for j in range(4):
            if t < end:
                i = indices[t]
                for k in range(K):
                    Y[j, k] = other[i, k]
                if biased:
                    Y[j, K] = 1.0
                scale[j] = weights[t] if weighted else 1.0
                pull[j] = scale[j] * (values[t] - other_bias[i])
                t += 1
            else:
                scale[j] = pull[j] = 0.0
        for k in range(n):
            y0, y1, y2, y3 = Y[0, k], Y[1, k], Y[2, k], Y[3, k]
            rhs[k] += pull[0] * y0 + pull[1] * y1 + pull[2] * y2 + pull[3] * y3
            y0, y1 = scale[0] * y0, scale[1] * y1
            y2, y3 = scale[2] * y2, scale[3] * y3
            for j in range(k + 1):
                A[k, j] += y0 * Y[0, j] + y1 * Y[1, j] + y2 * Y[2, j] + y3 * Y[3, j]


@register_jitable
def cholesky_solve(A: Array, rhs: Array) -> bool:
    """Solve in place, given a lower triangle; False if A is singular."""
    n = len(rhs)
    for k in range(n):
        bar = SINGULAR * A[k, k]
        for i in range(k):
            total = A[k, i]
            for j in range(i):
                total -= A[k, j] * A[i, j]
            A[k, i] = total / A[i, i]
        total = A[k, k]
        for j in range(k):
            total -= A[k, j] * A[k, j]
        if not total > bar:
            return False
        A[k, k] = np.sqrt(total)
    for k in range(n):
        for j in range(k):
            rhs[k] -= A[k, j] * rhs[j]
        rhs[k] /= A[k, k]
    for k in range(n - 1, -1, -1):
        rhs[k] /= A[k, k]
        for j in range(k):
            rhs[j] -= A[k, j] * rhs[k]
    return True


@kernel
def solve_block(
    first: int,
    last: int,
    indptr: Array,
    indices: Any,
    values: Any,
    weights: Any,
    other: Any,
    other_bias: Any,
    base: Array,
    reg: Array,
    reg_bias: Array,
    biased: bool,
    out: Array,
    out_bias: Array,
    singular: Array,
) -> None:
    """Solve each row's normal equations by Cholesky; mark those that are singular."""
    K = other.shape[1]
    n = K + 1 if biased else K
    A, rhs, Y = np.empty((n, n)), np.empty(n), np.zeros((4, n))
    for u in range(first, last):
        for k in range(n):
            rhs[k] = 0.0
            for j in range(k + 1):
                A[k, j] = base[k, j] if k < K else 0.0
        for k in range(K):
            A[k, k] += reg[u]
        if biased:
            A[K, K] = reg_bias[u]
        add_entries(
            *(indptr[u], indptr[u + 1], indices, values, weights),
            *(other, other_bias, biased, Y, A, rhs),
        )
        if not cholesky_solve(A, rhs):
            singular[u] = True
            continue
        for k in range(K):
            out[u, k] = rhs[k]
        if biased:
            out_bias[u] = rhs[K]


@kernel
def conjugate_block(
    first: int,
    last: int,
    indptr: Array,
    indices: Array,
    weights: Array,
    other: Array,
    gram: Array,
    steps: int,
    out: Array,
) -> None:
    """Conjugate gradients on (G + Σ s z zᵀ) w = Σ (1 + s) z, starting from ``out``."""
    K = other.shape[1]
    longest = 0
    for u in range(first, last):
        longest = max(longest, indptr[u + 1] - indptr[u])
    Y, v = np.empty((longest, K), other.dtype), np.empty(longest, other.dtype)
    r, p = np.empty(K, other.dtype), np.empty(K, other.dtype)
    Ap = np.empty(K, other.dtype)
    for u in range(first, last):
        start, m = indptr[u], indptr[u + 1] - indptr[u]
        x = out[u]
        if m == 0:
            x[:] = 0
            continue
        for t in range(m):
            i = indices[start + t]
            for k in range(K):
                Y[t, k] = other[i, k]
        for k in range(K):
            r[k] = 0
        for c in range(K):
            xl = x[c]
            for k in range(K):
                r[k] -= xl * gram[c, k]
        for t in range(m):
            s = weights[start + t]
            product = other.dtype.type(0)
            for k in range(K):
                product += x[k] * Y[t, k]
            pull = s - s * product
            for k in range(K):
                r[k] += (pull * Y[t, k]) + Y[t, k]
        size = other.dtype.type(0)
        for k in range(K):
            size += r[k] * r[k]
        for k in range(K):
            p[k] = r[k]
        for _ in range(steps):
            if not size > 1e-30:
                break
            for k in range(K):
                Ap[k] = 0
            for c in range(K):
                pl = p[c]
                for k in range(K):
                    Ap[k] += pl * gram[c, k]
            for t in range(m):
                product = other.dtype.type(0)
                for k in range(K):
                    product += p[k] * Y[t, k]
                v[t] = product * weights[start + t]
            for t in range(m):
                pull = v[t]
                for k in range(K):
                    Ap[k] += pull * Y[t, k]
            curve = other.dtype.type(0)
            for k in range(K):
                curve += p[k] * Ap[k]
            move = size / curve
            for k in range(K):
                x[k] += move * p[k]
                r[k] -= move * Ap[k]
            fresh = other.dtype.type(0)
            for k in range(K):
                fresh += r[k] * r[k]
            turn = fresh / size
            size = fresh
            for k in range(K):
                p[k] = r[k] + turn * p[k]


def row_blocks(indptr: Array, cost: float) -> list[tuple[int, int]]:
    """Ranges of rows of about equal work, for any number of threads.

    ``cost`` is the work of one entry; a row without any counts as one.
    """
    n = len(indptr) - 1
    work = (indptr[1:] - indptr[0] + np.arange(1, n + 1)) * cost
    total = float(work[-1]) if n else 0.0
    parts = max(1, min(n, max(8 if total > CHUNK / 50 else 1, int(total / CHUNK))))
    cuts = np.searchsorted(work, np.linspace(0, total, parts + 1)[1:-1])
    edges = np.unique(np.concatenate([[0], cuts, [n]]))
    return [(int(a), int(b)) for a, b in pairwise(edges)]


def solve_rows(
    indptr: Array,
    indices: Array,
    values: Array,
    weights: Array,
    other: Array,
    other_bias: Array,
    base: Array,
    reg: Array,
    reg_bias: Array,
    biased: bool,
    out: Array,
    out_bias: Array,
) -> None:
    """Minimise exactly over every row, the other side being fixed.

    ½ Σ_i s_i (x_i − c_i − b − w·z_i)² + ½ wᵀ base w + ½ reg ‖w‖² + ½ reg_bias b²

    Parameters
    ----------
    indptr, indices, values : ndarray
        Rows in CSR form.
    weights : ndarray
        Weight of each entry; empty if all are one.
    other, other_bias : ndarray of shape (n_columns, K) and (n_columns,)
        The fixed side.
    base : ndarray of shape (K, K)
        Added to every row's matrix.
    reg, reg_bias : ndarray of shape (n_rows,)
        Penalty of each row.
    biased : bool
        Whether b is fitted; else ``out_bias`` stays as it is.
    out, out_bias : ndarray
        Where the solutions go. A singular system gets its shortest solution.
    """
    K = other.shape[1]
    singular = np.zeros(len(indptr) - 1, dtype=bool)

    def work(block: tuple[int, int], stop: Callable[[], bool]) -> None:
        if not stop():
            solve_block(
                *block,
                *(indptr, indices, values, weights, other, other_bias, base),
                *(reg, reg_bias, biased, out, out_bias, singular),
            )

    run_blocks(work, row_blocks(indptr, K * (K + 1) / 2))
    for u in np.flatnonzero(singular):
        here = slice(indptr[u], indptr[u + 1])
        Y = other[indices[here]].astype(np.float64)
        if biased:
            Y = np.column_stack([Y, np.ones(len(Y))])
        s = weights[here] if len(weights) else np.ones(len(Y))
        A = (Y * s[:, None]).T @ Y
        A[:K, :K] += base
        A[np.diag_indices(K)] += reg[u]
        if biased:
            A[K, K] += reg_bias[u]
        rhs = Y.T @ (s * (values[here] - other_bias[indices[here]]))
        if not (np.isfinite(A).all() and np.isfinite(rhs).all()):
            raise ValueError(  # LAPACK might never return
                "The factors are too large for float64. Divide the ratings by a "
                "constant, or raise the penalty."
            )
        found = np.linalg.lstsq(A, rhs, rcond=None)[0]
        out[u] = found[:K]
        if biased:
            out_bias[u] = found[K]
