"""Random graphs with groups: the stochastic block model.

    P(edge between i and j) = p_{g(i), g(j)},  independently for each pair i < j

Pairs are drawn by their number among all pairs of two groups, so that a sparse graph of
a million edges takes a second.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from certus.base import generator_of
from certus.typing import Array, ArrayLike, RandomState

__all__ = ["stochastic_block_model"]


def stochastic_block_model(
    sizes: ArrayLike, probabilities: ArrayLike, *, random_state: RandomState = None
) -> tuple[Any, Array]:
    """Draw a graph whose edges depend on the groups of their ends.

    Parameters
    ----------
    sizes : array-like of shape (n_groups,)
        Nodes of each group.
    probabilities : array-like of shape (n_groups, n_groups)
        Probability of an edge between nodes of two groups; symmetric.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide the edges.

    Returns
    -------
    adjacency : csr_array of shape (n_nodes, n_nodes)
        Zeros and ones, symmetric, without loops.
    groups : ndarray of shape (n_nodes,)
        Number of the group of each node.

    Examples
    --------
    >>> from certus.graph import stochastic_block_model
    >>> A, groups = stochastic_block_model([3, 3], [[1, 0], [0, 1]])
    >>> int(A.sum()), groups
    (12, array([0, 0, 0, 1, 1, 1]))
    """
    counts = np.asarray(sizes)
    if counts.ndim != 1 or not len(counts) or counts.dtype.kind not in "iu":
        raise ValueError(f"sizes must be a list of whole numbers, got {sizes!r}.")
    if counts.min() < 1:
        raise ValueError(f"sizes must be at least 1, got {int(counts.min())}.")
    P = np.asarray(probabilities, dtype=np.float64)
    k = len(counts)
    if P.shape != (k, k) or not ((P >= 0) & (P <= 1)).all() or (P != P.T).any():
        raise ValueError(
            f"probabilities must be a symmetric matrix of shape {(k, k)} with entries "
            "between 0 and 1."
        )
    rng = generator_of(random_state)
    first = np.r_[0, np.cumsum(counts)]
    ends = [
        _between(rng, int(counts[a]), int(counts[b]), P[a, b], a == b)
        + np.array([first[a], first[b]])
        for a in range(k)
        for b in range(a, k)
    ]
    i, j = np.vstack(ends).T
    n, ones = int(first[-1]), np.ones(2 * len(i))
    A = sparse.coo_array((ones, (np.r_[i, j], np.r_[j, i])), shape=(n, n))
    return sparse.csr_array(A), np.repeat(np.arange(k), counts)


def _between(rng: np.random.Generator, n: int, m: int, p: float, same: bool) -> Array:
    """Edges between n and m nodes, or among n nodes, each with probability p."""
    pairs = n * (n - 1) // 2 if same else n * m
    count = int(rng.binomial(pairs, p)) if pairs else 0
    drawn = rng.choice(pairs, count, replace=False) if count else np.zeros(0, int)
    if not same:
        return np.column_stack([drawn // m, drawn % m])
    # Pair t of i < j in the order (0, 1), (0, 2), (1, 2), (0, 3), …
    j = ((1 + np.sqrt(1 + 8 * drawn.astype(np.float64))) / 2).astype(np.int64)
    j -= j * (j - 1) // 2 > drawn  # a root that was rounded up
    j += j * (j + 1) // 2 <= drawn  # or down
    return np.column_stack([drawn - j * (j - 1) // 2, j])
