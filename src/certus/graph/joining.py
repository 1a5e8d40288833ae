"""Graphs of rows: each is joined to those near it.

Among the rows of a fit edges have no direction. A row that comes later reads the nodes
near it and is read by none, so that a prediction does not depend on what else is
predicted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.neighbors import NearestNeighbors, kneighbors_graph

from certus.base import require_finite, validate_data
from certus.edges import features_of, read_graph
from certus.typing import CompressedMatrix, Fit, GraphLike, MatrixLike

#: Said where a model without features meets another graph.
_OWN = (
    "This model has one feature for each node of its graph, so that it cannot be used "
    "for another one. Fit with features X."
)
_NO_FEATURES = "This model was fitted without features. Call predict() for its nodes."


def near_rows(X: Any, k: int) -> Any:
    """The graph in which each row is joined to its k nearest."""
    n = X.shape[0]
    k = min(k, n - 1)
    if k < 1:
        return sparse.csr_array((n, n))
    near = sparse.csr_array(kneighbors_graph(X, k))
    return sparse.csr_array(near.maximum(near.T))


def joined(A: CompressedMatrix, X: Any, new: Any, k: int) -> tuple[Any, Any]:
    """A graph with further rows, each of which reads its k nearest nodes."""
    n, m = A.shape[0], new.shape[0]
    near = NearestNeighbors(n_neighbors=min(k, n)).fit(X)
    links = sparse.csr_array(near.kneighbors_graph(new))
    both = sparse.block_array(
        [[A, sparse.csr_array((n, m))], [links, sparse.csr_array((m, m))]], format="csr"
    )
    thin = sparse.issparse(X)
    rows = sparse.vstack([X, new], "csr") if thin else np.vstack([X, new])
    return both, rows


def checked_features(model: Fit, X: MatrixLike | None, reset: bool) -> Any:
    """Features of nodes as an array or CSR matrix of real numbers."""
    X = validate_data(
        model,
        X,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        ensure_all_finite=False,
        reset=reset,
    )
    require_finite(X, type(model).__name__)
    return X


def read_nodes(
    model: Fit, X: MatrixLike | None, graph: GraphLike | None
) -> tuple[Any, Any, list[Any] | None]:
    """Adjacency, features and names of the nodes of a fit."""
    if graph is not None and X is None:
        X = features_of(graph)
    if X is None and graph is None:
        raise ValueError("Pass X, graph or both; got neither.")
    rows = None if X is None else checked_features(model, X, reset=True)
    if graph is None:
        return near_rows(rows, int(model.n_neighbors)), rows, None
    A, names = read_graph(graph, None if rows is None else rows.shape[0])
    return A, rows, names


def nodes_to_predict(
    model: Fit, X: MatrixLike | None, graph: GraphLike | None
) -> tuple[Any, Any, Any]:
    """Adjacency, features, and the places of the nodes that are asked for."""
    n = model.graph_.shape[0]
    if X is None and graph is None:
        return model.graph_, model.X_, np.arange(n)
    if graph is not None:
        X = features_of(graph) if X is None else X
        X = None if X is None else checked_features(model, X, reset=False)
        A = read_graph(graph, None if X is None else X.shape[0]).A
        if (X is None) != (model.X_ is None) or (X is None and A.shape[0] != n):
            raise ValueError(_OWN)
        return A, X, np.arange(A.shape[0])
    if model.X_ is None:
        raise ValueError(_NO_FEATURES)
    new = checked_features(model, X, reset=False)
    A, both = joined(model.graph_, model.X_, new, int(model.n_neighbors))
    return A, both, n + np.arange(new.shape[0])
