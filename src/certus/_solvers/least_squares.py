"""Least squares and ridge by direct methods.

    min over w:  ½·Σ sᵢ(yᵢ − aᵢᵀw)²/Σs + ½·l2·‖w‖²        (A centred if intercept)

``cholesky`` forms the Gram matrix (n·d² flops, no copy of X), scales it to unit
diagonal, factorises, and refines where the condition number asks for it. ``qr`` works
on the rows themselves, ``svd`` gives the minimum-norm solution of rank-deficient
problems. Wide problems are solved through the n × n matrix AAᵀ. Sparse problems too
large for a Gram matrix run LSMR, which also converges to the minimum norm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, lsmr

from certus._core.blas import cholesky
from certus._core.rounding import EPS
from certus._solvers.design import Design
from certus._solvers.penalties import curvature_of
from certus._solvers.problem import Solution, SolverLimits, Start
from certus.certificate import Status
from certus.typing import Array

#: Largest side of a matrix that direct methods on sparse data may hold densely.
DENSE_SIDE = 4_000
#: Beyond this condition number of the scaled Gram matrix, its factor is not trusted.
GRAM_LIMIT = 1e12


class LeastSquares(NamedTuple):
    """Several (centred) targets, each with its own smooth penalty."""

    design: Design
    Y: Array
    penalties: Sequence[Any]
    method: str = "auto"


@dataclass(frozen=True)
class LinearSolution(Solution):
    """``primal`` is (d, targets); how it was found, and why that way."""

    rank: int = -1
    singular: Array = field(default_factory=lambda: np.empty(0))
    method: str = ""
    why: str = ""

    @property
    def coef(self) -> Array:
        """One row per target."""
        return self.primal.T


class _Found(NamedTuple):
    """Coefficients, one row per target."""

    coef: Array
    rank: int
    singular: Array
    method: str
    why: str = ""


def solve(problem: LeastSquares, start: Start, limits: SolverLimits) -> LinearSolution:
    """Solve directly: neither a start nor limits are looked at."""
    design, Y, penalties, method = problem
    l2 = np.array([curvature_of("least squares", one) for one in penalties])
    found = _choose(design, Y, l2, method)
    why = found.why or _reason(design, l2)
    why = "as asked" if found.method == method else why
    details = (found.rank, found.singular, found.method, why)
    ending = (0.0, Status.SOLVED, 1, None, None)
    return LinearSolution(found.coef.T, *ending, *details)


def _reason(design: Design, l2: Array) -> str:
    """Why not the Gram matrix."""
    if design.sparse:
        return f"sparse: no Gram matrix of side {min(design.n, design.d)} is formed"
    if design.n < design.d and np.all(l2 == 0):
        return "fewer rows than columns: the solution of minimum norm"
    return "a rank-deficient or ill-conditioned Gram matrix is not trusted"


def _choose(design: Design, Y: Array, l2: Array, method: str) -> _Found:
    wide = design.n < design.d
    if method == "auto" and design.sparse and min(design.n, design.d) > DENSE_SIDE:
        return _lsmr(design, Y, l2)
    if method in ("auto", "cholesky"):
        found = _dual(design, Y, l2) if wide else _cholesky(design, Y, l2)
        if found is not None:
            return found
    if design.sparse:
        return _lsmr(design, Y, l2)
    A, B, scale = design.dense_rows(Y)
    if method == "qr" and not wide and np.all(l2 == 0):
        found = _qr(A, B, scale)
        if found is not None:
            return found
    return _svd(A, B, l2, scale)


def _cholesky(design: Design, Y: Array, l2: Array) -> _Found | None:
    """Gram matrix and Cholesky factor; None where the factor cannot be trusted."""
    with np.errstate(over="ignore", invalid="ignore"):
        G, B = design.gram(), design.t_dot_targets(Y)
    size = np.diag(G).copy()
    level = l2.max(initial=0.0)
    if not (np.isfinite(G).all() and np.isfinite(B).all()):
        return None
    # Centring subtracts; a column that is constant up to rounding must not look alive.
    floor: Any = 0.0
    if design.centred:
        floor = 8 * EPS * np.square(design.rest) + np.square(8 * EPS * design.mean)
    if level == 0.0 and (np.any(size <= floor) or size.min(initial=1.0) < 1e-280):
        return None
    if design.centred and np.any(size < 1e-12 * np.square(design.rest)):
        return None  # nearly constant columns: centre explicitly instead
    coef = np.empty((Y.shape[1], design.d))
    worst = 1.0
    for value in np.unique(l2):
        which = np.flatnonzero(l2 == value)
        factor = _factor(G, size, value)
        if factor is None:
            return None
        (chol, scale, condition) = factor
        worst = max(worst, condition)

        def apply(V: Array, chol: Any = chol, scale: Any = scale) -> Array:
            return scale[:, None] * linalg.cho_solve(chol, scale[:, None] * V)

        W = apply(B[:, which])
        if condition > 1e7:
            for _ in range(2):
                W = W + apply(design.pull_residual(Y, which, W) - value * W)
        coef[which] = W.T
    why = f"the scaled Gram matrix has a condition number near {worst:.0e}"
    singular = np.empty(0)
    if level == 0.0 and not design.sparse:  # asked for where nothing is penalised
        values = linalg.eigvalsh(G, check_finite=False, driver="evr")
        singular = np.sqrt(np.maximum(values[::-1], 0.0))
    return _Found(coef, design.d, singular, "cholesky", why)


def _factor(G: Array, size: Array, l2: float) -> tuple[Any, Array, float] | None:
    diagonal = size + l2
    if np.any(diagonal <= 0) or not np.isfinite(diagonal).all():
        return None
    scale = 1 / np.sqrt(diagonal)
    M = G * scale[:, None]
    M *= scale
    M.flat[:: len(M) + 1] = 1.0
    norm = float(np.abs(M).sum(axis=0).max(initial=0.0))
    chol = cholesky(M)
    if chol is None:
        return None
    reciprocal, _ = linalg.lapack.dpocon(chol, norm)
    if reciprocal * GRAM_LIMIT < 1.0:
        return None
    return (chol, False), scale, 1.0 / reciprocal


def _dual(design: Design, Y: Array, l2: Array) -> _Found | None:
    """W = Aᵀ(AAᵀ + Σs·l2)⁻¹y for wide problems with a penalty."""
    if np.any(l2 <= 0) or (design.sparse and design.n > DENSE_SIDE):
        return None
    A, B, scale = design.dense_rows(Y)
    K = A @ A.T
    if not np.isfinite(K).all():
        return None
    coef = np.empty((Y.shape[1], design.d))
    for value in np.unique(l2):
        which = np.flatnonzero(l2 == value)
        M = K.copy()
        M.flat[:: len(M) + 1] += value / scale**2
        chol = cholesky(M)
        if chol is None:
            return None
        U = linalg.cho_solve((chol, False), B[:, which])
        coef[which] = (A.T @ U).T
    why = "more columns than rows: the matrix of inner products of rows is the smaller"
    return _Found(coef, design.n, np.empty(0), "cholesky", why)


def _qr(A: Array, B: Array, scale: float) -> _Found | None:
    Q, R = np.linalg.qr(A)
    diagonal = np.abs(np.diag(R))
    if diagonal.min(initial=np.inf) <= diagonal.max(initial=0.0) * max(A.shape) * EPS:
        return None
    W = linalg.solve_triangular(R, Q.T @ B)
    singular = linalg.svdvals(R, check_finite=False) / scale
    return _Found(W.T, A.shape[1], singular, "qr")


def _svd(A: Array, B: Array, l2: Array, scale: float) -> _Found:
    """Through the singular values: minimum norm, or shrunk by σ/(σ² + l2).

    ``A`` and ``B`` carry the same factor ``scale``, so w is unchanged and a penalty
    becomes l2·scale².
    """
    if A.shape[0] > 2 * A.shape[1]:  # tall: the triangular factor has the same values
        Q, R = np.linalg.qr(A)
        U, sigma, Vt = linalg.svd(R, full_matrices=False, lapack_driver="gesdd")
        UtB = U.T @ (Q.T @ B)
    else:
        U, sigma, Vt = linalg.svd(A, full_matrices=False, lapack_driver="gesdd")
        UtB = U.T @ B
    cut = sigma.max(initial=0.0) * max(A.shape) * EPS
    rank = int(np.sum(sigma > cut))
    sigma_used, UtB, Vt = sigma[:rank], UtB[:rank], Vt[:rank]
    level = (l2 * scale) * scale  # scale² alone may overflow
    weight = sigma_used[:, None] / (np.square(sigma_used)[:, None] + level)
    return _Found((Vt.T @ (weight * UtB)).T, rank, sigma / scale, "svd")


def _lsmr(design: Design, Y: Array, l2: Array) -> _Found:
    """Minimum-norm least squares by products with A alone; for large sparse data."""
    root = np.sqrt(1.0 / design.total)
    s_root = np.ones(design.n) if design.s is None else np.sqrt(design.s)
    operator = LinearOperator(
        (design.n, design.d),
        matvec=lambda w: root * s_root * design.dot(np.ravel(w)),
        rmatvec=lambda u: design.t_dot(_divide(np.ravel(u), s_root)) / root,
        dtype=np.float64,
    )
    coef = np.empty((Y.shape[1], design.d))
    for k in range(Y.shape[1]):
        coef[k] = lsmr(
            operator,
            root * s_root * Y[:, k],
            damp=float(np.sqrt(l2[k])),
            atol=1e-13,
            btol=1e-13,
            maxiter=20 * min(design.n, design.d) + 100,
        )[0]
    return _Found(coef, -1, np.empty(0), "lsmr")


def _divide(u: Array, root: Array) -> Array:
    return np.divide(u, root, out=np.zeros_like(u), where=root > 0)
