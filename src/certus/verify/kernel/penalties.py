"""The verifier's penalties: one row for each, with all of its formulas.

The excess Ω(w) + Ω*(−v) + wᵀv ≥ 0 of a point w and a pulled-back dual v is written as a
sum of squares and products that are not negative. v is known up to ``error``, one
number for each coordinate, so that every row states two numbers: the excess at the v
given, and a bound for every v within the error. ``reach`` is the largest factor κ ≤ 1
for which Ω*(−κv) is finite for all of them.

w and v have shape (d,), or (d, k) for k scores; a penalty by coordinate takes both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from certus.objectives import terms as t
from certus.typing import Array, ArrayLike
from certus.verify.kernel.spaces import UNIT


class Excess(NamedTuple):
    """The excess at the v given, and a bound for all v within their error."""

    value: float
    bound: float


def _sound(levels: ArrayLike) -> bool:
    return bool(np.all(np.isfinite(levels)) and np.min(levels, initial=0.0) >= 0)


class PenaltyRow(NamedTuple):
    """The formulas of a penalty; every function takes the term first."""

    value: Callable[..., float]
    excess: Callable[..., Excess]
    reach: Callable[..., float]
    free: Callable[..., Array]  # coordinates on which Ω vanishes: null directions
    text: Callable[..., str]
    scaled: Callable[..., Any]  # the term of factor·Ω
    sound: Callable[..., bool] = _sound
    cone: Callable[..., Any] | None = None  # whether w lies where Ω is finite


def _sum(found: Array, loose: Array) -> Excess:
    # A sum of terms that are not negative has a relative error.
    grow = 1 + 2 * (found.size + 24) * UNIT
    return Excess(float(found.sum()) * grow, float(loose.sum()) * grow)


def _ratio(level: float | Array, size: Array) -> float:
    """min(1, min level/size⁺), a little below: the quotient is rounded."""
    with np.errstate(all="ignore"):
        most = float(np.fmax.reduce(size / level, axis=None, initial=0.0))
    return 1.0 if most <= 1.0 else (1 - 4 * UNIT) / most


# -- by coordinate ----------------------------------------------------------------


def _elastic_excess(
    l1: float | Array, l2: float, w: Array, v: Array, error: Array, low: Any = None
) -> Excess:
    """½l₂(w − p)² + |w|(l₁ − A·sign w), A = clip(−v, ±l₁), p = (−v − A)/l₂.

    ``low`` takes the place of −l₁. Of v it is known that it is within ``error``.
    """
    A = np.clip(-v, -l1 if low is None else low, l1)
    size = np.abs(w)
    error = error + 4 * UNIT * (np.abs(v) + l1 + l2 * size)
    kept = np.maximum(l1 - A * np.sign(w), 0.0) * size
    if l2 == 0.0:
        return _sum(kept, kept + size * error)
    off = np.abs(l2 * w + v + A)  # l₂·|w − p|
    with np.errstate(over="ignore"):
        found = off * (off / (2 * l2)) + kept
        loose = (off + error) * ((off + error) / (2 * l2)) + kept + size * error
    return _sum(found, loose)


def _positive_excess(p: t.NonNegative, w: Array, v: Array, error: Array) -> Excess:
    """As of an elastic net, with A = min(−v, l₁), where w ≥ 0."""
    if (w < 0).any():
        return Excess(np.inf, np.inf)
    return _elastic_excess(p.l1, p.l2, w, v, error, low=-np.inf)


def _positive_value(p: t.NonNegative, w: Array) -> float:
    found = float(p.l1 * w.sum() + p.l2 * np.square(w).sum() / 2)
    return np.inf if (w < 0).any() else found


def _levels(p: t.WeightedL1, w: Array) -> Array:
    alphas = np.asarray(p.alphas, dtype=float)
    if len(alphas) != len(w):
        raise ValueError(f"got {len(alphas)} penalties for {len(w)} coefficients.")
    return alphas.reshape(-1, *(1,) * (w.ndim - 1))


def _norm_text(l1: float, l2: float, name: str, mark: str = "₁") -> str:
    parts = [f"{l1:.4g}·{name}{mark}"] if l1 else []
    return " + ".join(parts + ([f"½·{l2:.4g}·{name}²"] if l2 else []))


def _weighted_text(p: t.WeightedL1, name: str) -> str:
    return f"Σⱼ αⱼ|wⱼ|, αⱼ from {min(p.alphas):.4g} to {max(p.alphas):.4g}"


# -- by group ---------------------------------------------------------------------


def _group_sums(groups: Array, squares: Array) -> Array:
    return np.bincount(groups, weights=squares, minlength=int(groups.max()) + 1)


def _norms(groups: Array, w: Array) -> Array:
    """‖w_g‖ for every group; scaled, so that squares neither vanish nor overflow."""
    unit = float(np.abs(w).max(initial=0.0)) or 1.0
    return np.asarray(np.sqrt(_group_sums(groups, np.square(w / unit)))) * unit


def _group_excess(
    l1: float, l2: float, groups: Array, w: Array, v: Array, error: Array
) -> Excess:
    """½l₂‖w − p‖² + ‖w‖(l₁ − ‖A‖) + ½‖w‖‖A‖‖w/‖w‖ − A/‖A‖‖² for each group."""
    own, pull, off = _norms(groups, w), _norms(groups, v), _norms(groups, error)
    off = off + 8 * UNIT * (len(w) + 8) * (pull + l1 + l2 * own)
    with np.errstate(divide="ignore", invalid="ignore"):
        keep = np.where(pull > l1, l1 / pull, 1.0)  # A = −keep·v
        way = np.where(own > 0, 1 / own, 0.0)[groups] * w
        back = np.where(pull > 0, 1 / pull, 0.0)[groups] * v
    turn = _group_sums(groups, np.square(way + back))
    kept = np.minimum(pull, l1)
    found = own * np.maximum(l1 - kept, 0.0) + own * kept * turn / 2
    loose = found + own * off
    if l2 > 0:
        rest = _norms(groups, l2 * w + (1 - keep)[groups] * v)
        found = found + rest * (rest / (2 * l2))
        loose = loose + (rest + off) * ((rest + off) / (2 * l2))
    return _sum(found, loose)


def _group_value(l1: float, l2: float, groups: Array, w: Array) -> float:
    return float(l1 * _norms(groups, w).sum() + l2 * np.square(w).sum() / 2)


def _group_reach(l1: float, l2: float, groups: Array, v: Array, error: Array) -> float:
    size = (_norms(groups, v) + _norms(groups, error)) * (1 + (len(v) + 8) * UNIT)
    return 1.0 if l2 > 0 else _ratio(l1, size)


def _rows(W: Array) -> Array:
    """The number of its row for every entry of W."""
    return np.repeat(np.arange(len(W)), W.shape[1] if W.ndim == 2 else 1)


def _numbers(p: t.Group, w: Array) -> Array:
    found = np.unique(np.asarray(p.groups), return_inverse=True)[1]
    if len(found) != len(w) or w.ndim != 1:
        raise ValueError(f"groups have {len(found)} columns, but w has {len(w)}.")
    return np.asarray(found)


def _elastic(l1: Callable[..., Any], l2: Callable[..., float]) -> dict[str, Any]:
    """The functions of l₁‖w‖₁ + ½l₂‖w‖², with levels read off the term."""
    return {
        "value": lambda p, w: float(
            (l1(p, w) * np.abs(w)).sum() + l2(p) * np.square(w).sum() / 2
        ),
        "excess": lambda p, w, v, e: _elastic_excess(l1(p, w), l2(p), w, v, e),
        "reach": lambda p, v, e: 1.0 if l2(p) > 0 else _ratio(l1(p, v), np.abs(v) + e),
        "free": lambda p, w: np.broadcast_to((l1(p, w) == 0) & (l2(p) == 0), w.shape),
    }


#: Every penalty of ``certus.objectives``.
PENALTIES: dict[type, PenaltyRow] = {
    t.NoPenalty: PenaltyRow(
        value=lambda p, w: 0.0,
        excess=lambda p, w, v, e: Excess(np.inf, np.inf),
        reach=lambda p, v, e: 0.0,
        free=lambda p, w: np.ones(np.shape(w), dtype=bool),
        text=lambda p, name: "",
        scaled=lambda p, factor: p,
    ),
    t.L1: PenaltyRow(
        **_elastic(lambda p, w: p.alpha, lambda p: 0.0),
        text=lambda p, name: _norm_text(p.alpha, 0.0, name),
        scaled=lambda p, factor: t.L1(p.alpha * factor),
    ),
    t.L2: PenaltyRow(
        **_elastic(lambda p, w: 0.0, lambda p: p.alpha),
        text=lambda p, name: _norm_text(0.0, p.alpha, name),
        scaled=lambda p, factor: t.L2(p.alpha * factor),
    ),
    t.L1L2: PenaltyRow(
        **_elastic(lambda p, w: p.l1, lambda p: p.l2),
        text=lambda p, name: _norm_text(p.l1, p.l2, name),
        scaled=lambda p, factor: t.L1L2(p.l1 * factor, p.l2 * factor),
    ),
    t.WeightedL1: PenaltyRow(
        **_elastic(_levels, lambda p: 0.0),
        text=_weighted_text,
        scaled=lambda p, factor: t.WeightedL1(tuple(a * factor for a in p.alphas)),
        sound=lambda p: _sound(p.alphas),
    ),
    t.NonNegative: PenaltyRow(
        value=_positive_value,
        excess=_positive_excess,
        reach=lambda p, v, e: 1.0 if p.l2 > 0 else _ratio(p.l1, e - v),
        free=lambda p, w: np.full(np.shape(w), p.l1 == 0 and p.l2 == 0),
        text=lambda p, name: ", ".join(
            filter(None, [_norm_text(p.l1, p.l2, name), "w ≥ 0"])
        ),
        scaled=lambda p, factor: t.NonNegative(p.l1 * factor, p.l2 * factor),
        cone=lambda p, w: w >= 0,
    ),
    t.Group: PenaltyRow(
        value=lambda p, w: _group_value(p.l1, p.l2, _numbers(p, w), w),
        excess=lambda p, w, v, e: _group_excess(p.l1, p.l2, _numbers(p, w), w, v, e),
        reach=lambda p, v, e: _group_reach(p.l1, p.l2, _numbers(p, v), v, e),
        free=lambda p, w: np.full(np.shape(w), p.l1 == 0 and p.l2 == 0),
        text=lambda p, name: _norm_text(p.l1, p.l2, "Σ_g ‖w_g‖", ""),
        scaled=lambda p, f: t.Group(p.l1 * f, p.groups, p.l2 * f),
        sound=lambda p: _sound((p.l1, p.l2)),
    ),
    t.MultiTask: PenaltyRow(
        value=lambda p, w: _group_value(p.l1, p.l2, _rows(w), w.ravel()),
        excess=lambda p, w, v, e: _group_excess(
            p.l1, p.l2, _rows(w), w.ravel(), v.ravel(), e.ravel()
        ),
        reach=lambda p, v, e: _group_reach(p.l1, p.l2, _rows(v), v.ravel(), e.ravel()),
        free=lambda p, w: np.full(np.shape(w), p.l1 == 0 and p.l2 == 0),
        text=lambda p, name: _norm_text(p.l1, p.l2, "Σⱼ ‖Wⱼ‖", ""),
        scaled=lambda p, factor: t.MultiTask(p.l1 * factor, p.l2 * factor),
    ),
}


def row_of(penalty: t.Penalty) -> PenaltyRow:
    """The row of a penalty, or an error that names it."""
    row = PENALTIES.get(type(penalty))
    if row is None:
        name = type(penalty).__name__
        raise ValueError(f"the verifier does not know the penalty {name}.")
    if not row.sound(penalty):
        raise ValueError(f"{penalty!r}: a penalty must be finite and not negative.")
    return row
