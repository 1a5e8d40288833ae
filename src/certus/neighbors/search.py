"""Find the k nearest rows by the quickest method; all methods give the same rows.

- few columns: candidates from SciPy's k-d tree (``tree``);
- many queries, Euclidean: candidates from blocked float32 products (``screening``);
- otherwise: every distance, in tiles and threads (``compare``);
- any other metric of scikit-learn, or a function: its ``pairwise_distances`` in blocks;
- precomputed distances: read off.

Order is by distance in float64, then by row number. Memory is bounded by blocks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.metrics import pairwise_distances

from certus._core.threads import slices
from certus.neighbors import kernels
from certus.neighbors.compare import nearest
from certus.neighbors.metrics import NeighborMetric
from certus.neighbors.screening import WIDEST, screened, spare
from certus.neighbors.tree import through_tree
from certus.typing import Array, Matrix, MatrixLike

#: Distances of one block, for metrics without a loop of their own.
BLOCK = 1 << 23
#: Fewer queries than this are compared directly: preparing X would cost more.
FEW = 24
#: Coordinates whose squares stay clear of the ends of float64's range.
LARGE, SMALL = 2.0**500, 2.0**-400
#: Squares below this have lost digits.
TINY = 2.0**-960


def search(
    X: Any,
    Q: Any,
    k: int,
    metric: NeighborMetric,
    own: Array | None = None,
    tree: Any = None,
    known: Array | None = None,
) -> tuple[Array, Array]:
    """Distances (float64) and rows of the k nearest rows of X to each row of Q.

    Parameters
    ----------
    X, Q : array or CSR matrix
        Rows to find and queries. With precomputed distances, Q is queries × rows.
    k : int
        How many.
    metric : NeighborMetric
        From ``certus.neighbors.metrics.resolve``.
    own : array, optional
        For each query the row that is the query itself and does not count.
    tree : certus.neighbors.tree.Tree, optional
        Built on X; used where it applies.
    known : array, optional
        :func:`limits` of X, if known.
    """
    own = np.full(Q.shape[0], -1, dtype=np.int64) if own is None else own
    if metric.precomputed:
        return _from_graph(Q, k, own) if sparse.issparse(Q) else _choose(Q, k, own)
    if metric.code is None:
        return _pairwise(X, Q, k, metric, own)
    X, Q = _alike(metric.stretch(X), metric.stretch(Q))
    if known is None or metric.weights is not None:
        known = limits(X)
    half, rest = _factors(np.concatenate([known, limits(Q)]))
    ordinary = half * rest == 1.0
    if not ordinary:
        X, Q = X * half * rest, Q * half * rest
    if tree is not None and ordinary:
        value, index = through_tree(tree, X, Q, k, metric, own)
    elif _screens(X, Q, k, metric):
        value, index = screened(X, Q, k, metric, own)
    else:
        value, index = nearest(X, Q, k, metric, own)
    distance = metric.finish(value)
    lost = _vanished(X, Q, value, index, metric)
    if len(lost):
        robust = metric._replace(code=kernels.MINKOWSKI, p=2.0)
        found = nearest(X, Q[lost], k, robust, own[lost])
        distance[lost], index[lost] = found
    return distance / half / rest, index


def _vanished(
    X: Any, Q: Matrix, value: Array, index: Array, metric: NeighborMetric
) -> Array:
    """Queries some of whose squared distances are too small to be compared."""
    if metric.code != kernels.EUCLIDEAN:
        return np.empty(0, dtype=np.int64)
    tiny = (value < TINY).nonzero()
    if len(tiny[0]) == 0:
        return np.empty(0, dtype=np.int64)
    gaps = Q[tiny[0]] - X[index[tiny]]  # zero only where the row is the query
    if sparse.issparse(gaps):
        gaps.eliminate_zeros()
        differ = np.diff(gaps.tocsr().indptr) > 0
    else:
        differ = gaps.any(axis=1)
    return np.unique(tiny[0][differ])


def _screens(X: Matrix, Q: Matrix, k: int, metric: NeighborMetric) -> bool:
    """Whether screening pays, and its bound holds."""
    euclidean = metric.code == kernels.EUCLIDEAN
    few = Q.shape[0] < FEW and not sparse.issparse(X)
    many = not few and X.shape[0] >= 8 * spare(k)
    narrow = sparse.issparse(X) or X.shape[1] <= WIDEST
    return euclidean and many and narrow


def _alike(X: MatrixLike, Q: Any) -> tuple[Any, Any]:
    """Both dense or both CSR, as X is; queries in float64."""
    if sparse.issparse(X):
        Q = sparse.csr_matrix(Q, dtype=np.float64)
        if not Q.has_canonical_format:
            Q = Q.copy()
            Q.sum_duplicates()
        return X, Q
    if sparse.issparse(Q):
        Q = Q.toarray()
    return np.ascontiguousarray(X), np.ascontiguousarray(Q, dtype=np.float64)


def limits(M: Any) -> Array:
    """The smallest and the largest entry."""
    values = M.data if sparse.issparse(M) else M
    if values.size == 0:
        return np.zeros(2)
    return np.array([values.min(), values.max()], dtype=np.float64)


def _factors(ends: Array) -> tuple[float, float]:
    """Powers of two, hence exact, that bring the widest difference near one.

    They are one for ordinary data; two of them, as a single one may be out of range.
    """
    width = float(max(ends.max() / 2 - ends.min() / 2, np.abs(ends).max() / 2))
    if SMALL < width < LARGE or width == 0.0:
        return 1.0, 1.0
    power = -math.frexp(width)[1]
    return math.ldexp(1.0, power // 2), math.ldexp(1.0, power - power // 2)


# -- distances that are there already ---------------------------------------------


def _choose(D: Array, k: int, own: Array) -> tuple[Array, Array]:
    """The k smallest of each row, equal ones by position."""
    D = np.array(D, dtype=np.float64)
    mine = own >= 0
    D[np.flatnonzero(mine), own[mine]] = np.inf
    kth = np.partition(D, k - 1, axis=1)[:, k - 1]
    value = np.empty((len(D), k))
    index = np.empty((len(D), k), dtype=np.int64)
    for i, row in enumerate(D):
        near = np.flatnonzero(row <= kth[i])
        near = near[near != own[i]]
        order = near[np.argsort(row[near], kind="stable")][:k]
        value[i], index[i] = row[order], order
    return value, index


def _from_graph(Q: Any, k: int, own: Array) -> tuple[Array, Array]:
    """As :func:`_choose`, among the stored entries of a sparse matrix."""
    Q = sparse.csr_matrix(Q)
    value = np.empty((Q.shape[0], k))
    index = np.empty((Q.shape[0], k), dtype=np.int64)
    for i in range(Q.shape[0]):
        part = slice(Q.indptr[i], Q.indptr[i + 1])
        names, distance = Q.indices[part], Q.data[part]
        order = np.lexsort((names, distance))
        order = order[names[order] != own[i]][:k]
        if len(order) < k:
            raise ValueError(
                f"{k} neighbors per samples are required, but some samples have only "
                f"{len(order)} neighbors in precomputed graph matrix. Decrease number "
                "of neighbors used or recompute the graph with more neighbors."
            )
        value[i], index[i] = distance[order], names[order]
    return value, index


def _pairwise(
    X: Matrix, Q: Matrix, k: int, metric: NeighborMetric, own: Array
) -> tuple[Array, Array]:
    value = np.empty((Q.shape[0], k))
    index = np.empty((Q.shape[0], k), dtype=np.int64)
    for part in slices(Q.shape[0], max(1, BLOCK // X.shape[0])):
        if hasattr(metric.name, "pairwise"):  # scikit-learn's DistanceMetric
            D = metric.name.pairwise(Q[part], X)
        else:
            D = pairwise_distances(Q[part], X, metric=metric.name, **metric.params)
        value[part], index[part] = _choose(D, k, own[part])
    return value, index
