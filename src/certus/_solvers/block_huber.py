"""Huber regression with its scale over blocks: Newton's method on w, b and σ together.

    min over w, b, σ > 0:  σ + Σ sᵢ σ·H(rᵢ/σ)/Σs + ½·l2·‖w‖²,   r = y − Xw − b

with H(t) = t² up to epsilon, else 2·epsilon·abs(t) − epsilon². In memory the best σ is
found for the residuals of each step; over blocks that would take passes of its own, so
σ is one more coefficient. The problem stays convex, and a step stays one pass that adds
up objective, gradient and Hessian. The median of the targets, roughly, and their spread
are where a fit starts; they follow from the targets alone.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus._solvers.block_design import numbers
from certus._solvers.block_newton import (
    RowFrame,
    SummedProblem,
    Sums,
    weight_of,
    with_ones,
)
from certus._solvers.losses import KEPT
from certus.blocks import RowBlock, total
from certus.typing import Array

#: Passes over the targets until their centre and scale change by less than a share.
TRIALS, CLOSE = 30, 1e-3


class Middle(NamedTuple):
    """Of the targets at a constant b and a scale σ: what moves both."""

    weight: float
    value: float  # Σ s·σH(r/σ)
    slope: float  # Σ s·clip(r/σ)
    inside: float  # Σs of the inliers, and Σs·(r/σ)² of them
    square: float


def _middle(block: RowBlock, b: float, sigma: float, epsilon: float) -> Middle:
    _, y, s = numbers(block._replace(X=block.X[:, :0]))
    t = (y[:, 0] - b) / sigma
    near = np.abs(t) <= epsilon
    c = np.clip(t, -epsilon, epsilon)
    value = sigma * np.abs(c) * (2 * np.abs(t) - np.abs(c))
    sums = (s.sum(), s @ value, s @ c, s @ near, s @ np.where(near, t * t, 0.0))
    return Middle(*map(float, sums))


def _rough(block: RowBlock) -> tuple[float, float, float]:
    """Σs, and its products with the median and with the mean distance from it."""
    _, y, s = numbers(block._replace(X=block.X[:, :0]))
    if not s.any():
        return 0.0, 0.0, 0.0
    y = y[:, 0]
    middle = float(np.median(y[s > 0]))
    return float(s.sum()), float(s.sum()) * middle, float(s @ np.abs(y - middle))


def centre_of(blocks: Any, epsilon: float, free: bool) -> tuple[float, float, float]:
    """A constant and a scale near the best ones, and the objective there."""
    rows = blocks.targets()
    weight, middle, away = total(rows, _rough)
    if not weight > 0:
        raise ValueError("sample_weight must not be all zero.")
    b = middle / weight if free else 0.0
    sigma = (away + abs(middle - b * weight)) / weight
    if not sigma > 0:
        return b, 0.0, 0.0
    value = math.inf
    for _ in range(TRIALS):
        seen = total(rows, _middle, b, sigma, epsilon)
        found = sigma + seen.value / seen.weight
        if found > value * (1 - CLOSE):
            return b, sigma, found
        value = found
        room = seen.weight - epsilon**2 * (seen.weight - seen.inside)
        if not (room > 0 and seen.square > 0):  # too few rows are near the constant
            sigma *= 2.0
            value = math.inf
            continue
        b += sigma * seen.slope / seen.inside if free else 0.0
        sigma *= math.sqrt(seen.square / room)
    return b, sigma, value


def _sums(
    block: RowBlock, frame: RowFrame, W: Array, given: tuple[float, float], bent: bool
) -> Sums:
    """Sums at W, whose last row is σ; ``given`` are epsilon and the unit of y."""
    X, y, s = numbers(block)
    (epsilon, unit), sigma = given, float(W[-1, 0])
    y = y[:, 0] / unit
    V = W[:-1, 0].copy()
    V[:-1] /= frame.scale
    p = len(W)
    value, sides, gradient = 0.0, 0.0, np.zeros(p)
    hessian = np.zeros((p, p) if bent else 0)
    for part in frame.parts(len(X)):
        A, weight = with_ones(X[part], frame.mean), s[part]
        r = y[part] - A @ V
        t = r / sigma
        c = np.clip(t, -epsilon, epsilon)
        near, size = np.abs(t) <= epsilon, np.abs(c)
        value += float(weight @ (sigma * size * (2 * np.abs(t) - size)))
        gradient[:-1] -= A.T @ (2 * weight * c)
        gradient[-1] -= float(weight @ np.square(c))
        sides += float(weight @ size)
        if bent:
            far = np.where(near, 1.0, np.abs(r))
            h = np.where(near, 2 / sigma, KEPT * 2 * epsilon / far)
            B = A * np.sqrt(weight * h)[:, None]
            t = np.where(near, t, 0.0)
            hessian[:-1, :-1] += B.T @ B
            hessian[:-1, -1] += A.T @ (weight * t * (2 / sigma))
            hessian[-1, -1] += float(weight @ np.square(t)) * 2 / sigma
    turn = np.concatenate([1 / frame.scale, [float(frame.intercept), 1.0]])
    gradient *= turn
    if bent:
        hessian[-1, :-1] = hessian[:-1, -1]
        hessian *= turn[:, None] * turn
    return Sums(value, gradient[:, None], hessian, np.array([sides]))


class JointScaleProblem(SummedProblem):
    """The objective over blocks in moved and scaled coordinates; σ comes last.

    Parameters
    ----------
    blocks : Blocks
        Rows with numbers.
    frame : RowFrame
        The columns' means and scales.
    weight : float
        Σs.
    l2 : float
        Strength of the penalty for targets in their unit, above 0.
    reference : float
        The objective of a constant model in that unit, which gaps are relative to.
    given : (float, float)
        epsilon and the unit of the targets.
    """

    def __init__(
        self,
        blocks: Any,
        frame: RowFrame,
        weight: float,
        l2: float,
        reference: float,
        given: tuple[float, float],
    ) -> None:
        self.blocks, self.frame, self.weight, self.l2 = blocks, frame, weight, l2
        self.reference, self.given, self.k = reference, given, 1
        level = l2 / np.square(frame.scale)
        self.level = np.append(level, [0.0, 0.0])[:, None]

    def over(self, blocks: Any, every: int) -> JointScaleProblem:
        """The same mean over some of the rows."""
        frame = self.frame._replace(every=every)
        weight = float(total(blocks.targets(), weight_of, frame))
        more = (self.l2, self.reference, self.given)
        return JointScaleProblem(blocks, frame, weight, *more)

    def at(self, W: Array, bent: bool = True) -> Sums:
        """Objective, gradient and, if asked for, Hessian at W; one pass."""
        sigma = float(W[-1, 0])
        if not sigma > 0:  # outside: a step that leads here is halved
            return Sums(math.inf, np.full_like(W, math.inf), np.zeros(0), np.zeros(1))
        found = total(self.blocks, _sums, self.frame, W, self.given, bent)
        value, gradient, hessian, sides = (x / self.weight for x in found)
        value += sigma + float(np.sum(self.level * np.square(W))) / 2
        gradient += self.level * W
        gradient[-1] += 1.0
        if bent:
            diagonal = self.level[:, 0].copy()
            if not self.frame.intercept:
                diagonal[-2] = 1.0  # where the gradient is 0
            hessian.flat[:: len(hessian) + 1] += diagonal
        return Sums(value, gradient, hessian, sides)

    def gap(self, W: Array, point: Sums) -> float:
        """What the verifier will find, with slopes that are not repaired.

        ‖∇P‖²/(2·l2), the share of the slopes that the intercept moves, and the slope
        in σ times σ.
        """
        g = point.gradient[:-2, 0] * self.frame.scale
        left = float(g @ g) / (2 * self.l2)
        if self.frame.intercept:
            share = abs(float(point.gradient[-2, 0])) / max(point.sides[0], 1e-300)
            left += share * point.value
        left += abs(float(W[-1, 0] * point.gradient[-1, 0]))
        return left / self.reference if self.reference > 0 else left

    def end(self, W: Array) -> Array:
        """Coefficients of the rows as given, the intercept and σ, without units."""
        unit = self.given[1]
        w = W[:-2] / self.frame.scale[:, None]
        return unit * np.vstack([w, W[-2:-1] - self.frame.mean @ w, W[-1:]])
