"""The ascent of a mixture of Gaussians: steps of EM from one start, or from several.

    L(θ) = (1/n) Σᵢ log Σ_k π_k N(xᵢ; μ_k, Σ_k)

A run ends when this step and the next ones change L by less than ``tol``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from certus.callbacks import Monitor
from certus.certificate import Status
from certus.mixture.covariances import (
    Components,
    Singular,
    em_step,
    from_public,
    mean_likelihood,
    public_shape,
    to_public,
)
from certus.mixture.starts import first_components
from certus.typing import Array

_ENDED = (Status.INTERRUPTED, Status.TIME_LIMIT, Status.STOPPED)


class AscentRun(NamedTuple):
    """The result of one start."""

    start: Components
    theta: Components
    bounds: list[float]
    status: Status

    @property
    def bound(self) -> float:
        """The objective where it ended."""
        return self.bounds[-1] if self.bounds else -math.inf


def best_run(model: Any, X: Array, monitor: Monitor) -> tuple[AscentRun, Status]:
    """The best of ``n_init`` starts, or the last fit continued; and the status."""
    previous = _previous(model, X)
    if previous is not None:
        run = _climb(model, X, previous, float(model.lower_bound_), monitor)
        return run, run.status
    random = check_random_state(model.random_state)
    runs: list[AscentRun] = []
    for _ in range(model.n_init):
        try:
            start = first_components(model, X, random)
        except KeyboardInterrupt:
            if not runs:
                raise
            runs.append(runs[-1]._replace(status=Status.INTERRUPTED))
            break
        runs.append(_climb(model, X, start, -math.inf, monitor))
        if runs[-1].status in _ENDED:
            break
    # A start that reached a singular covariance has a meaningless large objective.
    best = max(runs, key=lambda run: (run.status is not Status.DIVERGED, run.bound))
    last = runs[-1].status
    return best, last if last in _ENDED else best.status


def _previous(model: Any, X: Array) -> Components | None:
    if not model.warm_start or not hasattr(model, "converged_"):
        return None
    k, d = int(model.n_components), X.shape[1]
    alike = np.shape(model.covariances_) == public_shape(model.covariance_type, k, d)
    same = model.means_.shape == (k, d) and alike
    return from_public(model, model.covariance_type) if same else None


def _climb(
    model: Any,
    X: Array,
    start: Components,
    bound: float,
    monitor: Monitor,
) -> AscentRun:
    """EM steps until one, and those after it, change the objective by less than tol."""
    theta, bounds = start, []
    kind, hard = model.covariance_type, model.assignment == "hard"
    status = Status.MAX_ITER
    try:
        for _ in range(model.max_iter):
            theta, found = em_step(X, theta, kind, float(model.reg_covar), hard)
            change, bound = abs(found - bound), found
            bounds.append(bound)

            def state(now: Components = theta) -> dict[str, Any]:
                return to_public(now, kind, X.dtype)

            stop = monitor.step(bound, change, state)
            if change < model.tol and _is_settled(model, X, theta, bound):
                status = Status.SOLVED
                break
            if stop is not None:
                status = stop
                break
    except Singular:
        status = Status.DIVERGED
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return AscentRun(start, theta, bounds, status)


def _is_settled(model: Any, X: Array, theta: Components, before: float) -> bool:
    """Whether the step that led to ``theta`` and the next one gain less than ``tol``.

    ``before`` is the objective before that step: a bound is known a step late. What the
    next one gains is what the certificate states, and a plateau would hide it.
    """
    kind, hard = model.covariance_type, model.assignment == "hard"
    after, here = em_step(X, theta, kind, float(model.reg_covar), hard)
    if not abs(here - before) < model.tol:
        return False
    return abs(mean_likelihood(X, after, hard) - here) < model.tol
