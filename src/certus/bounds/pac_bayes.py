"""PAC-Bayes: the error of a randomised predictor, from its error on the training rows.

A prior P over predictors is fixed before the n rows are seen; the posterior Q may be
chosen from them in any way. R and R̂ are the errors, on new rows and on these, of a
predictor drawn from Q. With probability at least 1 − δ, for all Q at once,

    Seeger, Maurer   kl(R̂ ‖ R) ≤ (KL(Q‖P) + ln(2√n/δ)) / n
    McAllester       R ≤ R̂ + √((KL(Q‖P) + ln(2√n/δ)) / 2n)
    Catoni           R ≤ (1 − exp(−cR̂ − (KL(Q‖P) + ln(1/δ))/n)) / (1 − e⁻ᶜ),  c fixed

and all follow from Donsker and Varadhan, E_Q φ ≤ KL(Q‖P) + ln E_P e^φ. A prior or a
rate c picked from K by the rows costs δ/K in place of δ (the union bound).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import logsumexp

from certus.bounds.intervals import check_count, check_delta, check_losses

#: Rates among which Catoni's bound may choose; fixed here, so they cost a factor 16.
RATES = tuple(float(c) for c in np.geomspace(0.01, 20.0, 16))


def binary_kl(q: float, p: float) -> float:
    """kl(q ‖ p) = q·ln(q/p) + (1 − q)·ln((1 − q)/(1 − p)), of two coins.

    Parameters
    ----------
    q, p : float
        Probabilities; 0·ln 0 is 0, and the value is infinite where q cannot come from
        p.

    Examples
    --------
    >>> from certus.bounds import binary_kl
    >>> round(binary_kl(0.1, 0.2), 4), binary_kl(0.5, 0.0)
    (0.0367, inf)
    """
    q, p = _check_share("q", q), _check_share("p", p)
    return max(0.0, _relative(q, p) + _relative(1.0 - q, 1.0 - p))


def _relative(q: float, p: float) -> float:
    """q·ln(q/p), 0 for q = 0."""
    if q == 0:
        return 0.0
    return q * (math.log(q) - math.log(p)) if p > 0 else math.inf


def binary_kl_upper(q: float, budget: float) -> float:
    """The largest p with kl(q ‖ p) ≤ budget, rounded up.

    Parameters
    ----------
    q : float
        Probability observed.
    budget : float
        At least 0; infinity gives 1.

    Examples
    --------
    >>> from certus.bounds import binary_kl_upper
    >>> round(binary_kl_upper(0.1, 0.0367), 3), round(binary_kl_upper(0.0, 0.03), 4)
    (0.2, 0.0296)
    """
    q = _check_share("q", q)
    if not budget >= 0:
        raise ValueError(f"budget must be at least 0, got {budget!r}.")
    if budget == 0 or q == 1:
        return q
    if q == 0:
        return -math.expm1(-budget)
    low, high = q, 1.0
    while True:
        middle = 0.5 * (low + high)
        if not low < middle < high:
            return high
        if binary_kl(q, middle) > budget:
            high = middle
        else:
            low = middle


def binary_kl_lower(q: float, budget: float) -> float:
    """The smallest p with kl(q ‖ p) ≤ budget, rounded down.

    Parameters
    ----------
    q, budget : float
        As in :func:`binary_kl_upper`.

    Examples
    --------
    >>> from certus.bounds import binary_kl_lower
    >>> round(binary_kl_lower(0.2, 0.0444), 3), binary_kl_lower(0.0, 1.0)
    (0.1, 0.0)
    """
    return 1.0 - binary_kl_upper(1.0 - _check_share("q", q), budget)


def gaussian_kl(mean: Any, std: Any, prior_mean: Any, prior_std: Any) -> float:
    """KL(N(mean, std²) ‖ N(prior_mean, prior_std²)), summed over coordinates.

    Parameters
    ----------
    mean, std, prior_mean, prior_std : array-like
        Arrays that broadcast against each other; standard deviations are positive.

    Examples
    --------
    >>> from certus.bounds import gaussian_kl
    >>> gaussian_kl([1.0, 2.0], 1.0, 0.0, 1.0)
    2.5
    """
    mean, std, prior_mean, prior_std = np.broadcast_arrays(
        *(np.asarray(a, dtype=np.float64) for a in (mean, std, prior_mean, prior_std))
    )
    if not ((std > 0).all() and (prior_std > 0).all()):
        raise ValueError("standard deviations must be positive.")
    # ½(r² − 1) − ln r with r = 1 + t keeps its digits where the two agree.
    t = (std - prior_std) / prior_std
    shift = (mean - prior_mean) / prior_std
    return float(np.sum(t - np.log1p(t) + 0.5 * t * t + 0.5 * shift * shift))


def donsker_varadhan(phi: Any, q: Any, p: Any) -> float:
    """E_Q φ − ln E_P e^φ on a finite set; never above KL(Q‖P).

    Equal to it exactly if φ = ln(q/p) + constant wherever q > 0.

    Parameters
    ----------
    phi : array-like of shape (k,)
        Values of any function.
    q, p : array-like of shape (k,)
        Probabilities of Q and P.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.bounds import donsker_varadhan
    >>> q, p = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    >>> kl = float(q @ np.log(q / p))
    >>> donsker_varadhan([1.0, 3.0], q, p) < kl
    True
    >>> abs(donsker_varadhan(np.log(q / p) + 7, q, p) - kl) < 1e-12
    True
    """
    phi, q, p = (np.asarray(a, dtype=np.float64) for a in (phi, q, p))
    if not (phi.shape == q.shape == p.shape and phi.ndim == 1 and len(phi)):
        raise ValueError("phi, q and p must be vectors of one length.")
    for name, weights in (("q", q), ("p", p)):
        if not (weights.min() >= 0 and abs(weights.sum() - 1) < 1e-9):
            raise ValueError(f"{name} must be non-negative and sum to one.")
    used, seen = q > 0, p > 0
    return float(q[used] @ phi[used] - logsumexp(phi[seen], b=p[seen]))


# -- the bounds -------------------------------------------------------------------


def mcallester_bound(
    error: float,
    kl: float,
    n: int,
    delta: float = 0.05,
    *,
    priors: int = 1,
    loose: bool = False,
) -> float:
    """McAllester's bound: R̂ + √((KL + ln(2√n/δ)) / 2n), at most 1.

    Parameters
    ----------
    error : float
        R̂, mean error of Q on the rows.
    kl : float
        KL(Q‖P).
    n : int
        Number of rows, none of which the prior has seen.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.
    priors : int, default=1
        How many priors the rows could choose from (union bound).
    loose : bool, default=False
        The form with √(2(KL + ln(2√n/δ))/n), as some lecture notes print it: true too,
        and twice as wide.

    Examples
    --------
    >>> from certus.bounds import mcallester_bound
    >>> round(mcallester_bound(0.1, 5.0, 1000), 3)
    0.178
    """
    error, budget = _check_share("error", error), _budget(kl, n, delta, priors)
    half = math.sqrt(budget / 2)
    return min(1.0, error + (2 * half if loose else half))


def seeger_bound(
    error: float, kl: float, n: int, delta: float = 0.05, *, priors: int = 1
) -> float:
    """Seeger's bound with Maurer's constant: kl(R̂ ‖ R) ≤ (KL + ln(2√n/δ))/n.

    Never above McAllester's, by Pinsker's inequality, and far below it where R̂ is
    small.

    Parameters
    ----------
    error, kl, n, delta, priors
        As in :func:`mcallester_bound`.

    Examples
    --------
    >>> from certus.bounds import seeger_bound
    >>> round(seeger_bound(0.1, 5.0, 1000), 3)
    0.153
    """
    return binary_kl_upper(error, _budget(kl, n, delta, priors))


def catoni_bound(
    error: float,
    kl: float,
    n: int,
    delta: float = 0.05,
    *,
    rate: Any = None,
    priors: int = 1,
) -> float:
    """Catoni's bound; for several rates the smallest, each taken at its share of delta.

    (1 − exp(−c·R̂ − (KL + ln(1/δ))/n)) / (1 − e⁻ᶜ). A single c must have been fixed
    before the rows were seen.

    Parameters
    ----------
    error, kl, n, delta, priors
        As in :func:`mcallester_bound`.
    rate : float or array-like, optional
        c, or a grid of K rates fixed in advance, each then at δ/K; by default 16 rates
        from 0.01 to 20.

    Examples
    --------
    >>> from certus.bounds import catoni_bound
    >>> round(catoni_bound(0.1, 5.0, 1000, rate=1.0), 3)
    0.162
    """
    rates = np.atleast_1d(np.asarray(RATES if rate is None else rate, dtype=float))
    if not (rates.ndim == 1 and len(rates) and (rates > 0).all()):
        raise ValueError(f"rate must be one or several positive numbers, got {rate!r}.")
    error = _check_share("error", error)
    log = math.log(len(rates) * check_count("priors", priors) / check_delta(delta))
    budget = (_check_kl(kl) + log) / check_count("n", n)
    values = np.expm1(-rates * error - budget) / np.expm1(-rates)
    return min(1.0, float(values.min()))


# -- errors that can only be sampled ----------------------------------------------


def sampled_error(errors: Any, delta: float) -> float:
    """Upper bound of a mean error, from independent draws of the predictor.

    The largest p with kl(mean ‖ p) ≤ ln(1/δ)/m, Chernoff's bound for m independent
    numbers in [0, 1]. The draws must be made after Q is settled: Q could be fitted to a
    seed that is known before.

    Parameters
    ----------
    errors : array-like of shape (m,)
        Error of each drawn predictor on the rows.
    delta : float
        Failure probability: the chance that the statement does not hold. It is over the
        draws.

    Examples
    --------
    >>> from certus.bounds import sampled_error
    >>> round(sampled_error([0.1] * 500, 0.01), 3)
    0.146
    """
    values = check_losses(errors, 0.0, 1.0)
    budget = -math.log(check_delta(delta)) / len(values)
    return binary_kl_upper(min(1.0, float(values.mean())), budget)


def sampled_bound(
    errors: Any,
    kl: float,
    n: int,
    delta: float = 0.05,
    *,
    priors: int = 1,
    share: float = 0.2,
) -> float:
    """Seeger's bound where the error of Q on the rows is known from draws alone.

    What networks need: draw m weights from Q = N(θ, diag σ²), take the error of each
    on the n rows, and KL(Q‖P) from :func:`gaussian_kl`. ``share·delta`` is spent on the
    draws and the rest on the rows, so that ``delta`` is the whole risk of being wrong.

    Parameters
    ----------
    errors : array-like of shape (m,)
        Error of each drawn predictor on the rows.
    kl, n, delta, priors
        As in :func:`mcallester_bound`.
    share : float, default=0.2
        Part of delta spent on the draws.

    Examples
    --------
    >>> from certus.bounds import sampled_bound
    >>> round(sampled_bound([0.1] * 500, 5.0, 1000), 3)
    0.207
    """
    if not 0 < share < 1:
        raise ValueError(f"share must be a number between 0 and 1, got {share!r}.")
    delta = check_delta(delta)
    error = sampled_error(errors, share * delta)
    return seeger_bound(error, kl, n, (1 - share) * delta, priors=priors)


def _budget(kl: float, n: int, delta: float, priors: int) -> float:
    """(KL + ln(2K√n/δ)) / n."""
    n = check_count("n", n)
    log = math.log(2 * check_count("priors", priors) / check_delta(delta))
    return (_check_kl(kl) + log + 0.5 * math.log(n)) / n


def _check_share(name: str, value: float) -> float:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} must lie between 0 and 1, got {value!r}.")
    return float(value)


def _check_kl(kl: float) -> float:
    if not kl >= 0:
        raise ValueError(f"kl must be at least 0, got {kl!r}.")
    return float(kl)
