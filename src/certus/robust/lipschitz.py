"""How far the outputs of a network move when its input does: Lipschitz constants.

    ‖f(x̂) − f(x)‖_p ≤ L ‖x̂ − x‖_p,  L = Π of the norms of its layers

Norms are upper bounds in float64, never estimates from below. Linear maps that follow
each other are also taken together where their matrix is small enough to be written out.
Beside it goes what rounding may add to the outputs, at any allowed row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from certus.robust.abstract import Abstract, Function, Map, Memory, Rounding
from certus.threat import row_norms

#: Relative slack on norms: above the rounding of sums of 10⁵ terms in float64.
SLACK = 1e-10
#: Entries of a layer's matrix up to which its singular values are computed.
SINGULAR = 1 << 22
#: Entries of unit rows that go through a map together.
TOGETHER = 1 << 22


def operator_norm(step: Map, p: float, shape: torch.Size) -> float:
    """An upper bound of ‖A‖ from lp to lp, for rows of a shape.

    For p = 2 the largest singular value where the matrix is small enough to be written
    out; else, and for other p, ‖A‖₁^{1/p}‖A‖_∞^{1−1/p} (Riesz and Thorin).
    """
    between = magnitude_norm(step, p)
    if p != 2 or step.terms == 1:  # one factor for each entry: the largest it is
        return between
    A = step.weight
    if A is None:
        A = written_out((step,), shape, SINGULAR)
    if A is None or A.numel() > SINGULAR:
        return between
    return min(between, matrix_norm(A, p))


def magnitude_norm(step: Map, p: float) -> float:
    """An upper bound of the norm of the map with |weights|."""
    if p == math.inf:
        return step.norm_inf * (1 + SLACK)
    return step.norm_1 ** (1 / p) * step.norm_inf ** (1 - 1 / p) * (1 + SLACK)


def matrix_norm(A: Tensor, p: float) -> float:
    """The norm of a matrix from lp to lp; an upper bound for p other than 1, 2, ∞."""
    if not A.numel():
        return 0.0
    if p == 2:
        return float(torch.linalg.matrix_norm(A, 2)) * (1 + SLACK)
    columns, rows = (float(A.abs().sum(dim=dim).max()) for dim in (0, 1))
    if p == math.inf:
        return rows * (1 + SLACK)
    return columns ** (1 / p) * rows ** (1 - 1 / p) * (1 + SLACK)


def written_out(steps: tuple[Map, ...], shape: torch.Size, most: int) -> Tensor | None:
    """The matrix (outputs, inputs) of linear maps, unless it has too many entries."""

    def slope(v: Tensor) -> Tensor:
        for step in steps:
            v = step.apply(v)
        return v.reshape(len(v), -1)

    size = math.prod(shape)
    outputs = slope(torch.zeros(1, *shape, dtype=torch.float64)).shape[1]
    if size * outputs > most:
        return None
    # The shorter side in unit rows: forwards for inputs, backwards for outputs.
    fewer, longer = min(size, outputs), max(size, outputs)
    A = torch.empty(fewer, longer, dtype=torch.float64)
    together = max(1, TOGETHER // longer)
    for start in range(0, fewer, together):
        count = min(together, fewer - start)
        unit = torch.zeros(count, fewer, dtype=torch.float64)
        unit[torch.arange(count), start + torch.arange(count)] = 1.0
        if size <= outputs:
            part = slope(unit.reshape(count, *shape))
        else:
            zero = torch.zeros(count, *shape, dtype=torch.float64, requires_grad=True)
            with torch.enable_grad():
                (part,) = torch.autograd.grad(slope(zero), zero, unit)
        A[start : start + count] = part.reshape(count, -1)
    return A.T if size <= outputs else A


class Ground(NamedTuple):
    """What holds for all steps of a pass."""

    p: float
    radius: float  # the largest one in question
    rounding: Rounding
    memory: Memory


class Chain(NamedTuple):
    """Linear maps that follow each other, and the constant of what is before them."""

    base: float
    shape: torch.Size
    steps: tuple[Map, ...] = ()

    def matrix(self, p: float) -> tuple[Tensor, float] | None:
        """All maps as one matrix, and by what rounding its norm may be off."""
        A = written_out(self.steps, self.shape, SINGULAR)
        if A is None:
            return None
        lost = sum(step.terms + 3 for step in self.steps) * 2.0**-52
        return A, lost * math.prod(magnitude_norm(step, p) for step in self.steps)


class Reach(Abstract):
    """Rows, how far those within a radius can be from them, and rounding.

    For any allowed x̂ with ‖x̂ − x‖ ≤ r: the exact outputs move by ``constant``·r at
    most, and what is computed is off by ``error`` + ``growth``·r at most, in lp.
    """

    def __init__(
        self,
        values: Tensor,
        constant: float,
        error: Tensor,
        growth: float,
        ground: Ground,
        chain: Chain | None = None,
    ) -> None:
        self.values, self.constant, self.ground = values, constant, ground
        self.error, self.growth = error, growth
        self.shape, self.dtype = values.shape, ground.rounding.dtype
        self.chain = chain or Chain(constant, values.shape[1:])
        self.before: float | None = None

    @classmethod
    def of(cls, X: Tensor, ground: Ground) -> Reach:
        """The rows themselves, rounded to the precision of the network."""
        share, tiny = ground.rounding.share(0), ground.rounding.tiny
        tiny *= math.prod(X.shape[1:]) ** (1 / ground.p)
        return cls(X, 1.0, share * row_norms(X, ground.p) + tiny, share, ground)

    def _sizes(self) -> tuple[Tensor, float]:
        """(s, t) with ‖computed‖ ≤ s + t·r."""
        size = row_norms(self.values, self.ground.p) + 2 * self.error
        return size * (1 + SLACK), self.constant + self.growth

    def _within(self, size: Tensor, error: Tensor) -> Tensor:
        """Beyond the largest number nothing is computed rightly."""
        return torch.where(size > self.ground.rounding.most, math.inf, error)

    def linear(self, step: Map) -> Reach:
        """Times the norm of the map; a sum loses a share of the sizes of its terms."""
        p, radius, rounding, memory = self.ground
        norm, magnitude = memory.recall(
            lambda: (operator_norm(step, p, self.shape[1:]), magnitude_norm(step, p))
        )
        values = step.apply(self.values) + step.bias
        heft = step.weight_of_bias.expand(1, *values.shape[1:])
        size, slope = self._sizes()
        total = magnitude * size + row_norms(heft, p)
        share, count = rounding.share(step.terms), math.prod(values.shape[1:])
        small = (step.terms + 3) * rounding.tiny * count ** (1 / p)
        error = norm * self.error + share * total + small
        error = self._within(total + magnitude * slope * radius, error)
        growth = norm * self.growth + share * magnitude * slope
        chain = self.chain._replace(steps=(*self.chain.steps, step))
        constant = self.constant * norm
        if len(chain.steps) > 1:
            constant = min(constant, memory.recall(lambda: _together(chain, p)))
        found = Reach(values, constant, error, growth, self.ground, chain)
        found.before = self.constant
        return found

    def entrywise(self, step: Function) -> Reach:
        """Times the steepest slope."""
        p, radius, rounding, _ = self.ground
        values = step.apply(self.values)
        error, growth = step.slope * self.error, step.slope * self.growth
        size, slope = self._sizes()
        far = row_norms(values, p) + step.slope * (size + slope * radius)
        error = self._within(far, error)
        if not step.exact:
            share, count = rounding.share(8), math.prod(values.shape[1:])
            reached = row_norms(values, p) + step.slope * size
            error = error + share * reached
            error = error + (share + step.jump) * count ** (1 / p)
            growth += share * step.slope * slope
        return Reach(values, self.constant * step.slope, error, growth, self.ground)

    def maximum(self, pool: Callable[[Tensor], Tensor], overlap: int) -> Reach:
        """An entry counts once for each window it is in."""
        factor = overlap ** (1 / self.ground.p) * (1 + SLACK)
        found = factor * self.constant, factor * self.error, factor * self.growth
        return Reach(pool(self.values), *found, self.ground)

    def rearranged(self, step: Callable[[Tensor], Tensor]) -> Reach:
        """Unchanged."""
        chain = self.chain
        chain = chain._replace(steps=(*chain.steps, Map(step, step, 0.0, 1.0, 1.0)))
        found = self.constant, self.error, self.growth
        return Reach(step(self.values), *found, self.ground, chain)

    def added(self, other: Any) -> Reach:
        """The sum of both."""
        share = self.ground.rounding.share(1)
        (a, slope_a), (b, slope_b) = self._sizes(), other._sizes()
        far = a + b + (slope_a + slope_b) * self.ground.radius
        error = self._within(far, self.error + other.error + share * (a + b))
        growth = self.growth + other.growth + share * (slope_a + slope_b)
        constant = (self.constant + other.constant) * (1 + SLACK)
        values = self.values + other.values
        return Reach(values, constant, error, growth, self.ground)

    def joined(self, parts: list[Any], dim: int) -> Reach:
        """The norm of all of them."""
        p = self.ground.p
        constant, growth = (
            float(np.linalg.norm([getattr(part, name) for part in parts], p))
            for name in ("constant", "growth")
        )
        error = row_norms(torch.stack([part.error for part in parts], dim=1), p)
        values = torch.cat([part.values for part in parts], dim=dim)
        return Reach(values, constant * (1 + SLACK), error, growth, self.ground)


def _together(chain: Chain, p: float) -> float:
    found = chain.matrix(p)
    if found is None:
        return math.inf
    return chain.base * (matrix_norm(found[0], p) + found[1])


def differences(reach: Reach, q: float) -> Tensor:
    """Constants (classes, classes) of z_y − z_j: the smallest of up to three bounds."""
    p, k = reach.ground.p, reach.shape[1]
    # |z_y − z_j| moves by at most 2^{1 − 1/p} ‖Δz‖_p.
    factor = 2 ** (1 - 1 / p) * (1 + SLACK)
    found = torch.full((k, k), reach.constant * factor, dtype=torch.float64)
    if not reach.chain.steps:
        return found
    last = reach.chain.steps[-1]
    if reach.before is not None and last.weight is not None:
        found = torch.minimum(found, reach.before * _gaps(last.weight, q))
    together = reach.chain.matrix(math.inf)
    if together is not None:
        A, lost = together
        found = torch.minimum(found, reach.chain.base * (_gaps(A, q) + 2 * lost))
    return found


def _gaps(A: Tensor, q: float) -> Tensor:
    """‖a_y − a_j‖_q of each pair of rows."""
    found = [torch.linalg.vector_norm(row - A, ord=q, dim=1) for row in A]
    return torch.stack(found) * (1 + SLACK)
