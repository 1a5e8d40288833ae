"""How strong the L2 penalty of a fitted linear model is, relative to its mean loss.

Inside certus an objective is mean loss + ½·alpha·‖w‖². scikit-learn's parameters state
the same penalty beside a sum of losses (``C``, ridge's ``alpha``) or beside their mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus._core.rows import known_codes, labelled_weights, row_weights
from certus.typing import Array, ArrayLike, Fit

#: Models whose parameter stands beside the sum of the losses: "C" or "alpha".
BESIDE_SUM = {
    "LogisticRegression": "C",
    "LogisticRegressionCV": "C",
    "LinearSVC": "C",
    "LinearSVR": "C",
    "Ridge": "alpha",
    "RidgeCV": "alpha",
    "RidgeClassifier": "alpha",
}
#: Models whose ``alpha`` stands beside the mean.
BESIDE_MEAN = {
    "ElasticNet",
    "ElasticNetCV",
    "Lasso",
    "LassoCV",
    "LinearRegression",
    "GeneralizedLinearModel",
    "PoissonRegressor",
    "QuantileRegressor",
    "RobustRegressor",
}
#: Whose penalty is another one, whatever their parameters.
_NO_L2 = {"Lasso", "LassoCV", "LinearRegression", "QuantileRegressor"}


def level_of(model: Fit, y: ArrayLike, sample_weight: ArrayLike | None) -> float:
    """Alpha of ½·alpha·‖w‖² beside the mean loss of a fitted linear model."""
    kinds = [cls.__name__ for cls in type(model).__mro__ if _is_linear(cls)]
    if not kinds:
        raise TypeError(
            f"{type(model).__name__} is neither a linear model of certus nor a "
            "network of certus.neural_network. GroupReduction takes any estimator "
            "whose fit accepts sample_weight."
        )
    levels = _levels(model, kinds[0], y, sample_weight)
    if not (levels.size and levels.min() > 0 and np.ptp(levels) == 0):
        raise ValueError(
            f"{type(model).__name__} must have an L2 penalty and no other: leave out "
            "L1 parts, and set alpha above 0 or C to a finite number."
        )
    return float(levels[0])


def _is_linear(cls: type) -> bool:
    ours = cls.__module__.startswith(("certus.linear_model.", "certus.svm."))
    return ours and (cls.__name__ in BESIDE_SUM or cls.__name__ in BESIDE_MEAN)


def _levels(
    model: Fit, kind: str, y: ArrayLike, sample_weight: ArrayLike | None
) -> Array:
    """The levels of a model's problems; empty where a penalty is another one."""
    if kind in _NO_L2 or _has_l1(model):
        return np.empty(0)
    if kind in BESIDE_MEAN:
        return np.atleast_1d(np.asarray(_chosen(model, "alpha"), dtype=float))
    name = BESIDE_SUM[kind]
    given = np.atleast_1d(np.asarray(_chosen(model, name), dtype=float))
    with np.errstate(divide="ignore"):
        levels = 1 / given if name == "C" else given
    return levels / _total_weight(model, kind, y, sample_weight)


def _has_l1(model: Fit) -> bool:
    ratio = _chosen(model, "l1_ratio")
    if getattr(model, "penalty", "deprecated") in ("l1", "elasticnet", None):
        return True
    return bool(ratio is not None and np.any(np.asarray(ratio) != 0))


def _chosen(model: Fit, name: str) -> Any:
    """A parameter, or the value that the model chose for it."""
    return getattr(model, f"{name}_", getattr(model, name, None))


def _total_weight(
    model: Fit, kind: str, y: ArrayLike, sample_weight: ArrayLike | None
) -> float:
    if getattr(model, "class_weight", None) is None:
        return float(row_weights(sample_weight, len(np.asarray(y))).sum())
    if kind == "LinearSVC" and len(model.classes_) > 2:
        raise ValueError(
            "LinearSVC with class_weight and several classes weights each of its "
            "problems differently. Leave class_weight out, or use LogisticRegression."
        )
    counts = "rows" if kind == "RidgeClassifier" else "weights"
    codes = known_codes(y, model.classes_)
    s = labelled_weights(
        sample_weight, model.class_weight, codes, model.classes_, counts
    )
    return float(s.sum())
