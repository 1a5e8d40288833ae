"""One EM step for a mixture of Gaussians, in the verifier's own words.

    r[i, k] = π_k N(xᵢ; μ_k, Σ_k) / p(xᵢ),   π = Σᵢ r / n,   μ = Σᵢ r·x / Σᵢ r,
    Σ = Σᵢ r (x − μ)(x − μ)ᵀ / Σᵢ r + reg_covar·I

Plain NumPy, block by block, by differences taken before they are squared.

Rounding of L(θ), the mean of log p(x), for the numbers in θ as they are: with
a = x − μ, y = aU, t = Σᵢ|aᵢ|‖Uᵢ‖ and γ = γ_{d+4} the quadratic form ‖y‖² is off by at
most γ(2‖y‖t + ‖y‖² + γt²) (diagonals: γ‖y‖²), hence log π_k N(x) by some δ_k, and
log p(x) by at most Σ_k r_k(e^δ_k − 1). Where a step leads is a choice, whose own
rounding does not matter: L is taken at the point that came out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from certus.verify.blocks import add_up, over_blocks
from certus.verify.data import Array
from certus.verify.deciding import Number, U, gamma

T = TypeVar("T")

EPS = float(np.finfo(np.float64).eps)
#: Numbers handled at a time, so that they stay in cache.
BLOCK = 1 << 15
#: Covariances whose digits were lost by a mean that moved are summed again.
LOSS = 1e-8
#: Shares below this add nothing that float64 would keep.
NOTHING = 1e-30
#: A component on fewer rows is left as it is.
DEAD = 1e-12


class Theta(NamedTuple):
    """π (K), μ (K, d) and U: (K, d, d), or (K, d) for diagonals."""

    weights: Array
    means: Array
    roots: Array


class Rows(NamedTuple):
    """Of some rows: log p(x), shares, log π_k N(x), and how far those may be off."""

    levels: Array
    shares: Array
    joint: Array
    errors: Array

    @property
    def off(self) -> Array:
        """How far log p(x) of each row may be off."""
        return np.asarray(
            np.exp(self.joint - self.levels[:, None] + self.errors).sum(axis=1)
            - np.exp(self.joint - self.levels[:, None]).sum(axis=1)
            + 8 * U * (self.joint.shape[1] + 1 + np.abs(self.levels))
        )


def spread(values: Any, kind: str, k: int, d: int) -> Array:
    """scikit-learn's shapes as K matrices, or K rows of a diagonal."""
    values = np.asarray(values, dtype=np.float64)
    shapes = {"full": (k, d, d), "tied": (d, d), "diag": (k, d), "spherical": (k,)}
    if values.shape != shapes[kind]:
        raise ValueError(
            f"the shape {values.shape} is not that of {kind} covariances, "
            f"{shapes[kind]}"
        )
    if kind == "tied":
        return np.broadcast_to(values, (k, d, d))
    return np.broadcast_to(values[:, None], (k, d)) if kind == "spherical" else values


def expect(block: Array, theta: Theta, hard: bool = False) -> Rows:
    """The E-step on some rows; hard: each with its best component alone."""
    d = theta.means.shape[1]
    joint = np.empty((len(block), len(theta.weights)))
    errors, g = np.empty_like(joint), gamma(d + 4)
    away, scaled = np.empty_like(block), np.empty_like(block)
    for k, (weight, mean, root) in enumerate(zip(*theta)):
        np.subtract(block, mean, out=away)
        full = root.ndim == 2
        (np.matmul if full else np.multiply)(away, root, out=scaled)
        square = np.einsum("ij,ij->i", scaled, scaled)
        logs = np.log(np.diag(root) if full else root)
        log = math.log(weight) if weight > 0 else -math.inf
        joint[:, k] = -0.5 * square + (logs.sum() - 0.5 * d * math.log(2 * math.pi))
        joint[:, k] += log
        rough = 8 * U * (np.abs(logs).sum() + d + (abs(log) if weight > 0 else 0.0))
        errors[:, k] = 0.5 * g * square + g * rough / U + 2 * U * np.abs(joint[:, k])
        if full:
            t = np.abs(away, out=away) @ np.linalg.norm(root, axis=1)
            errors[:, k] += g * t * (np.sqrt(square) + g * t)
    errors[joint == -np.inf] = 0.0
    top = joint.max(axis=1, keepdims=True)
    if hard:
        shares = np.zeros_like(joint)
        at = np.arange(len(joint)), joint.argmax(axis=1)
        shares[at] = 1.0
        return Rows(top[:, 0], shares, top, errors[at][:, None])
    shares = np.exp(joint - top)
    total = shares.sum(axis=1, keepdims=True)
    shares /= total
    return Rows((top + np.log(total))[:, 0], shares, joint, errors)


def _over_blocks(X: Array, work: Callable[[Array], T]) -> Iterator[T]:
    """``work`` on blocks of the rows, in float64."""
    rows = max(64, BLOCK // max(1, X.shape[1]))
    n = X.shape[0]
    return over_blocks(lambda part: work(np.asarray(X[part], dtype=float)), n, rows)


def _mean(found: Sequence[float], shape: tuple[int, ...]) -> Number:
    """A mean over rows, from sums of levels, their sizes and their errors by block."""
    levels, sizes, off = found
    n, rows = shape[0], max(64, BLOCK // max(1, shape[1]))
    return Number(levels / n, (off + gamma(rows + n // rows + 2) * sizes) / n)


def level_of(X: Array, theta: Theta, hard: bool) -> Number:
    """The mean log-likelihood, or that of rows with their best component."""

    def look(block: Array) -> tuple[float, float, float]:
        rows = expect(block, theta, hard)
        return rows.levels.sum(), np.abs(rows.levels).sum(), rows.off.sum()

    return _mean(add_up(_over_blocks(X, look)), X.shape)


def take_step(
    X: Array, theta: Theta, kind: str, reg: float, hard: bool
) -> tuple[Number, Theta | None]:
    """L, and where one EM step leads; sums are taken again if a mean moved by far."""
    level, sums = _sums(X, theta, hard, theta.means)
    found = _maximum(sums, theta.means, kind, reg, theta)
    sizes = np.where(sums[0] > DEAD, sums[0], np.inf)
    shift = sums[1] / sizes[:, None]
    far = np.inf
    if found is not None:
        how = "ki,kij->kj" if found.roots.ndim == 3 else "ki,ki->ki"
        far = np.square(np.einsum(how, shift, found.roots)).sum(axis=1).max()
    if not far * EPS * X.shape[1] < LOSS:
        about = theta.means + shift
        _, sums = _sums(X, theta, hard, about)
        found = _maximum(sums, about, kind, reg, theta)
    return level, found


def _sums(
    X: Array, theta: Theta, hard: bool, about: Array
) -> tuple[Number, tuple[Array, Array, Array]]:
    """L, and Σ r, Σ r(x − c), Σ r(x − c)(x − c)ᵀ (diagonals: squares)."""
    k, d = theta.means.shape
    matrix = theta.roots.ndim == 3

    def look(block: Array) -> tuple[Any, ...]:
        rows = expect(block, theta, hard)
        first = np.zeros((k, d))
        second = np.zeros((k, d, d) if matrix else (k, d))
        for j in range(k):
            some = np.flatnonzero(rows.shares[:, j] > NOTHING)
            away, r = block[some] - about[j], rows.shares[some, j]
            first[j] = r @ away
            heavy = away * r[:, None]
            second[j] = heavy.T @ away if matrix else (heavy * away).sum(axis=0)
        levels = rows.levels.sum(), np.abs(rows.levels).sum(), rows.off.sum()
        return *levels, rows.shares.sum(axis=0), first, second

    *levels, sizes, first, second = add_up(_over_blocks(X, look))
    return _mean(levels, X.shape), (sizes, first, second)


def _maximum(
    sums: tuple[Array, Array, Array],
    about: Array,
    kind: str,
    reg: float,
    theta: Theta,
) -> Theta | None:
    """The M-step, or None if a covariance of it is singular."""
    sizes, first, second = sums
    roots, means = np.array(theta.roots), theta.means.copy()
    spreads = np.zeros_like(second)
    alive = np.flatnonzero(sizes > DEAD)
    for j in alive:
        shift = first[j] / sizes[j]
        means[j] = about[j] + shift
        square = np.outer(shift, shift) if second.ndim == 3 else shift**2
        spreads[j] = second[j] / sizes[j] - square
    if kind == "tied":
        share = (sizes[alive] / sizes[alive].sum())[:, None, None]
        spreads[:] = (share * spreads[alive]).sum(axis=0)
    if kind == "spherical":
        spreads[:] = spreads.mean(axis=1)[:, None]
    for j in np.arange(len(sizes)) if kind == "tied" else alive:
        root = root_of(
            spreads[j] + reg * (np.eye(means.shape[1]) if second.ndim == 3 else 1)
        )
        if root is None:
            return None
        roots[j] = root
    weights = np.where(sizes > DEAD, sizes, 0.0)
    return Theta(weights / weights.sum(), means, roots)


def root_of(sigma: Array) -> Array | None:
    """U with UUᵀ = Σ⁻¹, of a matrix or a diagonal; None where it is singular."""
    if sigma.ndim == 1:
        return 1 / np.sqrt(sigma) if (sigma > 0).all() else None
    try:
        lower = np.linalg.cholesky(sigma)
    except np.linalg.LinAlgError:
        return None
    # The last pivots may be rounding.
    sound = (np.diag(lower) ** 2 > 4 * len(sigma) * EPS * np.diag(sigma)).all()
    return np.linalg.inv(lower).T if sound else None
