"""Decide between two labels at a chosen probability instead of one half.

    answer = positive label  if  p(positive | x) ≥ threshold,  else the other

With costs c_fp of a false alarm and c_fn of a miss, the best threshold of probabilities
that are true is c_fp/(c_fp + c_fn); :func:`certus.compare` chooses it on rows that the
model has not seen, and states what it costs on new rows.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from certus.base import Estimator, check_number
from certus.conformal import forget_calibration
from certus.typing import Array, ArrayLike, Fit, MatrixLike

__all__ = ["ThresholdClassifier"]


class ThresholdClassifier(ClassifierMixin, MetaEstimatorMixin, Estimator):
    """A classifier of two labels that says "positive" from a given probability on.

    Objective
    ---------
    That of the wrapped estimator; the threshold is a parameter.

    Certificate
    -----------
    ``certificate_`` is that of the wrapped estimator.

    Parameters
    ----------
    estimator : classifier
        The wrapped estimator. It must have ``predict_proba``.
    cutoff : float, default=0.5
        Smallest probability of the positive label at which it is the answer.
    positive_label : label, default=None
        The label that the threshold is about. None means the second of ``classes_``.

    Attributes
    ----------
    estimator_ : classifier
        Fitted.
    classes_ : ndarray of shape (2,)
        The labels.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from certus.calibration import ThresholdClassifier
    >>> from certus.linear_model import LogisticRegression
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> plain = LogisticRegression().fit(X, y)
    >>> careful = ThresholdClassifier(
    ...     LogisticRegression(), cutoff=0.1, positive_label=0
    ... )
    >>> missed = (careful.fit(X, y).predict(X) != 0) & (y == 0)
    >>> int(missed.sum()) < int(((plain.predict(X) != 0) & (y == 0)).sum())
    True
    """

    def __init__(
        self, estimator: Fit, *, cutoff: float = 0.5, positive_label: Any = None
    ) -> None:
        self.estimator = estimator
        self.cutoff = cutoff
        self.positive_label = positive_label

    def fit(self, X: MatrixLike, y: ArrayLike) -> Self:
        """Fit the wrapped estimator.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, as the estimator takes them.
        y : array-like of shape (n_samples,)
            Two labels.

        Returns
        -------
        ThresholdClassifier
            Itself.
        """
        forget_calibration(self)
        check_number("cutoff", self.cutoff, 0, 1)
        self.estimator_ = clone(self.estimator).fit(X, y)
        labels = np.asarray(self.estimator_.classes_)
        if len(labels) > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is "
                f"multiclass: y holds {len(labels)} classes. Merge them into two."
            )
        if not hasattr(self.estimator_, "predict_proba"):
            raise TypeError(
                f"{type(self.estimator).__name__} gives no probabilities. Wrap it in "
                "certus.calibration.PlattClassifier."
            )
        self._column()
        return self

    def _column(self) -> int:
        """Place of the positive label among the classes."""
        labels = np.asarray(self.estimator_.classes_)
        if self.positive_label is None:
            return len(labels) - 1
        found = np.flatnonzero(labels == self.positive_label)
        if not len(found):
            raise ValueError(
                f"positive_label must be one of {labels.tolist()}, got "
                f"{self.positive_label!r}."
            )
        return int(found[0])

    def predict_proba(self, X: MatrixLike) -> Array:
        """Probability of each label, that of the wrapped estimator.

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
        return np.asarray(self.estimator_.predict_proba(X))

    def predict(self, X: MatrixLike) -> Array:
        """The positive label where its probability reaches the threshold.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        shares = self.predict_proba(X)
        at = self._column()
        if len(self.classes_) == 1:
            return np.full(len(shares), self.classes_[0])
        said = np.where(shares[:, at] >= self.cutoff, at, 1 - at)
        return np.asarray(self.classes_[said])

    @property
    def classes_(self) -> Any:
        """The labels."""
        return self.estimator_.classes_

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
        tags.classifier_tags.multi_class = False
        return tags
