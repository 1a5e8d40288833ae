"""Lower bounds of the margins of a network over all rows that a threat allows.

    m_j(x) = min over allowed x̂ of z_y(x̂) − z_j(x̂),  certified if > 0 for all j ≠ y

by two roads, the better of which counts: Lipschitz constants, which give a radius for
each row at once, and interval bounds at a given radius. z is what the network computes
in its own precision, rounding included.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from certus.robust.abstract import (
    Abstract,
    Memory,
    Ranked,
    Rounding,
    Unknown,
    unchanged,
)
from certus.robust.intervals import Start
from certus.robust.lipschitz import SLACK, Ground, Reach, differences
from certus.robust.target import two_columns
from certus.threat import ThreatModel


def certified_radii(
    function: Any,
    X: Tensor,
    y: Tensor,
    threat: ThreatModel,
    ground: Ground,
    ranked: bool = False,
) -> Tensor:
    """Up to which radius no change alters the class of each row; −1 if none is known.

    Over a ball of radius r the margin over class j is z_y − z_j − r·L_yj at least, and
    what is computed is off by no more than rounding can add. With ``ranked`` a softmax
    follows, whose rounding may make scores equal that are not.
    """
    ground.memory.restart()
    out, after = scores(function, Reach.of(X, ground))
    L = ground.memory.recall(lambda: differences(out, threat.dual))
    error, growth = out.error, out.growth
    if ranked or after:
        share, (size, slope) = ground.rounding.share(8), out._sizes()
        error, growth = error + share * (1 + size), growth + share * slope
    z, own = out.values, out.values.gather(1, y[:, None])
    # The network's own rounding, and that of the centre, computed here in float64.
    lost = 2 * error * (1 + 2.0**-51 / ground.rounding.unit)
    if not after:
        as_computed(function, X, z, lost, ground.rounding)
    margins = own - z - lost[:, None] - 2.0**-50 * (own.abs() + z.abs())
    radii = margins / ((L[y] + 2 * growth) * (1 + SLACK))
    radii = torch.where(margins > 0, radii, -1.0)
    return but_own(radii, y).amin(dim=1)


def interval_margins(
    function: Any,
    X: Tensor,
    y: Tensor,
    threat: ThreatModel,
    rounding: Rounding,
    memory: Memory,
    ranked: bool = False,
) -> Tensor:
    """Lower bounds of z_y − z_j by intervals; the last layer in one step."""
    memory.restart()
    out, after = scores(function, Start(X, threat, rounding, memory))
    out = out.interval() if isinstance(out, Start) else out
    own = y[:, None]
    most = torch.maximum(out.low.abs(), out.high.abs())
    share = rounding.share(8) if ranked or after else 0.0
    slack = share * (1 + most)
    found = but_own(out.low.gather(1, own) - out.high, y)
    if out.last is not None:
        middle, half, lost, W = out.last
        found = torch.zeros_like(middle)
        for k in torch.unique(y):
            at = y == k
            found[at] = middle[at, k, None] - middle[at] - half[at] @ (W[k] - W).abs().T
        found = but_own(found - lost - lost.gather(1, own), y)
    return found - slack - slack.gather(1, own)


def as_computed(
    function: Any, X: Tensor, z: Tensor, lost: Tensor, rounding: Rounding
) -> None:
    """Refuse a network that gives tensors other scores than rounding explains."""
    found = two_columns(function(X.to(rounding.dtype))).double()
    if ((found - z).abs() > lost[:, None]).any():
        raise Unknown("a step that does to tensors what it does not say has no bound")


def scores(function: Any, rows: Abstract) -> tuple[Any, bool]:
    """What decides, and whether a softmax follows; a single score beside one of 0."""
    try:
        out = function(rows)
    except (TypeError, ValueError, RuntimeError, IndexError, AttributeError) as error:
        # It works on tensors: what stands in for them does not do what they do.
        reason = f"{type(error).__name__} has no known bound"
        raise Unknown(reason).with_traceback(error.__traceback__) from error
    if not isinstance(out, Abstract):
        raise Unknown("an output that is not one score for each class has no bound")
    out = unchanged(out)
    ranked = isinstance(out, Ranked)
    out = out.scores if ranked else out
    if out.ndim == 1:
        out = out[:, None]
    if out.ndim != 2:
        raise Unknown("an output that is not one score for each class has no bound")
    if out.shape[1] == 1:
        out = F.linear(out, torch.tensor([[0.0], [1.0]], dtype=torch.float64))
    return out, ranked


def but_own(margins: Tensor, y: Tensor) -> Tensor:
    """Inf where j = y."""
    return margins.scatter(1, y[:, None], math.inf)
