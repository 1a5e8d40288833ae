"""Metrics of predicted amounts: measured with a bootstrap, or bounded with bounds.

Without bounds of the target one row in a million may govern a mean, so no interval of
it holds in finite samples: the number is measured, and its bootstrap interval tells
how much it would vary over such samples. Where k numbers are shown, each interval holds
1 − δ/k of the samples, so that at least 1 − δ of them are inside all. With y in [a, b]
known before, and predictions cut to it, absolute errors are in [0, b − a], and

    MAE, pinball   empirical Bernstein
    RMSE           the square root of that of the mean square, in [0, (b − a)²]
    R²             1 − MSE/Var y; |sd − √V| ≤ (b − a)·√(2·ln(2/δ)/(n − 1))  (Maurer and
                   Pontil, 2009, both sides)
    deviances      if a > 0, in [0, max(d(a, b), d(b, a))]: d(y, z) falls towards y = z
                   from both sides, in either argument; empirical Bernstein
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import xlogy

from certus.certificate import Claim, Strength
from certus.typing import Array
from certus.verify.deciding import measured
from certus.verify.ranking import MetricEnds
from certus.verify.statistical import (
    ROWS,
    SURE,
    bernstein,
    hoeffding,
    number,
    outwards,
    risk_claims,
)
from certus.verify.together import DeltaShares

_DRAWS = 1000
_MANY = 20_000  # rows from which on fewer samples are drawn
#: Formulas, by metric.
_FORMULA = {
    "rmse": "root of the mean of (prediction − truth)²",
    "mae": "mean of |prediction − truth|",
    "r2": "1 − mean (prediction − truth)² / variance of the truth",
    "pinball": "mean of q·(y − z) where y > z, else (1 − q)·(z − y), q = {at:g}",
    "poisson": "mean of 2·(y·ln(y/z) − y + z)",
    "gamma": "mean of 2·(ln(z/y) + y/z − 1)",
}


def _parts(truth: Array, guess: Array, metric: str, at: float) -> Array:
    """The columns whose means give the metric, one row each."""
    if metric == "mae":
        return np.abs(guess - truth)[None]
    if metric == "pinball":
        short = truth - guess
        return np.maximum(at * short, (at - 1) * short)[None]
    if metric == "poisson":
        return (2 * (xlogy(truth, truth / guess) - truth + guess))[None]
    if metric == "gamma":
        return (2 * (np.log(guess / truth) + truth / guess - 1))[None]
    squares = np.square(guess - truth)
    if metric == "rmse":
        return squares[None]
    centred = truth - truth.mean()
    return np.stack([squares, centred, np.square(centred)])


def _joined(means: Array, metric: str) -> Array:
    """The metric from the means, for one sample or many."""
    if metric == "rmse":
        return np.sqrt(means[0])
    if metric == "r2":
        spread = means[2] - np.square(means[1])
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(spread > 0, 1 - means[0] / spread, np.nan))
    return np.asarray(means[0])


def bootstrap(parts: Array, joined: Callable[[Array], Array], outside: float) -> Array:
    """Ends of the percentile interval over samples drawn from the rows; fixed seed.

    Parameters
    ----------
    parts : ndarray of shape (k, n)
        Columns whose means give the number.
    joined : callable
        From means of shape (k, draws) to numbers.
    outside : float
        Share of the samples outside the interval.
    """
    n = parts.shape[1]
    rng = np.random.default_rng(0)
    draws = _DRAWS if n <= _MANY else 200
    means = np.empty((len(parts), draws))
    for draw in range(draws):
        means[:, draw] = parts[:, rng.integers(0, n, n)].mean(axis=1)
    found = joined(means)
    found = found[np.isfinite(found)]
    if not len(found):
        return np.array([math.nan, math.nan])
    return np.quantile(found, [outside / 2, 1 - outside / 2])


def amount_interval(
    truth: Array,
    guess: Array,
    metric: str,
    bounds: tuple[float, float],
    delta: float,
    at: float = 0.5,
) -> MetricEnds | None:
    """Finite-sample interval of a metric for a target with bounds; None without one.

    Parameters
    ----------
    truth, guess : ndarray of shape (n,)
        Targets and predictions, all within the bounds.
    metric : {"rmse", "mae", "r2", "pinball", "poisson", "gamma"}
        Deviances have none unless the lower bound is above 0.
    bounds : (float, float)
        Known before the data.
    delta : float
        Failure probability: the chance that the statement does not hold.
    at : float
        Level of the pinball loss.
    """
    if metric not in bounded_metrics(metric, bounds):
        return None
    reach, n = bounds[1] - bounds[0], len(truth)
    tail = delta / 2 if metric == "r2" else delta
    parts = _parts(truth / reach, guess / reach, metric, at)
    value = float(_joined(parts.mean(axis=1), metric))
    most = _largest(metric, bounds, at)
    losses = np.clip(parts[0] / most, 0.0, 1.0)
    mean, half, method = float(losses.mean()), hoeffding(n, tail), "Hoeffding"
    if bernstein(n, tail, 0.0) < half:
        spread = float(np.var(losses, ddof=1))
        half, method = bernstein(n, tail, spread), "empirical Bernstein"
    low, high = max(0.0, mean - half) * most, min(1.0, mean + half) * most
    if metric in ("mae", "pinball", *_DEVIANCES):
        unit = _unit(metric, reach)
        return MetricEnds(unit * low, unit * high, unit * value, method, n)
    if metric == "rmse":
        root = math.sqrt(low), math.sqrt(high)
        return MetricEnds(reach * root[0], reach * root[1], reach * value, method, n)
    if n < 2:
        return MetricEnds(-math.inf, 1.0, value, method, n)
    sd = float(np.std(truth / reach, ddof=1))
    wide = math.sqrt(2 * (math.log(2) - math.log(tail)) / (n - 1)) * (1 + SURE)
    least, most_sd = max(0.0, sd - wide), min(0.5, sd + wide)
    worst = 1 - high / least**2 if least > 0 else -math.inf
    best = 1 - low / most_sd**2 if most_sd > 0 else 1.0
    return MetricEnds(worst, min(1.0, best), value, f"{method} and Maurer–Pontil", n)


def _unit(metric: str, scale: float) -> float:
    """What a metric of targets divided by a scale is multiplied with."""
    return 1.0 if metric in ("r2", "gamma") else scale


def _largest(metric: str, bounds: tuple[float, float], at: float) -> float:
    """The largest loss of a row, in units of the distance of the bounds."""
    if metric == "pinball":
        return max(at, 1 - at)
    if metric not in _DEVIANCES:
        return 1.0
    ends = np.array(bounds) / (bounds[1] - bounds[0])
    worst = float(_parts(ends, ends[::-1], metric, at).max())
    # Its terms are at most 2·z or 2·b/a, and few.
    size = float(ends[1] if metric == "poisson" else ends[1] / ends[0])
    return worst * (1 + SURE) + 64 * float(np.finfo(float).eps) * (1 + size)


#: The panel of amounts, beside the metric that was asked for.
_PANEL = ("rmse", "mae", "r2")
#: Metrics with an interval only where the target is bounded away from 0.
_DEVIANCES = ("poisson", "gamma")


def bounded_metrics(metric: str, bounds: tuple[float, float]) -> list[str]:
    """Metrics of the panel that have an interval where the target has bounds."""
    names = dict.fromkeys([metric, *_PANEL, *_DEVIANCES])
    return [name for name in names if name not in _DEVIANCES or bounds[0] > 0]


def _metrics(metric: str, truth: Array, guess: Array) -> list[str]:
    """The metric asked for, the usual ones, and deviances where they are defined."""
    names = [metric, *_PANEL]
    if guess.min() > 0 and truth.max() > 0:
        names += ["poisson"] if truth.min() >= 0 else []
        names += ["gamma"] if truth.min() > 0 else []
    return list(dict.fromkeys(names))


def amount_claims(
    truth: Array,
    guess: Array,
    metric: str,
    *,
    shares: DeltaShares,
    at: float,
    why: str,
    bounds: tuple[float, float] | None,
    rows: str,
) -> tuple[Claim, ...]:
    """The metric asked for, then RMSE, MAE, R² and deviances that are defined.

    Parameters
    ----------
    truth, guess : ndarray of shape (n,)
    metric : str
        The one that was asked for.
    shares : DeltaShares
        How the failure probability is divided.
    at : float
        Level of the pinball loss.
    why : str
        Why there is no interval; empty if the rows are independent.
    bounds : (float, float) or None
        Bounds of the target.
    rows : str
        What the rows are called.
    """
    truth, guess = np.asarray(truth, float), np.asarray(guess, float)
    if bounds is not None:
        low, high = bounds
        if truth.min() < low or truth.max() > high:
            raise ValueError(
                f"bounds must hold every target, got {truth.min():.6g} to "
                f"{truth.max():.6g} outside [{low:.6g}, {high:.6g}]."
            )
        guess = np.clip(guess, low, high)
    names = _metrics(metric, truth, guess)
    certain = [] if bounds is None or why else bounded_metrics(metric, bounds)
    drawn = sum(name not in certain for name in names)
    return tuple(
        _claim(name, metric, truth, guess, shares, at, why, bounds, rows, drawn)
        for name in names
    )


def large_error_claim(
    errors: Array, threshold: float, *, shares: DeltaShares, groups: Any, rows: str
) -> Claim:
    """How often new rows are farther off than a threshold that was fixed before.

    Parameters
    ----------
    errors : ndarray of shape (n,)
        Absolute errors.
    threshold : float
        Chosen without these rows.
    shares : DeltaShares
        How the failure probability is divided; this is none of what was asked for.
    groups : array of shape (n,) or None
        Rows of one group depend on one another.
    rows : str
        What the rows are called.
    """
    found = risk_claims(
        errors,
        "regression",
        delta=shares.other,
        threshold=threshold,
        groups=groups,
        rows=rows,
    )[1]
    method = found.theorem.partition(":")[0]
    return replace(found, delta=shares.whole, theorem=f"{method}; {shares.said}")


def _claim(
    name: str,
    metric: str,
    truth: Array,
    guess: Array,
    shares: DeltaShares,
    at: float,
    why: str,
    bounds: tuple[float, float] | None,
    rows: str,
    drawn: int,
) -> Claim:
    about, seen = _FORMULA[name].format(at=at), f"{len(truth):,} {rows}"
    if bounds is not None and not why:
        share = shares.asked if name == metric else shares.other
        ends = amount_interval(truth, guess, name, bounds, share, at)
        if ends is not None:
            worst = _unit(name, bounds[1] - bounds[0]) * _largest(name, bounds, at)
            return _bounded(name, ends, about, seen, bounds, shares, worst)
    scale = float(max(np.abs(truth).max(), np.abs(guess).max())) or 1.0
    unit = _unit(name, scale)
    parts = _parts(truth / scale, guess / scale, name, at)
    value = unit * float(_joined(parts.mean(axis=1), name))
    if not math.isfinite(value):
        said = f"not defined on {seen}: it needs a spread of truths, or predictions"
        return measured(name, None, f"{said} above 0", objective=about)
    words = f"{number(value)} on {seen}"
    if why:
        return measured(name, value, f"{words}, {why}", objective=about)
    outside = shares.whole / drawn
    low, high = unit * bootstrap(parts, lambda means: _joined(means, name), outside)
    return measured(
        name,
        value,
        f"{words}; {number(low)} to {number(high)} over samples drawn from these rows",
        objective=f"{about}; bootstrap, {100 * (1 - outside):.4g} % of the samples"
        + _together(drawn, shares.whole),
    )


def _together(drawn: int, outside: float) -> str:
    """How many samples are inside all intervals, where there are several."""
    if drawn < 2:
        return ""
    sure = f"{100 * (1 - outside):g} %"
    return f" each, so that at least {sure} are inside all {drawn} intervals"


def _bounded(
    name: str,
    ends: MetricEnds,
    about: str,
    seen: str,
    bounds: tuple[float, float],
    shares: DeltaShares,
    worst: float,
) -> Claim:
    low = outwards(ends.low, up=False, digits=3) if ends.low > -math.inf else -math.inf
    high = outwards(ends.high, up=True, digits=3)
    more = name == "r2"
    empty = ends.low == -math.inf if more else ends.high >= worst * (1 - SURE)
    least = "−∞" if low == -math.inf else number(low)
    between = f"and between {least} and {number(high)} on new rows like these"
    if empty:
        between = "too few to say anything about new ones"
    return Claim(
        *(name, Strength.STATISTICAL, ends.low if more else ends.high),
        objective=f"{about}: {ends.method}, {seen}; target and predictions cut to "
        f"[{bounds[0]:g}, {bounds[1]:g}]",
        theorem=f"{ends.method}; {shares.said}",
        assumptions=(*ROWS, "no target is outside the bounds that were given"),
        delta=shares.whole,
        detail=f"{number(ends.value)}{' on these rows' if empty else ''}, {between}",
        fix="use more held-out rows, which makes the interval narrower"
        if empty
        else "",
    )
