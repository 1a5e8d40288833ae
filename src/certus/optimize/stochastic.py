"""Stochastic gradient descent on f = (1/n) Σ f_i: one term, or a mini-batch, a step.

x ← x − η·g with g = mean of ∇f_i over a random batch, an unbiased estimate of ∇f whose
variance is V/r for r rows drawn with replacement, V/r·(n − r)/(n − 1) without. A step
costs Θ(d·r) whatever n is. With a constant step the iterates settle into a cloud of
squared radius proportional to η; decaying steps, or averaging, take them further.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus._core.rounding import ROUNDING
from certus.optimize.constants import find_constants
from certus.optimize.descent import clip_factor
from certus.optimize.loop import Move, RunLimits, Sampler, Trace, run
from certus.optimize.objective import Objective, as_start, as_sum
from certus.optimize.record import Bound, Known, Record, Theorem
from certus.optimize.schedules import as_schedule, length
from certus.optimize.theorems import (
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


def polyak_average(iterates: Any) -> Array:
    """Running means of the iterates: x̄_{k+1} = (k·x̄_k + x_{k+1})/(k + 1).

    Parameters
    ----------
    iterates : array-like of shape (rows, d)
        For example ``record.iterates``.

    Returns
    -------
    ndarray of shape (rows, d)
        Row k is the mean of rows 0 to k.

    Examples
    --------
    >>> from certus.optimize import polyak_average
    >>> polyak_average([[0.0], [2.0], [4.0]])
    array([[0.], [1.], [2.]])
    """
    points = np.asarray(iterates, dtype=np.float64)
    means = np.empty_like(points)
    mean = np.zeros(points.shape[1:])
    for k, point in enumerate(points):
        mean = mean + (point - mean) / (k + 1)
        means[k] = mean
    return means


def gradient_noise(f: Any, x: Any) -> float:
    """V(x) = (1/n) Σ ‖∇f_i(x) − ∇f(x)‖², the variance of a single term's gradient.

    Parameters
    ----------
    f : Objective
        A finite sum (``n_terms``).
    x : array-like of shape (d,)
        Where.

    Returns
    -------
    float
        The trace of the covariance of the terms' gradients; takes n evaluations.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import gradient_noise, least_squares_objective
    >>> f = least_squares_objective(np.ones((2, 1)), np.array([-1.0, 1.0]))
    >>> gradient_noise(f, [0.0])
    1.0
    """
    objective, x = as_sum(f, "gradient_noise"), as_start(x)
    mean = objective.evaluate(x)[1]
    total = 0.0
    for i in range(objective.n_terms or 0):
        total += float(np.sum((objective.evaluate(x, np.array([i]))[1] - mean) ** 2))
    return total / (objective.n_terms or 1)


def stochastic_gradient_descent(
    f: Any,
    x0: ArrayLike,
    *,
    step: Any,
    batch_size: int = 1,
    replace: bool = True,
    average: bool = False,
    clip: float | None = None,
    every: int | None = None,
    random_state: RandomState = None,
    max_iter: int = 1000,
    tol: float = 0.0,
    stop: Any = (),
) -> Record:
    """Stochastic and mini-batch gradient descent, also on subgradients.

    Parameters
    ----------
    f : Objective
        A mean of ``n_terms`` terms.
    x0 : array-like of shape (d,)
        Start.
    step : float or schedule
        η; for example :class:`RobbinsMonro` for strongly convex, :class:`InverseSqrt`
        for convex f.
    batch_size : int, default=1
        Rows drawn for each step; all of them, without replacement, is gradient descent
        to the bit.
    replace : bool, default=True
        Whether a batch may contain a row twice.
    average : bool, default=False
        Return the average of the iterates x_0, ..., x_{k−1}, weighted by the steps (for
        a constant step Polyak's running mean).
    clip : float, optional
        Longest gradient followed; a clipped gradient is biased, and no theorem stated.
    every : int, optional
        Evaluate and record f in full every this many steps; an epoch by default. A step
        between two records never looks at all rows.
    random_state : int, Generator or None
        Seed or generator of all random numbers.
    max_iter, stop
        As in :func:`gradient_descent`; ``max_iter`` counts steps, not epochs.
    tol : float, default=0
        Stop where the full gradient norm at a record is at most this.

    Returns
    -------
    Record
        ``extra["averages"]`` holds the averages at the records.

    Objective
    ---------
    ``min (1/n) Σ f_i(x)``

    Certificate
    -----------
    In expectation over the draws (one run cannot tell; see :func:`average_bounds`):

    - m-strongly convex, each term convex and ``L_terms``-smooth, η < 1/L_terms, a
      minimiser given: ``E‖x_{k+1} − x*‖² ≤ (1 − 2ηm(1 − ηL))·E‖x_k − x*‖² + 2η²σ²``
      with σ² the gradient noise of a batch at x*; for a constant step at most
      ``A^k·‖x_0 − x*‖² + ησ²/(m(1 − ηL))``;
    - convex: ``E f(x̄_k) − f* ≤ (‖x_0 − x*‖² + Σ η²‖g‖²)/(2 Ση)`` for the average; the
      minimiser must be given, or m > 0, whence ``‖x_0 − x*‖ ≤ ‖∇f(x_0)‖/m``.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import RobbinsMonro, least_squares_objective
    >>> from certus.optimize import stochastic_gradient_descent
    >>> f = least_squares_objective(np.ones((2, 1)), np.array([-1.0, 1.0]))
    >>> record = stochastic_gradient_descent(
    ...     f, [5.0], step=RobbinsMonro(1.0, k0=2.0), max_iter=2000, random_state=0)
    >>> bool(abs(record.x[0]) < 0.1), record.theorem.kind
    (True, 'stochastic')
    """
    objective, x = as_sum(f, "stochastic_gradient_descent"), as_start(x0)
    sampler = Sampler(objective, batch_size, replace, random_state)
    schedule = as_schedule(step)
    if every is None:
        every = max(1, sampler.n // sampler.batch_size)
    clipped = False

    def advance(k: int, x: Array, g: Array) -> Move:
        nonlocal clipped
        factor = clip_factor(g, clip)
        clipped = clipped or factor < 1
        eta = length(schedule, k)
        return Move(x - eta * factor * g, eta, None, float(g @ g))

    limits = RunLimits(max_iter, tol, stop)
    trace = run(
        objective, x, advance, limits, sampler=sampler, every=every, average=average
    )
    constants = find_constants(objective, x, need_L=False)
    verdict: Verdict = "a clipped stochastic gradient is biased: no theorem"
    if not clipped:
        verdict = _sgd_bounds(trace, objective, constants, sampler, every)
    point = trace.averages[-1] if average else trace.iterates[-1]
    return make_record(
        "stochastic_gradient_descent",
        trace,
        objective,
        constants,
        verdict,
        x=point,
        value=objective.evaluate(point)[0] if average else None,
        extra={"averages": np.array(trace.averages)} if average else {},
    )


def _sgd_bounds(
    trace: Trace,
    objective: Objective,
    constants: Constants,
    sampler: Sampler,
    every: int,
) -> Verdict:
    if not trace.step_sizes:
        return "no step was taken"
    eta, m, L = max(trace.step_sizes), of(constants, "m"), of(constants, "L_terms")
    strong = m > 0 and L > 0 and eta * L < 1 and objective.optimum is not None
    if strong and not trace.averages:
        return (_cloud(trace, objective, constants, sampler),)
    if not (objective.is_convex or m > 0):
        return (
            "there is no theorem here for stochastic descent on a non-convex function"
        )
    if objective.optimum is None and not m > 0:
        # The best iterate depends on the draws, so it can not stand for x* here.
        return (
            "the convex theorem needs a minimiser, or m > 0: Objective(f, optimum=...)"
        )
    if trace.averages or every == 1:
        return (_average_gap(trace, objective, constants),)
    return (
        "the convex theorem is about the average (average=True) or the best of all "
        "iterates (every=1); the strongly convex one needs m, L_terms, a minimiser "
        "and steps below 1/L_terms"
    )


def _cloud(
    trace: Trace, objective: Objective, constants: Constants, sampler: Sampler
) -> Bound:
    """Strongly convex: the recursion of the expected squared distance."""
    ref, steps = reference(trace, objective), np.array(trace.steps)
    m, L, eta = of(constants, "m"), of(constants, "L_terms"), trace.step_sizes
    sigma2 = gradient_noise(objective, ref.x) * sampler.variance_factor
    constants["noise"] = Known(sigma2, "measured at the minimiser")
    R2 = float(np.sum((trace.iterates[0] - ref.x) ** 2))
    D = [R2]
    for t in eta:
        D.append((1 - 2 * t * m * (1 - t * L)) * D[-1] + 2 * t * t * sigma2)
    size = float(np.sum(ref.x**2)) + R2
    return Bound(
        Theorem(
            "stochastic",
            "E‖x_{k+1} − x*‖² ≤ (1 − 2ηm(1 − ηL))·E‖x_k − x*‖² + 2η²σ²",
            (*sources(constants, "m", "L_terms", "noise"), *against(ref)),
        ),
        "‖x_k − x*‖²",
        steps,
        np.sum((trace.points - ref.x) ** 2, axis=1),
        np.array(D)[steps],
        ROUNDING**2 * size,
        expected=sigma2 > 0 or sampler.replace or sampler.batch_size < sampler.n,
    )


def _average_gap(trace: Trace, objective: Objective, constants: Constants) -> Bound:
    """Convex: the value at the average, or the best of all iterates."""
    ref, steps = reference(trace, objective), np.array(trace.steps)
    t, squares = np.array(trace.step_sizes), np.array(trace.sizes)
    total, noise = sums(steps, t), sums(steps, t**2 * squares)
    R2 = float(np.sum((trace.iterates[0] - ref.x) ** 2))
    lines: tuple[str, ...] = ("f convex", *against(ref))
    if not ref.given:
        R2 = (trace.gradient_norms[0] / of(constants, "m")) ** 2
        lines = (*sources(constants, "m"), "‖x_0 − x*‖ ≤ ‖∇f(x_0)‖/m", *against(ref))
    if trace.averages:
        values = np.array([objective.evaluate(x)[0] for x in trace.averages])
        quantity, what = "f(x̄_k)", "E f(x̄_k)"
    else:
        values = np.minimum.accumulate(trace.values)
        quantity, what = "min f(x_i), i ≤ k,", "E min f(x_i)"
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.where(total > 0, (R2 + noise) / (2 * total), np.inf)
    return Bound(
        Theorem(
            "stochastic",
            f"{what} − f* ≤ (‖x_0 − x*‖² + Σ η²‖g‖²)/(2 Ση)",
            lines,
        ),
        f"{quantity} − {ref.least}",
        steps,
        values - ref.value,
        bound,
        value_allowance(trace, ref),
        expected=True,
    )
