"""What linear models minimise, read from their public parameters.

One reader for each class name, ours and scikit-learn's; they differ where scikit-learn
penalises an intercept (liblinear) or divides by the number of rows (SGD). Penalties are
given as the model writes them; ``penalty_of`` tells how they relate to the weighted
mean of the loss. A model without a statement is refused with a reason.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus.objectives import terms as t
from certus.typing import Fit
from certus.verify.stating import Reader, Refusal, class_name, is_ours, tol_of


class Statement(NamedTuple):
    """Σ sᵢ ℓ(yᵢ, xᵢᵀw + b)/Σs + Ω(w), once or for several targets."""

    loss: Any
    penalty: Any  # or a list: one for each target
    target: str = "numbers"  # | "signs" | "one_vs_rest" | "codes" | "tasks"
    intercept: str = "free"  # | "none" | "penalised"
    scale: float = 1.0  # of the constant column of a penalised intercept
    class_weight: Any = None
    class_counts: str = "weights"  # what "balanced" counts; | "rows"
    class_weight_on: str = "rows"  # | "positives": of each class against the rest
    penalty_of: str = "mean"  # the loss that Ω is added to: | "sum" | "rows" (Σ sℓ/n)
    indicator: bool = False  # y may be columns of 0 and 1, which stand for −1 and 1
    hard: bool = False  # the widest margin: ½‖w‖² subject to yz ≥ 1
    joint: bool = False  # Huber's loss in units of a scale, which is fitted too
    tol: float = 1e-6
    fix: str = ""


def advice(model: Fit, ours: str = "") -> str:
    """More iterations if they ran out, else a smaller tolerance; or our estimator."""
    limit, tol = getattr(model, "max_iter", None), getattr(model, "tol", None)
    if is_ours(model):
        rescale = "standardise the columns (StandardScaler)"
        if getattr(model, "solver", None) in ("auto", "cholesky") and limit is None:
            return f"solver='svd', or {rescale}"
        return f"raise max_iter (now {limit}), or {rescale}" if limit else rescale
    home = "svm" if "SV" in ours else "linear_model"
    parts = [f"certus.{home}.{ours}"] if ours else []
    done = getattr(model, "n_iter_", None)
    if done is not None and limit is not None and np.max(done) >= limit:
        parts = [f"max_iter={10 * int(limit)}", *parts]
    elif done is not None and tol is not None:
        parts = [f"tol={float(tol) / 1000:.0e}", *parts]
    return ", or ".join(parts)


def _stated(
    model: Fit, loss: t.Loss, penalty: Any, ours: str | None = None, **more: Any
) -> Statement:
    ours = class_name(model) if ours is None else ours
    intercept = "free" if model.fit_intercept else "none"
    common = {"intercept": intercept, "tol": tol_of(model), "fix": advice(model, ours)}
    return Statement(loss, penalty, **{**common, **more})


def _penalty(l1: float, l2: float, positive: bool = False) -> Any:
    if not (0 <= l1 < math.inf and 0 <= l2 < math.inf):
        reason = "the penalty is negative, infinite or not a number"
        raise Refusal(reason, "use a finite penalty of zero or more")
    if positive:
        return t.NonNegative(l1, l2)
    if l1 > 0:
        return t.L1L2(l1, l2) if l2 > 0 else t.L1(l1)
    return t.NoPenalty() if l2 == 0 else t.L2(l2)


def _chosen(model: Fit, name: str, default: float = 0.0) -> float:
    """A parameter, or the value that cross-validation chose for it."""
    crossed = class_name(model).endswith("CV") and hasattr(model, f"{name}_")
    found: Any = getattr(model, f"{name}_" if crossed else name, default)
    levels = np.unique(found)
    if len(levels) > 1 or levels.dtype.kind not in "fiu":
        raise Refusal(f"{name} must be a single number, got {found!r:.40}")
    return float(levels[0])


def _classes(model: Fit, counts: str = "weights") -> dict[str, Any]:
    """How labels become targets of one score: of two classes, or each against all."""
    binary = len(model.classes_) <= 2
    return {
        "target": "signs" if binary else "one_vs_rest",
        "class_weight": model.class_weight,
        "class_counts": counts,
        "class_weight_on": "rows" if binary else "positives",
    }


# -- squared loss -----------------------------------------------------------------


def _ridge(model: Fit) -> Statement:
    """½ Σ s(y − z)² + ½·alpha·‖w‖²; one alpha per target is allowed."""
    alpha = model.alpha_ if class_name(model).endswith("CV") else model.alpha
    positive = bool(getattr(model, "positive", False))
    levels = np.ravel(np.asarray(alpha, dtype=float)).tolist()
    found = [_penalty(0.0, level, positive) for level in levels]
    more: dict[str, Any] = {"penalty_of": "sum"}
    if "Classifier" in class_name(model):
        more |= {**_classes(model, "rows"), "class_weight_on": "rows"}
        more["indicator"] = True
    return _stated(model, t.Squared(), found if len(found) > 1 else found[0], **more)


def _elastic_net(model: Fit) -> Statement:
    """½·mean (y − z)² + alpha·(l1_ratio·‖w‖₁ + ½(1 − l1_ratio)·‖w‖²).

    With several tasks ‖y − z‖², and Σⱼ‖Wⱼ‖ over the rows of W in place of ‖w‖₁.
    """
    alpha, ratio = _chosen(model, "alpha"), _chosen(model, "l1_ratio", 1.0)
    name = class_name(model)
    ratio = 1.0 if "Lasso" in name else ratio
    l1, l2 = alpha * ratio, alpha * (1 - ratio)
    penalty = _penalty(l1, l2, bool(getattr(model, "positive", False)))
    if name.startswith("MultiTask") and alpha > 0:
        return _stated(model, t.Squared(), t.MultiTask(l1, l2), target="tasks")
    return _stated(model, t.Squared(), penalty)


def _weighted_lasso(model: Fit) -> Statement:
    """½·mean (y − z)² + alpha·Σⱼ weightsⱼ|wⱼ|."""
    d = np.shape(model.coef_)[-1]
    given = np.ones(d) if model.weights is None else np.asarray(model.weights, float)
    levels = tuple(float(model.alpha) * float(each) for each in given)
    penalty: Any = t.WeightedL1(levels) if any(levels) else _penalty(0.0, 0.0)
    return _stated(model, t.Squared(), penalty)


def _group_lasso(model: Fit) -> Statement:
    """½·mean (y − z)² + alpha·Σ_g ‖w_g‖; of groups their size, sizes or columns."""
    d, given = len(model.coef_), model.groups
    if isinstance(given, int | np.integer):
        numbers = np.arange(d) // int(given)
    elif np.ndim(given[0]) == 0:
        numbers = np.repeat(np.arange(len(given)), np.asarray(given, dtype=int))
    else:
        numbers = np.full(d, -1)
        for number, columns in enumerate(given):
            numbers[np.asarray(columns, dtype=int)] = number
    if len(numbers) != d or numbers.min(initial=0) < 0:
        raise Refusal("groups must name the group of each column", "fit again")
    penalty: Any = _penalty(float(model.alpha), 0.0)  # refuses invalid groups
    if model.alpha > 0:
        penalty = t.Group(float(model.alpha), tuple(numbers.tolist()))
    return _stated(model, t.Squared(), penalty)


# -- other losses -----------------------------------------------------------------

#: By the names that models have for them: a term, and attributes of its parameters.
_LOSSES: dict[str, tuple[Any, ...]] = {
    "bernoulli": (t.Binomial, 1),
    "binomial": (t.Binomial, "n_trials"),
    "epsilon_insensitive": (t.EpsilonInsensitive, "epsilon"),
    "exponential": (t.Exponential,),
    "gaussian": (t.Squared,),
    "hinge": (t.Hinge, 1.0),
    "huber": (t.Huber, "epsilon"),
    "laplace": (t.Absolute,),
    "log_loss": (t.Logistic,),
    "modified_huber": (t.ModifiedHuber,),
    "perceptron": (t.Hinge, 0.0),
    "poisson": (t.Poisson,),
    "quantile": (t.Quantile, "quantile"),
    "squared_epsilon_insensitive": (t.SquaredEpsilonInsensitive, "epsilon"),
    "squared_error": (t.Squared,),
    "squared_hinge": (t.SquaredHinge,),
    "tweedie": (t.Tweedie, "power"),
}


def _loss(model: Fit, name: str) -> Any:
    if name not in _LOSSES:
        raise Refusal(f"loss={name!r:.40} has no known objective", "fit again")
    kind, *given = _LOSSES[name]
    return kind(*(float(getattr(model, x) if isinstance(x, str) else x) for x in given))


def _logistic(model: Fit) -> Statement:
    """Σ s·log-loss + Ω/C; liblinear counts the intercept among the weights."""
    if not getattr(model, "refit", True):
        reason = "averages over folds do not minimise an objective"
        raise Refusal(reason, "refit=True")
    C, ratio = _chosen(model, "C", 1.0), _l1_ratio(model)
    level = 0.0 if ratio is None else 1 / C
    penalty = _penalty(level * (ratio or 0.0), level * (1 - (ratio or 0.0)))
    k = len(model.classes_)
    more: dict[str, Any] = {"target": "signs" if k == 2 else "codes"}
    more |= {"penalty_of": "sum", "class_weight": model.class_weight}
    free = is_ours(model) and level == 0  # ours has no penalty at all then
    if model.solver == "liblinear" and model.fit_intercept and not free:
        # Theirs that cross-validates refits with a scaling of 1, whatever it was given.
        crossed = class_name(model).endswith("CV") and not is_ours(model)
        more["intercept"] = "penalised"
        more["scale"] = 1.0 if crossed else float(model.intercept_scaling)
    return _stated(model, t.Logistic() if k == 2 else t.Softmax(k), penalty, **more)


def _l1_ratio(model: Fit) -> float | None:
    """Share of L1 in the penalty, from ``l1_ratio`` or the older ``penalty``."""
    penalty = getattr(model, "penalty", "deprecated")
    if penalty in (None, "l1", "l2"):
        return {"l1": 1.0, "l2": 0.0}.get(penalty)
    if penalty not in ("elasticnet", "deprecated"):
        raise Refusal(f"penalty={penalty!r:.40} is unknown", "penalty='l2'")
    found = getattr(model, "l1_ratio_", getattr(model, "l1_ratio", 0.0))
    return float(np.ravel(np.asarray(found, dtype=object))[0] or 0.0)


def _robust(model: Fit) -> Statement:
    """Mean ℓ(y − z) + ½·alpha·‖w‖²; the threshold has a default for each loss."""
    kinds = {"huber": t.Huber(1.35), "tukey": t.Tukey(4.685), "absolute": t.Absolute()}
    loss: Any = kinds[model.loss]
    if model.threshold is not None and hasattr(loss, "threshold"):
        loss = loss._replace(threshold=float(model.threshold))
    return _stated(model, loss, _penalty(0.0, float(model.alpha)))


def huber(model: Fit) -> Statement:
    """Σ s[σ + σ·H_epsilon((y − z)/σ)] + alpha·‖w‖², jointly in w, b and σ."""
    loss, penalty = t.Huber(float(model.epsilon)), _penalty(0.0, 2 * float(model.alpha))
    return _stated(model, loss, penalty, penalty_of="sum", joint=True)


def _family(model: Fit) -> Statement:
    """Half the mean deviance + ½·alpha·‖w‖²; Gamma's is the exponential family's.

    Of quantile regression mean pinball(y − z) + alpha·‖w‖₁.
    """
    named = {"PoissonRegressor": "poisson", "GammaRegressor": "exponential"}
    named["QuantileRegressor"] = "quantile"
    name, alpha = class_name(model), float(model.alpha)
    loss = _loss(model, named.get(name) or _power(model) or model.family)
    levels = (alpha, 0.0) if isinstance(loss, t.Quantile) else (0.0, alpha)
    return _stated(model, loss, _penalty(*levels))


def _power(model: Fit) -> str:
    """The family of a Tweedie power; "" of a model that has none."""
    if not class_name(model).startswith("Tweedie"):
        return ""
    power, link = float(model.power), model.link
    logarithm = link == "log" or (link == "auto" and power > 0)
    if not (1 <= power <= 2 if logarithm else power == 0 and link != "log"):
        reason = f"power={power:g} with link={link!r:.20} is not convex"
        raise Refusal(reason, "power=0, or a power from 1 to 2 with a logarithmic link")
    return {0.0: "gaussian", 1.0: "poisson", 2.0: "exponential"}.get(power, "tweedie")


def _sgd(model: Fit) -> Statement:
    """(1/n) Σ sℓ + alpha·(l1_ratio·‖w‖₁ + ½(1 − l1_ratio)·‖w‖²)."""
    if model.early_stopping:
        reason = "it is not known which rows early_stopping=True held out"
        raise Refusal(reason, "early_stopping=False")
    if str(model.learning_rate).startswith("pa"):
        reason = "passive-aggressive steps do not minimise a fixed objective"
        raise Refusal(reason, "learning_rate='optimal'")
    loss = _loss(model, model.loss)
    ratios = {"l2": 0.0, "l1": 1.0, "elasticnet": model.l1_ratio, None: 0.0}
    ratio, alpha = ratios[model.penalty], float(model.alpha if model.penalty else 0.0)
    penalty = _penalty(alpha * ratio, alpha * (1 - ratio))
    more = _classes(model, "rows") if hasattr(model, "classes_") else {}
    more["penalty_of"] = "rows"
    if model.average and ratio:
        # scikit-learn's average of the weights leaves out the steps of the L1 part.
        more["fix"] = "average=False"
    ours = {t.L2: "Ridge", t.L1: "Lasso", t.L1L2: "ElasticNet"}
    name = ours.get(type(penalty), "LinearRegression")
    if not isinstance(loss, t.Squared):
        name = "LogisticRegression" if isinstance(loss, t.Logistic) else ""
    return _stated(model, loss, penalty, name, **more)


def _liblinear(model: Fit) -> dict[str, Any]:
    """Liblinear penalises the intercept too, unless its scale is infinite."""
    if not model.fit_intercept or math.isinf(model.intercept_scaling):
        return {"penalty_of": "sum"}
    scale = float(model.intercept_scaling)
    return {"penalty_of": "sum", "intercept": "penalised", "scale": scale}


def _linear_svc(model: Fit) -> Statement:
    """C·Σ s·hinge + ½‖w, b/κ‖² or ‖w, b/κ‖₁: liblinear's, for each class."""
    if model.multi_class == "crammer_singer":
        reason = "no bound is known for multi_class='crammer_singer'"
        raise Refusal(reason, "multi_class='ovr'")
    if "hinge" not in model.loss or model.penalty not in ("l1", "l2"):
        raise Refusal(f"loss={model.loss!r} with penalty={model.penalty!r} is unknown")
    more = {**_liblinear(model), **_classes(model)}
    if math.isinf(model.C):
        return _stated(model, t.Hinge(), t.NoPenalty(), hard=True, **more)
    level, l1 = 1 / float(model.C), model.penalty == "l1"
    penalty = _penalty(level, 0.0) if l1 else _penalty(0.0, level)
    return _stated(model, _loss(model, model.loss), penalty, **more)


def _linear_svr(model: Fit) -> Statement:
    """C·Σ s·max(0, |y − z| − epsilon) + ½‖w, b/κ‖², or with the square."""
    loss, penalty = _loss(model, model.loss), _penalty(0.0, 1 / float(model.C))
    return _stated(model, loss, penalty, **_liblinear(model))


#: Classes of each reader, ours and scikit-learn's.
_CLASSES: dict[Reader, str] = {
    _ridge: "Ridge RidgeCV RidgeClassifier RidgeClassifierCV",
    _elastic_net: "LinearRegression Lasso LassoCV ElasticNet ElasticNetCV "
    "MultiTaskLasso MultiTaskLassoCV MultiTaskElasticNet MultiTaskElasticNetCV",
    _weighted_lasso: "WeightedLasso",
    _group_lasso: "GroupLasso",
    _logistic: "LogisticRegression LogisticRegressionCV",
    _robust: "RobustRegressor",
    _family: "PoissonRegressor GammaRegressor TweedieRegressor GeneralizedLinearModel "
    "QuantileRegressor",
    _sgd: "SGDClassifier SGDRegressor",
    _linear_svc: "LinearSVC",
    _linear_svr: "LinearSVR",
}
READERS = {name: read for read, names in _CLASSES.items() for name in names.split()}
