"""Trees of a fitted model, read again: of certus, scikit-learn, LightGBM and XGBoost.

The verifier takes each library's own form: arrays of nodes, LightGBM's text, XGBoost's
JSON with its strict comparison. It shares nothing with ``certus.ensemble``, so a fault
in a reader there makes predictions differ here.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from certus.typing import Array, Fit
from certus.verify.stating import Refusal


class Nodes(NamedTuple):
    """One tree; a leaf has the feature −1. ``sets`` are categories that go left.

    A set is a table of answers by code, and the answer for codes beyond the table.
    """

    feature: Array
    cut: Array
    left: Array
    right: Array
    value: Array  # (nodes, values)
    nan_left: Array
    sets: dict[int, tuple[Array, bool]]


class Forest(NamedTuple):
    """Trees and how their leaves become an answer.

    ``strict``: a row goes left where x < cut, else where x ≤ cut. ``single``: rows are
    float32 numbers; ``sums32``: the library also adds in float32.
    """

    trees: list[Nodes]
    output: list[int]  # −1: a value for each output
    start: Array
    link: str
    per_stage: int = 1
    divisor: float = 1.0
    strict: bool = False
    single: bool = False
    sums32: bool = False


# -- ours -------------------------------------------------------------------------


def of_arrays(model: Fit) -> Forest:
    """The arrays in ``trees_``, split into trees."""
    kept = model.trees_
    words = np.asarray(kept.bits, dtype=np.uint32)
    shifts = np.arange(32, dtype=np.uint32)
    tables = (words[:, :, None] >> shifts & 1).astype(bool)
    tables = tables.reshape(len(words), 32 * words.shape[1])
    trees = []
    at = np.full(len(kept.feature) + 1, -1)  # the last entry is that of no child
    for root in np.asarray(kept.roots):
        members = _below(int(root), kept)
        at[members] = np.arange(len(members))
        feature = np.asarray(kept.feature)[members]
        lefts, rights = (at[np.asarray(e)[members]] for e in (kept.left, kept.right))
        sets = {}
        asks = np.asarray(kept.category)[members]
        for i in np.flatnonzero((feature >= 0) & (asks >= 0)):
            other = bool(kept.other_left[members[i]])
            sets[int(i)] = (tables[int(asks[i])], other)
        trees.append(
            Nodes(
                feature,
                np.asarray(kept.threshold)[members],
                lefts,
                rights,
                np.asarray(kept.value)[members],
                np.asarray(kept.missing_left)[members],
                sets,
            )
        )
    return Forest(
        trees,
        [int(k) for k in kept.output],
        np.asarray(kept.baseline, dtype=np.float64),
        str(kept.link),
        int(kept.per_stage),
        float(kept.divisor),
        single=bool(kept.single),
    )


def _below(root: int, kept: Any) -> Array:
    """The nodes of a tree, level by level."""
    level, found = np.array([root]), []
    while len(level):
        found.append(level)
        inner = level[np.asarray(kept.feature)[level] >= 0]
        level = np.concatenate([np.asarray(kept.left)[inner], kept.right[inner]])
    return np.concatenate(found)


# -- scikit-learn -----------------------------------------------------------------


def of_hist(model: Fit) -> Forest:
    """The predictors of HistGradientBoosting; columns as they stand in X."""
    columns, known = np.arange(int(model.n_features_in_)), {}
    if model._preprocessor is not None:
        coded = np.asarray(model.is_categorical_, dtype=bool)
        columns = np.argsort(~coded, kind="stable")
        known = {c: len(each) for c, each in levels_of(model).items()}
    trees = [_hist_tree(p, columns, known) for s in model._predictors for p in s]
    k = int(model.n_trees_per_iteration_)
    link = "identity"
    if hasattr(model, "classes_"):
        link = "logistic" if k == 1 else "softmax"
    elif model.loss in ("poisson", "gamma"):
        link = "exp"
    start = np.asarray(model._baseline_prediction, dtype=np.float64).ravel()
    return Forest(trees, [i % k for i in range(len(trees))], start, link, k)


def _hist_tree(predictor: Any, columns: Array, known: dict[int, int]) -> Nodes:
    nodes = predictor.nodes
    leaf = nodes["is_leaf"] == 1
    sets = {}
    for i in np.flatnonzero((nodes["is_categorical"] == 1) & ~leaf):
        words = predictor.raw_left_cat_bitsets[int(nodes["bitset_idx"][i])]
        bits = np.unpackbits(np.asarray(words).view(np.uint8), bitorder="little")
        table, other = bits.astype(bool), bool(nodes["missing_go_to_left"][i])
        table[known[int(columns[int(nodes["feature_idx"][i])])] :] = other
        sets[int(i)] = (table, other)
    return Nodes(
        np.where(leaf, -1, columns[nodes["feature_idx"].astype(int)]),
        np.asarray(nodes["num_threshold"], dtype=np.float64),
        nodes["left"].astype(int),
        nodes["right"].astype(int),
        np.asarray(nodes["value"], dtype=np.float64)[:, None],
        nodes["missing_go_to_left"] == 1,
        sets,
    )


def of_forest(model: Fit) -> Forest:
    """Averages of trees: of a forest, extra trees, or a single tree."""
    labels = hasattr(model, "classes_")
    if labels and isinstance(model.classes_, list):
        raise Refusal("labels in several columns are not checked", "one model each")
    trees = []
    for each in getattr(model, "estimators_", [model]):
        kept = each.tree_
        value = np.asarray(kept.value[:, 0, :] if labels else kept.value[:, :, 0])
        if labels:
            value = value / value.sum(axis=1)[:, None]
        holes = getattr(kept, "missing_go_to_left", np.zeros(len(value)))
        trees.append(
            Nodes(
                np.where(kept.children_left < 0, -1, kept.feature),
                np.asarray(kept.threshold),
                np.asarray(kept.children_left),
                np.asarray(kept.children_right),
                value,
                np.asarray(holes) != 0,
                {},
            )
        )
    start = np.zeros(trees[0].value.shape[1])
    rest = ("shares" if labels else "identity", len(trees), float(len(trees)))
    return Forest(trees, [-1] * len(trees), start, *rest, single=True)


def levels_of(model: Fit) -> dict[int, list[Any]]:
    """The categories of each column that has them, by code."""
    if hasattr(model, "levels_"):
        return {int(j): list(np.asarray(e).tolist()) for j, e in model.levels_.items()}
    if getattr(model, "_preprocessor", None) is None:
        return {}
    lists = model._preprocessor.named_transformers_["encoder"].categories_
    columns = np.flatnonzero(np.asarray(model.is_categorical_, dtype=bool))
    known: dict[int, list[Any]] = {}
    for j, each in zip(columns, lists):
        known[int(j)] = [v for v in each.tolist() if v is not None and v == v]
    return known


# -- LightGBM: its text -----------------------------------------------------------

_LGB_LINKS = {
    "binary": "logistic",
    "cross_entropy": "logistic",
    "multiclass": "softmax",
}
_LGB_LINKS |= dict.fromkeys(("poisson", "gamma", "tweedie"), "exp")
_LGB_PLAIN = ("regression", "regression_l1", "huber", "fair", "quantile", "mape")
_LGB_LINKS |= dict.fromkeys(_LGB_PLAIN, "identity")


def of_lightgbm(model: Fit) -> Forest:
    """The blocks ``Tree=`` of the model's text."""
    head, *blocks = model.booster_.model_to_string().split("\nTree=")
    told = dict(line.partition("=")[::2] for line in head.splitlines())
    words = told.get("objective", "").split()
    odd = [
        w for w in words[1:] if w == "sqrt" or (w[:8] == "sigmoid:" and w[8:] != "1")
    ]
    if not words or words[0] not in _LGB_LINKS or odd:
        raise Refusal(f"the objective {' '.join(words)!r} has no link here", "")
    k = int(told["num_tree_per_iteration"])
    trees = [_lightgbm_tree(block.partition("end of trees")[0]) for block in blocks]
    mean = "average_output" in head.splitlines()
    divisor = len(trees) / k if mean else 1.0
    outputs = [i % k for i in range(len(trees))]
    return Forest(trees, outputs, np.zeros(k), _LGB_LINKS[words[0]], k, divisor)


def _lightgbm_tree(block: str) -> Nodes:
    told = dict(line.partition("=")[::2] for line in block.splitlines() if "=" in line)
    if told.get("is_linear", "0") != "0":
        raise Refusal("leaves are linear functions (linear_tree=True)", "")

    def numbers(name: str, kind: type = float) -> Array:
        return np.array([kind(each) for each in told.get(name, "").split()])

    leaves, m = numbers("leaf_value"), int(told["num_leaves"]) - 1
    if m == 0:
        one = np.array([-1])
        blank = (np.array([-1]), np.zeros(1), one, one, leaves[:1, None])
        return Nodes(*blank, np.zeros(1, dtype=bool), {})
    # Inner nodes first, then leaves; a negative child ~i is leaf i.
    sides = [numbers(f"{side}_child", int) for side in ("left", "right")]
    sides = [np.where(side < 0, m + ~side, side) for side in sides]
    kinds, cuts = numbers("decision_type", int), numbers("threshold")
    missing = kinds >> 2 & 3
    if (missing == 1).any():
        raise Refusal("zeros count as missing (zero_as_missing=True)", "")
    nan_left = np.where(missing == 2, kinds & 2 != 0, cuts >= 0) & (kinds & 1 == 0)
    sets = {}
    ends, words = numbers("cat_boundaries", int), numbers("cat_threshold", int)
    for i in np.flatnonzero(kinds & 1):
        place = int(cuts[i])
        part = words[ends[place] : ends[place + 1]].astype("<u4")
        bits = np.unpackbits(part.view(np.uint8), bitorder="little")
        sets[int(i)] = (bits.astype(bool), False)
    more = len(leaves)
    return Nodes(
        np.concatenate([numbers("split_feature", int), np.full(more, -1)]),
        np.concatenate([cuts, np.zeros(more)]),
        np.concatenate([sides[0], np.full(more, -1)]),
        np.concatenate([sides[1], np.full(more, -1)]),
        np.concatenate([np.zeros(m), leaves])[:, None],
        np.concatenate([nan_left, np.zeros(more, dtype=bool)]),
        sets,
    )


# -- XGBoost: its JSON ------------------------------------------------------------

_XGB_LINKS = {"binary:logistic": "logistic"}
_XGB_LINKS |= dict.fromkeys(("multi:softprob", "multi:softmax"), "softmax")
_XGB_LINKS |= dict.fromkeys(("count:poisson", "reg:gamma", "reg:tweedie"), "exp")
_XGB_PLAIN = ("squarederror", "absoluteerror", "pseudohubererror", "quantileerror")
_XGB_LINKS |= {f"reg:{name}": "identity" for name in _XGB_PLAIN}


def of_xgboost(model: Fit) -> Forest:
    """Trees up to the best iteration, with the strict comparison of XGBoost."""
    told = json.loads(bytes(model.get_booster().save_raw("json")))["learner"]
    objective, booster = told["objective"]["name"], told["gradient_booster"]
    trees = booster.get("gbtree", booster)  # dart keeps its trees one level deeper
    if objective not in _XGB_LINKS or "model" not in trees:
        kind = f"booster {booster['name']!r} and objective {objective!r}"
        raise Refusal(f"{kind} are not checked", "use gbtree or dart")
    link, param = _XGB_LINKS[objective], told["learner_model_param"]
    grown = trees["model"]
    weights = booster.get("weight_drop") or [1.0] * len(grown["trees"])
    k = max(1, int(param["num_class"]), int(param.get("num_target", "1")))
    last, ends = len(grown["trees"]), grown["iteration_indptr"]
    best = getattr(model, "best_iteration", None)
    if best is not None:
        last, ends = ends[best + 1], ends[: best + 2]
    base = np.float32(json.loads(param["base_score"])).astype(np.float64)
    with np.errstate(divide="ignore"):
        if link == "logistic":
            base = np.log(base) - np.log1p(-base)
        elif link == "exp":
            base = np.log(base)
    return Forest(
        [_xgboost_tree(t, w) for t, w in zip(grown["trees"][:last], weights)],
        [int(each) for each in grown["tree_info"][:last]],
        np.broadcast_to(base, (k,)).copy(),
        link,
        max(1, last // max(1, len(ends) - 1)),
        strict=True,
        single=True,
        sums32=True,
    )


def _xgboost_tree(told: dict[str, Any], weight: float) -> Nodes:
    """One tree; dart multiplies its leaves by a weight."""
    left = np.array(told["left_children"])
    said = np.array(told["split_conditions"], dtype=np.float32).astype(np.float64)
    sets = {}
    for i, begin, size in zip(
        told["categories_nodes"], told["categories_segments"], told["categories_sizes"]
    ):
        right = told["categories"][begin : begin + size]
        table = np.ones(max(right, default=-1) + 1, dtype=bool)
        table[right] = False
        sets[int(i)] = (table, True)
    return Nodes(
        np.where(left < 0, -1, told["split_indices"]),
        said,
        left,
        np.array(told["right_children"]),
        said[:, None] * float(weight),
        np.array(told["default_left"]) != 0,
        sets,
    )


# -- rows -------------------------------------------------------------------------


def rows_of(model: Fit, X: Any, single: bool) -> Array:
    """X as the trees compare it: numbers, and categories as codes."""
    levels = levels_of(model)
    X = X.toarray() if hasattr(X, "toarray") else X
    if hasattr(X, "columns"):
        kinds = [str(X[name].dtype) for name in X.columns]
        coded = [j for j, kind in enumerate(kinds) if kind == "category"]
        labels = _labels_of(model, [j for j in coded if j not in levels]) | levels
        columns = [np.asarray(X[name]) for name in X.columns]
    else:
        table, labels = np.asarray(X), levels
        columns = list(table.T) if levels else []
    strict = hasattr(model, "get_booster")
    parts = [
        _coded(column, labels[j], strict) if j in labels else column.astype(np.float64)
        for j, column in enumerate(columns)
    ]
    found = np.stack(parts, axis=1) if parts else table.astype(np.float64)
    with np.errstate(over="ignore"):
        return found.astype(np.float32).astype(np.float64) if single else found


def _labels_of(model: Fit, columns: list[int]) -> dict[int, list[Any]]:
    """The categories by code that LightGBM or XGBoost has kept of the fit."""
    if not columns:
        return {}
    kept: list[list[Any]] = []
    if hasattr(model, "booster_"):
        kept = list(model.booster_.pandas_categorical or [])
    elif hasattr(model, "get_booster"):
        told = json.loads(bytes(model.get_booster().save_raw("json")))["learner"]
        booster = told["gradient_booster"]
        own = booster.get("gbtree", booster)["model"].get("cats", {}).get("enc", [])
        kept = [_texts(own[j]) for j in columns if j < len(own)]
    if len(kept) != len(columns) or not all(kept):
        raise ValueError(
            "The model does not keep the categories of these columns, or not in full "
            "(XGBoost and texts beyond ASCII). Pass the codes of the fit as numbers."
        )
    return dict(zip(columns, kept))


def _texts(told: dict[str, Any]) -> list[Any]:
    """XGBoost's categories: numbers, or texts cut out of one run of bytes.

    Where a byte is not ASCII, the cuts are wrong: they count letters.
    """
    if "offsets" not in told:
        return list(told["values"])
    run, ends = told["values"], told["offsets"]
    if any(not 0 <= byte < 128 for byte in run):
        return []
    return ["".join(map(chr, run[ends[i] : ends[i + 1]])) for i in range(len(ends) - 1)]


def _coded(column: Array, labels: list[Any], strict: bool) -> Array:
    """Codes; ``strict`` refuses categories that the fit had not, else they are NaN."""
    known = {label: float(code) for code, label in enumerate(labels)}
    found = np.full(len(column), np.nan)
    for i, each in enumerate(column.tolist()):
        found[i] = known.get(each, np.nan)
        if strict and each is not None and each == each and each not in known:
            raise ValueError(
                f"X holds the category {column[i]!r}, which the fit had not. Replace "
                "it by a missing value."
            )
    return found
