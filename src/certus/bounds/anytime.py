"""Statements that hold at every moment of a stream of rows, not at a chosen one only.

``running_mean``: a band around the average so far that holds for all lengths at once
(the normal mixture of Robbins; Howard, Ramdas, McAuliffe and Sekhon 2021, Proposition
5). It needs values in [0, 1] and nothing about how rows depend on one another: what it
holds is the average of the conditional expectations.

``miss_martingale``: a bet against the statement that new rows are exchangeable with the
calibration rows. Conformal p-values of later rows are then independent and uniform
(Vovk, Gammerman and Shafer), so "p ≤ α" is a coin with probability α; the capital of a
fair game exceeds 1/δ at any time with probability at most δ (Ville).
"""

from __future__ import annotations

import bisect
import math

import numpy as np
from scipy import special, stats

from certus.bounds.intervals import check_delta
from certus.typing import Array, ArrayLike

__all__ = ["conformal_p_values", "miss_martingale", "running_mean"]

#: Number of rows at which the band is narrowest for its level.
_TUNED = 200
#: The game begins again at these rows, so that a late change is not buried.
_FIRST_START, _GROWTH = 32, 1.5


def running_mean(values: ArrayLike, delta: float = 0.05) -> tuple[Array, Array]:
    """Lower and upper ends for the average after each row, for all rows at once.

    Parameters
    ----------
    values : array of shape (n,)
        Between 0 and 1, in the order in which they came.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold. Here, that the
        average leaves the band at any row.

    Returns
    -------
    low, high : ndarray of shape (n,)

    Examples
    --------
    >>> import numpy as np
    >>> from certus.bounds import running_mean
    >>> low, high = running_mean(np.tile([1.0, 1.0, 0.0, 1.0], 250))
    >>> bool(low[-1] < 0.75 < high[-1]), round(float(high[-1] - low[-1]), 2)
    (True, 0.1)
    """
    delta = check_delta(delta)
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or len(x) == 0 or not ((x >= 0) & (x <= 1)).all():
        raise ValueError("values must be a row of numbers between 0 and 1.")
    t = np.arange(1, len(x) + 1)
    spent = t / 4  # a value in [0, 1] varies as a Gaussian of variance 1/4 at most
    odds = 2 * math.log(1 / delta)
    rho = _TUNED / 4 / (odds + math.log(1 + odds))
    reach = np.sqrt((spent + rho) * np.log((spent + rho) / (rho * delta**2))) / t
    mean = np.cumsum(x) / t
    return np.clip(mean - reach, 0, 1), np.clip(mean + reach, 0, 1)


def conformal_p_values(
    calibration: ArrayLike,
    scores: ArrayLike,
    random_state: int | np.random.Generator | None = None,
) -> Array:
    """How each new score ranks among all scores before it; small if it is large.

    p = (scores above + U·scores equal)/all, the new one included, with U uniform. Each
    new score joins those that the next one is compared with.

    Parameters
    ----------
    calibration : array of shape (n,)
        Scores of the calibration rows.
    scores : array of shape (m,)
        Scores of the new rows, in their order.
    random_state : int, Generator or None, default=None
        Seed or generator of all random numbers. They break ties.

    Returns
    -------
    ndarray of shape (m,)
        Independent and uniform on (0, 1) if all rows are exchangeable.

    Examples
    --------
    >>> from certus.bounds import conformal_p_values
    >>> conformal_p_values([1.0, 2.0, 3.0], [9.0], random_state=0).round(2)
    array([0.16])
    """
    known = sorted(np.asarray(calibration, dtype=np.float64).tolist())
    uniform = np.random.default_rng(random_state).random(len(np.asarray(scores)))
    found = np.empty(len(uniform))
    for at, score in enumerate(np.asarray(scores, dtype=np.float64).tolist()):
        low, high = bisect.bisect_left(known, score), bisect.bisect_right(known, score)
        above, equal = len(known) - high, high - low + 1
        found[at] = (above + uniform[at] * equal) / (len(known) + 1)
        known.insert(high, score)
    return found


def miss_martingale(p: ArrayLike, alpha: float) -> Array:
    """Logarithm of the capital of a bet that more than a share α of p are below α.

    The bet is a mixture over the shares in (α, 1) and over the row at which the change
    came. Without a change its capital reaches 1/δ, ever, with probability at most δ.

    Parameters
    ----------
    p : array of shape (n,)
        Conformal p-values in the order of the rows.
    alpha : float
        Share of misses that was promised, between 0 and 1.

    Returns
    -------
    ndarray of shape (n,)
        The logarithm of the capital after each row.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.bounds import miss_martingale
    >>> misses = np.tile([0.05, 0.5], 30)  # half of the rows instead of a tenth
    >>> bool(np.exp(miss_martingale(misses, 0.1)[-1]) > 20)
    True
    """
    alpha = check_delta(alpha)
    miss = np.asarray(p, dtype=np.float64) <= alpha
    n = len(miss)
    counts = np.concatenate([[0], np.cumsum(miss)])
    starts = [0]
    while starts[-1] < n:
        starts.append(max(_FIRST_START, math.ceil(starts[-1] * _GROWTH)))
    capital = np.full((len(starts), n), 0.0)
    for j, start in enumerate(starts[:-1]):
        k = counts[start + 1 :] - counts[start]
        m = np.arange(1, n - start + 1)
        capital[j, start:] = _mixture(k, m, alpha)
    place = np.arange(1.0, len(starts) + 1)
    weight = -np.log(place * (place + 1))
    weight[-1] = -math.log(len(starts))  # all starts that are still to come
    return np.asarray(special.logsumexp(capital + weight[:, None], axis=0))


def _mixture(k: Array, m: Array, alpha: float) -> Array:
    """Log of ∫ θᵏ(1 − θ)ᵐ⁻ᵏ dθ/(1 − α) over (α, 1), divided by αᵏ(1 − α)ᵐ⁻ᵏ."""
    a, b = k + 1.0, m - k + 1.0
    inside = special.betaln(a, b) + stats.beta.logsf(alpha, a, b)
    fair = k * math.log(alpha) + (m - k) * math.log1p(-alpha)
    return np.asarray(inside - math.log1p(-alpha) - fair)
