"""All rows within a radius of each query; distances decide in float64.

- few columns: candidates from the k-d tree, in a ball a little larger;
- Euclidean, dense: candidates from blocked products, by a bound of their rounding;
- sparse rows, and numbers near the ends of float64: every distance, in order;
- other metrics of scikit-learn: its ``pairwise_distances`` in blocks;
- precomputed distances: read off.

Candidates are compared by differences of coordinates. Rows come in their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.metrics import pairwise_distances

from certus._core.threads import slices
from certus.base import thread_budget
from certus.neighbors import kernels
from certus.neighbors.metrics import NeighborMetric
from certus.neighbors.search import limits, search
from certus.neighbors.tree import CLOSE
from certus.typing import Array, Matrix, MatrixLike

#: Distances of one block of queries, and coordinates compared at a time.
BLOCK, CELLS = 1 << 22, 1 << 20
#: Coordinates between these ends have squares without loss.
SMALL, LARGE = 2.0**-400, 2.0**400
#: Fewer columns are compared as fast as they are multiplied.
NARROW = 8
NAMES = {kernels.EUCLIDEAN: "euclidean", kernels.MANHATTAN: "cityblock"}
NAMES |= {kernels.CHEBYSHEV: "chebyshev", kernels.MINKOWSKI: "minkowski"}

#: Numbers of queries and rows that are near, and their distances.
Pairs = tuple[Array, Array, Array]


def within(
    X: MatrixLike,
    Q: Matrix,
    radius: float,
    metric: NeighborMetric,
    own: bool,
    tree: Any = None,
) -> tuple[list[Array], list[Array]]:
    """Distances and rows of X at most ``radius`` from each row of Q.

    ``own`` says that the queries are the rows of X, none of which counts as near
    itself.
    """
    near, rows, far = _pairs(X, Q, radius, metric, tree)
    if own:
        keep = near != rows
        near, rows, far = near[keep], rows[keep], far[keep]
    ends = np.cumsum(np.bincount(near, minlength=Q.shape[0])).tolist()
    parts = [slice(begin, end) for begin, end in zip([0, *ends], ends)]
    return [far[part] for part in parts], [rows[part] for part in parts]


def _pairs(
    X: MatrixLike, Q: MatrixLike, radius: float, metric: NeighborMetric, tree: Any
) -> Pairs:
    if metric.precomputed:
        return _read_off(Q, radius)
    if metric.code is None:
        return _joined(_by_name(X, Q, part, radius, metric) for part in _parts(X, Q))
    X, Q = metric.stretch(X), metric.stretch(Q)
    ends = np.abs(np.concatenate([limits(X), limits(Q)])).max()
    plain = ends == 0 or (SMALL < ends < LARGE and SMALL < radius < LARGE)
    if sparse.issparse(X) or sparse.issparse(Q) or not plain:
        return _joined(_in_order(X, Q, part, radius, metric) for part in _parts(X, Q))
    X, Q = (np.ascontiguousarray(M, dtype=np.float64) for M in (X, Q))
    if tree is not None:
        return _joined(_balls(tree, X, Q, radius, metric))
    if metric.code == kernels.EUCLIDEAN and X.shape[1] > NARROW:
        mean = X.mean(axis=0)
        A, B = X - mean, Q - mean
        return _joined(_product(X, Q, A, B, part, radius) for part in _parts(X, Q))
    return _joined(_compared(X, Q, part, radius, metric) for part in _parts(X, Q))


def _parts(X: Any, Q: Any) -> Any:
    return slices(Q.shape[0], max(1, BLOCK // X.shape[0]))


def _joined(found: Any) -> Pairs:
    none = (np.zeros(0, dtype=np.int64),) * 2
    each = [(*none, np.zeros(0)), *found]
    near, rows, far = (np.concatenate(part) for part in zip(*each))
    return near, rows, far


def _chosen(D: Array, radius: float, part: slice) -> Pairs:
    near, rows = np.nonzero(radius >= D)
    return near + part.start, rows, D[near, rows].astype(np.float64)


def _read_off(Q: Any, radius: float) -> Pairs:
    """Stored entries of a sparse matrix, or all of a dense one."""
    if not sparse.issparse(Q):
        return _chosen(np.asarray(Q), radius, slice(0, None))
    Q = sparse.csr_matrix(Q)
    Q.sort_indices()
    near = np.repeat(np.arange(Q.shape[0]), np.diff(Q.indptr))
    keep = radius >= Q.data
    rows = Q.indices[keep].astype(np.int64)
    return near[keep], rows, Q.data[keep].astype(np.float64)


def _by_name(
    X: Any, Q: Any, part: slice, radius: float, metric: NeighborMetric
) -> Pairs:
    if hasattr(metric.name, "pairwise"):  # scikit-learn's DistanceMetric
        return _chosen(metric.name.pairwise(Q[part], X), radius, part)
    D = pairwise_distances(Q[part], X, metric=metric.name, **metric.params)
    return _chosen(D, radius, part)


def _in_order(
    X: Any, Q: Any, part: slice, radius: float, metric: NeighborMetric
) -> Pairs:
    metric = metric._replace(weights=None)  # the rows are stretched already
    far, rows = search(X, Q[part], X.shape[0], metric)
    near, at = np.nonzero(radius >= far)
    order = np.lexsort((rows[near, at], near))
    near, at = near[order], at[order]
    return near + part.start, rows[near, at], far[near, at]


def _compared(
    X: Array, Q: Array, part: slice, radius: float, metric: NeighborMetric
) -> Pairs:
    name, more = NAMES[metric.code or 0], {}
    if metric.code == kernels.MINKOWSKI:
        more = {"p": metric.p}
    return _chosen(cdist(Q[part], X, name, **more), radius, part)


def _product(
    X: Array, Q: Array, A: Array, B: Array, part: slice, radius: float
) -> Pairs:
    """Squares by one product of centred rows; those near the limit are compared."""
    own, other = (np.einsum("ij,ij->i", M, M) for M in (B[part], A))
    D = B[part] @ A.T
    D *= -2.0
    D += own[:, None]
    D += other
    slip = 4 * (X.shape[1] + 8) * 2.0**-53 * (own.max(initial=0.0) + other.max())
    near, rows = np.nonzero(radius * radius * (1 + CLOSE) + slip >= D)
    return _checked(X, Q, near + part.start, rows, radius, 2.0)


def _balls(
    tree: Any, X: Array, Q: Array, radius: float, metric: NeighborMetric
) -> Iterator[Pairs]:
    """Few queries at first, then as many as the number of rows near them allows.

    Each block starts threads, and a ball may hold all rows or none.
    """
    begin, size = 0, max(1, BLOCK // X.shape[0])
    while begin < Q.shape[0]:
        part = slice(begin, min(begin + size, Q.shape[0]))
        found = _ball(tree, X, Q, part, radius, metric)
        yield found
        each = 1 + len(found[0]) // (part.stop - part.start)
        begin, size = part.stop, max(1, min(8 * size, BLOCK // each))


def _ball(
    tree: Any, X: Array, Q: Array, part: slice, radius: float, metric: NeighborMetric
) -> Pairs:
    workers = thread_budget()
    options = {"p": metric.p, "workers": workers}
    ball = tree.tree.query_ball_point(Q[part], radius * (1 + CLOSE), **options)
    sizes = np.fromiter(map(len, ball), np.int64, len(ball))
    near = np.repeat(np.arange(len(ball)), sizes) + part.start
    places = np.fromiter(chain.from_iterable(ball), np.int64, sizes.sum())
    rows = tree.names[places]
    order = np.lexsort((rows, near))
    return _checked(X, Q, near[order], rows[order], radius, metric.p)


def _checked(
    X: Array, Q: Array, near: Array, rows: Array, radius: float, p: float
) -> Pairs:
    """The candidates whose distance, by differences, is at most the radius."""
    far = np.empty(len(near))
    for part in slices(len(near), max(1, CELLS // X.shape[1])):
        gaps = np.abs(Q[near[part]] - X[rows[part]])
        if np.isinf(p):
            far[part] = gaps.max(axis=1)
        elif p == 2.0:
            far[part] = np.sqrt(np.einsum("ij,ij->i", gaps, gaps))
        else:
            far[part] = (gaps**p).sum(axis=1) ** (1 / p)
    keep = radius >= far
    return near[keep], rows[keep], far[keep]
