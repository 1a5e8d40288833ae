"""Probabilities for a classifier that only gives scores, from rows it has not seen.

The scores s of a model flatter it on the rows it was fitted on, so each row is scored
by a copy that was fitted without it, and the probabilities are those of a logistic
regression on these scores:

    minimise over W, b   Σᵢ −log softmax(W·sᵢ + b)[yᵢ] + ‖W‖²/(2·C),   C = 10

with scores in units of their standard deviation (Platt, 1999, for two labels).
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import column_or_1d, get_tags
from sklearn.utils.validation import check_is_fitted

from certus.base import Estimator, check_number, class_codes, generator_of
from certus.config import config_context
from certus.conformal import forget_calibration
from certus.linear_model import LogisticRegression
from certus.typing import Array, ArrayLike, Fit, Matrix, MatrixLike, RandomState

__all__ = ["PlattClassifier"]

#: Inverse penalty of the logistic regression: light, and enough where labels separate.
_C = 10.0


class PlattClassifier(ClassifierMixin, MetaEstimatorMixin, Estimator):
    """A classifier with probabilities by logistic regression on held-out scores.

    Objective
    ---------
    That of the wrapped estimator, on all rows; then Σ −log p(y | scores) + ‖W‖²/20 of
    the scores that copies of it gave to rows they had not seen.

    Certificate
    -----------
    ``certificate_`` is that of the wrapped estimator, ``sigmoid_.certificate_`` that of
    the logistic regression. Where only one label has rows enough to be held out, the
    probabilities are the shares of the labels. Whether probabilities agree with
    frequencies on new rows is a question for rows that were kept aside: see
    :func:`certus.compare`.

    Parameters
    ----------
    estimator : classifier
        The wrapped estimator. Its ``decision_function`` is used, or its
        ``predict_proba``, or the labels it predicts.
    cv : int, or iterable of (train, test), default=5
        Folds of the cross-validation. Their number, keeping the shares of the labels,
        or the folds themselves.
    random_state : int or Generator, default=None
        Seed or generator of all random numbers. It decides the folds.

    Attributes
    ----------
    estimator_ : classifier
        Fitted to all rows.
    sigmoid_ : LogisticRegression
        From scores to probabilities.
    scale_ : ndarray
        Standard deviation of each column of scores.
    classes_ : ndarray
        The labels.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from certus.calibration import PlattClassifier
    >>> from certus.svm import LinearSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> model = PlattClassifier(LinearSVC(), random_state=0).fit(X, y)
    >>> model.predict_proba(X[:2]).round(2)
    array([[1., 0.],
           [1., 0.]])
    """

    def __init__(
        self, estimator: Fit, *, cv: Any = 5, random_state: RandomState = None
    ) -> None:
        self.estimator = estimator
        self.cv = cv
        self.random_state = random_state

    def fit(self, X: MatrixLike, y: ArrayLike) -> Self:
        """Fit the estimator, and the probabilities to scores of rows held out.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, as the estimator takes them.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        PlattClassifier
            Itself.
        """
        forget_calibration(self)
        if y is None:
            raise ValueError(
                "requires y to be passed, but the target y is None: PlattClassifier "
                "compares scores with labels."
            )
        labels = column_or_1d(y, warn=True)
        self.estimator_ = clone(self.estimator).fit(X, labels)
        self.classes_, codes = class_codes(labels)
        X = sparse.csr_array(X) if sparse.issparse(X) else np.asarray(X)
        rows, scores = self._held_out(X, labels, codes)
        spread = scores.std(axis=0)
        self.scale_ = np.where(spread > 0, spread, 1.0)
        with config_context(on_uncertified="ignore", certify="always"):
            self.sigmoid_ = LogisticRegression(C=_C).fit(
                scores / self.scale_, labels[rows]
            )
        return self

    def _held_out(self, X: Matrix, y: Array, codes: Array) -> tuple[Array, Array]:
        """Rows, and their scores by copies that were fitted without them."""
        rows: list[Array] = []
        scores: list[Array] = []
        for train, test in self._folds(codes):
            if len(np.unique(codes[train])) < len(self.classes_) or not len(test):
                continue  # a copy that lacks a label has other columns of scores
            with config_context(certify="never"):
                copy = clone(self.estimator).fit(X[train], y[train])
            rows.append(test)
            scores.append(_scores(copy, X[test]))
        if not rows or len(np.unique(codes[np.concatenate(rows)])) < 2:
            # Scores cannot be compared with labels; their shares are all that is known.
            width = _scores(self.estimator_, X[:1]).shape[1]
            return np.arange(len(codes)), np.zeros((len(codes), width))
        return np.concatenate(rows), np.concatenate(scores)

    def _folds(self, codes: Array) -> Any:
        if not isinstance(self.cv, int | np.integer):
            return self.cv
        check_number("cv", self.cv, 2, integer=True)
        most = int(np.bincount(codes).max())
        if most < 2 or len(self.classes_) < 2:
            raise ValueError(
                f"PlattClassifier needs two classes with two rows each, but y has "
                f"{len(self.classes_)} class and {len(codes)} rows."
            )
        # Dealt label by label, so that rare labels are spread as far as they go.
        rng = generator_of(self.random_state)
        order = rng.permutation(len(codes))
        order = order[np.argsort(codes[order], kind="stable")]
        fold = np.empty(len(codes), dtype=int)
        fold[order] = np.arange(len(codes)) % min(self.cv, len(codes))
        return [
            (np.flatnonzero(fold != k), np.flatnonzero(fold == k))
            for k in range(fold.max() + 1)
        ]

    def predict_proba(self, X: MatrixLike) -> Array:
        """Probability of each label.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        check_is_fitted(self)
        scores = _scores(self.estimator_, X) / self.scale_
        shares = np.zeros((len(scores), len(self.classes_)))
        # A label of a single row was never held out, and is given no probability.
        known = np.searchsorted(self.classes_, self.sigmoid_.classes_)
        shares[:, known] = self.sigmoid_.predict_proba(scores)
        return shares

    def predict(self, X: MatrixLike) -> Array:
        """The most probable label of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    @property
    def certificate_(self) -> Any:
        """Certificate of the wrapped estimator."""
        return self.estimator_.certificate_

    @property
    def n_features_in_(self) -> int:
        """Number of columns of X."""
        check_is_fitted(self)
        return int(self.estimator_.n_features_in_)

    @property
    def feature_names_in_(self) -> Any:
        """Names of the columns of X, if they had any."""
        return self.estimator_.feature_names_in_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags


def _scores(model: Fit, X: MatrixLike) -> Array:
    """One column for two labels, else one for each label (or pair of them)."""
    if hasattr(model, "decision_function"):
        found = np.asarray(model.decision_function(X), dtype=np.float64)
    elif hasattr(model, "predict_proba"):
        shares = np.asarray(model.predict_proba(X), dtype=np.float64)
        logs = np.log(np.clip(shares, 1e-6, None))
        found = logs[:, 1] - logs[:, 0] if shares.shape[1] == 2 else logs
    else:
        guess, classes = np.asarray(model.predict(X)), np.asarray(model.classes_)
        found = (guess[:, None] == classes).astype(np.float64)
        found = found[:, 1] if found.shape[1] == 2 else found
    return found[:, None] if found.ndim == 1 else found
