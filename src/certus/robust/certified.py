"""Lower bounds of the margins of a network over all rows that a threat allows.

    m_j(x) = min over allowed x̂ of z_y(x̂) − z_j(x̂),  certified if > 0 for all j ≠ y

by two roads, the better of which counts: the product of Lipschitz constants of the
layers, and interval bounds carried from layer to layer. Both in float64, both above
what rounding could hide; norms of layers are upper bounds, never estimates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from certus.robust.abstract import Abstract, Function, Map, Ranked
from certus.threat import ThreatModel

#: Relative slack on every sum: above the rounding of sums of 10⁴ terms in float64.
SLACK = 1e-11
#: Entries of a matrix up to which a map is written out.
WRITTEN_OUT = 1 << 24
#: Entries of a layer's matrix up to which its singular values are computed.
SINGULAR = 1 << 22


class Reach(Abstract):
    """How far outputs can move when the input moves by one: a Lipschitz constant."""

    def __init__(self, constant: float, p: float, probe: Tensor, last: Any = None):
        self.constant, self.p, self.probe, self.last = constant, p, probe, last
        self.shape = probe.shape

    def _after(self, factor: float, probe: Tensor, last: Any = None) -> Reach:
        return Reach(self.constant * factor, self.p, probe, last)

    def linear(self, step: Map) -> Reach:
        """Times the norm of the map."""
        factor = operator_norm(step, self.p, self.probe)
        last = None if step.weight is None else (self.constant, step.weight)
        return self._after(factor, step.apply(self.probe), last)

    def entrywise(self, step: Function) -> Reach:
        """Times the steepest slope."""
        return self._after(step.slope, self.probe)

    def maximum(self, pool: Callable[[Tensor], Tensor], overlap: int) -> Reach:
        """An entry counts once for each window it is in."""
        return self._after(overlap ** (1 / self.p), pool(self.probe))

    def rearranged(self, step: Callable[[Tensor], Tensor]) -> Reach:
        """Unchanged."""
        return self._after(1.0, step(self.probe))

    def added(self, other: Any) -> Reach:
        """The sum of both."""
        return Reach(self.constant + other.constant, self.p, self.probe)

    def joined(self, parts: list[Any], dim: int) -> Reach:
        """The norm of all of them."""
        constants = np.array([part.constant for part in parts])
        probe = torch.cat([part.probe for part in parts], dim=dim)
        return Reach(float(np.linalg.norm(constants, self.p)), self.p, probe)


def operator_norm(step: Map, p: float, probe: Tensor) -> float:
    """An upper bound of ‖A‖ from lp to lp.

    For p = 2 the largest singular value where the matrix is small enough to be written
    out; else, and for other p, ‖A‖₁^{1/p}‖A‖_∞^{1−1/p} (Riesz and Thorin).
    """
    if p == math.inf:
        return step.norm_inf * (1 + SLACK)
    between = step.norm_1 ** (1 / p) * step.norm_inf ** (1 - 1 / p) * (1 + SLACK)
    if p != 2 or step.norm_1 == step.norm_inf:
        return between
    A = step.weight if step.weight is not None else written_out(step, probe, SINGULAR)
    if A is None:
        return between
    return min(between, float(torch.linalg.matrix_norm(A, 2)) * (1 + SLACK))


def written_out(step: Map, probe: Tensor, most: int) -> Tensor | None:
    """The matrix (outputs, inputs) of a linear map, unless it has too many entries."""
    size = math.prod(probe.shape[1:])
    outputs = math.prod(step.apply(probe).shape[1:])
    if size * max(size, outputs) > most:
        return None
    unit = torch.eye(size, dtype=torch.float64).reshape(size, *probe.shape[1:])
    return step.apply(unit).reshape(size, outputs).T


class Interval(Abstract):
    """Entries between ``low`` and ``high``, row by row."""

    def __init__(self, low: Tensor, high: Tensor, last: Any = None) -> None:
        self.low, self.high, self.last = low, high, last
        self.shape = low.shape

    def linear(self, step: Map) -> Interval:
        """Centre and half-width through the map, the latter through its magnitudes."""
        centre, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        middle = step.apply(centre) + step.bias
        bias = torch.as_tensor(step.bias, dtype=torch.float64)
        size = step.bounding(centre.abs() + half) + bias.abs()
        wide = step.bounding(half) + SLACK * size
        last = None if step.weight is None else (centre, half, step)
        return Interval(middle - wide, middle + wide, last)

    def entrywise(self, step: Function) -> Interval:
        """Both ends; where it turns within, its lowest value too."""
        a, b = step.apply(self.low), step.apply(self.high)
        low, high = torch.minimum(a, b), torch.maximum(a, b)
        if step.lowest is not None:
            within = (self.low < step.lowest) & (self.high > step.lowest)
            turn = torch.full_like(low, step.lowest)
            low = torch.where(within, step.apply(turn), low)
        slack = SLACK * torch.maximum(low.abs(), high.abs())
        return Interval(low - slack, high + slack)

    def maximum(self, pool: Callable[[Tensor], Tensor], overlap: int) -> Interval:
        """Maxima of both ends."""
        return Interval(pool(self.low), pool(self.high))

    def rearranged(self, step: Callable[[Tensor], Tensor]) -> Interval:
        """Both ends moved alike."""
        return Interval(step(self.low), step(self.high))

    def added(self, other: Any) -> Interval:
        """Sums of ends."""
        other = other.interval() if isinstance(other, Start) else other
        low, high = self.low + other.low, self.high + other.high
        slack = SLACK * torch.maximum(low.abs(), high.abs())
        return Interval(low - slack, high + slack)

    def joined(self, parts: list[Any], dim: int) -> Interval:
        """Side by side."""
        parts = [p.interval() if isinstance(p, Start) else p for p in parts]
        ends = ([p.low for p in parts], [p.high for p in parts])
        return Interval(*(torch.cat(end, dim=dim) for end in ends))


class Start(Abstract):
    """The allowed rows themselves, through the linear maps up to the first bend.

    Over a ball a linear function is within radius·‖w‖_q of its value at the centre;
    over the box, between its ends. Both hold.
    """

    def __init__(self, X: Tensor, threat: ThreatModel, steps: tuple[Any, ...] = ()):
        self.X, self.threat, self.steps = X, threat, steps
        self.shape = torch.Size((len(X), *self._through(X[:1]).shape[1:]))

    def _through(self, x: Tensor) -> Tensor:
        for step in self.steps:
            x = step.apply(x) + step.bias
        return x

    def linear(self, step: Map) -> Start:
        """One map more."""
        return Start(self.X, self.threat, (*self.steps, step))

    def rearranged(self, step: Callable[[Tensor], Tensor]) -> Start:
        """One map more, which moves entries."""
        return self.linear(Map(step, step, 0.0, 1.0, 1.0))

    def interval(self) -> Interval:
        """The bounds of both roads where the ball's can be written out."""
        room = self.threat.radius
        ends = [torch.as_tensor(e, dtype=torch.float64) for e in self._box()]
        box = Interval(
            torch.maximum(self.X - room, ends[0]), torch.minimum(self.X + room, ends[1])
        )
        for step in self.steps:
            box = box.linear(step)
        if self.threat.norm == math.inf or not self.steps:
            return box
        whole = Map(self._slope, self._slope, 0.0, 0.0, 0.0)
        A = written_out(whole, self.X[:1], WRITTEN_OUT)
        if A is None:
            return box
        # A radius of zero gives the centre, and all that rounding can hide there.
        middle = Interval(self.X, self.X)
        for step in self.steps:
            middle = middle.linear(step)
        wide = room * torch.linalg.vector_norm(A, ord=self.threat.dual, dim=1)
        wide = wide.reshape(middle.shape[1:]) * (1 + SLACK)
        low = torch.maximum(box.low, middle.low - wide)
        return Interval(low, torch.minimum(box.high, middle.high + wide))

    def _slope(self, x: Tensor) -> Tensor:
        for step in self.steps:
            x = step.apply(x)
        return x

    def _box(self) -> tuple[Any, Any]:
        return np.asarray(self.threat.low), np.asarray(self.threat.high)

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


def lipschitz_margins(
    function: Any, X: Tensor, y: Tensor, threat: ThreatModel
) -> Tensor:
    """z_y − z_j − radius·L_j for each j; +inf for j = y."""
    reach = _scores(function(Reach(1.0, threat.norm, X[:1])))
    # Below the margins themselves by all that rounding can hide in them.
    margins = interval_margins(function, X, y, threat.within(0.0))
    if reach.last is not None:
        before, W = reach.last
        gaps = torch.linalg.vector_norm(W[y][:, None] - W[None], ord=threat.dual, dim=2)
        constants = before * gaps * (1 + SLACK)
    else:
        # |z_y − z_j| moves by at most 2^{1 − 1/p} ‖Δz‖_p.
        factor = 2 ** (1 - 1 / threat.norm)
        constants = torch.full_like(margins, reach.constant * factor * (1 + SLACK))
    return _but_own(margins - threat.radius * constants, y)


def interval_margins(
    function: Any, X: Tensor, y: Tensor, threat: ThreatModel
) -> Tensor:
    """Lower bounds of z_y − z_j by intervals; the last layer in one step."""
    out = _scores(function(Start(X, threat)))
    if isinstance(out, Start):
        out = out.interval()
    if out.last is None:
        return _but_own(out.low.gather(1, y[:, None]) - out.high, y)
    centre, half, step = out.last
    W = step.weight
    difference = W[y][:, None] - W[None]  # (rows, classes, hidden)
    middle = torch.einsum("nkh,nh->nk", difference, centre)
    wide = torch.einsum("nkh,nh->nk", difference.abs(), half)
    size = torch.einsum("nkh,nh->nk", difference.abs(), centre.abs())
    if isinstance(step.bias, Tensor):
        middle = middle + (step.bias[y][:, None] - step.bias[None])
        size = size + step.bias.abs()
    return _but_own(middle - wide - SLACK * (size + wide), y)


def _scores(out: Any) -> Any:
    """What decides: the scores before a softmax; a single one beside a score of 0."""
    out = out.scores if isinstance(out, Ranked) else out
    if out.ndim == 1:
        out = out[:, None]
    if out.shape[1] > 1:
        return out
    return F.linear(out, torch.tensor([[0.0], [1.0]], dtype=torch.float64))


def _but_own(margins: Tensor, y: Tensor) -> Tensor:
    return margins.scatter(1, y[:, None], math.inf)
