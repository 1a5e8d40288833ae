"""k-means over blocks of rows: the pass of ``kmeans``, block by block.

Each block labels its rows itself and gives its sums; labels come back with them, and
where the model states others, those rows are read again here and compared by
differences.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.fingerprints import direction
from certus.typing import Array
from certus.verify import data
from certus.verify.block_sums import mark_of, marks_of
from certus.verify.deciding import gamma
from certus.verify.recomputed import RecomputedBlocks, summed

#: Cells of X, and of the distances, that are looked at together.
CELLS = 1 << 19


class ClusterSums(NamedTuple):
    """Σ s·(x', 1, ‖x'‖²) of the rows of each cluster, x' = x − origin."""

    rows: int
    sums: Array
    labels: Array
    depth: int  # additions of rows
    marks: tuple[dict[str, Any], ...]


def weights_of(block: Any) -> Array:
    """The weights of a block; all of them may be zero."""
    n = len(block.X)
    s = np.ones(n) if block.s is None else np.asarray(block.s, dtype=np.float64)
    if s.shape != (n,) or not np.isfinite(s).all() or s.min(initial=0.0) < 0:
        raise ValueError("sample_weight must be finite and not negative.")
    return s


def cluster_sums(block: Any, centers: Array, origin: Array) -> ClusterSums:
    """The sums of one block, each row with the centre nearest to it."""
    X, s = np.asarray(block.X), weights_of(block)
    (n, d), k = X.shape, len(centers)
    c = centers - origin
    norms = np.einsum("ij,ij->i", c, c)
    step = max(64, CELLS // max(k, d + 2))
    sums, labels = np.zeros((k, d + 2)), np.empty(n, dtype=np.int64)
    along = np.empty(n)
    for i in range(0, n, step):
        part = slice(i, i + step)
        rows = np.empty((len(X[part]), d + 2))
        away = np.subtract(X[part], origin, out=rows[:, :d])
        along[part] = X[part] @ direction(d)
        rows[:, d] = 1.0
        rows[:, d + 1] = x2 = np.einsum("ij,ij->i", away, away)
        labels[part] = _nearest(X[part], away, x2, centers, c, norms)
        ends = np.arange(len(rows) + 1)
        hot = sparse.csc_matrix((s[part], labels[part], ends), shape=(k, len(rows)))
        sums += data.dense(hot @ rows)
    mark = mark_of(X, np.zeros(n), s, along)
    return ClusterSums(n, sums, labels, min(n, step) + n // step + 1, (mark,))


def _nearest(
    X: Array, away: Array, x2: Array, centers: Array, c: Array, norms: Array
) -> Array:
    """The nearest centre; where products leave doubt, by differences."""
    k, d = centers.shape
    scores = norms - 2 * (away @ c.T)
    found = scores.argmin(axis=1)
    if k == 1:
        return np.asarray(found)
    low = np.partition(scores, 1, axis=1)
    error = 4 * gamma(d + 8) * (x2 + 2 * norms.max()) + 1e-290
    doubt = np.flatnonzero(~(low[:, 0] + error < low[:, 1]))
    step = max(1, CELLS // (k * d))
    for i in range(0, len(doubt), step):
        some = doubt[i : i + step]
        gaps = X[some].astype(np.float64)[:, None, :] - centers
        found[some] = np.einsum("ikj,ikj->ik", gaps, gaps).argmin(axis=1)
    return np.asarray(found)


def join(a: ClusterSums, b: ClusterSums) -> ClusterSums:
    """The sums of both sets of rows."""
    labels = np.concatenate([a.labels, b.labels])
    more = (labels, max(a.depth, b.depth), a.marks + b.marks)
    return ClusterSums(a.rows + b.rows, a.sums + b.sums, *more)


def look(
    blocks: Any, again: RecomputedBlocks, centers: Array, origin: Array
) -> ClusterSums:
    """The sums of all blocks; the depth counts the tree too."""
    with np.errstate(over="ignore", invalid="ignore"):
        found: ClusterSums = summed(blocks, again, join, cluster_sums, centers, origin)
    if not np.isfinite(found.sums).all():
        raise ValueError("X holds NaN, infinite or very large numbers.")
    if not found.sums[:, -2].any():
        raise ValueError("sample_weight must not be all zero.")
    tree = math.ceil(math.log2(len(blocks.keys) + 1))
    return found._replace(depth=found.depth + tree)


def fingerprint(blocks: Any, found: ClusterSums) -> dict[str, Any]:
    """That of all rows, and of each block."""
    weight = float(found.sums[:, -2].sum())
    return marks_of(found.marks, blocks.shape, str(blocks.dtype), weight)


def other_labels(blocks: Any, found: ClusterSums, labels: Array, compare: Any) -> Any:
    """Rows whose stated label is another: how many are wrong, and how many may be.

    ``compare(X, rows, labels)`` counts both among some rows of a block.
    """
    wrong = unsure = 0
    for key in blocks.keys:
        part = slice(key.first, key.first + key.rows)
        rows = np.flatnonzero(found.labels[part] != labels[part])
        if len(rows):
            counts = compare(np.asarray(blocks.read(key).X), rows, labels[part])
            wrong, unsure = wrong + counts[0], unsure + counts[1]
    return wrong, unsure
