"""The compiled inner loops: coordinate descent.

The ``prox`` of a penalty's row is compiled into the loop for that type of penalty: a
new penalty is one more row and no new loop. Every kernel stops after a given number of
epochs, so that Ctrl-C and time limits are obeyed between calls.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus._core.cache import term_kernel
from certus._solvers.penalties import prox


@term_kernel
def descend_gram(
    penalty: Any, G: Any, w: Any, g: Any, size: int, epochs: int, tol: float
) -> Any:
    """Cyclic descent on ½wᵀGw − cᵀw + Ω(w) over the first ``size`` coordinates.

    ``g`` is Gw − c and is kept current. Returns the largest change of the last epoch,
    in units of the gradient, and the number of epochs run.
    """
    largest, done = 0.0, 0
    for _ in range(epochs):
        largest = 0.0
        done += 1
        for j in range(size):
            curvature = G[j, j]
            if curvature <= 0.0:
                continue
            new = prox(penalty, j, w[j] - g[j] / curvature, 1.0 / curvature)
            change = new - w[j]
            if change != 0.0:
                w[j] = new
                for i in range(size):
                    g[i] += change * G[j, i]
                largest = max(largest, abs(change) * curvature)
        if largest <= tol:
            break
    return largest, done


@term_kernel
def descend_columns(
    penalty: Any,
    X: Any,
    h: Any,
    curvature: Any,
    g0: Any,
    w: Any,
    delta: Any,
    order: Any,
    epochs: int,
    tol: float,
) -> Any:
    """As ``descend_gram`` without forming G: AᵀHA over dense columns of A = X.

    ``h`` are row weights that sum to Σh, ``delta`` = A(w − w₀) is kept current and
    ``g0`` is the gradient at w₀. For working sets too large for a Gram matrix.
    """
    n = X.shape[0]
    largest, done = 0.0, 0
    for _ in range(epochs):
        largest = 0.0
        done += 1
        for j in order:
            if curvature[j] <= 0.0:
                continue
            slope = 0.0
            for i in range(n):
                slope += h[i] * X[i, j] * delta[i]
            slope += g0[j]
            new = prox(penalty, j, w[j] - slope / curvature[j], 1.0 / curvature[j])
            change = new - w[j]
            if change != 0.0:
                w[j] = new
                for i in range(n):
                    delta[i] += change * X[i, j]
                largest = max(largest, abs(change) * curvature[j])
        if largest <= tol:
            break
    return largest, done


@term_kernel
def descend_sparse(
    penalty: Any,
    values: Any,
    weighted: Any,
    rows: Any,
    starts: Any,
    mean: Any,
    curvature: Any,
    w: Any,
    r: Any,
    shift: float,
    epochs: int,
) -> Any:
    """Cyclic descent on ½Σ hᵢ(yᵢ − aᵢᵀw)² + Ω(w) over CSC columns of A = X − 1mᵀ.

    ``weighted`` are the values times their row's h. The residual is ``r + shift``, kept
    current without touching the zeros of X; it has mean zero where the columns are
    centred, and Σ hᵢxᵢⱼ is the column's mean. The first epoch visits all columns, the
    others those that are not zero.
    """
    largest, done = 0.0, 0
    for epoch in range(epochs):
        largest = 0.0
        done += 1
        for j in range(len(w)):
            if curvature[j] <= 0.0 or (epoch > 0 and w[j] == 0.0):
                continue
            slope = shift * mean[j]
            for p in range(starts[j], starts[j + 1]):
                slope += weighted[p] * r[rows[p]]
            step = 1.0 / curvature[j]
            new = prox(penalty, j, w[j] + slope * step, step)
            change = new - w[j]
            if change != 0.0:
                w[j] = new
                for p in range(starts[j], starts[j + 1]):
                    r[rows[p]] -= change * values[p]
                shift += change * mean[j]
                largest = max(largest, abs(change) * curvature[j])
        if largest == 0.0:
            break
    return largest, done, shift


@term_kernel
def descend_softmax(
    penalty: Any,
    X: Any,
    penalised: Any,
    P: Any,
    s: Any,
    curvature: Any,
    g0: Any,
    W: Any,
    D: Any,
    M: Any,
    epochs: int,
    tol: float,
) -> Any:
    """Descent on the softmax's quadratic model over columns × classes.

    The model is g₀ᵀΔ + ½Σ sᵢ dᵢᵀ(diag pᵢ − pᵢpᵢᵀ)dᵢ with D = (XΔ)ᵀ and M = Σₖ P∘D, both
    kept current and stored by class; one coordinate costs two passes over its column.
    Every sixth epoch visits all coordinates, the others those that are not zero.
    """
    n, m = X.shape
    n_classes = P.shape[0]
    largest, done = 0.0, 0
    for epoch in range(epochs):
        every = epoch % 6 == 0
        change_of_epoch = 0.0
        done += 1
        for j in range(m):
            for k in range(n_classes):
                if curvature[j, k] <= 0.0:
                    continue
                if not every and penalised[j] and W[j, k] == 0.0:
                    continue
                slope = 0.0
                for i in range(n):
                    slope += s[i] * X[i, j] * P[k, i] * (D[k, i] - M[i])
                slope += g0[j, k]
                step = 1.0 / curvature[j, k]
                new = W[j, k] - slope * step
                if penalised[j]:
                    new = prox(penalty, j, new, step)
                change = new - W[j, k]
                if change != 0.0:
                    W[j, k] = new
                    for i in range(n):
                        moved = change * X[i, j]
                        D[k, i] += moved
                        M[i] += P[k, i] * moved
                    size = abs(change) * curvature[j, k]
                    change_of_epoch = max(change_of_epoch, size)
        if every:
            largest = change_of_epoch
        if change_of_epoch <= tol:
            break
    return largest, done


@term_kernel
def descend_blocks(
    penalty: Any,
    G: Any,
    starts: Any,
    numbers: Any,
    curvature: Any,
    W: Any,
    g: Any,
    every: bool,
) -> Any:
    """One round of descent on ½tr(WGWᵀ) − tr(CWᵀ) + Ω(W) over blocks of W's columns.

    ``W`` and ``g`` = WG − C are (tasks, members); block b has the columns from
    ``starts[b]`` on and the penalty's number ``numbers[b]``. Blocks that are zero are
    visited if ``every``. Returns the largest change in units of the gradient.
    """
    tasks, size = W.shape
    widest = 0
    for b in range(len(numbers)):
        widest = max(widest, starts[b + 1] - starts[b])
    x = np.empty((tasks, widest))
    largest = 0.0
    for b in range(len(numbers)):
        first, width = starts[b], starts[b + 1] - starts[b]
        zero = True
        for t in range(tasks):
            for i in range(width):
                zero = zero and W[t, first + i] == 0.0
        if curvature[b] <= 0.0 or (zero and not every):
            continue
        step = 1.0 / curvature[b]
        square = 0.0
        for t in range(tasks):
            for i in range(width):
                x[t, i] = W[t, first + i] - step * g[t, first + i]
                square += x[t, i] * x[t, i]
        norm = np.sqrt(square)
        factor = 0.0
        if norm > 0.0:
            factor = prox(penalty, numbers[b], norm, step) / norm
        for t in range(tasks):
            for i in range(width):
                change = factor * x[t, i] - W[t, first + i]
                if change != 0.0:
                    W[t, first + i] += change
                    for m in range(size):
                        g[t, m] += change * G[first + i, m]
                    largest = max(largest, abs(change) * curvature[b])
    return largest


@term_kernel
def descend_block_columns(
    penalty: Any,
    A: Any,
    h: Any,
    starts: Any,
    numbers: Any,
    curvature: Any,
    W: Any,
    R: Any,
    every: bool,
) -> Any:
    """As ``descend_blocks`` without a Gram matrix, for more columns than rows.

    ``A`` holds a column of X in each row, ``R`` = Y − XW is (tasks, rows of X) and kept
    current, ``h`` weighs the rows of X and sums to one.
    """
    tasks, n = R.shape
    widest = 0
    for b in range(len(numbers)):
        widest = max(widest, starts[b + 1] - starts[b])
    x = np.empty((tasks, widest))
    largest = 0.0
    for b in range(len(numbers)):
        first, width = starts[b], starts[b + 1] - starts[b]
        zero = True
        for t in range(tasks):
            for i in range(width):
                zero = zero and W[t, first + i] == 0.0
        if curvature[b] <= 0.0 or (zero and not every):
            continue
        step = 1.0 / curvature[b]
        square = 0.0
        for i in range(width):
            for t in range(tasks):
                slope = 0.0
                for k in range(n):
                    slope += h[k] * A[first + i, k] * R[t, k]
                x[t, i] = W[t, first + i] + step * slope
                square += x[t, i] * x[t, i]
        norm = np.sqrt(square)
        factor = 0.0
        if norm > 0.0:
            factor = prox(penalty, numbers[b], norm, step) / norm
        for i in range(width):
            for t in range(tasks):
                change = factor * x[t, i] - W[t, first + i]
                if change != 0.0:
                    W[t, first + i] += change
                    for k in range(n):
                        R[t, k] -= change * A[first + i, k]
                    largest = max(largest, abs(change) * curvature[b])
    return largest
