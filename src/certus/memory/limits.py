"""How much memories can hold, in closed form.

Hebb's rule stores about 0.138 random patterns for each unit; after one step a share
Φ(−1/√(s/n)) of the bits is wrong. The best weights store 2: a random dichotomy of s
points in n dimensions is separable with probability 2^{1−s} Σ_{k<n} C(s−1, k), which is
½ at s = 2n. A Willshaw memory holds n² ln 2 bits, at r = log₂ n ones in a pattern and
s = n² ln 2/r² patterns: half of the synapses are on, and a false one has probability
2^{−r}.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln, logsumexp

from certus.base import check_number

#: Random patterns for each unit that Hebb's rule stores: s/n at which recall collapses.
HEBB_LIMIT = 0.138
#: The same for the best possible weights.
OPTIMAL_LIMIT = 2.0


def pattern_information(n_units: int, n_ones: int) -> float:
    """Bits of information in a pattern of n units with r ones: log₂ C(n, r).

    For r much smaller than n it is about r·log₂ n.

    Parameters
    ----------
    n_units : int
        How many units there are.
    n_ones : int
        How many of them are on.

    Examples
    --------
    >>> from certus.memory import pattern_information
    >>> round(pattern_information(1024, 10), 1)
    78.1
    """
    check_number("n_units", n_units, 1, integer=True)
    check_number("n_ones", n_ones, 0, n_units, integer=True)
    return math.log2(math.comb(n_units, n_ones))


def cover_probability(n_points: int, n_units: int) -> float:
    """Share of dichotomies of points in general position that a hyperplane realises.

    Cover's count through the origin: 2^{1−s} Σ_{k<n} C(s−1, k).

    Parameters
    ----------
    n_points : int
        Number s of points.
    n_units : int
        Number n of dimensions.

    Examples
    --------
    >>> from certus.memory import cover_probability
    >>> cover_probability(4, 2), cover_probability(80, 40)
    (0.5, 0.5)
    """
    check_number("n_points", n_points, 1, integer=True)
    check_number("n_units", n_units, 1, integer=True)
    s, n = int(n_points), int(n_units)
    if n >= s:
        return 1.0
    if s <= 1000:
        return sum(math.comb(s - 1, k) for k in range(n)) / 2 ** (s - 1)
    k = np.arange(n)
    logs = gammaln(s) - gammaln(k + 1) - gammaln(s - k)
    return float(np.exp(logsumexp(logs) - (s - 1) * math.log(2)))


def willshaw_limits(
    n_units: int, n_ones: int | None = None, n_patterns: int | None = None
) -> dict[str, float]:
    """What a Willshaw memory of n × n synapses holds, for random patterns.

    Parameters
    ----------
    n_units : int
        Number n of units.
    n_ones : int, optional
        Ones r of each pattern; by default log₂ n, rounded.
    n_patterns : int, optional
        Number s of patterns; by default n² ln 2/r², for which half is full.

    Returns
    -------
    dict
        ``n_ones``; ``n_patterns``; ``fill``, the expected share 1 − exp(−s r²/n²) of
        synapses that are on; ``false_rate``, fill^r, the probability of a false one;
        ``pattern_bound``, n²/(r log₂ n), above which patterns carry more bits than
        there are synapses; ``bits``, n² ln 2, which no number of patterns exceeds.

    Examples
    --------
    >>> from certus.memory import willshaw_limits
    >>> found = willshaw_limits(1024)
    >>> found["n_ones"], round(found["fill"], 3), found["false_rate"] < 0.001
    (10.0, 0.5, True)
    """
    check_number("n_units", n_units, 2, integer=True)
    check_number("n_ones", n_ones, 1, n_units, integer=True, none=True)
    check_number("n_patterns", n_patterns, 0, integer=True, none=True)
    n = int(n_units)
    r = round(math.log2(n)) if n_ones is None else int(n_ones)
    s = n * n * math.log(2) / r**2 if n_patterns is None else float(n_patterns)
    fill = -math.expm1(-s * r * r / n**2)
    return {
        "n_ones": float(r),
        "n_patterns": float(s),
        "fill": fill,
        "false_rate": fill**r,
        "pattern_bound": n * n / (r * math.log2(n)),
        "bits": n * n * math.log(2),
    }
