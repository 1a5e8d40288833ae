"""Bounds on the probability of large values, from a mean or from ranges.

    Markov     P(X ≥ a) ≤ E X / a                          X never negative
    Hoeffding  P(mean − E ≥ t) ≤ exp(−2n²t² / Σ(bᵢ − aᵢ)²)  independent Xᵢ in [aᵢ, bᵢ]

Markov's inequality needs the mean only. Hoeffding's is about the mean of n quantities
whose ranges may differ, such as losses with weights; if all ranges are equal, it is one
side of :func:`certus.bounds.hoeffding_delta`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def markov_bound(mean: float, threshold: float, low: float = 0.0) -> float:
    """Upper bound on the probability that a quantity reaches a threshold (Markov).

    P(X ≥ a) ≤ (E X − low) / (a − low) for any X that is never below ``low``. The bound
    is attained by an X that takes the values ``low`` and a only.

    Parameters
    ----------
    mean : float
        E X, at least ``low``.
    threshold : float
        a, above ``low``.
    low : float, default=0.0
        A lower bound of X. If X can be smaller, the inequality may be false.

    Returns
    -------
    float
        The bound, at most 1.

    Examples
    --------
    At a mean loss of 0.2, at most 4 % of the rows have a loss of 5 or more.

    >>> from certus.bounds import markov_bound
    >>> markov_bound(0.2, 5.0)
    0.04
    """
    mean, threshold, low = float(mean), float(threshold), float(low)
    if not (math.isfinite(mean) and math.isfinite(low) and mean >= low):
        raise ValueError(
            f"mean is {mean!r}; it must be a finite number of at least low = {low!r}."
        )
    if not threshold > low:
        raise ValueError(
            f"threshold is {threshold!r}; it must be above low = {low!r}, because X "
            "is always at least low."
        )
    return min(1.0, (mean - low) / (threshold - low))


def hoeffding_tail(distance: float, widths: Any) -> float:
    """Upper bound on the probability that a mean exceeds its expectation (Hoeffding).

    P(mean − E ≥ t) ≤ exp(−2n²t² / Σᵢ wᵢ²), where wᵢ is the width of the range of the
    i-th quantity. The same bound holds for E − mean, and twice the bound for the
    absolute difference.

    Parameters
    ----------
    distance : float
        t, not negative.
    widths : array-like of shape (n,)
        Width bᵢ − aᵢ of the range of each of the n independent quantities.

    Returns
    -------
    float
        The bound, at most 1.

    Examples
    --------
    >>> from certus.bounds import hoeffding_delta, hoeffding_tail
    >>> 2 * hoeffding_tail(0.1, [1.0] * 300) == hoeffding_delta(300, 0.1)
    True
    """
    widths = np.asarray(widths, dtype=np.float64)
    if widths.ndim != 1 or not len(widths):
        raise ValueError(
            f"widths has shape {widths.shape}; pass one number for each quantity."
        )
    if not (np.isfinite(widths).all() and (widths > 0).all()):
        raise ValueError("widths must be positive and finite.")
    if not distance >= 0:
        raise ValueError(f"distance is {distance!r}; it must not be negative.")
    share = distance / math.sqrt(float(np.mean(np.square(widths))))
    return math.exp(-2 * len(widths) * share * share)
