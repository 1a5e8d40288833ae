"""Huber regression with its scale over blocks: the joint gap from sums.

The theorem is that of ``huber``: for slopes a = 2u/σ with mean a² ≤ 4

    P − min P ≤ (2/σ)·(gap for this σ) + σ(1 − mean a²/4).

Slopes at residuals that are multiplied by κ have mean a² = 4 where κ is σ over the best
scale, one step of Newton's method from the sums of the first pass; a little more than 4
is charged as in a repair. The best constant model is bounded from below by its own
dual: φ(r, σ) = max over |a| ≤ 2·epsilon of a·r − σa²/4, so that with mean a = 0 and
mean a² ≤ 4 no constant and no scale have less than mean a·y.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim
from certus.objectives import terms as t
from certus.typing import Array
from certus.verify.block_sums import (
    SecondSums,
    StatedRows,
    rows_read,
)
from certus.verify.deciding import Number, measured
from certus.verify.kernel.losses import weighted_quantile
from certus.verify.kernel.spaces import UNIT, gamma
from certus.verify.recomputed import RecomputedBlocks, summed
from certus.verify.stated_linear import Statement

#: Passes over the targets, at most, and what the bound of the best constant may lack.
TRIALS, NEAR = 30, 0.02
#: Roundings on the way of a number into a sum over rows: pairwise, then by the tree.
ROUNDS = 96


def at_scale_of(stated: Statement, scale: float) -> Statement:
    """The problem for a given scale: Huber's loss in the units of the target."""
    return stated._replace(loss=t.Huber(stated.loss.threshold * scale))


def stretch_of(weight: float, x: SecondSums, scale: float, epsilon: float) -> float:
    """What residuals are multiplied by so that their slopes have mean a² near 4."""
    inside = float(x.u2[0]) - x.out * (epsilon * scale) ** 2
    room = weight - epsilon**2 * x.out
    kappa = scale / math.sqrt(inside / room) if inside > 0 and room > 0 else 1.0
    return min(max(kappa, 0.5), 2.0)


def joint(
    parts: tuple[float, float, float],
    x: SecondSums,
    weight: float,
    scale: float,
    base: float,
) -> Number:
    """The joint gap; ``parts`` are gap, its rounding and slack for the fixed scale."""
    computed, bound, slack = parts
    factor, square = 2 / scale, min(float(x.u2[0]) / weight / scale**2, 1.0)
    computed = factor * computed + scale * (1 - square)
    off = 2 * slack + 2 * gamma(2 * ROUNDS) + 1e-11
    bound = factor * bound + scale * off * square
    return Number.share(computed * (1 + 4 * UNIT), bound, base)


def ball(x: SecondSums, weight: float, scale: float) -> float:
    """What slopes are multiplied by so that mean a² ≤ 4."""
    size = math.sqrt(float(x.u2[0]) / weight) / scale
    return min(1.0, (1 - 1e-12) / size) if size > 0 else 1.0


def outliers(stated: Statement, scale: float, rows: int, x: SecondSums) -> Claim:
    """How many rows the scale cuts off."""
    far, epsilon = int(x.far), stated.loss.threshold
    cut = f"{far:,} of {rows:,} rows lie more than {epsilon:g} times the scale away"
    return measured("outliers", far / rows, f"{cut} {scale:.4g}")


def objective(stated: Statement, strength: float, free: bool) -> str:
    """The objective as one line of text."""
    text = f"σ + mean σ·H_{stated.loss.threshold:.3g}((y − z)/σ)"
    return text + f" + {strength / 2:.4g}·‖w‖²,  z = Xw" + (" + b" if free else "")


# -- the best constant model --------------------------------------------------------


class Sides(NamedTuple):
    """Of slopes a at a constant c and a scale σ: sums of both sides, and the value."""

    weight: float
    sums: Array  # Σ s·a₊, Σ s·a₋
    squares: Array
    dots: Array  # Σ s·a₊(y − c) and Σ s·a₋(y − c), with a₋ ≤ 0
    value: float  # Σ s·φ(y − c, σ)
    inside: float  # Σs of the inliers, and Σs·a²/4 of them
    near: float
    reach: float  # Σ s·|y − c|


def _sides(
    block: Any, asked: StatedRows, c: float, sigma: float, epsilon: float
) -> Sides:
    _, y, s = rows_read(block, asked)
    r = y - c
    a = np.clip(2 * r / sigma, -2 * epsilon, 2 * epsilon)
    both = np.array([np.maximum(a, 0.0), np.minimum(a, 0.0)])
    near = np.abs(r) <= epsilon * sigma
    value = np.sum(s * (a * r - sigma / 4 * a * a))
    return Sides(
        *(float(s.sum()), np.sum(s * both, axis=1), np.sum(s * both**2, axis=1)),
        *(np.sum(s * both * r, axis=1), float(value), float(np.sum(s * near))),
        *(float(np.sum(s * near * a * a / 4)), float(np.sum(s * np.abs(r)))),
    )


def _rough(block: Any, asked: StatedRows) -> tuple[float, float, float]:
    """Σs, and its products with the median and the mean distance from it."""
    _, y, s = rows_read(block, asked)
    if not len(s):
        return 0.0, 0.0, 0.0
    c, weight = weighted_quantile(y, s, 0.5), float(s.sum())
    return weight, weight * c, float(np.sum(s * np.abs(y - c)))


def _add(a: Any, b: Any) -> Any:
    found = [x + y for x, y in zip(a, b, strict=True)]
    return type(a)(*found) if hasattr(a, "_fields") else tuple(found)


def best_constant(
    blocks: Any, again: RecomputedBlocks, asked: StatedRows, epsilon: float
) -> float:
    """P of the best constant model and its best scale, from below; targets are read."""
    rows = blocks.targets()
    bare = asked._replace(w=asked.w[:0], shift=asked.shift[:0])
    weight, middle, away = summed(rows, again, _add, _rough, bare)
    c = middle / weight if asked.free else 0.0
    sigma = (away + abs(middle - c * weight)) / weight
    best = 0.0
    for _ in range(TRIALS if sigma > 0 else 0):
        seen = summed(rows, again, _add, _sides, bare, c, sigma, epsilon)
        best = max(best, _dual(seen, asked.free))
        if best >= (1 - NEAR) * (sigma + seen.value / seen.weight):
            break
        room = seen.weight - epsilon**2 * (seen.weight - seen.inside)
        if not (room > 0 and seen.near > 0):
            sigma *= 2.0
            continue
        if asked.free:
            c += sigma * float(seen.sums.sum()) / 2 / seen.inside
        sigma *= math.sqrt(seen.near / room)
    return best


def _dual(x: Sides, free: bool) -> float:
    """Mean a·y for slopes moved onto mean a = 0 and into mean a² ≤ 4, from below."""
    share = np.ones(2)
    sizes = np.abs(x.sums)
    if free:
        low = float(sizes.min())
        share = np.where(sizes > low, low / np.maximum(sizes, 1e-300), 1.0)
    square = float(np.square(share) @ x.squares) / x.weight
    kappa = min(1.0, 2 / math.sqrt(square) * (1 - 1e-12)) if square > 0 else 0.0
    rounds = gamma(2 * ROUNDS)
    lost = 4 * rounds * float(np.abs(x.dots).sum())
    if free:  # the floats add up to zero within rounding; the rest is shrunk
        lost += 4 * rounds * math.sqrt(square * x.weight) * x.reach
    return max(0.0, kappa * (float(share @ x.dots) - lost) / x.weight)
