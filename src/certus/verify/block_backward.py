"""Least squares without a penalty over blocks: the backward error from sums.

The theorem is that of ``kernel.backward``. The residual r of the sums is that of the
model, with mean c; what the theorem needs of the centred one follows from them:

    x̃ⱼᵀ(r − c) = Aⱼᵀr − c·Σ Aⱼ,   ‖r − c‖² = ‖r‖² − c²,   ‖x̃ⱼ‖² = ‖Aⱼ‖² − mean²

each with a bound on what the subtraction loses.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from certus.typing import Array
from certus.verify.block_sums import FirstSums, SecondSums, StatedRows, rows_read, tree
from certus.verify.deciding import Number
from certus.verify.kernel.spaces import TINY, UNIT, gamma

#: Roundings on the way of a number into a sum over rows: pairwise, then by the tree.
ROUNDS = 96


def number(
    asked: StatedRows, first: FirstSums, x: SecondSums, blocks: Any, delta: float
) -> Number:
    """The backward error and its rounding; ``delta`` is that of the scores."""
    S = first.weight
    grow = gamma(x.depth + math.ceil(math.log2(len(blocks.keys) + 1)) + ROUNDS)
    c = float(x.u[0]) / S if asked.free else 0.0
    slip_c = (grow * float(x.size_u[0]) / S) if asked.free else 0.0
    low, high = _between(float(x.u2[0]) / S, c, slip_c, grow)
    off = (float(x.off) / S, grow * float(x.off1) / S) if asked.free else (0.0, 0.0)
    size_y = _between((x.off2 if asked.free else x.y2) / S, *off, grow)[0]
    whole = math.sqrt(x.y2 / S)
    if size_y <= 1e-13 * whole:  # a constant target: shares of its norm
        size_y = whole * (1 - 1e-9)
    delta += 8 * UNIT * (math.sqrt(x.z2 / S) + whole) + slip_c + 8 * UNIT * abs(c)
    N = np.sqrt(x.squares / S) * (1 + 1e-9)
    centre = x.ones / S if asked.free else np.zeros(len(N))
    least = _least(asked, N, centre, grow, blocks)
    N = np.where(least < 0, 0.0, N)  # constant columns are not moved
    least = np.maximum(least, 0.0)
    pulled = np.abs(x.pulled[:, 0] / S - c * centre)
    slip = (grow * (high + 4 * abs(c)) + delta) * N + TINY
    w, used = np.abs(asked.w[:, 0]), N > 0
    bottom = least[used] * max(low - delta, 0.0)
    stationary = _most(pulled[used], least[used] * low)
    surely = _most(pulled[used] + slip[used], bottom)
    room = float(w @ least) + size_y
    filled = high / room if room > 0 else math.inf
    loose = (high + delta) / (room - delta) if room > delta else math.inf
    if high == 0.0 and c == 0.0 and not w.any():
        return Number(0.0)
    drift = drifts = 0.0
    if asked.free:
        left = size_y * (1 - 1e-9) - delta
        drift = abs(c) / size_y if size_y > 0 else (math.inf if c else 0.0)
        drifts = (abs(c) + delta) / left if left > 0 else math.inf
    value = max(min(stationary, filled), drift)
    stated = max(min(surely, loose), drifts)
    return Number(value, max(stated - value, 0.0))


def _between(square: float, c: float, slip: float, grow: float) -> tuple[float, float]:
    """√(square − c²) from below and from above."""
    low = square * (1 - grow) - (abs(c) + slip) ** 2
    high = square * (1 + grow) - max(0.0, abs(c) - slip) ** 2
    return math.sqrt(max(low, 0.0)) * (1 - 1e-9), math.sqrt(max(high, 0.0)) * (1 + 1e-9)


def _least(
    asked: StatedRows, N: Array, centre: Array, grow: float, blocks: Any
) -> Array:
    """‖x̃ⱼ‖ from below; −1 for a column that has one value only."""
    with np.errstate(divide="ignore", invalid="ignore"):
        tilt = np.where(N > 0, np.abs(centre) / N, 0.0)
    inner = np.sqrt(np.maximum(1 - tilt**2 - 8 * grow, 0.0))
    least = N * inner * (1 - 1e-8)
    flat = np.flatnonzero((N > 0) & (least == 0)) if asked.free else np.zeros(0, int)
    if len(flat):
        ends = tree(blocks.map(_ends, asked, flat), _join_ends)
        least[flat[ends[0] == ends[1]]] = -1.0
    return np.asarray(least)


def _ends(block: Any, asked: StatedRows, some: Array) -> tuple[Array, Array]:
    X = rows_read(block, asked)[0][:, some]
    return X.min(axis=0, initial=math.inf), X.max(axis=0, initial=-math.inf)


def _join_ends(a: Any, b: Any) -> tuple[Array, Array]:
    return np.minimum(a[0], b[0]), np.maximum(a[1], b[1])


def _most(top: Array, bottom: Array) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.max(np.where(top > 0, top / bottom, 0.0), initial=0.0))
