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
from certus.verify import layers
from certus.verify.layers import SLACK, Array, Map, operator_norm, share

#: Entries of a layer's matrix up to which its singular values are computed.
SINGULAR = 1 << 22


class Reach(NamedTuple):
    """Rows, how far those within a radius can be from them, and rounding.

    For any allowed x̂ with ‖x̂ − x‖ ≤ r the exact outputs move by ``constant``·r at
    most, and what is computed is off by ``error`` at most, in lp.
    """

    values: Array
    constant: float
    error: Array
    #: Linear maps that end here, the shape of what they are given, and its constant.
    chain: tuple[Map, ...] = ()
    shape: tuple[int, ...] = ()
    base: float = 0.0
    #: The constant before the last of them.
    before: float = 0.0


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
        size = layers.lengths(X, self.p) + self.radius
        error = share(self.precision, 0) * size + self.precision.tiny * self._count(X)
        return Reach(X, 1.0, error)

    def _count(self, V: Array) -> float:
        """‖1‖_p of a row."""
        return float(math.prod(V.shape[1:]) ** (1 / self.p))

    def size(self, x: Reach) -> Array:
        """At least the norm of what is computed, at any row within the radius."""
        far = x.constant * self.radius + 2 * x.error
        return (layers.lengths(x.values, self.p) + far) * (1 + SLACK)

    def _within(self, size: Array, error: Array) -> Array:
        """Beyond the largest number nothing is computed rightly."""
        return np.where(size <= self.precision.most, error, math.inf)

    def linear(self, x: Reach, step: Map) -> Reach:
        """Times the norm of the map; a sum loses a share of the sizes of its terms."""
        p, values, inputs = self.p, step.apply(x.values) + step.bias, x.values.shape[1:]
        chain = (*x.chain, step)
        shape, base = (x.shape, x.base) if x.chain else (inputs, x.constant)
        norm = self.once(step.apply, lambda: operator_norm(step, p, inputs, SINGULAR))
        heft = layers.lengths(np.broadcast_to(step.heft, (1, *values.shape[1:])), p)
        size = layers.between(step.norm_1, step.norm_inf, p) * self.size(x) + heft
        lost = layers.rounding(self.precision, step, size, self._count(values))
        constant = x.constant * norm
        if len(chain) > 1 and step.terms:
            keys = tuple(part.apply for part in chain)
            together = self.once(keys, lambda: _norm_of(chain, shape, p))
            constant = min(constant, base * together)
        return Reach(
            *(values, constant, norm * x.error + lost, chain, shape, base, x.constant)
        )

    def bend(self, x: Reach, step: layers.Function) -> Reach:
        """Times the steepest slope."""
        values, slope = step.apply(x.values), step.slope
        size = layers.lengths(values, self.p) + slope * self.size(x)
        error = self._within(size, slope * x.error)
        if not step.exact:
            part = share(self.precision, 8)
            error = error + part * size + (part + step.jump) * self._count(values)
        return Reach(values, x.constant * slope, error)

    def pool(self, x: Reach, step: layers.Pool) -> Reach:
        """An entry counts once for each window it is in."""
        factor = step.overlap ** (1 / self.p) * (1 + SLACK)
        return Reach(step.apply(x.values), factor * x.constant, factor * x.error)

    def branches(self, parts: list[Reach], axis: int | None) -> Reach:
        """The sum of two, or the norm of several side by side."""
        if axis is None:
            a, b = parts
            size = self.size(a) + self.size(b)
            error = a.error + b.error + share(self.precision, 1) * size
            constant = (a.constant + b.constant) * (1 + SLACK)
            return Reach(a.values + b.values, constant, self._within(size, error))
        constants = [part.constant for part in parts]
        constant = float(np.linalg.norm(constants, self.p)) * (1 + SLACK)
        error = layers.lengths(np.stack([part.error for part in parts], axis=1), self.p)
        values = np.concatenate([part.values for part in parts], axis=axis)
        return Reach(values, constant, error)

    def differences(self, x: Reach, q: float) -> Array:
        """Constants (k, k) of z_y − z_j: the smallest of up to three bounds."""
        return np.asarray(self.once("differences", lambda: self._pairs(x, q)))

    def _pairs(self, x: Reach, q: float) -> Array:
        # |z_y − z_j| moves by at most 2^{1 − 1/p} ‖Δz‖_p.
        k, factor = x.values.shape[1], 2 ** (1 - 1 / self.p) * (1 + SLACK)
        found = np.full((k, k), x.constant * factor)
        if x.chain and x.chain[-1].weight is not None:
            found = np.minimum(found, x.before * _gaps(x.chain[-1].weight, q))
        A, lost = as_matrix(x.chain, x.shape, math.inf)
        if A is not None:
            found = np.minimum(found, x.base * (_gaps(A, q) + 2 * lost))
        return found


def as_matrix(
    chain: tuple[Map, ...], shape: tuple[int, ...], p: float, most: int = SINGULAR
) -> tuple[Array | None, float]:
    """All maps as one matrix, and by what rounding its norm may be off.

    None where there is no map, or its matrix is too large.
    """
    A = layers.written_out(chain, shape, most) if chain else None
    if A is None or A is chain[0].weight:
        return A, 0.0
    lost = sum(step.terms + 3 for step in chain) * 2.0**-52
    norms = (layers.between(step.norm_1, step.norm_inf, p) for step in chain)
    return A, lost * math.prod(norms)


def _norm_of(chain: tuple[Map, ...], shape: tuple[int, ...], p: float) -> float:
    A, lost = as_matrix(chain, shape, p)
    return math.inf if A is None else layers.matrix_norm(A, p) + lost


def _gaps(A: Array, q: float) -> Array:
    """‖a_y − a_j‖_q of each pair of rows."""
    return np.stack([layers.lengths(row - A, q) for row in A]) * (1 + SLACK)
