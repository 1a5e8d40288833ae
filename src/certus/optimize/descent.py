"""Gradient descent, and clipping.

x ← x − t·∇f(x). With t = 1/L a step minimises the quadratic model
f(x) + ∇f(x)ᵀ(y − x) + ‖y − x‖²/(2t), which lies above an L-smooth f, so f never rises.
Where L is not given, steps are halved until f falls as that lemma says. A clipped step
is a shorter step in the same direction: the theorems for varying steps cover it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.optimize.constants import find_constants, smoothness
from certus.optimize.loop import Move, RunLimits, run
from certus.optimize.objective import Objective, as_objective, as_start
from certus.optimize.record import Known, Record
from certus.optimize.schedules import as_schedule, length
from certus.optimize.theorems import descent, make_record, of
from certus.typing import Array, ArrayLike


def clip_gradient(g: Any, c: float) -> Array:
    """Shorten ``g`` to length ``c``, keeping its direction: g·min(1, c/‖g‖).

    Parameters
    ----------
    g : array-like
        A gradient.
    c : float
        Largest length allowed, positive.

    Returns
    -------
    ndarray
        ``g`` itself where it is short enough.

    Examples
    --------
    >>> from certus.optimize import clip_gradient
    >>> clip_gradient([3.0, 4.0], 1.0)
    array([0.6, 0.8])
    """
    g = np.asarray(g, dtype=np.float64)
    return g * clip_factor(g, c)


def clip_factor(g: Array, c: float | None) -> float:
    """min(1, c/‖g‖), 1 without clipping."""
    if c is None:
        return 1.0
    if not c > 0:
        raise ValueError(f"clip must be positive, got {c!r}.")
    largest = float(np.abs(g).max(initial=0.0))
    if not largest > c / max(1, g.size):
        return 1.0
    # Scaled by its largest entry, a huge gradient does not overflow when squared.
    norm = largest * float(np.linalg.norm(g / largest))
    return 1.0 if norm <= c else c / norm


def gradient_descent(
    f: Any,
    x0: ArrayLike,
    *,
    step: Any = None,
    clip: float | None = None,
    max_iter: int = 1000,
    tol: float = 1e-8,
    stop: Any = (),
) -> Record:
    """Gradient descent with the rate theorem that applies.

    Parameters
    ----------
    f : callable or Objective
        ``f(x) -> (value, gradient)``; an :class:`Objective` adds what is known of it.
    x0 : array-like of shape (d,)
        Start.
    step : float, schedule or "backtracking", optional
        Step length t. By default 2/(m + L) if L and m are given, 1/L if L is given, and
        else "backtracking": from one over the curvature at x0, t is halved until
        f(x − t∇f) ≤ f(x) − (t/2)‖∇f‖².
    clip : float, optional
        Longest gradient followed.
    max_iter : int, default=1000
        Most steps.
    tol : float, default=1e-8
        Stop where ‖∇f(x)‖ ≤ tol.
    stop : rule or tuple of rules, optional
        :class:`MaxTime`, :class:`Static`, :class:`Validation`.

    Returns
    -------
    Record
        Iterates and the theorem's bound beside what was observed. Memory is that of
        ``max_iter`` points; a step costs one evaluation, with backtracking three.

    Objective
    ---------
    ``min f(x)``

    Certificate
    -----------
    - strongly convex, t < 2/L: ``‖x_k − x*‖ ≤ Π max(|1 − tm|, |1 − tL|)·‖x_0 − x*‖``,
      which is ``((κ − 1)/(κ + 1))^k`` at t = 2/(m + L);
    - PL, t < 2/L: ``f − f* ≤ Π (1 − μt(2 − Lt))·(f(x_0) − f*)``;
    - convex, t ≤ 1/L: ``f − f* ≤ ‖x_0 − x*‖²/(2 Σt)``;
    - otherwise, t < 2/L: ``min ‖∇f‖ ≤ √((f(x_0) − f*)/Σ t(1 − Lt/2))``.

    With backtracking the descent is seen, not assumed, and no L enters: strongly convex
    and PL ``Π (1 − μt)·(f(x_0) − f*)``, convex as above, else
    ``min ‖∇f‖ ≤ √(2(f(x_0) − f*)/Σt)``.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import gradient_descent, quadratic_objective
    >>> f = quadratic_objective(np.diag([1.0, 10.0]), np.zeros(2))
    >>> record = gradient_descent(f, [1.0, 1.0])
    >>> record.theorem.kind, record.holds, record.reason
    ('strongly convex', True, 'gradient norm 8.7e-09 ≤ tol 1e-08')
    """
    objective, x = as_objective(f), as_start(x0)
    constants = find_constants(objective, x)
    if step is None:
        L, m = smoothness(constants), of(constants, "m")
        step = 2 / (m + L) if m > 0 else 1 / L
        if constants["L"].source == "estimated":
            step = "backtracking"
    search = isinstance(step, str) and step == "backtracking"
    schedule = as_schedule(1 / smoothness(constants) if search else step)
    shortest = length(schedule, 0)

    def advance(k: int, x: Array, g: Array) -> Move:
        nonlocal shortest
        factor = clip_factor(g, clip)
        if not search:
            t = length(schedule, k) * factor
            return Move(x - t * g, t)
        t = _halve(objective, x, g, shortest * factor)
        shortest = t / factor  # clipping shortens this step alone
        return Move(x - t * g, t)

    trace = run(objective, x, advance, RunLimits(max_iter, tol, stop))
    if search:
        constants["L"] = Known(max(1 / shortest, trace.path.steepest), "estimated")
    verdict = descent(trace, objective, constants, searched=search)
    return make_record("gradient_descent", trace, objective, constants, verdict)


def _halve(objective: Objective, x: Array, g: Array, t: float) -> float:
    """Halve ``t`` until a step descends as the lemma for t ≤ 1/L says."""
    value, square = objective.evaluate(x)[0], float(g @ g)
    # Close to the optimum the decrease is lost in rounding, which decides nothing.
    rounding = 1e-14 * abs(value)
    for _ in range(200):
        if objective.evaluate(x - t * g)[0] <= value - t / 2 * square + rounding:
            break
        t /= 2
    return t
