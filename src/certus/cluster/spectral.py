"""Spectral clustering: groups of a graph between which little weight is cut.

    minimise over partitions  Σⱼ cut(Sⱼ)/vol(Sⱼ),   vol(S) = Σ_{i∈S} dᵢ

The eigenvectors of the smallest eigenvalues of I − D^{-1/2}WD^{-1/2} minimise this over
more than partitions; their rows, divided by √dᵢ, are then grouped. The sum of those
eigenvalues is a lower bound for every partition.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import linalg, sparse
from scipy.sparse import linalg as sparse_linalg
from sklearn.base import ClusterMixin
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.neighbors import NearestNeighbors, kneighbors_graph

from certus import config
from certus.base import (
    Fitted,
    Model,
    certified_fit,
    check_choice,
    check_number,
    generator_of,
    validate_data,
)
from certus.callbacks import Monitor
from certus.certificate import Evidence
from certus.cluster.kmeans import KMeans
from certus.edge_kernels import product
from certus.edges import read_graph
from certus.evidence import CutWitness
from certus.typing import Array, RandomState

#: Up to this many rows all eigenvectors are computed.
SMALL = 400
#: Rounds of :func:`discretize`.
ROUNDS = 30
_GIVEN = ("precomputed", "precomputed_nearest_neighbors")


class SpectralClustering(ClusterMixin, Model):
    """Clusters of a graph, or of rows that are joined to similar ones.

    Objective
    ---------
    Σⱼ cut(Sⱼ)/vol(Sⱼ), the normalised cut, over partitions into ``n_clusters`` sets.

    Certificate
    -----------
    ``normalised_cut`` (PROVED for up to 1,000 nodes, two clusters up to 3,000, else
    MEASURED): the cut found is within this factor of the best one, because no cut is
    below the sum of the smallest eigenvalues, which are bounded from below by inertia.
    ``conductance`` (PROVED likewise): the same for the share of weight that leaves the
    smaller of two clusters, by Cheeger's inequality.

    Parameters
    ----------
    n_clusters : int, default=8
        How many clusters.
    eigen_solver : {None, "arpack", "lobpcg", "amg"}, default=None
        Not used; accepted for compatibility with scikit-learn.
    n_components : int, default=None
        Number of components. They are eigenvectors; None means ``n_clusters``.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide the starts.
    n_init : int, default=10
        Number of starts, of which the best is kept.
    gamma : float, default=1.0
        Scale of the kernels "poly", "rbf", "laplacian" and "sigmoid". Also that of
        "chi2".
    affinity : str or callable, default="rbf"
        How the rows make a graph. A kernel of scikit-learn, "nearest_neighbors", a
        function of two rows; "precomputed" takes X as the graph (a matrix, a list of
        edges, a networkx graph or a PyG Data), "precomputed_nearest_neighbors" as
        distances.
    n_neighbors : int, default=10
        Number of neighbours. The row itself is one of them.
    eigen_tol : float or "auto", default="auto"
        Accuracy of eigenvalues; "auto" is that of float64.
    assign_labels : {"kmeans", "discretize", "cluster_qr"}, default="kmeans"
        How the rows of the eigenvectors are grouped.
    degree : float, default=3
        Degree of the kernel "poly".
    coef0 : float, default=1
        Constant of the kernels "poly" and "sigmoid".
    kernel_params : dict, default=None
        Further arguments of a function. They may also be those of a kernel.
    n_jobs : int, default=None
        Number of processes that look for neighbours.
    verbose
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    affinity_matrix_ : array or sparse matrix of shape (n_samples, n_samples)
        Weights of the graph.
    labels_ : ndarray of shape (n_samples,)
        The cluster of each row.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    A fit is one eigendecomposition and a short k-means. It cannot be stopped and
    resumed; callbacks see its beginning and its end.

    Examples
    --------
    >>> from certus.cluster import SpectralClustering
    >>> edges = [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (4, 5), (3, 5)]
    >>> model = SpectralClustering(2, affinity="precomputed", random_state=0)
    >>> labels = model.fit(edges).labels_
    >>> bool(labels[0] == labels[1] == labels[2] != labels[3] == labels[4])
    True
    >>> model.certificate_["normalised_cut"].value < 2  # times the best cut
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        eigen_solver: str | None = None,
        n_components: int | None = None,
        random_state: RandomState = None,
        n_init: int = 10,
        gamma: float = 1.0,
        affinity: Any = "rbf",
        n_neighbors: int = 10,
        eigen_tol: float | str = "auto",
        assign_labels: str = "kmeans",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: Mapping[str, Any] | None = None,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.eigen_solver = eigen_solver
        self.n_components = n_components
        self.random_state = random_state
        self.n_init = n_init
        self.gamma = gamma
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.eigen_tol = eigen_tol
        self.assign_labels = assign_labels
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.n_jobs = n_jobs
        self.verbose = verbose

    @certified_fit
    def fit(self, X: Any, y: Any = None) -> Any:
        """Find clusters.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), or a graph
            Rows; with ``affinity="precomputed"`` the graph itself.
        y : None
            Ignored.
        """
        self._check()
        W, X = self._graph(X)
        n, k = W.shape[0], int(self.n_clusters)
        if n < k:
            raise ValueError(f"n_samples={n} should be >= n_clusters={k}.")
        self.affinity_matrix_, monitor = W, Monitor(self, X, None)
        count = k if self.n_components is None else int(self.n_components)
        rng = generator_of(self.random_state)
        V, root = self._vectors(W, min(max(count, k), n), rng)
        maps = V[:, :count] / root[:, None]
        self.labels_ = self._grouped(maps, k, rng)
        monitor.close({})
        return Fitted(Evidence("graph_cut", CutWitness(V)), X, None)

    def _check(self) -> None:
        check_number("n_clusters", self.n_clusters, 1, integer=True)
        check_number("n_components", self.n_components, 1, integer=True, none=True)
        check_number("n_init", self.n_init, 1, integer=True)
        check_number("n_neighbors", self.n_neighbors, 1, integer=True)
        check_number("gamma", self.gamma)
        check_number("degree", self.degree)
        check_number("coef0", self.coef0, -math.inf)
        if self.eigen_tol != "auto":
            check_number("eigen_tol", self.eigen_tol)
        check_choice("eigen_solver", self.eigen_solver, (None, *_SOLVERS))
        check_choice("assign_labels", self.assign_labels, _ASSIGN)

    def _graph(self, X: Any) -> tuple[Any, Any]:
        """The weights, and what the verifier compares them with."""
        kind = self.affinity
        plain = sparse.issparse(X) or hasattr(X, "__array__")
        rows = isinstance(X, list) and X and not isinstance(X[0], tuple)
        if kind == "precomputed" and not plain and not rows:
            W = read_graph(X).A
            self.n_features_in_ = W.shape[0]
            return W, X
        X = validate_data(
            self,
            X,
            accept_sparse=["csr", "csc", "coo"],
            dtype=np.float64,
            ensure_min_samples=2,
        )
        if kind == "precomputed":
            return read_graph(X).A if sparse.issparse(X) else _symmetric(X), X
        if kind == "nearest_neighbors":
            near = kneighbors_graph(
                X, int(self.n_neighbors), include_self=True, n_jobs=self.n_jobs
            )
            return sparse.csr_array(0.5 * (near + near.T)), X
        if kind == "precomputed_nearest_neighbors":
            model = NearestNeighbors(
                n_neighbors=int(self.n_neighbors), metric="precomputed"
            ).fit(X)
            near = model.kneighbors_graph(X, mode="connectivity")
            return sparse.csr_array(0.5 * (near + near.T)), X
        params = dict(self.kernel_params or {})
        if not callable(kind):
            params |= {"gamma": self.gamma, "degree": self.degree, "coef0": self.coef0}
        try:
            W = pairwise_kernels(X, metric=kind, filter_params=True, **params)
        except ValueError as error:
            if not isinstance(kind, str) or "known kernel" not in str(error):
                raise
            raise ValueError(
                "affinity must be 'rbf', 'nearest_neighbors', 'precomputed', "
                "'precomputed_nearest_neighbors', another kernel of scikit-learn or a "
                f"function, got {kind!r}."
            ) from None
        return _symmetric(W), X

    def _vectors(self, W: Any, k: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """The k eigenvectors of I − S of the smallest eigenvalues, and √d."""
        n = W.shape[0]
        W = sparse.csr_array(W) if sparse.issparse(W) else np.array(W)
        diagonal = W.diagonal()
        d = np.asarray(W.sum(axis=1)).ravel() - diagonal
        root = np.sqrt(np.where(d > 0, d, 1.0))

        def times(v: Array) -> Array:
            v = np.asarray(v, dtype=np.float64).ravel() / root
            found = product(W, v) if sparse.issparse(W) else W @ v
            return np.asarray((found - diagonal * v) / root)

        if n <= SMALL or k >= n - 1:
            dense = W.toarray() if sparse.issparse(W) else W
            S = (dense - np.diag(diagonal)) / root / root[:, None]
            values, V = linalg.eigh((S + S.T) / 2)
        else:
            tol = 0.0 if self.eigen_tol == "auto" else float(self.eigen_tol)
            S = sparse_linalg.LinearOperator((n, n), times, dtype=np.float64)
            try:
                values, V = sparse_linalg.eigsh(
                    S, k, which="LA", tol=tol, v0=rng.uniform(-1, 1, n)
                )
            except sparse_linalg.ArpackNoConvergence as error:
                raise ValueError(
                    "The eigenvectors were not found to this accuracy. Raise "
                    "eigen_tol, for example to 1e-6."
                ) from error
        V = V[:, np.argsort(-values)[:k]]
        # Signs are arbitrary: the largest entry of each vector is positive.
        largest = V[np.abs(V).argmax(axis=0), np.arange(V.shape[1])]
        return V * np.where(largest < 0, -1.0, 1.0), root

    def _grouped(self, maps: Array, k: int, rng: np.random.Generator) -> Array:
        if self.assign_labels == "cluster_qr":
            return by_pivots(maps)
        if self.assign_labels == "discretize":
            return discretize(maps, rng)
        seed = int(rng.integers(2**31 - 1))
        model = KMeans(k, n_init=int(self.n_init), random_state=seed)
        with config.config_context(certify="never"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.asarray(model.fit(maps).labels_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.affinity in _GIVEN
        return tags


_SOLVERS = ("arpack", "lobpcg", "amg")
_ASSIGN = ("kmeans", "discretize", "cluster_qr")


def _symmetric(W: Array) -> Array:
    """Weights with their transpose; what is not rounding is an error."""
    if W.shape[0] != W.shape[1]:
        raise ValueError(f"The affinity matrix must be square, got shape {W.shape}.")
    gap = float(np.abs(W - W.T).max(initial=0.0))
    if gap > 1e-10 * max(float(np.abs(W).max(initial=0.0)), 1e-300):
        raise ValueError(
            "The affinity matrix must be symmetric: pass (W + W.T) / 2, or use edges "
            "without a direction."
        )
    return W if gap == 0 else (W + W.T) / 2


def by_pivots(maps: Array) -> Array:
    """Groups by the rows that a QR factor with pivots chooses, one for each group."""
    k = maps.shape[1]
    chosen = linalg.qr(maps.T, pivoting=True)[2][:k]
    left, _, right = linalg.svd(maps[chosen].T)
    return np.asarray(np.abs(maps @ (left @ right)).argmax(axis=1))


def discretize(maps: Array, rng: np.random.Generator) -> Array:
    """Groups by the rotation that brings the rows nearest to unit vectors."""
    n, k = maps.shape
    lengths = np.linalg.norm(maps, axis=1)
    rows = maps / np.where(lengths > 0, lengths, 1.0)[:, None]
    # Rows at right angles to one another, beginning anywhere.
    rotation, seen = np.zeros((k, k)), np.zeros(n)
    rotation[:, 0] = rows[rng.integers(n)]
    for j in range(1, k):
        seen += np.abs(rows @ rotation[:, j - 1])
        rotation[:, j] = rows[seen.argmin()]
    labels, before = np.zeros(n, dtype=np.int64), -1.0
    for _ in range(ROUNDS):
        labels = (rows @ rotation).argmax(axis=1)
        sums = np.zeros((k, k))
        np.add.at(sums, labels, rows)
        U, sizes, Vt = linalg.svd(sums)
        if abs(sizes.sum() - before) <= 1e-12 * n:
            break
        before = float(sizes.sum())
        rotation = Vt.T @ U.T
    return labels
