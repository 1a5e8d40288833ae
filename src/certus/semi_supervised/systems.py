"""The linear systems behind label propagation and label spreading, and their solvers.

    clamped:  f_u = Σ_v p_uv f_v at nodes without a label, f = y at those with one
    spread:   (I − αS) F = (1 − α) Y,   S = D^{-1/2} W D^{-1/2}

Edges from a node to itself cancel in the first and are left out of the second. In both
the matrix is I less a matrix that is not negative, so that the inverse is not negative
either. Symmetric ones are solved by a Cholesky factor or by conjugate gradients, all
columns together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, sparse
from scipy.sparse import csgraph
from scipy.sparse import linalg as sparse_linalg

from certus.certificate import Status
from certus.edge_kernels import product
from certus.typing import Array

#: Up to this many unknowns, a system is factored.
DENSE = 2_000
#: Residuals at which iterations stop, as a share of those at the start.
GOAL = 1e-12

#: Called after each iteration with the residual; may return a status to stop.
OnStep = Callable[[float], Status | None]


class SystemSolution(NamedTuple):
    """Scores of the classes at each node, and what shows that they are right."""

    F: Array
    steps: Array | None  # mean number of steps to a label, for the clamped system
    n_iter: int
    status: Status


def times(W: Any, X: Array) -> Array:
    """W·X for a sparse or dense matrix."""
    return product(W, X) if sparse.issparse(W) else np.asarray(W @ X)


def without_loops(W: Any) -> Any:
    """W with a diagonal of zeros; a dense one is changed in place."""
    if not sparse.issparse(W):
        W.flat[:: len(W) + 1] = 0.0
        return W
    A = sparse.coo_array(W)
    apart = A.coords[0] != A.coords[1]
    ends = A.coords[0][apart], A.coords[1][apart]
    return sparse.csr_array((A.data[apart], ends), shape=A.shape)


def row_sums(W: Any, axis: int = 1) -> Array:
    """Sums of rows, or of columns."""
    return np.asarray(W.sum(axis=axis), dtype=np.float64).ravel()


def is_symmetric(W: Any) -> bool:
    """Whether W equals its transpose."""
    if sparse.issparse(W):
        return bool(abs(W - W.T).nnz == 0 or abs(W - W.T).max() == 0)
    return bool(np.array_equal(W, W.T))


def reached(W: Any, labelled: Array) -> Array:
    """Which nodes have a path to a label."""
    n = len(labelled)
    if not sparse.issparse(W):
        found, new = labelled.copy(), labelled.copy()
        while new.any():
            new = ~found & (W[:, new] > 0).any(axis=1)
            found |= new
        return found
    # From an extra node that leads to every label, along the edges backwards.
    start = sparse.csr_array(labelled.astype(np.float64)[None])
    empty = sparse.csr_array((n, 1))
    corner = sparse.csr_array((1, 1))
    joined = sparse.block_array([[sparse.csr_array(W.T), empty], [start, corner]])
    order = csgraph.breadth_first_order(
        joined.tocsr(), n, return_predecessors=False, directed=True
    )
    found = np.zeros(n + 1, dtype=bool)
    found[order] = True
    return found[:n]


def one_hot(codes: Array, k: int) -> Array:
    """A row of zeros and a one for each label, zeros where there is none."""
    Y = np.zeros((len(codes), k))
    known = codes >= 0
    Y[known, codes[known]] = 1.0
    return Y


def solve_clamped(
    W: Any, same: bool, codes: Array, k: int, max_iter: int, on_step: OnStep
) -> SystemSolution:
    """The harmonic function with the labels as its boundary.

    ``same`` says whether W is symmetric; a dense W is overwritten.
    """
    W = without_loops(W)
    known = codes >= 0
    Y, d = one_hot(codes, k), row_sums(W)
    steps = np.where(known, 0.0, np.inf)
    free = np.flatnonzero(~known & reached(W, known))
    if not len(free):
        return SystemSolution(Y, steps, 0, Status.SOLVED)
    inner = W[free][:, free] if sparse.issparse(W) else W[np.ix_(free, free)]
    d = d[free]
    right = times(W[free][:, np.flatnonzero(known)], Y[known]) / d[:, None]
    right = np.column_stack([right, np.ones(len(free))])
    scale = np.sqrt(d) if same else np.ones(len(free))
    S = _scaled(inner, 1.0 / scale, 1.0 / scale if same else 1.0 / d, same)
    Z, n_iter, status = _solved(S, right * scale[:, None], same, max_iter, on_step)
    Z /= scale[:, None]
    F = Y
    F[free] = _shares(Z[:, :k])
    steps[free] = Z[:, k]
    return SystemSolution(F, steps, n_iter, status)


def _scaled(W: Any, left: Array, right: Array, same: bool) -> Any:
    """diag(left) W diag(right), or diag(right) W where W is not symmetric."""
    if not same:
        left, right = right, np.ones(W.shape[1])
    if not sparse.issparse(W):
        W *= left[:, None]
        W *= right
        return W
    A = sparse.csr_array(W)
    rows = np.repeat(left, np.diff(A.indptr))
    parts = rows * A.data * right[A.indices], A.indices, A.indptr
    return sparse.csr_array(parts, shape=A.shape)


def solve_spread(
    W: Any,
    same: bool,
    codes: Array,
    k: int,
    alpha: float,
    max_iter: int,
    on_step: OnStep,
) -> SystemSolution:
    """(1 − α)(I − αS)⁻¹ Y, with degrees that are sums of columns.

    ``same`` says whether W is symmetric; a dense W is overwritten.
    """
    W = without_loops(W)
    d = row_sums(W, axis=0)
    root = np.sqrt(np.where(d > 0, d, 1.0))
    S = _scaled(W, alpha / root, 1.0 / root, True)
    right = (1.0 - alpha) * one_hot(codes, k)
    Z, n_iter, status = _solved(S, right, same, max_iter, on_step, alpha)
    return SystemSolution(np.maximum(Z, 0.0), None, n_iter, status)


def _solved(
    S: Any,
    B: Array,
    same: bool,
    max_iter: int,
    on_step: OnStep,
    alpha: float = 1.0,
) -> tuple[Array, int, Status]:
    """(I − S) Z = B by the method that suits its size."""
    n = len(B)
    small = n <= DENSE
    if same and small and alpha == 1.0:
        found = _by_factor(S, B)
        if found is not None:
            on_step(0.0)
            return found, 1, Status.SOLVED
    if same:
        return conjugate_gradients(lambda V: V - times(S, V), B, max_iter, on_step)
    if small:
        A = -(S.toarray() if sparse.issparse(S) else S)
        A.flat[:: n + 1] += 1.0
        try:
            Z = linalg.solve(A, B, check_finite=False)
        except linalg.LinAlgError:
            Z = np.linalg.lstsq(A, B, rcond=None)[0]
        on_step(0.0)
        return np.asarray(Z), 1, Status.SOLVED
    return _bicgstab(S, B, max_iter, on_step)


def _by_factor(S: Any, B: Array) -> Array | None:
    """By a Cholesky factor, refined once; None if the matrix is nearly singular."""
    A = -(S.toarray() if sparse.issparse(S) else S)
    A.flat[:: len(A) + 1] += 1.0
    try:
        factor = linalg.cho_factor(A, check_finite=False)
    except linalg.LinAlgError:
        return None
    Z = linalg.cho_solve(factor, B, check_finite=False)
    Z += linalg.cho_solve(factor, B - A @ Z, check_finite=False)
    return np.asarray(Z)


def conjugate_gradients(
    A: Callable[[Array], Array], B: Array, max_iter: int, on_step: OnStep
) -> tuple[Array, int, Status]:
    """A·Z = B for a symmetric positive matrix; each column has its own steps."""
    Z, R = np.zeros_like(B), B.copy()
    V, rr = R.copy(), np.einsum("ij,ij->j", R, R)
    first = np.where(rr > 0, rr, 1.0)
    for i in range(max_iter):
        worst = float(np.sqrt((rr / first).max(initial=0.0)))
        if worst <= GOAL:
            return Z, i, Status.SOLVED
        AV = A(V)
        curved = np.einsum("ij,ij->j", V, AV)
        step = np.divide(rr, curved, out=np.zeros_like(rr), where=curved > 0)
        Z += step * V
        R -= step * AV
        new = np.einsum("ij,ij->j", R, R)
        V *= np.divide(new, rr, out=np.zeros_like(rr), where=rr > 0)
        V += R
        rr = new
        ended = on_step(worst)
        if ended is not None:
            return Z, i + 1, ended
        # What rounding left over no longer falls.
        if not (step > 0).any():
            return Z, i + 1, Status.SOLVED
    return Z, max_iter, Status.MAX_ITER


def _bicgstab(
    S: Any, B: Array, max_iter: int, on_step: OnStep
) -> tuple[Array, int, Status]:
    """A column at a time, for systems that are not symmetric."""
    n, most, status = len(B), 0, Status.SOLVED
    A = sparse_linalg.LinearOperator((n, n), lambda v: v - times(S, v.ravel()))
    Z = np.zeros_like(B)
    for k in range(B.shape[1]):
        count = 0

        def counted(_: Array) -> None:
            nonlocal count
            count += 1
            on_step(float("nan"))

        Z[:, k], failed = sparse_linalg.bicgstab(
            A, B[:, k], rtol=GOAL, maxiter=max_iter, callback=counted
        )
        status = Status.MAX_ITER if failed > 0 else status
        most = max(most, count)
    return Z, most, status


def _shares(Z: Array) -> Array:
    """Rows that add up to one; what rounding made negative is zero."""
    Z = np.maximum(Z, 0.0)
    total = Z.sum(axis=1, keepdims=True)
    return np.divide(Z, total, out=np.zeros_like(Z), where=total > 0)
