"""Linear models, neighbours and networks that scikit-learn fitted, as evidence.

Each by its own objective: liblinear penalises the intercept, SGD divides by the number
of rows, not by the weights. What cannot be stated is refused with a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from certus import terms as t
from certus.certificate import Evidence
from certus.verify.foreign_common import NOTE, TOL, Refusal, sklearn_name


def _linear(
    model: Any, loss: t.Loss, penalty: t.Penalty, ours: str, **params: Any
) -> tuple[Evidence, str]:
    intercept = "free" if model.fit_intercept else "none"
    common = {"target": "numbers", "intercept": intercept, "tol": TOL}
    common["fix"] = _fix(model, ours)
    return Evidence("linear", (loss, penalty), {**common, **params}), NOTE


def _fix(model: Any, ours: str) -> str:
    """More iterations if they ran out, else a smaller tolerance; or our estimator."""
    advice = []
    limit, tol = getattr(model, "max_iter", None), getattr(model, "tol", None)
    done = getattr(model, "n_iter_", None)
    spent = None if done is None else np.max(np.asarray(done, dtype=float))
    if limit is not None and spent is not None and spent >= limit:
        advice.append(f"max_iter={10 * int(limit)}")
    elif tol is not None and spent is not None:
        advice.append(f"tol={float(tol) / 1000:.0e}")
    if ours:
        advice.append(f"certus.linear.{ours}")
    return ", or ".join(advice)


def _unconstrained(model: Any) -> None:
    if getattr(model, "positive", False):
        raise Refusal(
            "positive=True constrains the coefficients, and no bound for that problem "
            "is implemented",
            "positive=False",
        )


def _penalty(l1: float, l2: float) -> t.Penalty:
    if l1 > 0:
        return t.ElasticNet(l1, l2) if l2 > 0 else t.L1(l1)
    return t.L2(l2) if l2 > 0 else t.NoPenalty()


def _least_squares(model: Any) -> tuple[Evidence, str]:
    _unconstrained(model)
    return _linear(model, t.Squared(), t.NoPenalty(), "LinearRegression")


def _ridge(model: Any) -> tuple[Evidence, str]:
    """½ Σ s(y − z)² + ½·alpha·‖w‖²; one alpha per target is allowed."""
    _unconstrained(model)
    alpha = np.asarray(
        getattr(model, "alpha_", getattr(model, "alpha", 0)), dtype=float
    )
    params: dict[str, Any] = {"penalty_of": "sum"}
    if alpha.ndim and alpha.size > 1:
        params["alphas"] = [float(a) for a in alpha]
    name = sklearn_name(model) or ""
    if name.startswith("RidgeClassifier"):
        binary = len(model.classes_) == 2
        if (
            binary
            and np.asarray(model.coef_).reshape(-1, model.n_features_in_).shape[0] > 1
        ):
            raise Refusal(
                "the labels are several columns at once (multilabel)",
                "fit one RidgeClassifier per column",
            )
        params["target"] = "signs" if binary else "one_vs_rest"
        params["class_weight"] = model.class_weight
        params["class_counts"] = "rows"
    penalty = _penalty(0.0, float(alpha.ravel()[0]))
    return _linear(model, t.Squared(), penalty, name, **params)


def _lasso(model: Any) -> tuple[Evidence, str]:
    """½·mean (y − z)² + alpha·(l1_ratio·‖w‖₁ + ½(1 − l1_ratio)·‖w‖²)."""
    _unconstrained(model)
    name = sklearn_name(model) or ""
    alpha = float(getattr(model, "alpha_", getattr(model, "alpha", 0.0)))
    ratio = 1.0
    if name.startswith("ElasticNet"):
        ratio = float(getattr(model, "l1_ratio_", model.l1_ratio))
    penalty = _penalty(alpha * ratio, alpha * (1 - ratio))
    return _linear(model, t.Squared(), penalty, name)


def _logistic(model: Any) -> tuple[Evidence, str]:
    """Σ s·log-loss + Ω/C; liblinear counts the intercept among the weights."""
    name = sklearn_name(model) or ""
    if not getattr(model, "refit", True):
        raise Refusal(
            "with refit=False the coefficients are an average over folds and minimise "
            "nothing",
            "refit=True",
        )
    C = float(np.ravel(getattr(model, "C_", getattr(model, "C", 1.0)))[0])
    ratio = _l1_ratio(model)
    if ratio is None or np.isinf(C):
        penalty: t.Penalty = t.NoPenalty()
    else:
        penalty = _penalty(ratio / C, (1 - ratio) / C)
    k = len(model.classes_)
    loss = t.Logistic() if k == 2 else t.Softmax(k)
    params: dict[str, Any] = {"target": "signs" if k == 2 else "codes"}
    params["penalty_of"] = "sum"
    params["class_weight"] = model.class_weight
    if model.solver == "liblinear" and model.fit_intercept:
        params["intercept"] = "penalised"
        # The cross-validated class refits with a scaling of 1, whatever it was given.
        scale = 1.0 if name.endswith("CV") else float(model.intercept_scaling)
        params["intercept_scale"] = scale
    return _linear(model, loss, penalty, name, **params)


def _l1_ratio(model: Any) -> float | None:
    """Share of L1 in the penalty, from ``l1_ratio`` or the older ``penalty``."""
    penalty = getattr(model, "penalty", "deprecated")
    if penalty is None:
        return None
    if penalty in ("l1", "l2"):
        return 1.0 if penalty == "l1" else 0.0
    ratio = np.ravel(getattr(model, "l1_ratio_", getattr(model, "l1_ratio", 0.0)))[0]
    return 0.0 if ratio is None else float(ratio)


def _huber(model: Any) -> tuple[Evidence, str]:
    """Σ s[σ + σ·H((y − z)/σ)] + alpha·‖w‖², jointly in w, b and σ."""
    params = {
        "epsilon": float(model.epsilon),
        "alpha": float(model.alpha),
        "intercept": "free" if model.fit_intercept else "none",
        "tol": TOL,
        "fix": _fix(model, "HuberRegressor"),
    }
    return Evidence("huber", params=params), NOTE


def _quantile(model: Any) -> tuple[Evidence, str]:
    """Mean pinball(y − z) + alpha·‖w‖₁; the verifier finds a dual point itself."""
    penalty = _penalty(float(model.alpha), 0.0)
    loss = t.Quantile(float(model.quantile))
    return _linear(model, loss, penalty, "QuantileRegressor")


def _poisson(model: Any) -> tuple[Evidence, str]:
    """Half the mean deviance + ½·alpha·‖w‖²; Gamma's is the exponential family's."""
    poisson = sklearn_name(model) == "PoissonRegressor"
    loss = t.Poisson() if poisson else t.Exponential()
    ours = "PoissonRegressor" if poisson else "GeneralizedLinearModel"
    return _linear(model, loss, _penalty(0.0, float(model.alpha)), ours)


_SGD_LOSSES: dict[str, Callable[[Any], t.Loss]] = {
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


def _sgd(model: Any) -> tuple[Evidence, str]:
    """(1/n) Σ sℓ + alpha·(l1_ratio·‖w‖₁ + ½(1 − l1_ratio)·‖w‖²)."""
    _no_early_stopping(model)
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
    penalty: t.Penalty = t.NoPenalty()
    if ratio is not None:
        penalty = _penalty(alpha * ratio, alpha * (1 - ratio))
    params: dict[str, Any] = {"penalty_of": "rows"}
    if sklearn_name(model) == "SGDClassifier":
        binary = len(model.classes_) == 2
        params["target"] = "signs" if binary else "one_vs_rest"
        params["class_weight"] = model.class_weight
        params["class_counts"] = "rows"
        params["class_weight_on"] = "rows" if binary else "positives"
    if model.average and ratio:
        # scikit-learn's average of the weights leaves out the steps of the L1 part.
        params["fix"] = "average=False"
    return _linear(model, loss, penalty, _counterpart(loss, penalty), **params)


def _counterpart(loss: t.Loss, penalty: t.Penalty) -> str:
    if isinstance(loss, t.Logistic):
        return "LogisticRegression"
    if not isinstance(loss, t.Squared):
        return ""
    names = {t.L2: "Ridge", t.L1: "Lasso", t.ElasticNet: "ElasticNet"}
    return names.get(type(penalty), "LinearRegression")


def _no_early_stopping(model: Any) -> None:
    if model.early_stopping:
        raise Refusal(
            "with early_stopping=True the rows held out are unknown, hence also the "
            "objective",
            "early_stopping=False",
        )


def _linear_svc(model: Any) -> tuple[Evidence, str]:
    """C·Σ s·hinge + ½‖w, b/κ‖² or ‖w, b/κ‖₁: liblinear's, for each class."""
    if model.multi_class == "crammer_singer":
        raise Refusal(
            "multi_class='crammer_singer' has no stated bound", "multi_class='ovr'"
        )
    level = 1 / float(model.C)
    binary = len(model.classes_) == 2
    params = {
        **_liblinear(model),
        "target": "signs" if binary else "one_vs_rest",
        "class_weight": model.class_weight,
        "class_weight_on": "rows" if binary else "positives",
    }
    loss: t.Loss = t.Hinge() if model.loss == "hinge" else t.SquaredHinge()
    penalty: t.Penalty = t.L1(level) if model.penalty == "l1" else t.L2(level)
    return _linear(model, loss, penalty, "LinearSVC", **params)


def _linear_svr(model: Any) -> tuple[Evidence, str]:
    """C·Σ s·max(0, |y − z| − epsilon) + ½‖w, b/κ‖², or with the square."""
    squared = model.loss.startswith("squared")
    kind = t.SquaredEpsilonInsensitive if squared else t.EpsilonInsensitive
    penalty = t.L2(1 / float(model.C))
    loss: t.Loss = kind(float(model.epsilon))
    return _linear(model, loss, penalty, "LinearSVR", **_liblinear(model))


def _liblinear(model: Any) -> dict[str, Any]:
    """Liblinear counts the intercept among the weights."""
    params: dict[str, Any] = {"penalty_of": "sum"}
    if model.fit_intercept:
        params["intercept"] = "penalised"
        params["intercept_scale"] = float(model.intercept_scaling)
    return params


#: By scikit-learn's class name.
STATEMENTS: dict[str, Callable[[Any], tuple[Evidence, str]]] = {
    "LinearRegression": _least_squares,
    "Ridge": _ridge,
    "RidgeCV": _ridge,
    "RidgeClassifier": _ridge,
    "RidgeClassifierCV": _ridge,
    "Lasso": _lasso,
    "LassoCV": _lasso,
    "ElasticNet": _lasso,
    "ElasticNetCV": _lasso,
    "LogisticRegression": _logistic,
    "LogisticRegressionCV": _logistic,
    "HuberRegressor": _huber,
    "QuantileRegressor": _quantile,
    "PoissonRegressor": _poisson,
    "GammaRegressor": _poisson,
    "SGDClassifier": _sgd,
    "SGDRegressor": _sgd,
    "LinearSVC": _linear_svc,
    "LinearSVR": _linear_svr,
}
