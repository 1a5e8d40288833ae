"""Least squares without a penalty: the smallest data change that makes (w, b) exact.

With centred columns x̃ⱼ and target ỹ (weighted, where b is free), r = ỹ − X̃w and
c = mean(y − Xw − b), each of two changes makes w exact:

    stationary      Eⱼ = −r(rᵀx̃ⱼ)/‖r‖²             share of column j: |x̃ⱼᵀr|/(‖x̃ⱼ‖‖r‖)
    interpolating   Eⱼ = r·sign(wⱼ)‖x̃ⱼ‖/T, −r‖ỹ‖/T  share: ‖r‖/T, T = Σ|wⱼ|‖x̃ⱼ‖ + ‖ỹ‖

and a shift of the target by c makes b exact. The value is the smaller of the two, or
|c|/‖ỹ‖ if that is larger. With w ≥ 0 only columns with wⱼ > 0 or x̃ⱼᵀr > 0 are moved,
which is exact if 1 + Σ(x̃ⱼᵀr)wⱼ/‖r‖² ≥ 0.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from certus.typing import Array
from certus.verify.kernel.gap import Problem, mean, norm
from certus.verify.kernel.spaces import TINY, UNIT, gamma

#: Norms of centred columns from below, and of columns with their rounding.
Parts = tuple[Array, Array]
#: A target whose spread is a smaller share of its size is constant.
CONSTANT = 1e-13


class Backward(NamedTuple):
    """The share of the data that must change, and the part of it that is rounding."""

    computed: float
    bound: float
    probe: Array


def measure(p: Problem, probe: Array | None = None, positive: bool = False) -> Backward:
    """The backward error of least squares at (w, b); the statement is columnwise."""
    w, b = p.w.reshape(-1, 1), p.b
    if probe is not None:
        w, b = np.column_stack([w, probe]), np.append(b, 0.0)

    def vectors(rows: slice, z: Array) -> Array:
        return np.vstack([p.y[rows] - z[:, 0], np.ones(len(z))]).T

    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        seen = p.space.look(w, b, vectors)
        r = seen.B[:, 0]
        c = mean(p, r) if p.free else 0.0
        centre = seen.V[:, 1] if p.free else np.zeros(len(p.w))
        pulled = seen.V[:, 0] - c * centre  # x̃ⱼᵀr / S
        parts = column_norms(p, centre)
        r = r - c
        found = _value(p, seen.z[:, 0], r, c, pulled, parts, positive)
    return Backward(*found, seen.z[:, 1] if probe is not None else r[:0])


def column_norms(p: Problem, centre: Array) -> Parts:
    """‖x̃ⱼ‖ from below, and ‖Aⱼ‖, in which its rounding is counted; 0 if constant."""
    p.space.rough = False  # a bound from above makes shares too small
    N = p.space.norms.copy()
    with np.errstate(invalid="ignore"):
        tilt = np.where(N > 0, np.abs(centre) / N, 0.0)
    inner = np.maximum(1 - tilt**2, 0.0)  # ‖x̃‖² = ‖A‖² − mean², as a share
    least = np.sqrt(np.maximum(inner - 4 * gamma(p.space.depth + 64), 0.0))
    for j in np.flatnonzero((N > 0) & (least == 0)):
        N[j] *= not p.space.is_constant(int(j))
    return N * least * (1 - 1e-9), N


def _value(
    p: Problem, z: Array, r: Array, c: float, v: Array, parts: Parts, positive: bool
) -> tuple[float, float]:
    least, N = parts
    y = p.y - mean(p, p.y) if p.free else p.y
    size_r, size_y, whole = (norm(p, a) for a in (r, y, p.y))
    delta = float(p.space.score_error(p.w.reshape(-1, 1), p.b)[0])
    delta += 8 * UNIT * (norm(p, z) + whole) + TINY
    # Centring by a rounded mean leaves a constant of at most 40 units behind.
    delta += 80 * UNIT * (size_r + abs(c))
    if size_y <= CONSTANT * whole:  # a constant target: shares of its norm
        size_y = whole
    slip = (gamma(p.space.depth + 80) * (size_r + abs(c)) + delta) * N
    used = (N > 0) & ((p.w > 0) | (v + slip > 0) if positive else True)
    top, bottom = np.abs(v[used]), least[used] * max(size_r - delta, 0.0)
    stationary = _ratio(top, least[used] * size_r), _ratio(top + slip[used], bottom)
    room = float(np.abs(p.w) @ least) + size_y
    filled = size_r / room if room > 0 else math.inf
    loose = (size_r + delta) / (room - delta) if room > delta else math.inf
    if positive:
        along = float(v[used] @ p.w[used])
        turn = 1 + along / size_r / size_r if size_r > 0 else 1.0
        sure = max(size_r - delta, TINY)  # whose square may vanish
        off = float(slip[used] @ np.abs(p.w[used])) / sure / sure
        if not turn - off >= 0:
            stationary = math.inf, math.inf
    if size_r == 0.0 and c == 0.0 and not p.w.any():
        return 0.0, 0.0  # the target is b, to the last digit
    drift = abs(c) / size_y if size_y > 0 else (0.0 if c == 0 else math.inf)
    left = size_y * (1 - 1e-9) - delta
    drift_off = (abs(c) + delta) / left if left > 0 else math.inf
    if not p.free:
        drift = drift_off = 0.0
    value = max(min(stationary[0], filled), drift)
    stated = max(min(stationary[1], loose), drift_off)
    return value, max(stated - value, 0.0)


def _ratio(top: Array, bottom: Array) -> float:
    return float(np.max(np.where(top > 0, top / bottom, 0.0), initial=0.0))
