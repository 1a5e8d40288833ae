"""What linear models minimise, read from their public parameters.

One reader for each class name, ours and scikit-learn's; they differ where scikit-learn
penalises an intercept (liblinear) or divides by the number of rows (SGD). Penalties are
given as the model writes them; ``penalty_of`` tells how they relate to the weighted
mean of the loss. What cannot be stated is refused with a reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from certus import terms as t
from certus.verify.stating import Reader, Refusal, class_name, is_ours, tol_of


class Statement(NamedTuple):
    """Σ sᵢ ℓ(yᵢ, xᵢᵀw + b)/Σs + Ω(w), once or for several targets."""

    loss: Any
    penalty: Any
    target: str = "numbers"  # | "signs" | "one_vs_rest" | "codes" | "tasks"
    intercept: str = "free"  # | "none" | "penalised"
    scale: float = 1.0  # of the constant column of a penalised intercept
    class_weight: Any = None
    class_counts: str = "weights"  # what "balanced" counts; | "rows"
    class_weight_on: str = "rows"  # | "positives": of each class against the rest
    penalty_of: str = "mean"  # what Ω stands beside: | "sum" | "rows" (Σ sℓ/n)
    alphas: tuple[float, ...] = ()  # an L2 level for each target
    hard: bool = False  # the widest margin: ½‖w‖² subject to yz ≥ 1
    tol: float = 1e-6
    fix: str = ""


def advice(model: Any, ours: str = "") -> str:
    """More iterations if they ran out, else a smaller tolerance; or our estimator."""
    limit, tol = getattr(model, "max_iter", None), getattr(model, "tol", None)
    rescale = "standardise the columns (StandardScaler)"
    if is_ours(model):
        if getattr(model, "solver", None) in ("auto", "cholesky") and limit is None:
            return f"solver='svd', or {rescale}"
        return f"raise max_iter (now {limit}), or {rescale}" if limit else rescale
    parts = []
    done = getattr(model, "n_iter_", None)
    spent = None if done is None else np.max(np.asarray(done, dtype=float))
    if limit is not None and spent is not None and spent >= limit:
        parts.append(f"max_iter={10 * int(limit)}")
    elif tol is not None and spent is not None:
        parts.append(f"tol={float(tol) / 1000:.0e}")
    return ", or ".join([*parts, f"certus.linear.{ours}"] if ours else parts)


def _stated(model: Any, loss: Any, penalty: Any, **more: Any) -> Statement:
    ours = more.pop("ours", class_name(model))
    common = {
        "intercept": "free" if model.fit_intercept else "none",
        "tol": tol_of(model),
        "fix": advice(model, ours),
    }
    return Statement(loss, penalty, **{**common, **more})


def _penalty(l1: float, l2: float, positive: bool = False) -> Any:
    if not (l1 >= 0 and l2 >= 0):
        raise Refusal(
            "a penalty that is negative, or not a number, has no minimum to speak of",
            "a penalty of zero or more",
        )
    if positive:
        return t.NonNegative(l1, l2)
    if l1 > 0:
        return t.ElasticNet(l1, l2) if l2 > 0 else t.L1(l1)
    return t.NoPenalty() if l2 == 0 else t.L2(l2)


def _chosen(model: Any, name: str, default: float = 0.0) -> float:
    """A parameter, or what cross-validation chose in its place."""
    crossed = class_name(model).endswith("CV")  # others choose nothing
    found: Any = getattr(model, f"{name}_", None) if crossed else None
    found = getattr(model, name, default) if found is None else found
    levels = np.ravel(found)
    if not np.all(levels == levels[0]):
        raise Refusal(f"{name}={found!r:.40} is more than one number")
    return float(levels[0])


def _least_squares(model: Any) -> Statement:
    return _stated(model, t.Squared(), _penalty(0.0, 0.0, bool(model.positive)))


def _ridge(model: Any) -> Statement:
    """½ Σ s(y − z)² + ½·alpha·‖w‖²; one alpha per target is allowed."""
    crossed = class_name(model).endswith("CV")
    alpha = model.alpha_ if crossed else getattr(model, "alpha", 0.0)
    levels = np.ravel(np.asarray(alpha, dtype=float))
    more: dict[str, Any] = {"penalty_of": "sum"}
    if len(levels) > 1:
        more["alphas"] = tuple(float(level) for level in levels)
    if "Classifier" in class_name(model):
        binary = len(model.classes_) <= 2
        columns = np.atleast_2d(model.coef_).shape[0]
        if binary and columns > 1:
            raise Refusal(
                "the labels are several columns at once (multilabel)",
                "fit one RidgeClassifier per column",
            )
        more["target"] = "signs" if binary else "one_vs_rest"
        more["class_weight"], more["class_counts"] = model.class_weight, "rows"
    positive = bool(getattr(model, "positive", False))
    if not np.all(levels >= 0):
        raise Refusal(f"alpha={alpha!r:.40} is no penalty", "alpha of zero or more")
    penalty = _penalty(0.0, float(levels.max(initial=0.0)), positive)
    return _stated(model, t.Squared(), penalty, **more)


def _lasso(model: Any) -> Statement:
    """½·mean (y − z)² + alpha·(l1_ratio·‖w‖₁ + ½(1 − l1_ratio)·‖w‖²)."""
    alpha, ratio = _chosen(model, "alpha"), _chosen(model, "l1_ratio", 1.0)
    if class_name(model).startswith("Lasso"):
        ratio = 1.0
    penalty = _penalty(alpha * ratio, alpha * (1 - ratio), bool(model.positive))
    return _stated(model, t.Squared(), penalty)


def _weighted_lasso(model: Any) -> Statement:
    """½·mean (y − z)² + alpha·Σⱼ weightsⱼ|wⱼ|."""
    d = np.shape(model.coef_)[-1]
    given = np.ones(d) if model.weights is None else np.asarray(model.weights, float)
    levels = tuple(float(model.alpha) * float(each) for each in given)
    penalty: Any = t.WeightedL1(levels) if any(levels) else t.NoPenalty()
    return _stated(model, t.Squared(), penalty)


def _group_lasso(model: Any) -> Statement:
    """½·mean (y − z)² + alpha·Σ_g ‖w_g‖."""
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
        raise Refusal("groups do not tell the group of each column", "fit again")
    alpha = float(model.alpha)
    groups = tuple(int(number) for number in numbers)
    penalty: Any = t.Group(alpha, groups) if alpha > 0 else t.NoPenalty()
    return _stated(model, t.Squared(), penalty)


def _multi_task(model: Any) -> Statement:
    """½·mean ‖y − z‖² + alpha·(l1_ratio·Σⱼ‖Wⱼ‖ + ½(1 − l1_ratio)·‖W‖²)."""
    alpha, ratio = _chosen(model, "alpha"), _chosen(model, "l1_ratio", 1.0)
    if "Lasso" in class_name(model):
        ratio = 1.0
    l1, l2 = alpha * ratio, alpha * (1 - ratio)
    _penalty(l1, l2)  # refuses what is none
    penalty: Any = t.MultiTask(l1, l2)
    if alpha == 0:
        return _stated(model, t.Squared(), t.NoPenalty())
    return _stated(model, t.Squared(), penalty, target="tasks")


def _logistic(model: Any) -> Statement:
    """Σ s·log-loss + Ω/C; liblinear counts the intercept among the weights."""
    if not getattr(model, "refit", True):
        raise Refusal(
            "with refit=False the coefficients are an average over folds and minimise "
            "nothing",
            "refit=True",
        )
    C, ratio = _chosen(model, "C", 1.0), _l1_ratio(model)
    penalty: Any = t.NoPenalty()
    if ratio is not None and not math.isinf(C):
        penalty = _penalty(ratio / C, (1 - ratio) / C)
    k = len(model.classes_)
    more: dict[str, Any] = {"target": "signs" if k == 2 else "codes"}
    more["penalty_of"], more["class_weight"] = "sum", model.class_weight
    if not is_ours(model) and model.solver == "liblinear" and model.fit_intercept:
        # The cross-validated class refits with a scaling of 1, whatever it was given.
        crossed = class_name(model).endswith("CV")
        scale = 1.0 if crossed else float(model.intercept_scaling)
        more["intercept"], more["scale"] = "penalised", scale
    loss = t.Logistic() if k == 2 else t.Softmax(k)
    return _stated(model, loss, penalty, **more)


def _l1_ratio(model: Any) -> float | None:
    """Share of L1 in the penalty, from ``l1_ratio`` or the older ``penalty``."""
    penalty = getattr(model, "penalty", "deprecated")
    if penalty is None:
        return None
    if penalty in ("l1", "l2"):
        return 1.0 if penalty == "l1" else 0.0
    if penalty not in ("elasticnet", "deprecated"):
        raise Refusal(f"penalty={penalty!r:.40} is unknown", "penalty='l2'")
    found = getattr(model, "l1_ratio_", getattr(model, "l1_ratio", 0.0))
    ratio = np.ravel(np.asarray(found, dtype=object))[0]
    return 0.0 if ratio is None else float(ratio)


def _quantile(model: Any) -> Statement:
    """Mean pinball(y − z) + alpha·‖w‖₁."""
    loss = t.Quantile(float(model.quantile))
    return _stated(model, loss, _penalty(float(model.alpha), 0.0))


def _robust(model: Any) -> Statement:
    """Mean ℓ(y − z) + ½·alpha·‖w‖²; the threshold has a default for each loss."""
    delta = model.delta
    losses: dict[str, Callable[[], Any]] = {
        "absolute": lambda: t.Absolute(),
        "huber": lambda: t.Huber(1.35 if delta is None else float(delta)),
        "tukey": lambda: t.Tukey(4.685 if delta is None else float(delta)),
    }
    return _stated(model, losses[model.loss](), _penalty(0.0, float(model.alpha)))


def _poisson(model: Any) -> Statement:
    """Half the mean deviance + ½·alpha·‖w‖²; Gamma's is the exponential family's."""
    poisson = class_name(model) == "PoissonRegressor"
    loss = t.Poisson() if poisson else t.Exponential()
    ours = "PoissonRegressor" if poisson else "GeneralizedLinearModel"
    return _stated(model, loss, _penalty(0.0, float(model.alpha)), ours=ours)


def _family(model: Any) -> Statement:
    """Half the mean deviance of an exponential family + ½·alpha·‖w‖²."""
    losses = {
        "gaussian": t.Squared(),
        "laplace": t.Absolute(),
        "bernoulli": t.Binomial(1),
        "binomial": t.Binomial(int(model.n_trials)),
        "poisson": t.Poisson(),
        "exponential": t.Exponential(),
    }
    return _stated(model, losses[model.family], _penalty(0.0, float(model.alpha)))


_SGD_LOSSES: dict[str, Callable[[Any], Any]] = {
    "hinge": lambda _: t.Hinge(1.0),
    "perceptron": lambda _: t.Hinge(0.0),
    "squared_hinge": lambda _: t.SquaredHinge(),
    "log_loss": lambda _: t.Logistic(),
    "modified_huber": lambda _: t.ModifiedHuber(),
    "squared_error": lambda _: t.Squared(),
    "huber": lambda model: t.Huber(float(model.epsilon)),
    "epsilon_insensitive": lambda model: t.EpsilonInsensitive(float(model.epsilon)),
    "squared_epsilon_insensitive": lambda model: t.SquaredEpsilonInsensitive(
        float(model.epsilon)
    ),
}


def _sgd(model: Any) -> Statement:
    """(1/n) Σ sℓ + alpha·(l1_ratio·‖w‖₁ + ½(1 − l1_ratio)·‖w‖²)."""
    refuse_early_stopping(model)
    if model.loss not in _SGD_LOSSES:
        raise Refusal(f"loss={model.loss!r} has no stated objective")
    if str(model.learning_rate).startswith("pa"):
        raise Refusal(
            f"learning_rate={model.learning_rate!r} takes passive-aggressive steps, "
            "which minimise no fixed objective",
            "learning_rate='optimal'",
        )
    loss = _SGD_LOSSES[model.loss](model)
    ratios = {"l2": 0.0, "l1": 1.0, "elasticnet": model.l1_ratio, None: None}
    ratio, alpha = ratios[model.penalty], float(model.alpha)
    penalty: Any = t.NoPenalty()
    if ratio is not None:
        penalty = _penalty(alpha * ratio, alpha * (1 - ratio))
    more: dict[str, Any] = {"penalty_of": "rows"}
    if hasattr(model, "classes_"):
        binary = len(model.classes_) == 2
        more["target"] = "signs" if binary else "one_vs_rest"
        more["class_weight"], more["class_counts"] = model.class_weight, "rows"
        more["class_weight_on"] = "rows" if binary else "positives"
    if model.average and ratio:
        # scikit-learn's average of the weights leaves out the steps of the L1 part.
        more["fix"] = "average=False"
    return _stated(model, loss, penalty, ours=_counterpart(loss, penalty), **more)


def _counterpart(loss: Any, penalty: Any) -> str:
    if isinstance(loss, t.Logistic):
        return "LogisticRegression"
    names = {t.L2: "Ridge", t.L1: "Lasso", t.ElasticNet: "ElasticNet"}
    squared = isinstance(loss, t.Squared)
    return names.get(type(penalty), "LinearRegression") if squared else ""


def refuse_early_stopping(model: Any) -> None:
    """Rows held out by a fit are unknown, hence also what was minimised."""
    if model.early_stopping:
        raise Refusal(
            "with early_stopping=True the rows held out are unknown, hence also the "
            "objective",
            "early_stopping=False",
        )


def liblinear(model: Any) -> dict[str, Any]:
    """Liblinear penalises the intercept too, unless its scale is infinite."""
    if not model.fit_intercept or math.isinf(model.intercept_scaling):
        return {"penalty_of": "sum"}
    scale = float(model.intercept_scaling)
    return {"penalty_of": "sum", "intercept": "penalised", "scale": scale}


def _linear_svc(model: Any) -> Statement:
    """C·Σ s·hinge + ½‖w, b/κ‖² or ‖w, b/κ‖₁: liblinear's, for each class."""
    if model.multi_class == "crammer_singer":
        raise Refusal(
            "multi_class='crammer_singer' has no stated bound", "multi_class='ovr'"
        )
    binary = len(model.classes_) == 2
    more = {
        **liblinear(model),
        "target": "signs" if binary else "one_vs_rest",
        "class_weight": model.class_weight,
        "class_weight_on": "rows" if binary else "positives",
    }
    losses: dict[str, Any] = {"hinge": t.Hinge(), "squared_hinge": t.SquaredHinge()}
    if model.loss not in losses or model.penalty not in ("l1", "l2"):
        raise Refusal(f"loss={model.loss!r} with penalty={model.penalty!r} is unknown")
    loss = losses[model.loss]
    if math.isinf(model.C):
        return _stated(model, t.Hinge(), t.NoPenalty(), hard=True, **more)
    level, l1 = 1 / float(model.C), model.penalty == "l1"
    penalty = _penalty(level, 0.0) if l1 else _penalty(0.0, level)
    return _stated(model, loss, penalty, **more)


def _linear_svr(model: Any) -> Statement:
    """C·Σ s·max(0, |y − z| − epsilon) + ½‖w, b/κ‖², or with the square."""
    squared = model.loss.startswith("squared")
    kind = t.SquaredEpsilonInsensitive if squared else t.EpsilonInsensitive
    loss: Any = kind(float(model.epsilon))
    penalty = _penalty(0.0, 1 / float(model.C))
    return _stated(model, loss, penalty, **liblinear(model))


#: By class name, ours and scikit-learn's.
READERS: dict[str, Reader] = {
    "LinearRegression": _least_squares,
    "Ridge": _ridge,
    "RidgeCV": _ridge,
    "RidgeClassifier": _ridge,
    "RidgeClassifierCV": _ridge,
    "Lasso": _lasso,
    "LassoCV": _lasso,
    "ElasticNet": _lasso,
    "ElasticNetCV": _lasso,
    "WeightedLasso": _weighted_lasso,
    "GroupLasso": _group_lasso,
    "MultiTaskLasso": _multi_task,
    "MultiTaskLassoCV": _multi_task,
    "MultiTaskElasticNet": _multi_task,
    "MultiTaskElasticNetCV": _multi_task,
    "LogisticRegression": _logistic,
    "LogisticRegressionCV": _logistic,
    "QuantileRegressor": _quantile,
    "RobustRegressor": _robust,
    "PoissonRegressor": _poisson,
    "GammaRegressor": _poisson,
    "GeneralizedLinearModel": _family,
    "SGDClassifier": _sgd,
    "SGDRegressor": _sgd,
    "LinearSVC": _linear_svc,
    "LinearSVR": _linear_svr,
}
