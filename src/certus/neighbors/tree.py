"""Neighbours in few dimensions: SciPy's k-d tree finds candidates.

The tree is asked for one neighbour more than needed. Their distances are computed again
in float64; where the one too many is not clearly farther, a ball of that radius lists
all rows in question, so that ties fall as in ``compare``. O(n log n) to build; a query
costs O(log n) in few dimensions and grows with the dimension.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from certus.base import thread_budget
from certus.convex.design import Array
from certus.neighbors.compare import nearest
from certus.neighbors.metrics import Metric
from certus.neighbors.threads import slices

#: Queries handled together.
SLAB = 1 << 15
#: The tree's rounding in bounds of boxes, generously, as a share of a distance.
CLOSE = 1e-12
#: Where powers p of distances come near the smallest numbers they are not trusted.
VANISHING = 1e-280
#: Rows in the balls handled together.
ROOM = 1 << 21


def build(X: Array, leaf_size: int) -> cKDTree:
    """The tree on float64 rows; it keeps X itself where that is possible."""
    # Splitting at midpoints builds twice as fast as at medians and answers as fast.
    X = np.asarray(X, dtype=np.float64)
    return cKDTree(X, leafsize=leaf_size, balanced_tree=False)


def through_tree(
    tree: cKDTree, X: Array, Q: Array, k: int, metric: Metric, own: Array
) -> tuple[Array, Array]:
    """Reduced distances and rows of the k nearest, as ``compare.nearest`` has them."""
    value = np.empty((len(Q), k))
    index = np.empty((len(Q), k), dtype=np.int64)
    workers = thread_budget()
    # Its own row may be among those found; one more tells whether the last is tied.
    wanted = k + 2 if own.max(initial=-1) >= 0 else k + 1
    for slab in slices(len(Q), SLAB):
        q, mine = Q[slab], own[slab]
        far, names = tree.query(q, wanted, p=metric.p, workers=workers)
        far, names = far.reshape(len(q), -1), names.reshape(len(q), -1)
        names[names == len(X)] = -1  # fewer rows than asked for
        value[slab], index[slab] = nearest(X, q, k, metric, mine, names)
        radius = metric.finish(value[slab, -1])
        last = far[:, -1]
        power = 1.0 if np.isinf(metric.p) else metric.p
        with np.errstate(under="ignore", over="ignore"):
            tiny = last**power < VANISHING
        unsure = np.flatnonzero(~(radius < last * (1 - CLOSE)) | tiny)
        if len(unsure):
            rows = unsure + slab.start
            ball = radius[unsure] * (1 + CLOSE)
            _balls(tree, X, Q, rows, ball, k, metric, own, (value, index), workers)
    return value, index


def _balls(
    tree: cKDTree,
    X: Array,
    Q: Array,
    rows: Array,
    radius: Array,
    k: int,
    metric: Metric,
    own: Array,
    out: tuple[Array, Array],
    workers: int,
) -> None:
    """Compare all rows within ``radius`` of each query."""
    options: dict[str, Any] = {"p": metric.p, "workers": workers}
    counts = tree.query_ball_point(Q[rows], radius, return_length=True, **options)
    full = counts > max(1000, len(X) // 8)
    if full.any():
        group = rows[full]
        out[0][group], out[1][group] = nearest(X, Q[group], k, metric, own[group])
    rest = np.flatnonzero(~full)
    rest = rest[np.argsort(counts[rest], kind="stable")]  # lists of like length
    while len(rest):
        sizes = counts[rest] * np.arange(1, len(rest) + 1)
        few = max(1, int(np.searchsorted(sizes, ROOM)))
        part, rest = rest[:few], rest[few:]
        group = rows[part]
        balls = tree.query_ball_point(Q[group], radius[part], **options)
        names = np.full((len(part), max(len(b) for b in balls)), -1, dtype=np.int64)
        for i, ball in enumerate(balls):
            names[i, : len(ball)] = ball
        out[0][group], out[1][group] = nearest(
            X, Q[group], k, metric, own[group], names
        )
