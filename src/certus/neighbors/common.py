"""Code that the estimators share: keeping the rows, and finding the nearest ones.

Fitting keeps a copy of the rows; all the work is in the queries. The k-d tree, where
there is one, is not part of the model: it is built again after a model was copied or
read from a file.
"""

from __future__ import annotations

import numbers
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import get_config
from sklearn.base import MultiOutputMixin
from sklearn.utils.validation import (
    check_is_fitted,
    check_non_negative,
)

from certus.base import Estimator, Fitted, check_choice, check_number, validate_data
from certus.callbacks import Monitor
from certus.certificate import Claim, Evidence
from certus.diagnostics import Diagnosed
from certus.diagnostics.neighbors import left_out
from certus.neighbors.metrics import NeighborMetric, check_sparse, resolve
from certus.neighbors.search import limits, search
from certus.neighbors.tree import build
from certus.persist.encoding import TRANSIENT
from certus.typing import Array, ArrayLike, MatrixLike

#: Up to this many columns a tree is faster than products.
TREE_COLUMNS = 8
#: With fewer rows, comparing all is faster than building a tree.
TREE_ROWS = 200
_ALGORITHMS = ("auto", "ball_tree", "kd_tree", "brute")
#: The trees of fitted models, each with the rows it was built on.
_TREES: weakref.WeakKeyDictionary[Any, tuple[Any, Any]] = weakref.WeakKeyDictionary()


class NeighborsBase(Diagnosed, MultiOutputMixin, Estimator):
    """The parameters, ``kneighbors`` and ``kneighbors_graph``; abstract."""

    _fit_method: str
    _y: Array

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        weights: str | Callable[..., Any] = "uniform",
        algorithm: str = "auto",
        leaf_size: int = 30,
        p: float = 2,
        metric: str | Callable[..., float] = "minkowski",
        metric_params: dict[str, Any] | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.algorithm = algorithm
        self.leaf_size = leaf_size
        self.p = p
        self.metric = metric
        self.metric_params = metric_params
        self.n_jobs = n_jobs

    def _keep(self, X: Any, *y: Any) -> Any:
        """Check parameters and data, store the rows, choose how to search.

        Returns X, and y where the rows have targets.
        """
        check_number("n_neighbors", self.n_neighbors, 1, integer=True)
        check_choice("algorithm", self.algorithm, _ALGORITHMS)
        check_number("leaf_size", self.leaf_size, 1, integer=True)
        weights = getattr(self, "weights", None)
        if not callable(weights):
            check_choice("weights", weights, ("uniform", "distance", None))
        if not isinstance(self.metric_params, dict | None):
            raise TypeError(
                f"metric_params must be a dict, got {self.metric_params!r}."
            )
        if self._pairwise():
            _check_graph(X)
        more = {"multi_output": True} if y else {}
        read = validate_data(
            self,
            X,
            *y,
            accept_sparse="csr",
            order="C",
            dtype=None if self._pairwise() else [np.float64, np.float32],
            ensure_all_finite="allow-nan" if self._allows_nan() else True,
            **more,
        )
        X = read[0] if y else read
        if y and sparse.issparse(read[1]):
            raise ValueError("y is sparse; pass y.toarray().")
        found = resolve(self.metric, self.p, self.metric_params, X.shape[1])
        metric, self.effective_metric_, self.effective_metric_params_ = found
        if sparse.issparse(X):
            check_sparse(metric)
        if metric.precomputed:
            check_non_negative(X, "precomputed distance matrix")
            if X.shape[0] != X.shape[1]:
                raise ValueError(
                    "Precomputed matrix must be square. Input is a "
                    f"{X.shape[0]}x{X.shape[1]} matrix."
                )
        self._fit_X = _own_copy(X)
        self._limits = limits(X)
        self.n_samples_fit_ = X.shape[0]
        self._fit_method = self._choose_algorithm(metric)
        self._tree()
        return read

    @property
    def rows_(self) -> Any:
        """The training rows kept, or the distances between them."""
        return self._fit_X

    @property
    def targets_(self) -> Array:
        """The targets kept: numbers, or positions among ``classes_``."""
        return self._y

    @property
    def algorithm_(self) -> str:
        """How neighbours are found: ``"kd_tree"`` or ``"brute"``."""
        return self._fit_method

    def _pairwise(self) -> bool:
        return isinstance(self.metric, str) and self.metric == "precomputed"

    def _allows_nan(self) -> bool:
        return isinstance(self.metric, str) and self.metric == "nan_euclidean"

    def _measured(
        self,
        witness: Any,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        level: str,
    ) -> list[Claim]:
        """The error on the training rows without themselves, at level full."""
        return [] if level == "quick" else left_out(self, X, self.rows_, self.targets_)

    def _fitted(self, X: Any, y: Any) -> Fitted:
        """Hand the statement to the verifier: these rows, their nearest."""
        monitor = Monitor(self, X, y)
        unlearned = {*self.get_params(), "certificate_", *TRANSIENT}
        learned = {k: v for k, v in vars(self).items() if k not in unlearned}
        monitor.close(learned)
        return Fitted(Evidence("neighbors"), X, y)

    def _metric(self) -> NeighborMetric:
        params = self.effective_metric_params_
        return resolve(self.effective_metric_, None, params, self.n_features_in_)[0]

    def _choose_algorithm(self, metric: NeighborMetric) -> str:
        """``"kd_tree"`` if it applies and either pays or is asked for, else "brute"."""
        X = self._fit_X
        _check_algorithm(self.algorithm, metric, sparse.issparse(X))
        applies = metric.code is not None and metric.p >= 1 and metric.weights is None
        if sparse.issparse(X) or not applies:
            return "brute"
        if self.algorithm == "auto":
            few = X.shape[1] <= TREE_COLUMNS and X.shape[0] >= TREE_ROWS
            return "kd_tree" if few and self.n_neighbors < X.shape[0] // 2 else "brute"
        return "brute" if self.algorithm == "brute" else "kd_tree"

    def _tree(self) -> Any:
        """The tree of the stored rows, built at first use; None for brute force."""
        if self._fit_method != "kd_tree":
            return None
        rows, tree = _TREES.get(self, (None, None))
        if rows is not self._fit_X:
            tree = build(self._fit_X, int(self.leaf_size))
            _TREES[self] = (self._fit_X, tree)
        return tree

    def kneighbors(
        self,
        X: Any = None,
        n_neighbors: int | None = None,
        return_distance: bool = True,
    ) -> Any:
        """The nearest training rows, ordered by distance, then by row number.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_queries, n_features), optional
            Queries; by default the training rows, none of which is its own neighbour.
        n_neighbors : int, optional
            How many; by default that of the constructor.
        return_distance : bool, default=True
            Whether to return the distances as well.

        Returns
        -------
        distances : ndarray of shape (n_queries, n_neighbors)
            In float64; only if ``return_distance``.
        rows : ndarray of shape (n_queries, n_neighbors)
            Numbers of training rows.
        """
        check_is_fitted(self)
        k = self.n_neighbors if n_neighbors is None else n_neighbors
        if n_neighbors is not None:
            _check_k(n_neighbors)
        own = None
        if X is None:
            X, own = self._fit_X, np.arange(self.n_samples_fit_)
        else:
            X = self._validate_queries(X)
        if k > self.n_samples_fit_ - (own is not None):
            sign = "<" if own is not None else "<="
            raise ValueError(
                f"Expected n_neighbors {sign} n_samples_fit, but n_neighbors = {k}, "
                f"n_samples_fit = {self.n_samples_fit_}, n_samples = {X.shape[0]}"
            )
        tree = self._tree()
        place = (own, tree, self._limits)
        found = search(self._fit_X, X, int(k), self._metric(), *place)
        return found if return_distance else found[1]

    def _validate_queries(self, X: MatrixLike) -> Any:
        if self._pairwise():
            _check_graph(X)
        X = validate_data(
            self,
            X,
            accept_sparse="csr",
            order="C",
            dtype=None if self._pairwise() else [np.float64, np.float32],
            ensure_all_finite="allow-nan" if self._allows_nan() else True,
            reset=False,
        )
        if self._pairwise():
            check_non_negative(X, "precomputed distance matrix")
        return X

    def kneighbors_graph(
        self,
        X: MatrixLike | None = None,
        n_neighbors: int | None = None,
        mode: str = "connectivity",
    ) -> Any:
        """The neighbours of each query as a sparse matrix, queries × training rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_queries, n_features), optional
            Queries; by default the training rows, none of which is its own neighbour.
        n_neighbors : int, optional
            How many; by default that of the constructor.
        mode : {"connectivity", "distance"}, default="connectivity"
            Whether entries are ones or distances.

        Returns
        -------
        graph : CSR matrix of shape (n_queries, n_samples_fit)
            With scikit-learn's setting ``sparse_interface="sparray"`` a CSR array.
        """
        if mode not in ("connectivity", "distance"):
            raise ValueError(
                "Unsupported mode, must be one of 'connectivity' or 'distance' but got "
                f"{mode!r} instead."
            )
        distances, rows = self.kneighbors(X, n_neighbors)
        values = distances if mode == "distance" else np.ones(rows.shape)
        starts = np.arange(0, rows.size + 1, rows.shape[1])
        arrays = get_config().get("sparse_interface") == "sparray"
        form = sparse.csr_array if arrays else sparse.csr_matrix
        shape = (len(rows), self.n_samples_fit_)
        return form((values.ravel(), rows.ravel(), starts), shape=shape)

    def _weigh(self, distances: Array) -> Array | None:
        """Votes of the neighbours; None if all are equal."""
        if self.weights in (None, "uniform"):
            return None
        if callable(self.weights):
            return np.asarray(self.weights(distances))
        with np.errstate(divide="ignore"):
            votes = 1.0 / distances
        met = np.isinf(votes)
        some = met.any(axis=1)
        votes[some] = met[some]  # for a query that equals a row, only that row votes
        return votes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._pairwise()
        tags.input_tags.positive_only = self._pairwise()
        tags.input_tags.allow_nan = self._allows_nan()
        return tags


def _own_copy(X: Any) -> Any:
    """A copy of the rows, so that later changes of the caller's array do not matter."""
    X = X.copy()
    if sparse.issparse(X):
        X.sum_duplicates()
    return X


def _check_graph(X: Any) -> None:
    """Refuse forms of sparse distances that drop explicit zeros."""
    if sparse.issparse(X) and X.format not in ("csr", "csc", "coo", "lil"):
        raise TypeError(
            f"Sparse matrix in {X.format!r} format is not supported due to its "
            "handling of explicit zeros. Convert it with .tocsr()."
        )


def _check_k(k: Any) -> None:
    if not isinstance(k, numbers.Integral):
        raise TypeError(
            f"n_neighbors does not take {type(k)} value, enter integer value"
        )
    if k <= 0:
        raise ValueError(f"Expected n_neighbors > 0. Got {k}")


def _check_algorithm(algorithm: str, metric: NeighborMetric, is_sparse: bool) -> None:
    """Refuse a tree that cannot be used; warn where brute force replaces it."""
    semi = metric.code is not None and metric.p < 1
    if algorithm in ("kd_tree", "ball_tree"):
        if is_sparse:
            warnings.warn(
                "cannot use tree with sparse input: using brute force", stacklevel=6
            )
        elif semi:
            raise ValueError(
                f'algorithm="{algorithm}" does not support 0 < p < 1 for the '
                "Minkowski metric. To resolve this problem either set p >= 1 or "
                'algorithm="brute".'
            )
        elif algorithm == "kd_tree" and metric.weights is not None:
            raise ValueError(
                "algorithm='kd_tree' is not valid for metric='minkowski' with a weight "
                "parameter 'w': use algorithm='brute'."
            )
        elif algorithm == "kd_tree" and metric.code is None:
            raise ValueError(
                f"kd_tree does not support the metric {metric.name!r}: use "
                "algorithm='brute'."
            )
    if semi and not (is_sparse and algorithm != "brute"):
        warnings.warn(
            "Mind that for 0 < p < 1, Minkowski metrics are not distance metrics. "
            "Continuing the execution with `algorithm='brute'`.",
            stacklevel=6,
        )
