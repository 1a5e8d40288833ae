"""Penalties as the solvers see them: one row of operations for each.

A row is all that the solvers know of a penalty: with ``PENALTIES[MyPenalty]`` set,
every solver whose operations it has takes it, and a solver that misses one says which,
before its first step. The verifier has rows of its own, and a test compares the two
sides on random input.

Coefficients are a vector, or a matrix with one row for each column of X and one column
for each task. ``g`` is the gradient of the loss, of the same shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from certus.objectives import (
    L1L2,
    Group,
    MultiTask,
    NonNegative,
    NoPenalty,
    Penalty,
    WeightedL1,
)
from certus.objectives.terms import L1, L2
from certus.typing import Array


class Piece(NamedTuple):
    """Ω(w) = slopeᵀw + ½·curvature·‖w‖² between two kinks; slope 0: Ω is smooth."""

    slope: Array
    curvature: float


class PenaltyOperations(NamedTuple):
    """The operations of one penalty; each takes the term first; None: it is missing.

    Attributes
    ----------
    value : callable(penalty, w) -> float
        Ω(w).
    prox : callable(penalty, j, x, step) -> float
        Argmin over v of Ωⱼ(v) + (v − x)²/(2·step) for coordinate j; compiled, so plain
        arithmetic with exactly these argument names. With ``blocks``, x ≥ 0 is the norm
        of block j: Ω depends on the norms alone.
    distance : callable(penalty, w, g) -> ndarray
        How far −g is from the subdifferential of Ω at w, for each coordinate or block.
    conjugate : callable(penalty, g) -> float
        Ω*(−g), infinite outside its domain.
    polar : callable(penalty, g) -> float
        The largest t ≤ 1 with Ω*(−t·g) finite.
    piece : callable(penalty, sign) -> Piece
        Ω among the w with these signs: lets Newton's method finish.
    levels : callable(penalty, d) -> ndarray
        The αⱼ of Σⱼ αⱼ·abs(wⱼ), if Ω is that and perhaps ``piece``'s curvature.
    blocks : callable(penalty, d) -> ndarray of int
        The block of each column of X, numbered from 0.
    take : callable(penalty, index) -> penalty
        Ω of these columns alone; what a compiled ``prox`` is given.
    """

    value: Callable[[Any, Array], float] | None = None
    prox: Callable[[Any, int, float, float], float] | None = None
    distance: Callable[[Any, Array, Array], Array] | None = None
    conjugate: Callable[[Any, Array], float] | None = None
    polar: Callable[[Any, Array], float] | None = None
    piece: Callable[[Any, Array], Piece] | None = None
    levels: Callable[[Any, int], Array] | None = None
    blocks: Callable[[Any, int], Array] | None = None
    take: Callable[[Any, Array], Any] = lambda penalty, index: penalty


def prox(penalty: Any, j: int, x: float, step: float) -> float:
    """``prox`` of the penalty's row; compiled where kernels call it."""
    return float(operation(penalty, "prox")(penalty, j, x, step))


@overload(prox, strict=False)  # bodies may be annotated as they like
def _compiled_prox(penalty: Any, j: Any, x: Any, step: Any) -> Any:
    row = PENALTIES.get(getattr(penalty, "instance_class", None))
    return None if row is None else row.prox


def operation(penalty: Any, name: str) -> Any:
    """One operation of a penalty's row."""
    return getattr(PENALTIES[type(penalty)], name)


def require(who: str, penalty: Any, *names: str) -> PenaltyOperations:
    """The penalty's row, if it has these operations; else an error that names them."""
    row = PENALTIES.get(type(penalty), PenaltyOperations())
    missing = [name for name in names if getattr(row, name) is None]
    if missing:
        raise NotImplementedError(
            f"{who} needs {', '.join(names)} of {type(penalty).__name__}; missing: "
            f"{', '.join(missing)}. Its row is in certus._solvers.penalties.PENALTIES."
        )
    return row


def curvature_of(who: str, penalty: Any) -> float:
    """The level of ½·level·‖w‖², for solvers of smooth penalties."""
    piece = _checked_piece(who, penalty)
    if np.any(piece.slope):
        raise NotImplementedError(
            f"{who} needs a smooth penalty; {type(penalty).__name__} has kinks."
        )
    return piece.curvature


def levels_of(who: str, penalty: Any, d: int) -> tuple[Array, float]:
    """The αⱼ and the level of Σⱼ αⱼ·abs(wⱼ) + ½·level·‖w‖²."""
    levels: Any = require(who, penalty, "levels", "piece").levels
    return levels(penalty, d), _checked_piece(who, penalty).curvature


def _checked_piece(who: str, penalty: Any) -> Piece:
    piece: Any = require(who, penalty, "piece").piece
    return piece(penalty, np.ones(1))


def of_levels(l1: float, l2: float, positive: bool = False) -> Penalty:
    """The term of l1·‖w‖₁ + ½·l2·‖w‖², among non-negative w or all."""
    if positive:
        return NonNegative(l1, l2)
    if l1:
        return L1L2(l1, l2) if l2 else L1(l1)
    return L2(l2) if l2 else NoPenalty()


# -- formulas that several rows share; l1 may have one level for each coordinate -------


def _soft(penalty: Any, j: int, x: float, step: float) -> float:
    cut, shrink = step * penalty.l1, 1.0 + step * penalty.l2
    if x > cut:
        return (x - cut) / shrink
    if x < -cut:
        return (x + cut) / shrink
    return 0.0


def _absolute_distance(w: Array, g: Array, l1: Any, l2: float) -> Array:
    slope = g + l2 * w
    at_zero = np.maximum(np.abs(slope) - l1, 0.0)
    return np.where(w == 0, at_zero, np.abs(slope + l1 * np.sign(w)))


def _over(size: Array, l1: float, l2: float) -> float:
    """Σ max(size − l1, 0)²/(2·l2); without an l2, 0 up to rounding or infinite."""
    over = np.maximum(size - l1, 0.0)
    if l2 > 0:
        return float(np.vdot(over, over)) / (2 * l2)
    return 0.0 if float(over.max(initial=0.0)) <= 1e-12 * l1 else np.inf


def _largest_scale(size: Array, l1: Any, l2: float) -> float:
    """The largest t ≤ 1 with t·size ≤ l1 everywhere."""
    if l2 > 0 or not size.size:
        return 1.0
    if np.ndim(l1):
        return float(min(1.0, (l1 / np.maximum(size, 1e-300)).min()))
    top = float(size.max())
    return 1.0 if top <= l1 else l1 / top


# -- L1 and elastic net ----------------------------------------------------------------


def _prox_l1(penalty: Any, j: int, x: float, step: float) -> float:
    cut = step * penalty.alpha
    if x > cut:
        return x - cut
    if x < -cut:
        return x + cut
    return 0.0


_L1 = PenaltyOperations(
    value=lambda p, w: p.alpha * float(np.abs(w).sum()),
    prox=_prox_l1,
    distance=lambda p, w, g: _absolute_distance(w, g, p.alpha, 0.0),
    conjugate=lambda p, g: _over(np.abs(g), p.alpha, 0.0),
    polar=lambda p, g: _largest_scale(np.abs(g), p.alpha, 0.0),
    piece=lambda p, sign: Piece(p.alpha * sign, 0.0),
    levels=lambda p, d: np.full(d, float(p.alpha)),
)
_ELASTIC_NET = PenaltyOperations(
    value=lambda p, w: p.l1 * float(np.abs(w).sum()) + p.l2 * float(np.vdot(w, w)) / 2,
    prox=_soft,
    distance=lambda p, w, g: _absolute_distance(w, g, p.l1, p.l2),
    conjugate=lambda p, g: _over(np.abs(g), p.l1, p.l2),
    polar=lambda p, g: _largest_scale(np.abs(g), p.l1, p.l2),
    piece=lambda p, sign: Piece(p.l1 * sign, p.l2),
    levels=lambda p, d: np.full(d, float(p.l1)),
)


# -- a level for each column -----------------------------------------------------------


def _prox_weighted(penalty: Any, j: int, x: float, step: float) -> float:
    cut = step * penalty.alphas[j]
    if x > cut:
        return x - cut
    if x < -cut:
        return x + cut
    return 0.0


def _weighted_conjugate(penalty: WeightedL1, g: Array) -> float:
    level = np.asarray(penalty.alphas)
    return 0.0 if np.all(np.abs(g) <= (1 + 1e-12) * level) else np.inf


def _take_levels(penalty: WeightedL1, index: Array) -> WeightedL1:
    """As an array: compiled code would be compiled again for each length of a tuple."""
    levels: Any = np.asarray(penalty.alphas, dtype=np.float64)[index]
    return WeightedL1(levels)


_WEIGHTED_L1 = PenaltyOperations(
    value=lambda p, w: float(np.abs(w) @ np.asarray(p.alphas)),
    prox=_prox_weighted,
    distance=lambda p, w, g: _absolute_distance(w, g, np.asarray(p.alphas), 0.0),
    conjugate=_weighted_conjugate,
    polar=lambda p, g: _largest_scale(np.abs(g), np.asarray(p.alphas), 0.0),
    piece=lambda p, sign: Piece(np.asarray(p.alphas)[: len(sign)] * sign, 0.0),
    levels=lambda p, d: np.asarray(p.alphas, dtype=np.float64),
    take=_take_levels,
)


# -- none, and squares -----------------------------------------------------------------


def _prox_none(penalty: Any, j: int, x: float, step: float) -> float:
    return x


def _prox_l2(penalty: Any, j: int, x: float, step: float) -> float:
    return x / (1.0 + step * penalty.alpha)


_NONE = PenaltyOperations(
    value=lambda p, w: 0.0,
    prox=_prox_none,
    distance=lambda p, w, g: np.abs(g),
    conjugate=lambda p, g: np.inf if np.any(g) else 0.0,
    polar=lambda p, g: 0.0 if np.any(g) else 1.0,
    piece=lambda p, sign: Piece(0.0 * sign, 0.0),
    levels=lambda p, d: np.zeros(d),
)
_L2 = PenaltyOperations(
    value=lambda p, w: p.alpha * float(np.vdot(w, w)) / 2,
    prox=_prox_l2,
    distance=lambda p, w, g: np.abs(g + p.alpha * w),
    conjugate=lambda p, g: float(np.vdot(g, g)) / (2 * p.alpha),
    polar=lambda p, g: 1.0,
    piece=lambda p, sign: Piece(0.0 * sign, p.alpha),
    levels=lambda p, d: np.zeros(d),
)


# -- non-negative ----------------------------------------------------------------------


def _prox_positive(penalty: Any, j: int, x: float, step: float) -> float:
    return max(x - step * penalty.l1, 0.0) / (1.0 + step * penalty.l2)


def _positive_value(penalty: NonNegative, w: Array) -> float:
    if np.any(w < 0):
        return np.inf
    return penalty.l1 * float(w.sum()) + penalty.l2 * float(np.vdot(w, w)) / 2


def _positive_distance(penalty: NonNegative, w: Array, g: Array) -> Array:
    slope = g + penalty.l1 + penalty.l2 * w
    return np.where(w > 0, np.abs(slope), np.maximum(-slope, 0.0))


_NON_NEGATIVE = PenaltyOperations(
    value=_positive_value,
    prox=_prox_positive,
    distance=_positive_distance,
    conjugate=lambda p, g: _over(np.maximum(-g, 0.0), p.l1, p.l2),
    polar=lambda p, g: _largest_scale(np.maximum(-g, 0.0), p.l1, p.l2),
    piece=lambda p, sign: Piece(p.l1 * np.abs(sign), p.l2),
)


# -- norms of blocks -------------------------------------------------------------------


def block_norms(w: Array, blocks: Array) -> Array:
    """‖w_b‖ for each block of rows."""
    square = np.square(w) if w.ndim == 1 else np.einsum("jt,jt->j", w, w)
    return np.sqrt(np.bincount(blocks, weights=square))


def _block_distance(w: Array, g: Array, blocks: Array, l1: float, l2: float) -> Array:
    size = block_norms(w, blocks)
    unit = np.divide(l1, size, out=np.zeros_like(size), where=size > 0)[blocks]
    slope = g + (l2 + (unit if w.ndim == 1 else unit[:, None])) * w
    off = block_norms(slope, blocks)
    return np.where(size > 0, off, np.maximum(off - l1, 0.0))


def _row_of_blocks(blocks: Callable[[Any, int], Array], take: Any) -> PenaltyOperations:
    def norms(p: Any, w: Array) -> Array:
        return block_norms(w, blocks(p, len(w)))

    def value(p: Any, w: Array) -> float:
        return p.l1 * float(norms(p, w).sum()) + p.l2 * float(np.vdot(w, w)) / 2

    return PenaltyOperations(
        value=value,
        prox=_soft,
        distance=lambda p, w, g: _block_distance(w, g, blocks(p, len(w)), p.l1, p.l2),
        conjugate=lambda p, g: _over(norms(p, g), p.l1, p.l2),
        polar=lambda p, g: _largest_scale(norms(p, g), p.l1, p.l2),
        blocks=blocks,
        take=take,
    )


def _take_groups(penalty: Group, index: Array) -> Group:
    """The groups of these columns, numbered again in order of their old numbers."""
    chosen = np.asarray(penalty.groups)[index]
    numbers: Any = np.unique(chosen, return_inverse=True)[1].astype(np.int64)
    return Group(float(penalty.l1), numbers, float(penalty.l2))


#: Every penalty the solvers know. A penalty from elsewhere is one more entry.
PENALTIES: dict[Any, PenaltyOperations] = {
    NoPenalty: _NONE,
    L1: _L1,
    L2: _L2,
    L1L2: _ELASTIC_NET,
    NonNegative: _NON_NEGATIVE,
    WeightedL1: _WEIGHTED_L1,
    Group: _row_of_blocks(lambda p, d: np.asarray(p.groups), _take_groups),
    MultiTask: _row_of_blocks(lambda p, d: np.arange(d), lambda p, index: p),
}
