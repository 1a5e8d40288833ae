"""Whether a gradient is that of a loss: along a direction d, gᵀd = dL(θ + td)/dt.

The right side is taken by central differences in float64. The two are compared a little
away from the current point, because at a minimum both sides vanish and any factor
between them would hide in rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from certus.typing import Array

Loss = Callable[[Array], float]
Gradient = Callable[[Array], Array]


class Compared(NamedTuple):
    """Ratio of the two derivatives, its uncertainty, and the gradient's size."""

    ratio: float
    allowance: float
    norm: float


def compare(
    loss: Loss, gradient: Gradient, theta: Array, scale: Array, directions: int
) -> Compared:
    """Median over directions of gᵀd ÷ (finite difference).

    Parameters
    ----------
    loss, gradient : callable
        Functions of a vector like ``theta``.
    theta : ndarray
        Where the size of the gradient is taken.
    scale : ndarray
        Usual size of each component; they are compared a tenth of it off ``theta``.
    directions : int
        How many are tried.
    """
    rng = np.random.default_rng(0)
    norm = float(np.linalg.norm(gradient(theta)))
    point = theta + 0.1 * scale * rng.standard_normal(theta.size)
    g = gradient(point)
    size = float(np.linalg.norm(g))
    if not np.isfinite(size) or size == 0.0:
        return Compared(np.nan, np.inf, norm)
    step = 1e-6 * max(1.0, float(np.linalg.norm(point)))
    ratios, doubts = [], []
    for _ in range(directions):
        # Half along the gradient, so that a wrong factor shows; half random, so that
        # a wrong component does.
        d = g / size + _unit(rng, theta.size)
        d /= np.linalg.norm(d)
        slope, doubt = _slope(loss, point, d, step)
        ratios.append(float(g @ d) / slope if slope else np.nan)
        doubts.append(doubt / abs(slope) if slope else np.inf)
    middle = int(np.argsort(ratios)[directions // 2])
    ratio = ratios[middle]
    # A slope that is nothing but rounding says nothing, also where the ratio is 0.
    return Compared(ratio, max(1.0, abs(ratio)) * doubts[middle], norm)


def _slope(loss: Loss, point: Array, d: Array, h: float) -> tuple[float, float]:
    """Central difference with one Richardson step, and how far to trust it."""

    def central(t: float) -> tuple[float, float]:
        up, down = (loss(point + sign * t * d) for sign in (1, -1))
        return (up - down) / (2 * t), abs(up) + abs(down)

    fine, size = central(h)
    coarse, _ = central(2 * h)
    rounding = 64 * float(np.finfo(float).eps) * size / h
    return (4 * fine - coarse) / 3, abs(fine - coarse) + rounding


def _unit(rng: np.random.Generator, n: int) -> Array:
    d: Any = rng.standard_normal(n)
    return np.asarray(d / np.linalg.norm(d))
