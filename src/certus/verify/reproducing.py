"""Kernel machines: f = Σⱼ cⱼ k(·, xⱼ), whose coefficients are a dual point.

    P(f, b) = mean ℓ(y, f(x) + b) + ½λ‖f‖²,      uᵢ = −λΣs·cᵢ/sᵢ

Moved into its domain, u gives other coefficients c', and the gap is a sum without
cancellation: mean e(z, u) + ½λ(c − c')ᵀK(c − c'). Kernel values are bounded by ``top``
and known up to ``error`` each; a sum of m of them loses γ_m·top·Σ|c| more. Whether K is
positive semidefinite is not decided here.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus.verify.kernel import gap, losses
from certus.verify.kernel.gap import Problem, Repair, mean, norm
from certus.verify.kernel.spaces import TINY, UNIT, gamma

Array = np.ndarray[Any, np.dtype[Any]]


class Values(NamedTuple):
    """Bounds of kernel values: how many are summed, their size, their rounding."""

    summed: int
    top: float
    error: float

    def off(self, c: Array) -> float:
        """How far Σ c·k may be from its float value."""
        size = float(np.abs(c).sum()) * (1 + 1e-9)
        return (gamma(self.summed + 16) * self.top + self.error) * size


def dual_of(p: Problem, c: Array, level: float) -> tuple[Repair, Array]:
    """The feasible dual point near the coefficients, and those that belong to it.

    ``level`` is λ·Σs.
    """
    row = losses.row_of(p.loss)
    q = row.natural_of(p.loss, p.y, -level * c / p.space.s)
    found = gap.repaired(row, p, q)
    u = row.slope_of(p.loss, p.y, found.natural)
    return found, -p.space.s * u / level


def measure(
    p: Problem,
    level: float,
    c: Array,
    other: Array,
    found: Repair,
    z: Array,
    apart: Array,
    values: Values,
) -> tuple[float, float]:
    """The gap and its rounding; ``z`` = Kc + b, ``apart`` = K(c − c') on the rows."""
    row = losses.row_of(p.loss)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        u = row.slope_of(p.loss, p.y, found.natural)
        delta = values.off(c) + gap.evaluation_error(p, z, u) + 4 * UNIT * norm(p, z)
        excess, noise = row.excess(p.loss, p.y, z, found.natural)
        above = mean(p, row.excess(p.loss, p.y, z, row.rest(p.loss, p.y))[0])
        rounds = gamma(len(z) + 24)
        bound = gap.steep(row, p, z, u, delta) + UNIT * mean(p, noise)
        bound += found.share * above * (1 + rounds) + rounds * mean(p, excess)
        d, strength = c - other, level / p.space.total
        square = max(float(d @ apart), 0.0)
        # c' is rounded, and stands within a share of what is exactly feasible.
        size = float(np.abs(d).sum())
        slip = (4 * UNIT + found.share) * float(np.abs(other).sum())
        off = size * values.off(d) + gamma(len(d) + 8) * size * float(
            np.abs(apart).max(initial=0.0)
        )
        off += values.top * (2 * size * slip + slip**2)
        computed = mean(p, excess) + strength * square / 2
        bound += strength * off / 2 + TINY
    if not math.isfinite(computed):
        return math.inf, 0.0
    return computed, bound if bound == bound else math.inf
