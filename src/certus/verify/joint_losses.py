"""Losses of joint embeddings in plain NumPy, with the value of vectors that are equal.

a and b are the vectors of both views, or of both sides of a pair; c are cosines, and
log-sums leave out the vector itself. A loss without this value beside it says nothing:
5.0 is log(2·75 − 1), what 75 pairs of equal vectors have.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from certus.typing import Array

#: Weights of the methods, and what is added to variances.
OFF_DIAGONAL, ALIKE, VARIED, EPS = 0.005, 25.0, 25.0, 1e-4


class JointLoss(NamedTuple):
    """A loss of two matrices and τ, its value for equal vectors, and its words."""

    value: Callable[[Array, Array, float], float]
    trivial: Callable[[int], float]
    told: str
    formula: str


def _unit(Z: Array) -> Array:
    size = np.linalg.norm(Z, axis=1, keepdims=True)
    return np.asarray(Z / np.where(size > 0, size, 1.0))


def contrastive(A: Array, B: Array, temperature: float) -> float:
    """Each of 2n vectors finds its partner among the others."""
    U = np.concatenate([_unit(A), _unit(B)])
    n = len(A)
    s = U @ U.T / temperature
    np.fill_diagonal(s, -np.inf)
    own = np.concatenate([np.diagonal(s, n), np.diagonal(s, -n)])
    return float((logsumexp(s, axis=1) - own).mean())


def matched_pairs(A: Array, B: Array, temperature: float) -> float:
    """Each vector of A finds its partner among those of B."""
    s = _unit(A) @ _unit(B).T / temperature
    return float((logsumexp(s, axis=1) - np.diagonal(s)).mean())


def both_ways(A: Array, B: Array, temperature: float) -> float:
    """The mean of both directions."""
    there, back = matched_pairs(A, B, temperature), matched_pairs(B, A, temperature)
    return 0.5 * (there + back)


def aligned(A: Array, B: Array, temperature: float) -> float:
    """2 − 2 cos of both views."""
    return float(2 - 2 * (_unit(A) * _unit(B)).sum(axis=1).mean())


def correlated(A: Array, B: Array, temperature: float) -> float:
    """How far the correlations of both views are from the unit matrix."""
    X, Y = ((Z - Z.mean(axis=0)) / np.sqrt(Z.var(axis=0) + EPS) for Z in (A, B))
    C, d = X.T @ Y / len(A), A.shape[1]
    own = np.square(1 - np.diagonal(C)).sum()
    others = np.square(C).sum() - np.square(np.diagonal(C)).sum()
    return float((own + OFF_DIAGONAL * others) / d)


def varied(A: Array, B: Array, temperature: float) -> float:
    """Alike in pairs, varied over rows, components uncorrelated."""
    total, d = ALIKE * float(np.square(A - B).mean()), A.shape[1]
    for Z in (A, B):
        S = np.atleast_2d(np.cov(Z, rowvar=False))
        deviations = np.sqrt(np.diagonal(S) + EPS)
        total += VARIED * float(np.maximum(0.0, 1 - deviations).mean()) / 2
        total += float(np.square(S).sum() - np.square(np.diagonal(S)).sum()) / d
    return total


_LOGS = "{loss:.3f} nats; if all vectors were equal, it would be {trivial:.3f}"
LOSSES = {
    "simclr": JointLoss(
        contrastive,
        lambda n: math.log(2 * n - 1),
        _LOGS + " = log {m}",
        "−mean log softmax of cos(zᵢ, zⱼ)/τ at the partner, over all other views",
    ),
    "clip": JointLoss(
        both_ways,
        lambda n: math.log(n),
        _LOGS + " = log {size}",
        "−mean log softmax of cos(aᵢ, bⱼ)/τ at i = j, both ways",
    ),
    "byol": JointLoss(
        aligned,
        lambda n: 2.0,
        "{loss:.3f}; unrelated vectors have {trivial:.0f}, but equal vectors have 0, "
        "so a low loss alone does not show that the fit is good",
        "mean of 2 − 2 cos of both views",
    ),
    "barlow": JointLoss(
        correlated,
        lambda n: 1.0,
        "{loss:.3f}; if all vectors were equal, it would be {trivial:.0f}",
        "[Σ (1 − Cₖₖ)² + 0.005 Σ_{k ≠ l} Cₖₗ²]/d, C the correlations of both views",
    ),
    "vicreg": JointLoss(
        varied,
        lambda n: VARIED * (1 - math.sqrt(EPS)),
        "{loss:.3f}; if all vectors were equal, it would be {trivial:.2f}",
        "25 mean (a − b)² + 25 mean max(0, 1 − deviation) + Σ_{k ≠ l} Sₖₗ²/d",
    ),
}
