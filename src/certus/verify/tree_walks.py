"""Walks through trees in plain NumPy, boxes of leaves, ranges and monotonicity.

A leaf's box is where rows must lie to reach it: per column an interval (low, high], and
whether NaN reaches it; for a column of categories, which codes do. The range of a sum
of trees on a box lies within the sum of each tree's range over the leaves it can reach.

**Monotone in column j.** Scores change with x_j at thresholds of column j only. At a
threshold t, trees without it keep their leaf, so

    Δ_t(x) = Σ over trees with the threshold t of value(just above t) − value(at t)

and the scores rise everywhere if and only if Δ_t(x) ≥ 0 for every t and x. Each tree
gives pairs of leaves that meet at t; pairs of several trees are joined where their
boxes meet. If the joins are too many, the sum of the smallest differences is a lower
bound.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus.typing import Array
from certus.verify.deciding import gamma
from certus.verify.tree_reading import Forest, Nodes

#: Most leaves of a tree, and most joins at a threshold, that are compared.
MOST_LEAVES, MOST_JOINS = 2048, 20_000


def leaves_of(tree: Nodes, X: Array, strict: bool = False) -> Array:
    """The leaf of each row."""
    at = np.zeros(len(X), dtype=np.intp)
    active = np.flatnonzero(tree.feature[at] >= 0)
    while len(active):
        node = at[active]
        x = X[active, tree.feature[node]]
        goes = x < tree.cut[node] if strict else x <= tree.cut[node]
        for each in np.unique(node) if tree.sets else ():
            if int(each) in tree.sets:
                here = node == each
                goes[here] = _in_set(*tree.sets[int(each)], x[here])
        goes = np.where(np.isnan(x), tree.nan_left[node], goes)
        at[active] = np.where(goes, tree.left[node], tree.right[node])
        active = active[tree.feature[at[active]] >= 0]
    return at


def _in_set(table: Array, other: bool, x: Array) -> Array:
    inside = (x > -1) & (x < len(table))
    codes = np.where(inside, x, 0).astype(np.intp)
    return np.where(inside, table[codes] if len(table) else other, other)


def add_leaf(forest: Forest, t: int, leaf: Array, scores: Array) -> None:
    """Add what tree t says to the scores."""
    value = forest.trees[t].value[leaf]
    if forest.output[t] < 0:
        scores += value
    else:
        scores[:, forest.output[t]] += value[:, 0]


def scores_of(forest: Forest, X: Array) -> tuple[Array, Array]:
    """Scores of the rows, and the sums of sizes that rounding is measured by."""
    k = len(forest.start)
    total, sizes = np.zeros((len(X), k)), np.zeros((len(X), k))
    for t, tree in enumerate(forest.trees):
        leaf = leaves_of(tree, X, forest.strict)
        add_leaf(forest, t, leaf, total)
        sized = forest._replace(trees=[tree._replace(value=np.abs(tree.value))])
        add_leaf(sized._replace(output=[forest.output[t]]), 0, leaf, sizes)
    start = forest.start
    return start + total / forest.divisor, np.abs(start) + sizes / forest.divisor


# -- boxes ------------------------------------------------------------------------


class LeafBoxes(NamedTuple):
    """Of the leaves of a tree: (leaves, columns) for the columns that it splits."""

    leaves: Array
    columns: Array
    low: Array
    high: Array
    nan: Array
    codes: dict[int, Array]  # by place of a column: (leaves, codes + 1), the rest last


def boxes_of(tree: Nodes, strict: bool = False, single: bool = False) -> LeafBoxes:
    """The boxes; cuts of a strict comparison as the next smaller number."""
    columns = np.unique(tree.feature[tree.feature >= 0])
    at = {int(c): i for i, c in enumerate(columns)}
    wide = {
        at[int(tree.feature[i])]: max(
            len(tree.sets[j][0])
            for j in tree.sets
            if tree.feature[j] == tree.feature[i]
        )
        for i in tree.sets
    }
    d, found = len(columns), []
    whole = (
        np.full(d, -np.inf),
        np.full(d, np.inf),
        np.ones(d, dtype=bool),
        {i: np.ones(n + 1, dtype=bool) for i, n in wide.items()},
    )
    todo: list[tuple[int, Any]] = [(0, whole)]
    while todo:
        node, box = todo.pop()
        if tree.feature[node] < 0:
            found.append((node, *box))
            continue
        for left in (True, False):
            child = int((tree.left if left else tree.right)[node])
            cut = _cut(tree.cut[node], strict, single)
            todo.append((child, _part(box, tree, node, at, cut, left)))
    found = [each for each in found if _possible(each)]
    codes = {i: np.array([each[4][i] for each in found]) for i in wide}
    stacked = (np.array([each[i] for each in found]) for i in (1, 2, 3))
    low, high, nan = (each.reshape(len(found), d) for each in stacked)
    places = np.array([each[0] for each in found], dtype=np.intp)
    return LeafBoxes(places, columns, low, high, nan, codes)


def _cut(cut: float, strict: bool, single: bool) -> float:
    if not strict:
        return float(cut)
    kind = np.float32 if single else np.float64
    return float(np.nextafter(kind(cut), kind(-np.inf)))


def _part(
    box: Any, tree: Nodes, node: int, at: dict[int, int], cut: float, left: bool
) -> Any:
    low, high, nan, codes = box
    i = at[int(tree.feature[node])]
    low, high, nan, codes = low.copy(), high.copy(), nan.copy(), dict(codes)
    nan[i] &= bool(tree.nan_left[node]) is left
    if node in tree.sets:
        table, other = tree.sets[node]
        every = np.full(len(codes[i]), other)
        every[: len(table)] = table
        codes[i] = codes[i] & (every if left else ~every)
    elif left:
        high[i] = min(high[i], cut)
    else:
        low[i] = max(low[i], cut)
    return low, high, nan, codes


def _possible(found: Any) -> bool:
    """Whether some row reaches the leaf."""
    _, low, high, nan, codes = found
    some = (low < high) | nan
    for i, each in codes.items():
        some[i] = each.any() or nan[i]
    return bool(some.all())


# -- ranges -----------------------------------------------------------------------


def range_of(forest: Forest) -> tuple[Array, Array]:
    """Bounds of all scores that rows can have."""
    k = len(forest.start)
    least, most, size = np.zeros(k), np.zeros(k), np.zeros(k)
    for t, tree in enumerate(forest.trees):
        value = tree.value[tree.feature < 0]
        where = slice(None) if forest.output[t] < 0 else [forest.output[t]]
        least[where] += value.min(axis=0)
        most[where] += value.max(axis=0)
        size[where] += np.abs(value).max(axis=0)
    slack = gamma(len(forest.trees) + 4) * (
        size / forest.divisor + np.abs(forest.start)
    )
    least = forest.start + least / forest.divisor - slack
    return least, forest.start + most / forest.divisor + slack


# -- monotone ---------------------------------------------------------------------


class Step(NamedTuple):
    """Leaves that meet at a threshold: the change, and the box of the other columns.

    The change is exactly ``change`` + ``rest``: a difference, and what it lost by
    rounding. Pairs of them are in the order of the exact changes.
    """

    change: float
    rest: float
    box: dict[int, tuple[float, float, bool, Array | None]]


def steps_of(
    tree: Nodes, forest: Forest, column: int, sign: int, output: int
) -> dict[float, list[Step]]:
    """By threshold: every pair of leaves of the tree that meet there."""
    boxes = boxes_of(tree, forest.strict, forest.single)
    found: dict[float, list[Step]] = {}
    place = np.flatnonzero(boxes.columns == column)
    if not len(place):
        return found
    j = int(place[0])
    value = sign * tree.value[boxes.leaves, output]
    for cut in np.unique(boxes.high[np.isfinite(boxes.high[:, j]), j]):
        below = np.flatnonzero((boxes.low[:, j] < cut) & (cut <= boxes.high[:, j]))
        above = np.flatnonzero((boxes.low[:, j] <= cut) & (cut < boxes.high[:, j]))
        a, b = (each.ravel() for each in np.meshgrid(below, above, indexing="ij"))
        meet = _meeting(boxes, a, b, j)
        pairs = zip(a[meet], b[meet])
        found[float(cut)] = [
            Step(*_difference(value[q], value[p]), _shared(boxes, p, q, j))
            for p, q in pairs
        ]
    return found


def _difference(a: float, b: float) -> tuple[float, float]:
    """A − b as a number and its rounding error, exactly (Knuth's two-sum)."""
    a, b = float(a), float(-b)
    found = a + b
    back = found - a
    return found, (a - (found - back)) + (b - back)


def _meeting(boxes: LeafBoxes, a: Array, b: Array, j: int) -> Array:
    """Which pairs of leaves have rows that differ in column j only."""
    low = np.maximum(boxes.low[a], boxes.low[b])
    high = np.minimum(boxes.high[a], boxes.high[b])
    holes = boxes.nan[a] & boxes.nan[b]
    some = (low < high) | holes
    for i, table in boxes.codes.items():
        some[:, i] = (table[a] & table[b]).any(axis=1) | holes[:, i]
    some[:, j] = True
    return np.asarray(some.all(axis=1))


def _shared(boxes: LeafBoxes, a: int, b: int, j: int) -> dict[int, Any]:
    kept: dict[int, Any] = {}
    for i, column in enumerate(boxes.columns):
        if i == j:
            continue
        codes = boxes.codes[i][a] & boxes.codes[i][b] if i in boxes.codes else None
        low = float(max(boxes.low[a, i], boxes.low[b, i]))
        high = float(min(boxes.high[a, i], boxes.high[b, i]))
        kept[int(column)] = (low, high, bool(boxes.nan[a, i] & boxes.nan[b, i]), codes)
    return kept


def _joined(one: dict[int, Any], two: dict[int, Any]) -> dict[int, Any] | None:
    """The box of both, or None where no row is in it."""
    both = dict(one)
    for column, (low, high, nan, codes) in two.items():
        if column in both:
            low0, high0, nan0, codes0 = both[column]
            low, high, nan = max(low, low0), min(high, high0), nan and nan0
            if codes is not None and codes0 is not None:
                n = max(len(codes), len(codes0)) - 1
                codes = _widened(codes, n) & _widened(codes0, n)
            else:
                codes = codes0 if codes is None else codes
        some = low < high if codes is None else bool(codes.any())
        if not (some or nan):
            return None
        both[column] = (low, high, nan, codes)
    return both


def _widened(codes: Array, n: int) -> Array:
    """A table of n codes, and a last entry that stands for the rest."""
    rest = np.full(n - len(codes) + 1, codes[-1])
    return np.concatenate([codes[:-1], rest, codes[-1:]])


class Fall(NamedTuple):
    """The worst change at a threshold, where it is; ``exact`` if it is attained."""

    change: float
    cut: float
    box: dict[int, Any]
    exact: bool


def worst_step(forest: Forest, column: int, sign: int, output: int) -> Fall | None:
    """The smallest Δ_t(x) over all thresholds; None if a tree is too large."""
    by_cut: dict[float, list[list[Step]]] = {}
    for t, tree in enumerate(forest.trees):
        if forest.output[t] not in (-1, output) or column not in tree.feature:
            continue
        if int((tree.feature < 0).sum()) > MOST_LEAVES:
            return None
        value = output if forest.output[t] < 0 else 0
        for cut, steps in steps_of(tree, forest, column, sign, value).items():
            by_cut.setdefault(cut, []).append(steps)
    falls = [_least(trees, cut) for cut, trees in by_cut.items()]
    falls = [fall for fall in falls if fall.change < 0]
    sure = [fall for fall in falls if fall.exact] or falls
    return min(
        sure, key=lambda fall: fall.change, default=Fall(0.0, math.nan, {}, True)
    )


def _least(trees: list[list[Step]], cut: float) -> Fall:
    """The smallest sum of changes at one threshold; sums have the right sign."""
    floors = [min((step[:2] for step in steps), default=(0.0, 0.0)) for steps in trees]
    if _sum(floors) >= 0:
        return Fall(0.0, cut, {}, False)
    best, seen = Fall(0.0, cut, {}, True), 0
    todo: list[tuple[list[tuple[float, float]], dict[int, Any]]] = [([], {})]
    while todo:
        changes, box = todo.pop()
        if len(changes) == len(trees):
            if _sum(changes) < best.change:
                best = Fall(_sum(changes), cut, box, True)
            continue
        for step in trees[len(changes)]:
            path = [*changes, step[:2]]
            if _sum([*path, *floors[len(path) :]]) >= best.change:
                continue
            seen += 1
            if seen > MOST_JOINS:
                return Fall(_sum(floors), cut, {}, False)
            both = _joined(box, step.box)
            if both is not None:
                todo.append((path, both))
    return best


def _sum(changes: list[tuple[float, float]]) -> float:
    """The exact sum, rounded once: its sign is right."""
    return math.fsum(part for change in changes for part in change)


def two_points(
    fall: Fall, column: int, width: int, single: bool = False
) -> tuple[Array, Array]:
    """Rows that differ in one column, at a threshold and directly above it."""
    row = np.zeros(width)
    for c, (low, high, nan, codes) in fall.box.items():
        if codes is not None and codes.any():
            row[c] = float(np.flatnonzero(codes)[0])
        elif low < high:
            row[c] = (
                _under(high, single) if math.isfinite(high) else max(low + 1.0, 0.0)
            )
        else:
            row[c] = math.nan if nan else 0.0
    first, second = row.copy(), row.copy()
    kind = np.float32 if single else np.float64
    first[column] = _under(fall.cut, single)
    second[column] = float(np.nextafter(kind(first[column]), kind(np.inf)))
    return first, second


def _under(cut: float, single: bool) -> float:
    """The largest number of the rows' precision that is at most the cut."""
    near = np.float32(cut) if single else np.float64(cut)
    return float(near if near <= cut else np.nextafter(near, type(near)(-np.inf)))
