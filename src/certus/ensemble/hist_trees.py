"""Trees of scikit-learn's HistGradientBoosting, from the arrays of its predictors.

scikit-learn places columns of categories before those of numbers and replaces each
category by its place in the sorted list; a category that does not occur in the training
rows counts as missing. Here columns keep the places they have in X.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from certus.ensemble.joining import ReadTree, join
from certus.trees import TreeEnsemble
from certus.typing import Array, Fit, MatrixLike

CLASSES = {
    "sklearn": ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor")
}
#: Words of 32 bits in scikit-learn's sets.
_WORDS = 8


def read(model: Any) -> TreeEnsemble:
    """The nodes, with the columns of X as features."""
    columns = column_order(model)
    known = _known_words(model)
    rounds = model._predictors
    trees = [_tree(each, columns, known) for stage in rounds for each in stage]
    k = int(model.n_trees_per_iteration_)
    return join(
        trees,
        output=np.tile(np.arange(k), len(rounds)),
        baseline=np.asarray(model._baseline_prediction, dtype=np.float64).ravel(),
        n_features=int(model.n_features_in_),
        link=_link(model, k),
        per_stage=k,
    )


def rows(model: Fit, X: MatrixLike) -> Array:
    """Numbers in the columns of X; categories as codes."""
    if model._preprocessor is None:
        return np.asarray(X, dtype=np.float64)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        coded = np.asarray(model._preprocessor.transform(X), dtype=np.float64)
    found = np.empty_like(coded)
    found[:, column_order(model)] = coded
    return found


def column_order(model: Fit) -> Array:
    """The column of X at each place of scikit-learn's encoded matrix."""
    n = int(model.n_features_in_)
    if model._preprocessor is None:
        return np.arange(n)
    coded = np.asarray(model.is_categorical_, dtype=bool)
    return np.concatenate([np.flatnonzero(coded), np.flatnonzero(~coded)])


def levels(model: Fit) -> dict[int, Array]:
    """The categories of each column that has them, without the missing one."""
    if model._preprocessor is None:
        return {}
    encoder = model._preprocessor.named_transformers_["encoder"]
    columns = np.flatnonzero(np.asarray(model.is_categorical_, dtype=bool))
    found = {}
    for column, each in zip(columns, encoder.categories_):
        kept = [level for level in each if level is not None and level == level]
        found[int(column)] = np.asarray(kept, dtype=each.dtype)
    return found


def _known_words(model: Fit) -> dict[int, Array]:
    """Bits of the categories that each column of X has."""
    bits = {}
    for column, each in levels(model).items():
        codes = np.arange(32 * _WORDS) < len(each)
        bits[column] = np.packbits(codes, bitorder="little").view(np.uint32)
    return bits


def _tree(predictor: Fit, columns: Array, known: dict[int, Array]) -> ReadTree:
    nodes = predictor.nodes
    leaf = nodes["is_leaf"].astype(bool)
    feature = np.where(leaf, -1, columns[nodes["feature_idx"].astype(np.int64)])
    missing = nodes["missing_go_to_left"].astype(bool)
    sets = {}
    for node in np.flatnonzero(nodes["is_categorical"].astype(bool) & ~leaf):
        words = predictor.raw_left_cat_bitsets[nodes["bitset_idx"][node]]
        words = np.asarray(words, dtype=np.uint32)
        if missing[node]:  # a category that is not known goes where NaN goes
            words = words | ~known[int(feature[node])]
        sets[int(node)] = (words, bool(missing[node]))
    return ReadTree(
        feature,
        np.where(leaf, np.nan, nodes["num_threshold"]),
        np.where(leaf, -1, nodes["left"].astype(np.int64)),
        np.where(leaf, -1, nodes["right"].astype(np.int64)),
        np.where(leaf, nodes["value"], 0.0),
        missing,
        sets,
    )


def _link(model: Fit, k: int) -> str:
    if hasattr(model, "classes_"):
        return "logistic" if k == 1 else "softmax"
    return "exp" if model.loss in ("poisson", "gamma") else "identity"
