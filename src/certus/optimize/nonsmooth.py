"""Subgradient descent: for convex functions with kinks.

A subgradient g at x satisfies f(u) ≥ f(x) + gᵀ(u − x) for all u. x ← P(x − t·g) need
not descend, but with t ∝ 1/√k its best value so far approaches the minimum like 1/√k.
The stochastic form is :func:`stochastic_gradient_descent`, whose theorem for convex f
asks for no smoothness either.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.optimize.constants import find_constants
from certus.optimize.loop import Move, RunLimits, run
from certus.optimize.objective import as_objective, as_start
from certus.optimize.record import Record
from certus.optimize.schedules import as_schedule, length
from certus.optimize.sets import as_projection
from certus.optimize.splitting import inside
from certus.optimize.theorems import make_record, subgradient
from certus.typing import Array, ArrayLike


def subgradient_descent(
    f: Any,
    x0: ArrayLike,
    *,
    step: Any,
    constraint: Any = None,
    max_iter: int = 1000,
    tol: float = 0.0,
    stop: Any = (),
) -> Record:
    """(Projected) subgradient descent.

    Parameters
    ----------
    f : callable or Objective
        ``f(x) -> (value, subgradient)``, convex; an ``optimum`` outside the constraint
        set is left aside.
    x0 : array-like of shape (d,)
        Start.
    step : float or schedule
        t; :class:`InverseSqrt` is the usual choice.
    constraint : set, optional
        One of ``Ball, Box, Simplex, HalfSpace, Intersection``, or anything with a
        method ``project``.
    max_iter : int, default=1000
        Most steps.
    tol : float, default=0
        Stop where the subgradient's norm is at most this. At a minimum with a kink it
        usually is not.
    stop : rule or tuple of rules, optional
        As in :func:`gradient_descent`.

    Returns
    -------
    Record
        ``x`` is the best iterate.

    Objective
    ---------
    ``min f(x)`` over the constraint set

    Certificate
    -----------
    ``min f(x_i) − f* ≤ (‖x_0 − x*‖² + Σ t²‖g‖²)/(2 Σt)``, for any steps.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import InverseSqrt, Objective, subgradient_descent
    >>> f = Objective(lambda x: (np.abs(x).sum(), np.sign(x)), convex=True)
    >>> record = subgradient_descent(f, [3.0, -2.0], step=InverseSqrt(0.5))
    >>> record.value < 0.05, record.holds
    (True, True)
    """
    objective, schedule = as_objective(f), as_schedule(step)
    project = as_projection(constraint)
    x = project(as_start(x0))
    objective = inside(objective, lambda w, t: project(w), 0.0)

    def advance(k: int, x: Array, g: Array) -> Move:
        t = length(schedule, k)
        return Move(project(x - t * g), t, None, float(g @ g))

    trace = run(objective, x, advance, RunLimits(max_iter, tol, stop))
    constants = find_constants(objective, x, need_L=False)
    best = int(np.argmin(trace.values))
    return make_record(
        "subgradient_descent",
        trace,
        objective,
        constants,
        subgradient(trace, objective),
        x=trace.iterates[best],
        value=trace.values[best],
    )
