"""The verifier's row for penalties of differences: squares, total variation, cones.

    Ω(w) = Σₑ φₑ(dₑ) + ½Σ rⱼwⱼ²,   φ(d) = ½q·d² + t·|d|,  s·d ≥ 0 where s ≠ 0

with dₑ = w[right] − w[left]. For every flow τ, one number for each edge,

    Ω(w) + Ω*(−v) + wᵀv ≤ Σₑ [φ(d) + φ*(τ) − τd] + Σⱼ (rw + v + Dᵀτ)ⱼ²/2rⱼ,

where the bracket is at most (qd − τ + A)²/2q + t|d| − Ad for each A in [−t, t], wider
on the side that a sign leaves free. No term is negative. Null directions are those
of cells with r = 0: such a term has no feasible repair and is refused.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from certus.searches import flows
from certus.typing import Array
from certus.verify.kernel.penalties import PENALTIES, Excess, PenaltyRow
from certus.verify.kernel.spaces import UNIT


class CellDifferences(NamedTuple):
    """Edges between cells with their levels q, t and signs s, and r of each cell."""

    left: Array
    right: Array
    quadratic: Array
    variation: Array
    signs: Array
    own: Array


def _columns(a: Array) -> Array:
    return a if a.ndim == 2 else a[:, None]


def inside(p: CellDifferences, w: Array) -> bool:
    """Whether every difference has the sign asked for; an exact comparison."""
    low, high = _columns(w)[p.left], _columns(w)[p.right]
    up, down = p.signs[:, None] > 0, p.signs[:, None] < 0
    return not ((up & (high < low)) | (down & (high > low))).any()


def value(p: CellDifferences, w: Array) -> float:
    """Ω(w)."""
    if not inside(p, w):
        return np.inf
    each = _columns(w)
    d = np.abs(each[p.right] - each[p.left])
    edges = p.quadratic[:, None] * d * d / 2 + p.variation[:, None] * d
    return float(edges.sum() + (p.own[:, None] * np.square(each)).sum() / 2)


def excess(p: CellDifferences, w: Array, v: Array, error: Array) -> Excess:
    """The bound of the excess by a flow, and for every v within its error."""
    if not inside(p, w):
        return Excess(np.inf, np.inf)
    parts = zip(*(_columns(a).T for a in (w, v, error)))
    found = [_one_score(p, *each) for each in parts]
    grow = 1 + 2 * (w.size + len(p.left) + 32) * UNIT
    return Excess(*(float(np.sum(each)) * grow for each in zip(*found)))


def _one_score(
    p: CellDifferences, w: Array, v: Array, error: Array
) -> tuple[float, float]:
    levels = p.quadratic, p.variation, p.signs
    tau = flows.flow((p.left, p.right), levels, p.own, np.array([w, v]))
    tau = np.where(np.isfinite(tau), tau, 0.0)
    low = np.where(p.signs > 0, -np.inf, -p.variation)
    high = np.where(p.signs < 0, np.inf, p.variation)
    A = np.clip(tau, low, high)
    tau = np.where(p.quadratic > 0, tau, A)
    d = w[p.right] - w[p.left]
    kept = np.maximum(p.variation * np.abs(d) - A * d, 0.0)
    slack = 8 * UNIT * (p.variation + np.abs(A)) * np.abs(d)
    off = np.abs(p.quadratic * d - (tau - A))
    more = 8 * UNIT * (p.quadratic * np.abs(d) + np.abs(tau) + np.abs(A))
    with np.errstate(divide="ignore", invalid="ignore"):
        half = np.where(p.quadratic > 0, 0.5 / p.quadratic, 0.0)
    size, n = np.abs(tau), len(w)
    pull = np.bincount(p.right, tau, n) - np.bincount(p.left, tau, n)
    total = np.bincount(p.right, size, n) + np.bincount(p.left, size, n)
    most = int(
        (np.bincount(p.right, minlength=n) + np.bincount(p.left, minlength=n)).max(
            initial=0
        )
    )
    rest = np.abs(p.own * w + v + pull)
    loose = error + (most + 8) * UNIT * (p.own * np.abs(w) + np.abs(v) + total)
    found = (kept + half * off**2).sum() + (rest**2 / (2 * p.own)).sum()
    bound = (kept + slack + half * (off + more) ** 2).sum()
    return float(found), float(bound + ((rest + loose) ** 2 / (2 * p.own)).sum())


def text(p: CellDifferences, name: str) -> str:
    """The formula, in words of the cells."""
    parts = []
    if (p.quadratic > 0).any():
        parts.append("½·Σ q·(wₐ − w_b)²")
    if (p.variation > 0).any():
        parts.append("Σ t·|wₐ − w_b|")
    parts.append(f"½·Σ r·w², r ≥ {p.own.min(initial=np.inf):.2g}")
    asked = ", monotone where asked" if (p.signs != 0).any() else ""
    return " + ".join(parts) + asked


PENALTIES[CellDifferences] = PenaltyRow(
    value=value,
    excess=excess,
    reach=lambda p, v, e: 1.0 if (p.own > 0).all() else 0.0,
    free=lambda p, w: np.broadcast_to(
        (p.own == 0).reshape(-1, *(1,) * (np.ndim(w) - 1)), np.shape(w)
    ),
    text=text,
    scaled=lambda p, f: p._replace(
        quadratic=p.quadratic * f, variation=p.variation * f, own=p.own * f
    ),
    sound=lambda p: all(
        bool(np.isfinite(a).all() and (a >= 0).all())
        for a in (p.quadratic, p.variation, p.own)
    ),
    cone=inside,
)
