"""The verifier's losses: one row for each, with all of its formulas.

For ℓ(y, z), convex in the score z, and u in the domain of its conjugate, the *excess*

    e(z, u) = ℓ(y, z) + ℓ*(u) − uz ≥ 0

is written in a form without cancellation. Dual points are
carried as the number that keeps its digits (``natural``): the slope u itself, the share
q = −uy of a margin loss, the mean m = u + y of a count, the probabilities Q = u + Y.
``rest`` is the natural dual of u = 0, so that a point is shrunk by κ as κq + (1−κ)rest.

Scores and dual points have shape (n,), for softmax (n, n_classes); labels of margin
losses are ±1, of softmax codes. Nothing here is shared with a solver.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logsumexp, softmax

from certus.objectives import terms as t
from certus.typing import Array
from certus.verify.kernel.spaces import TINY, UNIT

Both = tuple[Array, Array]


class LossRow(NamedTuple):
    """The formulas of a loss; every function takes the term first.

    ``excess`` gives e(z, q) for a natural dual q, and the size of what evaluating it
    loses in units of 2⁻⁵³ (0 where that is counted among the errors of z). ``bend``
    says how e grows with an error of z: "smooth" by the curvature, "kink" by the width
    of the slopes, "exponential" by the mean itself. ``repair`` names how a dual point
    is moved onto Σ su = 0 for a free intercept.
    """

    text: str
    value: Callable[..., Array]
    slope: Callable[..., Array]
    excess: Callable[..., Both]
    natural: Callable[..., Array]
    rest: Callable[..., Array]
    slope_of: Callable[..., Array]  # u of a natural dual
    natural_of: Callable[..., Array]  # a natural dual of u, moved into the domain
    domain: Callable[..., tuple[Any, Any]]
    curvature: Callable[..., Array]
    best: Callable[..., Any]  # constant score that minimises Σ sℓ
    takes: str = "numbers"  # | "signs" | "counts" | "codes" | "amounts"
    repair: str = "shrink"  # | "centre" | "rescale" | "mix"
    bend: str = "smooth"
    smooth: Callable[..., float] = lambda _: np.inf  # Lipschitz constant of the slope
    parts: Callable[..., float] = lambda _: 1.0  # "exponential": slope's per curvature
    sound: Callable[..., bool] = lambda _: True
    convex: bool = True


@np.errstate(all="ignore")
def kl(q: Array, p: Array, log_p: Array) -> Both:
    """q·log(q/p) − q + p, and its rounding; ``log_p`` is log p, also where p is 0."""
    gap = q - p
    off, some = np.abs(gap), q > 0
    near = off < p / 2
    # Logarithms of all rows take less time than to pick some, but for those at a pole.
    far = np.log(np.maximum(q, TINY)) - log_p
    ratio = np.where(near, np.log1p(np.maximum(gap, p / -2) / p), far)
    size = np.where(some & ~near, q * (1 + np.abs(ratio) + np.abs(log_p)), 0.0)
    out = np.where(some, q * ratio, 0.0) - gap
    # A q below TINY is off by less than TINY, as −x·log x < 1.
    return np.maximum(out, 0.0), 16 * (off + size + TINY / UNIT)


def one_hot(y: Array, n_classes: int) -> Array:
    """Rows of the identity picked by codes."""
    out = np.zeros((len(y), n_classes))
    out[np.arange(len(y)), y.astype(np.intp)] = 1.0
    return out


# -- what rows share --------------------------------------------------------------


def _zero(_: object, y: Array) -> Array:
    return np.zeros(np.shape(y))


def _plain(excess: Callable[..., Array]) -> Callable[..., Both]:
    """An excess whose rounding is that of scores near the ones given."""

    def both(term: t.Loss, y: Array, z: Array, q: Array) -> Both:
        found = np.maximum(excess(term, y, z, q), 0.0)
        return found, np.zeros(np.shape(found))

    return both


def _clip(domain: Callable[..., tuple[Any, Any]]) -> Callable[..., Array]:
    return lambda term, y, u: u if domain is _line else np.clip(u, *domain(term, y))


def _line(_: object, y: Array) -> tuple[Any, Any]:
    return -np.inf, np.inf


def weighted_quantile(y: Array, s: Array, q: float) -> float:
    """The smallest y below which a share q of the weight lies."""
    if (s == s[:1]).all():
        at = max(0, math.ceil(q * len(y)) - 1)
        return float(np.partition(y, at)[at])
    order = np.argsort(y, kind="stable")
    mass = np.cumsum(s[order])
    at = int(np.searchsorted(mass, q * mass[-1]))
    return float(y[order[min(at, len(order) - 1)]])


def _mean(y: Array, s: Array) -> float:
    return float(np.einsum("i,i", s / s.sum(), y))


def stationary(
    term: t.Loss, y: Array, s: Array, pull: Callable[[float], float] = lambda b: 0.0
) -> float:
    """The constant score b at which mean ℓ'(b) + pull(b), which rises, changes sign."""
    slope, share = LOSSES[type(term)].slope, s / s.sum()

    def total(b: float) -> float:
        each = slope(term, y, np.full(len(y), b))
        return float(np.einsum("i,i", share, each)) + pull(b)

    reach = 4 * float(np.abs(y).max())
    if not total(-reach) < 0 < total(reach):
        return -reach if total(-reach) >= 0 else reach
    return float(brentq(total, -reach, reach, (), 1e-17 * reach, 1e-15, disp=False))


def _log_odds(mean: float, top: float) -> float:
    mean = min(max(mean, 0.0), top)  # a rounded mean may lie outside
    with np.errstate(divide="ignore"):
        return float(np.log(mean) - np.log(top - mean))


# -- residual losses --------------------------------------------------------------


def _quantile_ends(term: t.Quantile, y: Array) -> tuple[float, float]:
    q = float(term.q)
    # The float 1 − q may lie outside of the true interval.
    return -q, max(0.0, float(np.nextafter(1 - q, 0.0)) if q else 1.0)


def _tilted(r: Array, u: Array, low: float, high: float) -> Array:
    """Of a loss of the residual r with slopes ``low`` and ``high``."""
    return np.maximum(r, 0) * (high - u) + np.maximum(-r, 0) * (u - low)


def _tube_excess(term: t.EpsilonInsensitive, y: Array, z: Array, u: Array) -> Array:
    a, eps = np.abs(z - y), term.epsilon
    c = u * np.where(z >= y, 1.0, -1.0)
    out, within = np.maximum(a - eps, 0), np.maximum(eps - a, 0)
    return np.where(c >= 0, (1 - c) * out + c * within, out - c * (eps + a))


def _squared_tube_excess(term: Any, y: Array, z: Array, u: Array) -> Array:
    a, eps = np.abs(z - y), term.epsilon
    c = u * np.where(z >= y, 1.0, -1.0)
    out, within = np.maximum(a - eps, 0), np.maximum(eps - a, 0)
    ahead = (out - c / 2) ** 2 + c * within
    return np.where(c >= 0, ahead, out**2 + c * c / 4 - c * (eps + a))


def _huber_excess(term: t.Huber, y: Array, z: Array, u: Array) -> Array:
    r = z - y
    h = np.clip(r, -term.threshold, term.threshold)
    return (h - u) ** 2 / 2 + (h - u) * (r - h)


def _tukey_excess(term: t.Tukey, y: Array, z: Array, u: Array) -> Array:
    """The value itself: its only dual point is 0."""
    x = np.minimum(np.abs(y - z) / term.threshold, 1.0) ** 2
    return np.asarray(term.threshold**2 / 6 * x * (3 - 3 * x + x * x))


def _tukey_slope(term: t.Tukey, y: Array, z: Array) -> Array:
    e = np.where(np.abs(z - y) < term.threshold, z - y, 0.0)
    return np.asarray(e * (1 - (e / term.threshold) ** 2) ** 2)


def _tukey_curvature(term: t.Tukey, y: Array, z: Array) -> Array:
    x = np.minimum(np.abs(z - y) / term.threshold, 1.0) ** 2
    return np.where(x < 1, (1 - x) * (1 - 5 * x), 0.0)


def _jump(where: Array) -> Array:
    return np.where(where, np.inf, 0.0)


def _residual(
    text: str,
    slope: Callable[..., Array],
    excess: Callable[..., Array],
    domain: Callable[..., tuple[Any, Any]],
    curvature: Callable[..., Array],
    best: Callable[..., float] = stationary,
    **more: Any,
) -> LossRow:
    """A loss of z − y: its dual point is the slope."""
    return LossRow(
        text,
        lambda term, y, z: excess(term, y, z, np.zeros(np.shape(z))),
        slope,
        _plain(excess),
        lambda term, y, z: _clip(domain)(term, y, slope(term, y, z)),
        _zero,
        lambda _, y, u: u,
        _clip(domain),
        domain,
        curvature,
        best,
        **more,
    )


_RESIDUAL: dict[type, LossRow] = {
    t.Squared: _residual(
        "½·mean (y − z)²",
        lambda _, y, z: z - y,
        lambda _, y, z, u: (z - y - u) ** 2 / 2,
        _line,
        lambda _, y, z: np.ones(np.shape(z)),
        lambda _, y, s: _mean(y, s),
        repair="centre",
        smooth=lambda _: 1.0,
    ),
    t.Absolute: _residual(
        "mean |y − z|",
        lambda _, y, z: np.sign(z - y),
        lambda _, y, z, u: _tilted(z - y, u, -1.0, 1.0),
        lambda _, y: (-1.0, 1.0),
        lambda _, y, z: _jump(y == z),
        lambda _, y, s: weighted_quantile(y, s, 0.5),
        bend="kink",
    ),
    t.Huber: _residual(
        "mean Huber_{threshold:.3g}(y − z)",
        lambda term, y, z: np.clip(z - y, -term.threshold, term.threshold),
        _huber_excess,
        lambda term, y: (-term.threshold, term.threshold),
        lambda term, y, z: np.where(np.abs(y - z) <= term.threshold, 1.0, 0.0),
        smooth=lambda _: 1.0,
        sound=lambda term: term.threshold > 0,
    ),
    t.Tukey: _residual(
        "mean Tukey_{threshold:.3g}(y − z)",
        _tukey_slope,
        _tukey_excess,
        lambda _, y: (0.0, 0.0),
        _tukey_curvature,
        smooth=lambda _: 1.0,
        sound=lambda term: term.threshold > 0,
        convex=False,
    ),
    t.Quantile: _residual(
        "mean pinball_{q:.3g}(y − z)",
        lambda term, y, z: np.where(z < y, -term.q, np.where(z > y, 1 - term.q, 0.0)),
        lambda term, y, z, u: _tilted(z - y, u, -term.q, 1 - term.q),
        _quantile_ends,
        lambda _, y, z: _jump(y == z),
        lambda term, y, s: weighted_quantile(y, s, term.q),
        bend="kink",
        sound=lambda term: 0 <= term.q <= 1,
    ),
    t.EpsilonInsensitive: _residual(
        "mean max(0, |y − z| − {epsilon:.3g})",
        lambda term, y, z: np.sign(z - y) * (np.abs(z - y) > term.epsilon),
        _tube_excess,
        lambda _, y: (-1.0, 1.0),
        lambda term, y, z: _jump(np.abs(y - z) == term.epsilon),
        bend="kink",
        sound=lambda term: term.epsilon >= 0,
    ),
    t.SquaredEpsilonInsensitive: _residual(
        "mean max(0, |y − z| − {epsilon:.3g})²",
        lambda term, y, z: 2 * np.sign(z - y) * np.maximum(np.abs(z - y) - term[0], 0),
        _squared_tube_excess,
        _line,
        lambda term, y, z: np.where(np.abs(y - z) >= term.epsilon, 2.0, 0.0),
        smooth=lambda _: 2.0,
        sound=lambda term: term.epsilon >= 0,
    ),
}


# -- margin losses: labels ±1, m = 1 − yz, share q = −uy --------------------------


def _hinge_excess(term: t.Hinge, y: Array, z: Array, q: Array) -> Array:
    m = term.margin - y * z
    return (1 - q) * np.maximum(m, 0) + q * np.maximum(-m, 0)


def _squared_hinge_excess(_: t.SquaredHinge, y: Array, z: Array, q: Array) -> Array:
    m = 1 - y * z
    return (np.maximum(m, 0) - q / 2) ** 2 + q * np.maximum(-m, 0)


def _modified_huber_excess(_: object, y: Array, z: Array, q: Array) -> Array:
    m = 1 - y * z
    h = np.clip(m, 0, 2)
    return (h - q / 2) ** 2 + (2 * h - q) * (m - h)


def _two_shares(q: Array, rest: Array, z: Array) -> Both:
    """kl(q‖p) + kl(rest‖1−p) for p = 1/(1 + e⁻ᶻ), rest = 1 − q."""
    first, a = kl(q, expit(z), -_softplus(-z))
    second, b = kl(rest, expit(-z), -_softplus(z))
    return first + second, a + b


def _softplus(x: Array) -> Array:
    """log(1 + eˣ), in half the time of NumPy's logaddexp."""
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def _margin(
    text: str,
    value: Callable[..., Array],
    share: Callable[..., Array],
    excess: Callable[..., Both],
    top: float,
    curvature: Callable[..., Array],
    best: Callable[..., float] = stationary,
    **more: Any,
) -> LossRow:
    """A loss of yz: ``share`` is q at z."""
    return LossRow(
        text,
        value,
        lambda term, y, z: -y * share(term, y, z),
        excess,
        share,
        _zero,
        lambda _, y, q: -y * q,
        lambda _, y, u: np.clip(-u * y, 0.0, top),
        lambda _, y: (np.where(y > 0, -top, 0.0), np.where(y > 0, 0.0, top)),
        curvature,
        best,
        takes="signs",
        **more,
    )


_MARGIN: dict[type, LossRow] = {
    t.Logistic: _margin(
        "mean log(1 + exp(−y·z))",
        lambda _, y, z: _softplus(-y * z),
        lambda _, y, z: expit(-y * z),
        lambda _, y, z, q: _two_shares(q, 1 - q, -y * z),
        1.0,
        lambda _, y, z: expit(z) * expit(-z),
        lambda _, y, s: _log_odds((1 + _mean(y, s)) / 2, 1.0),
        smooth=lambda _: 0.25,
    ),
    t.Hinge: _margin(
        "mean max(0, {margin:.3g} − y·z)",
        lambda term, y, z: np.maximum(0.0, term.margin - y * z),
        lambda term, y, z: np.where(y * z < term.margin, 1.0, 0.0),
        _plain(_hinge_excess),
        1.0,
        lambda term, y, z: _jump(y * z == term.margin),
        lambda term, y, s: term.margin * float(np.sign(_mean(y, s))),
        bend="kink",
        sound=lambda term: term.margin >= 0,
    ),
    t.SquaredHinge: _margin(
        "mean max(0, 1 − y·z)²",
        lambda _, y, z: np.maximum(0.0, 1 - y * z) ** 2,
        lambda _, y, z: 2 * np.maximum(0.0, 1 - y * z),
        _plain(_squared_hinge_excess),
        np.inf,
        lambda _, y, z: np.where(y * z <= 1, 2.0, 0.0),
        smooth=lambda _: 2.0,
    ),
    t.ModifiedHuber: _margin(
        "mean modified Huber(y·z)",
        lambda _, y, z: np.where(
            y * z >= -1, np.maximum(0.0, 1 - y * z) ** 2, -4 * y * z
        ),
        lambda _, y, z: np.clip(2 * (1 - y * z), 0.0, 4.0),
        _plain(_modified_huber_excess),
        4.0,
        lambda _, y, z: np.where(np.abs(y * z) <= 1, 2.0, 0.0),
        smooth=lambda _: 2.0,
    ),
    t.ExponentialMargin: _margin(
        "mean exp(−y·z)",
        lambda _, y, z: np.exp(-y * z),
        lambda _, y, z: np.exp(-y * z),
        lambda _, y, z, q: kl(q, np.exp(-y * z), -y * z),
        np.inf,
        lambda _, y, z: np.exp(-y * z),
        lambda _, y, s: _log_odds((1 + _mean(y, s)) / 2, 1.0) / 2,
        bend="exponential",
    ),
    t.ZeroOne: _margin(
        "mean 1[y·z ≤ 0]",
        lambda _, y, z: np.where(y * z <= 0, 1.0, 0.0),
        lambda _, y, z: np.zeros(np.shape(z)),
        _plain(lambda _, y, z, q: np.where(y * z <= 0, 1.0, 0.0)),
        0.0,
        lambda _, y, z: _jump(y * z == 0),
        convex=False,
    ),
}


# -- likelihoods of counts and amounts; classes -----------------------------------


def _binomial_excess(term: t.Binomial, y: Array, z: Array, m: Array) -> Both:
    found, noise = _two_shares(m / term.trials, (term.trials - m) / term.trials, z)
    return term.trials * found, term.trials * noise


def _exponential_excess(_: t.Exponential, y: Array, z: Array, rho: Array) -> Both:
    with np.errstate(divide="ignore"):
        log = np.log(y) - z
    return kl(rho, y * np.exp(-z), log)


def _tweedie(term: t.Tweedie, y: Array, z: Array) -> Both:
    """What the slope is made of: exp((2 − k)z), less y·exp(−(k − 1)z)."""
    k = term.power
    return np.exp((2 - k) * z), np.where(y > 0, y * np.exp((1 - k) * z), 0.0)


@np.errstate(all="ignore")
def _tweedie_split(term: t.Tweedie, y: Array, z: Array, m: Array, rho: Array) -> Both:
    """The excess of u = m − rho, or more: that of each part by itself."""
    k, (up, down) = term.power, _tweedie(term, y, z)
    first, a = kl(m, up, (2 - k) * z)
    second, b = kl(rho, down, np.log(y) - (k - 1) * z)
    # The exponents are rounded products.
    noise = (1 + np.abs(z)) * (a / (2 - k) + b / (k - 1))
    return first / (2 - k) + second / (k - 1), noise


@np.errstate(all="ignore")
def _tweedie_excess(term: t.Tweedie, y: Array, z: Array, u: Array) -> Both:
    """The split at the score whose slope is u, moved away from z until it is beyond u.

    The excess grows with the distance of u from the slope at z, so that it is not above
    that of a slope beyond u. The search for the score need not be trusted: its result
    is checked, and the excess is infinite if it is not beyond u.
    """
    a, b, at = term.power - 1, 2 - term.power, z
    for _ in range(40):
        m, rho = _tweedie(term, y, at)
        left, right = m + np.maximum(-u, 0.0), rho + np.maximum(u, 0.0)
        rise = np.nan_to_num(b * m / left) + np.nan_to_num(a * rho / right)
        step = np.log(right / left) / rise
        at = at + np.nan_to_num(step)  # of y = u = 0 it is -inf, and then 0/0
        if not (np.abs(step) > 1e-9 * (1 + np.abs(at))).any():
            break
    side = np.where(u >= np.subtract(*_tweedie(term, y, z)), 1.0, -1.0)
    push = 2.0**-49 * (1 + np.abs(at)) / min(a, b)
    m, rho = _tweedie(term, y, at + side * push)
    beyond = side * (m - rho - u) >= 2.0**-51 * (m + rho + np.abs(u))
    found, noise = _tweedie_split(term, y, z, m, rho)
    pushed = (b * m + a * rho) * np.abs(at + side * push - z) * push * 2.0**53
    return np.where(beyond, found, np.inf), noise + np.nan_to_num(pushed)


def _softmax_excess(_: t.Softmax, y: Array, z: Array, Q: Array) -> Both:
    log = z - logsumexp(z, axis=1, keepdims=True)
    found, noise = kl(Q, np.exp(log), log)
    return found.sum(axis=1), noise.sum(axis=1)


def _softmax_value(_: t.Softmax, y: Array, z: Array) -> Array:
    return np.asarray(logsumexp(z, axis=1) - z[np.arange(len(y)), y])


def _softmax_curvature(_: t.Softmax, y: Array, z: Array) -> Array:
    P = softmax(z, axis=1)
    return np.asarray(P[:, :, None] * (np.eye(P.shape[1]) - P[:, None, :]))


def _softmax_natural_of(term: t.Softmax, y: Array, u: Array) -> Array:
    Q = np.maximum(u + one_hot(y, term.n_classes), 0.0)
    return np.asarray(Q / Q.sum(1, keepdims=True))


def _log_shares(term: t.Softmax, y: Array, s: Array) -> Array:
    """One score for each class; of one without rows a very low one."""
    share = s @ one_hot(y, term.n_classes) / s.sum()
    return np.log(np.maximum(share, 1e-30))


def _log_mean(_: object, y: Array, s: Array) -> float:
    with np.errstate(divide="ignore"):
        return float(np.log(_mean(y, s)))


_LIKELIHOOD: dict[type, LossRow] = {
    t.Binomial: LossRow(
        "mean [{trials:g}·log(1 + exp(z)) − y·z + c(y)]",
        lambda term, y, z: _binomial_excess(term, y, z, y)[0],
        lambda term, y, z: term.trials * expit(z) - y,
        _binomial_excess,
        lambda term, y, z: np.minimum(term.trials * expit(z), term.trials),
        lambda term, y: np.asarray(y, dtype=float),
        lambda term, y, m: m - y,
        lambda term, y, u: np.clip(u + y, 0.0, term.trials),
        lambda term, y: (-y, term.trials - y),
        lambda term, y, z: term.trials * expit(z) * expit(-z),
        lambda term, y, s: _log_odds(_mean(y, s), term.trials),
        takes="counts",
        smooth=lambda term: term.trials / 4,
        sound=lambda term: term.trials >= 1,
    ),
    t.Exponential: LossRow(
        "mean [y·exp(−z) + z − log y − 1]",
        lambda term, y, z: _exponential_excess(term, y, z, np.ones(len(y)))[0],
        lambda _, y, z: 1 - y * np.exp(-z),
        _exponential_excess,
        lambda _, y, z: y * np.exp(-z),
        lambda _, y: np.ones(len(y)),
        lambda _, y, rho: 1 - rho,
        lambda _, y, u: np.maximum(1 - u, 0.0),
        lambda _, y: (-np.inf, 1.0),
        lambda _, y, z: y * np.exp(-z),
        _log_mean,
        takes="amounts",
        repair="rescale",
        bend="exponential",
    ),
    t.Poisson: LossRow(
        "mean [exp(z) − y·z + y·log y − y]",
        lambda _, y, z: kl(y, np.exp(z), z)[0],
        lambda _, y, z: np.exp(z) - y,
        lambda _, y, z, m: kl(m, np.exp(z), z),
        lambda _, y, z: np.exp(z),
        lambda _, y: np.asarray(y, dtype=float),
        lambda _, y, m: m - y,
        lambda _, y, u: np.maximum(u + y, 0.0),
        lambda _, y: (-y, np.inf),
        lambda _, y, z: np.exp(z),
        _log_mean,
        takes="amounts",
        repair="rescale",
        bend="exponential",
    ),
    t.Tweedie: LossRow(
        "½·mean deviance of Tweedie_{power:.4g}(y, exp z)",
        lambda term, y, z: _tweedie_split(term, y, z, *[y ** (2 - term.power)] * 2)[0],
        lambda term, y, z: np.subtract(*_tweedie(term, y, z)),
        _tweedie_excess,
        lambda term, y, z: np.subtract(*_tweedie(term, y, z)),
        _zero,
        lambda _, y, u: u,
        lambda _, y, u: np.maximum(u, np.where(y > 0, -np.inf, 0.0)),
        lambda _, y: (np.where(y > 0, -np.inf, 0.0), np.inf),
        lambda term, y, z: np.array((2 - term[0], term[0] - 1)) @ _tweedie(term, y, z),
        _log_mean,
        takes="amounts",
        bend="exponential",
        parts=lambda term: 1 / min(term.power - 1, 2 - term.power),
        sound=lambda term: 1 < term.power < 2,
    ),
    t.Softmax: LossRow(
        "mean [log Σₖ exp(zₖ) − z_y]",
        _softmax_value,
        lambda term, y, z: softmax(z, axis=1) - one_hot(y, term.n_classes),
        _softmax_excess,
        lambda _, y, z: softmax(z, axis=1),
        lambda term, y: one_hot(y, term.n_classes),
        lambda term, y, Q: Q - one_hot(y, term.n_classes),
        _softmax_natural_of,
        _line,
        _softmax_curvature,
        _log_shares,
        takes="codes",
        repair="mix",
        smooth=lambda _: 0.5,
        sound=lambda term: term.n_classes >= 2,
    ),
}

#: Every loss of ``certus.objectives``.
LOSSES: dict[type, LossRow] = {**_RESIDUAL, **_MARGIN, **_LIKELIHOOD}

#: What each kind of target must be, for a loss to be defined.
_TARGETS: dict[str, tuple[Callable[..., Any], str]] = {
    "numbers": (lambda _, y: True, "numbers"),
    "signs": (lambda _, y: np.abs(y) == 1, "labels −1 and 1"),
    "counts": (lambda term, y: (y >= 0) & (y <= term.trials), "counts in its range"),
    "amounts": (lambda _, y: y >= 0, "targets that are not negative"),
    "codes": (lambda term, y: (y >= 0) & (y < term.n_classes), "codes of its classes"),
}


def row_of(loss: t.Loss) -> LossRow:
    """The row of a loss, or an error that names it."""
    row = LOSSES.get(type(loss))
    if row is None:
        raise ValueError(f"the verifier does not know the loss {type(loss).__name__}.")
    if not row.sound(loss):
        raise ValueError(f"{loss!r} is not a loss: its parameter is out of range.")
    return row


def check_targets(loss: t.Loss, y: Array) -> None:
    """Raise unless the loss is defined for every target."""
    holds, words = _TARGETS[row_of(loss).takes]
    if not np.all(holds(loss, y)):
        raise ValueError(f"y must hold {words} for {type(loss).__name__}.")
