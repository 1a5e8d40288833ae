"""Split conformal prediction: which calibration score bounds the score of a new row.

If n calibration scores and a new one are exchangeable, the rank of the new one is
uniform (ties only help), so it lies at or below the k-th smallest with probability at
least k/(n + 1). Given the calibration rows, that probability is itself random and at
least a Beta(k, n + 1 − k) variable. Source: Vovk, Gammerman and Shafer, Algorithmic
Learning in a Random World; Vovk (2012) for the statement given the calibration rows.
"""

from __future__ import annotations

import bisect
import math
import numbers
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import special

from certus.bounds.intervals import check_count, check_delta


def conformal_rank(n: int, coverage: float, delta: float | None = None) -> int:
    """Which of n ordered calibration scores to take: k of 1 … n + 1.

    k = ⌈(n + 1)·coverage⌉: a new score is at most the k-th smallest with probability at
    least ``coverage``. With ``delta``, the smallest k for which that holds given the
    calibration rows, except with probability ``delta`` over the calibration rows:
    P(Binomial(n, coverage) ≥ k) ≤ delta. n + 1 stands for an infinite score: n scores
    are too few.

    Parameters
    ----------
    n : int
        Number of calibration scores, at least 1.
    coverage : float
        Between 0 and 1, read as the decimal number that is written.
    delta : float, optional
        Failure probability: the chance that the statement does not hold. It is the
        chance that the calibration rows mislead; between 0 and 1.

    Examples
    --------
    >>> from certus.bounds import conformal_rank
    >>> conformal_rank(99, 0.9), conformal_rank(99, 0.9, delta=0.05)
    (90, 95)
    >>> conformal_rank(8, 0.9)  # beyond the last: nine scores are needed
    9
    """
    n, coverage = check_count("n", n), _check_coverage(coverage)
    if delta is None:
        # In floats 0.07·100 is above 7, and 0.9 itself above nine tenths.
        return math.ceil((n + 1) * Fraction(str(coverage)))
    delta = check_delta(delta)

    def lucky(k: int) -> bool:  # P(Binomial(n, coverage) ≥ k) as a Beta integral
        return bool(special.betainc(k, n + 1 - k, coverage) <= delta)

    return bisect.bisect_left(range(1, n + 1), True, key=lucky) + 1


def conformal_quantile(
    scores: Any, coverage: float, delta: float | None = None
) -> float:
    """The score that a new row stays at or below with the stated probability.

    Parameters
    ----------
    scores : array-like of shape (n,)
        Scores of calibration rows, large for rows that fit badly; inf is allowed.
    coverage, delta : float
        As in :func:`conformal_rank`.

    Returns
    -------
    float
        inf where the scores are too few for the coverage.

    Examples
    --------
    >>> from certus.bounds import conformal_quantile
    >>> conformal_quantile([3.0, 1.0, 2.0, 5.0], 0.8), conformal_quantile([3.0], 0.8)
    (5.0, inf)
    """
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 1 or scores.size == 0:
        raise ValueError(
            f"scores has shape {scores.shape}; pass one score for each row."
        )
    if np.isnan(scores).any():
        raise ValueError("scores holds NaN. Use inf for a row with no valid score.")
    k = conformal_rank(len(scores), coverage, delta)
    return float(np.partition(scores, k - 1)[k - 1]) if k <= len(scores) else math.inf


def coverage_floor(n: int, coverage: float, delta: float) -> float:
    """Lower bound of the coverage given n calibration rows, with probability 1 − delta.

    The delta-quantile of Beta(k, n + 1 − k) with k = :func:`conformal_rank`; 1 where
    the score is infinite.

    Parameters
    ----------
    n : int
        Number of calibration scores.
    coverage : float
        Asked for on average over calibrations.
    delta : float
        Failure probability: the chance that the statement does not hold. It is the
        chance that the calibration rows mislead.

    Examples
    --------
    >>> from certus.bounds import coverage_floor
    >>> [round(coverage_floor(n, 0.9, 0.05), 3) for n in (99, 999, 9999)]
    [0.847, 0.884, 0.895]
    """
    k, delta = conformal_rank(n, coverage), check_delta(delta)
    return float(special.betaincinv(k, n + 1 - k, delta)) if k <= n else 1.0


def _check_coverage(coverage: Any) -> float:
    number = isinstance(coverage, numbers.Real) and not isinstance(coverage, bool)
    if not number or not 0 < float(coverage) < 1:
        raise ValueError(
            f"coverage must be a number between 0 and 1, got {coverage!r}."
        )
    return float(coverage)
