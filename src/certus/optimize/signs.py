"""Sign descent (signSGD): only the sign of each coordinate's gradient is used.

x ← x − γ·sign(g): one bit per coordinate to send, and every coordinate moves by exactly
γ or not at all. The sign of a random gradient is biased towards the median of the
terms, so that on batches it may settle away from the minimiser.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus._core.rounding import ROUNDING
from certus.optimize.constants import find_constants
from certus.optimize.loop import Move, RunLimits, Trace, as_sampler, run
from certus.optimize.objective import Objective, as_objective, as_start
from certus.optimize.record import Bound, Record, Theorem
from certus.optimize.schedules import as_schedule, length
from certus.optimize.theorems import (
    UNKNOWN_L,
    Constants,
    Verdict,
    against,
    make_record,
    of,
    reference,
    sources,
    sums,
    value_allowance,
)
from certus.typing import Array, ArrayLike, RandomState


def sign_descent(
    f: Any,
    x0: ArrayLike,
    *,
    step: Any,
    batch_size: int | None = None,
    random_state: RandomState = None,
    max_iter: int = 1000,
    tol: float = 1e-8,
    stop: Any = (),
) -> Record:
    """Descent along the sign of the gradient: one bit per coordinate (signSGD).

    Parameters
    ----------
    f : callable or Objective
        ``f(x) -> (value, gradient)``; a finite sum for mini-batches.
    x0 : array-like of shape (d,)
        Start.
    step : float or schedule
        γ: every coordinate with a non-zero gradient moves by exactly this much.
    batch_size : int, optional
        Rows drawn for each gradient, all by default. The sign of a random gradient is
        biased: with batches it may settle elsewhere.
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
    Full gradients of an L-smooth f in d variables, convex or not:
    ``min ‖∇f(x_i)‖₁ ≤ (f(x_0) − f* + (Ld/2)·Σγ²)/Σγ``.

    Examples
    --------
    >>> from certus.optimize import sign_descent
    >>> sign_descent(lambda x: (x @ x, 2 * x), [1.0, -3.0], step=0.25, max_iter=2).x
    array([ 0.5, -2.5])
    """
    objective, x = as_objective(f), as_start(x0)
    schedule = as_schedule(step)
    sampler, every = as_sampler(objective, batch_size, random_state)
    constants = find_constants(objective, x, need_L=sampler is None)

    def advance(k: int, x: Array, g: Array) -> Move:
        gamma = length(schedule, k)
        return Move(x - gamma * np.sign(g), gamma)

    def observe(g: Array) -> float:
        return float(np.abs(g).sum())

    limits = RunLimits(max_iter, tol, stop)
    trace = run(
        objective, x, advance, limits, sampler=sampler, every=every, observe=observe
    )
    verdict: Verdict = "the sign of a random gradient is biased: no theorem"
    if sampler is None:
        verdict = _sign_bounds(trace, objective, constants)
    return make_record("sign_descent", trace, objective, constants, verdict)


def _sign_bounds(trace: Trace, objective: Objective, constants: Constants) -> Verdict:
    if not trace.step_sizes:
        return "no step was taken"
    if "L" not in constants:
        return UNKNOWN_L
    ref, k, t = reference(trace, objective), np.array(trace.steps), trace.step_sizes
    L, d = of(constants, "L"), trace.iterates[0].size
    total, squares = sums(k, np.array(t)), sums(k, np.array(t) ** 2)
    gap = trace.values[0] - ref.minimum + value_allowance(trace, ref)
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.where(total > 0, (gap + L * d / 2 * squares) / total, np.inf)
    return (
        Bound(
            Theorem(
                "non-convex",
                "min ‖∇f(x_i)‖₁ ≤ (f(x_0) − f* + (Ld/2)Σγ²)/Σγ",
                (*sources(constants, "L"), *against(ref, True)),
            ),
            "min ‖∇f(x_i)‖₁, i ≤ k",
            k,
            np.minimum.accumulate(trace.kept),
            bound,
            ROUNDING * float(trace.kept[0]),
        ),
    )
