"""Rational-quadratic splines: increasing, smooth, and inverted by a formula.

Between knots (xₖ, yₖ) and (xₖ₊₁, yₖ₊₁) with slopes δₖ, δₖ₊₁ and s = Δy/Δx,

    v = yₖ + Δy (sξ² + δₖξ(1 − ξ)) / (s + (δₖ₊₁ + δₖ − 2s)ξ(1 − ξ)),  ξ = (u − xₖ)/Δx

(Gregory and Delbourgo). It maps [−1, 1] onto itself and is the identity outside. Inputs
are clipped into that box before the formula and selected after it, so that gradients of
points outside are finite.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from certus.neural_network.modules.increasing import bounded

#: Least width and height of a bin, as a share of all bins together.
LEAST = 1e-3
#: Widths, heights and slopes differ by factors between e⁻³ and e³ from equal ones.
STEEP = 3.0


class Spline:
    """A spline of this many bins on [−1, 1].

    Parameters
    ----------
    bins : int
        Number of bins.
    """

    def __init__(self, bins: int) -> None:
        self.bins, self.n_params = bins, 3 * bins - 1

    def _knots(self, t: Tensor) -> Tensor:
        """Places of the knots, from −1 to 1."""
        share = LEAST + (1 - self.bins * LEAST) * torch.softmax(bounded(t, STEEP), -1)
        inner = 2 * torch.cumsum(share[..., :-1], -1) - 1
        return F.pad(F.pad(inner, (1, 0), value=-1.0), (0, 1), value=1.0)

    def _bin(self, t: Tensor, at: Tensor, inverse: bool) -> tuple[Tensor, ...]:
        """x, Δx, y, Δy and slopes of the bin of each point (of v, if ``inverse``)."""
        k = self.bins
        wide, high, steep = t.split((k, k, k - 1), dim=-1)
        x, y = self._knots(wide), self._knots(high)
        slopes = F.pad(torch.exp(bounded(steep, STEEP)), (1, 1), value=1.0)
        knots = y if inverse else x
        i = (at[..., None] >= knots[..., 1:-1]).sum(-1, keepdim=True)
        pair = torch.cat([i, i + 1], -1)
        x0, x1, y0, y1, d0, d1 = (
            end for c in (x, y, slopes) for end in c.gather(-1, pair).unbind(-1)
        )
        return x0, x1 - x0, y0, y1 - y0, d0, d1

    def __call__(self, u: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """The moved u and the log slope; parameters are the last axis of t."""
        clipped = u.clamp(-1, 1)
        x, dx, y, dy, d0, d1 = self._bin(t, clipped, False)
        s = dy / dx
        xi = (clipped - x) / dx
        mixed = xi * (1 - xi)
        below = s + (d0 + d1 - 2 * s) * mixed
        v = y + dy * (s * xi * xi + d0 * mixed) / below
        rate = d1 * xi * xi + 2 * s * mixed + d0 * (1 - xi) ** 2
        log_slope = torch.log(s * s * rate / (below * below))
        inside = u.abs() < 1
        return torch.where(inside, v, u), torch.where(inside, log_slope, 0.0)

    def inverse(self, v: Tensor, t: Tensor) -> Tensor:
        """The u that gives v: the root of a quadratic, in its stable form."""
        clipped = v.clamp(-1, 1)
        x, dx, y, dy, d0, d1 = self._bin(t, clipped, True)
        s, up = dy / dx, clipped - y
        bend = d0 + d1 - 2 * s
        a = dy * (s - d0) + up * bend
        b = dy * d0 - up * bend
        c = -s * up
        root = torch.sqrt((b * b - 4 * a * c).clamp(min=0.0))
        xi = 2 * c / (-b - root)
        return torch.where(v.abs() < 1, x + xi * dx, v)
