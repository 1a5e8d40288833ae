"""Stochastic differential equations: forward, discretised, and backward in time.

    dx = f(x, t) dt + G(x, t) dw
    Euler–Maruyama   x + ηf + √η G n, n ~ N(0, I): the noise has covariance ηGGᵀ
    backward, τ = T − t   dx = [−f + div(GGᵀ) + GGᵀ∇ log p_t] dτ + G dw

If the backward equation starts with rows of p_T, its rows have the distribution p_t at
each time t = T − τ. Where x_t given x_0 is N(a(t)x_0, s(t)²I), as in the three
equations below, the score ∇ log p_t of a Gaussian mixture is known in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from certus.base import check_number, generator_of
from certus.generative.inputs import finite_array, rows
from certus.generative.mixtures import NoisedMixture
from certus.typing import Array, ArrayLike, MatrixLike, RandomState

#: A function of rows and a time.
Field = Callable[[Array, float], Any]
#: Step of central differences, as a share of 1 + abs(x).
STEP = 1e-5


@dataclass(frozen=True)
class StochasticDE:
    """dx = f(x, t) dt + G(x, t) dw, for many rows at once.

    Parameters
    ----------
    drift : callable
        ``drift(x, t)``: rows f of the shape of the rows x.
    diffusion : callable
        ``diffusion(x, t)``: G as a number g (for gI), as a matrix of shape (d, k) for
        all rows, or as matrices of shape (n, d, k) if it depends on the row. 0 makes
        an ordinary differential equation.
    covariance_divergence : callable, optional
        ``covariance_divergence(x, t)``: rows Σ_j ∂(GGᵀ)_ij/∂x_j. None means central
        differences where G depends on the row, else 0.
    drift_divergence : callable, optional
        ``drift_divergence(x, t)``: Σ_i ∂f_i/∂x_i for each row. None means central
        differences, where it is needed.
    marginal : callable, optional
        ``marginal(t)``: the numbers a and s with x_t given x_0 ~ N(a·x_0, s²I).

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import StochasticDE, euler_maruyama
    >>> decay = StochasticDE(lambda x, t: -x, lambda x, t: 0.0)
    >>> euler_maruyama(decay, [[1.0]], n_steps=2, random_state=0)  # (1 − ½)²
    array([[0.25]])
    """

    drift: Field
    diffusion: Field
    covariance_divergence: Field | None = None
    drift_divergence: Field | None = None
    marginal: Callable[[float], tuple[float, float]] | None = None

    def times_covariance(self, x: Array, t: float, rows: Array) -> Array:
        """GGᵀ v for each row."""
        G = _matrix(self.diffusion(x, t), x)
        if G.ndim == 0:
            return G * G * rows
        if G.ndim == 2:
            return rows @ (G @ G.T)
        return np.einsum("nij,nkj,nk->ni", G, G, rows)

    def divergence_of_covariance(self, x: Array, t: float) -> Array:
        """div(GGᵀ) for each row."""
        if self.covariance_divergence is not None:
            return np.asarray(self.covariance_divergence(x, t))
        found = np.zeros_like(x)
        if _matrix(self.diffusion(x, t), x).ndim < 3:
            return found
        for j, (up, down, width) in enumerate(neighbours(x)):
            above, below = (_matrix(self.diffusion(at, t), x) for at in (up, down))
            # Column j of GGᵀ on both sides of the row.
            column = np.einsum("nik,nk->ni", above, above[:, j])
            column -= np.einsum("nik,nk->ni", below, below[:, j])
            found += column / width[:, None]
        return found


def _times(G: Array, noise: Array) -> Array:
    """G n for each row; the noise has as many columns as G."""
    if G.ndim == 0:
        return G * noise
    return noise @ G.T if G.ndim == 2 else np.einsum("nij,nj->ni", G, noise)


def _matrix(G: Any, x: Array) -> Array:
    """G as users return it: a number, one matrix, or one for each row."""
    G = np.asarray(G, dtype=np.float64)
    n, d = x.shape
    if G.ndim == 0 or (G.ndim == 2 and len(G) == d):
        return G
    if G.ndim == 3 and G.shape[:2] == (n, d):
        return G
    raise ValueError(
        f"diffusion must return a number, or an array of shape ({d}, k) or "
        f"({n}, {d}, k), got shape {G.shape}."
    )


def neighbours(x: Array) -> Any:
    """Rows moved up and down in each column, and the distances between the two."""
    for j in range(x.shape[1]):
        width = STEP * (1.0 + np.abs(x[:, j]))
        up, down = x.copy(), x.copy()
        up[:, j] += width
        down[:, j] -= width
        yield up, down, up[:, j] - down[:, j]


def _linear(
    rate: Callable[[float], float],
    g: Callable[[float], float],
    marginal: Callable[[float], tuple[float, float]],
) -> StochasticDE:
    """The equation dx = −rate(t) x dt + g(t) dw."""
    return StochasticDE(
        drift=lambda x, t: -rate(t) * x,
        diffusion=lambda x, t: g(t),
        drift_divergence=lambda x, t: np.full(len(x), -rate(t) * x.shape[1]),
        marginal=marginal,
    )


def ornstein_uhlenbeck(
    rate: float = 1.0, *, noise: float = math.sqrt(2)
) -> StochasticDE:
    """Ornstein and Uhlenbeck's equation, dx = −rate·x dt + noise·dw.

    It is stationary at N(0, noise²/(2·rate)).

    Parameters
    ----------
    rate : float, default=1.0
        How fast the past is forgotten.
    noise : float, default=√2
        g. The default makes N(0, I) stationary.

    Examples
    --------
    >>> from certus.generative import ornstein_uhlenbeck
    >>> scale, std = ornstein_uhlenbeck().marginal(1.0)
    >>> round(scale, 6), round(scale**2 + std**2, 6)
    (0.367879, 1.0)
    """
    check_number("rate", rate, 0, open_low=True)
    check_number("noise", noise, 0, open_low=True)

    def marginal(t: float) -> tuple[float, float]:
        variance = -math.expm1(-2 * rate * t) * noise**2 / (2 * rate)
        return math.exp(-rate * t), math.sqrt(variance)

    return _linear(lambda t: rate, lambda t: noise, marginal)


def variance_preserving(*, low: float = 0.1, high: float = 20.0) -> StochasticDE:
    """Noise that keeps the variance: dx = −½β(t)x dt + √β(t) dw.

    β rises linearly from ``low`` at t = 0 to ``high`` at t = 1.

    Parameters
    ----------
    low, high : float, default=0.1, 20
        Ends of β. Rows of variance 1 keep it at all times.

    Examples
    --------
    >>> from certus.generative import variance_preserving
    >>> scale, std = variance_preserving().marginal(1.0)
    >>> round(scale, 6), round(std, 6)
    (0.006572, 0.999978)
    """
    check_number("low", low, 0)
    check_number("high", high, low, open_low=low == 0)

    def beta(t: float) -> float:
        return low + t * (high - low)

    def marginal(t: float) -> tuple[float, float]:
        total = low * t + 0.5 * t * t * (high - low)
        return math.exp(-0.5 * total), math.sqrt(-math.expm1(-total))

    return _linear(lambda t: 0.5 * beta(t), lambda t: math.sqrt(beta(t)), marginal)


def variance_exploding(*, low: float = 0.01, high: float = 50.0) -> StochasticDE:
    """Noise that is only added: dx = σ(t)√(2 log(high/low)) dw.

    σ rises from ``low`` at t = 0 to ``high`` at t = 1.

    Parameters
    ----------
    low, high : float, default=0.01, 50
        Ends of σ(t) = low·(high/low)ᵗ; x_t given x_0 has variance σ(t)² − low².

    Examples
    --------
    >>> from certus.generative import variance_exploding
    >>> round(variance_exploding(low=1.0, high=10.0).marginal(1.0)[1] ** 2, 9)
    99.0
    """
    check_number("low", low, 0, open_low=True)
    check_number("high", high, low, open_low=True)
    log = math.log(high / low)

    def marginal(t: float) -> tuple[float, float]:
        return 1.0, low * math.sqrt(math.expm1(2 * t * log))

    return _linear(
        lambda t: 0.0, lambda t: low * math.exp(t * log) * math.sqrt(2 * log), marginal
    )


class GaussianMixtureScore:
    """∇ log p_t of a Gaussian mixture that a linear equation carries along.

    Parameters
    ----------
    mixture : NoisedMixture
        The distribution at time 0.
    sde : StochasticDE
        An equation with ``marginal``.

    Examples
    --------
    >>> from certus.generative import GaussianMixtureScore, NoisedMixture
    >>> from certus.generative import ornstein_uhlenbeck
    >>> score = GaussianMixtureScore(NoisedMixture([1.0], [0.0], [4.0]),
    ...                              ornstein_uhlenbeck())
    >>> score([[1.0]], 0.0)
    array([[-0.25]])
    """

    def __init__(self, mixture: NoisedMixture, sde: StochasticDE) -> None:
        if sde.marginal is None:
            raise ValueError("sde must have a marginal, as ornstein_uhlenbeck() has.")
        self.mixture, self._marginal = mixture, sde.marginal

    def _noise(self, t: float) -> dict[str, float]:
        check_number("t", t, 0)
        return dict(zip(("scale", "std"), self._marginal(t)))

    def __call__(self, x: MatrixLike, t: float) -> Array:
        """The score of p_t at each row."""
        return self.mixture.score(x, **self._noise(t))

    def divergence(self, x: MatrixLike, t: float) -> Array:
        """The divergence of the score at each row."""
        return self.mixture.score_divergence(x, **self._noise(t))

    def log_density(self, x: MatrixLike, t: float) -> Array:
        """The logarithm of p_t at each row."""
        return self.mixture.log_density(x, **self._noise(t))

    def sample(
        self, n_samples: int, t: float, *, random_state: RandomState = None
    ) -> Array:
        """Draw n rows of p_t."""
        return self.mixture.sample(
            n_samples, **self._noise(t), random_state=random_state
        )


def euler_maruyama(
    sde: StochasticDE,
    x0: MatrixLike,
    *,
    times: tuple[float, float] = (0.0, 1.0),
    n_steps: int = 1000,
    noise: ArrayLike | None = None,
    path: bool = False,
    random_state: RandomState = None,
) -> Array:
    """Follow an equation in equal steps: x + ηf + √η G n.

    Parameters
    ----------
    sde : StochasticDE
        The equation. Without diffusion this is Euler's method, and a residual network.
    x0 : array-like of shape (n, d)
        Rows at the first time; a vector is one column.
    times : tuple of float, default=(0, 1)
        First and last time.
    n_steps : int, default=1000
        Number of steps.
    noise : array-like of shape (n_steps, n, k), optional
        The normal numbers n of all steps. None means new ones.
    path : bool, default=False
        Whether to return all steps.
    random_state : int, RandomState instance or None, default=None
        Seed or generator of all random numbers.

    Returns
    -------
    ndarray of shape (n, d), or (n_steps + 1, n, d) with ``path``
        The rows at the last time, or at all times.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import euler_maruyama, ornstein_uhlenbeck
    >>> x = euler_maruyama(ornstein_uhlenbeck(), np.zeros((4000, 1)),
    ...                    times=(0.0, 5.0), n_steps=200, random_state=0)
    >>> bool(0.9 < x.std() < 1.1)
    True
    """
    x = rows("x0", x0).copy()
    check_number("n_steps", n_steps, 1, integer=True)
    first, last = map(float, times)
    if not (math.isfinite(first) and math.isfinite(last) and first != last):
        raise ValueError(f"times must be two different finite numbers, got {times!r}.")
    rng, step = generator_of(random_state), (last - first) / n_steps
    given = None if noise is None else finite_array("noise", noise, 3)
    if given is not None and given.shape[:2] != (n_steps, len(x)):
        raise ValueError(
            f"noise must have shape ({n_steps}, {len(x)}, k), got {given.shape}."
        )
    kept = [x]
    for i in range(n_steps):
        t = ((n_steps - i) * first + i * last) / n_steps
        moved = x + step * _drift(sde, x, t)
        G = _matrix(sde.diffusion(x, t), x)
        if G.any():
            k = x.shape[1] if G.ndim == 0 else G.shape[-1]
            n = rng.standard_normal((len(x), k)) if given is None else given[i]
            moved += math.sqrt(abs(step)) * _times(G, n)
        x = moved
        if path:
            kept.append(x)
    return np.stack(kept) if path else x


def _drift(sde: StochasticDE, x: Array, t: float) -> Array:
    f = np.asarray(sde.drift(x, t), dtype=np.float64)
    if f.shape != x.shape:
        raise ValueError(f"drift must return shape {x.shape}, got {f.shape}.")
    return f


def reverse_time(sde: StochasticDE, score: Field, *, end: float = 1.0) -> StochasticDE:
    """The equation that runs a diffusion backward, in reversed time τ = end − t.

    dx = [−f + div(GGᵀ) + GGᵀ∇ log p_t] dτ + G dw, everything at t = end − τ.

    Parameters
    ----------
    sde : StochasticDE
        The equation forward in time.
    score : callable
        ``score(x, t)`` = ∇ log p_t(x), for example a :class:`GaussianMixtureScore`.
    end : float, default=1.0
        T, the time at which the backward equation starts.

    Returns
    -------
    StochasticDE
        Followed from τ = 0 to ``end`` it turns rows of p_T into rows of p_0.

    Examples
    --------
    >>> from certus.generative import (GaussianMixtureScore, NoisedMixture,
    ...     euler_maruyama, ornstein_uhlenbeck, reverse_time)
    >>> sde = ornstein_uhlenbeck()
    >>> score = GaussianMixtureScore(NoisedMixture([1.0], [3.0], [0.01]), sde)
    >>> start = score.sample(2000, 2.0, random_state=0)
    >>> back = euler_maruyama(reverse_time(sde, score, end=2.0), start,
    ...                       times=(0.0, 2.0), n_steps=400, random_state=1)
    >>> round(float(back.mean()), 1)
    3.0
    """

    def drift(x: Array, tau: float) -> Array:
        t = end - tau
        pull = sde.times_covariance(x, t, np.asarray(score(x, t)))
        return sde.divergence_of_covariance(x, t) + pull - sde.drift(x, t)

    return StochasticDE(drift, lambda x, tau: sde.diffusion(x, end - tau))
