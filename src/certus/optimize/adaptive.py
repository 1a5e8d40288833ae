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
from certus.optimize.loop import Move, RunLimits, Trace, as_sampler, run
from certus.optimize.objective import Objective, as_objective, as_start
from certus.optimize.record import Bound, Record, Theorem
from certus.optimize.schedules import as_schedule, constant, length
from certus.optimize.sets import as_projection
from certus.optimize.theorems import (
    Verdict,
    against,
    make_record,
    reference,
    value_allowance,
)
from certus.typing import Array, ArrayLike, RandomState

#: Why the two methods without a theorem have none.
NO_THEOREM = {
    "adam": "no convergence theorem for Adam covers this: it may fail even on a "
    "convex problem",
    "amsgrad": "AMSGrad's regret theorem needs a bounded set, steps η/√k and a β₁ "
    "that decreases to 0",
}


def _check_epsilon(epsilon: float) -> float:
    if not 0 <= epsilon < np.inf:
        raise ValueError(f"epsilon must be finite and not negative, got {epsilon!r}.")
    return float(epsilon)


def adagrad(
    f: Any,
    x0: ArrayLike,
    *,
    step: float = 0.01,
    epsilon: float = 1e-10,
    batch_size: int | None = None,
    random_state: RandomState = None,
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
    epsilon : float, default=1e-10
        δ, keeps the division safe.
    batch_size, random_state, max_iter, tol, stop
        As in :func:`momentum`.

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
    eta, epsilon = constant(step), _check_epsilon(epsilon)
    sampler, every = as_sampler(objective, batch_size, random_state)
    seen = np.zeros_like(x)

    def advance(k: int, x: Array, g: Array) -> Move:
        nonlocal seen
        seen = seen + g * g
        root = np.sqrt(seen)
        move = np.divide(g, root + epsilon, out=np.zeros_like(g), where=root > 0)
        return Move(x - eta * move, eta)

    def observe(g: Array) -> tuple[Array, Array]:
        return np.sqrt(seen), np.sqrt(seen + g * g)

    limits = RunLimits(max_iter, tol, stop)
    trace = run(
        objective, x, advance, limits, sampler=sampler, every=every, observe=observe
    )
    verdict: Verdict = "the theorem is stated for full gradients"
    if sampler is None:
        verdict = _regret(trace, objective, eta, epsilon)
    constants = find_constants(objective, x, need_L=False)
    scale = np.array([before for before, _ in trace.kept]) + epsilon
    return make_record(
        "adagrad", trace, objective, constants, verdict, extra={"scale": scale}
    )


def _regret(trace: Trace, objective: Objective, eta: float, epsilon: float) -> Verdict:
    if not objective.is_convex:
        return "AdaGrad's theorem needs a convex f: Objective(f, convex=True)"
    # √γ with the row's own gradient: the bound holds though no step may follow it.
    root = np.array([after for _, after in trace.kept])
    ref, k = reference(trace, objective), np.array(trace.steps)
    D = np.maximum.accumulate(np.abs(trace.points - ref.x), axis=0)
    regret = D**2 * (root + epsilon) / (2 * eta) + eta * root
    bound = Bound(
        Theorem(
            "convex",
            "min f(x_i) − f* ≤ Σ_j (D_j²h_j/(2η) + η√γ_j)/(k + 1)",
            ("D_j: largest distance seen in coordinate j", *against(ref)),
        ),
        f"min f(x_i) − {ref.least}, i ≤ k",
        k,
        np.minimum.accumulate(trace.values) - ref.value,
        regret.sum(axis=1) / (k + 1),
        value_allowance(trace, ref),
    )
    return (bound,)


class _Moments:
    """Averages of the gradients and of their squares, and the step they suggest."""

    def __init__(
        self,
        x: Array,
        betas: tuple[float, float],
        epsilon: float,
        corrected: bool,
        largest: bool,
    ) -> None:
        self.m, self.v, self.top = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
        self.beta1 = check_beta(betas[0], "beta1")
        self.beta2 = check_beta(betas[1], "beta2")
        self.epsilon, self.corrected = _check_epsilon(epsilon), corrected
        self.largest = largest

    def direction(self, k: int, g: Array) -> Array:
        """Add gradient ``k``; return the first average over the root of the second."""
        self.m = self.beta1 * self.m + (1 - self.beta1) * g
        self.v = self.beta2 * self.v + (1 - self.beta2) * g * g
        self.top = np.maximum(self.top, self.v) if self.largest else self.v
        first = 1 - self.beta1 ** (k + 1) if self.corrected else 1.0
        second = 1 - self.beta2 ** (k + 1) if self.corrected else 1.0
        root = np.sqrt(self.top / second) + self.epsilon
        # Where no gradient was ever seen there is nothing to divide.
        return np.divide(self.m / first, root, out=np.zeros_like(g), where=root > 0)


def adam(
    f: Any,
    x0: ArrayLike,
    *,
    step: Any = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    bias_correction: bool = True,
    amsgrad: bool = False,
    constraint: Any = None,
    batch_size: int | None = None,
    random_state: RandomState = None,
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
    epsilon : float, default=1e-8
        δ.
    bias_correction : bool, default=True
        Without it ``x ← x − η·m/(√v + δ)``, and the first steps are longer by
        (1 − β₁)/√(1 − β₂).
    amsgrad : bool, default=False
        See :func:`amsgrad`.
    constraint : set, optional
        The start and all iterates are projected onto it.
    batch_size, random_state, max_iter, tol, stop
        As in :func:`momentum`.

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
    objective, schedule = as_objective(f), as_schedule(step)
    project = as_projection(constraint)
    x = project(as_start(x0))
    moments = _Moments(x, (beta1, beta2), epsilon, bias_correction, amsgrad)
    sampler, every = as_sampler(objective, batch_size, random_state)

    def advance(k: int, x: Array, g: Array) -> Move:
        eta = length(schedule, k)
        return Move(project(x - eta * moments.direction(k, g)), eta)

    def observe(g: Array) -> Array:
        return moments.top

    limits = RunLimits(max_iter, tol, stop)
    trace = run(
        objective, x, advance, limits, sampler=sampler, every=every, observe=observe
    )
    name = "amsgrad" if amsgrad else "adam"
    return make_record(
        name,
        trace,
        objective,
        find_constants(objective, x, need_L=False),
        NO_THEOREM[name],
        extra={"second_moment": np.array(trace.kept)},
    )


def amsgrad(
    f: Any,
    x0: ArrayLike,
    *,
    step: Any = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    constraint: Any = None,
    batch_size: int | None = None,
    random_state: RandomState = None,
    max_iter: int = 1000,
    tol: float = 1e-8,
    stop: Any = (),
) -> Record:
    """AMSGrad: Adam that divides by the largest second moment seen, v̂ ← max(v̂, v).

    Parameters
    ----------
    f, x0, step, beta1, beta2, epsilon, constraint
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
        epsilon=epsilon,
        amsgrad=True,
        constraint=constraint,
        batch_size=batch_size,
        random_state=random_state,
        max_iter=max_iter,
        tol=tol,
        stop=stop,
    )
