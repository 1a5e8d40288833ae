"""Momentum in three forms: averaged gradients, Polyak's heavy ball, Nesterov.

Heavy ball: x_{k+1} = x_k − η∇f(x_k) + β(x_k − x_{k−1}). The averaged form
m ← βm + (1 − β)g, x ← x − γm is a heavy ball with η = γ(1 − β). Nesterov takes the
gradient where the momentum leads, y = x_k + β(x_k − x_{k−1}), x_{k+1} = y − t∇f(y), and
needs about √κ steps where gradient descent needs κ = L/m.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from certus._core.rounding import ROUNDING
from certus.optimize.constants import find_constants, smoothness
from certus.optimize.loop import Move, RunLimits, Trace, as_sampler, run
from certus.optimize.objective import Objective, as_objective, as_start
from certus.optimize.record import Bound, Record, Theorem
from certus.optimize.schedules import as_schedule, constant, length
from certus.optimize.theorems import (
    UNKNOWN_L,
    Constants,
    Verdict,
    against,
    make_record,
    of,
    reference,
    sources,
    value_allowance,
)
from certus.typing import Array, ArrayLike, RandomState


def check_beta(beta: float, name: str = "beta") -> float:
    """A memory in [0, 1)."""
    if not 0 <= beta < 1:
        raise ValueError(f"{name} must lie in [0, 1), got {beta!r}.")
    return float(beta)


def heavy_ball(
    f: Any,
    x0: ArrayLike,
    *,
    step: float | None = None,
    beta: float | None = None,
    max_iter: int = 1000,
    tol: float = 1e-8,
    stop: Any = (),
) -> Record:
    """Polyak's heavy ball.

    Parameters
    ----------
    f : callable or Objective
        ``f(x) -> (value, gradient)``.
    x0 : array-like of shape (d,)
        Start, also taken as x_{−1}.
    step, beta : float, optional
        η and β. By default Polyak's η = 4/(√L + √m)², β = ((√κ − 1)/(√κ + 1))² if m is
        known, else β = 0.9 and η = (1 − β)/L.
    max_iter, tol, stop
        As in :func:`gradient_descent`.

    Returns
    -------
    Record

    Objective
    ---------
    ``min f(x)``

    Certificate
    -----------
    - quadratic, (1 − √β)² ≤ ηm, ηL ≤ (1 + √β)²:
      ``‖x_k − x*‖ ≤ β^{k/2}·(1 + k(1 + √β))·‖x_0 − x*‖``;
    - convex with a given minimiser, η ≤ (1 − β)/L: ``min f(x_i) − f* ≤
      ((1 − β)‖x_0 − x*‖²/(2η) + β/(1 − β)·(f(x_0) − f*))/(k + 1)``.

    Beyond quadratics Polyak's parameters may cycle, and nothing is claimed.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import heavy_ball, quadratic_objective
    >>> f = quadratic_objective(np.diag([1.0, 100.0]), np.zeros(2))
    >>> record = heavy_ball(f, [1.0, 1.0])
    >>> record.n_iter < 150, record.holds
    (True, True)
    """
    objective, x = as_objective(f), as_start(x0)
    constants = find_constants(objective, x)
    L, m = (smoothness(constants) if step is None else 0.0), of(constants, "m")
    if beta is None:
        root = math.sqrt(m / L) if step is None and m > 0 else 0.0
        beta = ((1 - root) / (1 + root)) ** 2 if root else 0.9
        if step is None and root:
            step = 4 / (math.sqrt(L) + math.sqrt(m)) ** 2
    beta = check_beta(beta)
    if step is None:
        step = (1 - beta) / L
    eta, before = constant(step), x

    def advance(k: int, x: Array, g: Array) -> Move:
        nonlocal before
        ahead = x - eta * g + beta * (x - before)
        before = x
        return Move(ahead, eta)

    trace = run(objective, x, advance, RunLimits(max_iter, tol, stop))
    verdict = _ball_bounds(trace, objective, constants, eta, beta)
    return make_record("heavy_ball", trace, objective, constants, verdict)


def _ball_bounds(
    trace: Trace, objective: Objective, constants: Constants, eta: float, beta: float
) -> Verdict:
    if "L" not in constants:
        return UNKNOWN_L
    L, m, root = of(constants, "L"), of(constants, "m"), math.sqrt(beta)
    ref, k = reference(trace, objective), np.array(trace.steps)
    inside = eta * m >= (1 - root) ** 2 * (1 - 1e-12) and eta * L <= (1 + root) ** 2 * (
        1 + 1e-12
    )
    if objective.quadratic and m > 0 and inside:
        away = 0.0 if ref.given else ref.gradient / m
        R = float(np.linalg.norm(trace.iterates[0] - ref.x)) + away
        bound = Bound(
            Theorem(
                "strongly convex",
                "‖x_k − x*‖ ≤ β^{k/2}(1 + k(1 + √β))·‖x_0 − x*‖ on a quadratic",
                (*sources(constants, "L", "m"), *against(ref)),
            ),
            f"‖x_k − {ref.point}‖",
            k,
            np.linalg.norm(trace.points - ref.x, axis=1),
            root**k * (1 + k * (1 + root)) * R + away,
            ROUNDING * (float(np.linalg.norm(ref.x)) + R) * max(1.0, L / m),
        )
        return (bound,)
    if not (objective.is_convex and ref.given):
        return (
            "theorems for the heavy ball need a quadratic (quadratic=True, m), or a "
            "convex function whose minimiser is given"
        )
    if eta * L > (1 - beta) * (1 + 1e-12):
        return f"η = {eta:.4g} exceeds (1 − β)/L = {(1 - beta) / L:.4g}"
    R2 = float(np.sum((trace.iterates[0] - ref.x) ** 2))
    gap = trace.values[0] - ref.value
    bound = Bound(
        Theorem(
            "convex",
            "min f(x_i) − f* ≤ ((1 − β)‖x_0 − x*‖²/(2η) + β/(1 − β)(f(x_0) − f*))"
            "/(k + 1)",
            (*sources(constants, "L"), *against(ref)),
        ),
        "min f(x_i) − f*, i ≤ k",
        k,
        np.minimum.accumulate(trace.values) - ref.value,
        ((1 - beta) * R2 / (2 * eta) + beta / (1 - beta) * gap) / (k + 1),
        value_allowance(trace, ref),
    )
    return (bound,)


def momentum(
    f: Any,
    x0: ArrayLike,
    *,
    step: Any = None,
    beta: float = 0.9,
    batch_size: int | None = None,
    random_state: RandomState = None,
    max_iter: int = 1000,
    tol: float = 1e-8,
    stop: Any = (),
) -> Record:
    """Descent along an exponential average of the gradients.

    ``m ← β·m + (1 − β)·g``, ``x ← x − γ·m``: the heavy ball with step γ(1 − β).

    Parameters
    ----------
    f : callable or Objective
        ``f(x) -> (value, gradient)``; a finite sum for mini-batches.
    x0 : array-like of shape (d,)
        Start.
    step : float or schedule, optional
        γ, by default 1/L.
    beta : float, default=0.9
        Memory; 0 gives (stochastic) gradient descent.
    batch_size : int, optional
        Rows drawn for each gradient, all by default.
    random_state : int, Generator or None
        Seed or generator of all random numbers.
    max_iter, tol, stop
        As in :func:`gradient_descent`.

    Returns
    -------
    Record

    Objective
    ---------
    ``min f(x)``

    Certificate
    -----------
    With full gradients and a constant step that of :func:`heavy_ball`.

    Examples
    --------
    >>> from certus.optimize import momentum
    >>> record = momentum(lambda x: (x @ x, 2 * x), [1.0], step=0.5)
    >>> record.status.value
    'solved'
    """
    objective, x = as_objective(f), as_start(x0)
    beta = check_beta(beta)
    sampler, every = as_sampler(objective, batch_size, random_state)
    constants = find_constants(objective, x, need_L=sampler is None or step is None)
    schedule = as_schedule(1 / smoothness(constants) if step is None else step)
    mean = np.zeros_like(x)

    def advance(k: int, x: Array, g: Array) -> Move:
        nonlocal mean
        gamma = length(schedule, k)
        mean = beta * mean + (1 - beta) * g
        return Move(x - gamma * mean, gamma)

    limits = RunLimits(max_iter, tol, stop)
    trace = run(objective, x, advance, limits, sampler=sampler, every=every)
    verdict: Verdict = "there is no theorem here for momentum on random batches"
    if sampler is None:
        lengths = set(trace.step_sizes)
        verdict = (
            "the theorem is for a constant step" if lengths else "no step was taken"
        )
        if len(lengths) == 1:
            eta = lengths.pop() * (1 - beta)
            verdict = _ball_bounds(trace, objective, constants, eta, beta)
    return make_record("momentum", trace, objective, constants, verdict)


def nesterov(
    f: Any,
    x0: ArrayLike,
    *,
    step: float | None = None,
    max_iter: int = 1000,
    tol: float = 1e-8,
    stop: Any = (),
) -> Record:
    """Nesterov's accelerated gradient method.

    Parameters
    ----------
    f : callable or Objective
        ``f(x) -> (value, gradient)``, convex.
    x0 : array-like of shape (d,)
        Start.
    step : float, optional
        t, at most 1/L, the default. With m known the momentum is
        β = (1 − √(mt))/(1 + √(mt)), else that of the sequence
        s ← (1 + √(1 + 4s²))/2.
    max_iter, tol, stop
        As in :func:`gradient_descent`.

    Returns
    -------
    Record
        Each step costs two evaluations: at the iterate, for the record, and where the
        momentum leads.

    Objective
    ---------
    ``min f(x)``

    Certificate
    -----------
    - strongly convex: ``f − f* ≤ (1 − √(mt))^k·(1/t + m)/2·‖x_0 − x*‖²``; at t = 1/L
      this is ``((√κ − 1)/√κ)^k·(L + m)/2·‖x_0 − x*‖²``;
    - convex: ``f − f* ≤ 2‖x_0 − x*‖²/(t(k + 1)²)``.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import nesterov, quadratic_objective
    >>> f = quadratic_objective(np.diag([1.0, 100.0]), np.zeros(2))
    >>> record = nesterov(f, [1.0, 1.0])
    >>> record.n_iter < 250, record.holds
    (True, True)
    """
    objective, x = as_objective(f), as_start(x0)
    constants = find_constants(objective, x)
    t = constant(1 / smoothness(constants) if step is None else step)
    m = of(constants, "m")
    root = min(1.0, math.sqrt(m * t))
    before, weight = x, 1.0

    def advance(k: int, x: Array, g: Array) -> Move:
        nonlocal before, weight
        if m > 0:
            beta = (1 - root) / (1 + root)
        else:
            new = (1 + math.sqrt(1 + 4 * weight**2)) / 2
            # The first step has no momentum: x_{−1} = x_0.
            beta = (weight - 1) / new if k else 0.0
            weight = new if k else weight
        y = x + beta * (x - before)
        before = x
        slope = g if beta == 0 or k == 0 else objective.evaluate(y)[1]
        return Move(y - t * slope, t)

    trace = run(objective, x, advance, RunLimits(max_iter, tol, stop))
    verdict = _nesterov_bounds(trace, objective, constants, t)
    return make_record("nesterov", trace, objective, constants, verdict)


def _nesterov_bounds(
    trace: Trace, objective: Objective, constants: Constants, t: float
) -> Verdict:
    L, m = of(constants, "L"), of(constants, "m")
    if "L" not in constants:
        return UNKNOWN_L
    if not (objective.is_convex or m > 0):
        return "acceleration is proved for convex functions: Objective(f, convex=True)"
    if t * L > 1 + 1e-12:
        return f"the step {t:.4g} exceeds 1/L = {1 / L:.4g}"
    ref, k = reference(trace, objective), np.array(trace.steps)
    R = float(np.linalg.norm(trace.iterates[0] - ref.x))
    lines = (*sources(constants, "L", "m"), *against(ref))
    if m > 0:
        R += 0.0 if ref.given else ref.gradient / m
        statement = "f(x_k) − f* ≤ (1 − √(mt))^k·(1/t + m)/2·‖x_0 − x*‖²"
        bound = max(0.0, 1 - math.sqrt(m * t)) ** k * (1 / t + m) / 2 * R**2
        kind = "strongly convex"
    else:
        statement = "f(x_k) − f* ≤ 2‖x_0 − x*‖²/(t(k + 1)²)"
        bound = np.where(k > 0, 2 * R**2 / (t * (k + 1.0) ** 2), np.inf)
        kind = "convex"
    return (
        Bound(
            Theorem(kind, statement, lines),
            f"f(x_k) − {ref.least}",
            k,
            np.array(trace.values) - ref.value,
            bound,
            value_allowance(trace, ref),
        ),
    )
