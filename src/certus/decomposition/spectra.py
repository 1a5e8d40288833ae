"""The largest singular values of A and their right vectors, by four routes.

``gram_spectrum`` diagonalises AᵀA (or AAᵀ): one symmetric product, but it squares the
condition number, so that a singular value below 1e-4 of the largest loses half its
digits. ``factor_spectrum`` works on a triangular factor of A, or on A, and loses
nothing. ``lanczos`` builds an orthonormal basis of blocks (AAᵀ)ʲΩ with thick restarts
and stops on its residual. ``randomised`` makes a fixed number of passes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from certus._core.rounding import EPS
from certus._core.threads import run_blocks, slices
from certus.base import thread_pools
from certus.certificate import Status
from certus.decomposition.operator import LANES, Operator
from certus.typing import Array

#: Smallest kept variance, as a share of the largest, for which a Gram matrix is used.
GRAM_FLOOR = 1e-8
#: The same for products in float32.
SINGLE_FLOOR = 1e-2
#: Columns of a block; a sparse product of 16 columns costs about twice one of 1.
BLOCK = 16
#: Blocks of the basis between restarts beyond the wanted vectors, and its bytes.
BLOCKS, BASIS_BYTES = 20, 1 << 30
MAX_STEPS = 300
#: Rows of a matrix up to which its eigenvalues take one thread.
ONE_THREAD = 1_000
#: Below this target every block is made orthogonal to the basis twice.
CAREFUL = 1e-8

Found = Callable[[], tuple[Array, Array]]
OnStep = Callable[[float, float, Found], Status | None]


class Spectrum(NamedTuple):
    """Singular values, largest first, and right vectors as rows."""

    values: Array
    vectors: Array
    solver: str
    why: str
    n_iter: int = 1
    status: Status = Status.SOLVED

    @property
    def complete(self) -> bool:
        """Whether every singular value is known."""
        return self.solver in ("covariance_eigh", "full")


def gram_spectrum(op: Operator, why: str, single: bool = False) -> Spectrum:
    """All singular values from the eigenvalues of the smaller Gram matrix."""
    G = op.gram(single)
    if not np.isfinite(G).all():
        raise np.linalg.LinAlgError("products of its cells overflow")
    squares, Q = _eigh(G)
    values = np.sqrt(np.maximum(squares[::-1], 0.0)) / op.scale
    Q = Q[:, ::-1]
    if op.shape[0] >= op.shape[1]:
        return Spectrum(values, Q.T, "covariance_eigh", why)
    return Spectrum(values, Q.T, "covariance_eigh rows", why)


def direct_spectrum(
    op: Operator, count: Callable[[Array], int], why: str, full: bool = False
) -> tuple[Spectrum, int]:
    """Every singular value, and how many are kept, by the cheapest safe route.

    ``count`` tells from all singular values how many components are wanted.
    """
    if not full:
        tall = op.shape[0] >= op.shape[1] and not op.sparse
        for single in (True, False) if tall and op.X.dtype == np.float32 else (False,):
            found = gram_spectrum(op, why, single)
            k = count(found.values)
            floor = SINGLE_FLOOR if single else GRAM_FLOOR
            if _safe(found.values, k, floor):
                return _right(op, found, k), k
        if op.sparse:
            return _right(op, found, k), k
        why = "the smallest variance kept is too small for a Gram matrix"
    found = factor_spectrum(op, why)
    return found, count(found.values)


def _safe(values: Array, k: int, floor: float) -> bool:
    if k == 0 or values[0] == 0.0:
        return True
    return bool((values[k - 1] / values[0]) ** 2 >= floor)


def _right(op: Operator, found: Spectrum, k: int) -> Spectrum:
    """Right vectors, where the Gram matrix was that of the rows."""
    if found.solver == "covariance_eigh":
        return found
    U = found.vectors[:k].T
    V = right_vectors(op, U, found.values[:k])
    return found._replace(vectors=V, solver="covariance_eigh")


def factor_spectrum(op: Operator, why: str) -> Spectrum:
    """All singular values by orthogonal steps alone: no product is squared."""
    n, d = op.shape
    A = op.triangle() if n >= 2 * d else op.dense()
    if not np.isfinite(A).all():
        raise np.linalg.LinAlgError("sums of its cells overflow")
    _, values, Vt = np.linalg.svd(A, full_matrices=False)
    return Spectrum(values / op.scale, Vt, "full", why)


def right_vectors(op: Operator, U: Array, values: Array) -> Array:
    """Rows Aᵀuᵢ/σᵢ, made orthonormal again where rounding or zeros ask for it."""
    sizes = np.where(values > 0, values * op.scale, 1.0)
    V = op.t_dot(U / sizes).T
    drift = np.abs(V @ V.T - np.eye(len(V))).max(initial=0.0)
    if drift < 1e-12:
        return np.asarray(V)
    return orthonormal_rows(V)


def orthonormal_rows(V: Array) -> Array:
    """The nearest directions, one after another; missing ones are filled in."""
    Q, R = np.linalg.qr(V.T)
    signs = np.where(np.diag(R) < 0, -1.0, 1.0)
    return np.asarray((Q * signs).T)


# -- iterations -------------------------------------------------------------------


def lanczos(
    op: Operator, k: int, tol: float, random: np.random.Generator, on_step: OnStep
) -> Spectrum:
    """Block Lanczos with full orthogonalisation and thick restarts.

    The k pairs of AAᵀ (or AᵀA, whichever is smaller) are accepted when each singular
    value is known to be within tol·σ₁ of one of A's. Ctrl-C and limits leave the best
    pairs so far, once there are k.
    """
    by_rows = op.shape[0] < op.shape[1]
    basis = _Basis(op.side, k, careful=tol < CAREFUL)

    def result() -> tuple[Array, Array]:
        vectors = _times(basis.Q[:, : len(found.Y)], found.Y)
        values = np.sqrt(found.values) / op.scale
        return values, right_vectors(op, vectors, values) if by_rows else vectors.T

    block = basis.outside(random)
    found = _Pairs(np.zeros(0), np.zeros((0, 0)), np.inf, 0.0)
    step, status, best, since = 0, Status.MAX_ITER, np.inf, 0
    try:
        while step < MAX_STEPS:
            step += 1
            W = op.dot(op.t_dot(block)) if by_rows else op.t_dot(op.dot(block))
            if not np.isfinite(W).all():
                raise np.linalg.LinAlgError("products of its cells overflow")
            block, coupling = basis.extend(block, W)
            if basis.size >= k:
                found = basis.pairs(coupling, k)
                told = on_step(found.captured, found.residual, result)
                if found.residual <= tol and basis.size >= min(k + BLOCK, op.side):
                    status = Status.SOLVED
                    break
                if told is not None:
                    status = told
                    break
                if found.residual < best:
                    best, since = found.residual, step
                elif step - since > 2 * BLOCKS:  # rounding lets it come no closer
                    status = Status.TOL_NOT_REACHED
                    break
            if block.shape[1] == 0:  # an invariant subspace; go on outside of it
                block = basis.outside(random)
                if block.shape[1] == 0:
                    status = Status.SOLVED
                    break
            elif basis.full:
                found = basis.restart(found, k)
    except KeyboardInterrupt:
        if not len(found.values):
            raise
        status = Status.INTERRUPTED
    values, V = result()
    why = f"{op.side:,} singular values, of which {k:,} are wanted"
    return Spectrum(values, np.asarray(V), "lanczos", why, step, status)


class _Pairs(NamedTuple):
    """Ritz values, their coordinates in the basis, and how far they may be off."""

    values: Array
    Y: Array
    residual: float
    captured: float


class _Basis:
    """Orthonormal columns Q and T = QᵀMQ."""

    def __init__(self, side: int, k: int, careful: bool) -> None:
        self.careful = careful
        room = BASIS_BYTES // (8 * max(1, side))
        most = max(k + 4 * BLOCK, min(k + BLOCKS * BLOCK, room))
        self.most = int(min(side, most))
        self.Q = np.empty((side, self.most + BLOCK), order="F")
        self.T = np.zeros((self.most + BLOCK, self.most + BLOCK))
        self.size = 0

    @property
    def full(self) -> bool:
        return self.size + BLOCK > self.most

    def outside(self, random: np.random.Generator) -> Array:
        """Random orthonormal columns orthogonal to the basis."""
        fresh = random.standard_normal((len(self.Q), min(BLOCK, len(self.Q))))
        return _orthonormalise(fresh, self.Q[:, : self.size], True)[0]

    def extend(self, block: Array, W: Array) -> tuple[Array, Array]:
        """Take in ``block``, whose product is W; return what W has outside Q."""
        a, b = self.size, self.size + block.shape[1]
        self.Q[:, a:b] = block
        self.size = b
        block, coupling, H = _orthonormalise(W, self.Q[:, :b], self.careful)
        self.T[:b, a:b] = H
        self.T[a:b, :b] = H.T
        return block, coupling

    def pairs(self, coupling: Array, k: int) -> _Pairs:
        """The k largest Ritz pairs, and the residual that the coupling leaves."""
        m = self.size
        values, Y = _eigh(self.T[:m, :m])
        values, Y = np.maximum(values[::-1][:k], 0.0), Y[:, ::-1][:, :k]
        left = coupling @ Y[m - coupling.shape[1] :] if coupling.size else np.zeros(k)
        delta = np.sqrt(np.square(left).sum(axis=0)) if left.ndim == 2 else left
        sigma, top = np.sqrt(values), np.sqrt(values[0])
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.fmin(delta / sigma, np.sqrt(delta)) / top
        worst = float(np.nan_to_num(each).max(initial=0.0))
        return _Pairs(values, Y, worst, float(values.sum()))

    def restart(self, found: _Pairs, k: int) -> _Pairs:
        """Keep the best Ritz vectors; the block that follows stays what it is."""
        m = self.size
        keep = min(k + 2 * BLOCK, m)
        values, Y = _eigh(self.T[:m, :m])
        self.Q[:, :keep] = _times(self.Q[:, :m], Y[:, ::-1][:, :keep])
        self.T[:] = 0.0
        self.T[np.arange(keep), np.arange(keep)] = values[::-1][:keep]
        self.size = keep
        return found._replace(Y=np.eye(keep)[:, :k])


def _orthonormalise(W: Array, Q: Array, careful: bool) -> tuple[Array, Array, Array]:
    """B, S and H with W = Q H + B S, columns of B orthonormal and orthogonal to Q.

    What is null beside W is left out of B. Scaling by a Gram matrix magnifies what
    rounding left along Q and among the columns; where it magnified much, and always if
    ``careful``, another round follows.
    """
    H, G, before = _project(W, Q)
    S = np.eye(W.shape[1])
    floor = 10 * EPS * before
    for turn in range(4):
        squares, Y = _eigh(G)
        kept = squares > max(floor**2, 1e-14 * squares[-1])
        if not kept.any():
            return W[:, :0], np.zeros((0, S.shape[1])), H
        root = np.sqrt(squares[kept])
        W = _times(W, Y[:, kept] / root)
        S = (Y[:, kept] * root).T @ S
        if root[0] > 0.03 * max(before, root[-1]) and turn >= careful:
            break
        _, G, _ = _project(W, Q)
        before, floor = 1.0, 1e-3
    return W, S, H


def _project(W: Array, Q: Array) -> tuple[Array, Array, float]:
    """W ← W − Q H in place, H = QᵀW; returns H, WᵀW afterwards and ‖W‖ before.

    By rows in our own threads: those of BLAS would keep turning after each product,
    and slow the sparse ones by half.
    """
    lanes = slices(len(W), -(-len(W) // LANES))
    sums: list[list[Array]] = [[] for _ in lanes]

    def inner(lane: int, stop: Any) -> None:
        part = lanes[lane]
        sums[lane] = [Q[part].T @ W[part], np.square(W[part]).sum(axis=0)]

    def outer(lane: int, stop: Any) -> None:
        part = lanes[lane]
        W[part] -= Q[part] @ H
        sums[lane] = [W[part].T @ W[part]]

    run_blocks(inner, range(len(lanes)))
    H, sizes = (np.asarray(sum(one)) for one in zip(*sums))
    run_blocks(outer, range(len(lanes)))
    G = np.asarray(sum(one for (one,) in sums))
    return H, G, float(np.sqrt(sizes.max(initial=0.0)))


def _times(A: Array, B: Array) -> Array:
    """Tall A times small B, by rows in our own threads."""
    out = np.empty((len(A), B.shape[1]))

    def work(part: slice, stop: Any) -> None:
        out[part] = A[part] @ B

    run_blocks(work, slices(len(A), -(-len(A) // LANES)))
    return out


def _eigh(M: Array) -> tuple[Array, Array]:
    """Eigenvalues and vectors; of a small matrix on one thread.

    There a second one gains nothing, and would keep turning beside what follows.
    """
    small = thread_pools().limit(limits=1, user_api="blas")
    with small if len(M) <= ONE_THREAD else contextlib.nullcontext():
        values, vectors = np.linalg.eigh(M)
    return values, vectors


def randomised(
    op: Operator, k: int, extra: int, n_iter: int, random: np.random.Generator
) -> Spectrum:
    """Orthonormalised power iterations on k + extra random directions.

    They end among the columns, so that ‖A·v‖ is exactly the value stated for v.
    """
    width = min(k + extra, op.side)
    Q = np.linalg.qr(op.t_dot(random.standard_normal((op.shape[0], width))))[0]
    for _ in range(n_iter):
        Q = np.linalg.qr(op.t_dot(np.linalg.qr(op.dot(Q))[0]))[0]
    _, values, W = np.linalg.svd(np.linalg.qr(op.dot(Q), mode="r"))
    V, values = W @ Q.T, values / op.scale
    return Spectrum(values[:k], V[:k], "randomized", "as asked", n_iter)
