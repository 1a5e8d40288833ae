"""Two passes over blocks of rows, for the duality gap of a linear model.

Rows are never all in memory: what ``kernel.gap`` computes of all rows is added up block
by block, in a binary tree whose shape depends on the number of blocks alone.

    first pass    Σs, labels, and what the repair of the dual point needs
    second pass   v = Xᵀ(su)/Σs of the repaired u, the excesses, and every norm from
                  which the rounding is bounded

One shift c of the columns serves all blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from certus import fingerprints
from certus.objectives import terms as t
from certus.typing import Array
from certus.verify.kernel import losses, reading
from certus.verify.kernel.losses import one_hot
from certus.verify.kernel.reading import Weights
from certus.verify.kernel.spaces import TINY, Space
from certus.verify.problems import rows_of
from certus.verify.stated_linear import Statement


class StatedRows(NamedTuple):
    """The problem, as every block needs it."""

    stated: Statement
    classes: Array
    factors: Array  # weight of each class
    w: Array  # (d, k)
    b: Array  # (k,)
    shift: Array
    free: bool


class FirstSums(NamedTuple):
    """Sums of the first pass; ``marks`` are fingerprints, block by block."""

    rows: int
    weight: float
    least: float  # smallest positive weight
    of_class: Array  # Σs of each label, as given
    target: float  # Σsy
    ups: Array  # what the repair needs
    downs: Array
    marks: tuple[dict[str, Any], ...]


class BlockRepair(NamedTuple):
    """How a dual point of the slopes is moved onto Σsu = 0."""

    kind: str = "none"
    middle: Array = np.zeros(0)  # centre
    factor: float = 1.0  # shrink: of the side that is heavier
    heavier_up: bool = True
    t: float = 0.0  # mix
    q: Array = np.zeros(0)


class SecondSums(NamedTuple):
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


def asked_of(model: Any, stated: Statement, blocks: Any) -> StatedRows:
    """The problem that a model states, and one shift of the columns for all blocks."""
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
    asked = StatedRows(
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


def _read(block: Any, asked: StatedRows) -> tuple[Array, Array, Array]:
    """Rows of positive weight: X, targets and weights, as the verifier reads them."""
    who = SimpleNamespace(classes_=asked.classes)
    rows = rows_of(who, asked.stated, block.X, block.y, block.s)
    s = np.ldexp(rows.given.s, rows.given.power)
    if len(asked.factors):
        s = s * asked.factors[rows.y]
    used: Any = slice(None) if s.all() else s > 0
    losses.check_targets(asked.stated.loss, _targets(asked, rows.y[used]))
    return np.asarray(rows.X)[used], _targets(asked, rows.y[used]), s[used]


def _targets(asked: StatedRows, y: Array) -> Array:
    return np.where(y == 1, 1.0, -1.0) if asked.stated.target == "signs" else y


def _space(asked: StatedRows, X: Array, s: Array) -> Space:
    found = Space(X, s, False)
    found.shift, found.shifted = asked.shift, bool(asked.shift.any())
    found.long = found.whole = False  # a shifted block is read by rows
    return found


def _natural(asked: StatedRows, y: Array, z: Array) -> tuple[Array, Array]:
    """Scores as the loss takes them, and the slopes there as a natural dual point."""
    loss = asked.stated.loss
    score = z if isinstance(loss, t.Softmax) else z[:, 0]
    return score, losses.row_of(loss).natural(loss, y, score)


# -- the first pass -----------------------------------------------------------------


def first_pass(block: Any, asked: StatedRows) -> FirstSums:
    """The sums of one block that the repair of the dual point needs."""
    X, y, s = _read(block, asked)
    mark = _mark(X, y, s)
    k = len(asked.classes)
    if not len(s):
        none = np.zeros(max(k, 1))
        return FirstSums(0, 0.0, math.inf, np.zeros(k), 0.0, none, none, (mark,))
    space = _space(asked, X, s)
    z = space.look(asked.w, asked.b, None).z
    ups, downs = _of_repair(asked, y, s, _natural(asked, y, z)[1])
    codes = y if asked.stated.target == "codes" else (y > 0) * bool(k)
    of_class = (
        np.bincount(codes.astype(np.int64), weights=s, minlength=k)[:k]
        if k
        else np.zeros(0)
    )
    target = float(_sum(s, y)[0]) if not k else 0.0
    least = float(s.min())
    return FirstSums(
        len(s), float(s.sum()), least, of_class, target, ups, downs, (mark,)
    )


def _of_repair(asked: StatedRows, y: Array, s: Array, q: Array) -> tuple[Array, Array]:
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


def join_first(a: FirstSums, b: FirstSums) -> FirstSums:
    """The sums of both sets of rows."""
    pairs: Any = zip(a, b, strict=True)
    return FirstSums(*(x + y for x, y in pairs))._replace(least=min(a.least, b.least))


def class_factors(stated: Statement, sums: Array, classes: Array) -> Array:
    """The weight of each class, from the weights of their rows."""
    if stated.class_weight is None or not len(classes):
        return np.ones(len(classes))
    each = Weights(np.maximum(sums, TINY))
    codes = np.arange(len(classes))
    return reading.class_weights(stated.class_weight, each, codes, classes, "weights")


def repair_of(asked: StatedRows, first: FirstSums) -> BlockRepair:
    """The repair that the sums ask for; any numbers here give a true bound."""
    if not first.weight > 0:
        raise ValueError("No row has a positive weight.")
    if not asked.free:
        return BlockRepair()
    row = losses.row_of(asked.stated.loss)
    ups, downs = first.ups / first.weight, first.downs / first.weight
    if row.repair == "centre":
        return BlockRepair("centre", middle=ups)
    if row.repair == "shrink":
        up, down = float(ups[0]), float(downs[0])
        factor = min(up, down) / max(up, down) if max(up, down) > 0 else 1.0
        return BlockRepair("shrink", factor=factor, heavier_up=up > down)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(downs > 0, 1 - ups / downs, 0.0)
    mix = float(np.max(share, initial=0.0))
    q = np.maximum(ups - (1 - mix) * downs, 0.0)
    q = q / q.sum() if q.sum() > 0 else np.full(len(q), 1 / len(q))
    return BlockRepair("mix", t=mix, q=q)


def _repaired(asked: StatedRows, repair: BlockRepair, y: Array, q: Array) -> Array:
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


def second_pass(
    block: Any, asked: StatedRows, repair: BlockRepair, centre: float
) -> SecondSums:
    """The sums of one block at the repaired dual point."""
    X, y, s = _read(block, asked)
    (d, k), loss = asked.w.shape, asked.stated.loss
    if not len(s):
        zero = np.zeros(k)
        return SecondSums(
            1, np.zeros((d, k)), np.zeros(d), zero, zero, zero, *[0.0] * 11
        )
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
    return SecondSums(
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


def join_second(a: SecondSums, b: SecondSums) -> SecondSums:
    """The sums of both sets of rows."""
    pairs: Any = zip(a, b, strict=True)
    return SecondSums(*(x + y for x, y in pairs))._replace(depth=max(a.depth, b.depth))


def tree(parts: Iterable[Any], join: Callable[[Any, Any], Any]) -> Any:
    """Merge in pairs, then pairs of pairs; only the number of parts decides how."""
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


def _mark(X: Array, y: Array, s: Array) -> dict[str, Any]:
    """The fingerprint of a block."""
    projected = np.asarray(X, dtype=np.float64) @ fingerprints.direction(X.shape[1])
    top = float(np.abs(projected).max(initial=0.0))
    if not np.isfinite(top):
        reading.refuse_holes(X)
    found = fingerprints.of_table(X, y.astype(float), s, projected, top)
    return {name: found[name] for name in ("x", "x_scale", "y", "s", "weight")}
