"""Reading graphs: a sparse or dense matrix, a list of edges, networkx, or PyG's Data.

    A: n × n, a_ij ≥ 0 the weight of the edge between i and j

Objects of other libraries are recognised by what they offer, so nothing of them is
imported. Labels of nodes come as an array, −1 (or None) where there is none, or as a
dict from a node's name to its label.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from certus._core.rows import as_array
from certus.typing import Array, ArrayLike, GraphLike

#: What stands for a label that is not known, as in sklearn.semi_supervised.
UNKNOWN = -1
#: Asymmetry, as a share of the largest weight, that counts as rounding.
ASYMMETRY = 1e-10
#: Sums of weights beyond these overflow, or have inverses that do.
LIMITS = (1e-290, 1e290)
_FORMS = (
    "graph must be a sparse or dense square matrix, a list of edges (i, j) or "
    "(i, j, weight), a networkx graph, or a PyG Data"
)


class Graph(NamedTuple):
    """An adjacency matrix, and the names of its nodes if they have any."""

    A: Any
    names: list[Any] | None = None


def read_graph(
    graph: GraphLike, n: int | None = None, *, directed: bool = False
) -> Graph:
    """The adjacency matrix of a graph, in CSR, canonical, float64, not negative.

    Parameters
    ----------
    graph : sparse matrix, array, list of edges, networkx graph or PyG Data
        A list of edges names each edge once or in both directions; an edge that is
        listed twice counts once.
    n : int, optional
        How many nodes there must be; by default what the graph says.
    directed : bool, default=False
        Whether edges have a direction; otherwise A must be symmetric.

    Examples
    --------
    >>> from certus.edges import read_graph
    >>> read_graph([(0, 1), (1, 2)]).A.toarray()
    array([[0., 1., 0.],
           [1., 0., 1.],
           [0., 1., 0.]])
    """
    if graph is None:
        raise ValueError(f"{_FORMS}; got None.")
    names = names_of(graph)
    if names is not None:
        A = _of_networkx(graph, names, directed)
    elif hasattr(graph, "edge_index"):
        A = _of_pyg(graph, n)
    elif sparse.issparse(graph):
        A = sparse.csr_array(graph)
    else:
        A = _of_array(graph, n, directed)
    return Graph(_checked(A, n, directed), names)


def names_of(graph: Any) -> list[Any] | None:
    """The names of the nodes of a networkx graph; None for other graphs."""
    named = hasattr(graph, "nodes") and hasattr(graph, "edges")
    return list(graph.nodes) if named else None


def _of_networkx(graph: Any, names: list[Any], directed: bool) -> Any:
    """Nodes in the order of the graph; edges between the same two nodes add up."""
    place = {name: i for i, name in enumerate(names)}
    told = list(graph.edges(data="weight", default=1.0))
    i = np.array([place[edge[0]] for edge in told], dtype=np.int64)
    j = np.array([place[edge[1]] for edge in told], dtype=np.int64)
    try:
        w = np.array([edge[2] for edge in told], dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("Each weight of an edge of graph must be a number.") from None
    if graph.is_directed():
        if not directed:
            raise ValueError(
                "graph is directed, but this model needs edges without a direction: "
                "pass graph.to_undirected()."
            )
    else:
        apart = i != j
        i, j = np.r_[i, j[apart]], np.r_[j, i[apart]]
        w = np.r_[w, w[apart]]
    return sparse.coo_array((w, (i, j)), shape=(len(names),) * 2)


def _of_pyg(graph: Any, n: int | None) -> Any:
    """PyG lists both directions of an edge; a graph that does not is directed."""
    ends = np.asarray(as_array(graph.edge_index))
    weights = getattr(graph, "edge_weight", None)
    if weights is None:
        weights = getattr(graph, "edge_attr", None)
    w = None if weights is None else np.asarray(as_array(weights), dtype=np.float64)
    if w is not None and w.size != ends.shape[-1]:
        raise ValueError(
            f"edge_weight of graph must have one number for each of its "
            f"{ends.shape[-1]} edges, got shape {w.shape}."
        )
    count = getattr(graph, "num_nodes", None)
    return _of_ends(ends.T, w, n if count is None else int(count))


def _of_array(graph: Any, n: int | None, directed: bool) -> Any:
    pairs = isinstance(graph, list | tuple) and all(
        isinstance(edge, tuple) and len(edge) in (2, 3) for edge in graph
    )
    try:
        found = np.asarray(as_array(graph))
        if found.dtype.kind == "c":
            raise ValueError("complex weights")
        if found.dtype.kind not in "biuf":
            found = found.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{_FORMS}; got {type(graph).__name__}.") from error
    if pairs and not len(graph):
        return sparse.csr_array((n or 0, n or 0))
    if found.ndim != 2:
        raise ValueError(f"{_FORMS}; got an array of shape {found.shape}.")
    rows, columns = found.shape
    if not pairs and rows == columns:
        return sparse.csr_array(found.astype(np.float64))
    if columns not in (2, 3) and rows == 2:
        found, columns = found.T, 2
    if columns not in (2, 3):
        raise ValueError(f"{_FORMS}; got an array of shape {found.shape}.")
    w = None if columns == 2 else found[:, 2].astype(np.float64)
    A = _of_ends(found[:, :2], w, n)
    return A if directed else _both_ways(A)


def _of_ends(ends: Array, w: Array | None, n: int | None) -> Any:
    """Edges by the numbers of their ends; one that is listed twice counts once."""
    if ends.dtype.kind not in "iu":
        whole = np.asarray(ends, dtype=np.float64)
        if not np.array_equal(whole, np.floor(whole)):
            raise ValueError("The ends of edges must be whole numbers of nodes.")
        ends = whole.astype(np.int64)
    least, most = int(ends.min(initial=0)), int(ends.max(initial=-1))
    count = most + 1 if n is None else n
    if least < 0 or most >= count:
        raise ValueError(
            f"The ends of edges must lie between 0 and {count - 1}, got {least} to "
            f"{most}."
        )
    w = np.ones(len(ends)) if w is None else w
    key = ends[:, 0].astype(np.int64) * count + ends[:, 1]
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    if not np.array_equal(w[first][inverse], w, equal_nan=True):
        raise ValueError("An edge of graph is listed twice with different weights.")
    i, j = ends[first, 0], ends[first, 1]
    return sparse.coo_array((w[first], (i, j)), shape=(count, count))


def _both_ways(A: Any) -> Any:
    """Each edge in both directions; two weights for one edge must agree."""
    A = sparse.csr_array(A)
    other = sparse.csr_array(A.T)
    both = A.multiply(other != 0).tocsr()
    if abs(both - both.T).sum() > 0:
        raise ValueError("An edge of graph is listed twice with different weights.")
    return A.maximum(other) if A.nnz == 0 or A.data.min() >= 0 else A


def _checked(A: Any, n: int | None, directed: bool) -> Any:
    if A.shape[0] != A.shape[1]:
        raise ValueError(f"graph must be square, got shape {A.shape}.")
    if A.dtype.kind not in "biuf":
        raise ValueError(f"graph must hold real numbers, got {A.dtype}.")
    A = sparse.csr_array(A, dtype=np.float64, copy=True)
    size, ends = A.shape[1], A.indptr
    sound = ends[0] == 0 and ends[-1] <= len(A.indices) and (np.diff(ends) >= 0).all()
    inside = A.indices.min(initial=0) >= 0 and A.indices.max(initial=-1) < size
    if not (sound and inside):
        raise ValueError("graph is damaged: some of its indices lie outside its shape.")
    if n is not None and A.shape[0] != n:
        raise ValueError(
            f"graph has {A.shape[0]} nodes, but X or y has {n}; pass one row and one "
            "label for each node."
        )
    if A.shape[0] == 0:
        raise ValueError("graph is empty: it must have at least 1 node.")
    A.sum_duplicates()
    if not np.isfinite(A.data).all():
        raise ValueError("graph holds NaN or infinite weights; drop or correct them.")
    if A.data.min(initial=0.0) < 0:
        raise ValueError("Weights of edges must not be negative; got a negative one.")
    A.eliminate_zeros()
    _check_sizes(A)
    if not directed:
        gap = abs(A - A.T)
        if gap.nnz and gap.data.max() > ASYMMETRY * A.data.max():
            raise ValueError(
                "graph is directed (not symmetric), but this model needs edges "
                "without a direction: pass graph + graph.T."
            )
        if gap.nnz:
            A = sparse.csr_array((A + A.T) / 2)
    A.sort_indices()
    return A


def _check_sizes(A: Any) -> None:
    """Raise an error if the weights at a node are too large or small to be shares."""
    with np.errstate(over="ignore"):
        sums = np.asarray(A.sum(axis=1)).ravel()
    sums = sums[sums > 0]
    if len(sums) and not LIMITS[0] <= sums.min() <= sums.max() <= LIMITS[1]:
        raise ValueError(
            f"The weights at a node must add up to a number between {LIMITS[0]:g} and "
            f"{LIMITS[1]:g}, got {sums.min():.3g} to {sums.max():.3g}; scale all of "
            "them by one number."
        )


def features_of(graph: GraphLike) -> Any:
    """The features that a PyG Data brings along; None for other graphs."""
    found = getattr(graph, "x", None) if hasattr(graph, "edge_index") else None
    return None if found is None else np.asarray(as_array(found))


# -- labels -----------------------------------------------------------------------


def read_labels(y: Any, n: int, names: list[Any] | None = None) -> Any:
    """Labels as an array with one entry for each node; a dict names nodes.

    Examples
    --------
    >>> from certus.edges import read_labels
    >>> read_labels({"a": 3, "c": 5}, 3, ["a", "b", "c"])
    array([3, -1, 5], dtype=object)
    """
    if y is None:
        raise ValueError(
            "This model requires y to be passed, but the target y is None. Pass one "
            "label for each node, -1 where it is not known."
        )
    if isinstance(y, Mapping):
        known = list(range(n)) if names is None else names
        place = {name: i for i, name in enumerate(known)}
        odd = [name for name in y if name not in place]
        if odd:
            raise ValueError(f"y names the node {odd[0]!r}, which graph does not have.")
        line = np.full(n, UNKNOWN, dtype=object)
        for name, label in y.items():
            line[place[name]] = label
        return line
    found: Any = np.asarray(as_array(y))
    if found.ndim == 2 and found.shape[1] == 1:
        found = column_or_1d(found, warn=True)
    if found.shape != (n,):
        raise ValueError(
            f"y has shape {found.shape}, inconsistent with {n} nodes: pass one label "
            "for each, -1 where it is not known."
        )
    return found


def has_signs(classes: Array) -> bool:
    """Whether −1 is one of the classes of a model."""
    return classes.dtype.kind in "if" and bool((classes == UNKNOWN).any())


def class_places(y: ArrayLike, *, signs: bool = False) -> tuple[Array, Array]:
    """The classes, and the place of each node's label among them, −1 where unknown.

    With ``signs``, −1 is a class where there is only one other: for a classifier that
    needs two, −1 and +1 can mean nothing else.

    Examples
    --------
    >>> from certus.edges import class_places
    >>> class_places([7, -1, 5])
    (array([5, 7]), array([ 1, -1,  0]))
    """
    y = np.asarray(y)
    known = np.ones(len(y), dtype=bool)
    if y.dtype.kind == "O":
        known = np.array([label is not None and label != UNKNOWN for label in y])
    elif y.dtype.kind in "biuf":
        known = y != UNKNOWN
    if signs and y.dtype.kind in "if" and len(np.unique(y[known])) == 1:
        known[:] = True
    if not known.any():
        raise ValueError("y holds no labels: every entry is -1.")
    labels = y[known]
    if labels.dtype.kind == "O":
        labels = np.array(labels.tolist())
        if labels.ndim != 1:
            raise ValueError("y must hold one label for each node, or -1.")
    check_classification_targets(labels)
    classes, places = np.unique(labels, return_inverse=True)
    codes = np.full(len(y), UNKNOWN, dtype=np.int64)
    codes[known] = places
    return classes, codes
