"""The range of the scores of a tree ensemble over a box of rows.

The sum of the smallest leaves that each tree can reach in the box is a bound. Trees
that split the same single column are added first, cell by cell. Then leaves of
several trees are joined where their boxes meet, the smallest first: the first complete
join is a score that is attained; where the search ends before its limit, it is the
smallest of all.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus.typing import Array, Fit
from certus.verify import tree_reading, tree_walks
from certus.verify.deciding import gamma
from certus.verify.tree_reading import Forest
from certus.verify.tree_walks import LeafBoxes, boxes_of

#: Leaves that are tried for one end of a range.
MOST = 20_000


class RowBox(NamedTuple):
    """Ends of the columns, as the trees see them, and where NaN is possible."""

    low: Array
    high: Array
    holes: Array


class ReachedLeaves(NamedTuple):
    """Leaves of one tree, or cells of several, that rows of the box can reach."""

    boxes: LeafBoxes
    value: Array


class _Where(NamedTuple):
    """Rows that reach the leaves chosen so far: (low, high], codes, and NaN."""

    low: Array
    high: Array
    nan: Array
    codes: dict[int, Array]


def box_for(model: Fit, forest: Forest, low: Any, high: Any, missing: Any) -> RowBox:
    """The box in the numbers that the trees compare."""
    d = int(model.n_features_in_)
    ends = [np.broadcast_to(np.asarray(e, dtype=float), (d,)) for e in (low, high)]
    holes = np.array(np.broadcast_to(np.asarray(missing, dtype=bool), (d,)))
    if forest.single:  # rounding keeps the order
        with np.errstate(over="ignore"):
            ends = [end.astype(np.float32).astype(float) for end in ends]
    low, high = (end.copy() for end in ends)
    for j, labels in tree_reading.levels_of(model).items():
        free = low[j] == -np.inf and high[j] == np.inf
        numbers = all(isinstance(each, int | float) for each in labels)
        if not (free or numbers):
            raise ValueError(
                f"Column {j} holds categories that are not numbers, so that low and "
                "high must be infinite there."
            )
        codes = [
            c for c, each in enumerate(labels) if free or low[j] <= each <= high[j]
        ]
        holes[j] |= low[j] < high[j] or not codes  # a value that the fit has not seen
        low[j], high[j] = (codes[0], codes[-1]) if codes else (1.0, 0.0)
    return RowBox(low, high, holes)


def ends_of(
    forest: Forest, box: RowBox
) -> list[tuple[float, float, float, float, bool]]:
    """By output: two bounds, two scores of rows of the box, and whether they agree."""
    found = []
    for k in range(len(forest.start)):
        trees = [t for t, o in enumerate(forest.output) if o in (-1, k)]
        parts, size = [], abs(float(forest.start[k]))
        for t in trees:
            part = _part(forest, t, k, box)
            size += float(np.abs(part.value).max())
            parts.append(part)
        parts = _merged(parts)
        slack = gamma(len(trees) + len(parts) + 8) * size
        start = float(forest.start[k])
        ends = []
        for sign in (1.0, -1.0):
            signed = [part._replace(value=sign * part.value) for part in parts]
            bound, at = _least(signed, box)
            row = _row(at, box)
            reached = float(tree_walks.scores_of(forest, row[None])[0][0, k])
            ends.append((start + sign * bound - sign * slack, reached))
        (bottom, least), (top, most) = ends
        exact = max(top - most, least - bottom) <= 3 * slack
        found.append((bottom, top, least, most, exact))
    return found


def _part(forest: Forest, t: int, k: int, box: RowBox) -> ReachedLeaves:
    """The leaves of a tree that rows of the box reach."""
    tree = forest.trees[t]
    boxes = boxes_of(tree, forest.strict, forest.single)
    c = boxes.columns
    holes = boxes.nan & box.holes[c]
    some = _meets(boxes.low, np.minimum(boxes.high, box.high[c]), box.low[c]) | holes
    for i, table in boxes.codes.items():
        inside = _allowed(table.shape[1], box.low[c[i]], box.high[c[i]])
        some[:, i] = (table & inside).any(axis=1) | holes[:, i]
    at = np.flatnonzero(some.all(axis=1))
    value = tree.value[boxes.leaves[at], k if forest.output[t] < 0 else 0]
    return ReachedLeaves(_chosen(boxes._replace(nan=holes), at), value / forest.divisor)


def _meets(low: Any, high: Any, least: Any) -> Any:
    """Whether (low, high] meets [least, ∞]; from −∞ on, −∞ itself belongs to it."""
    return ((low < high) | (low == -np.inf)) & (least <= high)


def _chosen(boxes: LeafBoxes, at: Array) -> LeafBoxes:
    rest = (boxes.low[at], boxes.high[at], boxes.nan[at])
    codes = {i: table[at] for i, table in boxes.codes.items()}
    return LeafBoxes(boxes.leaves[at], boxes.columns, *rest, codes)


def _allowed(size: int, low: float, high: float) -> Array:
    """Which codes lie in the box; the last entry stands for all other numbers."""
    found = np.zeros(size, dtype=bool)
    if low > high:
        return found
    n = size - 1  # codes between −1 and 0 count as 0
    first = 0 if low <= -1 else math.trunc(min(low, n))
    last = -1 if high <= -1 else math.trunc(min(high, n))
    found[first : last + 1] = True
    found[-1] = low <= -1 or high >= n
    return found


def _merged(parts: list[ReachedLeaves]) -> list[ReachedLeaves]:
    """Trees that split the same column of numbers, and no other, as one."""
    alone: dict[int, list[ReachedLeaves]] = {}
    kept: list[ReachedLeaves] = []
    for part in parts:
        single = len(part.boxes.columns) == 1 and not part.boxes.codes
        where = alone.setdefault(int(part.boxes.columns[0]), []) if single else kept
        where.append(part)
    for column, group in alone.items():
        both = [end[:, 0] for p in group for end in (p.boxes.low, p.boxes.high)]
        ends = np.unique(np.concatenate(both))
        cells = [*zip(ends[:-1], ends[1:], [False] * len(ends)), (1.0, 0.0, True)]
        value, known = np.zeros(len(cells)), np.ones(len(cells), dtype=bool)
        for part in group:
            b = part.boxes
            inside = b.low[:, 0] <= ends[:-1, None]
            inside &= ends[1:, None] <= b.high[:, 0]
            inside = np.concatenate([inside, b.nan[:, :1].T])
            known &= inside.any(axis=1)
            value += part.value[inside.argmax(axis=1)]
        left, right, nan = (np.array(each)[known][:, None] for each in zip(*cells))
        places = np.flatnonzero(known)
        boxes = LeafBoxes(places, np.array([column]), left, right, nan > 0, {})
        kept.append(ReachedLeaves(boxes, value[known]))
    return kept


# -- the search ---------------------------------------------------------------------


def _least(parts: list[ReachedLeaves], box: RowBox) -> tuple[float, _Where]:
    """A lower bound of the sum, and rows that reach a small one, if not the smallest.

    Depth first, the smallest leaf first; branches that cannot win are cut off.
    """
    parts = sorted(parts, key=lambda part: -float(np.ptp(part.value)))
    rest = [0.0]
    for part in reversed(parts):
        rest.append(rest[-1] + float(part.value.min()))
    rest.reverse()
    start = _Where(np.full(len(box.low), -np.inf), box.high, box.holes, {})
    best, at, seen = math.inf, start, 0
    todo = [(0, 0.0, start)]
    while todo:
        depth, total, where = todo.pop()
        if depth == len(parts):
            if total < best:
                best, at = total, where
            continue
        part = parts[depth]
        for leaf in np.argsort(-part.value, kind="stable"):  # the smallest comes last
            reach = total + float(part.value[leaf])
            if reach + rest[depth + 1] >= best:
                continue
            seen += 1
            inside = _joined(where, part.boxes, leaf, box)
            if inside is not None:
                todo.append((depth + 1, reach, inside))
        if seen > MOST and best < math.inf:
            return rest[0], at
    return best, at


def _joined(where: _Where, boxes: LeafBoxes, leaf: int, box: RowBox) -> _Where | None:
    """Rows that reach one more leaf; None if there are none."""
    c = boxes.columns
    low = np.maximum(where.low[c], boxes.low[leaf])
    high = np.minimum(where.high[c], boxes.high[leaf])
    nan = where.nan[c] & boxes.nan[leaf]
    some = _meets(low, high, box.low[c]) | nan
    codes = where.codes
    for i, table in boxes.codes.items():
        column, mine = int(c[i]), table[leaf]
        known = codes.get(column, np.ones(1, dtype=bool))
        n = max(len(mine), len(known)) - 1
        both = _of_size(mine, n) & _of_size(known, n)
        both &= _allowed(n + 1, box.low[column], box.high[column])
        some[i] = both.any() or nan[i]
        codes = {**codes, column: both}
    if not some.all():
        return None
    found = _Where(where.low.copy(), where.high.copy(), where.nan.copy(), codes)
    found.low[c], found.high[c], found.nan[c] = low, high, nan
    return found


def _of_size(codes: Array, n: int) -> Array:
    """A table of n codes, and a last entry that stands for the rest."""
    rest = np.full(n - len(codes) + 1, codes[-1])
    return np.concatenate([codes[:-1], rest, codes[-1:]])


def _row(at: _Where, box: RowBox) -> Array:
    """One of these rows."""
    row = at.high.copy()
    for j in np.flatnonzero(np.isinf(row)).tolist():
        low = max(float(at.low[j]), float(box.low[j]))
        row[j] = (
            0.0 if low < 0 < row[j] else max(2 * low, low + 1) if row[j] > 0 else low
        )
    row[~_meets(at.low, at.high, box.low)] = math.nan
    for j, codes in at.codes.items():
        n, beyond = len(codes) - 1, min(-1.0, float(box.high[j]))
        if codes[:-1].any():
            row[j] = float(np.flatnonzero(codes[:-1])[0])
        elif codes[-1]:
            row[j] = (
                max(float(n), math.ceil(box.low[j])) if box.high[j] >= n else beyond
            )
        else:
            row[j] = math.nan
    return row
