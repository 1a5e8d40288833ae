"""How useful vectors are: the contrastive loss, the effective rank, and retrieval.

    nt_xent         −mean log [exp(cᵢⱼ/τ) / Σ_{k ≠ i} exp(cᵢₖ/τ)]   j the partner of i
    effective_rank  exp(−Σ pₖ log pₖ),  pₖ = σₖ / Σσ of the centred vectors
    retrieval       how often the partner of a row is among its k nearest

c are cosines of the 2B vectors of B pairs. Everything is computed with NumPy in
float64, for vectors of any model.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from certus.base import check_number
from certus.bounds import clopper_pearson
from certus.typing import Array, ArrayLike, MatrixLike

__all__ = ["Retrieval", "effective_rank", "nt_xent", "retrieval", "unit_rows"]

#: Rows whose similarities are computed together.
TOGETHER = 1024


def nt_xent(A: MatrixLike, B: MatrixLike, *, temperature: float = 0.5) -> float:
    """The loss of SimCLR: how well each vector finds its partner among all others.

    Vectors that are all equal, and so carry no information, have the loss log(2n − 1)
    for n pairs. Compare a loss with this number to see whether it is good.

    Parameters
    ----------
    A, B : array-like of shape (n_pairs, n_components)
        Vectors of two views; row i of both belongs together.
    temperature : float, default=0.5
        Divisor of the cosines: the smaller it is, the more small differences count.
        This is τ.

    Returns
    -------
    float
        The mean over all 2n vectors, in nats. It does not change if A and B are
        swapped, or if vectors are scaled.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.representation import nt_xent
    >>> constant = np.ones((64, 8))
    >>> bool(np.isclose(nt_xent(constant, constant), np.log(2 * 64 - 1)))
    True
    >>> A = np.eye(64)
    >>> bool(nt_xent(A, A) < np.log(2 * 64 - 1))
    True
    """
    check_number("temperature", temperature, open_low=True)
    first, second = _pair(A, B)
    U, n = np.vstack([unit_rows(first), unit_rows(second)]), len(first)
    partner = np.concatenate([np.arange(n, 2 * n), np.arange(n)])
    total = 0.0
    for i in range(0, 2 * n, TOGETHER):
        rows = np.arange(i, min(i + TOGETHER, 2 * n))
        s = U[rows] @ U.T / float(temperature)
        own = s[np.arange(len(rows)), partner[rows]].copy()
        s[np.arange(len(rows)), rows] = -np.inf
        total += float((logsumexp(s, axis=1) - own).sum())
    return total / (2 * n)


def effective_rank(Z: MatrixLike) -> float:
    """How many directions vectors use: the exponential of an entropy.

    It is 1 if all vectors lie on one line, and at most the smaller of the number of
    columns and the number of rows minus one. It is 0 if all vectors are equal.

    Parameters
    ----------
    Z : array-like of shape (n_samples, n_components)
        Vectors. Their mean is subtracted.

    Returns
    -------
    float
        exp(−Σ pₖ log pₖ) with the singular values σ and p = σ/Σσ.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.representation import effective_rank
    >>> round(effective_rank(np.vstack([np.eye(3), -np.eye(3)])), 6)
    3.0
    >>> effective_rank(np.ones((5, 3)))
    0.0
    """
    Z = _matrix(Z, "Z")
    top = float(np.abs(Z).max())
    if top == 0:
        return 0.0
    centred = Z / top
    centred = centred - centred.mean(axis=0)
    s = np.linalg.svd(centred, compute_uv=False)
    if s[0] <= 1e-13 * np.sqrt(Z.size):  # rounding of the mean
        return 0.0
    p = s / s.sum()
    p = p[p > 0]
    return float(np.exp(-(p * np.log(p)).sum()))


class Retrieval(NamedTuple):
    """How often partners are found among the nearest vectors."""

    #: Share of rows whose partner is among the k nearest.
    recall: float
    #: The share by chance: k divided by the number of candidates.
    chance: float
    #: Interval for new rows like these; None where rows are each other's candidates.
    interval: tuple[float, float] | None
    #: The place of each row's partner, from 1; equal similarities count against it.
    ranks: Array


def retrieval(
    A: MatrixLike,
    B: MatrixLike,
    *,
    matches: Any = None,
    k: int = 1,
    delta: float = 0.05,
) -> Retrieval:
    """How often the partner of a row of A is among the k rows of B nearest to it.

    Parameters
    ----------
    A : array-like of shape (n_queries, n_components)
        Query vectors.
    B : array-like of shape (n_candidates, n_components)
        Vectors among which the partner is searched for, by cosines.
    matches : array-like of shape (n_queries,), optional
        Which row of B belongs to each row of A. By default row i belongs to row i.
    k : int, default=1
        Number of nearest rows among which the partner counts as found.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.

    Returns
    -------
    Retrieval
        ``recall``, ``chance``, ``interval`` and ``ranks``. The interval is that of
        Clopper and Pearson, for new rows of A and the same B. It needs ``matches``:
        rows are not independent if they are each other's candidates.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.representation import retrieval
    >>> B = np.eye(4)
    >>> found = retrieval(B[[0, 1, 1, 3]], B, matches=[0, 1, 2, 3])
    >>> found.recall, found.chance, found.ranks.tolist()
    (0.75, 0.25, [1, 1, 4, 1])
    """
    check_number("k", k, 1, integer=True)
    check_number("delta", delta, 0, 1, open_low=True)
    first, second = _matrix(A, "A"), _matrix(B, "B")
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"A and B must have the same number of columns, got {first.shape[1]} and "
            f"{second.shape[1]}."
        )
    at = _matches(matches, len(first), len(second))
    U, V = unit_rows(first), unit_rows(second)
    ranks = np.empty(len(U), np.int64)
    for i in range(0, len(U), TOGETHER):
        s = U[i : i + TOGETHER] @ V.T
        own = s[np.arange(len(s)), at[i : i + TOGETHER]]
        # Cosines that differ by rounding only are equal.
        ranks[i : i + TOGETHER] = (s >= own[:, None] - 1e-12).sum(axis=1)
    right, interval = int((ranks <= k).sum()), None
    if matches is not None:
        found = clopper_pearson(right, len(ranks), delta=delta)
        interval = (float(found.low), float(found.high))
    return Retrieval(right / len(ranks), min(1.0, k / len(V)), interval, ranks)


def unit_rows(Z: Array) -> Array:
    """Rows divided by their lengths; rows of zeros stay zeros."""
    top = np.abs(Z).max(axis=1, keepdims=True)
    Z = Z / np.where(top > 0, top, 1.0)  # squares stay in range
    size = np.linalg.norm(Z, axis=1, keepdims=True)
    return np.asarray(Z / np.where(size > 0, size, 1.0))


def _matches(matches: ArrayLike, n: int, candidates: int) -> Array:
    if matches is None:
        if n != candidates:
            raise ValueError(
                f"A and B must have the same number of rows, got {n} and {candidates}. "
                "Pass matches, the row of B for each row of A."
            )
        return np.arange(n)
    at = np.asarray(matches)
    if at.shape != (n,) or at.dtype.kind not in "iu":
        raise ValueError(
            f"matches must hold {n} whole numbers, one for each row of A, got shape "
            f"{at.shape} of {at.dtype}."
        )
    if at.min() < 0 or at.max() >= candidates:
        raise ValueError(f"matches must be rows of B, from 0 to {candidates - 1}.")
    return at


def _matrix(Z: MatrixLike, name: str) -> Array:
    found = np.asarray(Z, dtype=np.float64)
    if found.ndim != 2 or not found.size:
        raise ValueError(
            f"{name} must be a matrix with at least 1 row and 1 column, got shape "
            f"{found.shape}."
        )
    if not np.isfinite(found).all():
        raise ValueError(f"{name} must hold finite numbers, got NaN or infinity.")
    return found


def _pair(A: MatrixLike, B: MatrixLike) -> tuple[Array, Array]:
    first, second = _matrix(A, "A"), _matrix(B, "B")
    if first.shape != second.shape:
        raise ValueError(
            f"A and B must have the same shape, got {first.shape} and {second.shape}."
        )
    if len(first) < 2:
        raise ValueError(
            "A and B must have at least 2 rows, because each vector is compared with "
            "those of other pairs; got 1 pair."
        )
    return first, second
