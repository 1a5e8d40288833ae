"""The range of a model's scores over a box of inputs: of additive models and of trees.

For trees see ``tree_ranges``; the rest of this page is about additive models. Shapes
are constant on cells, so that finitely many points stand for the whole box: in each
column the lower end of the box and every edge inside it. Columns that share no pair are
independent; along a forest of pairs the extremes are found by dynamic programming,
exactly. Pairs that close a cycle are bounded by their own extremes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus.typing import Array
from certus.verify import tree_ranges, trees
from certus.verify.additive import READERS, Statement, cell_of
from certus.verify.kernel.spaces import gamma
from certus.verify.stating import known_class, state


class ScoreRange(NamedTuple):
    """All scores of the box lie in [low, high]; some rows reach ``least`` and ``most``.

    ``exact`` is True if both ranges agree up to rounding. For several classes each
    field is an array with an entry for every class.
    """

    low: Any
    high: Any
    least: Any
    most: Any
    exact: Any


def score_range(model: Any, low: Any, high: Any, missing: Any = False) -> ScoreRange:
    """The range of the scores over all rows between ``low`` and ``high``.

    For additive models of certus, and for trees of certus, scikit-learn, LightGBM and
    XGBoost. ``missing`` says, for all columns or for each, whether values may be NaN.
    """
    trees_known = known_class(model, trees.READERS) is not None
    stated: Any = state(model, {**READERS, **trees.READERS})
    ends = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
    if any(np.isnan(end).any() for end in ends) or (ends[0] > ends[1]).any():
        raise ValueError("low must not be above high, and neither may be NaN.")
    if trees_known:
        forest = stated.read(model)
        box = tree_ranges.box_for(model, forest, low, high, missing)
        return _together(tree_ranges.ends_of(forest, box))
    d = len(stated.categorical)
    low, high, holes = (np.broadcast_to(end, (d,)) for end in (*ends, missing))
    points = [_points(stated, j, low[j], high[j], holes[j]) for j in range(d)]
    return _together([_ends(stated, points, k) for k in range(len(stated.b))])


def _together(found: list[tuple[float, float, float, float, bool]]) -> ScoreRange:
    if len(found) == 1:
        return ScoreRange(*found[0])
    return ScoreRange(*(np.array(each) for each in zip(*found)))


def _ends(
    stated: Statement, points: list[Array], k: int
) -> tuple[float, float, float, float, bool]:
    """Bounds of one score, values that are attained, and whether they agree."""
    own, pairs, size = _tables(stated, points, k)
    rounds = gamma(len(stated.parts) + 4) * (size + abs(float(stated.b[k])))
    found = []
    for sign in (-1.0, 1.0):
        flipped = {key: sign * table for key, table in pairs.items()}
        most, reached = _most([sign * each for each in own], flipped)
        found.append((sign * most, sign * reached))
    b = float(stated.b[k])
    (bottom, least), (top, most) = found
    exact = top - most <= rounds and least - bottom <= rounds
    return b + bottom - rounds, b + top + rounds, b + least, b + most, exact


def _points(stated: Statement, j: int, low: float, high: float, missing: bool) -> Array:
    """Points of a column that stand for all of [low, high]."""
    axes = [
        axis
        for part in stated.parts
        for column, axis in zip(part.columns, part.axes)
        if column == j
    ]
    inner = [axis[(axis > low) & (axis <= high)] for axis in axes]
    found = np.unique(np.concatenate([np.array([low]), *inner]))
    if missing or (stated.categorical[j] and low < high):  # a value that is not known
        found = np.append(found, np.nan)
    return found


def _tables(
    stated: Statement, points: list[Array], k: int
) -> tuple[list[Array], Any, float]:
    """Values of the shapes at the points of each column, and at those of each pair."""
    own, pairs = [np.zeros(len(each)) for each in points], {}
    start, size, shapes = 0, 0.0, stated.w.reshape(-1, len(stated.b))[:, k]
    for part in stated.parts:
        count = math.prod(part.sizes)
        w = shapes[start : start + count].reshape(part.sizes)
        start += count
        at = [
            cell_of(points[j], axis, bool(stated.categorical[j]))
            for j, axis in zip(part.columns, part.axes)
        ]
        size += float(np.abs(w).max(initial=0.0))
        if len(at) == 1:
            own[part.columns[0]] = own[part.columns[0]] + w[at[0]]
        else:
            pairs[part.columns] = w[np.ix_(*at)]
    return own, pairs, size


def _most(own: list[Array], pairs: dict[Any, Array]) -> tuple[float, float]:
    """A bound of the largest sum, and a sum that is attained."""
    tree, rest = _forest(len(own), pairs)
    near: dict[int, list[tuple[int, Array]]] = {j: [] for j in range(len(own))}
    for a, b in tree:
        near[a].append((b, pairs[a, b]))
        near[b].append((a, pairs[a, b].T))
    bound, chosen = 0.0, [-1] * len(own)

    def below(j: int, parent: int) -> tuple[Array, list[Any]]:
        total, kept = own[j].copy(), []
        for child, table in near[j]:
            if child != parent:
                values, inner = below(child, j)
                sums = table + values
                total = total + sums.max(axis=1)
                kept.append((child, sums.argmax(axis=1), inner))
        return total, kept

    def settle(j: int, at: int, kept: list[Any]) -> None:
        chosen[j] = at
        for child, best, inner in kept:
            settle(child, int(best[at]), inner)

    for root in range(len(own)):
        if chosen[root] < 0:
            total, kept = below(root, -1)
            bound += float(total.max())
            settle(root, int(total.argmax()), kept)
    reached = sum(float(own[j][at]) for j, at in enumerate(chosen))
    reached += sum(
        float(table[chosen[a], chosen[b]]) for (a, b), table in pairs.items()
    )
    return bound + sum(float(pairs[key].max()) for key in rest), reached


def _forest(d: int, pairs: dict[Any, Array]) -> tuple[list[Any], list[Any]]:
    """Pairs that form a forest, and those that would close a cycle."""
    group, tree, rest = list(range(d)), [], []
    for a, b in pairs:
        if group[a] == group[b]:
            rest.append((a, b))
            continue
        old = group[b]
        group = [group[a] if each == old else each for each in group]
        tree.append((a, b))
    return tree, rest
