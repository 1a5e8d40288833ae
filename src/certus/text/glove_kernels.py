"""Compiled loops of GloVe: stochastic steps on log counts, and their errors.

An entry (i, j) of the counts has the target x = log n, the weight f(n) and the error
e = w_i·z_j + b_i + c_j − x. A stochastic step moves the two rows and the two biases
against f·e; it touches nothing else, so that blocks of entries without a common row or
column may run at the same time, with the same result in any order.
"""

from __future__ import annotations

from certus._core.cache import kernel
from certus.typing import Array


@kernel
def descend(
    rows: Array,
    columns: Array,
    logs: Array,
    weights: Array,
    W: Array,
    Z: Array,
    b: Array,
    c: Array,
    rate: float,
    biased: bool,
) -> None:
    """One step of ``rate`` for each entry."""
    K = W.shape[1]
    for t in range(len(rows)):
        i, j = rows[t], columns[t]
        w, z = W[i], Z[j]
        product = w[0] * z[0]
        for k in range(1, K):
            product += w[k] * z[k]
        step = rate * weights[t] * (product + b[i] + c[j] - logs[t])
        for k in range(K):
            old = w[k]
            w[k] = old - step * z[k]
            z[k] = z[k] - step * old
        if biased:
            b[i] -= step
            c[j] -= step


@kernel
def descend_adaptively(
    rows: Array,
    columns: Array,
    logs: Array,
    weights: Array,
    W: Array,
    Z: Array,
    b: Array,
    c: Array,
    squares_W: Array,
    squares_Z: Array,
    squares_b: Array,
    squares_c: Array,
    rate: float,
    biased: bool,
) -> None:
    """AdaGrad: each number's step is divided by the root of its squared slopes."""
    K = W.shape[1]
    for t in range(len(rows)):
        i, j = rows[t], columns[t]
        w, z, sw, sz = W[i], Z[j], squares_W[i], squares_Z[j]
        product = w[0] * z[0]
        for k in range(1, K):
            product += w[k] * z[k]
        pull = weights[t] * (product + b[i] + c[j] - logs[t])
        for k in range(K):
            to_w, to_z = pull * z[k], pull * w[k]
            w[k] -= rate * to_w / sw[k] ** 0.5
            z[k] -= rate * to_z / sz[k] ** 0.5
            sw[k] += to_w * to_w
            sz[k] += to_z * to_z
        if biased:
            b[i] -= rate * pull / squares_b[i] ** 0.5
            c[j] -= rate * pull / squares_c[j] ** 0.5
            squares_b[i] += pull * pull
            squares_c[j] += pull * pull


@kernel
def errors(
    first: int,
    last: int,
    indptr: Array,
    indices: Array,
    logs: Array,
    W: Array,
    Z: Array,
    b: Array,
    c: Array,
    out: Array,
) -> None:
    """X − w·z − b − c for the entries of rows ``first`` to ``last``."""
    K = W.shape[1]
    for i in range(first, last):
        w = W[i]
        for t in range(indptr[i], indptr[i + 1]):
            j = indices[t]
            z = Z[j]
            product = w[0] * z[0]
            for k in range(1, K):
                product += w[k] * z[k]
            out[t] = logs[t] - product - b[i] - c[j]
