"""Trees of scikit-learn's forests, extra trees, single trees and GradientBoosting.

Their ``tree_`` holds the arrays. Rows are rounded to float32 before they are compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.ensemble.joining import ReadTree, join
from certus.trees import TreeEnsemble
from certus.typing import Array, Fit, MatrixLike

_KINDS = ("RandomForest", "ExtraTrees", "DecisionTree", "ExtraTree", "GradientBoosting")
CLASSES = {
    "sklearn": tuple(
        f"{kind}{what}" for kind in _KINDS for what in ("Classifier", "Regressor")
    )
}


def read(model: Any) -> TreeEnsemble:
    """The nodes of all estimators."""
    if type(model).__name__.startswith("GradientBoosting"):
        return _boosted(model)
    labels = hasattr(model, "classes_")
    if labels and isinstance(model.classes_, list):
        raise ValueError(
            "The trees of a classifier with several targets cannot be read. Fit one "
            "model for each target."
        )
    parts = getattr(model, "estimators_", [model])
    trees = [_tree(each.tree_, shares=labels) for each in parts]
    return join(
        trees,
        output=np.full(len(trees), -1),
        baseline=np.zeros(len(model.classes_) if labels else int(model.n_outputs_)),
        n_features=int(model.n_features_in_),
        link="shares" if labels else "identity",
        divisor=float(len(trees)),
        per_stage=len(trees),
        single=True,
    )


def rows(model: Fit, X: MatrixLike) -> Array:
    """X as float32 numbers."""
    X = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
    return np.asarray(X, dtype=np.float32)


def _boosted(model: Fit) -> TreeEnsemble:
    k = model.estimators_.shape[1]
    if model.init is not None and model.init != "zero":
        raise ValueError(
            "The trees of a GradientBoosting model with its own init cannot be read, "
            "because they are only a part of its predictions. Fit it with init=None."
        )
    parts = model.estimators_.ravel()
    trees = [_tree(each.tree_, scale=float(model.learning_rate)) for each in parts]
    labels = hasattr(model, "classes_")
    link = "identity" if not labels else "logistic" if k == 1 else "softmax"
    if labels and model.loss == "exponential":
        raise ValueError(
            "The trees of a GradientBoosting model with loss='exponential' cannot be "
            "read. Fit it with loss='log_loss'."
        )
    return join(
        trees,
        output=np.tile(np.arange(k), len(model.estimators_)),
        baseline=_start(model, k),
        n_features=int(model.n_features_in_),
        link=link,
        per_stage=k,
        single=True,
    )


def _start(model: Fit, k: int) -> Array:
    """Scores of the constant model that boosting started from."""
    if isinstance(model.init_, str):  # "zero"
        return np.zeros(k)
    if not hasattr(model, "classes_"):
        return np.asarray(model.init_.constant_, dtype=np.float64).ravel()
    tiny = float(np.finfo(np.float32).eps)
    shares = np.clip(np.asarray(model.init_.class_prior_), tiny, 1 - tiny)
    if k == 1:
        return np.log(shares[1:] / (1 - shares[1:]))
    logs = np.log(shares)
    return np.asarray(logs - logs.mean())


def _tree(tree: Fit, *, shares: bool = False, scale: float = 1.0) -> ReadTree:
    leaf = tree.children_left < 0
    value = tree.value[:, :, 0] if not shares else tree.value[:, 0, :]
    if shares:
        value = value / value.sum(axis=1, keepdims=True)
    missing = getattr(tree, "missing_go_to_left", np.zeros(len(leaf)))
    return ReadTree(
        np.where(leaf, -1, tree.feature),
        np.where(leaf, np.nan, tree.threshold),
        np.where(leaf, -1, tree.children_left),
        np.where(leaf, -1, tree.children_right),
        np.where(leaf[:, None], value * scale, 0.0),
        np.asarray(missing).astype(bool),
    )
