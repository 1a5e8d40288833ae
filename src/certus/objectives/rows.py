"""One row per loss: everything that users can ask about it, in plain NumPy.

Most losses are a function of one number: of the residual e = z − y, or of the margin
m = yz of a label ±1. Their rows are written in that number and turned into formulas in
(y, z) by :func:`of_residual` and :func:`of_margin`; the rest are written in (y, z).

Curvature is ∂²ℓ/∂z². Where it jumps, the larger of its two sides counts; where the
slope jumps, it is infinite. So the smoothness of a loss, the smallest L with
abs(ℓ'(z) − ℓ'(x)) ≤ L·abs(z − x), is the supremum of abs(ℓ'').

The verifier has its own rows. Neither reads the other's; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import entr, expit, gammaln, log_softmax, softmax, xlogy

from certus.objectives import terms as t
from certus.typing import Array

Formula = Callable[..., Any]

RESIDUAL, MARGIN, SCORE = "residual y − z", "margin yz", "score z, at y = 1"
#: How far beyond its domain a slope may lie and be taken for rounding.
ROUNDING = 1e-12


class LossFormulas(NamedTuple):
    """What is known of a loss; each formula takes the term first."""

    value: Formula  # (term, y, z)
    slope: Formula  # ∂ℓ/∂z; at a kink one of its subgradients
    curvature: Formula  # ∂²ℓ/∂z²
    conjugate: Formula  # (term, y, u), infinite outside its domain
    smoothness: Formula  # (term) → the largest abs(ℓ''), over all targets
    depends_on: str  # RESIDUAL, MARGIN or SCORE
    allowed: Formula  # (term, y) → which targets it takes
    targets: str  # which these are, in words
    convex: bool = True
    calibrated: Formula = lambda term: None  # (term); None: not one of the margin
    log_density: Formula | None = None  # (term, y, z, scale), if it is a likelihood
    has_scale: bool = False
    whole_targets: bool = False  # whether the likelihood is one of whole numbers
    by_rows: bool = False  # scores come in rows, one for each class


# -- helpers ----------------------------------------------------------------------


def _constant(number: float) -> Formula:
    return lambda term: number


def _always(term: Any) -> bool:
    return True


def _finite(term: Any, y: Array) -> Array:
    return np.isfinite(y)


def _inside(value: Any, u: Array, low: Any, high: Any) -> Array:
    """The value where low ≤ u ≤ high, up to rounding; infinite elsewhere."""
    slack = ROUNDING * np.maximum(1.0, np.where(np.isinf(high), 1.0, np.abs(high)))
    return np.where((u >= low - slack) & (u <= high + slack), value, np.inf)


def _only_at_zero(term: Any, u: Array) -> Array:
    """The conjugate of a bounded loss: only horizontal lines stay below it."""
    return np.where(u == 0, 0.0, np.inf)


def _kink(where: Array) -> Array:
    return np.where(where, np.inf, 0.0)


def _xlogx(x: Array) -> Array:
    return -entr(np.maximum(x, 0.0))


def of_residual(
    value: Formula,
    slope: Formula,
    curvature: Formula,
    conjugate: Formula,
    smoothness: float,
    **more: Any,
) -> LossFormulas:
    """The row of ℓ(y, z) = g(z − y), whose conjugate is uy + g*(u)."""
    return LossFormulas(
        lambda term, y, z: value(term, z - y),
        lambda term, y, z: slope(term, z - y),
        lambda term, y, z: curvature(term, np.abs(z - y)),
        lambda term, y, u: u * y + conjugate(term, u),
        _constant(smoothness),
        **{
            "depends_on": RESIDUAL,
            "allowed": _finite,
            "targets": "finite numbers",
            "calibrated": _always,
            **more,
        },
    )


def of_margin(
    value: Formula,
    slope: Formula,
    curvature: Formula,
    conjugate: Formula,
    smoothness: float,
    **more: Any,
) -> LossFormulas:
    """The row of ℓ(y, z) = φ(yz) with y = ±1; ``conjugate`` is φ*(−q), q = −uy."""
    return LossFormulas(
        lambda term, y, z: value(term, y * z),
        lambda term, y, z: y * slope(term, y * z),
        lambda term, y, z: curvature(term, y * z),
        lambda term, y, u: conjugate(term, -u * y),
        _constant(smoothness),
        **{
            "depends_on": MARGIN,
            "allowed": lambda term, y: np.abs(y) == 1,
            "targets": "+1 or −1 (2y − 1 turns 0 and 1 into these)",
            "calibrated": _always,
            **more,
        },
    )


# -- residuals --------------------------------------------------------------------


def _huber_value(term: t.Huber, e: Array) -> Array:
    held = np.minimum(np.abs(e), term.threshold)
    return held * (np.abs(e) - held / 2)


def _tukey_value(term: t.Tukey, e: Array) -> Array:
    x = np.square(np.minimum(np.abs(e) / term.threshold, 1.0))
    return term.threshold**2 / 6 * (x * (3 + x * (x - 3)))


def _tukey_slope(term: t.Tukey, e: Array) -> Array:
    left = np.maximum(1 - np.square(e / term.threshold), 0.0)
    return np.where(left > 0, e, 0.0) * left**2


def _tukey_curvature(term: t.Tukey, a: Array) -> Array:
    left = np.maximum(1 - np.square(a / term.threshold), 0.0)
    return left * (5 * left) - 4 * left


def _outside(term: Any, e: Array) -> Array:
    """How far a residual lies outside the tube."""
    return np.maximum(np.abs(e) - term.epsilon, 0.0)


def _normal(term: t.Squared, y: Array, z: Array, scale: float) -> Array:
    standard = (y - z) / scale
    return -np.square(standard) / 2 - np.log(scale * np.sqrt(2 * np.pi))


def _laplace(term: t.Absolute, y: Array, z: Array, scale: float) -> Array:
    return -np.abs(y - z) / scale - np.log(2 * scale)


# -- margins ----------------------------------------------------------------------


def _modified_huber_value(term: t.ModifiedHuber, m: Array) -> Array:
    short = np.maximum(1 - m, 0.0)
    near = np.minimum(short, 2.0)
    return near * (2 * short - near)


# -- likelihoods of counts and of positive numbers --------------------------------


def _binomial_value(term: t.Binomial, y: Array, z: Array) -> Array:
    n, misses = term.trials, term.trials - y
    least = xlogy(y, y / n) + xlogy(misses, misses / n)
    return y * np.logaddexp(0.0, -z) + misses * np.logaddexp(0.0, z) + least


def _binomial_conjugate(term: t.Binomial, y: Array, u: Array) -> Array:
    n, mean = term.trials, u + y
    value = _xlogx(mean) + _xlogx(n - mean) - _xlogx(y) - _xlogx(n - y)
    return _inside(value, mean, 0.0, float(n))


def _binomial_density(term: t.Binomial, y: Array, z: Array, scale: float) -> Array:
    n = term.trials
    ways = gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1)
    return ways - y * np.logaddexp(0.0, -z) - (n - y) * np.logaddexp(0.0, z)


def _poisson_conjugate(term: t.Poisson, y: Array, u: Array) -> Array:
    mean = u + y
    value = _xlogx(mean) - np.maximum(mean, 0.0) - _xlogx(y) + y
    return np.where(mean >= -ROUNDING * np.maximum(1.0, y), value, np.inf)


def _exponential_conjugate(term: t.Exponential, y: Array, u: Array) -> Array:
    return _inside(u * (np.log(y) + 1) + _xlogx(1 - u), u, -np.inf, 1.0)


def _tweedie_value(term: t.Tweedie, y: Array, z: Array) -> Array:
    p = term.power
    least = y ** (2 - p) / ((2 - p) * (p - 1))
    return _tweedie_parts(term, y, z).sum(axis=0) - least


def _tweedie_parts(term: t.Tweedie, y: Array, z: Array) -> Array:
    """The two exponentials; y = 0 has only the first."""
    p = term.power
    second = np.where(y > 0, y * np.exp((1 - p) * z), 0.0)
    return np.stack([np.exp((2 - p) * z) / (2 - p), second / (p - 1)])


def _tweedie_slope(term: t.Tweedie, y: Array, z: Array) -> Array:
    first, second = _tweedie_parts(term, y, z)
    return (2 - term.power) * first - (term.power - 1) * second


def _tweedie_curvature(term: t.Tweedie, y: Array, z: Array) -> Array:
    first, second = _tweedie_parts(term, y, z)
    return (2 - term.power) ** 2 * first + (term.power - 1) ** 2 * second


def _tweedie_conjugate(term: t.Tweedie, y: Array, u: Array) -> Array:
    """u·z − ℓ at the score z of slope u, by halving an interval that holds it."""
    p = term.power
    some = np.where(y > 0, y, 1.0)
    high = np.log1p(np.maximum(u, 0) + some) / (2 - p)
    low = -np.log1p((1 + np.maximum(-u, 0)) / some) / (p - 1)
    for _ in range(200):
        z = (low + high) / 2
        above = _tweedie_slope(term, some, z) > u
        low, high = np.where(above, low, z), np.where(above, z, high)
    inside = u * z - _tweedie_value(term, some, z)
    none = np.where(u > 0, u * np.log(np.where(u > 0, u, 1.0)) - u, 0.0) / (2 - p)
    none = np.where(u >= 0, none, np.inf)  # targets of zero: one exponential
    return np.where(y > 0, inside, none)


# -- softmax ----------------------------------------------------------------------


def _shares(y: Array, k: int) -> Array:
    """Rows of probabilities: of 0 and 1 where y holds codes."""
    return y if y.ndim == 2 else np.eye(k)[y]


def _softmax_value(term: t.Softmax, y: Array, z: Array) -> Array:
    log = log_softmax(z, axis=1)
    if y.ndim == 1:
        return -np.take_along_axis(log, y[:, None], axis=1)[:, 0]
    return -np.where(y > 0, y * np.where(y > 0, log, 0.0), 0.0).sum(axis=1)


def _softmax_slope(term: t.Softmax, y: Array, z: Array) -> Array:
    return softmax(z, axis=1) - _shares(y, term.n_classes)


def _softmax_curvature(term: t.Softmax, y: Array, z: Array) -> Array:
    P = softmax(z, axis=1)
    return np.eye(term.n_classes) * P[:, None] - P[:, :, None] * P[:, None]


def _softmax_conjugate(term: t.Softmax, y: Array, u: Array) -> Array:
    P = u + _shares(y, term.n_classes)
    sums = np.abs(P.sum(axis=1) - 1) <= 1e-9
    inside = sums & (P >= -ROUNDING).all(axis=1)
    return np.where(inside, _xlogx(P).sum(axis=1), np.inf)


# -- the table --------------------------------------------------------------------

LOSSES: dict[type, LossFormulas] = {
    t.Squared: of_residual(
        lambda _, e: np.square(e) / 2,
        lambda _, e: e,
        lambda _, a: np.ones(a.shape),
        lambda _, u: np.square(u) / 2,
        1.0,
        log_density=_normal,
        has_scale=True,
    ),
    t.Absolute: of_residual(
        lambda _, e: np.abs(e),
        lambda _, e: np.sign(e),
        lambda _, a: _kink(a == 0),
        lambda _, u: _inside(0.0, u, -1.0, 1.0),
        np.inf,
        log_density=_laplace,
        has_scale=True,
    ),
    t.Huber: of_residual(
        _huber_value,
        lambda term, e: np.clip(e, -term.threshold, term.threshold),
        lambda term, a: np.where(a <= term.threshold, 1.0, 0.0),
        lambda term, u: _inside(np.square(u) / 2, u, -term.threshold, term.threshold),
        1.0,
    ),
    t.Tukey: of_residual(
        _tukey_value,
        _tukey_slope,
        _tukey_curvature,
        _only_at_zero,
        1.0,
        convex=False,  # but calibrated by the definition itself
    ),
    t.Quantile: of_residual(
        lambda term, e: np.maximum((1 - term.q) * e, -term.q * e),
        lambda term, e: (1 - term.q) * (e > 0) - term.q * (e < 0),
        lambda _, a: _kink(a == 0),
        lambda term, u: _inside(0.0, u, -term.q, 1 - term.q),
        np.inf,
        calibrated=lambda term: True if term.q == 0.5 else None,
    ),
    t.EpsilonInsensitive: of_residual(
        _outside,
        lambda term, e: np.where(np.abs(e) > term.epsilon, np.sign(e), 0.0),
        lambda term, a: _kink(a == term.epsilon),
        lambda term, u: _inside(term.epsilon * np.abs(u), u, -1.0, 1.0),
        np.inf,
        calibrated=lambda term: term.epsilon < 1,
    ),
    t.SquaredEpsilonInsensitive: of_residual(
        lambda term, e: np.square(_outside(term, e)),
        lambda term, e: 2 * np.copysign(_outside(term, e), e),
        lambda term, a: np.where(a >= term.epsilon, 2.0, 0.0),
        lambda term, u: term.epsilon * np.abs(u) + np.square(u) / 4,
        2.0,
        calibrated=lambda term: term.epsilon < 1,
    ),
    t.Logistic: of_margin(
        lambda _, m: np.logaddexp(0.0, -m),
        lambda _, m: -expit(-m),
        lambda _, m: expit(m) * expit(-m),
        lambda _, q: _inside(_xlogx(q) + _xlogx(1 - q), q, 0.0, 1.0),
        0.25,
        log_density=lambda _, y, z, scale: -np.logaddexp(0.0, -y * z),
    ),
    t.Hinge: of_margin(
        lambda term, m: np.maximum(term.margin - m, 0.0),
        lambda term, m: np.where(m <= term.margin, -1.0, 0.0),
        lambda term, m: _kink(m == term.margin),
        lambda term, q: _inside(-term.margin * q, q, 0.0, 1.0),
        np.inf,
        calibrated=lambda term: term.margin > 0,
    ),
    t.SquaredHinge: of_margin(
        lambda _, m: np.square(np.maximum(1 - m, 0.0)),
        lambda _, m: -2 * np.maximum(1 - m, 0.0),
        lambda _, m: np.where(m <= 1, 2.0, 0.0),
        lambda _, q: _inside(q * (q / 4 - 1), q, 0.0, np.inf),
        2.0,
    ),
    t.ModifiedHuber: of_margin(
        _modified_huber_value,
        lambda _, m: -2 * np.clip(1 - m, 0.0, 2.0),
        lambda _, m: np.where(np.abs(m) <= 1, 2.0, 0.0),
        lambda _, q: _inside(q * (q / 4 - 1), q, 0.0, 4.0),
        2.0,
    ),
    t.ExponentialMargin: of_margin(
        lambda _, m: np.exp(-m),
        lambda _, m: -np.exp(-m),
        lambda _, m: np.exp(-m),
        lambda _, q: _inside(_xlogx(q) - q, q, 0.0, np.inf),
        np.inf,
    ),
    t.ZeroOne: of_margin(
        lambda _, m: np.where(m > 0, 0.0, 1.0),
        lambda _, m: np.zeros(m.shape),
        lambda _, m: _kink(m == 0),
        _only_at_zero,
        np.inf,
        convex=False,  # but calibrated by the definition itself
    ),
    t.Binomial: LossFormulas(
        _binomial_value,
        lambda term, y, z: term.trials * expit(z) - y,
        lambda term, y, z: term.trials * expit(z) * expit(-z),
        _binomial_conjugate,
        lambda term: term.trials / 4,
        SCORE,
        lambda term, y: (y >= 0) & (y <= term.trials),
        "between 0 and trials = {trials}",
        log_density=_binomial_density,
        whole_targets=True,
    ),
    t.Exponential: LossFormulas(
        lambda _, y, z: y * np.exp(-z) - np.log(y) + z - 1,
        lambda _, y, z: 1 - y * np.exp(-z),
        lambda _, y, z: y * np.exp(-z),
        _exponential_conjugate,
        _constant(np.inf),
        SCORE,
        lambda _, y: np.isfinite(y) & (y > 0),
        "positive",
        log_density=lambda _, y, z, scale: -z - y * np.exp(-z),
    ),
    t.Poisson: LossFormulas(
        lambda _, y, z: np.exp(z) - y * z + _xlogx(y) - y,
        lambda _, y, z: np.exp(z) - y,
        lambda _, y, z: np.exp(z),
        _poisson_conjugate,
        _constant(np.inf),
        SCORE,
        lambda _, y: np.isfinite(y) & (y >= 0),
        "counts, 0 or more",
        log_density=lambda _, y, z, scale: y * z - np.exp(z) - gammaln(y + 1),
        whole_targets=True,
    ),
    t.Tweedie: LossFormulas(
        _tweedie_value,
        _tweedie_slope,
        _tweedie_curvature,
        _tweedie_conjugate,
        _constant(np.inf),
        SCORE,
        lambda _, y: np.isfinite(y) & (y >= 0),
        "0 or more",
    ),
    t.Softmax: LossFormulas(
        _softmax_value,
        _softmax_slope,
        _softmax_curvature,
        _softmax_conjugate,
        _constant(0.5),  # reached by two classes of probability ½
        SCORE,
        _finite,
        "codes or probabilities",
        log_density=lambda term, y, z, scale: -_softmax_value(term, y, z),
        by_rows=True,
    ),
}
