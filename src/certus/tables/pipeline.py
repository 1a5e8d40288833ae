"""A table in, predictions out: an encoder and a model, fitted as one estimator.

The encoder learns from the training rows alone, so cross-validation of the pair is
valid; saved as one file, it predicts from a raw table. The objective is the model's, on
the encoded columns.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import r2_score
from sklearn.utils import check_consistent_length, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from certus.conformal import Conformal, forget_calibration
from certus.tables.crossing import cross_intervals, cross_sets
from certus.tables.encoder import TableEncoder
from certus.tables.errors import TableError
from certus.tables.target import check_bounds, guess_task, read_target
from certus.typing import ArrayLike, MatrixLike

__all__ = ["TablePipeline", "encoder_for", "guess_task", "read_target"]


def _model_has(method: str) -> Any:
    def check(self: TablePipeline) -> bool:
        return hasattr(getattr(self, "estimator_", self.estimator), method)

    return check


class TablePipeline(Conformal, BaseEstimator):
    """Encode a table, then fit a model; predict from tables with the same columns.

    Parameters
    ----------
    encoder : TableEncoder or other transformer, default=None
        How columns become numbers. None means ``TableEncoder()``, with ``text``
        "components" unless the model is a linear one.
    estimator : estimator, default=None
        The wrapped estimator. A classifier or regressor, of certus or not. None means
        ``certus.linear_model.LogisticRegression()`` for labels and
        ``certus.linear_model.Ridge()`` for amounts, as :func:`guess_task` finds.
    bounds : (low, high), default=None
        Bounds of the target, for amounts only. Predictions outside them become the
        nearer bound, and so do the ends of intervals. Explanations are of the
        prediction before that.

    Attributes
    ----------
    encoder_, estimator_ : the fitted pair
    task_ : {"classification", "regression"}
    target_name_ : str or None
        Name of the target if it was a named series.
    certificate_ : Certificate
        The model's, on the encoded columns.
    before_ : TablePipeline
        Only after ``certus.compare(..., refit=True)``: the pipeline before it was
        fitted again to all rows, which is the one that the sealed rows judged.
    fold_models_ : list of TablePipeline or None
        Likewise: pipelines that each lack one fold of the rows, for CV+ intervals and
        sets; None where a fit failed.
    classes_, n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    Cross-validation stratifies only if it knows a classifier before the fit: name the
    model then.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from certus.tables import TablePipeline, load_example
    >>> frame, target = load_example()
    >>> pipeline = TablePipeline(estimator=Ridge())
    >>> _ = pipeline.fit(frame.drop(target), frame[target])
    >>> pipeline.target_name_, pipeline.task_
    ('progression', 'regression')
    >>> round(pipeline.score(frame.drop(target), frame[target]), 2)
    0.52
    """

    def __init__(
        self,
        encoder: Any = None,
        *,
        estimator: Any = None,
        bounds: tuple[float, float] | None = None,
    ) -> None:
        self.encoder = encoder
        self.estimator = estimator
        self.bounds = bounds

    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit the encoder to the table, then the model to the encoded table.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features)
        y : series or array of shape (n_samples,)
            Labels (text, booleans, integers) or amounts.
        sample_weight : array of shape (n_samples,), optional
            Row weights. They are passed to the encoder and to the estimator.

        Returns
        -------
        TablePipeline
            Itself.
        """
        if y is None:
            raise ValueError(
                "TablePipeline requires y to be passed, but the target y is None."
            )
        bounds = check_bounds(self.bounds)
        forget_calibration(self)
        for part in ("before_", "fold_models_"):
            self.__dict__.pop(part, None)
        target, name = read_target(y)
        model = (
            _default_model(target) if self.estimator is None else clone(self.estimator)
        )
        given = self.encoder
        encoder = encoder_for(model) if given is None else clone(given)
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        if weights and not has_fit_parameter(model, "sample_weight"):
            raise TableError(f"{type(model).__name__} takes no sample_weight.")
        weighs = bool(weights) and has_fit_parameter(encoder, "sample_weight")
        Z = encoder.fit_transform(X, target, **(weights if weighs else {}))
        check_consistent_length(Z, target)
        self.encoder_ = encoder
        self.estimator_ = model.fit(Z, target, **weights)
        self.target_name_ = name
        kind = get_tags(model).estimator_type
        named = {"classifier": "classification", "regressor": "regression"}
        self.task_ = named.get(kind or "") or guess_task(target)
        if bounds is not None and self.task_ != "regression":
            raise ValueError("bounds are for amounts, but this model predicts labels.")
        return self

    def _predictor(
        self, X: MatrixLike, y: ArrayLike | None = None
    ) -> tuple[Any, Any, Any]:
        return (
            self.estimator_,
            self._encoded(X),
            None if y is None else read_target(y)[0],
        )

    def _intervals(self, X: MatrixLike, coverage: float, delta: float | None) -> Any:
        if not self._crossed(delta):
            return self._cut(super()._intervals(X, coverage, delta))
        if hasattr(self, "classes_"):
            raise TypeError("This pipeline predicts labels: use predict_set.")
        return self._cut(cross_intervals(self, X, coverage))

    def _sets(self, X: MatrixLike, coverage: float, delta: float | None) -> Any:
        if not self._crossed(delta):
            return super()._sets(X, coverage, delta)
        if not hasattr(self, "classes_"):
            raise TypeError("This pipeline predicts amounts: use predict_interval.")
        return cross_sets(self, X, coverage)

    def _crossed(self, delta: float | None) -> bool:
        """Whether intervals come from folds; these promise nothing given the rows."""
        stated = getattr(self, "calibration_certificate_", None)
        evidence = getattr(stated, "evidence", None)
        crossed = evidence is not None and evidence.kind == "cross"
        if crossed and delta is not None:
            raise ValueError(
                "delta must be None after a refit: CV+ states its coverage on average "
                "only. Use compare(refit=False), or calibrate on new rows."
            )
        return crossed

    def _encoded(self, X: MatrixLike) -> Any:
        check_is_fitted(self)
        return self.encoder_.transform(X)

    def _cut(self, values: Any) -> Any:
        """Values outside the bounds of the target as the nearer bound."""
        bounds = check_bounds(self.bounds)
        return values if bounds is None else np.clip(values, *bounds)

    def predict(self, X: MatrixLike) -> Any:
        """Predict labels or amounts for the rows of a table.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        Z = self._encoded(X)
        return self._cut(self.estimator_.predict(Z))

    @available_if(_model_has("predict_proba"))
    def predict_proba(self, X: MatrixLike) -> Any:
        """Predict the probability of each class.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        Z = self._encoded(X)
        return self.estimator_.predict_proba(Z)

    @available_if(_model_has("decision_function"))
    def decision_function(self, X: MatrixLike) -> Any:
        """Return the model's decision values.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features)

        Returns
        -------
        ndarray
        """
        Z = self._encoded(X)
        return self.estimator_.decision_function(Z)

    def score(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """Return the model's score: accuracy for labels, R² for amounts.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features)
        y : series or array of shape (n_samples,)
        sample_weight : array of shape (n_samples,), optional
            Row weights.

        Returns
        -------
        float
        """
        Z = self._encoded(X)
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        if self.bounds is not None:
            return float(r2_score(read_target(y)[0], self.predict(X), **weights))
        return float(self.estimator_.score(Z, read_target(y)[0], **weights))

    def to_sklearn(self) -> Any:
        """Refuse: scikit-learn has no encoder of this kind.

        Returns
        -------
        never
        """
        raise NotImplementedError(
            "scikit-learn has no TableEncoder. Export the model alone with "
            "estimator_.to_sklearn(), and pass it encoder_.transform(X)."
        )

    @property
    def classes_(self) -> Any:
        """Labels of a fitted classifier."""
        return self.estimator_.classes_

    @property
    def certificate_(self) -> Any:
        """Certificate of the fitted model, on the encoded columns."""
        return self.estimator_.certificate_

    @property
    def n_features_in_(self) -> int:
        """Number of columns of the training table."""
        return int(self.encoder_.n_features_in_)

    @property
    def feature_names_in_(self) -> Any:
        """Names of the columns of the training table, if it had any."""
        return self.encoder_.feature_names_in_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.target_tags.required = True
        model = getattr(self, "estimator_", self.estimator)
        if model is not None:
            inner = get_tags(model)
            tags.estimator_type = inner.estimator_type
            tags.classifier_tags = inner.classifier_tags
            tags.regressor_tags = inner.regressor_tags
            tags.target_tags = inner.target_tags
            tags.non_deterministic = inner.non_deterministic
        return tags


def _default_model(target: Any) -> Any:
    # Loaded here, because reading a table should not load the solvers.
    from certus import linear_model

    labels = guess_task(target) == "classification"
    return linear_model.LogisticRegression() if labels else linear_model.Ridge()


def encoder_for(model: Any) -> TableEncoder:
    """An encoder whose columns suit a model: terms of free text for linear ones."""
    homes = ("certus.linear_model.", "sklearn.linear_model.")
    linear = type(model).__module__.startswith(homes)
    return TableEncoder(text="ngrams" if linear else "components")
