"""Regression by the mean target of the k nearest training rows.

    f(x) = Σ wᵢyᵢ / Σ wᵢ, over the k nearest xᵢ

with equal weights or weights 1/distance. Nothing is minimised: fitting keeps the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from certus.base import certified_fit
from certus.neighbors.common import NeighborsBase
from certus.typing import Array, MatrixLike


class KNeighborsRegressor(RegressorMixin, NeighborsBase):
    """k-nearest-neighbour regression, exact.

    Neighbours are ordered by their distance in float64, then by row number: of equally
    distant rows the first ones count. The answer does not depend on ``algorithm``,
    threads or block sizes.

    Objective
    ---------
    None: f(x) = the (weighted) mean target of the k nearest rows.

    Certificate
    -----------
    ``nearest_neighbours`` (PROVED): for a sample of training rows, compared with all
    others directly, no row nearer than those found was left out. ``training_rows``
    (PROVED): the stored rows and targets are those passed. At level "full" also
    ``leave_one_out`` (MEASURED), the error on training rows without themselves. The
    quick check costs a few comparisons of a row with all others.

    Parameters
    ----------
    n_neighbors : int, default=5
        Number of neighbours.
    weights : {"uniform", "distance"}, callable or None, default="uniform"
        Weights of the neighbours in a prediction. Equal weights, weights 1/distance (a
        row at distance zero counts alone), or a function from the array of distances to
        weights.
    algorithm : {"auto", "ball_tree", "kd_tree", "brute"}, default="auto"
        As in :class:`certus.neighbors.KNeighborsClassifier`.
    leaf_size : int, default=30
        Number of rows in a leaf of the tree.
    p : float, default=2
        Power of the Minkowski distance.
    metric : str or callable, default="minkowski"
        As in :class:`certus.neighbors.KNeighborsClassifier`.
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

    Notes
    -----
    Costs are those of :class:`certus.neighbors.KNeighborsClassifier`.

    Examples
    --------
    >>> from certus.neighbors import KNeighborsRegressor
    >>> model = KNeighborsRegressor(n_neighbors=2).fit([[0], [1], [2]], [0, 1, 4])
    >>> model.predict([[1.8]]), model.certificate_.met
    (array([2.5]), True)
    """

    @certified_fit
    def fit(self, X: MatrixLike, y: Any) -> Any:
        """Keep rows and their targets.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; their distances to each other if ``metric="precomputed"``.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        """
        X, y = self._keep(X, y)
        if y.dtype.kind not in "fiub":
            try:
                y = y.astype(np.float64)
            except (TypeError, ValueError):
                raise ValueError(
                    f"y is not numeric (it holds {y.flat[0]!r}); for labels use "
                    "KNeighborsClassifier."
                ) from None
        self._y = y.copy()
        return self._fitted(X, y)

    def predict(self, X: MatrixLike) -> Array:
        """Predicted targets.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_queries, n_features), or None
            Rows to predict; None for the training rows, each without itself.
        """
        distances, rows = self.kneighbors(X)
        weights = self._weigh(distances)
        targets = self._y.reshape(len(self._y), -1)[rows]
        if weights is None:
            mean = targets.mean(axis=1)
        else:
            total = weights.sum(axis=1)
            if not total.all():
                raise ValueError(
                    "The weights of the neighbors of some row sum to zero; change "
                    "'weights'."
                )
            mean = np.einsum("ij,ijk->ik", weights, targets) / total[:, None]
        return np.asarray(mean.ravel() if self._y.ndim == 1 else mean)
