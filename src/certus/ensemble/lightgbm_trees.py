"""Trees of LightGBM, from the nested lists of ``dump_model``.

A category column holds whole numbers; those of a set go left, all others and missing
ones go right. Where a node has no direction for missing values, NaN counts as 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from certus.ensemble.joining import ReadTree, join, words_of
from certus.trees import TreeEnsemble
from certus.typing import Array, Fit, MatrixLike

CLASSES = {"lightgbm": ("LGBMClassifier", "LGBMRegressor", "Booster")}

#: From the first word of the objective to the link.
_LINKS = {
    **dict.fromkeys(("binary", "cross_entropy"), "logistic"),
    **dict.fromkeys(("poisson", "gamma", "tweedie"), "exp"),
    **dict.fromkeys(
        ("regression", "regression_l1", "huber", "fair", "quantile", "mape", "custom"),
        "identity",
    ),
    "multiclass": "softmax",
}


def read(model: Any) -> TreeEnsemble:
    """The nodes of all trees up to the best iteration."""
    told = _booster(model).dump_model()
    words = str(told.get("objective", "custom")).split()
    link = _LINKS.get(words[0])
    plain = {"sigmoid:1", f"num_class:{told['num_class']}"}
    extra = [w for w in words[1:] if ":" in w and w.startswith("sigmoid:")]
    if link is None or not plain.issuperset(extra) or "sqrt" in words:
        raise ValueError(
            f"The trees of a LightGBM model with the objective {' '.join(words)!r} "
            "cannot be read, because certus does not know its link function."
        )
    k, parts = int(told["num_tree_per_iteration"]), told["tree_info"]
    return join(
        [_tree(each) for each in parts],
        output=np.arange(len(parts)) % k,
        baseline=np.zeros(k),
        n_features=int(told["max_feature_idx"]) + 1,
        link=link,
        divisor=len(parts) / k if told.get("average_output") else 1.0,
        per_stage=k,
    )


def rows(model: Fit, X: MatrixLike) -> Array:
    """X as numbers; columns of categories of a data frame as the model's codes."""
    lists = getattr(_booster(model), "pandas_categorical", None) or []
    columns = category_columns(X)
    if len(columns) != len(lists):
        raise ValueError(
            f"The rows have {len(columns)} columns of the type category, but the "
            f"LightGBM model keeps the categories of {len(lists)}. Pass the columns as "
            "in the fit, or the codes as numbers."
        )
    return frame_numbers(X, dict(zip(columns, map(_coder, lists), strict=True)))


def _coder(labels: list[Any]) -> Callable[[Any], float]:
    """From a category to its code; NaN, a missing value, where the fit had it not."""
    codes = {label: float(code) for code, label in enumerate(labels)}
    return lambda label: codes.get(label, np.nan)


def category_columns(X: Any) -> list[int]:
    """Places of the columns of categories of a data frame; none of an array."""
    kinds = enumerate(X.dtypes) if hasattr(X, "columns") else ()
    return [j for j, kind in kinds if str(kind) == "category"]


def frame_numbers(X: Any, code_of: dict[int, Callable[[Any], float]]) -> Array:
    """A frame or an array as float64; a category by its code in the fit, by column.

    The codes of the frame itself follow the order of its own categories, which may be
    another one than in the fit.
    """
    if not hasattr(X, "columns"):
        X = X.toarray() if hasattr(X, "toarray") else X
        return np.asarray(X, dtype=np.float64)
    found = []
    for j, name in enumerate(X.columns):
        column = X[name]
        if j in code_of:
            own = np.asarray(column.cat.codes, dtype=np.intp)
            codes = np.full(len(column.cat.categories) + 1, np.nan)  # −1: missing
            for i in np.unique(own[own >= 0]):
                codes[i] = code_of[j](column.cat.categories[i])
            found.append(codes[own])
        else:
            found.append(np.asarray(column, dtype=np.float64))
    return np.stack(found, axis=1)


def _booster(model: Fit) -> Any:
    return getattr(model, "booster_", model)


def _tree(told: dict[str, Any]) -> ReadTree:
    """One tree; a node comes before its children."""
    feature: list[int] = []
    left: list[int] = []
    right: list[int] = []
    threshold, value, missing = [], [], []
    sets: dict[int, tuple[Array, bool]] = {}
    todo = [(told["tree_structure"], -1, False)]
    while todo:
        node, parent, is_left = todo.pop()
        here = len(feature)
        if parent >= 0:
            (left if is_left else right)[parent] = here
        inner = "split_feature" in node
        if "leaf_const" in node or "leaf_coeff" in node:
            raise ValueError(
                "The trees of a LightGBM model with linear_tree=True cannot be read, "
                "because its leaves are linear functions."
            )
        feature.append(node["split_feature"] if inner else -1)
        left.append(-1)
        right.append(-1)
        value.append(0.0 if inner else node["leaf_value"])
        asks_set = inner and node["decision_type"] == "=="
        threshold.append(np.nan if not inner else 0.0 if asks_set else _cut(node))
        missing.append(inner and not asks_set and _missing_left(node))
        if asks_set:
            codes = [int(code) for code in str(node["threshold"]).split("||")]
            sets[here] = (words_of(codes), False)
        if inner:
            todo.append((node["right_child"], here, False))
            todo.append((node["left_child"], here, True))
    return ReadTree(
        np.asarray(feature),
        np.asarray(threshold, dtype=np.float64),
        np.asarray(left),
        np.asarray(right),
        np.asarray(value, dtype=np.float64),
        np.asarray(missing, dtype=bool),
        sets,
    )


def _cut(node: dict[str, Any]) -> float:
    return float(node["threshold"])


def _missing_left(node: dict[str, Any]) -> bool:
    if node["missing_type"] == "Zero":
        raise ValueError(
            "The trees of a LightGBM model with zero_as_missing=True cannot be read. "
            "Replace zeros by NaN in X and fit it again."
        )
    if node["missing_type"] == "NaN":
        return bool(node["default_left"])
    return _cut(node) >= 0.0
