"""Parameters and fitted attributes that had other names in older model files.

A file with a name that its class no longer has is an old one; then all names of the
class are translated at once, since a new name may have meant something else before.
"""

from __future__ import annotations

from typing import Any

_PASSES = {"n_epochs": "max_iter"}
_OPERATOR_NORM = {"operator_norm": "alpha_operator_norm"}
_DIFFERENCE = {"gap": "max_difference"}

#: Names of parameters and attributes by class: old to new.
RENAMED: dict[str, dict[str, str]] = {
    "RobustRegressor": {"delta": "threshold"},
    "DeepLinearNetwork": {"hidden": "hidden_layer_sizes"},
    "MatrixFactorization": {
        "n_factors": "n_components",
        "user_penalty": "alpha",
        "item_penalty": "alpha_items",
        "bias_penalty": "alpha_biases",
    },
    "ImplicitALS": {
        "n_factors": "n_components",
        "alpha": "count_weight",
        "penalty": "alpha",
    },
    "MLPClassifier": _OPERATOR_NORM,
    "NeuralClassifier": _OPERATOR_NORM,
    "ConvNetClassifier": {"network": "module", **_OPERATOR_NORM},
    "Distilled": {"student": "estimator", "student_": "estimator_"},
    "ConsistentClassifier": {
        "network": "estimator",
        "network_": "estimator_",
        "weight": "alpha",
    },
    "SkipGram": _PASSES,
    "FastTextVectors": _PASSES,
    "DocumentVectors": _PASSES,
    "FastTextClassifier": _PASSES,
    "GloVe": {"alpha": "weight_power"},
    "TextConvClassifier": {"channels": "n_filters"},
    "CovariancePenalty": {"strength": "alpha"},
    "Decorrelation": {"alpha": "amount"},
    "GroupReduction": _DIFFERENCE,
    "GroupThresholds": _DIFFERENCE,
    "TablePipeline": {"model": "estimator", "model_": "estimator_"},
}


def present_names(
    name: str, params: dict[str, Any], attributes: dict[str, Any], known: set[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters and attributes of a class under the names that it has now."""
    new = RENAMED.get(name, {})
    if not new or set(params) <= known:
        return params, attributes
    return _renamed(params, new), _renamed(attributes, new)


def _renamed(values: dict[str, Any], new: dict[str, str]) -> dict[str, Any]:
    found = {new.get(name, name): value for name, value in values.items()}
    return found if len(found) == len(values) else values  # a forged file has both
