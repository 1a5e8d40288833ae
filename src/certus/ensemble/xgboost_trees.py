"""Trees of XGBoost, from the JSON text of ``save_raw``.

Rows and thresholds are float32 numbers, and a row goes left where x < threshold: as
float32 numbers that is x ≤ the next smaller one. Categories of a set go right.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from certus.ensemble.joining import ReadTree, join, words_of
from certus.ensemble.lightgbm_trees import category_columns, frame_numbers
from certus.trees import TreeEnsemble
from certus.typing import Array, Fit, MatrixLike

CLASSES = {"xgboost": ("XGBClassifier", "XGBRegressor", "Booster")}

_IDENTITY = ("reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror")
#: From the objective to the link, and to the score of a base value.
_LINKS = {
    **dict.fromkeys((*_IDENTITY, "reg:quantileerror"), "identity"),
    **dict.fromkeys(("count:poisson", "reg:gamma", "reg:tweedie"), "exp"),
    **dict.fromkeys(("multi:softprob", "multi:softmax"), "softmax"),
    "binary:logistic": "logistic",
}


def read(model: Any) -> TreeEnsemble:
    """The nodes of all trees up to the best iteration."""
    booster, learner = _learner(model)
    objective = learner["objective"]["name"]
    link, kind = _LINKS.get(objective), learner["gradient_booster"]["name"]
    if link is None or kind not in ("gbtree", "dart"):
        raise ValueError(
            f"The trees of an XGBoost model with the booster {kind} and the objective "
            f"{objective!r} cannot be read."
        )
    grown = learner["gradient_booster"]
    drops = grown.get("weight_drop") if kind == "dart" else None
    grown = grown["gbtree"]["model"] if kind == "dart" else grown["model"]
    param = learner["learner_model_param"]
    k = max(1, int(param["num_class"]), int(param.get("num_target", 1)))
    best = getattr(model, "best_iteration", None) if model is not booster else None
    ends = grown["iteration_indptr"]
    last = ends[-1] if best is None else ends[int(best) + 1]
    weights = np.ones(last) if drops is None else np.asarray(drops[:last])
    parts = [_tree(t, w) for t, w in zip(grown["trees"][:last], weights)]
    return join(
        parts,
        output=np.asarray(grown["tree_info"][:last]),
        baseline=_start(param["base_score"], link, k),
        n_features=int(param["num_feature"]),
        link=link,
        per_stage=max(1, last // max(1, len(ends) - 1 if best is None else best + 1)),
        single=True,
    )


def rows(model: Fit, X: MatrixLike) -> Array:
    """X as float32 numbers; columns of categories as the model's codes."""
    missing = getattr(model, "missing", np.nan)
    if missing is not None and missing == missing:
        raise ValueError(
            f"An XGBoost model with missing={missing!r} cannot be read. Replace these "
            "values by NaN in X and fit it again with missing=nan."
        )
    with np.errstate(over="ignore"):
        return frame_numbers(X, _categories(model, X)).astype(np.float32)


def _learner(model: Any) -> tuple[Any, dict[str, Any]]:
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    return booster, json.loads(bytes(booster.save_raw("json")))["learner"]


def _categories(model: Any, X: Any) -> dict[int, Callable[[Any], float]]:
    """From a category to its code in the fit, for the columns of X that hold some."""
    columns = category_columns(X)
    if not columns:
        return {}
    grown = _learner(model)[1]["gradient_booster"]
    kept = grown.get("gbtree", grown)["model"].get("cats", {}).get("enc", [])
    found = {}
    for j in columns:
        labels = _labels(kept[j]) if j < len(kept) else []
        if not labels:
            raise ValueError(
                f"The XGBoost model does not keep the categories of column {j}, or not "
                "in full (texts beyond ASCII). Pass the codes of the fit as numbers."
            )
        found[j] = _coder(labels, j)
    return found


def _labels(told: dict[str, Any]) -> list[Any]:
    """Numbers, or texts that lie one after the other; none if XGBoost has cut them.

    It counts letters where it copies bytes, so texts beyond ASCII come out shifted.
    """
    values, ends = told["values"], told.get("offsets")
    if ends is None:
        return list(values)
    if min(values, default=0) < 0:
        return []
    text = bytes(values).decode()
    return [text[a:b] for a, b in pairwise(ends)]


def _coder(labels: list[Any], j: int) -> Callable[[Any], float]:
    codes = {label: float(code) for code, label in enumerate(labels)}

    def code(label: Any) -> float:
        if label not in codes:  # XGBoost would take some other category
            raise ValueError(
                f"Column {j} holds the category {label!r}, which the fit of the "
                "XGBoost model had not. Replace it by a missing value."
            )
        return codes[label]

    return code


def _start(text: str, link: str, k: int) -> Array:
    """Scores before the first tree, from the stated base value."""
    told = json.loads(text) if isinstance(text, str) else text
    base = np.broadcast_to(np.float32(told).astype(np.float64), (k,))
    if link == "logistic":
        return np.log(base / (1 - base))
    return np.log(base) if link == "exp" else np.array(base)


def _tree(told: dict[str, Any], weight: float) -> ReadTree:
    if int(told["tree_param"].get("size_leaf_vector", 1)) > 1:
        raise ValueError(
            "The trees of an XGBoost model with multi_strategy='multi_output_tree' "
            "cannot be read. Use 'one_output_per_tree'."
        )
    left = np.asarray(told["left_children"])
    leaf = left < 0
    said = np.asarray(told["split_conditions"], dtype=np.float32)
    below = np.nextafter(said, np.float32(-np.inf)).astype(np.float64)
    asks_set = np.asarray(told.get("split_type", np.zeros(len(left)))) == 1
    value = np.where(leaf, said.astype(np.float64) * weight, 0.0)
    sets = {}
    segments = zip(
        told["categories_nodes"], told["categories_segments"], told["categories_sizes"]
    )
    for node, start, size in segments:
        right = words_of(told["categories"][start : start + size])
        sets[int(node)] = (~right, True)
    return ReadTree(
        np.where(leaf, -1, told["split_indices"]),
        np.where(leaf, np.nan, np.where(asks_set, 0.0, below)),
        left,
        np.asarray(told["right_children"]),
        value,
        np.asarray(told["default_left"]).astype(bool),
        sets,
    )
