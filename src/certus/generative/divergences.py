"""Divergences between distributions, and bounds on them from samples alone.

    D_f(q‖p) = ∫ p f(q/p),   f convex, f(1) = 0;   D_f ≥ 0, and = 0 only where q = p
    D_f(q‖p) ≥ E_q S − E_p f*(S) for every S, with equality at S = f'(q/p)

The second line turns a divergence into two means over samples: that is what the
discriminator of a GAN maximises, with S = log D and f* = −log(1 − eˢ) − log 4:

    E_q log D + E_p log(1 − D) ≤ 2 JS(q, p) − log 4, with equality at D = q/(q + p)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.integrate import quad
from scipy.special import expit

from certus.bounds import Interval, bounded_mean
from certus.bounds.intervals import check_delta
from certus.generative.f_divergences import (
    JENSEN_SHANNON,
    TWICE_JENSEN_SHANNON,
    FDivergence,
    as_divergence,
)
from certus.generative.inputs import finite_array, log_probabilities, same_shape
from certus.typing import Array, ArrayLike

#: Golden section shrinks an interval by this factor in each step.
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
#: How far from 1 the integral of a log density may be.
MASS = 1e-6


class VariationalBound(NamedTuple):
    """A lower bound of a divergence, from the scores of samples.

    Attributes
    ----------
    value : float
        mean S over q − mean f*(S) over p.
    interval : Interval or None
        Holds E_q S − E_p f*(S) with probability 1 − delta; its lower end is then a
        lower bound of D_f(q‖p). None where S has no bounds.
    """

    value: float
    interval: Interval | None


def f_divergence(
    q: Any,
    p: Any,
    divergence: str | FDivergence = "kl",
    *,
    weights: ArrayLike | None = None,
    limits: tuple[float, float] = (-math.inf, math.inf),
) -> float:
    """D_f(q‖p) of two discrete distributions, or of two densities.

    Parameters
    ----------
    q, p : array-like or callable
        Probabilities of the same outcomes, each summing to 1. With ``weights``, values
        of two densities at the nodes of a quadrature rule or of a grid, in any
        dimension. Or two functions that return log densities on the real line.
    divergence : str or FDivergence, default="kl"
        ``"kl"``, ``"reverse_kl"``, ``"jensen_shannon"``, ``"twice_jensen_shannon"``
        (the value of the game of a GAN, plus log 4), ``"pearson"``,
        ``"squared_hellinger"``, ``"total_variation"``.
    weights : array-like, optional
        Weights of the quadrature rule; cells of a grid have their volume.
    limits : tuple of float, default=(-inf, inf)
        Interval on which two log densities are integrated, adaptively.

    Returns
    -------
    float
        The divergence, infinite where q has mass that p lacks and f grows so fast.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> from certus.generative import f_divergence
    >>> f_divergence([0.5, 0.5, 0.0], [0.25, 0.25, 0.5], "total_variation")
    0.5
    >>> round(f_divergence(norm(0, 1).logpdf, norm(1, 1).logpdf, "kl"), 10)
    0.5
    """
    one = as_divergence(divergence)
    if callable(q) != callable(p):
        raise TypeError("q and p must both be arrays, or both be log densities.")
    if callable(q):
        return _integrated(q, p, one, limits)
    log_q, w = log_probabilities("q", q, weights)
    log_p, _ = log_probabilities("p", p, weights)
    same_shape("q", "p", log_q, log_p)
    some = np.isfinite(log_q) | np.isfinite(log_p)
    return float(np.sum(w[some] * one.terms(log_q[some], log_p[some])))


def _integrated(
    q: Callable[[float], Any],
    p: Callable[[float], Any],
    one: FDivergence,
    limits: tuple[float, float],
) -> float:
    """The divergence of log densities; both must have their mass where quad looks."""
    low, high = map(float, limits)
    if not low < high:
        raise ValueError(f"limits must be a lower and a higher number, got {limits!r}.")
    for name, density in (("q", q), ("p", p)):
        # With its full output quad does not warn: the mass itself decides.
        density_at = partial(_density, density)
        mass = quad(density_at, low, high, limit=500, full_output=1)[0]
        if not abs(mass - 1.0) <= MASS:
            raise ValueError(
                f"{name} must be a log density that integrates to 1 within limits, got "
                f"{mass:.6g}. Narrow or widen the limits to where its mass lies."
            )
    infinite = False

    def term(x: float) -> float:
        nonlocal infinite
        log_q, log_p = _log(q, x), _log(p, x)
        if max(log_q, log_p) == -math.inf:
            return 0.0
        value = float(one.terms(np.float64(log_q), np.float64(log_p)))
        infinite |= math.isinf(value)
        return 0.0 if infinite else value

    value, _ = quad(term, low, high, limit=500, epsabs=1e-13, epsrel=1e-11)
    return math.inf if infinite else float(value)


def _density(log_density: Callable[[float], Any], x: float) -> float:
    return math.exp(min(_log(log_density, x), 700.0))


def _log(density: Callable[[float], Any], x: float) -> float:
    value = float(density(x))
    if math.isnan(value) or value == math.inf:
        raise ValueError(
            f"A log density must be a number below inf, got {value} at {x}."
        )
    return value


def jensen_shannon(
    q: Any,
    p: Any,
    *,
    weights: ArrayLike | None = None,
    limits: tuple[float, float] = (-math.inf, math.inf),
) -> float:
    """JS = ½KL(q‖m) + ½KL(p‖m) with m = (q + p)/2: symmetric, between 0 and log 2.

    Parameters
    ----------
    q, p, weights, limits
        As in :func:`f_divergence`.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> from certus.generative import jensen_shannon
    >>> round(jensen_shannon(norm(0, 1).logpdf, norm(1, 1).logpdf), 7)
    0.1114215
    """
    return f_divergence(q, p, JENSEN_SHANNON, weights=weights, limits=limits)


def conjugate(
    f: Callable[[Array], Array], s: ArrayLike, *, low: float = 0.0, high: float = 1e8
) -> Array:
    """f*(s) = sup of st − f(t) over low ≤ t ≤ high, numerically, for convex f.

    Parameters
    ----------
    f : callable
        A convex function of an array, finite between ``low`` and ``high``; at ``low``
        it may be infinite.
    s : array-like
        Where f* is wanted.
    low, high : float, default=0, 1e8
        Interval of t; where st − f(t) still rises at ``high``, f* is taken as infinite.

    Returns
    -------
    ndarray
        f*(s), found by golden section, to the rounding of st − f(t).

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import conjugate
    >>> conjugate(lambda t: t**2 / 2, np.array([0.5, 3.0])).round(8)
    array([0.125, 4.5  ])
    """
    s = np.asarray(s, dtype=np.float64)
    if not (np.isfinite(s).all() and math.isfinite(low) and low < high < math.inf):
        raise ValueError("s, low and high must be finite, and low must be below high.")

    def value(t: Array) -> Array:
        found = s * t - np.asarray(f(t), dtype=np.float64)
        if np.isnan(found).any():
            raise ValueError("f must return numbers between low and high, got NaN.")
        return found

    left, right = np.full(s.shape, float(low)), np.full(s.shape, float(high))
    best = np.maximum(value(left), value(right))
    for _ in range(120):  # 0.618^120 = 1e-25
        a, b = right - GOLDEN * (right - left), left + GOLDEN * (right - left)
        at_a, at_b = value(a), value(b)
        best = np.maximum(best, np.maximum(at_a, at_b))
        left, right = np.where(at_a < at_b, a, left), np.where(at_a < at_b, right, b)
    end, before = (
        np.full(s.shape, float(high)),
        np.full(s.shape, low + (high - low) / 2),
    )
    # Rounding of st − f(t) at the end is a few units of its parts.
    slack = 8 * np.finfo(float).eps * (np.abs(s) * high + np.abs(f(end)))
    rising = (value(end) - value(before) > slack) & (value(end) >= best)
    return np.where(rising, np.inf, best)


def optimal_discriminator(
    data: ArrayLike, model: ArrayLike, *, log: bool = False
) -> Array:
    """D* = q/(q + p): the best answer to "is this row data, or from the model?".

    Parameters
    ----------
    data, model : array-like of one shape
        Densities q of the data and p of the model at the same points.
    log : bool, default=False
        Whether they are logarithms of densities.

    Returns
    -------
    ndarray
        Probabilities of "data"; ½ where both densities are zero.

    Examples
    --------
    >>> from certus.generative import optimal_discriminator
    >>> optimal_discriminator([0.2, 0.1, 0.0], [0.2, 0.3, 0.1])
    array([0.5 , 0.25, 0.  ])
    """
    q, p = (np.asarray(v, dtype=np.float64) for v in (data, model))
    same_shape("data", "model", q, p)
    if np.isnan(q).any() or np.isnan(p).any():
        raise ValueError("data and model must be densities, got NaN.")
    if not log:
        if (q < 0).any() or (p < 0).any():
            raise ValueError(
                "Densities must not be negative; log=True takes logarithms."
            )
        with np.errstate(divide="ignore"):
            q, p = np.log(q), np.log(p)
    same = q == p  # −inf − −inf
    return expit(np.where(same, 0.0, q - np.where(same, 0.0, p)))


def variational_bound(
    scores_q: ArrayLike,
    scores_p: ArrayLike,
    divergence: str | FDivergence = "kl",
    *,
    weights_q: ArrayLike | None = None,
    weights_p: ArrayLike | None = None,
    bounds: tuple[float, float] | None = None,
    delta: float = 0.05,
) -> VariationalBound:
    """E_q S − E_p f*(S) ≤ D_f(q‖p), from the scores S of rows of q and of p.

    With ``"kl"`` it is the objective of the KL-GAN, E_q S − E_p eˢ + 1; with
    ``"twice_jensen_shannon"`` and S = log D that of the GAN, plus log 4.

    Parameters
    ----------
    scores_q, scores_p : array-like
        S at rows of q, and at rows of p. Any S gives a lower bound; the best one is
        ``divergence.score(log(q/p))``.
    divergence : str or FDivergence, default="kl"
        As in :func:`f_divergence`.
    weights_q, weights_p : array-like, optional
        Probabilities of the rows, which make the expectations exact. There is no
        interval then.
    bounds : tuple of float, optional
        Smallest and largest value that S can have, known before the rows were drawn;
        f* must be finite at both. The interval needs them.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.

    Returns
    -------
    VariationalBound
        The value, and with ``bounds`` an interval for E_q S − E_p f*(S). S must not
        depend on these rows: train it on others.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import variational_bound
    >>> q, p = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    >>> best = np.log(q / p)
    >>> found = variational_bound(best, best, "kl", weights_q=q, weights_p=p)
    >>> round(found.value, 6)  # KL(q‖p)
    0.510826
    """
    one, delta = as_divergence(divergence), check_delta(delta)
    S_q = np.ravel(finite_array("scores_q", scores_q))
    S_p = np.ravel(np.asarray(scores_p, dtype=np.float64))
    finite_array("scores_p", S_p)
    starred = one.conjugate(S_p)
    if not np.isfinite(starred).all():
        raise ValueError(
            f"scores_p must lie where f* of {one.name!r} is finite, between "
            f"{one.domain[0]:.6g} and {one.domain[1]:.6g}; got up to {S_p.max():.6g}."
        )
    value = _mean(S_q, weights_q, "weights_q") - _mean(starred, weights_p, "weights_p")
    if bounds is None or weights_q is not None or weights_p is not None:
        return VariationalBound(value, None)
    low, high = map(float, bounds)
    ends = one.conjugate(np.array([low, high]))  # f* never falls, as t ≥ 0
    if not np.isfinite(ends).all():
        raise ValueError(
            f"f* of {one.name!r} must be finite at bounds, got {bounds!r}."
        )
    inner = np.clip(starred, *ends)  # rounding alone may leave the range
    first = bounded_mean(S_q, delta / 2, low, high)
    if S_p.min() < low or S_p.max() > high:
        raise ValueError(f"scores_p must lie in bounds = {bounds!r}.")
    second = bounded_mean(inner, delta / 2, float(ends[0]), float(ends[1]))
    interval = Interval(
        first.low - second.high,
        first.high - second.low,
        value,
        delta,
        first.method,
        min(first.n, second.n),
    )
    return VariationalBound(value, interval)


def _mean(values: Array, weights: ArrayLike | None, name: str) -> float:
    if weights is None:
        return float(values.mean())
    log_w, _ = log_probabilities(name, weights)
    same_shape(name, "scores", log_w, values)
    return float(np.sum(np.exp(log_w) * values))


def minimax_value(
    on_data: ArrayLike,
    on_model: ArrayLike,
    *,
    data_weights: ArrayLike | None = None,
    model_weights: ArrayLike | None = None,
) -> float:
    """E log D over data + E log(1 − D) over samples of the model: the game of a GAN.

    At most 2·JS − log 4, attained by :func:`optimal_discriminator`; −log 4 if the model
    is right and D = ½. Half of it is the form with classes of equal weight, JS − log 2.

    Parameters
    ----------
    on_data, on_model : array-like
        D, strictly between 0 and 1, at rows of the data and of the model.
    data_weights, model_weights : array-like, optional
        Probabilities of the rows, which make the expectations exact.

    Examples
    --------
    >>> from certus.generative import minimax_value
    >>> round(minimax_value([0.5, 0.5], [0.5]), 6)
    -1.386294
    """
    D, G = finite_array("on_data", on_data), finite_array("on_model", on_model)
    if min(D.min(), G.min()) <= 0 or max(D.max(), G.max()) >= 1:
        raise ValueError("A discriminator must return values strictly between 0 and 1.")
    found = variational_bound(
        np.log(D),
        np.log(G),
        TWICE_JENSEN_SHANNON,
        weights_q=data_weights,
        weights_p=model_weights,
    )
    return found.value - math.log(4.0)
