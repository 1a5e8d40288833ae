"""How far the outputs of a network move when its input does: boxes and constants.

    low ≤ computed h(x̂) ≤ high, for every allowed x̂
    ‖f(x̂) − f(x)‖_p ≤ L ‖x̂ − x‖_p,  L = Π of the norms of its layers

Both are carried from layer to layer in float64, with what rounding may add in the
precision of the network. Norms are upper bounds, never estimates from below; linear
maps that follow each other are also taken together where their matrix is small enough
to be written out. A threat is anything with ``norm``, ``radius``, ``low``, ``high`` and
``fixed``: all rows within the radius of a given one, between low and high, that agree
with it where entries are fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from certus import layers as net
from certus.typing import Array, ThreatLike
from certus.verify import layers
from certus.verify.layers import SLACK, Affine, operator_norm, share

#: Entries of a matrix up to which maps are written out, and up to which the singular
#: values of a layer are computed.
WRITTEN_OUT, SINGULAR = 1 << 24, 1 << 22


# -- intervals --------------------------------------------------------------------


def dual(p: float) -> float:
    """The q with 1/p + 1/q = 1: what the ball does to a linear function."""
    if p == 1:
        return math.inf
    return 1.0 if p == math.inf else p / (p - 1)


def box(threat: ThreatLike, X: Array, radius: float) -> tuple[Array, Array]:
    """The ends between which each entry may lie: of the cube, the box, and the row."""
    low = np.maximum(X - radius, np.asarray(threat.low, dtype=np.float64))
    high = np.minimum(X + radius, np.asarray(threat.high, dtype=np.float64))
    held = False if threat.fixed is None else np.asarray(threat.fixed, dtype=bool)
    return np.where(held, X, np.minimum(low, X)), np.where(held, X, np.maximum(high, X))


class Range(NamedTuple):
    """Entries between ``low`` and ``high``; ``last`` is how the last map made them."""

    low: Array
    high: Array
    last: Any = None

    @property
    def size(self) -> Array:
        """The largest magnitude of each entry."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def widened(self, slack: float | Array) -> Range:
        """With as much more on both sides."""
        return Range(self.low - slack, self.high + slack)


class Allowed(NamedTuple):
    """The allowed rows themselves, through the linear maps up to the first bend.

    Over a ball a linear function is within radius·‖w‖_q of its value at the centre;
    over the box, between its ends. Both hold.
    """

    X: Array
    steps: tuple[Affine, ...] = ()


class Boxes:
    """A pass through a network at one radius; norms are computed once."""

    def __init__(self, threat: ThreatLike, precision: net.Precision) -> None:
        self.threat, self.precision, self.radius = threat, precision, threat.radius
        self.known: dict[Any, Any] = {}

    def linear(self, x: Allowed | Range, step: Affine) -> Any:
        """One map more; or centre and half-width, the latter through magnitudes."""
        if isinstance(x, Allowed):
            return x._replace(steps=(*x.steps, step))
        if not step.terms:
            return Range(step.apply(x.low), step.apply(x.high))
        middle, half = (x.low + x.high) / 2, (x.high - x.low) / 2
        size = step.bounding(np.abs(middle) + half) + step.heft
        lost = layers.rounding(self.precision, step, size)
        middle = step.apply(middle) + step.bias
        last = None if step.weight is None else (middle, half, lost, step.weight)
        found = Range(middle, middle).widened(step.bounding(half) + lost)
        return found._replace(last=last)

    def bend(self, x: Allowed | Range, step: layers.Function) -> Range:
        """Both ends; where it turns within, its lowest value too."""
        x = self.interval(x)
        a, b = step.apply(x.low), step.apply(x.high)
        low, high = np.minimum(a, b), np.maximum(a, b)
        if step.lowest is not None:
            within = (x.low < step.lowest) & (x.high > step.lowest)
            low = np.where(within, step.apply(np.full_like(low, step.lowest)), low)
        # Overflow may have given NaN, which stays NaN.
        found = Range(np.where(x.size < math.inf, low, -math.inf), high)
        if not step.exact:
            slack = share(self.precision, 8) * (1 + found.size) + step.jump
            found = found.widened(slack)
        return self._within(found)

    def _within(self, x: Range) -> Range:
        """Beyond the largest number nothing is computed rightly."""
        return x.widened(np.where(x.size <= self.precision.most, 0.0, math.inf))

    def pool(self, x: Allowed | Range, step: layers.Pool) -> Range:
        """Maxima of both ends."""
        x = self.interval(x)
        return Range(step.apply(x.low), step.apply(x.high))

    def branches(self, parts: list[Any], axis: int | None) -> Range:
        """Sums of ends, or ends side by side."""
        found = [self.interval(part) for part in parts]
        if axis is None:
            a, b = found
            slack = share(self.precision, 1) * (a.size + b.size)
            return self._within(Range(a.low + b.low, a.high + b.high).widened(slack))
        low, high = (np.concatenate([x[end] for x in found], axis) for end in (0, 1))
        return Range(low, high)

    def interval(self, x: Allowed | Range) -> Range:
        """The bounds of both methods, where the ball's matrix can be written out."""
        if isinstance(x, Range):
            return x
        found = Range(*box(self.threat, x.X, self.radius))
        # The network rounds the rows themselves, too.
        slack = share(self.precision, 0) * found.size + self.precision.tiny
        found = found.widened(slack)
        for step in x.steps:
            found = self.linear(found, step)
        norms = self._norms(x)
        if norms is None:
            return found
        ends = box(self.threat, x.X, self.radius)
        middle, lost = centre(x, ends, self.precision)
        ball = Range(middle, middle)
        ball = ball.widened(self.radius * norms.reshape(middle.shape[1:]) + lost)
        return Range(np.maximum(found.low, ball.low), np.minimum(found.high, ball.high))

    def _norms(self, x: Allowed) -> Array | None:
        """‖w‖_q of each output of the maps together, where the ball is not the box."""
        if self.threat.norm == math.inf or not x.steps:
            return None
        keys, q = tuple(step.apply for step in x.steps), dual(self.threat.norm)
        if keys not in self.known:
            A = layers.written_out(x.steps, x.X.shape[1:], WRITTEN_OUT)
            if A is not None:
                A = layers.lengths(free(self.threat, A), q) * (1 + SLACK)
            self.known[keys] = A
        return self.known[keys]


def free(threat: ThreatLike, A: Array) -> Array:
    """A matrix by entries, without those that are fixed."""
    if threat.fixed is None:
        return A
    return np.where(np.ravel(np.asarray(threat.fixed, dtype=bool)), 0.0, A)


def centre(
    x: Allowed, ends: tuple[Array, Array], precision: net.Precision
) -> tuple[Array, Array]:
    """The row itself through all maps, and what rounding hides between the ends."""
    middle, far = x.X, Range(*ends).size
    lost = share(precision, 0) * far + precision.tiny
    for step in x.steps:
        middle = step.apply(middle) + step.bias
        far = step.bounding(far + lost) + step.heft
        lost = step.bounding(lost) + layers.rounding(precision, step, far)
    # Twice: as the network computes it, and as it is computed here.
    return middle, np.where(lost < math.inf, 2 * lost, math.inf)


# -- Lipschitz constants ----------------------------------------------------------


class Reach(NamedTuple):
    """Rows, how far those within a radius can be from them, and rounding.

    For any allowed x̂ with ‖x̂ − x‖ ≤ r the exact outputs move by ``constant``·r at
    most, and what is computed is off by ``error`` at most, in lp.
    """

    values: Array
    constant: float
    error: Array
    #: Linear maps that end here, the shape of what they are given, and its constant.
    chain: tuple[Affine, ...] = ()
    shape: tuple[int, ...] = ()
    base: float = 0.0
    #: The constant before the last of them.
    before: float = 0.0


class Lipschitz:
    """A pass through a network in lp, up to a radius; norms are computed once."""

    def __init__(self, p: float, radius: float, precision: net.Precision) -> None:
        self.p, self.radius, self.precision = p, radius, precision
        self.known: dict[Any, Any] = {}

    def once(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """The result of an earlier pass; else compute it."""
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

    def linear(self, x: Reach, step: Affine) -> Reach:
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
    chain: tuple[Affine, ...], shape: tuple[int, ...], p: float, most: int = SINGULAR
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


def _norm_of(chain: tuple[Affine, ...], shape: tuple[int, ...], p: float) -> float:
    A, lost = as_matrix(chain, shape, p)
    return math.inf if A is None else layers.matrix_norm(A, p) + lost


def _gaps(A: Array, q: float) -> Array:
    """‖a_y − a_j‖_q of each pair of rows."""
    return np.stack([layers.lengths(row - A, q) for row in A]) * (1 + SLACK)
