"""Between what the entries of each layer lie when rows may be changed.

    low ≤ computed h(x̂) ≤ high, for every allowed x̂

carried from layer to layer in float64. What rounding may add, in the precision of the
network, belongs to the interval. A threat is anything with ``norm``, ``radius``,
``low``, ``high`` and ``fixed``: all rows within the radius of a given one, between low
and high, that agree with it where entries are fixed.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus import layers as net
from certus.verify import layers
from certus.verify.layers import SLACK, Array, Map, share

#: Entries of a matrix up to which maps are written out.
WRITTEN_OUT = 1 << 24


def dual(p: float) -> float:
    """The q with 1/p + 1/q = 1: what the ball does to a linear function."""
    if p == 1:
        return math.inf
    return 1.0 if p == math.inf else p / (p - 1)


def box(threat: Any, X: Array, radius: float) -> tuple[Array, Array]:
    """The ends between which each entry may lie: of the cube, the box, and the row."""
    low = np.maximum(X - radius, np.asarray(threat.low, dtype=np.float64))
    high = np.minimum(X + radius, np.asarray(threat.high, dtype=np.float64))
    held = False if threat.fixed is None else np.asarray(threat.fixed, dtype=bool)
    return np.where(held, X, np.minimum(low, X)), np.where(held, X, np.maximum(high, X))


class Interval(NamedTuple):
    """Entries between ``low`` and ``high``; ``last`` is how the last map made them."""

    low: Array
    high: Array
    last: Any = None

    @property
    def size(self) -> Array:
        """The largest magnitude of each entry."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def widened(self, slack: Any) -> Interval:
        """With as much more on both sides."""
        return Interval(self.low - slack, self.high + slack)


class Start(NamedTuple):
    """The allowed rows themselves, through the linear maps up to the first bend.

    Over a ball a linear function is within radius·‖w‖_q of its value at the centre;
    over the box, between its ends. Both hold.
    """

    X: Array
    steps: tuple[Map, ...] = ()


class Boxes:
    """A pass through a network at one radius; norms are computed once."""

    def __init__(self, threat: Any, precision: net.Precision) -> None:
        self.threat, self.precision, self.radius = threat, precision, threat.radius
        self.known: dict[Any, Any] = {}

    def linear(self, x: Any, step: Map) -> Any:
        """One map more; or centre and half-width, the latter through magnitudes."""
        if isinstance(x, Start):
            return x._replace(steps=(*x.steps, step))
        if not step.terms:
            return Interval(step.apply(x.low), step.apply(x.high))
        middle, half = (x.low + x.high) / 2, (x.high - x.low) / 2
        size = step.bounding(np.abs(middle) + half) + step.heft
        lost = layers.rounding(self.precision, step, size)
        middle = step.apply(middle) + step.bias
        last = None if step.weight is None else (middle, half, lost, step.weight)
        found = Interval(middle, middle).widened(step.bounding(half) + lost)
        return found._replace(last=last)

    def bend(self, x: Any, step: layers.Function) -> Interval:
        """Both ends; where it turns within, its lowest value too."""
        x = self.interval(x)
        a, b = step.apply(x.low), step.apply(x.high)
        low, high = np.minimum(a, b), np.maximum(a, b)
        if step.lowest is not None:
            within = (x.low < step.lowest) & (x.high > step.lowest)
            low = np.where(within, step.apply(np.full_like(low, step.lowest)), low)
        # What overflowed may be no number, and stays none.
        found = Interval(np.where(x.size < math.inf, low, -math.inf), high)
        if not step.exact:
            slack = share(self.precision, 8) * (1 + found.size) + step.jump
            found = found.widened(slack)
        return self._within(found)

    def _within(self, x: Interval) -> Interval:
        """Beyond the largest number nothing is computed rightly."""
        return x.widened(np.where(x.size <= self.precision.most, 0.0, math.inf))

    def pool(self, x: Any, step: layers.Pool) -> Interval:
        """Maxima of both ends."""
        x = self.interval(x)
        return Interval(step.apply(x.low), step.apply(x.high))

    def branches(self, parts: list[Any], axis: int | None) -> Interval:
        """Sums of ends, or ends side by side."""
        found = [self.interval(part) for part in parts]
        if axis is None:
            a, b = found
            slack = share(self.precision, 1) * (a.size + b.size)
            return self._within(Interval(a.low + b.low, a.high + b.high).widened(slack))
        low, high = (np.concatenate([x[end] for x in found], axis) for end in (0, 1))
        return Interval(low, high)

    def interval(self, x: Any) -> Interval:
        """The bounds of both roads where the ball's can be written out."""
        if isinstance(x, Interval):
            return x
        found = Interval(*box(self.threat, x.X, self.radius))
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
        ball = Interval(middle, middle)
        ball = ball.widened(self.radius * norms.reshape(middle.shape[1:]) + lost)
        return Interval(
            np.maximum(found.low, ball.low), np.minimum(found.high, ball.high)
        )

    def _norms(self, x: Start) -> Array | None:
        """‖w‖_q of each output of the maps together, where the ball is not the box."""
        if self.threat.norm == math.inf or not x.steps:
            return None
        key = tuple(step.apply for step in x.steps)
        if key not in self.known:
            A = layers.written_out(x.steps, x.X.shape[1:], WRITTEN_OUT)
            if A is not None:
                A = layers.lengths(free(self.threat, A), dual(self.threat.norm)) * (
                    1 + SLACK
                )
            self.known[key] = A
        return self.known[key]


def free(threat: Any, A: Array) -> Array:
    """A matrix by entries, without those that are fixed."""
    if threat.fixed is None:
        return A
    return np.where(np.ravel(np.asarray(threat.fixed, dtype=bool)), 0.0, A)


def centre(
    x: Start, ends: tuple[Array, Array], precision: net.Precision
) -> tuple[Array, Array]:
    """The row itself through all maps, and what rounding hides between the ends."""
    middle, far = x.X, Interval(*ends).size
    lost = share(precision, 0) * far + precision.tiny
    for step in x.steps:
        middle = step.apply(middle) + step.bias
        far = step.bounding(far + lost) + step.heft
        lost = step.bounding(lost) + layers.rounding(precision, step, far)
    # Twice: as the network computes it, and as it is computed here.
    return middle, np.where(lost < math.inf, 2 * lost, math.inf)
