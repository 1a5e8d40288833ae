"""Steps scaled coordinate by coordinate: AdaGrad, Adam, AMSGrad.

They depend on the basis of the parameters: rotating the coordinates changes the path,
unlike that of gradient descent. AdaGrad has a regret theorem; Adam has none,
and there are convex problems on which it fails.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.optimize.constants import find_constants
from certus.optimize.inertia import check_beta
from certus.optimize.loop import Move, Trace, as_sampler, run
from certus.optimize.objective import Array, Objective, as_objective, as_start
from certus.optimize.record import Bound, Record, Theorem
from certus.optimize.schedules import as_schedule, length
from certus.optimize.theorems import (
    Verdict,
    against,
    make_record,
    reference,
    value_allowance,
)

NO_THEOREM = (
    "Adam has no convergence theorem that covers this: it may fail on a convex problem"
)


def adagrad(
    f: Any,
    x0: Any,
    *,
    step: float = 0.01,
    delta: float = 1e-10,
    batch_size: int | None = None,
    random_state: Any = None,
    max_iter: int = 1000,
    tol: float = 1e-8,
    stop: Any = (),
) -> Record:
    """AdaGrad: each coordinate's step shrinks with the gradients it has seen.

    ``γ ← γ + g⊙g``, ``x ← x − η·g/(√γ + δ)``.

    Parameters
    ----------
    f : callable or Objective
        ``f(x) -> (value, gradient)``; a finite sum for mini-batches.
    x0 : array-like of shape (d,)
        Start.
    step : float, default=0.01
        η.
    delta : float, default=1e-10
        δ, keeps the division safe.
    batch_size : int, optional
        Rows drawn for each gradient, all by default.
    random_state : int, Generator or None
        Seed of the draws.
    max_iter, tol, stop
        As in :func:`gradient_descent`.

    Returns
    -------
    Record
        ``extra["scale"]`` holds √γ + δ before each record.

    Objective
    ---------
    ``min f(x)``

    Certificate
    -----------
    Convex f, full gradients: with D_j the largest distance to the minimiser seen in
    coordinate j and h = √γ + δ,
    ``min f(x_i) − f* ≤ Σ_j (D_j²·h_j/(2η) + η√γ_j)/(k + 1)``.

    Examples
    --------
    >>> from certus.optimize import adagrad
    >>> record = adagrad(lambda x: (x @ x, 2 * x), [1.0, -3.0], step=1.0)
    >>> record.status.value
    'solved'
    """
    objective, x = as_objective(f), as_start(x0)
    eta = length(as_schedule(step), 0)
    sampler, every = as_sampler(objective, batch_size, random_state)
    constants = find_constants(objective, x, need_L=False)
    seen = np.zeros_like(x)
    before: list[Array] = []
    after: list[Array] = []

    def advance(k: int, x: Array, g: Array) -> Move:
        nonlocal seen
        if k % every == 0 or k == max_iter:
            before.append(np.sqrt(seen))
        seen = seen + g * g
        root = np.sqrt(seen)
        if sampler is None:
            after.append(root)
        move = np.divide(g, root + delta, out=np.zeros_like(g), where=root > 0)
        return Move(x - eta * move, eta)

    trace = run(
        objective,
        x,
        advance,
        max_iter=max_iter,
        tol=tol,
        stop=stop,
        sample=sampler,
        every=every,
    )
    if len(before) < len(trace.steps):  # the last row was not moved from
        before.append(np.sqrt(seen))
    verdict: Verdict = "the theorem is stated for full gradients"
    if sampler is None:
        verdict = _regret(trace, objective, eta, delta, after)
    scale = np.array(before[: len(trace.steps)]) + delta
    return make_record(
        "adagrad", trace, objective, constants, verdict, extra={"scale": scale}
    )


def _regret(
    trace: Trace, objective: Objective, eta: float, delta: float, roots: list[Array]
) -> Verdict:
    if not objective.is_convex:
        return "AdaGrad's theorem needs a convex f: Objective(f, convex=True)"
    if not roots:
        return "no step was taken"
    after = np.array(roots[: len(trace.steps)])  # √γ with row k's gradient included
    rows = len(after)
    ref, k = reference(trace, objective), np.array(trace.steps[:rows])
    D = np.maximum.accumulate(np.abs(trace.points[:rows] - ref.x), axis=0)
    regret = D**2 * (after + delta) / (2 * eta) + eta * after
    bound = Bound(
        Theorem(
            "convex",
            "min f(x_i) − f* ≤ Σ_j (D_j²h_j/(2η) + η√γ_j)/(k + 1)",
            ("D_j: largest distance seen in coordinate j", *against(ref)),
        ),
        f"min f(x_i) − {ref.least}, i ≤ k",
        k,
        np.minimum.accumulate(trace.values[:rows]) - ref.value,
        regret.sum(axis=1) / (k + 1),
        value_allowance(trace, ref),
    )
    return (bound,)


def adam(
    f: Any,
    x0: Any,
    *,
    step: Any = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    delta: float = 1e-8,
    bias_correction: bool = True,
    amsgrad: bool = False,
    constraint: Any = None,
    batch_size: int | None = None,
    random_state: Any = None,
    max_iter: int = 1000,
    tol: float = 1e-8,
    stop: Any = (),
) -> Record:
    """Adam: averaged gradients over the root of averaged squares.

    ``m ← β₁m + (1 − β₁)g``, ``v ← β₂v + (1 − β₂)g²``,
    ``x ← x − η·(m/(1 − β₁^k))/(√(v/(1 − β₂^k)) + δ)``, k = 1, 2, ...

    Parameters
    ----------
    f : callable or Objective
        ``f(x) -> (value, gradient)``; a finite sum for mini-batches.
    x0 : array-like of shape (d,)
        Start.
    step : float or schedule, default=0.001
        η.
    beta1, beta2 : float, default=0.9, 0.999
        Memories of the two averages.
    delta : float, default=1e-8
        δ.
    bias_correction : bool, default=True
        Without it ``x ← x − η·m/(√v + δ)``, and the first steps are longer by
        (1 − β₁)/√(1 − β₂).
    amsgrad : bool, default=False
        See :func:`amsgrad`.
    constraint : set, optional
        Iterates are projected onto it; see :func:`projected_gradient`.
    batch_size : int, optional
        Rows drawn for each gradient, all by default.
    random_state : int, Generator or None
        Seed of the draws.
    max_iter, tol, stop
        As in :func:`gradient_descent`.

    Returns
    -------
    Record
        ``extra["second_moment"]`` holds the v that was divided by, at each record.

    Objective
    ---------
    ``min f(x)``

    Certificate
    -----------
    None: Adam need not converge on convex problems, and the record says so.

    Examples
    --------
    >>> from certus.optimize import adam
    >>> record = adam(lambda x: (x @ x, 2 * x), [1e-6, 1e6], step=0.1, max_iter=1)
    >>> record.x - [1e-6, 1e6]
    array([-0.0995..., -0.1   ])
    """
    objective, x = as_objective(f), as_start(x0)
    schedule = as_schedule(step)
    beta1, beta2 = check_beta(beta1, "beta1"), check_beta(beta2, "beta2")
    sampler, every = as_sampler(objective, batch_size, random_state)
    m, v, top = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    squares: list[Array] = []

    def advance(k: int, x: Array, g: Array) -> Move:
        nonlocal m, v, top
        if k % every == 0 or k == max_iter:
            squares.append(top)
        eta = length(schedule, k)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        top = np.maximum(top, v) if amsgrad else v
        first = 1 - beta1 ** (k + 1) if bias_correction else 1.0
        second = 1 - beta2 ** (k + 1) if bias_correction else 1.0
        root = np.sqrt(top / second) + delta
        # Where no gradient was ever seen there is nothing to divide.
        move = np.divide(m / first, root, out=np.zeros_like(m), where=root > 0)
        ahead = x - eta * move
        if constraint is not None:
            ahead = constraint.project(ahead)
        return Move(ahead, eta)

    trace = run(
        objective,
        x,
        advance,
        max_iter=max_iter,
        tol=tol,
        stop=stop,
        sample=sampler,
        every=every,
    )
    if len(squares) < len(trace.steps):  # the last row was not moved from
        squares.append(top)
    constants = find_constants(objective, x, need_L=False)
    name = "amsgrad" if amsgrad else "adam"
    reason = (
        "AMSGrad's regret theorem needs a bounded set and steps η/√k with a fading β₁"
    )
    return make_record(
        name,
        trace,
        objective,
        constants,
        reason if amsgrad else NO_THEOREM,
        extra={"second_moment": np.array(squares[: len(trace.steps)])},
    )


def amsgrad(
    f: Any,
    x0: Any,
    *,
    step: Any = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    delta: float = 1e-8,
    constraint: Any = None,
    batch_size: int | None = None,
    random_state: Any = None,
    max_iter: int = 1000,
    tol: float = 1e-8,
    stop: Any = (),
) -> Record:
    """AMSGrad: Adam that divides by the largest second moment seen, v̂ ← max(v̂, v).

    Parameters
    ----------
    f, x0, step, beta1, beta2, delta, constraint
        As in :func:`adam`; the averages are corrected for their bias.
    batch_size, random_state, max_iter, tol, stop
        As in :func:`adam`.

    Returns
    -------
    Record
        ``extra["second_moment"]`` holds v̂, which never falls.

    Objective
    ---------
    ``min f(x)``

    Certificate
    -----------
    None here: its regret theorem needs a bounded set and decaying parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import amsgrad
    >>> record = amsgrad(lambda x: (x @ x, 2 * x), [1.0], step=0.1)
    >>> bool((np.diff(record.extra["second_moment"], axis=0) >= 0).all())
    True
    """
    return adam(
        f,
        x0,
        step=step,
        beta1=beta1,
        beta2=beta2,
        delta=delta,
        amsgrad=True,
        constraint=constraint,
        batch_size=batch_size,
        random_state=random_state,
        max_iter=max_iter,
        tol=tol,
        stop=stop,
    )
