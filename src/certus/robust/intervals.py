"""Between what the entries of each layer lie when rows may be changed.

    low ≤ computed h(x̂) ≤ high, for every allowed x̂

carried from layer to layer in float64. What rounding may add, in the precision of the
network, belongs to the interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.robust.abstract import Abstract, Function, Map, Memory, Rounding
from certus.robust.lipschitz import SLACK, written_out
from certus.threat import ThreatModel

#: Entries of a matrix up to which maps are written out.
WRITTEN_OUT = 1 << 24


class Interval(Abstract):
    """Entries between ``low`` and ``high``, row by row."""

    def __init__(
        self, low: Tensor, high: Tensor, rounding: Rounding, last: Any = None
    ) -> None:
        self.low, self.high, self.rounding, self.last = low, high, rounding, last
        self.shape, self.dtype = low.shape, rounding.dtype

    def linear(self, step: Map) -> Interval:
        """Centre and half-width through the map, the latter through its magnitudes."""
        rounding = self.rounding
        centre, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        middle = step.apply(centre) + step.bias
        size = step.bounding(centre.abs() + half) + step.weight_of_bias
        lost = rounding.share(step.terms) * size + (step.terms + 3) * rounding.tiny
        # Beyond the largest number nothing is computed rightly.
        lost = torch.where(size > rounding.most, math.inf, lost)
        wide = step.bounding(half) + lost
        last = None if step.weight is None else (middle, half, lost, step.weight)
        return Interval(middle - wide, middle + wide, rounding, last)

    def entrywise(self, step: Function) -> Interval:
        """Both ends; where it turns within, its lowest value too."""
        a, b = step.apply(self.low), step.apply(self.high)
        low, high = torch.minimum(a, b), torch.maximum(a, b)
        if step.lowest is not None:
            within = (self.low < step.lowest) & (self.high > step.lowest)
            turn = torch.full_like(low, step.lowest)
            low = torch.where(within, step.apply(turn), low)
        if not step.exact:
            share = self.rounding.share(8)
            slack = share * (1 + torch.maximum(low.abs(), high.abs())) + step.jump
            low, high = low - slack, high + slack
        # What overflowed may be no number, and stays none.
        lost = ~(torch.maximum(self.low.abs(), self.high.abs()) < math.inf)
        return self._within(torch.where(lost, -math.inf, low), high)

    def _within(self, low: Tensor, high: Tensor) -> Interval:
        """Beyond the largest number nothing is computed rightly."""
        lost = torch.maximum(low.abs(), high.abs()) > self.rounding.most
        low, high = low.where(~lost, -math.inf), high.where(~lost, math.inf)
        return Interval(low, high, self.rounding)

    def maximum(self, pool: Callable[[Tensor], Tensor], overlap: int) -> Interval:
        """Maxima of both ends."""
        return Interval(pool(self.low), pool(self.high), self.rounding)

    def rearranged(self, step: Callable[[Tensor], Tensor]) -> Interval:
        """Both ends moved alike."""
        return Interval(step(self.low), step(self.high), self.rounding)

    def added(self, other: Any) -> Interval:
        """Sums of ends."""
        other = other.interval() if isinstance(other, Start) else other
        low, high = self.low + other.low, self.high + other.high
        size = torch.maximum(self.low.abs(), self.high.abs())
        size = size + torch.maximum(other.low.abs(), other.high.abs())
        slack = self.rounding.share(1) * size
        return self._within(low - slack, high + slack)

    def joined(self, parts: list[Any], dim: int) -> Interval:
        """Side by side."""
        parts = [p.interval() if isinstance(p, Start) else p for p in parts]
        low = torch.cat([part.low for part in parts], dim=dim)
        high = torch.cat([part.high for part in parts], dim=dim)
        return Interval(low, high, self.rounding)


class Start(Abstract):
    """The allowed rows themselves, through the linear maps up to the first bend.

    Over a ball a linear function is within radius·‖w‖_q of its value at the centre;
    over the box, between its ends. Both hold.
    """

    def __init__(
        self,
        X: Tensor,
        threat: ThreatModel,
        rounding: Rounding,
        memory: Memory,
        steps: tuple[Map, ...] = (),
    ) -> None:
        self.X, self.threat, self.rounding = X, threat, rounding
        self.memory, self.steps, self.dtype = memory, steps, rounding.dtype
        one = X[:1]
        for step in steps:
            one = step.apply(one)
        self.shape = torch.Size((len(X), *one.shape[1:]))

    def linear(self, step: Map) -> Start:
        """One map more."""
        given = self.X, self.threat, self.rounding, self.memory
        return Start(*given, (*self.steps, step))

    def rearranged(self, step: Callable[[Tensor], Tensor]) -> Start:
        """One map more, which moves entries."""
        return self.linear(Map(step, step, 0.0, 1.0, 1.0))

    def interval(self) -> Interval:
        """The bounds of both roads where the ball's can be written out."""
        room = self.threat.radius
        low, high = self.threat.box(self.X)
        box = self._through(
            torch.maximum(self.X - room, low), torch.minimum(self.X + room, high)
        )
        if self.threat.norm == math.inf or not self.steps:
            return box
        norms = self.memory.recall(self._norms)
        if norms is None:
            return box
        middle, lost = self._centre(room)
        wide = room * norms.reshape(middle.shape[1:]) + lost
        return Interval(
            torch.maximum(box.low, middle - wide),
            torch.minimum(box.high, middle + wide),
            self.rounding,
        )

    def _through(self, low: Tensor, high: Tensor) -> Interval:
        """An interval of rows, as the network rounds them, through all maps."""
        slack = self.rounding.share(0) * torch.maximum(low.abs(), high.abs())
        slack = slack + self.rounding.tiny
        found = Interval(low - slack, high + slack, self.rounding)
        for step in self.steps:
            found = found.linear(step)
        return found

    def _centre(self, room: float) -> tuple[Tensor, Tensor]:
        """The row itself through all maps, and what rounding hides over the ball."""
        middle, far = self.X, self.X.abs() + room
        lost = self.rounding.share(0) * far + self.rounding.tiny
        for step in self.steps:
            middle = step.apply(middle) + step.bias
            share = self.rounding.share(step.terms)
            far = step.bounding(far + lost) + step.weight_of_bias
            lost = step.bounding(lost) + share * far
            lost = lost + (step.terms + 3) * self.rounding.tiny
        # Twice: as the network computes it, and as it is computed here.
        return middle, torch.where(far > self.rounding.most, math.inf, 2 * lost)

    def _norms(self) -> Tensor | None:
        """‖w‖_q of each output of the maps together."""
        A = written_out(self.steps, self.X.shape[1:], WRITTEN_OUT)
        if A is None:
            return None
        if self.threat.fixed is not None:
            held = torch.as_tensor(np.asarray(self.threat.fixed)).reshape(-1)
            A = torch.where(held, 0.0, A)
        return torch.linalg.vector_norm(A, ord=self.threat.dual, dim=1) * (1 + SLACK)

    def entrywise(self, step: Function) -> Interval:
        """From here on intervals."""
        return self.interval().entrywise(step)

    def maximum(self, pool: Callable[[Tensor], Tensor], overlap: int) -> Interval:
        """From here on intervals."""
        return self.interval().maximum(pool, overlap)

    def added(self, other: Any) -> Interval:
        """From here on intervals."""
        return self.interval().added(other)

    def joined(self, parts: list[Any], dim: int) -> Interval:
        """From here on intervals."""
        return self.interval().joined(parts, dim)
