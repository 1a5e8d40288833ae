"""One EM step for a mixture of Gaussians, by the verifier's own formulas.

    r[i, k] = π_k N(xᵢ; μ_k, Σ_k) / p(xᵢ),   π = Σᵢ r / n,   μ = Σᵢ r·x / Σᵢ r,
    Σ = Σᵢ r (x − μ)(x − μ)ᵀ / Σᵢ r + reg_covar·I

Plain NumPy, block by block, by differences taken before they are squared.

Rounding of L(θ), the mean of log p(x), for the numbers in θ as they are: with
a = x − μ, y = aU, t = Σᵢ|aᵢ|‖Uᵢ‖ and γ = γ_{d+4} the quadratic form ‖y‖² is off by at
most γ(2‖y‖t + ‖y‖² + γt²) (diagonals: γ‖y‖²), hence log π_k N(x) by some δ_k, and
log p(x) by at most Σ_k r_k(e^δ_k − 1).

The step is taken in float64, and θ⁺ is its result: rounding may move it a little away
from an exact step. L(θ⁺) is bounded there, for the numbers in θ⁺ as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from certus.typing import Array
from certus.verify.block_rows import BlockRows
from certus.verify.blocks import add_up, over_blocks
from certus.verify.deciding import Number, U, gamma

#: Numbers handled at a time, so that they stay in cache.
BLOCK = 1 << 15
#: If a mean moved by this many deviations, squares are summed again about the new one.
FAR = 1e3
#: Shares below this add nothing that float64 would keep.
NOTHING = 1e-30
#: A component on fewer rows stays unchanged.
DEAD = 1e-12


class Theta(NamedTuple):
    """π (K), μ (K, d) and U: (K, d, d), or (K, d) for diagonals."""

    weights: Array
    means: Array
    roots: Array


class RowShares(NamedTuple):
    """Of some rows: log p(x), shares, log π_k N(x), and how far those may be off.

    But for the first, a line for each component.
    """

    levels: Array
    shares: Array
    joint: Array
    errors: Array

    @property
    def off(self) -> Array:
        """How far log p(x) of each row may be off."""
        most = np.exp(self.joint - self.levels + self.errors)
        own = 8 * U * (len(self.joint) + 1 + np.abs(self.levels))
        return np.asarray(most.sum(axis=0) - self.shares.sum(axis=0) + own)

    def sums(self) -> tuple[float, float, float]:
        """Of log p(x), of their sizes, and of what they may be off."""
        return self.levels.sum(), np.abs(self.levels).sum(), self.off.sum()


def shapes(k: int, d: int) -> dict[str, tuple[int, ...]]:
    """Of scikit-learn's covariances, by their kind."""
    return {"full": (k, d, d), "tied": (d, d), "diag": (k, d), "spherical": (k,)}


def spread(values: Array, kind: str, k: int, d: int) -> Array:
    """scikit-learn's shapes as K matrices, or K rows of a diagonal."""
    values = np.asarray(values, dtype=np.float64).reshape(shapes(k, d)[kind])
    if kind == "tied":
        return np.broadcast_to(values, (k, d, d))
    return np.broadcast_to(values[:, None], (k, d)) if kind == "spherical" else values


def expect(block: Array, theta: Theta, hard: bool = False) -> RowShares:
    """The E-step on some rows; hard: each row belongs to its best component alone."""
    (K, d), full = theta.means.shape, theta.roots.ndim == 3
    squares, reach = np.zeros((2, K, len(block)))
    away, scaled = np.empty_like(block), np.empty_like(block)
    lengths = np.linalg.norm(theta.roots, axis=2) if full else theta.roots
    for k, (mean, root) in enumerate(zip(theta.means, theta.roots)):
        np.subtract(block, mean, out=away)
        (np.matmul if full else np.multiply)(away, root, out=scaled)
        np.einsum("ij,ij->i", scaled, scaled, out=squares[k])
        if full:
            np.matmul(np.abs(away, out=away), lengths[k], out=reach[k])
    logs = np.log(np.diagonal(theta.roots, axis1=1, axis2=2) if full else theta.roots)
    log, g = np.log(theta.weights), gamma(d + 4)
    constant = logs.sum(axis=1) - 0.5 * d * math.log(2 * math.pi) + log
    rough = 8 * (np.abs(logs).sum(axis=1) + d + np.abs(log))
    joint = constant[:, None] - 0.5 * squares
    errors = 0.5 * squares + rough[:, None] + reach * (np.sqrt(squares) + g * reach)
    errors = np.where(joint == -np.inf, 0.0, g * errors + 2 * U * np.abs(joint))
    top = joint.max(axis=0)
    if hard:
        best = joint.argmax(axis=0)
        shares = (best == np.arange(K)[:, None]).astype(float)
        error = errors[best, np.arange(len(best))]
        return RowShares(top, shares, top[None], error[None])
    shares = np.exp(joint - top)
    total = shares.sum(axis=0)
    return RowShares(top + np.log(total), shares / total, joint, errors)


def _over_rows(
    X: Array | BlockRows, work: Callable[..., tuple[Any, ...]], *state: Any
) -> tuple[Number, list[Any]]:
    """Add up ``work(rows, *state)`` over all rows, in float64.

    The mean of log p(x), from the first three sums, and the others.
    """
    n, rows = X.shape[0], max(64, BLOCK // max(1, X.shape[1]))
    if isinstance(X, BlockRows):
        found = X.sums(rows, work, *state)
        (levels, sizes, off, *more), depth = found.sums, found.depth
    else:
        A, depth = X, rows + n // rows + 2
        parts = over_blocks(
            lambda part: work(np.asarray(A[part], float), *state), n, rows
        )
        levels, sizes, off, *more = add_up(parts)
    return Number(levels / n, (off + gamma(depth) * sizes) / n), more


def _levels(block: Array, theta: Theta, hard: bool) -> tuple[Any, ...]:
    return expect(block, theta, hard).sums()


def _moments(block: Array, theta: Theta, hard: bool, about: Array) -> tuple[Any, ...]:
    """Levels, and the sums of the M-step about given points."""
    (k, d), matrix = theta.means.shape, theta.roots.ndim == 3
    rows = expect(block, theta, hard)
    first = np.zeros((k, d))
    second = np.zeros((k, d, d) if matrix else (k, d))
    for j in range(k):
        some = np.flatnonzero(rows.shares[j] > NOTHING)
        away, r = block[some] - about[j], rows.shares[j, some]
        first[j] = r @ away
        heavy = away * r[:, None]
        second[j] = heavy.T @ away if matrix else (heavy * away).sum(axis=0)
    return *rows.sums(), rows.shares.sum(axis=1), first, second


def level_of(X: Array | BlockRows, theta: Theta, hard: bool) -> Number:
    """The mean log-likelihood, or that of rows with their best component."""
    return _over_rows(X, _levels, theta, hard)[0]


def take_step(
    X: Array | BlockRows, theta: Theta, kind: str, reg: float, hard: bool
) -> tuple[Number, Theta | None]:
    """L, and where one EM step leads; sums are taken again if a mean moved by far."""
    about = theta.means
    for _ in range(2):
        level, sums = _over_rows(X, _moments, theta, hard, about)
        found, far = _maximum(sums, about, theta, kind, reg)
        if far < FAR:
            break
        about = about + sums[1] / np.where(sums[0] > DEAD, sums[0], np.inf)[:, None]
    return level, found


def _maximum(
    sums: list[Array], about: Array, theta: Theta, kind: str, reg: float
) -> tuple[Theta | None, float]:
    """The M-step, None if a covariance of it is singular, and how far means moved."""
    sizes, first, second = sums
    alive, matrix = sizes > DEAD, second.ndim == 3
    weights = np.where(alive, sizes, 0.0) / sizes[alive].sum()
    N = np.where(alive, sizes, np.inf)[:, None]
    shift = first / N
    means = np.where(alive[:, None], about + shift, theta.means)
    outer = np.einsum("ki,kj->kij" if matrix else "ki,ki->ki", shift, shift)
    spreads = second / (N[:, None] if matrix else N) - outer
    if kind == "tied":
        spreads[:] = np.tensordot(weights, spreads, 1)
    if kind == "spherical":
        spreads[:] = spreads.mean(axis=1, keepdims=True)
    roots, far = np.array(theta.roots), 0.0
    for j in np.flatnonzero(alive | (kind == "tied")):
        root = root_of(spreads[j] + reg * (np.eye(len(shift[j])) if matrix else 1.0))
        if root is None:
            return None, math.inf
        roots[j] = root
        far = max(
            far, float(np.linalg.norm(shift[j] @ root if matrix else shift[j] * root))
        )
    return Theta(weights, means, roots), far


def root_of(sigma: Array) -> Array | None:
    """U with UUᵀ = Σ⁻¹, of a matrix or a diagonal; None where it is singular."""
    if sigma.ndim == 1:
        return 1 / np.sqrt(sigma) if (sigma > 0).all() else None
    try:
        lower = np.linalg.cholesky(sigma)
    except np.linalg.LinAlgError:
        return None
    # The last pivots may be rounding.
    sound = (np.diag(lower) ** 2 > 8 * len(sigma) * U * np.diag(sigma)).all()
    return np.linalg.inv(lower).T if sound else None
