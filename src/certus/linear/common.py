"""What the linear estimators share: scores, labels, and how targets are centred."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from certus.base import Estimator
from certus.convex.design import Array, Design
from certus.verify.data import weights

#: Suggested when a linear fit misses its target.
RESCALE = "standardise the columns (StandardScaler)"


class LinearRegressorBase(Estimator):
    """``predict`` from ``coef_`` and ``intercept_``."""

    coef_: Array
    intercept_: Any

    def predict(self, X: Any) -> Array:
        """Predicted values.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to predict.
        """
        check_is_fitted(self)
        X = self._validate_X(X)
        return np.asarray(X @ self.coef_.T + self.intercept_)


class LinearClassifierBase(Estimator):
    """``decision_function`` and ``predict`` from ``coef_`` and ``intercept_``."""

    classes_: Array
    coef_: Array
    intercept_: Array

    def decision_function(self, X: Any) -> Array:
        """Scores: one per row for two classes, else one per row and class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to score.
        """
        check_is_fitted(self)
        X = self._validate_X(X)
        z = np.asarray(X @ self.coef_.T + self.intercept_)
        return z.ravel() if z.ndim == 2 and z.shape[1] == 1 else z

    def predict(self, X: Any) -> Array:
        """Predicted labels.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to label.
        """
        z = self.decision_function(X)
        index = (z > 0).astype(int) if z.ndim == 1 else z.argmax(axis=1)
        return np.asarray(self.classes_[index])


def centred_target(
    design: Design, y: Array, fit_intercept: bool
) -> tuple[Array, Array]:
    """Targets as (n, k) float64 with their weighted mean removed, and that mean."""
    Y = np.asarray(y, dtype=np.float64).reshape(design.n, -1)
    mean = np.atleast_1d(design.average(Y)) if fit_intercept else np.zeros(Y.shape[1])
    return Y - mean, mean


def class_weights(
    sample_weight: Array | None, class_weight: Any, codes: Array, classes: Array
) -> Array | None:
    """Row weights with ``class_weight`` multiplied in; None when all are one."""
    if class_weight is None:
        return sample_weight
    if isinstance(class_weight, str) and class_weight != "balanced":
        raise ValueError(
            f"class_weight={class_weight!r}; use 'balanced', a dict from label to "
            "weight, or None."
        )
    return weights(sample_weight, class_weight, codes, classes, len(codes))


def store_linear(
    model: Any, coef: Array, mean_y: Array, design: Design, y: Array, dtype: Any
) -> None:
    """Set ``coef_`` and ``intercept_`` in scikit-learn's shapes and X's dtype."""
    intercept = mean_y - coef @ design.mean
    flat = np.ndim(y) == 1
    model.coef_ = (coef[0] if flat else coef).astype(dtype)
    if not model.fit_intercept:
        model.intercept_ = 0.0
    else:
        model.intercept_ = dtype.type(intercept[0]) if flat else intercept.astype(dtype)
