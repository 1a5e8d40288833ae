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

from certus import layers as net
from certus.verify.layers import (
    SLACK,
    Array,
    Function,
    Map,
    Pool,
    lengths,
    magnitude_norm,
    matrix_norm,
    operator_norm,
    share,
    written_out,
)

#: Entries of a layer's matrix up to which its singular values are computed.
SINGULAR = 1 << 22


class Reach(NamedTuple):
    """Rows, how far those within a radius can be from them, and rounding.

    For any allowed x̂ with ‖x̂ − x‖ ≤ r: the exact outputs move by ``constant``·r at
    most, and what is computed is off by ``error`` + ``growth``·r at most, in lp.
    """

    values: Array
    constant: float
    error: Array
    growth: float
    #: Linear maps that end here, the shape of what they are given, and its constant.
    chain: tuple[Map, ...]
    shape: tuple[int, ...]
    base: float
    #: The constant before the last of them.
    before: float | None = None


class Lipschitz:
    """A pass through a network in lp, up to a radius; norms are computed once."""

    def __init__(self, p: float, radius: float, precision: net.Precision) -> None:
        self.p, self.radius, self.precision = p, radius, precision
        self.known: dict[Any, Any] = {}

    def once(self, key: Any, compute: Callable[[], Any]) -> Any:
        """What was computed in an earlier pass; else compute it."""
        if key not in self.known:
            self.known[key] = compute()
        return self.known[key]

    def start(self, X: Array) -> Reach:
        """The rows themselves, rounded to the precision of the network."""
        part = share(self.precision, 0)
        error = part * lengths(X, self.p) + self.precision.tiny * self._count(X)
        return self._new(X, 1.0, error, part)

    def _new(
        self, values: Array, constant: float, error: Array, growth: float
    ) -> Reach:
        return Reach(values, constant, error, growth, (), values.shape[1:], constant)

    def _count(self, V: Array) -> float:
        """‖1‖_p of a row."""
        return float(math.prod(V.shape[1:]) ** (1 / self.p))

    def sizes(self, x: Reach) -> tuple[Array, float]:
        """(s, t) with ‖computed‖ ≤ s + t·r."""
        size = lengths(x.values, self.p) + 2 * x.error
        return size * (1 + SLACK), x.constant + x.growth

    def _within(self, size: Array, error: Array) -> Array:
        """Beyond the largest number nothing is computed rightly."""
        return np.where(size <= self.precision.most, error, math.inf)

    def linear(self, x: Reach, step: Map) -> Reach:
        """Times the norm of the map; a sum loses a share of the sizes of its terms."""
        p, values = self.p, step.apply(x.values) + step.bias
        chain = (*x.chain, step)
        keys = tuple(part.key for part in chain)
        if step.moves:
            return x._replace(values=values, chain=chain, before=None)
        norm = self.once(
            step.key, lambda: operator_norm(step, p, x.values.shape[1:], SINGULAR)
        )
        magnitude = magnitude_norm(step, p)
        heft = lengths(np.broadcast_to(step.heft, (1, *values.shape[1:])), p)
        size, slope = self.sizes(x)
        total = magnitude * size + heft
        part = share(self.precision, step.terms)
        small = (step.terms + 3) * self.precision.tiny * self._count(values)
        error = norm * x.error + part * total + small
        error = self._within(total + magnitude * slope * self.radius, error)
        growth = norm * x.growth + part * magnitude * slope
        constant = x.constant * norm
        if len(chain) > 1:
            constant = min(constant, self.once(keys, lambda: self._together(x, chain)))
        return Reach(
            *(values, constant, error, growth, chain, x.shape, x.base, x.constant)
        )

    def bend(self, x: Reach, step: Function) -> Reach:
        """Times the steepest slope."""
        values = step.apply(x.values)
        error, growth = step.slope * x.error, step.slope * x.growth
        size, slope = self.sizes(x)
        length = lengths(values, self.p)
        error = self._within(length + step.slope * (size + slope * self.radius), error)
        if not step.exact:
            part = share(self.precision, 8)
            error = error + part * (length + step.slope * size)
            error = error + (part + step.jump) * self._count(values)
            growth += part * step.slope * slope
        return self._new(values, x.constant * step.slope, error, growth)

    def pool(self, x: Reach, step: Pool) -> Reach:
        """An entry counts once for each window it is in."""
        factor = step.overlap ** (1 / self.p) * (1 + SLACK)
        found = factor * x.constant, factor * x.error, factor * x.growth
        return self._new(step.apply(x.values), *found)

    def branches(self, parts: list[Reach], axis: int | None) -> Reach:
        """The sum of two, or the norm of several side by side."""
        p, precision = self.p, self.precision
        if axis is None:
            a, b = parts
            (size, steep), (more, slope) = self.sizes(a), self.sizes(b)
            part, slope = share(precision, 1), steep + slope
            error = a.error + b.error + part * (size + more)
            error = self._within(size + more + slope * self.radius, error)
            constant = (a.constant + b.constant) * (1 + SLACK)
            growth = a.growth + b.growth + part * slope
            return self._new(a.values + b.values, constant, error, growth)
        constant, growth = (
            float(np.linalg.norm([getattr(part, name) for part in parts], p))
            for name in ("constant", "growth")
        )
        error = lengths(np.stack([part.error for part in parts], axis=1), p)
        values = np.concatenate([part.values for part in parts], axis=axis)
        return self._new(values, constant * (1 + SLACK), error, growth * (1 + SLACK))

    def _together(self, x: Reach, chain: tuple[Map, ...]) -> float:
        found = as_matrix(chain, x.shape, self.p)
        if found is None:
            return math.inf
        return x.base * (matrix_norm(found[0], self.p) + found[1])

    def differences(self, x: Reach, q: float) -> Array:
        """Constants (k, k) of z_y − z_j: the smallest of up to three bounds."""
        return np.asarray(self.once("differences", lambda: self._pairs(x, q)))

    def _pairs(self, x: Reach, q: float) -> Array:
        # |z_y − z_j| moves by at most 2^{1 − 1/p} ‖Δz‖_p.
        k, factor = x.values.shape[1], 2 ** (1 - 1 / self.p) * (1 + SLACK)
        found = np.full((k, k), x.constant * factor)
        if not x.chain:
            return found
        last = x.chain[-1].weight
        if x.before is not None and last is not None:
            found = np.minimum(found, x.before * _gaps(last, q))
        together = as_matrix(x.chain, x.shape, math.inf)
        if together is not None:
            A, lost = together
            found = np.minimum(found, x.base * (_gaps(A, q) + 2 * lost))
        return found


def as_matrix(
    chain: tuple[Map, ...], shape: tuple[int, ...], p: float, most: int | None = None
) -> tuple[Array, float] | None:
    """All maps as one matrix, and by what rounding its norm may be off."""
    A = written_out(chain, shape, SINGULAR if most is None else most)
    if A is None:
        return None
    lost = sum(step.terms + 3 for step in chain) * 2.0**-52
    return A, lost * math.prod(magnitude_norm(step, p) for step in chain)


def _gaps(A: Array, q: float) -> Array:
    """‖a_y − a_j‖_q of each pair of rows."""
    return np.stack([lengths(row - A, q) for row in A]) * (1 + SLACK)
