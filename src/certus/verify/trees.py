"""Tree ensembles: whether the arrays are the model, and keep what was promised.

Claims about a fitted boosting or forest of certus, scikit-learn, LightGBM or XGBoost:

- ``leaf_values``: stage by stage, each leaf has the value of its formula;
- ``same_predictions``: a plain walk through the trees, read by the verifier itself,
  gives the predictions of the model;
- ``monotone_trees``: for each constrained column, scores never move the wrong way;
- ``output_range``: bounds on the scores of all possible rows;
- ``structure``: the splits of the trees are chosen greedily; nothing is proved.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from certus.certificate import Claim, Status
from certus.typing import Array, Fit
from certus.verify import data, stating, tree_leaves, tree_reading, tree_walks
from certus.verify import deciding as bd
from certus.verify.deciding import Number, gamma
from certus.verify.kernel import reading
from certus.verify.stating import Checked, Given

#: Largest difference of a score as a share of the sizes of its leaves: of libraries
#: that add in float64, and in float32.
AGREE, AGREE32 = 1e-12, 1e-5
#: Rows times trees that are walked through at level "quick".
QUICK = 2_000_000
#: Largest score change by a unit of each link.
_SLOPE = {"identity": 1.0, "shares": 1.0, "logistic": 0.25, "softmax": 0.5}
_UNKNOWN = (
    "early stopping held out rows, and random_state does not say which (give it an "
    "integer)"
)
_CHANGED = "restore the model file, or fit again"


class Statement(NamedTuple):
    """How the trees are read, and how the library computes a leaf."""

    read: Callable[[Any], tree_reading.Forest]
    recipe: Callable[[Any], tree_leaves.LeafRecipe]
    #: Sign by column: 1 if scores must rise with it, −1 if they must fall.
    signs: dict[int, int]


def _ours_or(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda m: tree_reading.of_arrays(m) if stating.is_ours(m) else read(m)


def _hist(model: Fit) -> Statement:
    signs = _signs(model, model.monotonic_cst)
    return Statement(_ours_or(tree_reading.of_hist), tree_leaves.hist, signs)


def _forest(model: Fit) -> Statement:
    signs = _signs(model, model.monotonic_cst)
    return Statement(_ours_or(tree_reading.of_forest), tree_leaves.forest, signs)


def _lightgbm(model: Fit) -> Statement:
    told = tree_leaves.lightgbm_settings(model).get("monotone_constraints")
    signs = _signs(model, told)  # under whatever name they were given
    return Statement(tree_reading.of_lightgbm, tree_leaves.lightgbm, signs)


def _xgboost(model: Fit) -> Statement:
    signs = _xgboost_signs(model) or _signs(
        model, model.get_params().get("monotone_constraints")
    )
    return Statement(tree_reading.of_xgboost, tree_leaves.xgboost, signs)


def _xgboost_signs(model: Fit) -> dict[int, int]:
    """As XGBoost reports them; of a model from a file, it has forgotten them."""
    told = tree_leaves.xgboost_settings(model)["gradient_booster"]
    grown = told.get("gbtree", told).get("tree_train_param", {})
    return _signs(model, grown.get("monotone_constraints"))


def _boosted(model: Fit) -> Statement:
    """Of LightGBM or XGBoost, kept by certus with what the library said."""
    if model.library not in ("lightgbm", "xgboost"):
        raise stating.Refusal(f"library={model.library!r:.40} is not known", "")
    recipe = getattr(tree_leaves, model.library)
    asked = dict(model.options or {}).get("monotone_constraints")
    if model.library == "xgboost":
        signs = _xgboost_signs(model) or _signs(model, asked)
    else:
        told = tree_leaves.lightgbm_settings(model).get("monotone_constraints")
        signs = _signs(model, told)
    return Statement(tree_reading.of_arrays, recipe, signs)


def _signs(model: Fit, told: Any) -> dict[int, int]:
    if told is None:
        return {}
    if isinstance(told, str):  # as the libraries write it
        told = [int(each) for each in told.strip("() ").split(",") if each.strip()]
    if isinstance(told, dict):
        names = [str(name) for name in model.feature_names_in_]
        return {names.index(str(c)): int(s) for c, s in told.items() if int(s)}
    return {j: int(sign) for j, sign in enumerate(told) if int(sign)}


_NAMES = ("RandomForest", "ExtraTrees", "DecisionTree", "ExtraTree")
READERS: dict[str, stating.Reader] = {
    "HistGradientBoostingClassifier": _hist,
    "HistGradientBoostingRegressor": _hist,
    **{
        f"{name}{kind}": _forest
        for name in _NAMES
        for kind in ("Classifier", "Regressor")
    },
    **dict.fromkeys(("LGBMClassifier", "LGBMRegressor"), _lightgbm),
    **dict.fromkeys(("XGBClassifier", "XGBRegressor"), _xgboost),
    **dict.fromkeys(("BoostedTreesClassifier", "BoostedTreesRegressor"), _boosted),
}


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Read trees and rows again, and compare."""
    try:
        trees = stated.read(model)
    except stating.Refusal as refusal:
        return (
            [bd.refused("refused", refusal.reason, refusal.fix)],
            Status.UNDECIDED,
            {},
        )
    X = tree_reading.rows_of(model, given.X, trees.single)
    n = len(X)
    if X.ndim != 2 or X.shape[1] != int(model.n_features_in_):
        wide = int(model.n_features_in_)
        raise ValueError(
            f"X has shape {X.shape}, but the model was fitted on {wide} columns."
        )
    y, s = _targets(model, stated, given, n)
    own = tree_reading.rows_of(model, given.X, False) if trees.single else X
    marks = data.marks_of(own, y, given.sample_weight, holes=True)
    steps = max(1, n * len(trees.trees))
    full = given.level == "full" or steps <= QUICK
    claims = [_same_claim(model, trees, given.X, X, full)]
    kept, recipe = _rows_used(given.witness, n), stated.recipe(model)
    if kept is not None:  # a fit of certus starts where the library does by itself
        recipe = recipe._replace(starts=False)
    guessed = not stating.is_ours(model) and kept is not None
    if kept is None:
        kept = np.ones(n, dtype=bool)
        if _stopped_early(model):
            recipe = recipe._replace(why=_UNKNOWN)
    stages = len(trees.trees)
    if not full:
        stages = max(1, QUICK // max(1, n * trees.per_stage))
        if recipe.loss in ("mean", "shares"):
            few = slice(0, max(1, QUICK // n))
            trees_few = trees._replace(trees=trees.trees[few], output=trees.output[few])
        else:
            trees_few = trees
    else:
        trees_few = trees
    used = kept & (s > 0)
    rows = tree_leaves.LeafTargets(X[used], y[used], s[used])
    leaves = tree_leaves.claim(recipe, trees_few, rows, stages)
    if guessed and leaves.met is False:  # other rows may have been held out
        leaves = tree_leaves.claim(recipe._replace(why=_UNKNOWN), trees_few, rows, 0)
    claims.append(leaves)
    if stated.signs:
        claims.append(_monotone_claims(trees, stated.signs, X.shape[1]))
    broken = bool(stated.signs) and claims[-1].met is False  # shown by two rows
    claims.append(_range_claim(trees))
    status = bd.verdict(claims)
    status = Status.REFUTED if broken else status
    claims.append(
        bd.refused(
            "structure",
            "the splits of the trees are chosen greedily; nobody can say how far they "
            "are from the best ones",
            "",
        )
    )
    return claims, status, marks


# -- the data ---------------------------------------------------------------------


def _targets(
    model: Fit, stated: Statement, given: Given, n: int
) -> tuple[Array, Array]:
    """Numbers or codes, and the weight of each row."""
    weights = reading.weights(given.sample_weight, n)
    if not hasattr(model, "classes_"):
        return reading.numbers(given.y, n), np.ldexp(weights.s, weights.power)
    classes = np.asarray(model.classes_)
    codes = reading.codes(np.asarray(given.y), classes, n)
    told = stated.recipe(model).class_weight
    if told is not None:
        each = reading.class_weights(told, weights, codes, classes, "rows")
        weights = reading.times_classes(weights, each, codes)
    return codes, np.ldexp(weights.s, weights.power)


def _rows_used(witness: Any, n: int) -> Array | None:
    """Rows that were not held out; None if nobody says which those are."""
    if witness is None:
        return None
    used = np.ones(n, dtype=bool)
    held = getattr(witness, "held_out", None)
    if held is not None:
        held = np.asarray(held)
        sound = held.ndim == 1 and held.dtype.kind in "iu"
        stating.require(
            sound and bool(((held >= 0) & (held < n)).all()),
            "its held-out rows are not rows of X",
        )
        used[held] = False
    return used


def _stopped_early(model: Fit) -> bool:
    split = getattr(model, "do_early_stopping_", False)
    return bool(split) and getattr(model, "validation_fraction", None) is not None


# -- predictions ------------------------------------------------------------------


def _same_claim(
    model: Fit, trees: tree_reading.Forest, given: Any, X: Array, full: bool
) -> Claim:
    """The verifier's walk beside the model's own predictions."""
    n = len(X)
    some = np.arange(n)
    if not full:
        few = max(100, QUICK // max(1, len(trees.trees)))
        some = np.unique(np.linspace(0, n - 1, min(n, few)).astype(int))
    scores, sizes = tree_walks.scores_of(trees, X[some])
    mine = _linked(trees.link, scores)
    theirs = _answers(model, given, some if len(some) < n else None)
    limit = AGREE32 if trees.sums32 else AGREE
    slope = _SLOPE.get(trees.link, 1.0)
    size = np.maximum(sizes.max(axis=1), 1e-300)[:, None] * slope
    if trees.link == "exp":
        size = size * np.maximum(np.abs(mine.reshape(len(mine), -1)), 1e-300)
    worst = np.inf
    if theirs.shape == mine.shape:
        off = np.abs(theirs - mine).reshape(len(mine), -1)
        off = off - 4 * (2.0**-24 if trees.sums32 else 2.0**-53)  # of the link
        worst = float((np.maximum(off, 0) / size).max(initial=0.0))
        worst = worst if np.isfinite(worst) else np.inf
    what = f"{len(some):,} of {n:,} rows" if len(some) < n else f"all {n:,} rows"
    slack = gamma(len(trees.trees) + 8)
    return bd.proved(
        *("same_predictions", Number(worst, slack), max(limit, 4 * slack)),
        f"the trees give the model's predictions for {what}",
        missed=f"for some of {what}, the trees do not give the model's predictions",
        objective="link(baseline + Σ leaves), computed by a second program",
        theorem="differences as a share of the sum of the sizes of the leaves",
        fix=_CHANGED,
    )


def _answers(model: Fit, X: Any, some: Array | None) -> Array:
    """Probabilities or numbers that the model returns."""
    if some is not None:
        X = (
            X.iloc[some]
            if hasattr(X, "iloc")
            else X[some]
            if hasattr(X, "dtype")
            else X
        )
        X = [X[i] for i in some] if isinstance(X, list) else X
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        ask = model.predict_proba if hasattr(model, "classes_") else model.predict
        return np.asarray(ask(X), dtype=np.float64)


def _linked(link: str, z: Array) -> Array:
    if link == "logistic":
        p = special.expit(z[:, 0])
        return np.column_stack([1 - p, p])
    if link == "softmax":
        return np.asarray(special.softmax(z, axis=1))
    if link == "shares":
        return z
    z = np.exp(z) if link == "exp" else z
    return z[:, 0] if z.shape[1] == 1 else z


# -- shapes -----------------------------------------------------------------------


def _monotone_claims(
    trees: tree_reading.Forest, signs: dict[int, int], width: int
) -> Claim:
    """One claim for all constrained columns: the worst of them."""
    found = [_monotone_claim(trees, j, sign, width) for j, sign in signs.items()]
    missed = [claim for claim in found if claim.met is False]
    unsaid = [claim for claim in found if claim.met is None]
    if missed or unsaid or len(found) == 1:
        return (missed or unsaid or found)[0]
    each = data.named("column", list(signs))
    said = f"the score never moves the wrong way along {each}"
    return replace(found[0], detail=f"{said}, whatever the other columns are")


def _monotone_claim(
    trees: tree_reading.Forest, column: int, sign: int, width: int
) -> Claim:
    """Whether scores never fall (or never rise) as one column grows."""
    way = "rises" if sign > 0 else "falls"
    output = len(trees.start) - 1
    if len(trees.start) > 2 or (len(trees.start) == 2 and trees.link != "shares"):
        return bd.refused("monotone_trees", f"several scores in column {column}", "")
    fall = tree_walks.worst_step(trees, column, sign, output)
    if fall is None or (fall.change < 0 and not fall.exact):
        why = f"the trees are too large to decide whether the score {way} with column"
        return bd.refused(
            "monotone_trees", f"{why} {column}", "use fewer or smaller trees"
        )
    words: dict[str, Any] = {"theorem": "every pair of leaves that meet at a threshold"}
    if fall.change < 0:
        single = trees.single
        pair = tree_walks.two_points(fall, column, width, single)
        found = tree_walks.scores_of(trees, np.stack(pair))[0][:, output]
        moved = float(sign * (found[1] - found[0]))
        if moved >= 0:
            why = f"rounding errors hide whether the score {way} with column {column}"
            return bd.refused("monotone_trees", why, "")
        rows = " and ".join(_told(row, {column, *fall.box}) for row in pair)
        return bd.proved(
            *("monotone_trees", Number(-moved), 0.0),
            "",
            missed=f"the score moves the wrong way by {-moved:.3g} as column {column} "
            f"grows: it is {found[0]:.9g} and {found[1]:.9g} at the rows {rows}",
            fix="report this to the library's authors, or fit without the constraint",
            **words,
        )
    return bd.proved(
        *("monotone_trees", Number(0.0), 0.0),
        f"the score {way} with column {column}, or stays, whatever the other "
        "columns are",
        **words,
    )


def _told(row: Array, columns: set[int]) -> str:
    """A row in digits that give it back, by column; other cells are 0."""
    cells = [f"{c}: {float(row[c])!r}" for c in sorted(columns)]
    rest = ", rest: 0" if len(cells) < len(row) else ""
    return f"{{{', '.join(cells)}{rest}}}"


def _outward(value: float, way: str) -> str:
    """Four digits of an end of a range, rounded so that the range becomes no smaller.

    Examples
    --------
    >>> _outward(-11.6431, ROUND_FLOOR), _outward(95326001.0, ROUND_CEILING)
    ('-11.65', '95,330,000')
    """
    if value == 0 or not np.isfinite(value):
        return f"{value:g}"
    exact = Decimal(float(value))
    step = Decimal(1).scaleb(exact.adjusted() - 3)
    ends = (exact / step).to_integral_value(rounding=way) * step
    plain = 1e3 <= abs(ends) < 1e9
    return f"{ends:,.0f}" if plain else f"{float(ends):.4g}"


def _range_claim(trees: tree_reading.Forest) -> Claim:
    low, high = tree_walks.range_of(trees)
    ends = zip(low[:3], high[:3])
    spans = "; ".join(
        f"{_outward(a, ROUND_FLOOR)} and {_outward(b, ROUND_CEILING)}" for a, b in ends
    )
    more = "; …" if len(low) > 3 else ""
    return bd.proved(
        *("output_range", Number(float((high - low).max())), None),
        f"scores of any row lie between {spans}{more}",
        objective="baseline + Σ over trees of [smallest leaf, largest leaf]",
        theorem="the range of a sum lies in the sum of the ranges; rounding is added",
    )
