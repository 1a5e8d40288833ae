"""Linear models over blocks of rows: the duality gap by sums, in two passes.

The theorem is that of ``kernel.gap``; rows are never all in memory, so its parts are
added up block by block, in a binary tree whose shape depends on the number of blocks:

    first pass    Σs, labels, and what the repair of the dual point needs
    second pass   v = Xᵀ(su)/Σs of the repaired u, the excesses, and every norm from
                  which the rounding is bounded

One shift c of the columns serves all blocks. A dual point that must be scaled by κ < 1
(an L1 part) is charged (1 − κ)·mean ℓ: the excess is convex on the way to u = 0. Blocks
come as an object with ``keys``, ``read`` and ``map``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from certus import fingerprints
from certus.certificate import Claim, Status
from certus.objectives import terms as t
from certus.typing import Array, Fit
from certus.verify import deciding
from certus.verify.deciding import GAP, Number
from certus.verify.kernel import losses, penalties, reading
from certus.verify.kernel.losses import one_hot
from certus.verify.kernel.reading import Weights
from certus.verify.kernel.spaces import TINY, UNIT, Space, gamma
from certus.verify.problems import describe, rows_of
from certus.verify.stated_linear import Statement
from certus.verify.stating import Checked, Given

#: Losses whose gap can be added up over blocks, with the repair of their dual point.
LOSSES = (t.Squared, t.Logistic, t.Softmax)
#: Roundings on the way of a number into a sum over rows: pairwise, then by the tree.
ROUNDS = 96
#: Numbers between these ends have squares without under- or overflow.
LOW, HIGH = 1e-140, 1e140
#: Share of the blocks that are computed again here, if they were read elsewhere.
AGAIN = 0.01


class Asked(NamedTuple):
    """The problem, as every block needs it."""

    stated: Statement
    classes: Array
    factors: Array  # weight of each class
    w: Array  # (d, k)
    b: Array  # (k,)
    shift: Array
    free: bool


class First(NamedTuple):
    """Sums of the first pass; ``marks`` are fingerprints, block by block."""

    rows: int
    weight: float
    least: float  # smallest positive weight
    of_class: Array  # Σs of each label, as given
    target: float  # Σsy
    ups: Array  # what the repair needs
    downs: Array
    marks: tuple[dict[str, Any], ...]


class Repair(NamedTuple):
    """How a dual point of the slopes is moved onto Σsu = 0."""

    kind: str = "none"
    middle: Array = np.zeros(0)  # centre
    factor: float = 1.0  # shrink: of the side that is heavier
    heavier_up: bool = True
    t: float = 0.0  # mix
    q: Array = np.zeros(0)


class Second(NamedTuple):
    """Sums of the second pass; all of them Σs·(...) but ``depth``."""

    depth: int
    pulled: Array  # AᵀSu, (d, k)
    squares: Array  # of the columns of A
    u: Array
    size_u: Array  # |u|
    u2: Array  # u², for each score
    z2: float
    y2: float
    slope2: float
    apart2: float  # (slope − u)²
    excess: float
    noise: float
    level: float  # the loss itself
    spread: float  # of the scores of a row
    off: float  # y − mean y
    off1: float
    off2: float


def by_address(X: Any) -> bool:
    """Whether rows come as blocks."""
    return all(hasattr(X, name) for name in ("keys", "read", "map", "names"))


def check(model: Fit, stated: Statement, given: Given, found: Claim | None) -> Checked:
    """Judge ``coef_`` and ``intercept_`` over blocks; ``found`` is a reason not to."""
    blocks = given.X
    n, d = blocks.shape
    shape = {"shape": [int(n), int(d)]}
    if found is not None:
        return [found], Status.TOL_NOT_REACHED, shape
    reason = _why_not(stated)
    if reason:
        claim = deciding.refused(GAP.name, reason, "certify it on rows in memory")
        return [claim], Status.UNDECIDED, shape
    asked = _asked(model, stated, blocks)
    first: First = _tree(blocks.map(_first, asked), _join_first)
    asked = asked._replace(factors=_factors(stated, first.of_class, asked.classes))
    if (asked.factors != 1.0).any():  # sums are of the weights with the classes' own
        first = _tree(blocks.map(_first, asked), _join_first)
    repair = _repair_of(asked, first)
    parts, again = _watched(blocks, asked, repair, first)
    second: Second = _tree(parts, _join_second)
    penalty = _penalty(stated, first.weight)
    number = _number(asked, first, repair, second, penalty, len(blocks.keys))
    objective = describe(stated, penalty)
    claims = [deciding.claim_of(GAP, number, stated.tol, objective, stated.fix, 1)]
    status = deciding.status_of(claims[0])
    if again.count:
        claims.append(again.claim(len(blocks.keys)))
        status = status if claims[-1].met else Status.REFUTED
    used = int(np.count_nonzero(np.abs(asked.w).max(axis=1)))
    detail = f"{used:,} of {d:,} coefficients non-zero"
    claims.append(deciding.measured("shape", float(used), detail))
    return claims, status, _marks(first, shape, str(blocks.dtype))


def _why_not(stated: Statement) -> str:
    """Why the gap cannot be added up over blocks; empty if it can."""
    if not isinstance(stated.loss, LOSSES):
        return f"no sum over blocks is known for the loss {type(stated.loss).__name__}"
    if stated.intercept == "penalised" or stated.hard or stated.joint:
        return "a penalised intercept, a hard margin or a joint scale needs all rows"
    if stated.target not in ("numbers", "signs", "codes"):
        return "several problems in one model need all rows"
    bare = isinstance(stated.penalty, t.NoPenalty)
    if bare or isinstance(stated.penalty, list):
        return "without one penalty for all coefficients the gap is not finite"
    return ""


def _asked(model: Any, stated: Statement, blocks: Any) -> Asked:
    coef, b = reading.plain(model.coef_), reading.plain(model.intercept_)
    d = blocks.shape[1]
    if coef.shape[-1:] != (d,):
        raise ValueError(f"X has {d} columns, but the model has {coef.shape[-1]}.")
    w = np.asarray(coef.reshape(-1, d).T, dtype=np.float64)
    b = np.broadcast_to(b.ravel().astype(np.float64), (w.shape[1],)).copy()
    labels = stated.target != "numbers"
    classes = np.asarray(model.classes_) if labels else np.zeros(0)
    if labels and w.shape[1] != (1 if len(classes) == 2 else len(classes)):
        raise ValueError("coef_ and classes_ do not belong together. Fit it again.")
    free = stated.intercept == "free"
    asked = Asked(
        stated._replace(class_weight=None),
        classes,
        np.ones(len(classes)),
        w,
        b,
        np.zeros(d),
        free,
    )
    if not free:
        return asked
    X, _, s = _read(blocks.read(blocks.keys[0]), asked)
    return asked._replace(shift=Space(X, s, True).shift if len(s) else np.zeros(d))


def _read(block: Any, asked: Asked) -> tuple[Array, Array, Array]:
    """Rows of positive weight: X, targets and weights, as the verifier reads them."""
    who = SimpleNamespace(classes_=asked.classes)
    rows = rows_of(who, asked.stated, block.X, block.y, block.s)
    s = np.ldexp(rows.given.s, rows.given.power)
    if len(asked.factors):
        s = s * asked.factors[rows.y]
    used: Any = slice(None) if s.all() else s > 0
    losses.check_targets(asked.stated.loss, _targets(asked, rows.y[used]))
    return np.asarray(rows.X)[used], _targets(asked, rows.y[used]), s[used]


def _targets(asked: Asked, y: Array) -> Array:
    return np.where(y == 1, 1.0, -1.0) if asked.stated.target == "signs" else y


def _space(asked: Asked, X: Array, s: Array) -> Space:
    found = Space(X, s, False)
    found.shift, found.shifted = asked.shift, bool(asked.shift.any())
    found.long = found.whole = False  # a shifted block is read by rows
    return found


def _natural(asked: Asked, y: Array, z: Array) -> tuple[Array, Array]:
    """Scores as the loss takes them, and the slopes there as a natural dual point."""
    loss = asked.stated.loss
    score = z if isinstance(loss, t.Softmax) else z[:, 0]
    return score, losses.row_of(loss).natural(loss, y, score)


# -- the first pass -----------------------------------------------------------------


def _first(block: Any, asked: Asked) -> First:
    X, y, s = _read(block, asked)
    mark = _mark(X, y, s)
    k = len(asked.classes)
    if not len(s):
        none = np.zeros(max(k, 1))
        return First(0, 0.0, math.inf, np.zeros(k), 0.0, none, none, (mark,))
    space = _space(asked, X, s)
    z = space.look(asked.w, asked.b, None).z
    ups, downs = _of_repair(asked, y, s, _natural(asked, y, z)[1])
    codes = y if asked.stated.target == "codes" else (y > 0)
    of_class = (
        np.bincount(codes.astype(np.int64), weights=s, minlength=k)[:k]
        if k
        else np.zeros(0)
    )
    target = float(_sum(s, y)[0]) if not k else 0.0
    least = float(s.min())
    return First(len(s), float(s.sum()), least, of_class, target, ups, downs, (mark,))


def _of_repair(asked: Asked, y: Array, s: Array, q: Array) -> tuple[Array, Array]:
    """Sums from which the repair follows, by its kind."""
    row, loss = losses.row_of(asked.stated.loss), asked.stated.loss
    match row.repair:
        case "centre":
            return _sum(s, q), np.zeros(1)
        case "mix":
            return _sum(s, one_hot(y, loss.n_classes)), _sum(s, q)
    u = row.slope_of(loss, y, q)
    return _sum(s, np.maximum(u, 0.0)), _sum(s, np.maximum(-u, 0.0))


def _sum(s: Array, a: Array) -> Array:
    """Σ s·a for every column, pairwise."""
    a = a if a.ndim == 2 else a[:, None]
    return np.sum(np.ascontiguousarray(a.T) * s, axis=-1)


def _join_first(a: First, b: First) -> First:
    added = [x + y for x, y in zip(a, b, strict=True)]
    return First(*added)._replace(least=min(a.least, b.least))


def _factors(stated: Statement, sums: Array, classes: Array) -> Array:
    if stated.class_weight is None or not len(classes):
        return np.ones(len(classes))
    each = Weights(np.maximum(sums, TINY))
    codes = np.arange(len(classes))
    return reading.class_weights(stated.class_weight, each, codes, classes, "weights")


def _repair_of(asked: Asked, first: First) -> Repair:
    """The repair that the sums ask for; any numbers here give a true bound."""
    if not first.weight > 0:
        raise ValueError("No row has a positive weight.")
    if not asked.free:
        return Repair()
    row = losses.row_of(asked.stated.loss)
    ups, downs = first.ups / first.weight, first.downs / first.weight
    if row.repair == "centre":
        return Repair("centre", middle=ups)
    if row.repair == "shrink":
        up, down = float(ups[0]), float(downs[0])
        factor = min(up, down) / max(up, down) if max(up, down) > 0 else 1.0
        return Repair("shrink", factor=factor, heavier_up=up > down)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(downs > 0, 1 - ups / downs, 0.0)
    mix = float(np.max(share, initial=0.0))
    q = np.maximum(ups - (1 - mix) * downs, 0.0)
    q = q / q.sum() if q.sum() > 0 else np.full(len(q), 1 / len(q))
    return Repair("mix", t=mix, q=q)


def _repaired(asked: Asked, repair: Repair, y: Array, q: Array) -> Array:
    row, loss = losses.row_of(asked.stated.loss), asked.stated.loss
    match repair.kind:
        case "centre":
            return q - (repair.middle if q.ndim == 2 else repair.middle[0])
        case "shrink":
            u = row.slope_of(loss, y, q)
            side = u > 0 if repair.heavier_up else u < 0
            return np.where(
                side, repair.factor * q + (1 - repair.factor) * row.rest(loss, y), q
            )
        case "mix":
            return (1 - repair.t) * q + repair.t * repair.q
    return q


# -- the second pass ----------------------------------------------------------------


def _second(block: Any, asked: Asked, repair: Repair, centre: float) -> Second:
    X, y, s = _read(block, asked)
    (d, k), loss = asked.w.shape, asked.stated.loss
    if not len(s):
        zero = np.zeros(k)
        return Second(1, np.zeros((d, k)), np.zeros(d), zero, zero, zero, *[0.0] * 11)
    row, space, kept = losses.row_of(loss), _space(asked, X, s), {}

    def vectors(rows: slice, z: Array) -> Array:
        score, q = _natural(asked, y[rows], z)
        q = _repaired(asked, repair, y[rows], q)
        u = row.slope_of(loss, y[rows], q)
        kept[rows.start] = score, q, u
        return u if u.ndim == 2 else u[:, None]

    seen = space.look(asked.w, asked.b, vectors)
    starts = sorted(i for i in kept if len(kept[i][0]))
    score, q, u = (np.concatenate([kept[i][j] for i in starts]) for j in range(3))
    slope = row.slope(loss, y, score).reshape(u.shape)
    excess, noise = row.excess(loss, y, score, q)
    spread = np.ptp(score, axis=1) if score.ndim == 2 else np.abs(score)
    plain = y.astype(float) if asked.stated.target == "numbers" else np.ones(len(y))
    total, off = space.n if space.even else space.total, plain - centre

    def one(a: Array) -> float:
        return float(_sum(s, a).sum())

    # ``look`` divides by Σs, or by n where all weights are equal.
    unit = total if not space.even else total * float(s[0])
    return Second(
        space.depth,
        seen.V * unit,
        np.square(space.norms) * float(s.sum()),
        _sum(s, u),
        _sum(s, np.abs(u)),
        _sum(s, np.square(u)),
        *(one(np.square(score)), one(np.square(plain)), one(np.square(slope))),
        *(one(np.square(slope - u)), one(excess), one(noise)),
        *(one(row.value(loss, y, score)), one(spread)),
        *(one(off), one(np.abs(off)), one(np.square(off))),
    )


def _join_second(a: Second, b: Second) -> Second:
    added = [x + y for x, y in zip(a, b, strict=True)]
    return Second(*added)._replace(depth=max(a.depth, b.depth))


def _tree(parts: Iterable[Any], join: Callable[[Any, Any], Any]) -> Any:
    """Merge in pairs, pairs of pairs: an order that only the number of parts decides."""
    waiting: list[tuple[int, Any]] = []
    for value in parts:
        height = 0
        while waiting and waiting[-1][0] == height:
            value, height = join(waiting.pop()[1], value), height + 1
        waiting.append((height, value))
    value = waiting.pop()[1]
    while waiting:
        value = join(waiting.pop()[1], value)
    return value


# -- the gap ------------------------------------------------------------------------


def _root(square: float | Array, weight: float) -> Any:
    """√(mean square), from above; infinite where squares may have been lost."""
    found = np.sqrt(np.asarray(square) / weight)
    sound = (found == 0) | ((found > LOW) & (found < HIGH))
    return np.where(sound, found * (1 + 1e-9), math.inf)


def _number(
    asked: Asked, first: First, repair: Repair, x: Second, penalty: Any, blocks: int
) -> Number:
    """(P − D)/P(best constant), with its rounding; see ``kernel.gap`` for each term."""
    loss, S = asked.stated.loss, first.weight
    row, omega = losses.row_of(loss), penalties.row_of(penalty)
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
    kappa = omega.reach(penalty, v, error)
    v, error = kappa * v, kappa * error + 4 * UNIT * np.abs(v) + TINY
    short = 1.0 - omega.reach(penalty, v, error)
    left = omega.excess(penalty, w, v, error + short * np.abs(v))
    level = x.level / S * (1 + rounds + 16 * UNIT)
    excess = x.excess / S + (1 - kappa) * level
    bound = _steep(asked, N, x, S) + UNIT * x.noise / S + rounds * excess
    bound += left.bound - left.value
    bound += (share + short) * _cost(asked, x, S, level)
    return Number.share(excess + left.value, bound, _constant(asked, first, x))


def _infeasible(
    asked: Asked, repair: Repair, first: First, x: Second, size: Array
) -> tuple[float, Any]:
    """The share t of the exactly feasible point near the floats, and how far it moves.

    As in the kernel: the heavier side is shrunk by t until mean u = 0; for several
    classes, t is what the shares of the classes are off by.
    """
    if repair.kind == "none":
        k = asked.w.shape[1]
        return (
            (k + 8) * UNIT if isinstance(asked.stated.loss, t.Softmax) else 0.0
        ), 1.0
    mean, most = np.abs(x.u) / first.weight, x.size_u / first.weight
    if repair.kind == "mix":
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


def _steep(asked: Asked, N: Array, x: Second, S: float) -> float:
    """How much the mean excess may change with scores that are off by δ."""
    loss = asked.stated.loss
    size_w = np.abs(asked.w)
    moved = np.abs(asked.b) + np.abs(asked.shift) @ size_w
    own = gamma(len(size_w) + 4) * (N @ size_w) + 8 * UNIT * moved + len(size_w) * TINY
    size = float(_root(x.z2, S)) + float(_root(x.u2.sum(), S))
    size += float(_root(x.y2, S)) if asked.stated.target == "numbers" else 1.0
    delta = float(np.linalg.norm(own)) + 8 * UNIT * size + TINY
    apart = float(_root(x.apart2, S))
    apart += 8 * UNIT * (float(_root(x.slope2, S)) + float(_root(x.u2.sum(), S)))
    return apart * delta + losses.row_of(loss).smooth(loss) * delta * delta / 2


def _cost(asked: Asked, x: Second, S: float, level: float) -> float:
    """What a share of one on the way to the exactly feasible point adds to mean e."""
    if not isinstance(asked.stated.loss, t.Softmax):
        return level
    return max(level, x.spread / S + math.log(len(asked.classes)) + 1)


def _constant(asked: Asked, first: First, x: Second) -> float:
    """P of the best constant model, from below."""
    S, loss = first.weight, asked.stated.loss
    grow = gamma(2 * ROUNDS)
    if isinstance(loss, t.Squared):
        square = x.off2 / S * (1 - grow)
        slip = (abs(x.off) + grow * x.off1) / S if asked.free else 0.0
        return max(0.0, (square - slip * slip) / 2)
    if not asked.free:
        return math.log(max(2, len(asked.classes))) * (1 - 8 * UNIT)
    share = first.of_class[first.of_class > 0] / S
    entropy = float(-(share @ np.log(share)))
    return max(0.0, entropy - 4 * grow * (entropy + 1))


def _penalty(stated: Statement, weight: float) -> Any:
    if stated.penalty_of == "mean":
        return stated.penalty
    if stated.penalty_of == "rows":
        raise ValueError("This model divides by its rows; certify it in memory.")
    level = Weights(np.array([weight])).level(1.0)
    return penalties.row_of(stated.penalty).scaled(stated.penalty, level)


# -- which rows, and who computed them ------------------------------------------------


def _mark(X: Array, y: Array, s: Array) -> dict[str, Any]:
    """The fingerprint of a block."""
    projected = np.asarray(X, dtype=np.float64) @ fingerprints.direction(X.shape[1])
    top = float(np.abs(projected).max(initial=0.0))
    if not np.isfinite(top):
        reading.refuse_holes(X)
    found = fingerprints.of_table(X, y.astype(float), s, projected, top)
    return {name: found[name] for name in ("x", "x_scale", "y", "s", "weight")}


def _marks(first: First, shape: dict[str, Any], dtype: str) -> dict[str, Any]:
    """The fingerprint of all rows: sums over blocks in their order, and each block's."""
    order = 1 + np.arange(len(first.marks)) * 0.6180339887498949 % 1.0

    def along(name: str) -> float:
        return float(order @ [mark[name] for mark in first.marks])

    scale = max(mark["x_scale"] for mark in first.marks)
    blocks = [[mark[name] for name in ("x", "y", "s")] for mark in first.marks]
    found = {"x": along("x"), "y": along("y"), "s": along("s"), "x_scale": scale}
    return {**shape, "dtype": dtype, "weight": first.weight, **found, "blocks": blocks}


class _Again:
    """Blocks computed again in this process, beside what came from elsewhere."""

    def __init__(self) -> None:
        self.count, self.same, self.apart = 0, 0, 0.0

    def see(self, here: Second, there: Second) -> None:
        """Compare one block, bit by bit and by size."""
        a, b = (np.concatenate([np.ravel(x) for x in each]) for each in (here, there))
        self.count += 1
        self.same += int(np.array_equal(a, b))
        size = np.maximum(np.abs(a), np.abs(b))
        share = np.abs(a - b)[size > 0] / (
            size[size > 0] + 1e-9 * size.max(initial=0.0)
        )
        self.apart = max(self.apart, float(share.max(initial=0.0)))

    def claim(self, blocks: int) -> Claim:
        """That the blocks computed twice agree."""
        detail = f"{self.count:,} of {blocks:,} blocks were computed again here: "
        same = self.same == self.count
        how = "the same bits" if same else f"within {self.apart:.0e} of the sums"
        missed = f"{detail}sums differ by {self.apart:.0e}"
        fix = "look for a worker with other versions, files or faulty memory"
        return deciding.proved(
            *("workers_agree", Number(self.apart), 1e-6, detail + how),
            missed=missed,
            fix=fix,
            theorem="a block's sums are a function of its rows and the coefficients",
        )


def _watched(
    blocks: Any, asked: Asked, repair: Repair, first: First
) -> tuple[Any, _Again]:
    """The second pass; some of its blocks are computed again if they were elsewhere."""
    again, centre = _Again(), 0.0
    if asked.free and asked.stated.target == "numbers":
        centre = first.target / first.weight
    m = len(blocks.keys)
    count = math.ceil(AGAIN * m) if getattr(blocks, "elsewhere", False) else 0
    chosen = {int((i + 0.5) * m / count) for i in range(count)}

    def parts() -> Iterable[Second]:
        for i, part in enumerate(blocks.map(_second, asked, repair, centre)):
            if i in chosen:
                with threadpool_limits(1):
                    own = _second(blocks.read(blocks.keys[i]), asked, repair, centre)
                again.see(own, part)
            yield part

    return parts(), again
