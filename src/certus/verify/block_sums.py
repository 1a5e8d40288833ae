"""Sums over blocks of rows, for the duality gap of a linear model.

Rows are never all in memory: what ``kernel.gap`` computes of all rows is added up block
by block, in a binary tree whose shape depends on the number of blocks alone.

    FirstSums     Σs, labels, and what the repair of the dual point needs
    SecondSums    v = Xᵀ(su)/Σs of the repaired u, the excesses, and every norm from
                  which the rounding is bounded

One pass gives both. At a minimum the slopes need no repair worth a second one: what
they are off by is charged. One shift c of the columns serves all blocks; a penalised
intercept is one more column.
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
    still: float = 0.0  # a constant score near the best one; 0 if it is not free


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
    factor: float = 1.0  # shrink: of the side that is heavier; rescale: of all
    heavier_up: bool = True
    t: float = 0.0  # mix
    q: Array = np.zeros(0)
    stretch: float = 1.0  # of the residuals at which slopes are taken


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
    still: float  # the loss at the score ``StatedRows.still``
    q: float  # natural duals that are rescaled, what they shall add up to, squares
    rest: float
    q2: float
    curve2: float  # curvature², where it grows with the scores; and its largest
    top: float
    ones: Array  # of the columns of A
    off: float  # y less the mean of ``still``, its size and its square
    off1: float
    off2: float
    far: float  # rows beyond the threshold of Huber's loss, and their weight
    out: float


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
    if stated.intercept == "penalised":
        if not 0 < stated.scale < math.inf:
            raise ValueError(f"intercept_scaling must be above 0, got {stated.scale}.")
        w, b = np.vstack([w, b / stated.scale]), np.zeros_like(b)
    asked = StatedRows(
        stated._replace(class_weight=None),
        classes,
        np.ones(len(classes)),
        w,
        b,
        np.zeros(len(w)),
        stated.intercept == "free",
    )
    if not asked.free:
        return asked
    X, y, s = rows_read(blocks.read(blocks.keys[0]), asked)
    if not len(s):
        return asked
    still = 0.0
    if not labels:  # any score will do; one near the best loses no digits
        still = float(losses.row_of(stated.loss).best(stated.loss, y, s))
        still = still if math.isfinite(still) else 0.0
    return asked._replace(shift=Space(X, s, True).shift, still=still)


def rows_read(block: Any, asked: StatedRows) -> tuple[Array, Array, Array]:
    """Rows of positive weight: X, targets and weights, as the verifier reads them."""
    who = SimpleNamespace(classes_=asked.classes)
    idle = block.s is not None and not np.any(block.s)  # others have the weight
    given = None if idle else block.s
    rows = rows_of(who, asked.stated, block.X, block.y, given)
    s = np.ldexp(rows.given.s, rows.given.power) * (not idle)
    if len(asked.factors):
        s = s * asked.factors[rows.y]
    used: Any = slice(None) if s.all() else s > 0
    if not idle:
        losses.check_targets(asked.stated.loss, _targets(asked, rows.y[used]))
    X = np.asarray(rows.X)[used]
    if asked.stated.intercept == "penalised":
        X = np.column_stack([X, np.full(len(X), asked.stated.scale)])
    return X, _targets(asked, rows.y[used]), s[used]


def _targets(asked: StatedRows, y: Array) -> Array:
    return np.where(y == 1, 1.0, -1.0) if asked.stated.target == "signs" else y


def _space(asked: StatedRows, X: Array, s: Array) -> Space:
    found = Space(X, s, False)
    found.shift, found.shifted = asked.shift, bool(asked.shift.any())
    found.long = found.whole = False  # a shifted block is read by rows
    return found


def _natural(
    asked: StatedRows, y: Array, z: Array, stretch: float
) -> tuple[Array, Array]:
    """Scores as the loss takes them, and the slopes there as a natural dual point.

    ``stretch`` takes the slopes at residuals that are so many times as long.
    """
    loss = asked.stated.loss
    score = z if isinstance(loss, t.Softmax) else z[:, 0]
    there = score if stretch == 1.0 else y + stretch * (score - y)
    return score, losses.row_of(loss).natural(loss, y, there)


# -- what the repair needs ------------------------------------------------------------


def of_classes(block: Any, asked: StatedRows) -> Array:
    """Σs of each label, as given."""
    _, y, s = rows_read(block, asked)
    return _of_class(asked, y, s)


def _of_class(asked: StatedRows, y: Array, s: Array) -> Array:
    k = len(asked.classes)
    if not k:
        return np.zeros(0)
    codes = y if asked.stated.target == "codes" else y > 0
    return np.bincount(codes.astype(np.int64), weights=s, minlength=k)[:k]


def _first(
    asked: StatedRows, mark: dict[str, Any], y: Array, s: Array, q: Array
) -> FirstSums:
    ups, downs = _of_repair(asked, y, s, q)
    target = 0.0 if len(asked.classes) else float(_sum(s, y)[0])
    of_class = _of_class(asked, y, s)
    more = (ups, downs, (mark,))
    return FirstSums(len(s), float(s.sum()), float(s.min()), of_class, target, *more)


def _of_repair(asked: StatedRows, y: Array, s: Array, q: Array) -> tuple[Array, Array]:
    """Sums from which the repair follows, by its kind."""
    row, loss = losses.row_of(asked.stated.loss), asked.stated.loss
    match row.repair:
        case "centre":
            return _sum(s, q), np.zeros(1)
        case "mix":
            return _sum(s, one_hot(y, loss.n_classes)), _sum(s, q)
        case "rescale":
            return _sum(s, row.rest(loss, y)), _sum(s, q)
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
    if row.repair == "rescale":
        up, down = float(ups[0]), float(downs[0])
        return BlockRepair("rescale", factor=up / down if down > 0 else 1.0)
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
        case "rescale":
            return repair.factor * q
    return q


# -- the pass -------------------------------------------------------------------------


def both_sums(
    block: Any, asked: StatedRows, repair: BlockRepair
) -> tuple[FirstSums, SecondSums]:
    """The sums of one block at the slopes, moved by the repair."""
    X, y, s = rows_read(block, asked)
    loss = asked.stated.loss
    if not len(s):
        return _nothing(asked, _mark(asked, X, y, s, np.zeros(0)))
    row, space, kept = losses.row_of(loss), _space(asked, X, s), {}
    k = asked.w.shape[1]

    def vectors(rows: slice, z: Array) -> Array:
        score, natural = _natural(asked, y[rows], z[:, :k], repair.stretch)
        q = _repaired(asked, repair, y[rows], natural)
        u = row.slope_of(loss, y[rows], q)
        kept[rows.start] = score, natural, q, u
        return np.column_stack([u, np.ones(len(u))])

    probe = np.zeros(len(asked.w))
    probe[: block.X.shape[1]] = fingerprints.direction(block.X.shape[1])
    w, b = np.column_stack([asked.w, probe]), np.append(asked.b, 0.0)
    seen = space.look(w, b, vectors, k)
    mark = _mark(asked, X, y, s, seen.z[:, k])
    starts = sorted(i for i in kept if len(kept[i][0]))
    parts = [np.concatenate([kept[i][j] for i in starts]) for j in range(4)]
    score, natural, q, u = parts
    first = _first(asked, mark, y, s, natural)
    total = space.n if space.even else space.total
    # ``look`` divides by Σs, or by n where all weights are equal.
    V = seen.V * (total if not space.even else total * float(s[0]))
    squares = np.square(space.norms) * first.weight
    u = u.reshape(len(s), k)
    sums = (_sum(s, u), _sum(s, np.abs(u)), _sum(s, np.square(u)))
    more: dict[str, Any] = {"ones": V[:, k]}
    more |= _plain_sums(asked, y, s, score, q, u) | _of_target(asked, y, s, q, score)
    return first, SecondSums(space.depth, V[:, :k], squares, *sums, **more)


def _nothing(asked: StatedRows, mark: dict[str, Any]) -> tuple[FirstSums, SecondSums]:
    """Of a block whose rows all have weight zero."""
    (d, k), m = asked.w.shape, len(asked.classes)
    none = np.zeros(1 if losses.row_of(asked.stated.loss).repair != "mix" else k)
    first = FirstSums(0, 0.0, math.inf, np.zeros(m), 0.0, none, none, (mark,))
    zero = np.zeros(k)
    plain: dict[str, Any] = dict.fromkeys(SecondSums._fields[6:], 0.0)
    plain |= {"ones": np.zeros(d)}
    sums = (np.zeros((d, k)), np.zeros(d), zero, zero, zero)
    return first, SecondSums(1, *sums, **plain)


def _plain_sums(
    asked: StatedRows, y: Array, s: Array, score: Array, q: Array, u: Array
) -> dict[str, float]:
    row, loss = losses.row_of(asked.stated.loss), asked.stated.loss
    slope = row.slope(loss, y, score).reshape(u.shape)
    excess, noise = row.excess(loss, y, score, q)
    spread = np.ptp(score, axis=1) if score.ndim == 2 else np.abs(score)
    found = {
        "z2": np.square(score),
        "slope2": np.square(slope),
        "apart2": np.square(slope - u),
        "excess": excess,
        "noise": noise,
        "level": row.value(loss, y, score),
        "spread": spread,
    }
    far = np.zeros(len(y), dtype=bool)
    if isinstance(loss, t.Huber):
        far = np.abs(y - score) > loss.threshold
    found["out"] = far.astype(float)
    sums = {name: float(_sum(s, a).sum()) for name, a in found.items()}
    return sums | {"far": float(np.count_nonzero(far))}


def _of_target(
    asked: StatedRows, y: Array, s: Array, q: Array, score: Array
) -> dict[str, float]:
    """Sums of the target, of its loss at a constant, and of losses that rescale."""
    row, loss = losses.row_of(asked.stated.loss), asked.stated.loss
    numbers = not len(asked.classes)
    plain = y.astype(float) if numbers else np.ones(len(y))
    centre = math.exp(asked.still) if row.bend == "exponential" else asked.still
    off = plain - centre
    found = {"y2": np.square(plain), "off": off, "off1": np.abs(off)}
    found["off2"] = np.square(off)
    names = ("still", "q", "rest", "q2", "curve2")
    found |= dict.fromkeys(names, np.zeros(len(y)))
    if numbers:
        found["still"] = row.value(loss, y, np.full(len(y), asked.still))
    top = 0.0
    if row.repair == "rescale":
        curve = row.curvature(loss, y, score)
        top = float(curve.max(initial=0.0))
        found |= {"q": q, "rest": row.rest(loss, y), "q2": np.square(q)}
        found["curve2"] = np.square(curve)
    return {name: float(_sum(s, a).sum()) for name, a in found.items()} | {"top": top}


def join_second(a: SecondSums, b: SecondSums) -> SecondSums:
    """The sums of both sets of rows."""
    pairs: Any = zip(a, b, strict=True)
    most = {name: max(getattr(a, name), getattr(b, name)) for name in ("depth", "top")}
    return SecondSums(*(x + y for x, y in pairs))._replace(**most)


def join_both(a: Any, b: Any) -> Any:
    """Both kinds of sums, of both sets of rows."""
    return join_first(a[0], b[0]), join_second(a[1], b[1])


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


def _mark(
    asked: StatedRows, X: Array, y: Array, s: Array, projected: Array
) -> dict[str, Any]:
    penalised = asked.stated.intercept == "penalised"
    return mark_of(X[:, :-1] if penalised else X, y, s, projected)


def mark_of(X: Array, y: Array, s: Array, projected: Array) -> dict[str, Any]:
    """The fingerprint of a block; ``projected`` is X @ direction."""
    top = float(np.abs(projected).max(initial=0.0))
    if not np.isfinite(top):
        reading.refuse_holes(X)
    found = fingerprints.of_table(X, y.astype(float), s, projected, top)
    return {name: found[name] for name in ("x", "x_scale", "y", "s", "weight")}


def centred(x: SecondSums, weight: float) -> SecondSums:
    """The sums of the squared loss at u − mean u, which is linear in what was added up.

    Its excess there is half the square of that mean; norms are bounds from above, but
    Σs|u|, which divides.
    """
    c, k = x.u / weight, len(x.u)
    size = np.abs(c)
    more = weight * float(size @ size)
    return x._replace(
        pulled=x.pulled - np.multiply.outer(x.ones, c),
        u=np.full(k, 2.0**-44) * (x.size_u + size * weight),
        size_u=np.maximum(x.size_u - size * weight, 0.0),
        u2=np.square(np.sqrt(x.u2) + size * math.sqrt(weight)),
        apart2=(math.sqrt(x.apart2) + math.sqrt(more)) ** 2,
        excess=(math.sqrt(x.excess) + math.sqrt(more / 2)) ** 2,
    )


def marks_of(
    marks: tuple[dict[str, Any], ...], shape: tuple[int, int], dtype: str, weight: float
) -> dict[str, Any]:
    """The fingerprint of all rows, and that of each block."""
    order = 1 + np.arange(len(marks)) * 0.6180339887498949 % 1.0

    def along(name: str) -> float:
        return float(order @ [mark[name] for mark in marks])

    blocks = [[mark[name] for name in ("x", "y", "s")] for mark in marks]
    found = {"shape": [int(size) for size in shape], "dtype": dtype, "weight": weight}
    found |= {"x": along("x"), "y": along("y"), "s": along("s"), "blocks": blocks}
    return found | {"x_scale": max(mark["x_scale"] for mark in marks)}
