"""Classification by the vote of the k nearest training rows.

    f(x) = argmax over labels c of Σ wᵢ·1{yᵢ = c}, over the k nearest xᵢ

with equal weights or weights 1/distance. Nothing is minimised: fitting keeps the rows.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets

from certus._core.threads import slices
from certus.base import certified_fit, label_codes
from certus.neighbors.common import NeighborsBase
from certus.typing import Array, MatrixLike

#: Votes counted at a time.
VOTES = 1 << 23


class KNeighborsClassifier(ClassifierMixin, NeighborsBase):
    """k-nearest-neighbour classifier, exact.

    Neighbours are ordered by their distance in float64, then by row number: of equally
    distant rows the first ones count. Labels with equal votes go to the one that sorts
    first. The answer does not depend on ``algorithm``, threads or block sizes.

    Objective
    ---------
    None: f(x) = the label with the most votes among the k nearest rows.

    Certificate
    -----------
    ``nearest_neighbours`` (PROVED): for a sample of training rows, compared with all
    others directly, no row nearer than those found was left out. ``training_rows``
    (PROVED): the stored rows and labels are those passed. At level "full" also
    ``leave_one_out`` (MEASURED), the error on training rows without themselves. The
    quick check costs a few comparisons of a row with all others.

    Parameters
    ----------
    n_neighbors : int, default=5
        Number of neighbours.
    weights : {"uniform", "distance"}, callable or None, default="uniform"
        Weights of the neighbours in a prediction. Equal votes, votes 1/distance (a row
        at distance zero outvotes all others), or a function from the array of distances
        to votes.
    algorithm : {"auto", "ball_tree", "kd_tree", "brute"}, default="auto"
        How neighbours are found. A k-d tree pays up to about eight columns;
        ``"ball_tree"`` uses it as well. Brute force compares each query with every row,
        for the Euclidean distance through float32 products whose candidates are settled
        in float64.
    leaf_size : int, default=30
        Number of rows in a leaf of the tree.
    p : float, default=2
        Power of the Minkowski distance.
    metric : str or callable, default="minkowski"
        Name of a distance, or a function of two rows. Names are ``"euclidean"``,
        ``"manhattan"``, ``"chebyshev"``, ``"minkowski"``, ``"precomputed"``, another
        name of scikit-learn's, or a function of two rows.
    metric_params : dict, default=None
        Further arguments of the metric.
    n_jobs
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    classes_ : ndarray, or list of ndarrays
        Labels, per output.
    effective_metric_ : str or callable
        The distance used.
    effective_metric_params_ : dict
        Its parameters.
    n_samples_fit_ : int
        Number of stored rows.
    outputs_2d_ : bool
        Whether y had several columns.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    Fitting is O(n·d), with a tree O(d·n log n). A query costs O(n·d), with a tree in
    few dimensions O(log n). Memory: a copy of the rows, and blocks of some 100 MB.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from certus.neighbors import KNeighborsClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = KNeighborsClassifier(n_neighbors=5).fit(X, y)
    >>> model.certificate_.met, round(model.score(X, y), 2)
    (True, 0.97)
    """

    @certified_fit
    def fit(self, X: MatrixLike, y: Any) -> Any:
        """Keep labelled rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; their distances to each other if ``metric="precomputed"``.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Labels.
        """
        X, y = self._keep(X, y)
        self.outputs_2d_ = y.ndim == 2 and y.shape[1] > 1
        if y.ndim == 2 and not self.outputs_2d_:
            warnings.warn(
                "A column-vector y was passed when a 1d array was expected. Please "
                "change the shape of y to (n_samples,), for example using ravel().",
                DataConversionWarning,
                stacklevel=4,
            )
            y = y.ravel()
        if self.outputs_2d_:
            check_classification_targets(y)
            found = [np.unique(c, return_inverse=True) for c in y.T]
        else:
            found = [label_codes(y)]
        codes = np.stack([code.ravel() for _, code in found], axis=1).astype(np.intp)
        labels = [names for names, _ in found]
        self.classes_: Any = labels if self.outputs_2d_ else labels[0]
        self._y = codes if self.outputs_2d_ else codes.ravel()
        return self._fitted(X, y)

    def _votes(self, X: MatrixLike) -> Any:
        """Yield (queries, output, labels, votes per label), a block at a time."""
        distances, rows = self.kneighbors(X)
        weights = self._weigh(distances)
        if weights is not None and (weights == 0).all(axis=1).any():
            raise ValueError(
                "All neighbors of some sample is getting zero weights. Please modify "
                "'weights' to avoid this case if you are using a user-defined function."
            )
        labels = self.classes_ if self.outputs_2d_ else [self.classes_]
        codes = _columns(self._y)
        for k, names in enumerate(labels):
            for part in slices(len(rows), max(1, VOTES // len(names))):
                some = codes[rows[part], k]
                each = len(names) * np.arange(len(some))[:, None] + some
                add = None if weights is None else weights[part].ravel()
                size = len(some) * len(names)
                votes = np.bincount(each.ravel(), add, size).astype(float)
                votes = votes.reshape(len(some), len(names))
                yield part, k, names, votes

    def predict(self, X: MatrixLike) -> Array:
        """Predicted labels.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_queries, n_features), or None
            Rows to label; None for the training rows, each without itself.
        """
        names: list[list[Any]] = []
        for _, k, labels, votes in self._votes(X):
            if k == len(names):
                names.append([])
            names[k].append(labels[votes.argmax(axis=1)])
        columns = [np.concatenate(parts) for parts in names]
        return np.stack(columns, axis=1) if self.outputs_2d_ else columns[0]

    def predict_proba(self, X: MatrixLike) -> Any:
        """Share of the votes for each label, columns in the order of ``classes_``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_queries, n_features), or None
            Rows to label; None for the training rows, each without itself.

        Returns
        -------
        shares : ndarray of shape (n_queries, n_classes)
            With several outputs, a list of them.
        """
        shares: list[list[Array]] = []
        for _, k, _, votes in self._votes(X):
            if k == len(shares):
                shares.append([])
            votes /= votes.sum(axis=1, keepdims=True)
            shares[k].append(votes)
        outputs = [np.concatenate(parts) for parts in shares]
        return outputs if self.outputs_2d_ else outputs[0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def _columns(y: Array) -> Array:
    return y.reshape(len(y), -1)
