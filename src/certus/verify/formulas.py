"""The verifier's own formulas: each loss and penalty in plain NumPy float64.

For a loss ℓ(y, z): value, derivative in z, conjugate ℓ*(u) = sup_z uz − ℓ(y, z), and
the repair that moves a dual point onto Σ sᵢuᵢ = 0, which an unpenalised intercept
demands. For a penalty Ω: value, conjugate Ω*, and the level α of its L1 part. Nothing
here is shared with a solver; a test compares both sides on random input.

Scores ``z`` and dual points ``u`` have shape (n,), for softmax (n, n_classes). Labels
of margin losses are ±1, of softmax integer codes or rows of probabilities. Losses that
are not convex have conjugates too: the bounds they give hold, but are never tight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logsumexp, xlogy

from certus import terms as t

Array = np.ndarray[Any, np.dtype[Any]]


class LossFormulas(NamedTuple):
    """The four formulas of a loss; each takes the term first."""

    value: Callable[..., Array]
    derivative: Callable[..., Array]
    conjugate: Callable[..., Array]
    centre: Callable[..., Array]
    text: str


# -- repairs: a dual point with Σ s u = 0 -----------------------------------------


def _centre(term: t.Loss, y: Array, u: Array, s: Array) -> Array:
    return u - (s @ u) / s.sum()


def _shrink_heavier_side(term: t.Loss, y: Array, u: Array, s: Array) -> Array:
    """Scale the sign that outweighs the other; 0 lies in every dual domain used."""
    up, down = s @ np.maximum(u, 0.0), s @ np.maximum(-u, 0.0)
    if up == down:
        return u
    if up > down:
        return np.where(u > 0, u * (down / up), u)
    return np.where(u < 0, u * (up / down), u)


def _rescale_means(term: t.Loss, y: Array, u: Array, s: Array) -> Array:
    mean = u + y
    total = s @ mean
    return mean * ((s @ y) / total) - y if total > 0 else u


def _rescale_ratios(term: t.Loss, y: Array, u: Array, s: Array) -> Array:
    """The same for u = 1 − y/mean, whose ratios must average one."""
    ratio = 1.0 - u
    total = s @ ratio
    return 1.0 - ratio * (s.sum() / total) if total > 0 else u


def _mix_classes(term: t.Softmax, y: Array, u: Array, s: Array) -> Array:
    """P ← (1 − t)P + t·1qᵀ with the smallest t that leaves q ≥ 0."""
    n_classes = term.n_classes
    P = u + one_hot(y, n_classes)
    observed = np.bincount(y, weights=s, minlength=n_classes)
    predicted = s @ P
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(predicted > 0, 1.0 - observed / predicted, 0.0)
    mix = float(max(0.0, share.max()))
    if mix == 0.0:
        return u
    q = np.maximum((observed - (1 - mix) * predicted) / (mix * s.sum()), 0.0)
    if q.sum() == 0.0:  # the shares differ by rounding alone
        return u
    return (1 - mix) * P + mix * (q / q.sum()) - one_hot(y, n_classes)


def one_hot(y: Array, n_classes: int) -> Array:
    """Rows of the identity picked by integer codes; distributions stay as they are."""
    if y.ndim == 2:
        return np.asarray(y, dtype=float)
    out = np.zeros((len(y), n_classes))
    out[np.arange(len(y)), y] = 1.0
    return out


# -- conjugates that need a domain ------------------------------------------------


def _margin(u: Array, y: Array, top: float) -> tuple[Array, Array]:
    """The margin form v = −uy and whether it lies in [0, top], up to rounding."""
    v = -u * y
    slack = 1e-12 * max(1.0, min(top, 1.0))
    return np.clip(v, 0.0, top), (v >= -slack) & (v <= top + slack)


def _within(value: Array, inside: Array) -> Array:
    return np.where(inside, value, np.inf)


def _logistic_conjugate(_: t.Logistic, y: Array, u: Array) -> Array:
    v, inside = _margin(u, y, 1.0)
    return _within(xlogy(v, v) + xlogy(1 - v, 1 - v), inside)


def _hinge_conjugate(term: t.Hinge, y: Array, u: Array) -> Array:
    v, inside = _margin(u, y, 1.0)
    return _within(-term.margin * v, inside)


def _squared_hinge_conjugate(_: t.SquaredHinge, y: Array, u: Array) -> Array:
    v, inside = _margin(u, y, np.inf)
    return _within(v * v / 4 - v, inside)


def _modified_huber_conjugate(_: t.ModifiedHuber, y: Array, u: Array) -> Array:
    v, inside = _margin(u, y, 4.0)
    return _within(v * v / 4 - v, inside)


def _quantile_conjugate(term: t.Quantile, y: Array, u: Array) -> Array:
    slack = 1e-12
    return _within(u * y, (u >= -term.q - slack) & (u <= 1 - term.q + slack))


def _bounded_conjugate(_: t.Loss, y: Array, u: Array) -> Array:
    """A bounded loss lies above horizontal lines alone; the highest of them is 0."""
    return _within(np.zeros(np.shape(u)), u == 0)


def _exponential_margin_conjugate(_: t.Loss, y: Array, u: Array) -> Array:
    v, inside = _margin(u, y, np.inf)
    return _within(xlogy(v, v) - v, inside)


def _binomial_conjugate(term: t.Binomial, y: Array, u: Array) -> Array:
    n = term.trials
    mean, slack = np.clip(u + y, 0.0, n), 1e-12 * n
    value = xlogy(mean, mean) + xlogy(n - mean, n - mean)
    value = value - xlogy(y, y) - xlogy(n - y, n - y)
    return _within(value, (u + y >= -slack) & (u + y <= n + slack))


def _exponential_conjugate(_: t.Exponential, y: Array, u: Array) -> Array:
    ratio = np.maximum(1.0 - u, 0.0)
    return _within(u * np.log(y) + xlogy(ratio, ratio) + u, u <= 1 + 1e-12)


def _poisson_conjugate(_: t.Poisson, y: Array, u: Array) -> Array:
    mean = np.maximum(u + y, 0.0)
    value = xlogy(mean, mean) - mean - xlogy(y, y) + y
    return _within(value, u + y >= -1e-12 * np.maximum(1.0, y))


def _softmax_conjugate(term: t.Softmax, y: Array, u: Array) -> Array:
    P = u + one_hot(y, term.n_classes)
    inside = (P.min(1) >= -1e-12) & (np.abs(P.sum(1) - 1) <= 1e-9)
    P = np.maximum(P, 0.0)
    return _within(xlogy(P, P).sum(1), inside)


def into_domain(term: t.Loss, y: Array, u: Array) -> Array:
    """The nearest dual point with a finite conjugate, for losses of one score.

    A dual point that a solver hands over is feasible up to its rounding.
    """
    low, high = np.full(len(y), -np.inf), np.full(len(y), np.inf)
    match term:
        case t.Huber(delta):
            low, high = low.clip(min=-delta), high.clip(max=delta)
        case t.Quantile(q):
            low, high = low.clip(min=-q), high.clip(max=1 - q)
        case t.Absolute() | t.EpsilonInsensitive():
            low, high = low.clip(min=-1.0), high.clip(max=1.0)
        case t.Tukey() | t.ZeroOne():
            low, high = np.zeros(len(y)), np.zeros(len(y))
        case t.Poisson():
            low = -y
        case t.Binomial(trials):
            low, high = -y, trials - y
        case t.Exponential():
            high = high.clip(max=1.0)
        case t.ExponentialMargin():
            low, high = np.where(y > 0, low, 0.0), np.where(y > 0, 0.0, high)
        case t.Logistic() | t.Hinge() | t.SquaredHinge() | t.ModifiedHuber():
            tops: dict[type, float] = {t.SquaredHinge: np.inf, t.ModifiedHuber: 4.0}
            top = tops.get(type(term), 1.0)
            low, high = np.where(y > 0, -top, 0.0), np.where(y > 0, 0.0, top)
    return np.clip(u, low, high)


# -- values and derivatives -------------------------------------------------------


def _huber_value(term: t.Huber, y: Array, z: Array) -> Array:
    e = np.abs(y - z)
    return np.where(e <= term.delta, e * e / 2, term.delta * (e - term.delta / 2))


def _tukey_value(term: t.Tukey, y: Array, z: Array) -> Array:
    x = np.minimum(np.abs(y - z) / term.delta, 1.0) ** 2
    # 1 − (1 − x)³, without the cancellation
    return np.asarray(term.delta**2 / 6 * x * (3 - 3 * x + x * x))


def _tukey_derivative(term: t.Tukey, y: Array, z: Array) -> Array:
    e = np.where(np.abs(z - y) < term.delta, z - y, 0.0)
    return np.asarray(e * (1 - (e / term.delta) ** 2) ** 2)


def _binomial_value(term: t.Binomial, y: Array, z: Array) -> Array:
    n = term.trials
    constant = xlogy(y, y / n) + xlogy(n - y, (n - y) / n)
    loss = y * np.logaddexp(0.0, -z) + (n - y) * np.logaddexp(0.0, z)
    return np.asarray(loss + constant)


def _modified_huber_value(_: t.ModifiedHuber, y: Array, z: Array) -> Array:
    m = y * z
    return np.where(m >= -1, np.maximum(0.0, 1 - m) ** 2, -4 * m)


def _softmax_value(_: t.Softmax, y: Array, z: Array) -> Array:
    if y.ndim == 2:  # soft targets; 0·log 0 counts as 0
        own = np.multiply(y, z, where=y > 0, out=np.zeros(z.shape)).sum(axis=1)
    else:
        own = z[np.arange(len(y)), y]
    return np.asarray(logsumexp(z, axis=1) - own)


def _softmax_derivative(term: t.Softmax, y: Array, z: Array) -> Array:
    P = np.exp(z - z.max(1, keepdims=True))
    P /= P.sum(1, keepdims=True)
    if y.ndim == 2:
        return np.asarray(P - y)
    P[np.arange(len(y)), y] -= 1.0
    return P


def _excess(term: Any, y: Array, z: Array) -> Array:
    """How far the residual leaves the insensitive tube."""
    return np.maximum(np.abs(z - y) - term.epsilon, 0.0)


LOSSES: dict[type, LossFormulas] = {
    t.Squared: LossFormulas(
        lambda _, y, z: (y - z) ** 2 / 2,
        lambda _, y, z: z - y,
        lambda _, y, u: u * u / 2 + u * y,
        _centre,
        "½·mean (y − z)²",
    ),
    t.Absolute: LossFormulas(
        lambda _, y, z: np.abs(y - z),
        lambda _, y, z: np.sign(z - y),
        lambda _, y, u: _within(u * y, np.abs(u) <= 1 + 1e-12),
        _shrink_heavier_side,
        "mean |y − z|",
    ),
    t.Huber: LossFormulas(
        _huber_value,
        lambda term, y, z: np.clip(z - y, -term.delta, term.delta),
        lambda term, y, u: _within(
            u * u / 2 + u * y, np.abs(u) <= term.delta * (1 + 1e-12)
        ),
        _shrink_heavier_side,
        "mean Huber_{delta:.3g}(y − z)",
    ),
    t.Tukey: LossFormulas(
        _tukey_value,
        _tukey_derivative,
        _bounded_conjugate,
        _shrink_heavier_side,
        "mean Tukey_{delta:.3g}(y − z)",
    ),
    t.Quantile: LossFormulas(
        lambda term, y, z: np.maximum(term.q * (y - z), (term.q - 1) * (y - z)),
        lambda term, y, z: np.where(z < y, -term.q, np.where(z > y, 1 - term.q, 0.0)),
        _quantile_conjugate,
        _shrink_heavier_side,
        "mean pinball_{q:.3g}(y − z)",
    ),
    t.EpsilonInsensitive: LossFormulas(
        _excess,
        lambda term, y, z: np.sign(z - y) * (np.abs(z - y) > term.epsilon),
        lambda term, y, u: _within(
            u * y + term.epsilon * np.abs(u), np.abs(u) <= 1 + 1e-12
        ),
        _shrink_heavier_side,
        "mean max(0, |y − z| − {epsilon:.3g})",
    ),
    t.SquaredEpsilonInsensitive: LossFormulas(
        lambda term, y, z: _excess(term, y, z) ** 2,
        lambda term, y, z: 2 * np.sign(z - y) * _excess(term, y, z),
        lambda term, y, u: u * y + term.epsilon * np.abs(u) + u * u / 4,
        _shrink_heavier_side,
        "mean max(0, |y − z| − {epsilon:.3g})²",
    ),
    t.Logistic: LossFormulas(
        lambda _, y, z: np.logaddexp(0.0, -y * z),
        lambda _, y, z: -y * expit(-y * z),
        _logistic_conjugate,
        _shrink_heavier_side,
        "mean log(1 + exp(−y·z))",
    ),
    t.Hinge: LossFormulas(
        lambda term, y, z: np.maximum(0.0, term.margin - y * z),
        lambda term, y, z: -y * (y * z < term.margin),
        _hinge_conjugate,
        _shrink_heavier_side,
        "mean max(0, {margin:.3g} − y·z)",
    ),
    t.SquaredHinge: LossFormulas(
        lambda _, y, z: np.maximum(0.0, 1 - y * z) ** 2,
        lambda _, y, z: -2 * y * np.maximum(0.0, 1 - y * z),
        _squared_hinge_conjugate,
        _shrink_heavier_side,
        "mean max(0, 1 − y·z)²",
    ),
    t.ModifiedHuber: LossFormulas(
        _modified_huber_value,
        lambda _, y, z: -y * np.clip(2 * (1 - y * z), 0.0, 4.0),
        _modified_huber_conjugate,
        _shrink_heavier_side,
        "mean modified Huber(y·z)",
    ),
    t.ExponentialMargin: LossFormulas(
        lambda _, y, z: np.exp(-y * z),
        lambda _, y, z: -y * np.exp(-y * z),
        _exponential_margin_conjugate,
        _shrink_heavier_side,
        "mean exp(−y·z)",
    ),
    t.ZeroOne: LossFormulas(
        lambda _, y, z: np.where(y * z <= 0, 1.0, 0.0),
        lambda _, y, z: np.zeros(np.shape(z)),
        _bounded_conjugate,
        _shrink_heavier_side,
        "mean 1[y·z ≤ 0]",
    ),
    t.Binomial: LossFormulas(
        _binomial_value,
        lambda term, y, z: term.trials * expit(z) - y,
        _binomial_conjugate,
        _shrink_heavier_side,
        "mean [{trials:g}·log(1 + exp(z)) − y·z + c(y)]",
    ),
    t.Exponential: LossFormulas(
        lambda _, y, z: y * np.exp(-z) + z - np.log(y) - 1,
        lambda _, y, z: 1 - y * np.exp(-z),
        _exponential_conjugate,
        _rescale_ratios,
        "mean [y·exp(−z) + z − log y − 1]",
    ),
    t.Poisson: LossFormulas(
        lambda _, y, z: np.exp(z) - y * z + xlogy(y, y) - y,
        lambda _, y, z: np.exp(z) - y,
        _poisson_conjugate,
        _rescale_means,
        "mean [exp(z) − y·z + y·log y − y]",
    ),
    t.Softmax: LossFormulas(
        _softmax_value,
        _softmax_derivative,
        _softmax_conjugate,
        _mix_classes,
        "mean [log Σₖ exp(zₖ) − z_y]",
    ),
}


# -- penalties --------------------------------------------------------------------


def split_penalty(penalty: t.Penalty) -> tuple[float, float]:
    """The levels (l1, l2) of l1·‖w‖₁ + ½·l2·‖w‖²."""
    match penalty:
        case t.L1(alpha):
            return float(alpha), 0.0
        case t.L2(alpha):
            return 0.0, float(alpha)
        case t.ElasticNet(l1, l2):
            return float(l1), float(l2)
        case t.NoPenalty():
            return 0.0, 0.0
    raise TypeError(f"no formula for the penalty {penalty!r}")


def penalty_value(penalty: t.Penalty, w: Array) -> float:
    """Ω(w)."""
    l1, l2 = split_penalty(penalty)
    return float(l1 * np.abs(w).sum() + l2 * np.vdot(w, w) / 2)


def penalty_conjugate(penalty: t.Penalty, v: Array) -> float:
    """Ω*(v) where an L2 part makes it finite; with L1 alone v is already feasible."""
    l1, l2 = split_penalty(penalty)
    if l2 == 0.0:
        return 0.0
    over = np.maximum(np.abs(v) - l1, 0.0)
    return float(np.vdot(over, over) / (2 * l2))


def describe(
    loss: t.Loss, penalty: t.Penalty, intercept: str, scale: float = 1.0
) -> str:
    """The objective as one line of text."""
    fields = loss._asdict()
    score = "Xw" if intercept == "none" else "Xw + b"
    text = LOSSES[type(loss)].text.format(**fields)
    if isinstance(loss, t.Squared):
        residual = "y − Xw" if intercept == "none" else "y − Xw − b"
        text = f"½·mean ({residual})²"
    l1, l2 = split_penalty(penalty)
    norm = "‖w‖"
    if intercept == "penalised":
        norm = "‖w,b‖" if scale == 1 else f"‖w,b/{scale:.4g}‖"
    if l1:
        text += f" + {l1:.4g}·{norm}₁"
    if l2:
        text += f" + ½·{l2:.4g}·{norm}²"
    return text if isinstance(loss, t.Squared) else f"{text},  z = {score}"
