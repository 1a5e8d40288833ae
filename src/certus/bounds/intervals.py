"""Intervals for a risk, from losses on rows that were not used to fit.

The risk is L = E ℓ(y, f(x)) of one fixed f; the data are its losses on n rows drawn
independently from the same distribution. With probability at least 1 − δ

    Hoeffding            |L − mean| ≤ (b − a)·√(ln(2/δ) / 2n)       losses in [a, b]
    empirical Bernstein  |L − mean| ≤ √(2V·ln(3/δ) / n) + 7(b − a)·ln(3/δ) / 3(n − 1)
    Clopper–Pearson      the p for which the count of errors is not in a δ/2 tail

V is the sample variance. For K models judged on the same rows, each interval is taken
at δ/K (the union bound), and then all K hold together.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betainccinv, betaincinv

from certus.results import Result
from certus.typing import ArrayLike

IID = ("all rows, old and new, are drawn independently from one distribution",)


@dataclass(frozen=True)
class Interval(Result):
    """An interval that holds the risk with probability at least 1 − delta.

    Attributes
    ----------
    low, high : float
        Its ends.
    value : float
        The mean loss that was observed.
    delta : float
        Failure probability, that of all compared models together.
    method : str
        For example ``"Clopper–Pearson"``.
    n : int
        Number of independent losses.
    assumptions : tuple of str
        What the promise rests on.

    Examples
    --------
    >>> from certus.bounds import clopper_pearson
    >>> interval = clopper_pearson(4, 86)
    >>> print(interval)
    between 0.0128 and 0.115 with probability 95 % (Clopper–Pearson, n = 86)
    >>> 0.05 in interval
    True
    """

    low: float
    high: float
    value: float
    delta: float
    method: str
    n: int
    assumptions: tuple[str, ...] = IID

    @property
    def width(self) -> float:
        """``high − low``."""
        return self.high - self.low

    def __contains__(self, risk: float) -> bool:
        return bool(self.low <= risk <= self.high)

    def __str__(self) -> str:
        return (
            f"between {self.low:.3g} and {self.high:.3g} with probability "
            f"{100 * (1 - self.delta):.4g} % ({self.method}, n = {self.n:,})"
        )


def hoeffding(
    n: int, delta: float = 0.05, low: float = 0.0, high: float = 1.0, models: int = 1
) -> float:
    """Half-width of Hoeffding's interval, over ``models`` models at once.

    ε = (high − low)·√(ln(2K/δ) / 2n): with probability at least 1 − δ no mean of n
    independent losses in [low, high] is further than ε from its risk.

    Parameters
    ----------
    n : int
        Number of losses.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.
    low, high : float, default=0, 1
        Bounds of the loss, known before the data.
    models : int, default=1
        K, the number of models judged on the same rows.

    Examples
    --------
    >>> from certus.bounds import hoeffding
    >>> round(hoeffding(1000), 4), round(hoeffding(1000, models=100), 4)
    (0.0429, 0.0644)
    """
    n = check_count("n", n)
    log = _log(2.0, delta, models)
    return check_range(low, high) * math.sqrt(log / (2 * n))


def hoeffding_delta(
    n: int, width: float, low: float = 0.0, high: float = 1.0, models: int = 1
) -> float:
    """Failure probability of an interval of half-width ``width``, at most one.

    δ = 2K·exp(−2n·ε²/(high − low)²), the inverse of :func:`hoeffding` in δ.

    Parameters
    ----------
    n : int
        Number of losses.
    width : float
        Half-width ε.
    low, high, models
        As in :func:`hoeffding`.

    Examples
    --------
    >>> from certus.bounds import hoeffding, hoeffding_delta
    >>> round(hoeffding_delta(1000, hoeffding(1000, 0.05)), 12)
    0.05
    """
    n, models = check_count("n", n), check_count("models", models)
    share = _check_width(width) / check_range(low, high)
    return min(1.0, 2 * models * math.exp(-2 * n * share * share))


def hoeffding_samples(
    width: float,
    delta: float = 0.05,
    low: float = 0.0,
    high: float = 1.0,
    models: int = 1,
) -> int:
    """The fewest rows for which Hoeffding's half-width is at most ``width``.

    n = ⌈(high − low)²·ln(2K/δ) / 2ε²⌉, the inverse of :func:`hoeffding` in n.

    Parameters
    ----------
    width : float
        Half-width ε.
    delta, low, high, models
        As in :func:`hoeffding`.

    Examples
    --------
    >>> from certus.bounds import hoeffding_samples
    >>> hoeffding_samples(0.01), hoeffding_samples(0.01, models=100)
    (18445, 41471)
    """
    ratio = check_range(low, high) / _check_width(width)
    if ratio > 1e100:
        raise ValueError(
            f"width is {width!r}; no number of rows gives an interval so narrow."
        )
    guess = math.ceil(ratio * ratio * _log(2.0, delta, models) / 2)
    # Rounding may put the guess one off; the definition decides.
    for n in (guess - 1, guess):
        if n >= 1 and hoeffding(n, delta, low, high, models) <= width:
            return n
    return max(guess, 0) + 1


def excess_risk(
    n: int, delta: float = 0.05, low: float = 0.0, high: float = 1.0, models: int = 1
) -> float:
    """How much worse than the best of K models the selected one may be.

    2ε with the ε of :func:`hoeffding`: if the model with the smallest mean loss on n
    held-out rows is kept, then with probability at least 1 − δ its risk is below the
    smallest risk of the K models plus 2ε.

    Parameters
    ----------
    n, delta, low, high, models
        As in :func:`hoeffding`.

    Examples
    --------
    >>> from certus.bounds import excess_risk
    >>> round(excess_risk(1000, models=10), 4)
    0.1095
    """
    return 2.0 * hoeffding(n, delta, low, high, models)


def clopper_pearson(
    errors: int,
    n: int,
    delta: float = 0.05,
    *,
    side: str = "both",
    models: int = 1,
) -> Interval:
    """Interval for a probability, from a count; wrong with probability at most delta.

    It holds every p for which ``errors`` or more, and ``errors`` or fewer, of n have
    probability above δ/2 each. With ``side="upper"`` the whole of δ is spent on the
    upper end and ``low`` is 0; with ``"lower"``, the other way round.

    Parameters
    ----------
    errors : int
        How many of the n rows were wrong.
    n : int
        How many rows there were.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.
    side : {"both", "upper", "lower"}
        Which ends are stated.
    models : int, default=1
        Number of models judged on the same rows (union bound).

    Examples
    --------
    >>> from certus.bounds import clopper_pearson
    >>> round(clopper_pearson(0, 100, side="upper").high, 4)  # 1 − δ^(1/n)
    0.0295
    """
    n, errors = check_count("n", n), check_count("errors", errors, 0)
    if errors > n:
        raise ValueError(f"errors must not exceed n = {n}, got {errors}.")
    if side not in ("both", "upper", "lower"):
        raise ValueError(f"side must be 'both', 'upper' or 'lower', got {side!r}.")
    tail = check_delta(delta) / check_count("models", models)
    tail = tail / 2 if side == "both" else tail
    low, high = 0.0, 1.0
    if side != "upper" and errors > 0:
        low = float(betaincinv(errors, n - errors + 1, tail))
    if side != "lower" and errors < n:
        high = float(betainccinv(errors + 1, n - errors, tail))
    return Interval(low, high, errors / n, float(delta), "Clopper–Pearson", n)


def hoeffding_interval(
    losses: Any,
    delta: float = 0.05,
    low: float = 0.0,
    high: float = 1.0,
    *,
    models: int = 1,
) -> Interval:
    """Hoeffding's interval around the mean of ``losses``, cut to [low, high].

    Parameters
    ----------
    losses : array-like of shape (n,)
        One loss per row.
    delta, low, high, models
        As in :func:`hoeffding`.

    Examples
    --------
    >>> from certus.bounds import hoeffding_interval
    >>> print(hoeffding_interval([0.2, 0.4] * 200))
    between 0.232 and 0.368 with probability 95 % (Hoeffding, n = 400)
    """
    losses = check_losses(losses, low, high)
    half = hoeffding(len(losses), delta, low, high, models)
    return _around(losses, half, low, high, delta, "Hoeffding")


def empirical_bernstein(
    losses: Any,
    delta: float = 0.05,
    low: float = 0.0,
    high: float = 1.0,
    *,
    models: int = 1,
) -> Interval:
    """Maurer and Pontil's interval: narrow where the losses vary little.

    mean ± (√(2V·ln(3/δ)/n) + 7(high − low)·ln(3/δ) / 3(n − 1)), V the sample variance
    with divisor n − 1. The 3 counts what may fail with probability δ/3 each: the mean
    is too high, it is too low, V is too small. (Their one-sided theorem, for the upper
    end alone, has two such events and ln(2/δ).)

    Parameters
    ----------
    losses : array-like of shape (n,)
        One loss per row.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.
    low, high : float, default=0, 1
        Bounds of the loss, known before the data.
    models : int, default=1
        Number of models judged on the same rows (union bound).

    Examples
    --------
    >>> from certus.bounds import empirical_bernstein
    >>> print(empirical_bernstein([0.2, 0.4] * 200))
    between 0.262 and 0.338 with probability 95 % (empirical Bernstein, n = 400)
    """
    losses = check_losses(losses, low, high)
    n, log, reach = len(losses), _log(3.0, delta, models), check_range(low, high)
    half = math.inf
    if n > 1:  # one loss says nothing about the variance
        spread = float(np.var((losses - low) / reach, ddof=1))
        half = reach * (math.sqrt(2 * spread * log / n) + 7 * log / (3 * (n - 1)))
    return _around(losses, half, low, high, delta, "empirical Bernstein")


def bounded_mean(
    losses: ArrayLike,
    delta: float = 0.05,
    low: float = 0.0,
    high: float = 1.0,
    *,
    models: int = 1,
) -> Interval:
    """The interval that certus states for the mean of a bounded loss.

    :func:`empirical_bernstein`; only where n is so small that it could not be narrower
    than Hoeffding's for any losses (n ≤ 51 at delta 0.05), :func:`hoeffding_interval`.
    n and delta decide, never the losses, so the guarantee is that of one interval.

    Parameters
    ----------
    losses, delta, low, high, models
        As in :func:`empirical_bernstein`.

    Examples
    --------
    >>> from certus.bounds import bounded_mean
    >>> bounded_mean([0.1] * 51).method, bounded_mean([0.1] * 52).method
    ('Hoeffding', 'empirical Bernstein')
    """
    n = np.size(losses)
    best = 7 * _log(3.0, delta, models) / (3 * (n - 1)) if n > 1 else math.inf
    hopeless = n > 0 and best >= hoeffding(n, delta, models=models)
    rule = hoeffding_interval if hopeless else empirical_bernstein
    return rule(losses, delta, low, high, models=models)


def _around(
    losses: Any, half: float, low: float, high: float, delta: float, method: str
) -> Interval:
    mean = min(max(float(losses.mean()), low), high)  # rounding may leave the range
    ends = max(float(low), mean - half), min(float(high), mean + half)
    return Interval(*ends, mean, float(delta), method, len(losses))


def _log(events: float, delta: float, models: int) -> float:
    """ln(events·K/δ), without overflow for tiny δ."""
    return math.log(events * check_count("models", models)) - math.log(
        check_delta(delta)
    )


def check_delta(delta: float) -> float:
    """A failure probability, strictly between 0 and 1."""
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must be a probability between 0 and 1, got {delta!r}.")
    return float(delta)


def check_count(name: str, value: int, least: int = 1) -> int:
    """An integer of at least ``least``."""
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r}.") from None
    if count < least:
        raise ValueError(f"{name} must be at least {least}, got {count}.")
    return count


def check_range(low: float, high: float) -> float:
    """``high − low``, finite and positive."""
    reach = float(high) - float(low)
    if not (math.isfinite(reach) and reach > 0):
        raise ValueError(
            f"low and high must be finite numbers with low below high, got {low!r} "
            f"and {high!r}. An unbounded loss has no such interval."
        )
    return reach


def check_losses(
    losses: ArrayLike, low: float = -math.inf, high: float = math.inf
) -> Any:
    """A non-empty vector of numbers in [low, high], as float64."""
    values = np.asarray(losses, dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(
            f"losses has shape {values.shape}; pass one number per row, at least one."
        )
    if not np.isfinite(values).all():
        raise ValueError(
            "losses holds NaN or infinity. Drop or correct these rows first."
        )
    if values.min() < low or values.max() > high:
        raise ValueError(
            f"losses must lie in [{low:.6g}, {high:.6g}], got values from "
            f"{values.min():.6g} to {values.max():.6g}. Pass the true bounds of the "
            "loss."
        )
    return values


def _check_width(width: float) -> float:
    if not (math.isfinite(width) and width > 0):
        raise ValueError(f"width must be a positive number, got {width!r}.")
    return float(width)
