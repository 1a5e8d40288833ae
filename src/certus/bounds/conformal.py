"""Conformal prediction: which score of known rows bounds the score of a new row.

If n calibration scores and a new one are exchangeable, the rank of the new one is
uniform (ties only help), so it lies at or below the k-th smallest with probability at
least k/(n + 1). Given the calibration rows, that probability is itself random and at
least a Beta(k, n + 1 − k) variable. Source: Vovk, Gammerman and Shafer, Algorithmic
Learning in a Random World; Vovk (2012) for the statement given the calibration rows.

CV+ uses all rows instead: each has the score that a model fitted without its fold gives
it. Source: Barber, Candès, Ramdas and Tibshirani, Predictive inference with the
jackknife+ (2021), Theorem 4; for sets Romano, Sesia and Candès (2020).
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


def cv_plus_rank(n: int, coverage: float) -> int:
    """Which of n ordered values ends a CV+ interval: k of 1 … n + 1.

    k = ⌈(n + 1)·(1 − α/2)⌉ with α = 1 − ``coverage``: CV+ loses at most a factor of
    two, so it is run at α/2. n + 1 stands for infinity: n rows are too few.

    Parameters
    ----------
    n : int
        Number of rows that have a score, at least 1.
    coverage : float
        Between 0 and 1, read as the decimal number that is written.

    Examples
    --------
    >>> from certus.bounds import cv_plus_rank
    >>> cv_plus_rank(99, 0.9), cv_plus_rank(18, 0.9)
    (95, 19)
    """
    n, coverage = check_count("n", n), _check_coverage(coverage)
    return math.ceil((n + 1) * (1 + Fraction(str(coverage))) / 2)


def cv_plus_coverage(n: int, folds: int, coverage: float) -> float:
    """What CV+ guarantees on average: the coverage less a term for the folds.

    coverage − min{2(1 − 1/K)/(n/K + 1), (1 − K/n)/(K + 1)} for K folds of n/K rows, if
    it is run at α/2 as :func:`cv_plus_rank` does; never below 0. The second term
    vanishes where each row is a fold (the jackknife+).

    Parameters
    ----------
    n : int
        Number of rows that have a score; a multiple of ``folds``.
    folds : int
        Number of folds K, at least 2, of equal size.
    coverage : float
        Asked for.

    Examples
    --------
    >>> from certus.bounds import cv_plus_coverage
    >>> [round(cv_plus_coverage(n, 5, 0.9), 3) for n in (50, 500, 5000)]
    [0.755, 0.884, 0.898]
    >>> cv_plus_coverage(50, 50, 0.9)
    0.9
    """
    n, folds = check_count("n", n), check_count("folds", folds)
    coverage = _check_coverage(coverage)
    if folds < 2 or n % folds:
        raise ValueError(
            f"n must be a multiple of folds, and folds at least 2; got n={n} and "
            f"folds={folds}."
        )
    few = Fraction(2 * (folds - 1), folds) / (Fraction(n, folds) + 1)
    many = (1 - Fraction(folds, n)) / (folds + 1)
    return max(0.0, float(Fraction(str(coverage)) - min(few, many)))


def cv_plus_ends(
    centres: Any, scores: Any, coverage: float
) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends of CV+ intervals.

    The upper end is the k-th smallest of fₖ₍ᵢ₎(x) + Rᵢ over the rows i with a score,
    and the lower end the k-th largest of fₖ₍ᵢ₎(x) − Rᵢ, with k = :func:`cv_plus_rank`.

    Parameters
    ----------
    centres : array-like of shape (n_new, n_folds)
        What the model without each fold predicts for the new rows.
    scores : sequence of arrays
        ``|y − f(x)|`` of the rows of each fold, by the model without it; may be inf.
    coverage : float
        Asked for; :func:`cv_plus_coverage` says what is guaranteed.

    Returns
    -------
    low, high : ndarray of shape (n_new,)
        Infinite where the rows are too few.

    Examples
    --------
    >>> from certus.bounds import cv_plus_ends
    >>> low, high = cv_plus_ends([[0.0, 1.0]], [[1.0, 3.0], [2.0, 2.0]], 0.6)
    >>> low.tolist(), high.tolist()
    ([-3.0], [3.0])
    """
    z = np.asarray(centres, dtype=np.float64)
    R = np.concatenate([np.asarray(part, dtype=np.float64) for part in scores])
    fold = np.repeat(np.arange(len(scores)), [len(part) for part in scores])
    k = cv_plus_rank(len(R), coverage)
    low, high = np.full(len(z), -np.inf), np.full(len(z), np.inf)
    if k > len(R):
        return low, high
    step = max(1, _CELLS // len(R))
    for at in range(0, len(z), step):
        part = slice(at, at + step)
        spread = z[part][:, fold]
        spread = np.where(np.isfinite(spread) & np.isfinite(R), spread, 0.0)
        reach = np.where(np.isfinite(z[part][:, fold]), R, np.inf)
        high[part] = np.partition(spread + reach, k - 1, axis=1)[:, k - 1]
        low[part] = -np.partition(reach - spread, k - 1, axis=1)[:, k - 1]
    return low, high


def cv_plus_holds(label_scores: Any, scores: Any, coverage: float) -> np.ndarray:
    """Which labels the CV+ sets of new rows hold.

    A label is in the set unless at least k rows i have a score below the one that the
    model without their fold gives to the label, with k = :func:`cv_plus_rank`.

    Parameters
    ----------
    label_scores : sequence of arrays of shape (n_new, n_labels)
        Scores of each label by the model without each fold; inf is allowed.
    scores : sequence of arrays
        Scores of the rows of each fold with their own label, by that model.
    coverage : float
        Asked for; :func:`cv_plus_coverage` says what is guaranteed.

    Returns
    -------
    ndarray of bool, of shape (n_new, n_labels)

    Examples
    --------
    >>> from certus.bounds import cv_plus_holds
    >>> own = [[0.1, 0.2], [0.1, 0.4]]
    >>> cv_plus_holds([[[0.1, 0.9]], [[0.2, 0.8]]], own, 0.6).tolist()
    [[True, False]]
    """
    beaten = sum(
        np.searchsorted(np.sort(np.asarray(own, float)), S, side="left")
        for own, S in zip(scores, label_scores, strict=True)
    )
    n = sum(len(own) for own in scores)
    return np.asarray(beaten < cv_plus_rank(n, coverage))


#: Cells of new rows × known rows that are looked at together.
_CELLS = 1 << 22


def _check_coverage(coverage: Any) -> float:
    number = isinstance(coverage, numbers.Real) and not isinstance(coverage, bool)
    if not number or not 0 < float(coverage) < 1:
        raise ValueError(
            f"coverage must be a number between 0 and 1, got {coverage!r}."
        )
    return float(coverage)
