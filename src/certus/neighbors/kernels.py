"""Compiled inner loops of the neighbour search.

``nearest_dense`` and ``nearest_sparse`` evaluate distances in float64, straight from
the coordinates, and keep for each query the k smallest pairs (distance, row): ties go
to the row that comes first. Every path of the search ends in one of them, so a pair of
points has the same distance, bit for bit, however it was found. ``screen`` and
``collect`` only choose which rows those two look at.

Distances are reduced: the square for the Euclidean one, which needs no root to compare.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from certus._core.cache import kernel
from certus.typing import Array

EUCLIDEAN, MANHATTAN, CHEBYSHEV, MINKOWSKI = range(4)
#: Scores looked at together: one comparison of a vector against the worst kept.
LOOK = 64


@register_jitable
def _sift(value: Array, index: Array, size: int, v: Any, j: Any) -> None:
    """Put (v, j) in place of the root of a heap whose root is the largest pair."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size:
            left, right = value[child], value[child + 1]
            if left < right or (left == right and index[child] < index[child + 1]):
                child += 1
        if value[child] < v or (value[child] == v and index[child] <= j):
            break
        value[at], index[at] = value[child], index[child]
        at = child
    value[at], index[at] = v, j


@kernel
def sort_heaps(value: Array, index: Array) -> None:
    """Turn each row's heap into an ascending list."""
    for i in range(value.shape[0]):
        row, names = value[i], index[i]
        for end in range(value.shape[1] - 1, 0, -1):
            v, j = row[end], names[end]
            row[end], names[end] = row[0], names[0]
            _sift(row, names, end, v, j)


# -- distances --------------------------------------------------------------------


@register_jitable
def _dense(Q: Array, i: int, X: Array, j: int, code: int, p: float) -> float:
    total = 0.0
    if code == 0:
        for c in range(X.shape[1]):
            gap = Q[i, c] - X[j, c]
            total += gap * gap
        return total
    if code == 1:
        for c in range(X.shape[1]):
            total += abs(Q[i, c] - X[j, c])
        return total
    for c in range(X.shape[1]):
        total = max(total, abs(Q[i, c] - X[j, c]))
    if code == 2 or total == 0.0 or total == np.inf:
        return total
    largest, total = total, 0.0  # powers of ratios neither overflow nor vanish
    for c in range(X.shape[1]):
        total += (abs(Q[i, c] - X[j, c]) / largest) ** p
    return largest * total ** (1.0 / p)


@kernel
def nearest_dense(
    Q: Array,
    X: Array,
    shift: int,
    candidates: Array,
    listed: bool,
    own: Array,
    code: int,
    p: float,
    value: Array,
    index: Array,
) -> None:
    """Offer to each query's heap its candidates, or all rows unless ``listed``.

    ``own`` is a row that the query must not count (its own), or −1; ``shift`` is the
    number of the first row of X.
    """
    k = value.shape[1]
    for i in range(Q.shape[0]):
        count = candidates.shape[1] if listed else X.shape[0]
        for u in range(count):
            j = candidates[i, u] if listed else u
            if j < 0 or j + shift == own[i]:
                continue
            r = _dense(Q, i, X, j, code, p)
            worst = value[i, 0]
            if r < worst or (r == worst and j + shift < index[i, 0]):
                _sift(value[i], index[i], k, r, j + shift)


@register_jitable
def _merge(
    qi: Array, qv: Array, a: int, a_end: int, xi: Array, xv: Array, b: int, b_end: int
) -> Any:
    """Next difference of two sorted sparse rows, and where to go on."""
    if b == b_end or (a < a_end and qi[a] < xi[b]):
        return abs(float(qv[a])), a + 1, b
    if a == a_end or xi[b] < qi[a]:
        return abs(float(xv[b])), a, b + 1
    return abs(float(qv[a]) - float(xv[b])), a + 1, b + 1


@register_jitable
def _sparse(
    qi: Array,
    qv: Array,
    a0: int,
    a_end: int,
    xi: Array,
    xv: Array,
    b0: int,
    b_end: int,
    code: int,
    p: float,
) -> float:
    total, a, b = 0.0, a0, b0
    while a < a_end or b < b_end:
        gap, a, b = _merge(qi, qv, a, a_end, xi, xv, b, b_end)
        if code == 0:
            total += gap * gap
        elif code == 1:
            total += gap
        else:
            total = max(total, gap)
    if code != 3 or total == 0.0 or total == np.inf:
        return total
    largest, total, a, b = total, 0.0, a0, b0
    while a < a_end or b < b_end:
        gap, a, b = _merge(qi, qv, a, a_end, xi, xv, b, b_end)
        total += (gap / largest) ** p
    return largest * total ** (1.0 / p)


@kernel
def nearest_sparse(
    q_start: Array,
    q_index: Any,
    q_value: Any,
    x_start: Array,
    x_index: Any,
    x_value: Any,
    shift: int,
    candidates: Array,
    listed: bool,
    own: Array,
    code: int,
    p: float,
    value: Array,
    index: Array,
) -> None:
    """As :func:`nearest_dense`, for rows stored as CSR with sorted indices."""
    n, k = len(x_start) - 1, value.shape[1]
    for i in range(len(q_start) - 1):
        a, a_end = q_start[i], q_start[i + 1]
        count = candidates.shape[1] if listed else n
        for u in range(count):
            j = candidates[i, u] if listed else u
            if j < 0 or j + shift == own[i]:
                continue
            b, b_end = x_start[j], x_start[j + 1]
            r = _sparse(q_index, q_value, a, a_end, x_index, x_value, b, b_end, code, p)
            worst = value[i, 0]
            if r < worst or (r == worst and j + shift < index[i, 0]):
                _sift(value[i], index[i], k, r, j + shift)


# -- screening --------------------------------------------------------------------


@kernel
def prepare(
    X: Array,
    mean: Array,
    scale: float,
    factor: float,
    shrink: float,
    out: Array,
    norms: Array,
) -> None:
    """Rows of ``out``: factor·scale·(x − mean) and, last, norms·shrink, in float32.

    ``norms`` receives ‖scale·(x − mean)‖² in float64 and the largest coordinate. A
    shrink of zero leaves a one in the last column.
    """
    d = X.shape[1]
    for i in range(X.shape[0]):
        total = 0.0
        largest = 0.0
        for c in range(d):
            v = (X[i, c] - mean[c]) * scale
            out[i, c] = factor * v
            total += v * v
            largest = max(largest, abs(v))
        norms[i, 0] = total
        norms[i, 1] = largest
        out[i, d] = total * shrink if shrink > 0.0 else 1.0


@register_jitable
def _any(part: Array, limit: Any, equal: bool) -> bool:
    """Whether an entry is below the limit, or at it; one pass without branches."""
    near = np.uint32(0)
    if equal:
        for j in range(len(part)):
            near += np.uint32(part[j] <= limit)
    else:
        for j in range(len(part)):
            near += np.uint32(part[j] < limit)
    return bool(near > 0)


@kernel
def screen(scores: Array, first: int, value: Array, index: Array) -> None:
    """Keep, for each row of ``scores``, the smallest so far; columns are rows of X."""
    m, size = scores.shape[1], value.shape[1]
    for i in range(scores.shape[0]):
        row = scores[i]
        worst = value[i, 0]
        for start in range(0, m, LOOK):
            stop = min(start + LOOK, m)
            if stop - start == LOOK and not _any(
                row[start : start + LOOK], worst, False
            ):
                continue
            for j in range(start, stop):
                if row[j] < worst:
                    _sift(value[i], index[i], size, row[j], first + j)
                    worst = value[i, 0]


@kernel
def collect(
    scores: Array, first: int, bound: Array, found: Array, counts: Array
) -> None:
    """List, for each row, all columns whose score is at most its bound.

    Where the list overflows, ``counts`` goes on counting.
    """
    m, room = scores.shape[1], found.shape[1]
    for i in range(scores.shape[0]):
        row, limit = scores[i], bound[i]
        for start in range(0, m, LOOK):
            stop = min(start + LOOK, m)
            if stop - start == LOOK and not _any(
                row[start : start + LOOK], limit, True
            ):
                continue
            for j in range(start, stop):
                if row[j] <= limit:
                    if counts[i] < room:
                        found[i, counts[i]] = first + j
                    counts[i] += 1


# -- neighbouring rows side by side -----------------------------------------------


@kernel
def ends(X: Array) -> tuple[Any, Any]:
    """The smallest and the largest entry of each column."""
    low, high = X[0].copy(), X[0].copy()
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            low[j] = min(low[j], X[i, j])
            high[j] = max(high[j], X[i, j])
    return low, high


@kernel
def by_cell(X: Array, low: Array, scale: Array, parts: int) -> Any:
    """The rows in order of the cell they lie in: ``parts`` cells along each column."""
    n, d = X.shape
    cell = np.empty(n, dtype=np.int64)
    starts = np.zeros(parts**d + 1, dtype=np.int64)
    for i in range(n):
        at = 0
        for j in range(d):
            step = int(min(max((X[i, j] - low[j]) * scale[j], 0.0), parts - 1.0))
            at = at * parts + step
        cell[i] = at
        starts[at + 1] += 1
    for c in range(1, len(starts)):
        starts[c] += starts[c - 1]
    order = np.empty(n, dtype=np.int64)
    for i in range(n):
        at = cell[i]
        order[starts[at]] = i
        starts[at] += 1
    return order
