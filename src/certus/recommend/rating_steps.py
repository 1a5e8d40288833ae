"""Compiled loops of stochastic descent: one step per entry, and the order of entries.

    w_u ← w_u + η(s·e·z_i − λ_u w_u),  z_i ← z_i + η(s·e·w_u − λ_i z_i)

with e the error of one entry and s its weight. A row's entries follow each other, so
that its factors stay in the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus._core.cache import kernel


@kernel
def visit(
    order: Any,
    starts: Any,
    stops: Any,
    indices: Any,
    values: Any,
    weights: Any,
    W: Any,
    Z: Any,
    b: Any,
    c: Any,
    keep_w: Any,
    keep_z: Any,
    keep_b: Any,
    keep_c: Any,
    biased: bool,
    rate: float,
) -> None:
    """One stochastic step for each entry of the rows in ``order``.

    ``values`` are centred, ``keep`` is 1 − rate·λ of each row, and ``weights`` is empty
    if all are one. A step changes one row of W and one of Z.

    Two steps are taken at once: after w ← k·w + s·y the next product is w·z ← k·w·z +
    s·y·z, so that all three products of w, y and z are known before the first step, and
    the second does not wait for the new w.
    """
    K = W.shape[1]
    weighted = len(weights) > 0
    zero = W.dtype.type(0)
    w = np.empty(K, W.dtype)  # apart from Z, so that the loops are vectorised
    for place in range(len(order)):
        u = order[place]
        t, end = starts[u], stops[u]
        if t == end:
            continue
        for k in range(K):
            w[k] = W[u, k]
        own, keep, keep_own = b[u], keep_w[u], keep_b[u]
        while t + 1 < end:
            i, j = indices[t], indices[t + 1]
            wy, wz, yz = zero, zero, zero
            for k in range(K):
                x, y, z = w[k], Z[i, k], Z[j, k]
                wy += x * y
                wz += x * z
                yz += y * z
            step = rate * (values[t] - own - c[i] - wy)
            if weighted:
                step *= weights[t]
            if biased:
                own = keep_own * own + step
                c[i] = keep_c[i] * c[i] + step
            after = rate * (values[t + 1] - own - c[j] - (keep * wz + step * yz))
            if weighted:
                after *= weights[t + 1]
            if biased:
                own = keep_own * own + after
                c[j] = keep_c[j] * c[j] + after
            keep_i, keep_j = keep_z[i], keep_z[j]
            for k in range(K):
                x, y, z = w[k], Z[i, k], Z[j, k]
                Z[i, k] = keep_i * y + step * x
                x = keep * x + step * y
                Z[j, k] = keep_j * z + after * x
                w[k] = keep * x + after * z
            t += 2
        if t < end:
            i = indices[t]
            wy = zero
            for k in range(K):
                wy += w[k] * Z[i, k]
            step = rate * (values[t] - own - c[i] - wy)
            if weighted:
                step *= weights[t]
            if biased:
                own = keep_own * own + step
                c[i] = keep_c[i] * c[i] + step
            keep_i = keep_z[i]
            for k in range(K):
                x, y = w[k], Z[i, k]
                Z[i, k] = keep_i * y + step * x
                w[k] = keep * x + step * y
        b[u] = own
        for k in range(K):
            W[u, k] = w[k]


@kernel
def deal_entries(
    indptr: Any,
    indices: Any,
    label: Any,
    edges: Any,
    order: Any,
    labels: Any,
    ends: Any,
) -> None:
    """Each row's entries in the order of their columns' new labels: two counting sorts.

    ``order`` are the places they had and ``labels`` the new columns; ``ends[q]`` is
    where, in each row, the labels from ``edges[q]`` on begin.
    """
    heads = np.zeros(len(label) + 1, np.int64)
    for t in range(len(indices)):
        heads[label[indices[t]] + 1] += 1
    for q in range(len(label)):
        heads[q + 1] += heads[q]
    rows = np.empty(len(indices), np.int32)
    places = np.empty(len(indices), order.dtype)
    fill = heads[:-1].copy()
    for u in range(len(indptr) - 1):
        for t in range(indptr[u], indptr[u + 1]):
            new = label[indices[t]]
            rows[fill[new]] = u
            places[fill[new]] = t
            fill[new] += 1
    for u in range(len(indptr) - 1):
        ends[0, u] = indptr[u]
    for q in range(len(edges) - 1):
        ends[q + 1] = ends[q]
        now = ends[q + 1]
        for new in range(edges[q], edges[q + 1]):
            for s in range(heads[new], heads[new + 1]):
                t = now[rows[s]]
                order[t] = places[s]
                labels[t] = new
                now[rows[s]] = t + 1
