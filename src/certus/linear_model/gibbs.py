"""Minimising the PAC-Bayes bound of a randomised linear classifier.

    the largest R with  kl(R̂ ‖ R) ≤ (KL(Q‖P) + ln(2√n·K/δ))/n,   Q = N(M, diag σ²)

R̂ is the mean error on n rows of weights drawn from Q. The scores of a row are then
independent normal numbers, so its error is Φ(−yμ/s) for two labels, and for more an
integral in one dimension, by Gauss–Hermite. Both are smooth in M and σ, and L-BFGS
minimises the bound itself for each of K prior variances λ, P = N(M₀, λI).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, sparse
from scipy.optimize import OptimizeResult
from scipy.special import ndtr

from certus.bounds import seeger_bound
from certus.certificate import Status
from certus.typing import Array

#: Nodes of the integrals while fitting.
NODES = 12
#: Rows whose integrals are computed at a time; they stay in cache.
BLOCK = 512
TINY = 1e-300


class PosteriorProblem(NamedTuple):
    """The rows counted with their labels' codes, and the prior."""

    rows: Any
    codes: Array
    centre: Array
    variances: tuple[float, ...]
    delta: float


class PosteriorPoint(NamedTuple):
    """A posterior: M and log(σ/√λ), with the bound and the error on the rows."""

    mean: Array
    log: Array
    variance: float
    bound: float = 1.0
    error: float = 1.0

    @property
    def std(self) -> Array:
        """σ."""
        return np.asarray(np.exp(self.log) * math.sqrt(self.variance))


class Errors(NamedTuple):
    """Error of each row, and its slopes in the scores' means and deviations."""

    error: Array
    mean: Array
    std: Array


OnStep = Callable[[PosteriorPoint], Status | None]


def search(
    problem: PosteriorProblem,
    warm: tuple[Array, Array] | None,
    max_iter: int,
    on_step: OnStep,
) -> tuple[PosteriorPoint, Status, int]:
    """The posterior with the smallest bound over all prior variances, and the status.

    Each variance starts from the mean found for the one before, the first from the
    prior's mean or from ``warm``, means and deviations found earlier.
    """
    mean, std = (problem.centre, None) if warm is None else warm
    found: list[PosteriorPoint] = []
    steps, status = 0, Status.SOLVED
    for variance in problem.variances:
        log = np.zeros(mean.shape)
        if std is not None:
            log = np.log(std / math.sqrt(variance))
        descent = _PosteriorDescent(
            problem, PosteriorPoint(mean, log, variance), on_step
        )
        status = descent.run(max_iter)
        found.append(descent.point)
        steps += descent.taken
        if status is not Status.SOLVED:
            break
        mean, std = descent.point.mean, None
    best = min(found, key=lambda point: point.bound)
    if status is Status.SOLVED and not (best is found[-1] and descent.taken):
        try:  # the last step shown is the one that is kept
            status = on_step(best) or status
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
    return best, status, steps


class _PosteriorDescent:
    """L-BFGS on the bound for one prior variance; keeps the last point it reached."""

    def __init__(
        self, problem: PosteriorProblem, start: PosteriorPoint, on_step: OnStep
    ) -> None:
        self.problem, self.point, self.on_step = problem, start, on_step
        self.error, self.taken = 1.0, 0
        self.ended: Status | None = None

    def run(self, max_iter: int) -> Status:
        """Minimise, and return the status."""
        start = np.concatenate([self.point.mean.ravel(), self.point.log.ravel()])
        try:
            optimize.minimize(
                self.value,
                start,
                jac=True,
                method="L-BFGS-B",
                callback=self.step,
                options={"maxiter": max_iter, "ftol": 1e-8, "gtol": 1e-6},
            )
        except KeyboardInterrupt:
            self.ended = Status.INTERRUPTED
        if not self.taken:  # the start could not be improved
            bound = self.value(start)[0]
            self.point = self.point._replace(bound=bound, error=self.error)
        return self.ended or Status.SOLVED

    def value(self, theta: Array) -> tuple[float, Array]:
        """The bound and its gradient in M and log(σ/√λ)."""
        mean, log = theta.reshape(2, *self.problem.centre.shape)
        bound, self.error, slopes = bound_at(
            self.problem, mean, log, self.point.variance
        )
        return bound, np.concatenate([slope.ravel() for slope in slopes])

    def step(self, intermediate_result: OptimizeResult) -> None:
        """Keep the current point; raise ``StopIteration`` if the fit must stop."""
        theta, bound = intermediate_result.x, float(intermediate_result.fun)
        mean, log = theta.copy().reshape(2, *self.problem.centre.shape)
        self.point = PosteriorPoint(mean, log, self.point.variance, bound, self.error)
        self.taken += 1
        self.ended = self.on_step(self.point)
        if self.ended is not None:
            raise StopIteration


def bound_at(
    problem: PosteriorProblem, mean: Array, log: Array, variance: float
) -> tuple[float, float, tuple[Array, Array]]:
    """The bound, the error on the rows, and the bound's slopes in M and log(σ/√λ)."""
    n = len(problem.codes)
    ratio = np.exp(2 * np.clip(log, -300, 300))
    shift = mean - problem.centre
    kl = 0.5 * float(np.sum(shift * shift) / variance + np.sum(ratio - 1 - 2 * log))
    error, by_mean, by_spread = _risk(problem, mean, variance * ratio)
    error = min(max(error, 1e-12), 1 - 1e-12)
    priors = len(problem.variances)
    bound = seeger_bound(error, max(kl, 0.0), n, problem.delta, priors=priors)
    # kl(error ‖ bound) is constant in the budget: its slopes give those of the bound.
    inside = min(bound, 1 - 1e-12)
    by_bound = max(inside - error, 1e-300) / (inside * (1 - inside))
    odds = math.log(inside / (1 - inside)) - math.log(error / (1 - error))
    per_error, per_kl = odds / by_bound, 1 / (n * by_bound)
    slope_mean = per_error * by_mean + per_kl * shift / variance
    slope_log = per_error * by_spread * 2 * variance * ratio + per_kl * (ratio - 1)
    return bound, error, (slope_mean, slope_log)


def _risk(
    problem: PosteriorProblem, mean: Array, spread: Array
) -> tuple[float, Array, Array]:
    """Mean error over the rows, and its slopes in the weights' means and variances."""
    n = len(problem.codes)
    total, by_mean, by_spread = 0.0, np.zeros(mean.shape), np.zeros(mean.shape)
    rule = two_labels if len(mean) == 1 else several_labels
    for i in range(0, n, BLOCK):
        block, codes = problem.rows[i : i + BLOCK], problem.codes[i : i + BLOCK]
        squares = block.multiply(block) if sparse.issparse(block) else block * block
        std = np.sqrt(np.maximum(np.asarray(squares @ spread.T), TINY))
        value = rule(np.asarray(block @ mean.T), std, codes)
        total += float(value.error.sum())
        by_mean += np.asarray(block.T @ value.mean).T
        by_spread += np.asarray(squares.T @ (value.std / (2 * std))).T
    return total / n, by_mean / n, by_spread / n


def two_labels(mean: Array, std: Array, codes: Array, nodes: int = NODES) -> Errors:
    """One score: label 1 where it is positive. Error Φ(−yμ/s)."""
    y = np.where(codes == 1, 1.0, -1.0)[:, None]
    t = y * mean / std
    density = np.exp(-0.5 * t * t) / math.sqrt(2 * math.pi)
    return Errors(ndtr(-t)[:, 0], -y * density / std, density * t / std)


def several_labels(mean: Array, std: Array, codes: Array, nodes: int = NODES) -> Errors:
    """One score per label: 1 − E ∏ Φ((μ_y − μₖ + s_y·T)/sₖ), by Gauss–Hermite."""
    at, weight = np.polynomial.hermite_e.hermegauss(nodes)
    weight = weight / weight.sum()
    row = np.arange(len(codes))
    own, size = mean[row, codes][:, None], std[row, codes][:, None]
    ahead, steep = (own - mean) / std, size / std
    u = ahead[:, :, None] + steep[:, :, None] * at
    below = np.maximum(ndtr(u), TINY)
    below[row, codes] = 1.0
    every = below.prod(axis=1) * weight
    density = np.exp(-0.5 * u * u) / math.sqrt(2 * math.pi) / below
    density[row, codes] = 0.0
    density *= every[:, None, :]
    by_ahead, by_steep = density.sum(axis=2), density @ at
    by_mean = by_ahead / std
    by_std = (by_ahead * ahead + by_steep * steep) / std
    by_mean[row, codes] = -by_mean.sum(axis=1)
    by_std[row, codes] = -(by_steep / std).sum(axis=1)
    return Errors(1 - every.sum(axis=1), by_mean, by_std)
