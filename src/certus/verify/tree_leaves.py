"""Leaves: whether each is −η·T(G)/(H + λ) at the scores of the stages before it.

G and H are the sums of the loss's first and second derivatives over the leaf's rows,
T shrinks towards 0 by the L1 penalty. Libraries keep derivatives as float32 numbers, so
a leaf is compared by

    |value − (−η·T(G)/(H + λ))| / (η·Σ(|g| + rounding of the scores)/(H + λ))

which is about 1e-7 where the formula holds, and of order 1 where it does not. A
forest's leaf is the mean of its rows instead. What cannot be computed again (rows drawn
at random, dropped trees, leaves that were moved afterwards) is refused by name.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from certus.certificate import Claim
from certus.typing import Array, Fit
from certus.verify import deciding as bd
from certus.verify.deciding import Number, gamma
from certus.verify.stating import is_ours
from certus.verify.tree_reading import Forest
from certus.verify.tree_walks import add_leaf, leaves_of

#: Largest difference of a leaf, as a share of its rows' derivatives.
LEAF = 1e-5
#: A tree without a split may add nothing, whatever its rows need.
NAME = "leaf_values"


class LeafRecipe(NamedTuple):
    """How the library computes a leaf; ``why`` if that cannot be repeated."""

    loss: str = ""  # squared, logistic, softmax, poisson, gamma, mean, shares
    rate: float = 1.0
    l2: float = 0.0
    l1: float = 0.0
    factor: float = 1.0  # of second derivatives
    class_weight: Any = None
    first: bool = False  # the first tree holds the start as well
    starts: bool = False  # a fit may begin at scores that the model does not keep
    sums32: bool = False  # scores were added as float32 numbers
    why: str = ""


def _refuse(why: str) -> LeafRecipe:
    return LeafRecipe(why=why)


# -- what the parameters say ------------------------------------------------------


def hist(model: Fit) -> LeafRecipe:
    """Of HistGradientBoosting, ours and scikit-learn's."""
    if model.monotonic_cst is not None:
        return _refuse("monotonic_cst moves leaves after they were computed")
    loss = {"squared_error": "squared", "poisson": "poisson", "gamma": "gamma"}
    kind = loss.get(str(model.loss), "")
    if hasattr(model, "classes_"):
        kind = "logistic" if len(model.classes_) == 2 else "softmax"
    if not kind:
        return _refuse(f"with loss={model.loss!r} leaves are quantiles of their rows")
    weight = getattr(model, "class_weight", None)
    rate, l2 = float(model.learning_rate), float(model.l2_regularization)
    return LeafRecipe(kind, rate, l2, class_weight=weight)


def forest(model: Fit) -> LeafRecipe:
    """Of forests and single trees: means of rows."""
    if getattr(model, "bootstrap", False):
        return _refuse("bootstrap=True draws rows at random for each tree")
    if getattr(model, "monotonic_cst", None) is not None:
        return _refuse("monotonic_cst moves leaves after they were computed")
    if model.criterion == "absolute_error":
        return _refuse("with criterion='absolute_error' leaves are medians")
    weight = getattr(model, "class_weight", None)
    if weight == "balanced_subsample":
        return _refuse("class_weight='balanced_subsample' differs from tree to tree")
    kind = "shares" if hasattr(model, "classes_") else "mean"
    return LeafRecipe(kind, class_weight=weight)


def lightgbm_settings(model: Fit) -> dict[str, str]:
    """The parameters in the text of the model, under LightGBM's own names."""
    if is_ours(model):
        text = model.settings_
    else:
        text = model.booster_.model_to_string().partition("\nparameters:\n")[2]
    lines = [line for line in text.splitlines() if line[:1] == "["]
    return dict(line[1:-1].partition(": ")[::2] for line in lines)


def lightgbm(model: Fit) -> LeafRecipe:
    """Of LightGBM, from the parameters in the model's text."""
    if is_ours(model):
        weights = dict(model.options or {}).get("class_weight")
        sets = bool((np.asarray(model.trees_.category) >= 0).any())
    else:
        text, weights = model.booster_.model_to_string(), model.class_weight
        counts = {line for line in text.splitlines() if line[:8] == "num_cat="}
        sets = counts != {"num_cat=0"}
    told = lightgbm_settings(model)
    if told.get("boosting") != "gbdt":
        return _refuse(f"boosting_type={told.get('boosting')!r} drops or draws trees")
    if told.get("data_sample_strategy") == "goss":
        return _refuse("data_sample_strategy='goss' draws rows at random")
    drawn = float(told.get("bagging_fraction", 1)) < 1
    if drawn and int(told.get("bagging_freq", 0)) > 0:
        return _refuse("subsample draws rows at random for each tree")
    off = ("path_smooth", "max_delta_step", "use_quantized_grad", "is_unbalance")
    for name in off:
        if float(told.get(name, 0) or 0) != 0:
            return _refuse(f"{name} moves leaves after they were computed")
    if told.get("monotone_constraints", "").strip("0, "):
        return _refuse("monotone_constraints move leaves after they were computed")
    if float(told.get("scale_pos_weight", 1)) != 1 or weights is not None:
        return _refuse("certus does not know how LightGBM uses class weights")
    if sets:
        return _refuse("splits by categories have penalties of their own (cat_l2)")
    kinds = {"regression": "squared", "binary": "logistic", "multiclass": "softmax"}
    kind = kinds.get(told.get("objective", ""), "")
    if not kind:
        return _refuse(f"certus has no formula for objective={told.get('objective')!r}")
    k = int(told.get("num_class", 1))
    factor = k / (k - 1) if kind == "softmax" else 1.0
    rate, l2, l1 = (float(told[n]) for n in ("learning_rate", "lambda_l2", "lambda_l1"))
    first = told.get("boost_from_average", "1") not in ("0", "false")
    return LeafRecipe(kind, rate, l2, l1, factor, first=first, starts=True)


def xgboost_settings(model: Fit) -> dict[str, Any]:
    """The parameters as XGBoost reports them."""
    text = model.settings_ if is_ours(model) else model.get_booster().save_config()
    found: dict[str, Any] = json.loads(text)["learner"]
    return found


def xgboost(model: Fit) -> LeafRecipe:
    """Of XGBoost, from its parameters."""
    told = xgboost_settings(model)
    grown = told["gradient_booster"]
    if grown["name"] != "gbtree":
        return _refuse(f"booster={grown['name']!r} drops trees")
    param = grown["tree_train_param"]
    if float(param["subsample"]) < 1:
        return _refuse("subsample draws rows at random for each tree")
    if float(param["max_delta_step"]) != 0:
        return _refuse("max_delta_step moves leaves after they were computed")
    if param["monotone_constraints"].strip("()0, "):
        return _refuse("monotone_constraints move leaves after they were computed")
    if int(grown["gbtree_model_param"]["num_parallel_tree"]) != 1:
        return _refuse("num_parallel_tree divides the learning rate")
    kinds = {"reg:squarederror": "squared", "binary:logistic": "logistic"}
    kinds["multi:softprob"] = "softmax"
    kind = kinds.get(told["objective"]["name"], "")
    if not kind:
        return _refuse(
            f"certus has no formula for objective={told['objective']['name']!r}"
        )
    loss_param = told["objective"].get("reg_loss_param", {})
    if float(loss_param.get("scale_pos_weight", 1)) != 1:
        return _refuse("certus has no formula for scale_pos_weight")
    factor = 2.0 if kind == "softmax" else 1.0
    rate, l2, l1 = (float(param[n]) for n in ("learning_rate", "lambda", "alpha"))
    return LeafRecipe(kind, rate, l2, l1, factor, sums32=True, starts=True)


# -- the check --------------------------------------------------------------------


class LeafTargets(NamedTuple):
    """Rows of the fit: as the trees see them, their targets or codes, and weights."""

    X: Array
    y: Array
    s: Array


_AGAIN = "leaves cannot be computed again"
_START = (
    f"{_AGAIN}: those of the first stage do not fit these rows, so the fit began at "
    "scores that the model does not keep (init_score, base_margin), or had other rows "
    "or weights"
)


def claim(recipe: LeafRecipe, trees: Forest, rows: LeafTargets, stages: int) -> Claim:
    """Whether the leaves of the first stages have the values of the formula."""
    if recipe.why:
        return bd.refused(NAME, f"{_AGAIN}: {recipe.why}", "")
    total = max(1, len(trees.trees) // trees.per_stage)
    some = f"{min(stages, total):,} of {total:,} stages"
    if recipe.loss in ("mean", "shares"):
        worst, formula = _means(recipe, trees, rows), "value = mean of the leaf's rows"
        some = f"{len(trees.trees):,} trees"
    else:
        each = _stages(recipe, trees, rows, min(stages, total))
        if recipe.starts and each[0] > LEAF:
            return bd.refused(NAME, _START, "pass the training data and weights")
        worst = max(each)
        formula = "value = −η·T(G)/(H + λ), at the scores of the stages before"
    slack = 4 * gamma(len(rows.y) + len(trees.trees))
    return bd.proved(
        *(NAME, Number(worst, slack), LEAF),
        f"every leaf of {some} has the value of its formula (to {worst:.0e})",
        missed=f"a leaf of {some} differs from its formula by {worst:.1e}",
        objective=formula,
        theorem="sums over the leaf's rows, computed again; differences as a share of "
        "the sum of sizes",
        fix="pass the training data and weights, or fit again",
    )


def _means(recipe: LeafRecipe, trees: Forest, rows: LeafTargets) -> float:
    y = rows.y.reshape(len(rows.y), -1).astype(np.float64)
    if recipe.loss == "shares":
        y = np.eye(len(trees.start))[rows.y.astype(int)]
    if y.shape[1] != len(trees.start):
        return np.inf
    worst, s = 0.0, rows.s[:, None]
    for tree in trees.trees:
        leaf = leaves_of(tree, rows.X)
        n = len(tree.feature)
        mass = np.bincount(leaf, rows.s, n)[:, None]
        sums = _sums(leaf, y * s, n)
        size = np.where(mass > 0, _sums(leaf, np.abs(y) * s, n), 0) / np.maximum(
            mass, 1e-300
        )
        off = np.abs(tree.value - sums / np.maximum(mass, 1e-300))
        used = (mass[:, 0] > 0) & (tree.feature < 0)
        worst = max(worst, _share(off[used], size[used]))
    return worst


def _sums(leaf: Array, columns: Array, n: int) -> Array:
    return np.stack([np.bincount(leaf, column, n) for column in columns.T], axis=1)


def _share(off: Array, size: Array) -> float:
    """The largest difference as a share; of nothing, any difference is infinite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(off == 0, 0.0, off / size)
    return float(share.max(initial=0.0))


def _stages(
    recipe: LeafRecipe, trees: Forest, rows: LeafTargets, stages: int
) -> list[float]:
    """The largest difference of each stage."""
    k, found = trees.per_stage, [0.0] * max(1, stages)
    scores = np.tile(trees.start, (len(rows.y), 1))
    if recipe.first:
        scores += _average(recipe, rows, len(trees.start))
    begin = scores.copy()
    for stage in range(stages):
        g, h, noise = _slopes(recipe, scores, rows)
        for t in range(stage * k, (stage + 1) * k):
            tree, c = trees.trees[t], max(0, trees.output[t])
            leaf, n = leaves_of(tree, rows.X, trees.strict), len(tree.feature)
            G, H = np.bincount(leaf, g[:, c], n), np.bincount(leaf, h[:, c], n)
            size = np.bincount(leaf, np.abs(g[:, c]) + noise[:, c], n)
            value = tree.value[:, 0] - (
                begin[0, c] if recipe.first and not stage else 0
            )
            T = np.sign(G) * np.maximum(np.abs(G) - recipe.l1, 0.0)
            bottom = np.maximum(H + recipe.l2, 1e-15)
            off = np.abs(value + recipe.rate * T / bottom)
            used = (np.bincount(leaf, minlength=n) > 0) & (tree.feature < 0)
            if n == 1 and tree.value[0, 0] == 0:
                used[:] = False
            share = _share(off[used], (recipe.rate * size / bottom)[used])
            found[stage] = max(found[stage], share)
            if recipe.first and not stage:
                scores[:, c] = 0.0
            add_leaf(trees, t, leaf, scores)
    return found


def _average(recipe: LeafRecipe, rows: LeafTargets, k: int) -> Array:
    """Where LightGBM starts: the constant with the smallest loss."""
    s = rows.s / rows.s.sum()
    if recipe.loss == "squared":
        return np.array([float(s @ rows.y.astype(np.float32))])
    if recipe.loss == "logistic":
        p = float(s @ rows.y)
        return np.array([np.log(p / (1 - p))])
    return np.log(np.maximum(np.bincount(rows.y.astype(int), s, k), 1e-15))


def _slopes(
    recipe: LeafRecipe, scores: Array, rows: LeafTargets
) -> tuple[Array, Array, Array]:
    """First and second derivatives by row and output, and what float32 may change."""
    s = rows.s[:, None]
    if recipe.loss == "softmax":
        p = special.softmax(scores, axis=1)
        g = p - np.eye(scores.shape[1])[rows.y.astype(int)]
        h = recipe.factor * p * (1 - p)
        y = np.zeros_like(scores)
    else:
        y = rows.y.astype(np.float64)[:, None]
        if recipe.loss == "squared":
            g, h = scores - y, np.ones_like(scores)
        elif recipe.loss == "logistic":
            p = special.expit(scores)
            g, h, y = p - y, p * (1 - p), np.zeros_like(scores)
        elif recipe.loss == "poisson":
            h = np.exp(scores)
            g = h - y
        else:
            h = y * np.exp(-scores)
            g = 1 - h
    noise = h * (np.abs(scores) + np.abs(y)) if recipe.sums32 else np.zeros_like(g)
    return s * g, s * h, s * noise
