"""Linear models over blocks of rows: the duality gap from sums.

The theorem is that of ``kernel.gap``; ``block_sums`` adds up its parts. A dual point
that must be scaled by κ < 1 (an L1 part) is charged (1 − κ)·mean ℓ: the excess is
convex on the way to u = 0. Blocks come as an object with ``keys``, ``read`` and
``map``; ``recomputed`` compares some that other processes have read.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from certus.certificate import Claim, Status
from certus.objectives import terms as t
from certus.typing import Array, Fit
from certus.verify import block_backward, block_huber, deciding
from certus.verify.block_sums import (
    BlockRepair,
    FirstSums,
    SecondSums,
    StatedRows,
    asked_of,
    both_sums,
    centred,
    class_factors,
    join_both,
    marks_of,
    of_classes,
    repair_of,
)
from certus.verify.deciding import BACKWARD, GAP, Number
from certus.verify.kernel import losses, penalties
from certus.verify.kernel.reading import Weights
from certus.verify.kernel.spaces import TINY, UNIT, gamma
from certus.verify.problems import describe
from certus.verify.recomputed import RecomputedBlocks, summed
from certus.verify.stated_linear import Statement
from certus.verify.stating import Checked, Given

#: Losses whose gap can be added up over blocks.
LOSSES = (
    *(t.Squared, t.Logistic, t.Softmax, t.SquaredHinge),
    *(t.Poisson, t.Exponential, t.Huber),
)
#: Roundings on the way of a number into a sum over rows: pairwise, then by the tree.
ROUNDS = 96
#: Numbers beyond HIGH have no square; those below VANISHED may have none left.
HIGH, VANISHED = 1e140, 1e-150


def check(model: Fit, stated: Statement, given: Given, found: Claim | None) -> Checked:
    """Judge ``coef_`` and ``intercept_`` over blocks; ``found`` is a reason not to."""
    blocks = given.X
    n, d = blocks.shape
    shape = {"shape": [int(n), int(d)]}
    if found is not None:
        return [found], Status.TOL_NOT_REACHED, shape
    reason = _why_not(stated)
    if stated.joint and not float(model.scale_) > 0:
        reason = "a scale of zero needs all rows"
    if reason:
        claim = deciding.refused(GAP.name, reason, "certify it on rows in memory")
        return [claim], Status.UNDECIDED, shape
    asked, again = asked_of(model, stated, blocks), RecomputedBlocks()
    if stated.class_weight is not None:
        sums = summed(blocks, again, np.add, of_classes, asked)
        factors = class_factors(stated, sums, asked.classes)
        asked = asked._replace(factors=factors)
    if stated.joint:
        claims, first = _scaled(stated, asked, blocks, again, float(model.scale_))
    else:
        claim, first = _judged(stated, asked, blocks, again)
        claims = [claim]
    status = deciding.status_of(claims[0])
    if again.count:
        claims.append(again.claim(len(blocks.keys)))
        status = status if claims[-1].met else Status.REFUTED
    used = int(np.count_nonzero(np.abs(asked.w[:d]).max(axis=1)))
    detail = f"{used:,} of {d:,} coefficients non-zero"
    claims.append(deciding.measured("shape", float(used), detail))
    return (
        claims,
        status,
        marks_of(first.marks, blocks.shape, str(blocks.dtype), first.weight),
    )


def _judged(
    stated: Statement, asked: StatedRows, blocks: Any, again: RecomputedBlocks
) -> tuple[Claim, FirstSums]:
    """The gap at the slopes as they are; repaired only if that misses the target."""
    repair = BlockRepair()
    bare = isinstance(stated.penalty, t.NoPenalty)
    for _ in range(2):
        first, second = summed(blocks, again, join_both, both_sums, asked, repair)
        if not first.weight > 0:
            raise ValueError("No row has a positive weight.")
        if not bare and asked.free and isinstance(stated.loss, t.Squared):
            second = centred(second, first.weight)
        penalty = _penalty(stated, first.weight)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if bare:
                delta = _delta(asked, second, first.weight)
                number = block_backward.number(asked, first, second, blocks, delta)
            else:
                number = _number(
                    asked, first, repair, second, penalty, len(blocks.keys)
                )
        linear = isinstance(stated.loss, t.Squared)
        if linear or number.most <= stated.tol or not asked.free:
            break
        repair = repair_of(asked, first)
    words, objective = BACKWARD if bare else GAP, describe(stated, penalty)
    claim = deciding.claim_of(words, number, stated.tol, objective, stated.fix, 1)
    return claim, first


def _scaled(
    stated: Statement,
    asked: StatedRows,
    blocks: Any,
    again: RecomputedBlocks,
    scale: float,
) -> tuple[list[Claim], FirstSums]:
    """The joint gap of coefficients and scale; slopes are repaired if that misses."""
    fixed = asked._replace(stated=block_huber.at_scale_of(asked.stated, scale))
    repair, epsilon, base = BlockRepair(), stated.loss.threshold, -1.0
    for trial in range(3):
        first, x = summed(blocks, again, join_both, both_sums, fixed, repair)
        if not first.weight > 0:
            raise ValueError("No row has a positive weight.")
        strength = _penalty(stated, first.weight).alpha
        if base < 0:
            base = block_huber.best_constant(blocks, again, asked, epsilon)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            most = block_huber.ball(x, first.weight, scale)
            given = t.L2(strength * scale / 2), len(blocks.keys), most
            parts = _parts(fixed, first, repair, x, *given)
            number = block_huber.joint(parts, x, first.weight, scale, base)
        if number.most <= stated.tol:
            break
        stretch = repair.stretch
        if trial == 0:
            stretch = block_huber.stretch_of(first.weight, x, scale, epsilon)
        repair = repair_of(fixed, first)._replace(stretch=stretch)
    text = block_huber.objective(stated, strength, asked.free)
    claim = deciding.claim_of(GAP, number, stated.tol, text, stated.fix, 1)
    return [claim, block_huber.outliers(stated, scale, first.rows, x)], first


def _why_not(stated: Statement) -> str:
    """Why the gap cannot be added up over blocks; empty if it can."""
    if not isinstance(stated.loss, LOSSES):
        return f"no sum over blocks is known for the loss {type(stated.loss).__name__}"
    if stated.hard:
        return "a hard margin needs all rows"
    if isinstance(stated.loss, t.Huber) and not stated.joint:
        return "a fixed threshold needs all rows"
    if stated.target not in ("numbers", "signs", "codes"):
        return "several problems in one model need all rows"
    bare = isinstance(stated.penalty, t.NoPenalty)
    bare &= not isinstance(stated.loss, t.Squared)
    if bare or isinstance(stated.penalty, list):
        return "without one penalty for all coefficients the gap is not finite"
    return ""


# -- the gap ------------------------------------------------------------------------


def _root(square: float | Array, weight: float) -> Any:
    """√(mean square), from above: squares may vanish, or grow beyond all numbers."""
    found = np.sqrt(np.asarray(square) / weight)
    return np.where(found < HIGH, found * (1 + 1e-9) + VANISHED, math.inf)


def _number(
    asked: StatedRows,
    first: FirstSums,
    repair: BlockRepair,
    x: SecondSums,
    penalty: Any,
    blocks: int,
) -> Number:
    """(P − D)/P(best constant), with its rounding."""
    value, bound, _ = _parts(asked, first, repair, x, penalty, blocks)
    return Number.share(value, bound, _constant(asked, first, x))


def _parts(
    asked: StatedRows,
    first: FirstSums,
    repair: BlockRepair,
    x: SecondSums,
    penalty: Any,
    blocks: int,
    most: float = 1.0,
) -> tuple[float, float, float]:
    """P − D, its rounding, and how far slopes are from feasible ones, as a share.

    See ``kernel.gap`` for each term; slopes are multiplied by ``most`` at the most.
    """
    loss, S = asked.stated.loss, first.weight
    omega = penalties.row_of(penalty)
    rounds = gamma(ROUNDS)
    deep = gamma(x.depth + math.ceil(math.log2(blocks + 1)) + ROUNDS)
    N, size = _root(x.squares, S), _root(x.u2, S)  # columns of A, and u
    share, moves = _infeasible(asked, repair, first, x, size)
    w = asked.w if isinstance(loss, t.Softmax) else asked.w[:, 0]
    v = (x.pulled / S).reshape(w.shape)
    slip = (
        deep * size + 2 * share * moves + TINY * first.rows / math.sqrt(first.least * S)
    )
    error = np.multiply.outer(N, slip).reshape(w.shape) + 8 * UNIT * np.abs(v)
    error = error + 2 * first.rows * TINY * max(1.0, 1 / S)
    kappa = min(omega.reach(penalty, v, error), most)
    v, error = kappa * v, kappa * error + 4 * UNIT * np.abs(v) + TINY
    short = 1.0 - omega.reach(penalty, v, error)
    left = omega.excess(penalty, w, v, error + short * np.abs(v))
    level = x.level / S * (1 + rounds + 16 * UNIT)
    excess = x.excess / S + (1 - kappa) * level
    bound = _steep(asked, x, S, first.least) + UNIT * x.noise / S + rounds * excess
    bound += left.bound - left.value
    bound += (share + short) * _cost(asked, x, S, level)
    return excess + left.value, bound, share + short


def _infeasible(
    asked: StatedRows, repair: BlockRepair, first: FirstSums, x: SecondSums, size: Array
) -> tuple[float, Any]:
    """The share t of the exactly feasible point near the floats, and how far it moves.

    As in the kernel: the heavier side is shrunk by t until mean u = 0; for several
    classes, t is what the shares of the classes are off by.
    """
    kind = losses.row_of(asked.stated.loss).repair
    if not asked.free:
        k = asked.w.shape[1]
        return (
            (k + 8) * UNIT if isinstance(asked.stated.loss, t.Softmax) else 0.0
        ), 1.0
    if kind == "rescale":
        apart = abs(x.q - x.rest) / x.rest if x.rest > 0 else math.inf
        return apart + 2 * ROUNDS * UNIT, float(_root(x.q2, first.weight))
    mean, most = np.abs(x.u) / first.weight, x.size_u / first.weight
    if kind == "mix":
        k = len(asked.classes)
        wanted = first.ups / first.weight
        found = wanted + x.u / first.weight  # u = Q − Y
        off = mean + ROUNDS * UNIT * (most + np.maximum(found, wanted))
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.where(off > 0, off / np.maximum(found - off, 0.0), 0.0)
        return float(np.max(part, initial=0.0)) + (k + 8) * UNIT, 2.0
    off = mean + ROUNDS * UNIT * most
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(off < most / 2, 2 * off / (most - off), most > 0)
    return float(np.max(part)), size


def _steep(asked: StatedRows, x: SecondSums, S: float, least: float) -> float:
    """How much the mean excess may change with scores that are off by δ."""
    loss = asked.stated.loss
    delta = _delta(asked, x, S)
    apart = float(_root(x.apart2, S))
    apart += 8 * UNIT * (float(_root(x.slope2, S)) + float(_root(x.u2.sum(), S)))
    row = losses.row_of(loss)
    if row.bend == "exponential":
        if not delta < 0.5 * math.sqrt(least / S):
            return math.inf
        apart += 8 * UNIT * row.parts(loss) * float(_root(x.curve2, S))
        return apart * delta + x.top * delta * delta
    return apart * delta + row.smooth(loss) * delta * delta / 2


def _delta(asked: StatedRows, x: SecondSums, S: float) -> float:
    """How far off scores may be, in the mean square, with what is evaluated there."""
    N, size_w = _root(x.squares, S), np.abs(asked.w)
    moved = np.abs(asked.b) + np.abs(asked.shift) @ size_w
    own = gamma(len(size_w) + 4) * (N @ size_w) + 8 * UNIT * moved + len(size_w) * TINY
    size = float(_root(x.z2, S)) + float(_root(x.u2.sum(), S))
    size += float(_root(x.y2, S)) if asked.stated.target == "numbers" else 1.0
    size += abs(float(getattr(asked.stated.loss, "threshold", 0.0)))
    return float(np.linalg.norm(own)) + 8 * UNIT * size + TINY


def _cost(asked: StatedRows, x: SecondSums, S: float, level: float) -> float:
    """What a share of one on the way to the exactly feasible point adds to mean e."""
    if losses.row_of(asked.stated.loss).repair == "rescale":
        return max(level, (4 * x.q + x.excess) / S)
    if not isinstance(asked.stated.loss, t.Softmax):
        return level
    return max(level, x.spread / S + math.log(len(asked.classes)) + 1)


def _constant(asked: StatedRows, first: FirstSums, x: SecondSums) -> float:
    """P of the best constant model, from below."""
    S, loss = first.weight, asked.stated.loss
    grow = gamma(2 * ROUNDS)
    if not len(asked.classes):
        return _of_numbers(asked, first, x)
    two = isinstance(loss, t.SquaredHinge)
    if not asked.free and asked.stated.intercept != "penalised":
        return 1.0 if two else math.log(max(2, len(asked.classes))) * (1 - 8 * UNIT)
    share = first.of_class / S  # a penalty of the intercept could only add to this
    if two:
        return float(4 * share[0] * share[1] * (1 - grow))
    share = share[share > 0]
    entropy = float(-(share @ np.log(share)))
    return max(0.0, entropy - 4 * grow * (entropy + 1))


def _of_numbers(asked: StatedRows, first: FirstSums, x: SecondSums) -> float:
    """Mean ℓ(y, z₀) less ℓ(mean y, z₀): z₀ loses that beside the best constant.

    An identity of the squared loss, and of the deviances of Poisson and gamma.
    """
    S, loss, grow = first.weight, asked.stated.loss, gamma(2 * ROUNDS)
    still = x.still / S * (1 - grow)
    if not asked.free:
        return max(0.0, still)
    row = losses.row_of(loss)
    centre = math.exp(asked.still) if row.bend == "exponential" else asked.still
    slip = (abs(x.off) + grow * x.off1) / S + 4 * UNIT * abs(centre)
    ends = np.array([centre - slip, centre + slip])
    if row.bend == "exponential" and ends[0] <= 0:
        return 0.0
    lost = row.value(loss, ends, np.full(2, asked.still))
    return max(0.0, still - float(lost.max()) * (1 + grow))


def _penalty(stated: Statement, weight: float) -> Any:
    if stated.penalty_of == "mean":
        return stated.penalty
    if stated.penalty_of == "rows":
        raise ValueError("This model divides by its rows; certify it in memory.")
    level = Weights(np.array([weight])).level(1.0)
    return penalties.row_of(stated.penalty).scaled(stated.penalty, level)
