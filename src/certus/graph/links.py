"""Which nodes are linked: scores of pairs from vectors of the nodes.

    Q ≈ Σ_c λ_c v_c v_cᵀ,   s_ij = √(d̃ᵢd̃ⱼ)·Σ_c λ_c^p v_ic v_jc

The largest eigenvalues of Q = D̃^{-1/2}(A + I)D̃^{-1/2} and their vectors describe a
graph best in few numbers. A score is an inner product of vectors of the two nodes; with
p = 2 it counts paths of two edges and so common neighbours. Some edges are held out,
and an interval says how often one of them scores higher than a pair without an edge.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import linalg as sparse_linalg
from sklearn.utils.validation import check_is_fitted

from certus.base import Fitted, Model, certified_fit, check_number, generator_of
from certus.callbacks import Monitor
from certus.certificate import Evidence
from certus.edge_kernels import product
from certus.edges import read_graph
from certus.graph.filters import renormalized
from certus.typing import (
    Array,
    ArrayLike,
    Column,
    CompressedMatrix,
    GraphLike,
    RandomState,
)

#: Up to this many nodes all eigenvectors are computed.
SMALL = 400


class LinkPredictor(Model):
    """Scores pairs of nodes by how likely they are linked.

    Objective
    ---------
    The largest eigenvalues of Q = D̃^{-1/2}(A + I)D̃^{-1/2} and their vectors, A without
    the edges that are held out.

    Certificate
    -----------
    ``eigen_residual`` (PROVED, bounded by ``tol``): each eigenvalue is within this of a
    true one of Q. ``link_auc`` (STATISTICAL): how often a new edge scores higher than a
    pair without one, from disjoint pairs of a held-out edge and a held-out non-edge;
    new edges must be drawn as those held out were. ``auc_of_all_pairs`` (MEASURED).

    Parameters
    ----------
    n_components : int, default=16
        Number of components.
    path_length : int, default=2
        Length p of the paths that a score counts.
    validation_fraction : float, default=0.1
        Share of the rows that is held out.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.
    tol : float, default=1e-6
        Target of the certificate's primary claim.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide the edges held out.

    Attributes
    ----------
    graph_ : csr_array of shape (n_nodes, n_nodes)
        Adjacency without the edges held out.
    eigenvalues_ : ndarray of shape (n_components,)
        Eigenvalues of Q, the largest first.
    eigenvectors_ : ndarray of shape (n_nodes, n_components)
        Their vectors.
    held_edges_ : ndarray of shape (n_held, 2)
        Ends of the edges held out.
    held_non_edges_ : ndarray of shape (n_held, 2)
        As many pairs without an edge, drawn at random.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    A fit is one eigendecomposition, which cannot be stopped and resumed. Callbacks see
    its beginning and its end.

    Examples
    --------
    >>> from certus.graph import LinkPredictor, stochastic_block_model
    >>> A, _ = stochastic_block_model(
    ...     [50, 50], [[0.3, 0.02], [0.02, 0.3]], random_state=0
    ... )
    >>> model = LinkPredictor(2, random_state=0).fit(A)
    >>> inside, across = model.decision_function([(0, 1), (0, 99)])
    >>> bool(inside > across), model.certificate_["link_auc"].value > 0.5
    (True, True)
    """

    def __init__(
        self,
        n_components: int = 16,
        *,
        path_length: int = 2,
        validation_fraction: float = 0.1,
        delta: float = 0.05,
        tol: float = 1e-6,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.path_length = path_length
        self.validation_fraction = validation_fraction
        self.delta = delta
        self.tol = tol
        self.random_state = random_state

    @certified_fit
    def fit(self, graph: GraphLike, y: Column = None) -> Any:
        """Find the vectors of the nodes.

        Parameters
        ----------
        graph : sparse matrix, array, list of edges, networkx graph or PyG Data
            Edges without a direction.
        y : None
            Ignored.
        """
        check_number("n_components", self.n_components, 1, integer=True)
        check_number("path_length", self.path_length, 1, integer=True)
        check_number("validation_fraction", self.validation_fraction, 0, 1)
        check_number("delta", self.delta, 0, 1, open_low=True)
        check_number("tol", self.tol)
        A, _ = read_graph(graph)
        monitor = Monitor(self, graph, None)
        rng = generator_of(self.random_state)
        self.held_edges_, self.held_non_edges_ = _held_out(
            A, self.validation_fraction, rng
        )
        self.graph_ = _without(A, self.held_edges_)
        Q, n = renormalized(self.graph_), A.shape[0]
        k = min(int(self.n_components), n)
        if n <= SMALL or k >= n - 1:
            values, V = np.linalg.eigh(Q.toarray())
        else:
            times = sparse_linalg.LinearOperator(
                (n, n), lambda v: product(Q, np.asarray(v).ravel()), dtype=np.float64
            )
            start = rng.uniform(-1, 1, n)
            values, V = sparse_linalg.eigsh(times, k, which="LA", v0=start)
        order = np.argsort(-values)[:k]
        self.eigenvalues_, self.eigenvectors_ = values[order], V[:, order]
        monitor.close({})
        return Fitted(Evidence("links"), (None, graph), None)

    def decision_function(self, pairs: ArrayLike) -> Array:
        """Scores of pairs of nodes; higher means that a link is more likely.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2)
            Numbers of nodes.

        Returns
        -------
        ndarray of shape (n_pairs,)
            Inner products of the vectors of the two nodes.
        """
        check_is_fitted(self, "eigenvectors_")
        ends = np.asarray(pairs)
        n = self.graph_.shape[0]
        if ends.ndim != 2 or ends.shape[1] != 2 or ends.dtype.kind not in "iu":
            raise ValueError(
                "pairs must be whole numbers of shape (n_pairs, 2), got "
                f"{ends.dtype} of shape {ends.shape}."
            )
        if len(ends) and not 0 <= ends.min() <= ends.max() < n:
            raise ValueError(
                f"pairs must name nodes from 0 to {n - 1}, got {ends.min()} to "
                f"{ends.max()}."
            )
        root = np.sqrt(1.0 + np.asarray(self.graph_.sum(axis=1)).ravel())
        V = root[:, None] * self.eigenvectors_
        powers = self.eigenvalues_ ** int(self.path_length)
        return np.einsum("pc,c,pc->p", V[ends[:, 0]], powers, V[ends[:, 1]])


def _held_out(
    A: CompressedMatrix, share: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Edges drawn at random, and as many pairs of nodes without an edge."""
    upper = sparse.coo_array(sparse.triu(A, 1))
    ends = np.column_stack(upper.coords).astype(np.int64)
    count = int(share * len(ends))
    n = A.shape[0]
    free = n * (n - 1) // 2 - len(ends)
    count = min(count, free)
    chosen = ends[np.sort(rng.choice(len(ends), count, replace=False))]
    if not count:
        return chosen.reshape(0, 2), np.zeros((0, 2), dtype=np.int64)
    linked = set((ends[:, 0] * n + ends[:, 1]).tolist())
    found: dict[int, None] = {}
    while len(found) < count:
        i, j = np.sort(rng.integers(n, size=(2, 2 * count + 16)), axis=0)
        for key in (i * n + j)[i < j].tolist():
            if key not in linked and len(found) < count:
                found[key] = None
    keys = np.array(list(found), dtype=np.int64)
    return chosen, np.column_stack([keys // n, keys % n])


def _without(A: CompressedMatrix, edges: Array) -> Any:
    """A without some of its edges."""
    n = A.shape[0]
    i, j = np.r_[edges[:, 0], edges[:, 1]], np.r_[edges[:, 1], edges[:, 0]]
    gone = sparse.csr_array((np.ones(len(i)), (i, j)), shape=(n, n))
    left = sparse.csr_array(A - A.multiply(gone != 0))
    left.eliminate_zeros()
    return left
