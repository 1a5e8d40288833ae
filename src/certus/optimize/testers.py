"""Look for a counterexample: to convexity, to a tangent, to a subgradient.

Each tester returns the worst violation it found among the points given, as a witness
that anyone can check, or None. Finding none does not prove anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from certus.typing import Array


class Witness(NamedTuple):
    """Points at which an inequality fails, and by how much."""

    points: tuple[Array, ...]
    excess: float


def _rows(points: Any) -> Array:
    rows = np.asarray(points, dtype=np.float64)
    return rows[:, None] if rows.ndim == 1 else rows


def chord_violation(
    value: Callable[[Array], float],
    points: Any,
    *,
    weights: Any = (0.1, 0.25, 0.5, 0.75, 0.9),
    tol: float = 1e-9,
) -> Witness | None:
    """Two points whose chord f rises above: proof that f is not convex.

    Tests ``f(λu + (1 − λ)v) ≤ λf(u) + (1 − λ)f(v)`` on neighbouring pairs of ``points``
    in every cyclic shift up to 8.

    Parameters
    ----------
    value : callable
        ``value(x) -> float``.
    points : array-like of shape (n,) or (n, d)
        Where to look, for example random draws.
    weights : sequence of float
        The λ to try.
    tol : float, default=1e-9
        Excess granted for rounding, relative to the values compared.

    Returns
    -------
    Witness or None
        ``points`` is (u, v, λu + (1 − λ)v).

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import chord_violation
    >>> x = np.linspace(-3, 3, 20)
    >>> chord_violation(lambda x: float(x @ x), x) is None
    True
    >>> chord_violation(lambda x: float(np.sin(x[0])), x) is None
    False
    """
    rows = _rows(points)
    values = np.array([float(value(x)) for x in rows])
    worst: Witness | None = None
    for shift in range(1, min(9, len(rows))):
        for i in range(len(rows)):
            j = (i + shift) % len(rows)
            for weight in weights:
                middle = weight * rows[i] + (1 - weight) * rows[j]
                chord = weight * values[i] + (1 - weight) * values[j]
                at = float(value(middle))
                granted = tol * (abs(chord) + abs(at))
                if at - chord > max(granted, worst.excess if worst else 0.0):
                    worst = Witness((rows[i], rows[j], middle), at - chord)
    return worst


def tangent_violation(
    value: Callable[[Array], float],
    x: Any,
    slope: Any,
    points: Any,
    *,
    tol: float = 1e-9,
) -> Witness | None:
    """A point below the tangent at ``x``, so ``slope`` is not a subgradient there.

    Tests ``f(u) ≥ f(x) + slopeᵀ(u − x)`` at every row of ``points``. For a gradient
    this is the first-order characterisation of convexity.

    Parameters
    ----------
    value : callable
        ``value(x) -> float``.
    x : array-like of shape (d,)
        Where the tangent touches.
    slope : array-like of shape (d,)
        The gradient or supposed subgradient at ``x``.
    points : array-like of shape (n,) or (n, d)
        Where to look.
    tol : float, default=1e-9
        Excess granted for rounding, relative to the values compared.

    Returns
    -------
    Witness or None
        ``points`` is (x, u).

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import tangent_violation
    >>> size = lambda x: float(np.abs(x).sum())
    >>> tangent_violation(size, [0.0], [0.7], np.linspace(-1, 1, 9)) is None
    True
    >>> tangent_violation(size, [0.0], [1.2], np.linspace(-1, 1, 9)).points[1]
    array([1.])
    """
    x = np.atleast_1d(np.asarray(x, dtype=np.float64))
    slope = np.atleast_1d(np.asarray(slope, dtype=np.float64))
    base, worst = float(value(x)), None
    for u in _rows(points):
        at, line = float(value(u)), base + float(slope @ (u - x))
        granted = tol * (abs(at) + abs(line))
        if line - at > max(granted, worst.excess if worst else 0.0):
            worst = Witness((x, u), line - at)
    return worst
