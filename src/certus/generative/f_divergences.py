"""The f-divergences: their terms, the conjugates of their generators, their scores.

    D_f(q‖p) = ∫ p f(q/p),   f*(s) = sup over t ≥ 0 of st − f(t),   S* = f'(q/p)

    kl                    f = t log t − t + 1                 f* = eˢ − 1
    reverse_kl            f = −log t + t − 1                  f* = −log(1 − s)
    jensen_shannon        f = ½t log t − ½(t+1) log((t+1)/2)  f* = −½ log(2 − e²ˢ)
    twice_jensen_shannon  twice that − (t − 1) log 2          f* = −log(1 − eˢ) − log 4
    pearson               f = (t − 1)²                        f* = s + s²/4, s ≥ −2
    squared_hellinger     f = (√t − 1)²                       f* = s/(1 − s)
    total_variation       f = ½ abs(t − 1)                    f* = s, abs(s) ≤ ½

Terms are computed from logarithms of q and p, so that densities may differ by any
factor. ``conjugate`` and ``score`` take torch tensors as well and let gradients pass;
``terms`` is NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from certus.base import check_choice
from certus.typing import Array, ArrayLike

LOG2 = math.log(2.0)


class FDivergence(NamedTuple):
    """An f-divergence: its terms, the conjugate of f, and the best score.

    Parameters
    ----------
    name : str
        The name by which functions know it.
    terms : callable
        ``terms(log_q, log_p)`` = p·f(q/p), from logarithms; −inf stands for zero.
    conjugate : callable
        f*(s), infinite outside its domain. Arrays or torch tensors.
    score : callable
        The best S as a function of log(q/p): ``score(r)`` = f'(eʳ). Arrays or torch
        tensors: of a logit r of a discriminator it makes a valid S.
    domain : tuple of float
        Ends of the interval on which f* is finite.

    Examples
    --------
    >>> from certus.generative import DIVERGENCES
    >>> kl = DIVERGENCES["kl"]
    >>> round(float(kl.generator(2.0)), 8), float(kl.conjugate(0.0))
    (0.38629436, 0.0)
    """

    name: str
    terms: Callable[[Any, Any], Any]
    conjugate: Callable[[Any], Any]
    score: Callable[[Any], Any]
    domain: tuple[float, float]

    def generator(self, t: ArrayLike) -> Array:
        """f(t) for t ≥ 0."""
        with np.errstate(divide="ignore"):
            log_t = np.log(np.asarray(t, dtype=np.float64))
        return self.terms(log_t, np.zeros_like(log_t))

    def derivative(self, t: ArrayLike) -> Array:
        """f'(t) for t > 0."""
        return self.score(np.log(np.asarray(t, dtype=np.float64)))


def _read(values: Any) -> tuple[Any, Any]:
    """Values and their namespace; everything but tensors becomes float64."""
    if hasattr(values, "detach"):
        return values, array_namespace(values)
    return np.asarray(values, dtype=np.float64), np


def _below(s: Any, bound: float, value: Callable[[Any], Any]) -> Any:
    """``value(s)`` where s < bound, else infinity; gradients never meet the bound."""
    s, xp = _read(s)
    inside = s < bound
    safe = xp.where(inside, s, xp.zeros_like(s) + bound - 1.0)
    return xp.where(inside, value(safe), xp.zeros_like(s) + math.inf)


def _times(q: Array, factor: Array) -> Array:
    """q·factor, where 0·∞ = 0."""
    return np.where(q > 0, q * np.where(q > 0, factor, 0.0), 0.0)


def _kl_terms(log_q: Array, log_p: Array) -> Array:
    q, p = np.exp(log_q), np.exp(log_p)
    return _times(q, _difference(log_q, log_p)) - q + p


def _js_terms(log_q: Array, log_p: Array) -> Array:
    log_m = np.logaddexp(log_q, log_p) - LOG2
    q_part = _times(np.exp(log_q), _difference(log_q, log_m))
    return 0.5 * (q_part + _times(np.exp(log_p), _difference(log_p, log_m)))


def _game_terms(log_q: Array, log_p: Array) -> Array:
    """Of f = t log t − (t + 1) log(t + 1) + log 4, which the game of a GAN has."""
    return 2.0 * _js_terms(log_q, log_p) - LOG2 * (np.exp(log_q) - np.exp(log_p))


def _pearson_terms(log_q: Array, log_p: Array) -> Array:
    # (q − p)²/p; near q = p as a square, elsewhere such that q²/p may exceed q and p.
    q, p, r = np.exp(log_q), np.exp(log_p), _difference(log_q, log_p)
    with np.errstate(over="ignore"):
        far = np.exp(np.where(q > 0, r + log_q, -np.inf)) - 2 * q + p
    near = p * np.expm1(np.clip(r, -1.0, 1.0)) ** 2
    return np.where(np.abs(r) < 1.0, near, far)


def _difference(a: Array, b: Array) -> Array:
    """The difference; NaN where both are −∞, which no caller uses."""
    with np.errstate(invalid="ignore"):
        return np.asarray(a - b)


def _softplus(r: Any) -> Any:
    r, xp = _read(r)
    return xp.logaddexp(xp.zeros_like(r), r)


def _exponential(r: Any, factor: float = 1.0) -> Any:
    """exp(factor·r) − 1."""
    r, xp = _read(r)
    return xp.expm1(factor * r)


def _pearson_conjugate(s: Any) -> Any:
    s, xp = _read(s)
    return xp.where(s > -2.0, s + s * s / 4.0, xp.zeros_like(s) - 1.0)


def _variation_conjugate(s: Any) -> Any:
    s, xp = _read(s)
    inner = xp.where(s > -0.5, s, xp.zeros_like(s) - 0.5)
    return xp.where(s > 0.5, xp.zeros_like(s) + math.inf, inner)


def _variation_score(r: Any) -> Any:
    r, xp = _read(r)
    return 0.5 * xp.sign(r)


KL = FDivergence(
    "kl",
    _kl_terms,
    lambda s: _exponential(s),
    lambda r: _read(r)[0],
    (-math.inf, math.inf),
)
REVERSE_KL = FDivergence(
    "reverse_kl",
    lambda log_q, log_p: _kl_terms(log_p, log_q),
    lambda s: _below(s, 1.0, lambda v: -_read(v)[1].log1p(-v)),
    lambda r: -_exponential(r, -1.0),
    (-math.inf, 1.0),
)
JENSEN_SHANNON = FDivergence(
    "jensen_shannon",
    _js_terms,
    lambda s: _below(
        s, LOG2 / 2, lambda v: -0.5 * _read(v)[1].log1p(-_exponential(v, 2.0))
    ),
    lambda r: 0.5 * (LOG2 - _softplus(-_read(r)[0])),
    (-math.inf, LOG2 / 2),
)
TWICE_JENSEN_SHANNON = FDivergence(
    "twice_jensen_shannon",
    _game_terms,
    lambda s: _below(s, 0.0, lambda v: -_read(v)[1].log(-_exponential(v)) - 2 * LOG2),
    lambda r: -_softplus(-_read(r)[0]),
    (-math.inf, 0.0),
)
PEARSON = FDivergence(
    "pearson",
    _pearson_terms,
    _pearson_conjugate,
    lambda r: 2.0 * _exponential(r),
    (-math.inf, math.inf),
)
SQUARED_HELLINGER = FDivergence(
    "squared_hellinger",
    lambda log_q, log_p: (np.exp(log_q / 2) - np.exp(log_p / 2)) ** 2,
    lambda s: _below(s, 1.0, lambda v: v / (1.0 - v)),
    lambda r: -_exponential(r, -0.5),
    (-math.inf, 1.0),
)
TOTAL_VARIATION = FDivergence(
    "total_variation",
    lambda log_q, log_p: 0.5 * np.abs(np.exp(log_q) - np.exp(log_p)),
    _variation_conjugate,
    _variation_score,
    (-math.inf, 0.5),
)
#: All divergences by name.
DIVERGENCES = {
    one.name: one
    for one in (
        KL,
        REVERSE_KL,
        JENSEN_SHANNON,
        TWICE_JENSEN_SHANNON,
        PEARSON,
        SQUARED_HELLINGER,
        TOTAL_VARIATION,
    )
}


def as_divergence(divergence: str | FDivergence) -> FDivergence:
    """A divergence from its name."""
    if isinstance(divergence, FDivergence):
        return divergence
    check_choice("divergence", divergence, tuple(DIVERGENCES))
    return DIVERGENCES[divergence]
