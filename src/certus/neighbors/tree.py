"""Neighbours in few dimensions: SciPy's k-d tree finds candidates.

Rows and queries are first sorted by the cells of a coarse grid, so that near rows are
stored together: the tree is built in half the time. It is asked for one neighbour more
than needed. Where the distances found are clearly apart, so is their order; elsewhere
rows are compared in their own order, and where the one too many is not clearly farther
a ball of that radius lists all rows in question, so that ties fall as in ``compare``.
O(n log n) to build; a query costs O(log n) in few dimensions and grows with the
dimension. Memory: one more copy of the rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from certus._core.threads import slices
from certus.base import thread_budget
from certus.neighbors import kernels
from certus.neighbors.compare import nearest
from certus.neighbors.metrics import NeighborMetric
from certus.typing import Array

#: Queries handled together.
SLAB = 1 << 15
#: Fewer queries are answered faster without starting a thread.
FEW = 256
#: Rows in a cell of the grid, on average.
CELL = 16
#: The tree's rounding in bounds of boxes, generously, as a share of a distance.
CLOSE = 1e-12
#: Where powers p of distances come near the smallest numbers they are not trusted.
VANISHING = 1e-280
#: Rows in the balls handled together.
ROOM = 1 << 21


class Tree(NamedTuple):
    """The tree, the rows as it has them, their names, and the grid that orders them."""

    tree: cKDTree
    rows: Array
    names: Array
    low: Array
    scale: Array
    parts: int

    def arrange(self, Q: Array) -> Array:
        """An order of queries in which neighbours come together."""
        return np.asarray(kernels.by_cell(Q, self.low, self.scale, self.parts))


def build(X: Array, leaf_size: int) -> Tree:
    """The tree on the rows of X in float64."""
    X = np.ascontiguousarray(X, dtype=np.float64)
    n, d = X.shape
    parts = max(1, int((n / CELL) ** (1 / d)))
    low, high = kernels.ends(X)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        scale = np.nan_to_num(parts / (high - low), posinf=0.0)
    names = kernels.by_cell(X, low, scale, parts)
    rows = X.take(names, axis=0)
    # Splitting at midpoints, boxes not shrunk to their rows, builds twice as fast and
    # answers as fast.
    tree = cKDTree(rows, leaf_size, compact_nodes=False, balanced_tree=False)
    return Tree(tree, rows, names, low, scale, parts)


def through_tree(
    tree: Tree, X: Array, Q: Array, k: int, metric: NeighborMetric, own: Array
) -> tuple[Array, Array]:
    """Reduced distances and rows of the k nearest, as ``compare.nearest`` has them."""
    value = np.empty((len(Q), k))
    index = np.empty((len(Q), k), dtype=np.int64)
    workers = thread_budget() if len(Q) > FEW else 1
    # Its own row may be among those found; one more tells whether the last is tied.
    wanted = k + 2 if own.max(initial=-1) >= 0 else k + 1
    order = tree.arrange(Q)
    for slab in slices(len(Q), SLAB):
        at = order[slab]
        q = Q[at]
        far, places = tree.tree.query(q, wanted, p=metric.p, workers=workers)
        far, places = far.reshape(len(far), -1), places.reshape(len(far), -1)
        places[places == len(X)] = -1  # fewer rows than asked for
        sound, clear = _trusted(far, metric.p)
        clear &= own[at] < 0
        found = nearest(tree.rows, q, k, metric, candidates=places)
        value[at], index[at] = found[0], tree.names.take(found[1], mode="clip")
        rest = np.flatnonzero(~clear)
        if len(rest) == 0:
            continue
        rows, places = at[rest], places[rest]
        names = np.where(places < 0, -1, tree.names[places])
        found = nearest(X, Q[rows], k, metric, own[rows], names)
        value[rows], index[rows] = found
        radius = metric.finish(found[0][:, -1])
        unsure = ~(radius < far[rest, -1] * (1 - CLOSE)) | ~sound[rest]
        if unsure.any():
            ball = radius[unsure] * (1 + CLOSE)
            rows = rows[unsure]
            _balls(tree, X, Q, rows, ball, k, metric, own, (value, index), workers)
    return value, index


def _trusted(far: Array, p: float) -> tuple[Array, Array]:
    """Whether the last distance has all its digits, and whether the order is sure."""
    with np.errstate(under="ignore", over="ignore"):
        sound = (far if np.isinf(p) else far**p) >= VANISHING
    last = sound[:, -1].copy()
    sound[:, 0] |= far[:, 0] == 0
    apart = far[:, :-1] < far[:, 1:] * (1 - CLOSE)
    return last, np.asarray(sound.all(axis=1) & apart.all(axis=1))


def _balls(
    tree: Tree,
    X: Array,
    Q: Array,
    rows: Array,
    radius: Array,
    k: int,
    metric: NeighborMetric,
    own: Array,
    out: tuple[Array, Array],
    workers: int,
) -> None:
    """Compare all rows within ``radius`` of each query."""
    options: dict[str, Any] = {"p": metric.p, "workers": workers}
    counts = tree.tree.query_ball_point(Q[rows], radius, return_length=True, **options)
    full = counts > max(1000, len(X) // 8)
    if full.any():
        group = rows[full]
        out[0][group], out[1][group] = nearest(X, Q[group], k, metric, own[group])
    rest = np.flatnonzero(~full)
    rest = rest[np.argsort(counts[rest], kind="stable")]  # lists of similar length
    while len(rest):
        sizes = counts[rest] * np.arange(1, len(rest) + 1)
        few = max(1, int(np.searchsorted(sizes, ROOM)))
        part, rest = rest[:few], rest[few:]
        group = rows[part]
        balls = tree.tree.query_ball_point(Q[group], radius[part], **options)
        names = np.full((len(part), max(len(b) for b in balls)), -1, dtype=np.int64)
        for i, ball in enumerate(balls):
            names[i, : len(ball)] = tree.names[ball]
        out[0][group], out[1][group] = nearest(
            X, Q[group], k, metric, own[group], names
        )
