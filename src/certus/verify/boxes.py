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
from certus.verify.layers import (
    SLACK,
    Array,
    Function,
    Map,
    Pool,
    lengths,
    share,
    written_out,
)

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
    low, high = np.minimum(low, X), np.maximum(high, X)
    if threat.fixed is None:
        return low, high
    held = np.asarray(threat.fixed, dtype=bool)
    return np.where(held, X, low), np.where(held, X, high)


class Interval(NamedTuple):
    """Entries between ``low`` and ``high``; ``last`` is how the last map made them."""

    low: Array
    high: Array
    last: Any = None


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

    def start(self, X: Array) -> Start:
        """The allowed rows themselves."""
        return Start(X)

    def linear(self, x: Any, step: Map) -> Any:
        """One map more; or centre and half-width, the latter through magnitudes."""
        if isinstance(x, Start):
            return x._replace(steps=(*x.steps, step))
        if step.moves:
            return Interval(step.apply(x.low), step.apply(x.high))
        centre, half = (x.low + x.high) / 2, (x.high - x.low) / 2
        middle = step.apply(centre) + step.bias
        size = step.bounding(np.abs(centre) + half) + step.heft
        lost = share(self.precision, step.terms) * size
        lost = lost + (step.terms + 3) * self.precision.tiny
        # Beyond the largest number nothing is computed rightly.
        lost = np.where(size <= self.precision.most, lost, math.inf)
        wide = step.bounding(half) + lost
        last = None if step.weight is None else (middle, half, lost, step.weight)
        return Interval(middle - wide, middle + wide, last)

    def bend(self, x: Any, step: Function) -> Interval:
        """Both ends; where it turns within, its lowest value too."""
        x = self.interval(x)
        a, b = step.apply(x.low), step.apply(x.high)
        low, high = np.minimum(a, b), np.maximum(a, b)
        if step.lowest is not None:
            within = (x.low < step.lowest) & (x.high > step.lowest)
            low = np.where(within, step.apply(np.full_like(low, step.lowest)), low)
        if not step.exact:
            part = share(self.precision, 8)
            slack = part * (1 + np.maximum(np.abs(low), np.abs(high))) + step.jump
            low, high = low - slack, high + slack
        # What overflowed may be no number, and stays none.
        whole = np.maximum(np.abs(x.low), np.abs(x.high)) < math.inf
        return self._within(np.where(whole, low, -math.inf), high)

    def _within(self, low: Array, high: Array) -> Interval:
        """Beyond the largest number nothing is computed rightly."""
        held = np.maximum(np.abs(low), np.abs(high)) <= self.precision.most
        return Interval(np.where(held, low, -math.inf), np.where(held, high, math.inf))

    def pool(self, x: Any, step: Pool) -> Interval:
        """Maxima of both ends."""
        x = self.interval(x)
        return Interval(step.apply(x.low), step.apply(x.high))

    def branches(self, parts: list[Any], axis: int | None) -> Interval:
        """Sums of ends, or ends side by side."""
        found = [self.interval(part) for part in parts]
        if axis is None:
            a, b = found
            size = np.maximum(np.abs(a.low), np.abs(a.high))
            size = size + np.maximum(np.abs(b.low), np.abs(b.high))
            slack = share(self.precision, 1) * size
            return self._within(a.low + b.low - slack, a.high + b.high + slack)
        low, high = (
            np.concatenate([part[end] for part in found], axis=axis) for end in (0, 1)
        )
        return Interval(low, high)

    def interval(self, x: Any) -> Interval:
        """The bounds of both roads where the ball's can be written out."""
        if isinstance(x, Interval):
            return x
        room, found = self.radius, self._through(x)
        if self.threat.norm == math.inf or not x.steps:
            return found
        norms = self._norms(x)
        if norms is None:
            return found
        middle, lost = centre(x, box(self.threat, x.X, room), self.precision)
        wide = room * norms.reshape(middle.shape[1:]) + lost
        return Interval(
            np.maximum(found.low, middle - wide), np.minimum(found.high, middle + wide)
        )

    def _through(self, x: Start) -> Interval:
        """An interval of rows, as the network rounds them, through all maps."""
        low, high = box(self.threat, x.X, self.radius)
        slack = share(self.precision, 0) * np.maximum(np.abs(low), np.abs(high))
        slack = slack + self.precision.tiny
        found = Interval(low - slack, high + slack)
        for step in x.steps:
            found = self.linear(found, step)
        return found

    def _norms(self, x: Start) -> Array | None:
        """‖w‖_q of each output of the maps together."""
        key = tuple(step.key for step in x.steps)
        if key not in self.known:
            A = written_out(x.steps, x.X.shape[1:], WRITTEN_OUT)
            if A is not None:
                A = free(self.threat, A)
                A = lengths(A, dual(self.threat.norm)) * (1 + SLACK)
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
    middle, far = x.X, np.maximum(np.abs(ends[0]), np.abs(ends[1]))
    lost = share(precision, 0) * far + precision.tiny
    for step in x.steps:
        middle = step.apply(middle) + step.bias
        far, lost = step.bounding(far + lost) + step.heft, step.bounding(lost)
        if not step.moves:
            lost = lost + share(precision, step.terms) * far
            lost = lost + (step.terms + 3) * precision.tiny
    # Twice: as the network computes it, and as it is computed here.
    return middle, np.where(far <= precision.most, 2 * lost, math.inf)
