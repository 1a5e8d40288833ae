"""The compiled inner loops of kernel machines.

Self-contained, so that numba's own check of this file's date is enough to keep cached
machine code fresh. Each call is short: loops over blocks live in Python, where Ctrl-C
and time limits are obeyed. All release the interpreter's lock, so two of them may run
on two halves of the columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus._core.cache import kernel
from certus.typing import Array


@kernel
def add_rows(
    rows: Array, slots: Array, change: Array, f: Array, start: int, stop: int
) -> None:
    """f[start:stop] += Σ_k change[k]·rows[slots[k], start:stop], four rows at a time.

    The columns are taken in pieces that stay in the nearest cache.
    """
    m = len(slots)
    piece = 2048
    for first in range(start, stop, piece):
        last = min(first + piece, stop)
        k = 0
        while k + 4 <= m:
            c0, c1, c2, c3 = change[k], change[k + 1], change[k + 2], change[k + 3]
            s0, s1, s2, s3 = slots[k], slots[k + 1], slots[k + 2], slots[k + 3]
            for j in range(first, last):
                f[j] += (
                    c0 * rows[s0, j]
                    + c1 * rows[s1, j]
                    + c2 * rows[s2, j]
                    + c3 * rows[s3, j]
                )
            k += 4
        while k < m:
            c0, s0 = change[k], slots[k]
            for j in range(first, last):
                f[j] += c0 * rows[s0, j]
            k += 1


@kernel
def gather_square(rows: Array, slots: Array, columns: Array, out: Array) -> None:
    """out[p, q] = rows[slots[p], columns[q]]."""
    for p in range(len(slots)):
        s = slots[p]
        for q in range(len(columns)):
            out[p, q] = rows[s, columns[q]]


@kernel
def minimise_block(
    K: Array, beta: Array, v: Array, low: Array, high: Array, eps: float, max_steps: int
) -> Any:
    """Pairs of variables, by second-order selection, on ½βᵀKβ − vᵀβ with Σβ kept.

    ``v`` is the negative gradient and kept current. Ends when the largest violation
    max v (may rise) − min v (may fall) is below ``eps``, or after ``max_steps``.
    Returns the steps taken and the last violation seen.
    """
    n = len(beta)
    done = 0
    gap = 0.0
    while done < max_steps:
        top, i = -np.inf, -1
        bottom = np.inf
        for t in range(n):
            x = v[t]
            if beta[t] < high[t] and x > top:
                top, i = x, t
            if beta[t] > low[t] and x < bottom:
                bottom = x
        gap = top - bottom
        if i < 0 or not gap > eps:
            break
        best, j = -1.0, -1
        own = K[i, i]
        for t in range(n):
            if beta[t] > low[t]:
                d = top - v[t]
                if d > 0.0:
                    curvature = max(own + K[t, t] - 2.0 * K[i, t], 1e-12)
                    gain = d * d / curvature
                    if gain > best:
                        best, j = gain, t
        if j < 0:
            break
        curvature = max(own + K[j, j] - 2.0 * K[i, j], 1e-12)
        step = (top - v[j]) / curvature
        up, down = high[i] - beta[i], beta[j] - low[j]
        if step >= up or step >= down:
            step = min(up, down)
        beta[i] = high[i] if step == up else beta[i] + step
        beta[j] = low[j] if step == down else beta[j] - step
        for t in range(n):
            v[t] -= step * (K[i, t] - K[j, t])
        done += 1
    return done, gap


@kernel
def run_epoch(
    K: Array,
    slot: Array,
    y: Any,
    order: Array,
    f: Array,
    counts: Array,
    start: int,
    constant: float,
) -> Any:
    """One pass of the kernel perceptron, from ``start`` until a row is missing.

    ``constant`` is added to the kernel. ``slot[i]`` is where row i of the kernel is
    kept, −1 if nowhere. Returns the place in ``order`` where it stopped and the
    mistakes made.
    """
    mistakes = 0
    for p in range(start, len(order)):
        i = order[p]
        if y[i] * f[i] <= 0.0:
            s = slot[i]
            if s < 0:
                return p, mistakes
            counts[i] += 1
            mistakes += 1
            for j in range(len(f)):
                f[j] += y[i] * (K[s, j] + constant)
    return len(order), mistakes
