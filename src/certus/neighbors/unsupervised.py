"""Which rows are near a query: the k nearest, or all within a radius.

Nothing is predicted and nothing is minimised: fitting keeps the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import get_config
from sklearn.utils.validation import check_is_fitted

from certus.base import certified_fit, check_number
from certus.certificate import Claim
from certus.neighbors.common import NeighborsBase
from certus.neighbors.radius import within
from certus.typing import Array, ArrayLike, MatrixLike


class NearestNeighbors(NeighborsBase):
    """The nearest rows of a query, or those within a radius; exact.

    Neighbours are ordered by their distance in float64, then by row number: of equally
    distant rows the first ones count. The answer does not depend on ``algorithm``,
    threads or block sizes.

    Objective
    ---------
    None: fitting keeps the rows.

    Certificate
    -----------
    ``nearest_neighbours`` (PROVED): for a sample of training rows, compared with all
    others directly, no row nearer than those found was left out. ``within_radius``
    (PROVED): for some of them, the rows found within ``radius`` are those that are.
    ``training_rows`` (PROVED): the stored rows are those passed. The quick check costs
    a few comparisons of a row with all others.

    Parameters
    ----------
    n_neighbors : int, default=5
        Number of neighbours. :meth:`kneighbors` finds as many.
    radius : float, default=1.0
        Up to which distance :meth:`radius_neighbors` finds neighbours.
    algorithm : {"auto", "ball_tree", "kd_tree", "brute"}, default="auto"
        As in :class:`certus.neighbors.KNeighborsClassifier`.
    leaf_size : int, default=30
        Number of rows in a leaf of the tree.
    metric : str or callable, default="minkowski"
        As in :class:`certus.neighbors.KNeighborsClassifier`.
    p : float, default=2
        Power of the Minkowski distance.
    metric_params : dict, default=None
        Further arguments of the metric.
    n_jobs
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    effective_metric_ : str or callable
        The distance used.
    effective_metric_params_ : dict
        Its parameters.
    n_samples_fit_ : int
        Number of stored rows.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from certus.neighbors import NearestNeighbors
    >>> model = NearestNeighbors(n_neighbors=2).fit([[0.0], [1.0], [3.0]])
    >>> distances, rows = model.kneighbors([[0.8]])
    >>> rows.tolist(), model.certificate_.met
    ([[1, 0]], True)
    >>> model.radius_neighbors([[0.8]], return_distance=False)[0].tolist()
    [0, 1]
    """

    def __init__(
        self,
        *,
        n_neighbors: int = 5,
        radius: float = 1.0,
        algorithm: str = "auto",
        leaf_size: int = 30,
        metric: str | Callable[..., float] = "minkowski",
        p: float = 2,
        metric_params: dict[str, Any] | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.radius = radius
        self.algorithm = algorithm
        self.leaf_size = leaf_size
        self.metric = metric
        self.p = p
        self.metric_params = metric_params
        self.n_jobs = n_jobs

    @certified_fit
    def fit(self, X: Any, y: ArrayLike | None = None) -> Any:
        """Keep rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; their distances to each other if ``metric="precomputed"``.
        y : None
            Ignored.
        """
        check_number("radius", self.radius)
        X = self._keep(X)
        return self._fitted(X, None)

    def radius_neighbors(
        self,
        X: Any = None,
        radius: float | None = None,
        return_distance: bool = True,
        sort_results: bool = False,
    ) -> Any:
        """All training rows within a radius of each query.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_queries, n_features), optional
            Queries; by default the training rows, none of which is its own neighbour.
        radius : float, optional
            The largest distance; by default that of the constructor.
        return_distance : bool, default=True
            Whether to return the distances as well.
        sort_results : bool, default=False
            Order by distance; else by row number.

        Returns
        -------
        distances : ndarray of shape (n_queries,)
            One array for each query; only if ``return_distance``.
        rows : ndarray of shape (n_queries,)
            One array of row numbers for each query.
        """
        check_is_fitted(self)
        if sort_results and not return_distance:
            raise ValueError("return_distance must be True if sort_results is True.")
        radius = self.radius if radius is None else radius
        check_number("radius", radius)
        own = X is None
        queries = self._fit_X if own else self._validate_queries(X)
        place = (float(radius), self._metric(), own, self._tree())
        distances, rows = within(self._fit_X, queries, *place)
        if sort_results:
            orders = [np.argsort(far, kind="stable") for far in distances]
            distances = [far[order] for far, order in zip(distances, orders)]
            rows = [names[order] for names, order in zip(rows, orders)]
        found = _listed(rows)
        return (_listed(distances), found) if return_distance else found

    def radius_neighbors_graph(
        self,
        X: MatrixLike | None = None,
        radius: float | None = None,
        mode: str = "connectivity",
        sort_results: bool = False,
    ) -> Any:
        """The rows within a radius as a sparse matrix, queries × training rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_queries, n_features), optional
            Queries; by default the training rows, none of which is its own neighbour.
        radius : float, optional
            The largest distance; by default that of the constructor.
        mode : {"connectivity", "distance"}, default="connectivity"
            Whether entries are ones or distances.
        sort_results : bool, default=False
            Order the entries of each row by distance; only with ``mode="distance"``.

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
        more = {"sort_results": sort_results and mode == "distance"}
        distances, rows = self.radius_neighbors(X, radius, **more)
        starts = np.append(0, np.cumsum([len(names) for names in rows]))
        names = np.concatenate(list(rows))
        values = np.concatenate(list(distances))
        values = values if mode == "distance" else np.ones(len(names))
        arrays = get_config().get("sparse_interface") == "sparray"
        form = sparse.csr_array if arrays else sparse.csr_matrix
        return form((values, names, starts), shape=(len(rows), self.n_samples_fit_))

    def _measured(
        self,
        witness: Any,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        level: str,
    ) -> list[Claim]:
        """Nothing is predicted that could be wrong."""
        return []

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        tags.target_tags.multi_output = False
        return tags


def _listed(parts: list[Array]) -> Array:
    """An array of arrays, also where all have one length."""
    out = np.empty(len(parts), dtype=object)
    out[:] = parts
    return out
