"""Kernel machines: f = Σⱼ cⱼ k(·, xⱼ), whose coefficients are a dual point.

    P(f, b) = mean ℓ(y, f(x) + b) + ½λ‖f‖²,      uᵢ = −λΣs·cᵢ/sᵢ

Moved into its domain, u gives other coefficients c', and the gap is a sum without
cancellation: mean e(z, u) + ½λ(c − c')ᵀK(c − c'). Kernel values are bounded by ``top``
and known up to ``error`` each; a sum of m of them loses γ_m·top·Σ|c| more. Whether K is
positive semidefinite is not decided here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from certus.verify.gram import Sums
from certus.verify.kernel import gap, losses
from certus.verify.kernel.gap import Problem, Repair, mean, norm
from certus.verify.kernel.reading import Array
from certus.verify.kernel.spaces import TINY, UNIT, gamma


class Machine(NamedTuple):
    """One problem of a kernel machine: its rows among all, and coefficients on all."""

    problem: Problem
    rows: Array
    level: float  # λ·Σs
    c: Array
    b: float


def dual_of(m: Machine) -> tuple[Repair, Array]:
    """The feasible dual point near the coefficients, and c − c' on all rows."""
    p, row = m.problem, losses.row_of(m.problem.loss)
    q = row.natural_of(p.loss, p.y, -m.level * m.c[m.rows] / p.space.s)
    found = gap.repaired(row, p, q)
    u = row.slope_of(p.loss, p.y, found.natural)
    apart = m.c.copy()
    apart[m.rows] += p.space.s * u / m.level
    return found, apart


def measure(
    m: Machine, found: Repair, d: Array, z: Array, apart: Array, sums: Sums
) -> tuple[float, float]:
    """The gap and its rounding; d = c − c', ``z`` = Kc and ``apart`` = Kd."""
    p, row = m.problem, losses.row_of(m.problem.loss)
    z = z[m.rows] + m.b
    u = row.slope_of(p.loss, p.y, found.natural)
    delta = sums.off(m.c) + gap.evaluation_error(p, z, u) + 4 * UNIT * norm(p, z)
    excess, noise = row.excess(p.loss, p.y, z, found.natural)
    above = mean(p, row.excess(p.loss, p.y, z, row.rest(p.loss, p.y))[0])
    rounds = gamma(len(z) + 24)
    bound = gap.steep(p, z, u, delta) + UNIT * mean(p, noise)
    bound += found.share * above * (1 + rounds) + rounds * mean(p, excess)
    # c' is rounded, and stands within a share of what is exactly feasible.
    size, given = float(np.abs(d).sum()), float(np.abs(m.c).sum())
    slip = (8 * UNIT + found.share) * (given + size)
    off = size * (sums.off(d) + gamma(len(d) + 8) * np.abs(apart).max(initial=0.0))
    off += sums.top * (2 * size * slip + slip**2)
    strength = m.level / p.space.total
    computed = mean(p, excess) + strength * max(float(d @ apart), 0.0) / 2
    bound = float(bound + strength * off / 2 + TINY)
    if not math.isfinite(computed):
        return math.inf, 0.0
    return computed, bound if bound == bound else math.inf
