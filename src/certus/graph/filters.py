"""Matrices that mix the nodes of a graph, and filters made of them.

    Q = D̃^{-1/2}(A + I)D̃^{-1/2},  d̃ᵢ = 1 + Σⱼ a_ij
    H = Σ_k θ_k M^k,  M one of A, D^{-1/2}AD^{-1/2}, Q

H commutes with M for any θ. The converse, that what commutes with A is such a sum,
needs A to be non-derogatory: everything commutes with A = I. The eigenvalues of Q lie
in (−1, 1], so that repeated mixing stays bounded; those of I + D^{-1/2}AD^{-1/2} reach
2, and its powers grow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from certus.base import check_choice
from certus.edge_kernels import product
from certus.edges import read_graph
from certus.typing import Array, ArrayLike, CompressedMatrix, GraphLike

__all__ = ["graph_filter", "renormalized_adjacency"]
SHIFTS = ("adjacency", "normalized", "renormalized")


def scaled(A: CompressedMatrix, left: Array, right: Array) -> Any:
    """diag(left) A diag(right) in CSR."""
    A = sparse.csr_array(A)
    rows = np.repeat(left, np.diff(A.indptr))
    return sparse.csr_array(
        (rows * A.data * right[A.indices], A.indices, A.indptr), shape=A.shape
    )


def with_loops(A: CompressedMatrix) -> Any:
    """A + I in CSR."""
    found = sparse.csr_array(A + sparse.eye_array(A.shape[0], format="csr"))
    found.sort_indices()
    return found


def renormalized(A: CompressedMatrix) -> Any:
    """Q of an adjacency matrix."""
    A = with_loops(A)
    root = 1.0 / np.sqrt(np.asarray(A.sum(axis=1)).ravel())
    return scaled(A, root, root)


def mean_of_neighbours(A: CompressedMatrix) -> Any:
    """D⁻¹A; zero rows where there are no neighbours."""
    d = np.asarray(A.sum(axis=1)).ravel()
    left = np.divide(1.0, d, out=np.zeros_like(d), where=d > 0)
    return scaled(A, left, np.ones(A.shape[0]))


def mixed(Q: CompressedMatrix, X: Any, times: int) -> Any:
    """Q^times X; sparse features stay sparse."""
    for _ in range(times):
        X = sparse.csr_array(Q @ X) if sparse.issparse(X) else product(Q, X)
    return X


def renormalized_adjacency(graph: GraphLike) -> Any:
    """The matrix Q = D̃^{-1/2}(A + I)D̃^{-1/2} of a graph.

    Symmetric, with eigenvalues in (−1, 1]; the largest belongs to D̃^{1/2}1.

    Parameters
    ----------
    graph : sparse matrix, array, list of edges, networkx graph or PyG Data
        Edges without a direction; weights must not be negative.

    Returns
    -------
    csr_array of shape (n_nodes, n_nodes)

    Examples
    --------
    >>> from certus.graph import renormalized_adjacency
    >>> renormalized_adjacency([(0, 1), (1, 2), (2, 0)]).toarray().round(3)[0]
    array([0.333, 0.333, 0.333])
    """
    return renormalized(read_graph(graph).A)


def graph_filter(
    graph: GraphLike,
    coefficients: ArrayLike,
    X: ArrayLike | None = None,
    *,
    shift: str = "adjacency",
) -> Any:
    """The filter H = Σ_k θ_k M^k of a graph, or H·X.

    Parameters
    ----------
    graph : sparse matrix, array, list of edges, networkx graph or PyG Data
        Edges without a direction.
    coefficients : array-like of shape (n_terms,)
        θ₀, θ₁, …
    X : array-like of shape (n_nodes,) or (n_nodes, n_features), optional
        Signals to filter; only products with vectors are made then.
    shift : {"adjacency", "normalized", "renormalized"}, default="adjacency"
        M: the adjacency A, D^{-1/2}AD^{-1/2} or D̃^{-1/2}(A + I)D̃^{-1/2}.

    Returns
    -------
    csr_array of shape (n_nodes, n_nodes), or ndarray of the shape of X

    Examples
    --------
    >>> from certus.graph import graph_filter
    >>> graph_filter([(0, 1), (1, 2)], [0.0, 0.0, 1.0]).toarray()  # A²
    array([[1., 0., 1.],
           [0., 2., 0.],
           [1., 0., 1.]])
    """
    check_choice("shift", shift, SHIFTS)
    theta = np.asarray(coefficients, dtype=np.float64)
    if theta.ndim != 1 or not len(theta) or not np.isfinite(theta).all():
        raise ValueError(
            "coefficients must be a list of finite numbers, at least one, got "
            f"{coefficients!r}."
        )
    A = read_graph(graph).A
    n = A.shape[0]
    if shift == "renormalized":
        A = renormalized(A)
    elif shift == "normalized":
        d = np.asarray(A.sum(axis=1)).ravel()
        root = np.divide(1.0, np.sqrt(d), out=np.zeros(n), where=d > 0)
        A = scaled(A, root, root)
    if X is None:
        eye = sparse.eye_array(n, format="csr")
        found = theta[-1] * eye
        for value in theta[-2::-1]:  # Horner's rule
            found = found @ A + value * eye
        return sparse.csr_array(found)
    signals = np.asarray(X, dtype=np.float64)
    if signals.ndim not in (1, 2) or len(signals) != n:
        raise ValueError(f"X has shape {signals.shape}, but graph has {n} nodes.")
    out = theta[-1] * signals
    for value in theta[-2::-1]:
        out = product(A, out) + value * signals
    return out
