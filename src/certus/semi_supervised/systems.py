"""The linear systems behind label propagation and label spreading, and their solvers.

    clamped:  f_u = Σ_v p_uv f_v at nodes without a label, f = y at those with one
    spread:   (I − αS) F = (1 − α) Y,   S = D^{-1/2} W D^{-1/2}

Edges from a node to itself cancel in the first and are left out of the second. In both
the matrix is I less a matrix that is not negative, so that the inverse is not negative
either. Symmetric ones are solved by a Cholesky factor or by conjugate gradients, all
columns together. Dense ones are factored, or iterated, in float32, which takes half the
time; residuals in float64 then correct the solution until it has all digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, sparse
from scipy.sparse import csgraph
from scipy.sparse import linalg as sparse_linalg
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import rbf_kernel

from certus.certificate import Status
from certus.edge_kernels import product
from certus.typing import Array, DTypeLike, Matrix

#: Up to this many unknowns, a system is factored.
DENSE = 2_000
#: Residuals at which iterations stop, as a share of those at the start.
GOAL = 1e-12
#: The same for a round in float32, and rounds at most.
ROUND, ROUNDS = 1e-5, 6
#: Residuals with which float32 has done its work.
ENOUGH = 1e-9
#: Spreading up to this strength needs few iterations, and may begin again each round.
MILD = 0.5
#: Dense systems up to this size also fit into memory as float32.
COPIED = 8_000
#: Scores, as a share of those of labelled rows, that the solver's accuracy may hide.
FAINT = 1e-5
#: Passes over the rows with such scores at most, and the change that ends them.
PASSES, SETTLED = 100, 1e-4

#: Squares of lengths, times gamma, beyond which too much cancels between rows.
CANCELS = 1e4

#: Called after each iteration with the residual; may return a status to stop.
OnStep = Callable[[float], Status | None]


class SystemSolution(NamedTuple):
    """Scores of the classes at each node, and what shows that they are right."""

    F: Array
    steps: Array | None  # mean number of steps to a label, for the clamped system
    n_iter: int
    status: Status
    Z: Array | None = None  # what was solved for, from which another fit may start


def rbf_weights(X: Matrix, gamma: float) -> Array:
    """exp(−gamma·‖x − x'‖²) of all pairs of rows, by one product of matrices."""
    if sparse.issparse(X):
        return np.asarray(rbf_kernel(X.astype(np.float64), gamma=gamma))
    rows = np.asarray(X, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        C = rows - rows.mean(axis=0)
        s, one = gamma * np.einsum("ij,ij->i", C, C), np.ones(len(rows))
    if not s.max(initial=0.0) < CANCELS:
        return np.exp(-gamma * cdist(rows, rows, "sqeuclidean"))
    left = np.column_stack([2 * gamma * C, -s, one])
    K = left @ np.column_stack([C, one, -s]).T
    return np.exp(K, out=K)


def times(W: Matrix, X: Array) -> Array:
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


def part(W: Matrix, rows: Array, columns: Array) -> Any:
    """Some rows and columns; a view of a dense W where both are stretches."""
    if sparse.issparse(W):
        return W[rows][:, columns]
    spans = []
    for places in (rows, columns):
        n = len(places)
        if not n or places[-1] - places[0] != n - 1:
            return W[np.ix_(rows, columns)]
        spans.append(slice(int(places[0]), int(places[0]) + n))
    return W[tuple(spans)]


def row_sums(W: Matrix, axis: int = 1) -> Array:
    """Sums of rows, or of columns."""
    return np.asarray(W.sum(axis=axis), dtype=np.float64).ravel()


def is_symmetric(W: Any) -> bool:
    """Whether W equals its transpose."""
    if sparse.issparse(W):
        return bool(abs(W - W.T).nnz == 0 or abs(W - W.T).max() == 0)
    return bool(np.array_equal(W, W.T))


def reached(W: Matrix, labelled: Array) -> Array:
    """Which nodes have a path to a label."""
    n = len(labelled)
    if not sparse.issparse(W):
        found, new = labelled.copy(), np.flatnonzero(labelled)
        while len(new) and not found.all():
            rest = np.flatnonzero(~found)
            new = rest[part(W, rest, new).sum(axis=1) > 0]
            found[new] = True
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
    W: Matrix,
    same: bool,
    codes: Array,
    k: int,
    max_iter: int,
    on_step: OnStep,
    start: Array | None = None,
) -> SystemSolution:
    """The harmonic function with the labels as its boundary.

    ``same`` says whether W is symmetric; a dense W is overwritten. ``start`` is the Z
    of an earlier solution.
    """
    W = without_loops(W)
    known = codes >= 0
    Y, d = one_hot(codes, k), row_sums(W)
    steps = np.where(known, 0.0, np.inf)
    free = np.flatnonzero(~known & reached(W, known))
    if not len(free):
        return SystemSolution(Y, steps, 0, Status.SOLVED)
    d = d[free]
    right = times(part(W, free, np.flatnonzero(known)), Y[known]) / d[:, None]
    right = np.column_stack([right, np.ones(len(free))])
    scale = np.sqrt(d) if same else np.ones(len(free))
    inner = part(W, free, free)
    left = 1.0 / scale if same else 1.0 / d
    system = System(inner, left, left if same else scale, same, 1.0)
    first = None if start is None else start[free] * scale[:, None]
    right *= scale[:, None]
    Z, n_iter, status = _solved(system, right, max_iter, on_step, first)
    Z /= scale[:, None]
    F = Y
    F[free] = _shares(Z[:, :k])
    steps[free] = Z[:, k]
    whole = np.zeros((len(codes), k + 1))
    whole[free] = Z
    return SystemSolution(F, steps, n_iter, status, whole)


class System(NamedTuple):
    """I − S with S = diag(left) W diag(right)."""

    W: Any
    left: Array
    right: Array
    same: bool  # whether S is symmetric
    alpha: float  # the largest eigenvalue of S is at most this

    def scaled(self, dtype: DTypeLike = np.float64, copy: bool = False) -> Any:
        """S; a dense W of this type is overwritten unless it is copied."""
        with np.errstate(over="ignore"):
            left, right = self.left.astype(dtype), self.right.astype(dtype)
        if not sparse.issparse(self.W):
            # What float32 cannot hold is scaled before it is rounded.
            fits = dtype == np.float64 or (left.min() > 1e-9 and left.max() < 1e9)
            if not fits:
                S = self.W * self.left[:, None]
                S *= self.right
                return S.astype(dtype)
            S = self.W.astype(dtype, copy=copy)
            S *= left[:, None]
            S *= right
            return S
        A = sparse.csr_array(self.W)
        rows = np.repeat(left, np.diff(A.indptr))
        parts = rows * A.data * right[A.indices], A.indices, A.indptr
        return sparse.csr_array(parts, shape=A.shape)

    def residual(self, B: Array, Z: Array) -> Array:
        """B − (I − S)Z, in float64."""
        V = self.right[:, None] * Z
        # A dense matrix is passed through faster from its rows.
        flip = self.same and not sparse.issparse(self.W)
        V = (V.T @ self.W).T if flip else times(self.W, V)
        V *= self.left[:, None]
        V -= Z
        V += B
        return V


def solve_spread(
    W: Matrix,
    same: bool,
    codes: Array,
    k: int,
    alpha: float,
    max_iter: int,
    on_step: OnStep,
    start: Array | None = None,
) -> SystemSolution:
    """(1 − α)(I − αS)⁻¹ Y, with degrees that are sums of columns.

    ``same`` says whether W is symmetric; a dense W is overwritten. ``start`` is the Z
    of an earlier solution.
    """
    W = without_loops(W)
    d = row_sums(W, axis=0)
    root = np.sqrt(np.where(d > 0, d, 1.0))
    system = System(W, alpha / root, 1.0 / root, same, alpha)
    right = (1.0 - alpha) * one_hot(codes, k)
    Z, n_iter, status = _solved(system, right, max_iter, on_step, start)
    F = np.maximum(Z, 0.0)
    if n_iter and len(F) > COPIED and not sparse.issparse(W):
        one = np.ones(len(F))  # the solver has written αS over W
        system = system._replace(W=W, left=one, right=one)
    _raise_faint(system, right, F)
    return SystemSolution(F, None, n_iter, status, Z)


def _raise_faint(system: System, B: Array, F: Array) -> None:
    """Scores below the solver's accuracy, by F ← B + αS F from below; F is changed.

    Far from all labels a row's scores may be 1e-60. Their ratios, and so the row's
    label, are right only if they are sums of what is not negative.
    """
    rows = np.flatnonzero(F.max(axis=1) < FAINT * (1.0 - system.alpha))
    if not len(rows):
        return
    some, scale = system.W[rows], system.right[:, None]
    F[rows], last = 0.0, np.zeros((len(rows), F.shape[1]))
    for _ in range(PASSES):
        F[rows] = B[rows] + system.left[rows, None] * times(some, scale * F)
        new = _shares(F[rows])
        if np.abs(new - last).max() < SETTLED:
            return
        last = new


def _solved(
    system: System, B: Array, max_iter: int, on_step: OnStep, start: Array | None
) -> tuple[Array, int, Status]:
    """(I − S) Z = B, from a first Z: what that leaves of B is solved for."""
    if start is None:
        return _from_zero(system, B, max_iter, on_step)
    R = system.residual(B, start)
    if (_lengths(R) <= GOAL * _lengths(B)).all():
        return start, 0, Status.SOLVED
    more, n_iter, status = _from_zero(system, R, max_iter, on_step)
    return start + more, n_iter, status


def _from_zero(
    system: System, B: Array, max_iter: int, on_step: OnStep
) -> tuple[Array, int, Status]:
    """(I − S) Z = B by the method that suits its size."""
    n, same = len(B), system.same
    small = n <= DENSE
    if same and small and system.alpha == 1.0:
        found = _by_factor(system, B)
        if found is not None:
            on_step(0.0)
            return found, 1, Status.SOLVED
    dense = not sparse.issparse(system.W)
    if same and dense and n <= COPIED and system.alpha <= MILD:
        return _in_rounds(system, B, max_iter, on_step)
    S = system.scaled(copy=n <= COPIED)
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


def _by_factor(system: System, B: Array) -> Array | None:
    """By a Cholesky factor; None if the matrix is nearly singular.

    The factor is in float32, and in float64 where that is not good enough.
    """
    if sparse.issparse(system.W):
        system = system._replace(W=system.W.toarray())
    Z, worst = _refined(system, B, np.float32)
    if worst > ENOUGH:
        Z, worst = _refined(system, B, np.float64)
    return Z if worst < 1.0 else None


def _refined(system: System, B: Array, dtype: DTypeLike) -> tuple[Array, float]:
    """By a factor in this precision; the residual that is left, as a share."""
    A = system.scaled(dtype, copy=True)
    np.negative(A, out=A)
    A.flat[:: len(A) + 1] += 1.0
    potrf, potrs = linalg.get_lapack_funcs(("potrf", "potrs"), (A,))
    # The transpose of a symmetric matrix is in LAPACK's order, and is not copied.
    factor, failed = potrf(A.T, lower=True, clean=False, overwrite_a=True)
    Z, R, worst = np.zeros_like(B), B, 1.0
    if failed:
        return Z, worst
    for _ in range(ROUNDS):
        size = _norms(R)
        new = Z + size * potrs(factor, (R / size).astype(dtype), lower=True)[0]
        left = system.residual(B, new)
        share = float((_norms(left) / _norms(B)).max())
        if not share < worst:
            break
        gained = share < 0.5 * worst
        Z, R, worst = new, left, share
        if worst <= GOAL or not gained:
            break
    return Z, worst


def _norms(B: Array) -> Array:
    """Lengths of the columns; 1 for columns of zeros."""
    found = _lengths(B)
    return np.where(found > 0, found, 1.0)


def _lengths(B: Array) -> Array:
    return np.asarray(np.sqrt(np.einsum("ij,ij->j", B, B)))


def _in_rounds(
    system: System, B: Array, max_iter: int, on_step: OnStep
) -> tuple[Array, int, Status]:
    """Conjugate gradients in float32, from the residual that the last round left."""
    S = system.scaled(np.float32)
    Z, R, made, start = np.zeros_like(B), B, 0, _norms(B)
    for _ in range(ROUNDS):
        size = _norms(R)
        right = (R / size).astype(np.float32)
        step, n_iter, status = conjugate_gradients(
            lambda V: V - (V.T @ S).T, right, max_iter - made, on_step, ROUND
        )
        Z += step * size
        made += n_iter
        R = system.residual(B, Z)
        done = bool((np.sqrt(np.einsum("ij,ij->j", R, R)) <= ENOUGH * start).all())
        if done or status is not Status.SOLVED:
            break
    return Z, made, Status.SOLVED if done else status


def conjugate_gradients(
    A: Callable[[Array], Array],
    B: Array,
    max_iter: int,
    on_step: OnStep,
    goal: float = GOAL,
) -> tuple[Array, int, Status]:
    """A·Z = B for a symmetric positive matrix; each column has its own steps."""
    Z, R = np.zeros_like(B), B.copy()
    V, rr = R.copy(), np.einsum("ij,ij->j", R, R)
    first = np.where(rr > 0, rr, 1.0)
    for i in range(max_iter):
        worst = float(np.sqrt((rr / first).max(initial=0.0)))
        if worst <= goal:
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
    S: Matrix, B: Array, max_iter: int, on_step: OnStep
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
