"""SVRG: stochastic gradients whose noise dies out at the optimum.

x ← x − η(∇f_j(x) − ∇f_j(x̃) + ∇f(x̃)), with a snapshot x̃ and its full gradient taken once
per epoch. The estimate is unbiased and its variance vanishes as x and x̃ approach the
minimiser, so a constant step converges linearly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.optimize.constants import find_constants
from certus.optimize.loop import Move, RunLimits, Trace, run, whole
from certus.optimize.objective import Objective, as_start, as_sum
from certus.optimize.record import Bound, Record, Theorem
from certus.optimize.schedules import constant
from certus.optimize.theorems import (
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


def svrg_gradient(f: Any, x: Any, snapshot: Any, full: Any, rows: Any) -> Array:
    """The variance-reduced estimate ∇f_B(x) − ∇f_B(x̃) + ∇f(x̃).

    Parameters
    ----------
    f : Objective
        A finite sum.
    x, snapshot : ndarray of shape (d,)
        The point and the snapshot x̃.
    full : ndarray of shape (d,)
        ∇f(x̃).
    rows : index array
        The batch B.

    Returns
    -------
    ndarray of shape (d,)

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import least_squares_objective, svrg_gradient
    >>> f = least_squares_objective(np.ones((2, 1)), np.array([-1.0, 1.0]))
    >>> x = np.array([2.0])
    >>> full = f.evaluate(x)[1]
    >>> svrg_gradient(f, x, x, full, [0])
    array([2.])
    """
    objective, chosen = as_sum(f, "svrg_gradient"), np.asarray(rows)
    here = objective.evaluate(np.asarray(x), chosen)[1]
    there = objective.evaluate(np.asarray(snapshot), chosen)[1]
    return here - there + full


def svrg(
    f: Any,
    x0: ArrayLike,
    *,
    step: float | None = None,
    epoch_length: int | None = None,
    batch_size: int = 1,
    random_state: RandomState = None,
    max_iter: int = 100,
    tol: float = 1e-10,
    stop: Any = (),
) -> Record:
    """Stochastic variance-reduced gradient descent.

    Parameters
    ----------
    f : Objective
        A mean of ``n_terms`` terms.
    x0 : array-like of shape (d,)
        Start.
    step : float, optional
        η, by default 1/(10·L_terms).
    epoch_length : int, optional
        Inner steps M per snapshot, 2n by default.
    batch_size : int, default=1
        Rows drawn for each inner step, with replacement.
    random_state : int, Generator or None
        Seed or generator of all random numbers.
    max_iter : int, default=100
        Most epochs; an epoch costs n + M·batch_size terms on average.
    tol : float, default=1e-10
        Stop where the norm of the full gradient at a snapshot is at most this.
    stop
        As in :func:`gradient_descent`.

    Returns
    -------
    Record
        A row per epoch. The next snapshot is an inner iterate drawn at random, as the
        theorem has it.

    Objective
    ---------
    ``min (1/n) Σ f_i(x)``

    Certificate
    -----------
    m-strongly convex f, terms convex and L_terms-smooth:
    ``E f(x̃_s) − f* ≤ α^s·(f(x_0) − f*)``, α = 1/(mη(1 − 2Lη)M) + 2Lη/(1 − 2Lη), where
    that is below 1.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import least_squares_objective, svrg
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(50, 3)), rng.normal(size=50)
    >>> record = svrg(least_squares_objective(X, y), np.zeros(3), random_state=0)
    >>> record.status.value
    'solved'
    """
    objective, x = as_sum(f, "svrg"), as_start(x0)
    constants = find_constants(objective, x, need_L=False)
    L = of(constants, "L_terms")
    if step is None:
        if not L > 0:
            raise ValueError("svrg needs step=, or Objective(..., L_terms=...).")
        step = 1 / (10 * L)
    eta, n = constant(step), objective.n_terms or 1
    M = 2 * n if epoch_length is None else whole("epoch_length", epoch_length, 1)
    batch_size = whole("batch_size", batch_size, 1)
    rng = np.random.default_rng(random_state)

    def advance(k: int, snapshot: Array, full: Array) -> Move:
        x = snapshot
        # One of M inner iterates is kept: those after it need not be computed.
        for _ in range(int(rng.integers(M))):
            rows = rng.integers(n, size=batch_size)
            x = x - eta * svrg_gradient(objective, x, snapshot, full, rows)
        return Move(x, eta)

    trace = run(objective, x, advance, RunLimits(max_iter, tol, stop))
    verdict = _svrg_bounds(trace, objective, constants, eta, M)
    return make_record("svrg", trace, objective, constants, verdict)


def _svrg_bounds(
    trace: Trace, objective: Objective, constants: Constants, eta: float, M: int
) -> Verdict:
    m, L = of(constants, "m"), of(constants, "L_terms")
    if not (m > 0 and L > 0):
        return "the theorem needs m > 0 and L_terms"
    if 2 * L * eta >= 1:
        return f"the step {eta:.4g} is not below 1/(2·L_terms) = {1 / (2 * L):.4g}"
    room = 1 - 2 * L * eta
    alpha = 1 / (m * eta * room * M) + 2 * L * eta / room
    if alpha >= 1:
        return f"α = {alpha:.3g} is not below 1: use a longer epoch, or another step"
    ref, k = reference(trace, objective), np.array(trace.steps)
    away = 0.0 if ref.given else ref.gradient**2 / (2 * m)
    bound = Bound(
        Theorem(
            "stochastic",
            f"E f(x̃_s) − f* ≤ α^s·(f(x_0) − f*), α = {alpha:.3g}",
            (*sources(constants, "m", "L_terms"), *against(ref)),
        ),
        f"f(x̃_s) − {ref.least}",
        k,
        np.array(trace.values) - ref.value,
        alpha**k * (trace.values[0] - ref.value + away),
        value_allowance(trace, ref),
        expected=True,
    )
    return (bound,)
