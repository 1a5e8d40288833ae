"""Alternating minimisation: minimise over one block of variables at a time.

Each half-step solves its block exactly with the others fixed, so the objective never
rises. There is no other guarantee: it may stop at a point that no block alone can
improve. k-means, alternating least squares and EM are of this kind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from certus._core.rounding import ROUNDING
from certus.certificate import Status
from certus.optimize.loop import whole
from certus.optimize.objective import as_start
from certus.optimize.record import Bound, Record, Theorem
from certus.typing import Array, ArrayLike

#: Share of f by which rounding alone may lift it.


def alternating_minimization(
    value: Callable[[Any], float],
    x0: ArrayLike,
    blocks: Sequence[Callable[[Any], Any]],
    *,
    max_iter: int = 1000,
    tol: float = 1e-10,
) -> Record:
    """Minimise over each block in turn.

    Parameters
    ----------
    value : callable
        ``value(x) -> float``.
    x0 : array-like of shape (d,)
        Start.
    blocks : sequence of callables
        Each maps x to x with one block replaced by its minimiser, the rest unchanged.
    max_iter : int, default=1000
        Most rounds over all blocks.
    tol : float, default=1e-10
        Stop when a round lowers the objective by at most this.

    Returns
    -------
    Record
        A row per half-step.

    Objective
    ---------
    ``min value(x)``

    Certificate
    -----------
    The objective does not rise at any half-step; a rise means that a block's map is not
    its minimiser.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import alternating_minimization
    >>> f = lambda x: (x[0] - 1) ** 2 + (x[1] - x[0]) ** 2
    >>> first = lambda x: np.array([(1 + x[1]) / 2, x[1]])
    >>> second = lambda x: np.array([x[0], x[0]])
    >>> record = alternating_minimization(f, [5.0, -3.0], [first, second])
    >>> record.x.round(4), record.holds
    (array([1., 1.]), True)
    """
    if not blocks:
        raise ValueError("alternating minimisation needs at least one block.")
    x, start = as_start(x0), time.perf_counter()
    max_iter = whole("max_iter", max_iter, 0)
    iterates, values = [x], [_finite(value, x)]
    status, reason = Status.MAX_ITER, f"max_iter of {max_iter:,} rounds reached"
    for _ in range(max_iter):
        before = values[-1]
        for i, block in enumerate(blocks):
            ahead = np.asarray(block(x.copy()), dtype=np.float64)
            if ahead.shape != x.shape:
                raise ValueError(
                    f"block {i} returned shape {ahead.shape} for a point of shape "
                    f"{x.shape}; it must return the whole point."
                )
            x = ahead
            iterates.append(x)
            values.append(_finite(value, x))
        rounding = ROUNDING * max(abs(before), abs(values[-1]))
        if values[-1] > before + rounding:
            status, reason = (
                Status.STOPPED,
                "f increased, so a block was not minimised",
            )
            break
        if before - values[-1] <= tol:
            status, reason = Status.SOLVED, f"a round lowered f by at most {tol:g}"
            break
    points, found = np.array(iterates), np.array(values)
    steps = np.arange(found.size)
    bound = Bound(
        Theorem("exact", "f(x_{k+1}) ≤ f(x_k): each half-step minimises its block"),
        "f(x_k)",
        steps,
        found,
        np.concatenate([[np.inf], found[:-1]]),
        ROUNDING * float(np.abs(found).max()),
    )
    return Record(
        method="alternating_minimization",
        x=x,
        value=values[-1],
        steps=steps,
        iterates=points,
        values=found,
        gradient_norms=np.full(found.size, np.nan),
        step_sizes=np.ones(found.size - 1),
        status=status,
        reason=reason,
        n_iter=found.size - 1,
        evaluations=found.size,
        bounds=(bound,),
        seconds=time.perf_counter() - start,
    )


def _finite(value: Callable[[Any], float], x: Array) -> float:
    found = float(value(x.copy()))
    if not np.isfinite(found):
        raise ValueError(f"f must be finite, but is {found!r} at an iterate.")
    return found
