"""Newton's method, damped where a full step would not descend; the second-order test.

x ← x − γ·[∇²f(x)]⁻¹∇f(x). At γ = 1 the step minimises the quadratic model of f at x:
one step solves any quadratic, near a minimiser the error is squared in every step, and
the iterates do not depend on the basis.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from certus._core.rounding import ROUNDING
from certus.optimize.constants import find_constants, hessian_at
from certus.optimize.loop import Move, RunLimits, Trace, run
from certus.optimize.objective import Objective, as_objective, as_start
from certus.optimize.record import Bound, Record, Theorem
from certus.optimize.schedules import constant
from certus.optimize.theorems import Constants, Verdict, make_record, of, sources
from certus.typing import Array, ArrayLike

#: Share of the decrease predicted by the slope that a damped step must reach.
ARMIJO = 1e-4


def newton_method(
    f: Any,
    x0: ArrayLike,
    *,
    step: float | None = None,
    max_iter: int = 100,
    tol: float = 1e-8,
    stop: Any = (),
) -> Record:
    """Newton's method with backtracking.

    Parameters
    ----------
    f : Objective
        Value, gradient and ``hessian``.
    x0 : array-like of shape (d,)
        Start.
    step : float, optional
        A fixed γ. By default γ = 1 is halved until f falls by at least 1e-4 of what the
        slope promises.
    max_iter, tol, stop
        As in :func:`gradient_descent`.

    Returns
    -------
    Record
        A step costs O(d³). Where the Hessian is not positive definite it is lifted by
        a multiple of the identity, and ``extra["lifted"]`` counts how often.

    Objective
    ---------
    ``min f(x)``

    Certificate
    -----------
    With m, the Lipschitz constant M of the Hessian (``hessian_lipschitz``) and full
    steps: ``‖∇f(x_{k+1})‖ ≤ M/(2m²)·‖∇f(x_k)‖²``, applied from the first step at which
    M‖∇f‖/(2m²) < 1. A quadratic (M = 0) is solved in one step.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import newton_method, quadratic_objective
    >>> f = quadratic_objective(np.diag([1.0, 1e6]), np.array([1.0, 2.0]))
    >>> record = newton_method(f, [9.0, -9.0])
    >>> record.n_iter, record.holds
    (1, True)
    """
    objective, x = as_objective(f), as_start(x0)
    if objective.hessian is None:
        raise ValueError("Newton's method needs Objective(f, hessian=...).")
    fixed = None if step is None else constant(step)
    hessian, lifted, scale = objective.hessian, 0, 0.0

    def advance(k: int, x: Array, g: Array) -> Move:
        nonlocal lifted, scale
        direction, changed = _newton_direction(hessian_at(hessian, x), g)
        lifted += changed
        if fixed is not None:
            return Move(x + fixed * direction, fixed)
        value = objective.evaluate(x)[0]
        scale = max(scale, abs(value))
        gamma = _backtrack(objective, x, value, float(g @ direction), direction, scale)
        return Move(x + gamma * direction, gamma)

    trace = run(objective, x, advance, RunLimits(max_iter, tol, stop))
    constants = find_constants(objective, x, need_L=False)
    verdict = _newton_bounds(trace, objective, constants, lifted)
    return make_record(
        "newton_method",
        trace,
        objective,
        constants,
        verdict,
        extra={"lifted": lifted},
    )


def _newton_direction(H: Array, g: Array) -> tuple[Array, bool]:
    """−H⁻¹g; where H is not positive definite, a lifted one is used instead."""
    if not np.isfinite(H).all():
        return np.full_like(g, np.nan), False  # the run ends there as diverged
    lift = 0.0
    scale = float(np.abs(H).max()) or 1.0
    while True:
        try:
            factor = cho_factor(H + lift * np.eye(g.size), check_finite=False)
            return -cho_solve(factor, g, check_finite=False), lift > 0
        except LinAlgError:
            lift = max(2 * lift, 1e-8 * scale)


def _backtrack(
    objective: Objective,
    x: Array,
    value: float,
    slope: float,
    direction: Array,
    scale: float,
) -> float:
    """Halve γ = 1 until f falls by a share of what the slope predicts."""
    gamma, rounding = 1.0, ROUNDING * scale
    for _ in range(60):
        ahead = objective.evaluate(x + gamma * direction)[0]
        if ahead <= value + ARMIJO * gamma * slope + rounding:
            return gamma
        gamma /= 2
    return gamma


def _newton_bounds(
    trace: Trace, objective: Objective, constants: Constants, lifted: int
) -> Verdict:
    m, M = of(constants, "m"), of(constants, "hessian_lipschitz")
    quadratic = objective.quadratic
    if not (m > 0 and (quadratic or "hessian_lipschitz" in constants)):
        return "the theorem needs m > 0 and hessian_lipschitz"
    if lifted:
        return "a Hessian was not positive definite, which contradicts m > 0"
    g, t = np.array(trace.gradient_norms), np.array(trace.step_sizes)
    rate = 0.0 if quadratic else M / (2 * m**2)
    full = np.append(t == 1.0, True)
    bound, inside = np.full(g.size, np.inf), False
    for k in range(g.size - 1):
        start = bound[k] if inside else g[k]
        inside = bool(full[k]) and rate * start < 1
        if inside:
            bound[k + 1] = rate * start**2
    # An inexact solve leaves a residual of the size of rounding in H·direction.
    return (
        Bound(
            Theorem(
                "strongly convex",
                "‖∇f(x_{k+1})‖ ≤ M/(2m²)·‖∇f(x_k)‖², full steps, M‖∇f‖/(2m²) < 1",
                sources(constants, "m", "hessian_lipschitz"),
            ),
            "‖∇f(x_k)‖",
            np.array(trace.steps),
            g,
            bound,
            ROUNDING * float(g[0]),
        ),
    )


def second_order_test(gradient: Any, hessian: Any, tol: float = 1e-8) -> str:
    """Classify a point by its second derivatives: minimum, maximum or saddle.

    Parameters
    ----------
    gradient : array-like of shape (d,)
        ∇f.
    hessian : array-like of shape (d, d)
        ∇²f.
    tol : float, default=1e-8
        What counts as zero, relative to the largest curvature (absolute for the
        gradient).

    Returns
    -------
    {"minimum", "maximum", "saddle", "undecided", "not stationary"}
        ∇f = 0 and ∇²f ≻ 0 make a strict local minimum. With a zero eigenvalue and no
        two signs the test decides nothing: x³ and x⁴ look alike at 0.

    Examples
    --------
    >>> from certus.optimize import second_order_test
    >>> second_order_test([0, 0], [[2, 0], [0, -2]])
    'saddle'
    """
    g = np.atleast_1d(np.asarray(gradient, dtype=np.float64))
    H = np.atleast_2d(np.asarray(hessian, dtype=np.float64))
    if H.shape != (g.size, g.size):
        raise ValueError(
            f"hessian must have shape ({g.size}, {g.size}), got {H.shape}."
        )
    if not (np.isfinite(g).all() and np.isfinite(H).all()):
        raise ValueError("the gradient or the Hessian holds NaN or infinity.")
    if np.linalg.norm(g) > tol:
        return "not stationary"
    eigenvalues = np.linalg.eigvalsh((H + H.T) / 2)
    zero = tol * max(float(np.abs(eigenvalues).max()), np.finfo(float).tiny)
    up, down = bool((eigenvalues > zero).any()), bool((eigenvalues < -zero).any())
    if up and down:
        return "saddle"
    if (np.abs(eigenvalues) <= zero).any():
        return "undecided"
    return "minimum" if up else "maximum"
