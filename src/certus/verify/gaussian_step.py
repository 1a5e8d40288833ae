"""One EM step for a mixture of Gaussians, in the verifier's own words.

    r[i, k] = π_k N(xᵢ; μ_k, Σ_k) / p(xᵢ),   π = Σᵢ r / n,   μ = Σᵢ r·x / Σᵢ r,
    Σ = Σᵢ r (x − μ)(x − μ)ᵀ / Σᵢ r + reg_covar·I

Plain NumPy, block by block, by differences taken before they are squared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np

from certus.verify.blocks import add_up, over_blocks
from certus.verify.data import Array

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


class Step(NamedTuple):
    """One EM step: L before it, and where it leads (None: a singular covariance)."""

    level: float
    theta: Theta | None


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
    if kind == "spherical":
        return np.broadcast_to(values[:, None], (k, d))
    return values


def log_joint(block: Array, theta: Theta) -> Array:
    """Log π_k N(x; μ_k, Σ_k) of each row and component."""
    d = theta.means.shape[1]
    joint = np.empty((len(block), len(theta.weights)))
    away, scaled = np.empty_like(block), np.empty_like(block)
    for k, (weight, mean, root) in enumerate(zip(*theta)):
        np.subtract(block, mean, out=away)
        if root.ndim == 2:
            np.matmul(away, root, out=scaled)
        else:
            np.multiply(away, root, out=scaled)
        diagonal = np.diag(root) if root.ndim == 2 else root
        joint[:, k] = -0.5 * np.einsum("ij,ij->i", scaled, scaled)
        joint[:, k] += np.log(diagonal).sum() - 0.5 * d * math.log(2 * math.pi)
        joint[:, k] += np.log(weight) if weight > 0 else -np.inf
    return joint


def _over_blocks(X: Array, work: Callable[[Array], T]) -> Iterator[T]:
    """``work`` on blocks of the rows, in float64."""
    rows = max(64, BLOCK // max(1, X.shape[1]))
    n = X.shape[0]
    return over_blocks(lambda part: work(np.asarray(X[part], dtype=float)), n, rows)


def posterior(joint: Array, hard: bool) -> tuple[Array, Array]:
    """Log p(x) of each row (hard: with its best component), and the shares r."""
    top = joint.max(axis=1, keepdims=True)
    if hard:
        shares = np.zeros_like(joint)
        shares[np.arange(len(joint)), joint.argmax(axis=1)] = 1.0
        return top[:, 0], shares
    shares = np.exp(joint - top)
    total = shares.sum(axis=1, keepdims=True)
    shares /= total
    return (top + np.log(total))[:, 0], shares


def level_of(X: Array, theta: Theta, hard: bool) -> float:
    """The mean log-likelihood, or that of rows with their best component."""

    def look(block: Array) -> float:
        return float(posterior(log_joint(block, theta), hard)[0].sum())

    return sum(_over_blocks(X, look)) / X.shape[0]


def _sums(
    X: Array, theta: Theta, hard: bool, about: Array
) -> tuple[float, Array, Array, Array]:
    """L, Σ r, Σ r(x − c), Σ r(x − c)(x − c)ᵀ (diagonals: squares)."""
    k, d = theta.means.shape
    matrix = theta.roots.ndim == 3

    def look(block: Array) -> tuple[float, Array, Array, Array]:
        rows, shares = posterior(log_joint(block, theta), hard)
        first = np.zeros((k, d))
        second = np.zeros((k, d, d) if matrix else (k, d))
        for j in range(k):
            some = np.flatnonzero(shares[:, j] > NOTHING)
            away, r = block[some] - about[j], shares[some, j]
            first[j] = r @ away
            heavy = away * r[:, None]
            second[j] = heavy.T @ away if matrix else (heavy * away).sum(axis=0)
        return float(rows.sum()), shares.sum(axis=0), first, second

    total, sizes, first, second = add_up(_over_blocks(X, look))
    return total / X.shape[0], sizes, first, second


def _maximum(
    sums: tuple[float, Array, Array, Array],
    about: Array,
    kind: str,
    reg: float,
    theta: Theta,
) -> Theta | None:
    """The M-step, or None if a covariance of it is singular."""
    _, sizes, first, second = sums
    roots = np.array(theta.roots)
    means = theta.means.copy()
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
    d = means.shape[1]
    for j in np.arange(len(sizes)) if kind == "tied" else alive:
        if second.ndim == 3:
            sigma = spreads[j] + reg * np.eye(d)
            try:
                lower = np.linalg.cholesky(sigma)
            except np.linalg.LinAlgError:
                return None
            if not (np.diag(lower) ** 2 > 4 * d * EPS * np.diag(sigma)).all():
                return None  # the last pivots are rounding
            roots[j] = np.linalg.inv(lower).T
        else:
            if not (spreads[j] + reg > 0).all():
                return None
            roots[j] = 1 / np.sqrt(spreads[j] + reg)
    weights = np.where(sizes > DEAD, sizes, 0.0)
    return Theta(weights / weights.sum(), means, roots)


def take_step(X: Array, theta: Theta, kind: str, reg: float, hard: bool) -> Step:
    """One EM step; sums are taken again if a mean moved by far."""
    sums = _sums(X, theta, hard, theta.means)
    found = _maximum(sums, theta.means, kind, reg, theta)
    sizes = np.where(sums[1] > DEAD, sums[1], np.inf)
    shift = sums[2] / sizes[:, None]
    if found is not None:
        scaled = (
            np.einsum("ki,kij->kj", shift, found.roots)
            if found.roots.ndim == 3
            else shift * found.roots
        )
        far = float(np.square(scaled).sum(axis=1).max()) * EPS * X.shape[1]
    if found is None or not far < LOSS:
        about = theta.means + shift
        again = _sums(X, theta, hard, about)
        found = _maximum(again, about, kind, reg, theta)
    return Step(sums[0], found)


def start_of(arrays: Any, kind: str) -> Theta:
    """The parameters a fit began with, as its evidence has them."""
    means = np.asarray(arrays["means_"], dtype=np.float64)
    sigma = spread(arrays["covariances_"], kind, *means.shape)
    if sigma.ndim == 2:
        roots = 1 / np.sqrt(sigma)
    else:
        roots = np.stack([np.linalg.inv(np.linalg.cholesky(s)).T for s in sigma])
    return Theta(np.asarray(arrays["weights_"], dtype=np.float64), means, roots)
