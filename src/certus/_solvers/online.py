"""The perceptron: visit the rows in turn, add the ones on the wrong side.

    if yᵢ(xᵢᵀw + b) ≤ 0:   w ← w + ηᵢyᵢxᵢ,   b ← b + ηᵢyᵢ,   mᵢ ← mᵢ + 1

The mistake counts m determine everything: w = Σ ηᵢmᵢyᵢxᵢ. A state that repeats is
detected: the mistakes in between then satisfy Σ Δmᵢηᵢyᵢxᵢ = 0, which proves that no
hyperplane separates the rows. Cost: one pass over X an epoch. Memory: X by rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus._core.cache import kernel
from certus.base import require_finite
from certus.certificate import Status
from certus.typing import Array

#: Values read after which a kernel returns, so that Ctrl-C is obeyed.
CHUNK = 20_000_000


@kernel
def visit_dense(
    X: Any, y: Any, order: Any, eta: Any, constant: float, w: Any, m: Any
) -> Any:
    """Visit dense rows; how many were wrong, the sum of −y·z, how many were not finite.

    A cell that is NaN or infinite makes the score so, even where w is zero.
    """
    d = X.shape[1]
    wrong, loss, strange = 0, 0.0, 0
    for k in range(len(order)):
        i = order[k]
        z = constant * w[d]
        for j in range(d):
            z += X[i, j] * w[j]
        if not np.isfinite(z):
            strange += 1
        margin = y[i] * z
        if margin <= 0.0:
            wrong += 1
            loss -= margin
            m[i] += 1
            step = eta[i] * y[i]
            for j in range(d):
                w[j] += step * X[i, j]
            w[d] += step * constant
    return wrong, loss, strange


@kernel
def visit_sparse(
    indptr: Any,
    indices: Any,
    values: Any,
    y: Any,
    order: Any,
    eta: Any,
    constant: float,
    w: Any,
    m: Any,
) -> Any:
    """The same over CSR rows."""
    d = len(w) - 1
    wrong, loss, strange = 0, 0.0, 0
    for k in range(len(order)):
        i = order[k]
        z = constant * w[d]
        for j in range(indptr[i], indptr[i + 1]):
            z += values[j] * w[indices[j]]
        if not np.isfinite(z):
            strange += 1
        margin = y[i] * z
        if margin <= 0.0:
            wrong += 1
            loss -= margin
            m[i] += 1
            step = eta[i] * y[i]
            for j in range(indptr[i], indptr[i + 1]):
                w[indices[j]] += step * values[j]
            w[d] += step * constant
    return wrong, loss, strange


class Schedule(NamedTuple):
    """When to stop, and in which order rows are visited."""

    max_iter: int
    tol: float | None
    patience: int
    shuffle: bool


class PerceptronRun(NamedTuple):
    """Where a perceptron got to."""

    w: Array
    mistakes: Array
    n_iter: int
    status: Status
    cycle: Array | None  # mistakes between two visits of one state
    period: int  # epochs between them, if every epoch has the same order


#: Called after each epoch with (mean loss, share of mistakes, w).
OnEpoch = Callable[[float, float, Array], Status | None]


class Visitor:
    """Rows by which a kernel walks, dense or sparse.

    Parameters
    ----------
    X : ndarray or CSR matrix
        Data; Fortran-ordered arrays are copied once.
    y : ndarray
        Labels ±1; rows of label 0 must not be visited.
    eta : ndarray
        Step of each row.
    constant : float
        1 with an intercept, else 0.
    """

    def __init__(self, X: Any, y: Array, eta: Array, constant: float) -> None:
        self.y, self.eta, self.constant = y, eta, constant
        self.data = X
        self.n, self.d = X.shape
        self.sparse = sparse.issparse(X)
        if self.sparse:
            self.X: Any = (X.indptr, X.indices, X.data)
            width = X.nnz / max(1, self.n)
        else:
            self.X, width = (np.ascontiguousarray(X),), self.d
        self.rows = max(1, int(CHUNK / max(1.0, width)))

    def epoch(self, order: Array, w: Array, m: Array) -> tuple[int, float]:
        """Visit all rows of ``order`` once."""
        wrong, loss = 0, 0.0
        visit = visit_sparse if self.sparse else visit_dense
        for i in range(0, len(order), self.rows):
            part = order[i : i + self.rows]
            more, extra, strange = visit(
                *self.X, self.y, part, self.eta, self.constant, w, m
            )
            wrong, loss = wrong + int(more), loss + float(extra)
            if strange:  # a hole in X, or an overflow of large numbers
                require_finite(self.data, "Perceptron")
        return wrong, loss


class _Memory:
    """Brent's search for a repeated state, with the memory of one state."""

    def __init__(self, w: Array, m: Array) -> None:
        self.w, self.m = w.copy(), m.copy()
        self.age, self.limit = 0, 1

    def cycle(self, w: Array, m: Array) -> Array | None:
        """Mistakes since the remembered state if w is that state again."""
        self.age += 1
        if np.array_equal(w, self.w) and not np.array_equal(m, self.m):
            return np.asarray(m - self.m)
        if self.age == self.limit:
            self.w, self.m = w.copy(), m.copy()
            self.age, self.limit = 0, 2 * self.limit
        return None


def run_perceptron(
    visitor: Visitor,
    rows: Array,
    start: Array,
    schedule: Schedule,
    random: np.random.Generator,
    on_epoch: OnEpoch,
    validate: Callable[[Array], float] | None = None,
) -> PerceptronRun:
    """Epochs over ``rows`` until none is wrong, a cycle, a plateau or a limit.

    ``validate`` gives a score of w to stop by, instead of the loss of the epoch.
    """
    w, m = start.astype(np.float64).copy(), np.zeros(visitor.n, dtype=np.int64)
    memory, found = _Memory(w, m), None
    best, waited, epochs, period = np.inf, 0, 0, 0
    status, order = Status.MAX_ITER, rows
    try:
        while epochs < schedule.max_iter:
            order = random.permutation(rows) if schedule.shuffle else rows
            wrong, loss = visitor.epoch(order, w, m)
            epochs += 1
            stop = on_epoch(loss / len(rows), wrong / len(rows), w)
            if wrong == 0:
                status = Status.SOLVED
                break
            if found is None:
                found = memory.cycle(w, m)
            if found is not None and not schedule.shuffle:
                status, period = Status.NO_MINIMISER, memory.age
                break
            if stop is not None:
                status = stop
                break
            if schedule.tol is None:
                continue
            now = loss / len(rows) if validate is None else -validate(w)
            waited = waited + 1 if now > best - schedule.tol else 0
            best = min(best, now)
            if waited >= schedule.patience:
                status = Status.SOLVED
                break
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return PerceptronRun(w, m, epochs, status, found, period)
