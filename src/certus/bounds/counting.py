"""How many ways of labelling points a hyperplane can realise."""

from __future__ import annotations

import operator
from math import comb


def cover_count(s: int, n: int) -> int:
    """Cover's number of dichotomies of s points in general position in n dimensions.

    C(s, n) = 2·Σ_{i<n} binom(s − 1, i): the labellings ±1 of the points that some
    hyperplane through the origin realises. All 2ˢ of them while s ≤ n, exactly half of
    them at s = 2n. For hyperplanes with an offset use n + 1.

    Parameters
    ----------
    s : int
        Number of points, at least 1.
    n : int
        Dimension, at least 0.

    Examples
    --------
    >>> from certus.bounds import cover_count
    >>> [cover_count(s, 3) for s in range(1, 7)]
    [2, 4, 8, 14, 22, 32]
    """
    s, n = operator.index(s), operator.index(n)
    if s < 1 or n < 0:
        raise ValueError(f"s must be at least 1 and n at least 0, got {s} and {n}.")
    return 2 * sum(comb(s - 1, i) for i in range(n))
