"""Rows whose class no allowed change alters, for tree ensembles.

Over the box of allowed rows each tree reaches some of its leaves. For the margin m of
the class y over a rival j,

    min m ≥ Σ over trees of the smallest (v_y − v_j) among the leaves it reaches

which is the minimum itself if the trees share no column. If that sum is not positive,
leaves of all trees are combined, as long as their boxes meet: the smallest sum is the
minimum, and the search stops after a number of combinations without a claim. The box of
radius r is the ball of the largest coordinate (l∞). It holds the ball of every other
norm and is larger, so there the proof is a lower bound: rows that it leaves out may
keep their class in the ball.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from certus.typing import Array, Fit, ThreatLike
from certus.verify import stating, trees
from certus.verify.deciding import gamma
from certus.verify.reach import box
from certus.verify.robustness import Proof, unproved
from certus.verify.tree_reading import Forest
from certus.verify.tree_walks import LeafBoxes, boxes_of

#: Combinations of leaves that are tried for one row.
MOST = 3000
_EXACT = "exact, because all combinations of leaves were tried"
_BOUND = "from the leaves that each tree can reach"
_OUTSIDE = f"{_BOUND} in the box around the ball of the norm, which is larger"


class _Part(NamedTuple):
    """A tree with the boxes of its leaves, and its values by leaf and class."""

    boxes: LeafBoxes
    value: Array
    size: float


def prove_trees(
    model: Fit,
    X: Array,
    y: Array,
    threat: ThreatLike,
    radii: Sequence[float],
    deadline: float = math.inf,
) -> Proof:
    """Rows whose class no allowed change alters, at each of several radii.

    Parameters
    ----------
    model : fitted classifier
        Of certus, scikit-learn, LightGBM or XGBoost, with trees of numbers.
    X, y : ndarray
        Rows and class numbers, as the model predicts them.
    threat : ThreatModel
        What is allowed, but for the radius.
    radii : sequence of float
        Ascending.
    deadline : float
        Of ``time.perf_counter``; what is not proved by then is not claimed.
    """
    try:
        forest = stating.state(model, trees.READERS).read(model)
    except stating.Refusal as refusal:
        return unproved(f"nothing is proved: {refusal.reason}", radii, X)
    if any(tree.sets for tree in forest.trees):
        reason = "nothing is proved: categories have no distance"
        return unproved(reason, radii, X)
    parts = _merged([_part(forest, t) for t in range(len(forest.trees))])
    found = np.zeros((len(radii), len(X)), dtype=bool)
    exact, X = True, np.asarray(X, dtype=np.float64)
    is_box = threat.norm == math.inf
    bound = _BOUND if is_box else _OUTSIDE
    for i in range(len(X)):
        for r, radius in enumerate(radii):
            if time.perf_counter() > deadline:
                return Proof(found, bound, complete=False)
            low, high = (end[0] for end in box(threat, X[i : i + 1], radius))
            if forest.single:  # rounding keeps the order
                low, high = (np.float32(end).astype(float) for end in (low, high))
            passed, sure = _holds(forest, parts, low, high, int(y[i]))
            exact &= sure and (is_box or passed)
            found[r, i] = passed
            if not passed:  # nor at a larger radius
                break
    return Proof(found, _EXACT if exact else bound)


def _part(forest: Forest, t: int) -> _Part:
    """Values by class: of two classes with one score, that of the first is 0."""
    tree, k = forest.trees[t], max(2, len(forest.start))
    boxes = boxes_of(tree, forest.strict, forest.single)
    real = (boxes.low < boxes.high).all(axis=1)  # others are for missing cells alone
    boxes = boxes._replace(
        leaves=boxes.leaves[real], low=boxes.low[real], high=boxes.high[real]
    )
    value = np.zeros((len(boxes.leaves), k))
    if forest.output[t] < 0:
        value[:] = tree.value[boxes.leaves]
    else:
        at = 1 if len(forest.start) == 1 else forest.output[t]
        value[:, at] = tree.value[boxes.leaves, 0]
    value /= forest.divisor
    return _Part(boxes, value, float(np.abs(value).max()))


def _merged(parts: list[_Part]) -> list[_Part]:
    """Trees that compare the same single column as one tree: a sum for each cell."""
    alone: dict[int, list[_Part]] = {}
    kept = []
    for part in parts:
        if len(part.boxes.columns) == 1:
            alone.setdefault(int(part.boxes.columns[0]), []).append(part)
        else:
            kept.append(part)
    for column, group in alone.items():
        ends = np.concatenate([part.boxes.high[:, 0] for part in group])
        high = np.unique([*ends, np.inf])
        low = np.concatenate([[-np.inf], high[:-1]])
        value = np.zeros((len(high), group[0].value.shape[1]))
        for part in group:
            inside = part.boxes.low[:, 0] < high[:, None]
            inside &= high[:, None] <= part.boxes.high[:, 0]
            value += part.value[inside.argmax(axis=1)]
        sides = (low[:, None], high[:, None], np.zeros((len(high), 1), dtype=bool))
        cells = LeafBoxes(np.arange(len(high)), np.array([column]), *sides, {})
        kept.append(_Part(cells, value, sum(part.size for part in group)))
    return kept


def _holds(
    forest: Forest, parts: list[_Part], low: Array, high: Array, y: int
) -> tuple[bool, bool]:
    """Whether class y stays ahead of every other one; and whether that is exact."""
    start = forest.start if len(forest.start) > 1 else np.array([0.0, forest.start[0]])
    reached = [_reached(part.boxes, low, high) for part in parts]
    for j in range(len(start)):
        if j == y:
            continue
        margins = [p.value[at, y] - p.value[at, j] for p, at in zip(parts, reached)]
        size = sum(part.size for part in parts) + float(np.abs(start).max())
        unit = 2.0**-23 / 2.0**-52 if forest.sums32 else 1.0
        lost = (
            4 * unit * gamma(len(forest.trees) + 8) * size
            + 2.0**-20 * (unit > 1)
            + 1e-14
        )
        base = float(start[y] - start[j])
        if base + math.fsum(float(m.min()) for m in margins) > lost:
            continue
        falls = _falls(parts, reached, margins, (low, high), lost - base)
        if falls is not False:
            return False, falls is True
    return True, True


def _reached(boxes: LeafBoxes, low: Array, high: Array) -> Array:
    lo, hi = low[boxes.columns], high[boxes.columns]
    return np.flatnonzero(((boxes.low < hi) & (lo <= boxes.high)).all(axis=1))


def _falls(
    parts: list[_Part],
    reached: list[Array],
    margins: list[Array],
    ends: tuple[Array, Array],
    enough: float,
) -> bool | None:
    """Whether leaves whose boxes meet have a sum of at most ``enough``; None: too many.

    A box is open below and closed above; branches that cannot fall so far are cut off.
    """
    several = [i for i, at in enumerate(reached) if len(at) > 1]
    several.sort(key=lambda i: -float(np.ptp(margins[i])))
    fixed = math.fsum(float(m[0]) for m in margins if len(m) == 1)
    rest = [0.0]
    for i in reversed(several):
        rest.append(rest[-1] + float(margins[i].min()))
    rest.reverse()
    low, seen = ends[0], 0
    todo = [(0, fixed, np.full(len(low), -np.inf), ends[1])]
    while todo:
        depth, total, under, high = todo.pop()
        if depth == len(several):
            return True
        i = several[depth]
        boxes, at, margin = parts[i].boxes, reached[i], margins[i]
        c = boxes.columns
        for leaf in np.argsort(-margin):  # the smallest is looked at first
            if total + margin[leaf] + rest[depth + 1] > enough:
                continue
            seen += 1
            if seen > MOST:
                return None
            a, h = under.copy(), high.copy()
            a[c] = np.maximum(a[c], boxes.low[at[leaf]])
            h[c] = np.minimum(h[c], boxes.high[at[leaf]])
            if ((a[c] < h[c]) & (low[c] <= h[c])).all():
                todo.append((depth + 1, total + float(margin[leaf]), a, h))
    return False
