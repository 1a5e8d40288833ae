"""Projected and proximal gradient descent: a gradient step, then a simple map.

min f(x) over a convex set C:   x ← P_C(x − t∇f(x));
min f(x) + h(x), h convex:      x ← prox_{th}(x − t∇f(x)),
prox_{th}(w) = argmin_v h(v) + ‖v − w‖²/(2t). The first is the second with h the
indicator of C. Both maps never stretch distances, so the rates of gradient descent
carry over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from certus.optimize.constants import find_constants, smoothness
from certus.optimize.loop import Move, RunLimits, run
from certus.optimize.objective import Objective, as_objective, as_start
from certus.optimize.record import Known, Record
from certus.optimize.schedules import as_schedule, length
from certus.optimize.sets import as_projection
from certus.optimize.theorems import descent, make_record, of
from certus.typing import Array, ArrayLike


class L1Norm(NamedTuple):
    """alpha·‖x‖₁, whose proximal map shrinks each entry towards zero.

    Examples
    --------
    >>> from certus.optimize import L1Norm
    >>> L1Norm(1.0).prox([3.0, -0.5], 1.0)
    array([ 2., -0.])
    """

    alpha: float

    def value(self, x: Array) -> float:
        """alpha·‖x‖₁."""
        return self.alpha * float(np.abs(x).sum())

    def prox(self, w: Any, t: float) -> Array:
        """The entries shrunk by t·alpha."""
        w = np.asarray(w, dtype=np.float64)
        return np.sign(w) * np.maximum(np.abs(w) - t * self.alpha, 0.0)


def projected_gradient(
    f: Any,
    x0: ArrayLike,
    constraint: Any,
    *,
    step: Any = None,
    max_iter: int = 1000,
    tol: float = 1e-8,
    stop: Any = (),
) -> Record:
    """Projected gradient descent; every iterate is feasible.

    Parameters
    ----------
    f : callable or Objective
        ``f(x) -> (value, gradient)``; an ``optimum`` that is not one
        of the constrained problem is left aside.
    x0 : array-like of shape (d,)
        Start; projected first.
    constraint : set
        ``Ball, Box, Simplex, HalfSpace, Intersection``, or anything with ``project``.
    step : float or schedule, optional
        t. By default 1/L; where L is not given, t is halved until f lies below its
        quadratic model where the step lands.
    max_iter : int, default=1000
        Most steps.
    tol : float, default=1e-8
        Stop where ‖x − P(x − t∇f(x))‖/t ≤ tol; it is 0 exactly at stationary points.
    stop : rule or tuple of rules, optional
        As in :func:`gradient_descent`.

    Returns
    -------
    Record

    Objective
    ---------
    ``min f(x)`` over the set

    Certificate
    -----------
    As :func:`gradient_descent`: distances (strongly convex, with a minimiser given),
    ``f − f* ≤ ‖x_0 − x*‖²/(2 Σt)`` (convex), and the smallest projected gradient
    otherwise.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import Ball, projected_gradient, quadratic_objective
    >>> f = quadratic_objective(np.eye(2), np.array([3.0, 4.0]))
    >>> projected_gradient(f, [0.0, 0.0], Ball(1.0)).x.round(6)
    array([0.6, 0.8])
    """
    project = as_projection(constraint)

    def backward(w: Array, t: float) -> Array:
        return project(w)

    start, limits = project(as_start(x0)), RunLimits(max_iter, tol, stop)
    return _forward_backward(
        "projected_gradient", f, start, backward, None, step, limits
    )


def proximal_gradient(
    f: Any,
    x0: ArrayLike,
    penalty: Any,
    *,
    step: Any = None,
    max_iter: int = 1000,
    tol: float = 1e-8,
    stop: Any = (),
) -> Record:
    """Proximal gradient descent on f + h.

    Parameters
    ----------
    f : callable or Objective
        The smooth part; an ``optimum`` that is not one of the sum is left aside.
    x0 : array-like of shape (d,)
        Start.
    penalty : object
        h, with ``value(x)`` and ``prox(w, t)``; for example :class:`L1Norm`.
    step : float or schedule, optional
        t. By default 1/L; where L is not given, t is halved until f lies below its
        quadratic model where the step lands.
    max_iter : int, default=1000
        Most steps.
    tol : float, default=1e-8
        Stop where ‖x − prox(x − t∇f(x))‖/t ≤ tol.
    stop : rule or tuple of rules, optional
        As in :func:`gradient_descent`.

    Returns
    -------
    Record
        ``values`` are those of f + h.

    Objective
    ---------
    ``min f(x) + h(x)``

    Certificate
    -----------
    As :func:`projected_gradient`, for f + h.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import L1Norm, proximal_gradient, quadratic_objective
    >>> f = quadratic_objective(np.eye(2), np.array([3.0, 0.5]))
    >>> proximal_gradient(f, [0.0, 0.0], L1Norm(1.0)).x
    array([2., 0.])
    """
    missing = [name for name in ("value", "prox") if not hasattr(penalty, name)]
    if missing:
        raise TypeError(f"penalty must have the method {missing[0]}; see L1Norm.")
    start, limits = as_start(x0), RunLimits(max_iter, tol, stop)
    return _forward_backward(
        "proximal_gradient", f, start, penalty.prox, penalty.value, step, limits
    )


def _forward_backward(
    method: str,
    f: Any,
    x: Array,
    backward: Callable[[Array, float], Array],
    value: Callable[[Array], float] | None,
    step: Any,
    limits: RunLimits,
) -> Record:
    objective = as_objective(f)
    constants = find_constants(objective, x)
    objective = inside(objective, backward, 1 / (of(constants, "L") or 1.0))
    schedule = as_schedule(1 / smoothness(constants) if step is None else step)
    search = step is None and constants["L"].source == "estimated"
    shortest = length(schedule, 0)

    def advance(k: int, x: Array, g: Array) -> Move:
        nonlocal shortest
        t = length(schedule, k)
        if search:
            t = shortest = _halve(objective, x, g, backward, shortest)
        ahead = backward(x - t * g, t)
        return Move(ahead, t, float(np.linalg.norm(ahead - x)) / t)

    measure = "projected gradient" if value is None else "proximal gradient"
    trace = run(objective, x, advance, limits, measure=measure, value=value)
    if search:
        constants["L"] = Known(max(1 / shortest, trace.path.steepest), "estimated")
    verdict = descent(trace, objective, constants, True, search, value)
    return make_record(method, trace, objective, constants, verdict, penalty=value)


def _halve(
    objective: Objective,
    x: Array,
    g: Array,
    backward: Callable[[Array, float], Array],
    t: float,
) -> float:
    """Halve ``t`` until f lies below its quadratic model where the step lands."""
    value = objective.evaluate(x)[0]
    for _ in range(200):
        move = backward(x - t * g, t) - x
        model = value + float(g @ move) + float(move @ move) / (2 * t)
        if objective.evaluate(x + move)[0] <= model + 1e-14 * abs(value):
            break
        t /= 2
    return t


def inside(
    objective: Objective, backward: Callable[[Array, float], Array], t: float
) -> Objective:
    """Drop a minimiser of f alone: the theorems are about the whole problem.

    The minimiser of the whole is one that a step of length ``t`` leaves in place; of
    length 0, one that lies in the set.
    """
    if objective.optimum is None:
        return objective
    x = as_start(objective.optimum)
    move = t * objective.evaluate(x)[1]
    rest = np.linalg.norm(x - backward(x - move, t))
    if rest <= 1e-10 * (np.linalg.norm(x) + np.linalg.norm(move)):
        return objective
    return replace(objective, optimum=None, minimum=None)
