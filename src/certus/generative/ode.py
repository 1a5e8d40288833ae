"""Ordinary differential equations that carry densities: flows in continuous time.

    dx/dt = v(x, t)   ⇒   d log p_t(x_t)/dt = −div v(x_t, t)
    log p₀(x₀) = log p_T(x_T) + ∫₀ᵀ div v(x_t, t) dt

The second line is the change of variables for infinitely many residual steps
x + ηv(x). For a diffusion dx = f dt + G dw with scores ∇ log p_t, the equation with

    v = f − ½ div(GGᵀ) − ½ GGᵀ∇ log p_t

has the same distribution p_t at each time and no noise, and so gives log p₀ of each
row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from certus.base import check_choice, check_number
from certus.generative.inputs import rows
from certus.generative.sde import Field, StochasticDE, neighbours
from certus.typing import Array, MatrixLike


class FlowPoint(NamedTuple):
    """Where rows arrive, and the integral of the divergence on their way."""

    X: Array
    log_det: Array


class FlowLikelihood(NamedTuple):
    """Log densities by a flow.

    Attributes
    ----------
    log_density : ndarray of shape (n,)
        log p₀ of each row, with twice ``n_steps`` steps.
    error : ndarray of shape (n,)
        How much the last halving of the step changed it: an estimate, not a bound.
    """

    log_density: Array
    error: Array


def probability_flow(sde: StochasticDE, score: Field) -> StochasticDE:
    """The equation without noise whose rows are distributed as those of a diffusion.

    Parameters
    ----------
    sde : StochasticDE
        The diffusion.
    score : callable
        ``score(x, t)`` = ∇ log p_t(x). If it has a method ``divergence(x, t)``, as
        :class:`GaussianMixtureScore` has, and G is a number, the divergence of the
        flow is exact.

    Returns
    -------
    StochasticDE
        Its diffusion is 0, its drift v = f − ½ div(GGᵀ) − ½ GGᵀ∇ log p_t.

    Examples
    --------
    >>> from certus.generative import (GaussianMixtureScore, NoisedMixture,
    ...     ornstein_uhlenbeck, probability_flow)
    >>> sde = ornstein_uhlenbeck()
    >>> still = GaussianMixtureScore(NoisedMixture([1.0], [0.0], [1.0]), sde)
    >>> flow = probability_flow(sde, still)  # N(0, 1) is stationary: nothing moves
    >>> bool(abs(flow.drift(still.sample(3, 0.0), 0.0)).max() < 1e-12)
    True
    """
    inner: Callable[[Array, float], Array] | None = getattr(score, "divergence", None)
    known = inner is not None and sde.drift_divergence is not None

    def drift(x: Array, t: float) -> Array:
        pull = sde.times_covariance(x, t, np.asarray(score(x, t)))
        pull = pull + sde.divergence_of_covariance(x, t)
        return np.asarray(sde.drift(x, t) - 0.5 * pull)

    def divergence(x: Array, t: float) -> Array:
        g = np.asarray(sde.diffusion(x, t))
        if g.ndim:
            return differences(drift, x, t)
        own: Any = sde.drift_divergence
        of_score: Any = inner
        return np.asarray(own(x, t) - 0.5 * g * g * of_score(x, t))

    return StochasticDE(
        drift, lambda x, t: 0.0, drift_divergence=divergence if known else None
    )


def differences(velocity: Field, x: Array, t: float) -> Array:
    """The divergence of a velocity at each row, by central differences."""
    total = np.zeros(len(x))
    for j, (up, down, width) in enumerate(neighbours(x)):
        change = np.asarray(velocity(up, t))[:, j] - np.asarray(velocity(down, t))[:, j]
        total += change / width
    return total


def integrate_flow(
    flow: StochasticDE | Field,
    X: MatrixLike,
    *,
    times: tuple[float, float] = (0.0, 1.0),
    n_steps: int = 100,
    method: str = "rk4",
    log_det: bool = True,
) -> FlowPoint:
    """Follow dx/dt = v(x, t), and integrate div v along the way.

    Parameters
    ----------
    flow : StochasticDE without diffusion, or callable
        The velocity ``v(x, t)`` of all rows.
    X : array-like of shape (n, d)
        Rows at the first time.
    times : tuple of float, default=(0, 1)
        First and last time; the last may be smaller.
    n_steps : int, default=100
        Number of steps.
    method : {"rk4", "heun", "euler"}, default="rk4"
        Errors fall as the 4th, 2nd and 1st power of the step. ``"euler"`` takes the
        residual steps x + ηv(x, t).
    log_det : bool, default=True
        Whether to integrate the divergence; else it is reported as 0.

    Returns
    -------
    FlowPoint
        ``X`` at the last time, and ``log_det`` = ∫ div v dt, the log determinant of
        the map from the first to the last time.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import integrate_flow
    >>> found = integrate_flow(lambda x, t: -x, [[1.0, 2.0]])
    >>> found.X.round(6), found.log_det.round(6)
    (array([[0.367879, 0.735759]]), array([-2.]))
    """
    check_choice("method", method, tuple(_TABLEAUS))
    check_number("n_steps", n_steps, 1, integer=True)
    first, last = map(float, times)
    if not (math.isfinite(first) and math.isfinite(last)):
        raise ValueError(f"times must be finite numbers, got {times!r}.")
    velocity, exact = _parts(flow)
    x, total = rows("X", X).copy(), 0.0
    step = (last - first) / n_steps
    stages, weights = _TABLEAUS[method]

    def slope(at: Array, t: float) -> tuple[Array, Any]:
        v = np.asarray(velocity(at, t), dtype=np.float64)
        if v.shape != at.shape:
            raise ValueError(f"The velocity must have shape {at.shape}, got {v.shape}.")
        if not log_det:
            return v, 0.0
        return v, exact(at, t) if exact else differences(velocity, at, t)

    for i in range(n_steps):
        v = np.zeros_like(x)
        change, growth = np.zeros_like(x), 0.0
        for share, weight in zip(stages, weights):  # each stage starts from the last v
            part = (i + share) / n_steps  # so that the last time is met exactly
            t = (1.0 - part) * first + part * last
            v, div = slope(x + share * step * v, t)
            change += weight * v
            growth = growth + weight * div
        x = x + step * change
        total = total + step * growth
    return FlowPoint(x, np.broadcast_to(total, len(x)).copy())


#: Times of the stages, as shares of a step, and the weights of their slopes. Each stage
#: uses the slope of the one before, which is all that these three methods need.
_TABLEAUS = {
    "euler": ((0.0,), (1.0,)),
    "heun": ((0.0, 1.0), (0.5, 0.5)),
    "rk4": ((0.0, 0.5, 0.5, 1.0), (1 / 6, 1 / 3, 1 / 3, 1 / 6)),
}


def _parts(flow: StochasticDE | Field) -> tuple[Field, Field | None]:
    if isinstance(flow, StochasticDE):
        return flow.drift, flow.drift_divergence
    if not callable(flow):
        raise TypeError(f"flow must be a StochasticDE or a function, got {flow!r}.")
    return flow, None


def flow_log_likelihood(
    flow: StochasticDE | Field,
    X: MatrixLike,
    base: Callable[[Array], Array],
    *,
    times: tuple[float, float] = (0.0, 1.0),
    n_steps: int = 50,
    method: str = "rk4",
) -> FlowLikelihood:
    """The log density p₀ of rows, by the change of variables along a flow.

    Parameters
    ----------
    flow : StochasticDE without diffusion, or callable
        As in :func:`integrate_flow`; for a diffusion, its :func:`probability_flow`.
    X : array-like of shape (n, d)
        Rows at the first time.
    base : callable
        ``base(x)``: the log density at the last time of each row.
    times, method
        As in :func:`integrate_flow`.
    n_steps : int, default=50
        Number of steps; they are halved once, for the error.

    Returns
    -------
    FlowLikelihood
        Log densities, and the change by halving the steps.

    Examples
    --------
    A field that doubles x from time 0 to 1: if x₁ is N(0, 4), then x₀ is N(0, 1).

    >>> import numpy as np
    >>> from scipy.stats import norm
    >>> from certus.generative import flow_log_likelihood
    >>> X = np.array([[-1.0], [0.5]])
    >>> found = flow_log_likelihood(lambda x, t: np.log(2) * x, X,
    ...                             lambda x: norm(0, 2).logpdf(x[:, 0]))
    >>> bool(np.allclose(found.log_density, norm.logpdf(X[:, 0])))
    True
    """
    found = []
    for steps in (n_steps, 2 * n_steps):
        end = integrate_flow(flow, X, times=times, n_steps=steps, method=method)
        log_base = np.asarray(base(end.X), dtype=np.float64)
        if log_base.shape != end.log_det.shape:
            raise ValueError(
                f"base must return one number for each of {len(end.X)} rows, got "
                f"shape {log_base.shape}."
            )
        found.append(log_base + end.log_det)
    return FlowLikelihood(found[1], np.abs(found[1] - found[0]))
