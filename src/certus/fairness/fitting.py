"""How interventions fit the given estimators and get predictions from them."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from certus.typing import Array, ArrayLike, Fit, MatrixLike


def fit_weighted(
    estimator: Fit, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None
) -> Any:
    """Fit with weights; those of a pipeline go to its last step."""
    if sample_weight is None:
        return estimator.fit(X, y)
    if has_fit_parameter(estimator, "sample_weight"):
        return estimator.fit(X, y, sample_weight=sample_weight)
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        if has_fit_parameter(last, "sample_weight"):
            with config_context(enable_metadata_routing=False):
                return estimator.fit(X, y, **{f"{name}__sample_weight": sample_weight})
    raise TypeError(
        f"{type(estimator).__name__} takes no sample_weight, which is needed here. "
        "Use an estimator whose fit accepts it."
    )


def scores_of(estimator: Fit, X: MatrixLike, classes: Array) -> Array:
    """A score of each row for the second of two classes."""
    if [*getattr(estimator, "classes_", classes)] != [*classes]:
        raise ValueError(
            f"The estimator was fitted on the classes {list(estimator.classes_)}, but "
            f"y holds {list(classes)}. Fit it on the same classes."
        )
    if hasattr(estimator, "decision_function"):
        z = np.asarray(estimator.decision_function(X), dtype=np.float64)
    elif hasattr(estimator, "predict_proba"):
        z = np.asarray(estimator.predict_proba(X), dtype=np.float64)
        z = z[:, 1] if z.ndim == 2 and z.shape[1] == 2 else z
    else:
        raise TypeError(
            f"{type(estimator).__name__} gives no scores: it has neither "
            "decision_function nor predict_proba."
        )
    z = z[:, 0] if z.ndim == 2 and z.shape[1] == 1 else z
    if z.ndim != 1:
        raise ValueError(
            f"The estimator must give one score per row, got scores of shape {z.shape}."
        )
    if np.isnan(z).any():
        raise ValueError(
            "The estimator's scores hold NaN, which cannot be compared "
            "with a threshold."
        )
    most = np.finfo(np.float64).max  # so that a threshold may lie beyond
    return np.asarray(np.clip(z, -most, most))


def fit_sensitive(
    model: Fit, X: MatrixLike, y: ArrayLike, sensitive: MatrixLike
) -> Any:
    """Fit, and pass the attribute to the step that needs it as an argument."""
    with config_context(enable_metadata_routing=False):
        if isinstance(model, Pipeline):
            asked = {
                f"{name}__sensitive": sensitive
                for name, step in model.steps
                if _asks(step, "fit")
            }
            return model.fit(X, y, **asked)
        if _asks(model, "fit"):
            return model.fit(X, y, sensitive=sensitive)
        return model.fit(X, y)


def decide(model: Fit, X: MatrixLike, sensitive: MatrixLike) -> Array:
    """Decisions, with the attribute where they depend on it."""
    last = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if not _asks(last, "predict"):
        return np.asarray(model.predict(X))
    with config_context(enable_metadata_routing=False):
        return np.asarray(model.predict(X, sensitive=sensitive))


def _asks(step: Any, method: str) -> bool:
    """Whether a method takes the attribute, which is not named among the columns."""
    function = getattr(step, method, None)
    if function is None or getattr(step, "sensitive_columns", None) is not None:
        return False
    return "sensitive" in inspect.signature(function).parameters
