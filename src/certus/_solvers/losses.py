"""The solvers' versions of the smooth losses: value, slope and curvature.

Written for speed (one exponential per score, in place); the verifier has its own
formulas and a test compares the two. Scores have shape (n, k), k = 1 for all but
softmax; ``y`` is ±1 of shape (n,) for logistic, integer codes for softmax, or numbers.

Curvature may be replaced by something larger where Newton's method is better off:
Huber's and Tukey's outliers keep a little, so that no step is infinite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, xlogy

from certus.objectives import (
    Binomial,
    Exponential,
    Huber,
    Logistic,
    Poisson,
    Softmax,
    SquaredHinge,
    Tukey,
    Tweedie,
)
from certus.typing import Array

#: Share of its reweighted curvature (slope/residual) that an outlier keeps.
KEPT = 0.02
#: Rows from which a scale is first looked for in every ``STRIDE``-th of them.
MANY_ROWS, STRIDE = 20_000, 16


class HuberScale(NamedTuple):
    """σ + σ·H(e/σ) at the best σ ≥ 0, H(t) = t² or 2·epsilon·abs(t) − epsilon².

    The one loss whose value depends on all rows at once, through σ.
    """

    epsilon: float


class Slopes(NamedTuple):
    """Loss of each row, its slope in z, and what the curvature is made of."""

    value: Array  # (n,)
    slope: Array  # (n, k)
    state: Array  # one score: ℓ'', (n, 1); softmax: P, (n, k); HuberScale: (n, 3)


def evaluate(loss: Any, y: Array, z: Array, s: Array | None = None) -> Slopes:
    """Loss, slope and curvature state at scores ``z``; ``s`` are the row weights."""
    formulas = FORMULAS.get(type(loss))
    if formulas is None:
        raise TypeError(f"no solver formulas for the loss {loss!r}")
    return formulas(loss, y, z, s)


def _logistic(loss: Logistic, y: Array, z: Array, s: Array | None) -> Slopes:
    margin = y * z[:, 0]
    small = np.exp(-np.abs(margin))  # in (0, 1]: no overflow on either side
    value = np.log1p(small)
    value -= np.minimum(margin, 0.0)
    inverse = 1.0 / (1.0 + small)
    curvature = small * inverse * inverse
    probability = np.where(margin >= 0, small * inverse, inverse)  # of the other label
    return Slopes(value, (-y * probability)[:, None], curvature[:, None])


def _softmax(loss: Softmax, y: Array, z: Array, s: Array | None) -> Slopes:
    rows = np.arange(len(y))
    shifted = z - z.max(axis=1, keepdims=True)
    own = shifted[rows, y].copy()
    P = np.exp(shifted, out=shifted)
    total = P.sum(axis=1)
    value = np.log(total) - own
    P /= total[:, None]
    slope = P.copy()
    slope[rows, y] -= 1.0
    return Slopes(value, slope, P)


def _huber(loss: Huber, y: Array, z: Array, s: Array | None) -> Slopes:
    e = z[:, 0] - y
    size = np.abs(e)
    slope = np.clip(e, -loss.threshold, loss.threshold)
    value = np.abs(slope) * (size - np.abs(slope) / 2)
    outside = size > loss.threshold
    state = np.ones(len(y))
    state[outside] = KEPT * loss.threshold / size[outside]
    return Slopes(value, slope[:, None], state[:, None])


def _huber_scale(loss: HuberScale, y: Array, z: Array, s: Array | None) -> Slopes:
    r = y - z[:, 0]
    weight = np.ones(len(r)) if s is None else s
    sigma, eps = huber_scale(r, weight, loss.epsilon), loss.epsilon
    size = np.abs(r)
    if sigma == 0.0:
        state = np.zeros((len(r), 3))
        state[:, 0] = KEPT * 2 * eps / np.maximum(size, 1e-300)
        return Slopes(2 * eps * size, (-2 * eps * np.sign(r))[:, None], state)
    t = r / sigma
    clipped = np.clip(t, -eps, eps)
    inside = np.abs(t) <= eps
    height = np.abs(clipped)
    value = sigma + sigma * height * (2 * np.abs(t) - height)
    h = np.full(len(r), 2 / sigma)
    h[~inside] = KEPT * 2 * eps / size[~inside]
    # σ depends on the residuals: a rank-one term, along those of the inliers.
    t = np.where(inside, t, 0.0)
    total = float(weight @ np.square(t))
    turn = weight * t / total if total > 0 else np.zeros(len(r))
    state = np.column_stack([h, (2 / sigma) * t, turn])
    return Slopes(value, (-2 * clipped)[:, None], state)


def huber_scale(r: Array, s: Array, epsilon: float) -> float:
    """The best σ for residuals r: mean min(r²/σ², epsilon²) = 1, or 0.

    In τ = 1/σ² the left-hand side is concave and piecewise linear; from its second
    step on Newton's method climbs to the root from the left, in finitely many steps.
    """
    total = float(s.sum())
    unit = float(np.abs(r).max(initial=0.0))
    if unit == 0.0:
        return 0.0
    squares = np.square(r / unit)
    tau = total / float(s @ squares)
    if len(r) > MANY_ROWS:  # a sample tells where to begin, on either side
        guess = huber_scale(r[::STRIDE], s[::STRIDE], epsilon)
        tau = max(tau, (unit / guess) ** 2) if guess > 0 else tau
    for _ in range(60):
        inside = squares * tau <= epsilon**2
        left = float(s @ np.where(inside, squares, 0.0))
        room = total - epsilon**2 * float(s @ ~inside)
        if left <= 0.0 or room <= 0.0:
            return 0.0
        new = room / left
        if abs(new - tau) <= 1e-15 * tau:
            break
        tau = new
    return unit / float(np.sqrt(tau))


def _tukey(loss: Tukey, y: Array, z: Array, s: Array | None) -> Slopes:
    e = z[:, 0] - y
    left = np.maximum(1 - np.square(e / loss.threshold), 0.0)
    value = loss.threshold**2 / 6 * (1 - left**3)
    weight = left * left
    curvature = np.maximum(left * (5 * left - 4), KEPT * weight)
    return Slopes(value, (e * weight)[:, None], curvature[:, None])


def _poisson(loss: Poisson, y: Array, z: Array, s: Array | None) -> Slopes:
    mean = np.exp(z[:, 0])
    value = mean - y * z[:, 0] + xlogy(y, y) - y
    return Slopes(value, (mean - y)[:, None], mean[:, None])


def _exponential(loss: Exponential, y: Array, z: Array, s: Array | None) -> Slopes:
    share = y * np.exp(-z[:, 0])
    value = share + z[:, 0] - np.log(y) - 1
    return Slopes(value, (1 - share)[:, None], share[:, None])


def _tweedie(loss: Tweedie, y: Array, z: Array, s: Array | None) -> Slopes:
    a, b, score = loss.power - 1, 2 - loss.power, z[:, 0]
    first = np.exp(b * score)
    with np.errstate(over="ignore", invalid="ignore"):
        second = np.where(y > 0, y * np.exp(-a * score), 0.0)
    value = first / b + second / a - y**b / (a * b)
    curvature = b * first + a * second
    return Slopes(value, (first - second)[:, None], curvature[:, None])


def _binomial(loss: Binomial, y: Array, z: Array, s: Array | None) -> Slopes:
    m, score = loss.trials, z[:, 0]
    p = expit(score)
    rest = m - y
    value = m * np.logaddexp(0.0, score) - y * score
    value += xlogy(y, y / m) + xlogy(rest, rest / m)
    curvature = m * p * expit(-score)
    return Slopes(value, (m * p - y)[:, None], curvature[:, None])


def _squared_hinge(loss: SquaredHinge, y: Array, z: Array, s: Array | None) -> Slopes:
    short = np.maximum(1.0 - y * z[:, 0], 0.0)
    curvature = 2.0 * (short > 0)
    return Slopes(short * short, (-2 * y * short)[:, None], curvature[:, None])


FORMULAS: dict[type, Callable[..., Slopes]] = {
    Logistic: _logistic,
    Softmax: _softmax,
    Huber: _huber,
    HuberScale: _huber_scale,
    Tukey: _tukey,
    Poisson: _poisson,
    Exponential: _exponential,
    Tweedie: _tweedie,
    Binomial: _binomial,
    SquaredHinge: _squared_hinge,
}


def apply_curvature(loss: Any, state: Array, D: Array) -> Array:
    """ℓ''(z)·D by rows: h∘D for one score, P∘D − P(P·D) for softmax."""
    if isinstance(loss, HuberScale):
        return state[:, :1] * D - np.outer(state[:, 1], state[:, 2] @ D)
    if not isinstance(loss, Softmax):
        return state * D
    PD = state * D
    PD -= state * PD.sum(axis=1, keepdims=True)
    return PD


def mean_curvature(loss: Any, state: Array, weight: Array) -> Array:
    """Weighted mean of the k × k curvature matrices."""
    total = weight.sum()
    if not isinstance(loss, Softmax):
        return np.array([[float(weight @ state[:, 0]) / total]])
    weighted = state * weight[:, None]
    return np.diag(weighted.sum(axis=0) / total) - state.T @ weighted / total


# -- the best constant ------------------------------------------------------------

#: Rows that the best constant of a robust loss is estimated on.
CONSTANT_ROWS = 4_000


def best_constant(loss: Any, y: Array, s: Array) -> float:
    """The b that minimises Σ s ℓ(y, b), or near it: where to start."""
    constant: Callable[..., float] = CONSTANTS.get(type(loss), _median)
    return constant(loss, y, s)


def _median(loss: Any, y: Array, s: Array) -> float:
    return middle(y, s)


def _log_mean(loss: Any, y: Array, s: Array) -> float:
    return float(np.log(max(float(s @ y) / float(s.sum()), 1e-300)))


def _log_odds(loss: Binomial, y: Array, s: Array) -> float:
    share = float(s @ y) / float(s.sum()) / loss.trials
    share = min(max(share, 1e-300), 1 - 1e-16)
    return float(np.log(share) - np.log1p(-share))


#: Constants in closed form (Tukey: where it starts); others are improved from a median.
CONSTANTS: dict[type, Callable[..., float]] = {
    Poisson: _log_mean,
    Exponential: _log_mean,
    Tweedie: _log_mean,
    Binomial: _log_odds,
    Tukey: _median,
}


def constant_loss(loss: Any, y: Array, s: Array, intercept: bool) -> float:
    """Mean loss of the best constant; of 0 where the intercept is not free."""
    b = best_constant(loss, y, s) if intercept else 0.0
    if type(loss) not in CONSTANTS:
        step = max(1, len(y) // CONSTANT_ROWS)
        y, s = y[::step], s[::step]
        s = s if s.sum() > 0 else np.ones(len(y))
        total = float(s.sum())
        for _ in range(20 if intercept else 0):
            found = evaluate(loss, y, np.full((len(y), 1), b), s)
            slope, curvature = s @ found.slope[:, 0], s @ found.state[:, 0]
            if abs(slope) <= 1e-9 * total or curvature <= 0:
                break
            b -= float(slope / curvature)
    value = evaluate(loss, y, np.full((len(y), 1), b), s).value
    return float(s @ value) / float(s.sum())


def middle(y: Array, s: Array) -> float:
    """A weighted median."""
    order = np.argsort(y)
    mass = np.cumsum(s[order])
    return float(y[order[np.searchsorted(mass, mass[-1] / 2)]])
