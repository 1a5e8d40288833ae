"""Searches that need no derivative: a grid of points, and bisection of an interval.

A grid of p points per axis costs p^d evaluations and, without knowing how fast f can
change, guarantees nothing. Bisection finds the root of an increasing function and gains
one binary digit per step.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from certus.certificate import Status
from certus.optimize.loop import whole
from certus.optimize.objective import Objective
from certus.optimize.record import Bound, Known, Record, Theorem

#: Numbers that the points of a grid may hold: beyond this they fill the memory.
LARGEST = 50_000_000


def grid_search(f: Any, axes: Sequence[Any]) -> Record:
    """Evaluate f at every point of a lattice and keep the best.

    Parameters
    ----------
    f : callable or Objective
        ``f(x) -> value`` or ``(value, gradient)``; the gradient is not used.
    axes : sequence of array-like
        The points along each of the d axes.

    Returns
    -------
    Record
        All points in ``iterates``; the product of the axes' lengths is evaluated.

    Objective
    ---------
    ``min f(x)`` over the lattice

    Certificate
    -----------
    With ``Objective(f, lipschitz=G)``: the minimum over the box that the axes span is
    at most G·(half the longest cell diagonal) below the best point, at
    ``extra["lower_bound"]``; it is compared with a minimum that is given. Otherwise
    none.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import grid_search
    >>> record = grid_search(lambda x: (x[0] - 1) ** 2 + x[1] ** 2,
    ...     [np.linspace(-2, 2, 5)] * 2)
    >>> record.x, record.evaluations
    (array([1., 0.]), 25)
    """
    lines = [np.sort(np.asarray(axis, dtype=np.float64).ravel()) for axis in axes]
    if not lines or any(line.size == 0 for line in lines):
        raise ValueError("axes needs at least one point along each axis.")
    objective = f if isinstance(f, Objective) else None
    function = f if objective is None else objective.evaluate
    count = math.prod(line.size for line in lines)
    if count * len(lines) > LARGEST:
        raise ValueError(
            f"the grid has {count:.3g} points in {len(lines)} dimensions, all of "
            "which are recorded. Use fewer points along each axis."
        )
    start = time.perf_counter()
    points = np.array(list(itertools.product(*lines)))
    values = np.array([_value(function(x)) for x in points])
    if not np.isfinite(values).any():
        raise ValueError("f is not finite at any point of the grid.")
    best = int(np.nanargmin(values))
    steps = np.arange(values.size)
    verdict: Bound | str = "without a Lipschitz constant of f there is no guarantee"
    constants, extra = {}, {}
    if objective is not None and objective.lipschitz is not None:
        G = objective.lipschitz
        constants = {"lipschitz": Known(G, "given")}
        below = float(values[best]) - G * _radius(lines)
        verdict = _grid_bound(objective, G, lines, values, best)
        if np.isfinite(values).all():
            extra = {"lower_bound": below}
    return Record(
        method="grid_search",
        x=points[best],
        value=float(values[best]),
        steps=steps,
        iterates=points,
        values=values,
        gradient_norms=np.full(values.size, np.nan),
        step_sizes=np.empty(0),
        status=Status.SOLVED,
        reason=f"all {values.size:,} points evaluated",
        n_iter=values.size,
        evaluations=values.size,
        constants=constants,
        bounds=() if isinstance(verdict, str) else (verdict,),
        refused=verdict if isinstance(verdict, str) else "",
        seconds=time.perf_counter() - start,
        extra=extra,
    )


def _radius(lines: list[Any]) -> float:
    """Half the longest diagonal of a cell: no point of the box is farther away."""
    widths = [float(np.diff(line).max(initial=0.0)) for line in lines]
    return math.sqrt(sum(width**2 for width in widths)) / 2


def _value(found: Any) -> float:
    return float(found[0] if isinstance(found, tuple) else found)


def _grid_bound(
    objective: Objective, G: float, lines: list[Any], values: Any, best: int
) -> Bound | str:
    """The best value against the minimum, if that is known."""
    if not np.isfinite(values).all():
        return "f is not finite on the whole grid, so it is not Lipschitz there"
    least = objective.minimum
    if objective.optimum is not None:
        optimum = np.atleast_1d(np.asarray(objective.optimum, dtype=np.float64))
        if any(not line[0] <= v <= line[-1] for line, v in zip(lines, optimum)):
            return "the given optimum lies outside the box of the axes"
        least = objective.evaluate(optimum)[0]
    bound = G * _radius(lines)
    if least is None:
        return (
            "no minimum was given to compare with; G shows that it is at most "
            f"{bound:.4g} below the best point (extra['lower_bound'])"
        )
    return Bound(
        Theorem(
            "exact",
            "f(best) − min ≤ G·half the longest cell diagonal",
            (f"G = {G:.4g} (given), minimum given, inside the box",),
        ),
        "f(best) − f*",
        np.array([values.size - 1]),
        np.array([float(values[best]) - least]),
        np.array([bound]),
    )


def bisection(
    g: Callable[[float], float],
    low: float,
    high: float,
    *,
    target: float = 0.0,
    tol: float = 1e-12,
    max_iter: int = 200,
) -> Record:
    """Solve g(x) = target for an increasing (or decreasing) g by halving.

    Parameters
    ----------
    g : callable
        ``g(x) -> float``, monotone, continuous.
    low, high : float
        An interval at whose ends g − target has different signs.
    target : float, default=0
        The value to reach.
    tol : float, default=1e-12
        Stop when the remaining half-width is at most this.
    max_iter : int, default=200
        Most halvings.

    Returns
    -------
    Record
        ``x`` is the midpoint of the last interval, ``iterates`` all midpoints.

    Objective
    ---------
    ``g(x) = target``

    Certificate
    -----------
    After k halvings the midpoint is within (high − low)·2^{−(k + 1)} of the root.

    Examples
    --------
    >>> from certus.optimize import bisection
    >>> bisection(lambda x: x**3, 0.0, 2.0, target=2.0).x
    array([1.25992105])
    """
    if not (low < high and np.isfinite(high - low)):
        raise ValueError(
            f"low and high must be finite with low < high, got {low!r} and {high!r}."
        )
    max_iter, start = whole("max_iter", max_iter, 0), time.perf_counter()

    def excess(x: float) -> float:
        found = float(g(x)) - target
        if np.isnan(found):
            raise ValueError(
                f"g is NaN at {x:.6g}. Choose an interval on which g is defined."
            )
        return found

    at_low, at_high = excess(low), excess(high)
    if np.sign(at_low) * np.sign(at_high) > 0:
        raise ValueError(
            f"g − target is {at_low:.4g} at low and {at_high:.4g} at high: the sign "
            "does not change, so a root is not certain. Widen the interval."
        )
    rising, width = at_low <= at_high, high - low
    ends = {low: at_low, high: at_high}
    middles, values = [low + width / 2], [excess(low + width / 2)]
    status, reason = Status.MAX_ITER, f"max_iter of {max_iter} reached"
    for k in range(max_iter + 1):
        half = width / 2 ** (k + 1)
        if values[-1] == 0 or half <= tol:
            status, reason = Status.SOLVED, f"root within {half:.2g} ≤ tol {tol:g}"
            if values[-1] == 0:
                reason = "root hit exactly"
            break
        if k == max_iter or middles[-1] in (low, high):
            break
        if (values[-1] < 0) == rising:
            low = middles[-1]
        else:
            high = middles[-1]
        middles.append(low + (high - low) / 2)
        values.append(excess(middles[-1]))
    zeros = [end for end, value in ends.items() if value == 0]
    root = zeros[0] if zeros else middles[-1]
    return _bisection_record(
        middles, values, width, root, status, reason, time.perf_counter() - start
    )


def _bisection_record(
    middles: list[float],
    values: list[float],
    width: float,
    root: float,
    status: Status,
    reason: str,
    seconds: float,
) -> Record:
    points, k = np.array(middles), np.arange(len(middles))
    bound = Bound(
        Theorem(
            "exact",
            "|x_k − root| ≤ (high − low)·2^{−(k + 1)}",
            ("g continuous and monotone", "against the last midpoint, or the root"),
        ),
        "|x_k − root|",
        k,
        np.abs(points - root),
        width / 2.0 ** (k + 1),
        4 * np.finfo(float).eps * float(np.abs(points).max()),
    )
    return Record(
        method="bisection",
        x=points[-1:],
        value=values[-1],
        steps=k,
        iterates=points[:, None],
        values=np.array(values),
        gradient_norms=np.full(k.size, np.nan),
        step_sizes=width / 2.0 ** (k[1:] + 1),
        status=status,
        reason=reason,
        n_iter=k.size - 1,
        evaluations=k.size + 2,
        bounds=(bound,),
        seconds=seconds,
    )
