"""Losses with bounded slopes and no penalty: the gap for slightly changed data.

Without a penalty a dual point must satisfy Xᵀ(su) = 0. E = −u(uᵀSX)/‖u‖² brings that
about; column j changes by the share |vⱼ|/(‖x̃ⱼ‖‖u‖) of its norm. For X + E the
scores are z − u·(vᵀw)/‖u‖², and mean e at them bounds what is above the minimum. Or
u = 0, which is feasible for X itself and tight where the residuals vanish.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from certus.typing import Array
from certus.verify.kernel import gap, losses
from certus.verify.kernel.backward import column_norms
from certus.verify.kernel.gap import Problem, Repair, mean, norm
from certus.verify.kernel.spaces import TINY, UNIT, Seen, gamma


class Moved(NamedTuple):
    """What changed data prove: the share by which columns change, and the gap left.

    ``still`` is the gap at u = 0, which needs no change of the data.
    """

    share: float
    share_bound: float
    computed: float
    bound: float
    still: float
    still_bound: float
    u: Array
    slack: float  # share by which u is shrunk until it is exactly feasible
    probe: Array

    def value(self, base: float) -> tuple[float, float]:
        """The larger of change and gap, and its rounding, as shares of ``base``."""
        if not base > 0:
            exact = self.still == 0 and self.still_bound <= 1e-290
            return (0.0, 0.0) if exact else (math.inf, 0.0)
        value = max(self.share, self.computed / base)
        stated = max(self.share + self.share_bound, (self.computed + self.bound) / base)
        unmoved = self.still / base, self.still_bound / base
        if not stated < sum(unmoved):  # also where the change has no bound
            return unmoved
        return value, stated - value


def measure_moved(p: Problem, probe: Array | None) -> Moved:
    """Both shares at the dual point given, or at the slopes; one pass over X."""
    row = losses.row_of(p.loss)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        seen, z, found = gap.look(p, probe)
        u = row.slope_of(p.loss, p.y, found.natural)
        delta = gap.score_error(p, z, u)
        level = mean(p, row.value(p.loss, p.y, z))
        rest = gap.steep(p, z, np.zeros(len(z)), delta)
        rest += gamma(len(z) + 24) * level
        moved = _moved(p, seen, z, u, found, delta)
    probed = seen.z[:, -1] if probe is not None else np.zeros(0)
    return Moved(*moved, level, rest, u, found.share, probed)


def _moved(
    p: Problem, seen: Seen, z: Array, u: Array, found: Repair, delta: float
) -> tuple[float, float, float, float]:
    row = losses.row_of(p.loss)
    v, error = gap.pulled_back(p, seen, found, len(z))
    size = norm(p, u)
    if not size > 0:
        return math.inf, 0.0, math.inf, 0.0
    least, whole = column_norms(p, column_means(p))
    used = whole > 0
    low = size * (1 - 1e-9)
    share = np.where(v[used] != 0, np.abs(v[used]) / (least[used] * size), 0.0)
    loose = (np.abs(v[used]) + error[used]) / (least[used] * low)
    step = float(v @ p.w) / size / size
    slip = float((error + 4 * UNIT * np.abs(v)) @ np.abs(p.w)) / low
    there = z - u * step
    delta = delta + slip + 8 * UNIT * abs(step) * size + TINY
    excess, noise = gap.excess_of(p, there, found.natural)
    bound = gap.steep(p, there, u, delta) + UNIT * noise
    bound += found.share * mean(p, row.value(p.loss, p.y, there))
    bound += gamma(len(z) + 24) * excess
    top = float(np.max(share, initial=0.0))
    over = max(float(np.max(loose, initial=0.0)) - top, 0.0)
    return top, over, excess, bound


def column_means(p: Problem) -> Array:
    """Means of the columns of A where the intercept is free; else they stay as are."""
    if not p.free:
        return np.zeros(len(p.w))
    return p.space.look(np.zeros((len(p.w), 1)), np.ones(1), lambda _, z: z).V[:, 0]
