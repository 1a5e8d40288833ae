"""Which models the command line knows, and how their parameters are set.

Names resolve to classes on use, so that listing them loads no solver. A misspelt name
or parameter gets the nearest right one as a suggestion.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from certus.cli.screen import Stop

__all__ = ["MODELS", "NOT_OFFERED", "Model", "build", "find_model", "load_foreign"]


class Model(NamedTuple):
    """A name on the command line, where its class is, what it predicts, and how."""

    name: str
    cls: str
    predicts: str
    line: str
    module: str


_ROWS = {
    "certus.linear_model": (
        ("linear", "LinearRegression", "numbers", "least squares, no penalty"),
        ("ridge", "Ridge", "numbers", "least squares + squared penalty"),
        ("ridge-cv", "RidgeCV", "numbers", "ridge, penalty by leave-one-out"),
        ("lasso", "Lasso", "numbers", "least squares + absolute penalty: few columns"),
        ("lasso-cv", "LassoCV", "numbers", "lasso, penalty by cross-validation"),
        ("elastic-net", "ElasticNet", "numbers", "both penalties, mixed by l1_ratio"),
        ("elastic-net-cv", "ElasticNetCV", "numbers", "penalty by cross-validation"),
        ("robust", "RobustRegressor", "numbers", "errors beyond delta count less"),
        ("huber", "HuberRegressor", "numbers", "outliers count less, scale fitted"),
        ("quantile", "QuantileRegressor", "numbers", "the median or another quantile"),
        ("poisson", "PoissonRegressor", "numbers", "counts, by a logarithmic link"),
        ("glm", "GeneralizedLinearModel", "numbers", "likelihood of a chosen family"),
        ("linear-svr", "LinearSVR", "numbers", "errors within epsilon are free"),
        ("logistic", "LogisticRegression", "labels", "logistic or softmax regression"),
        (
            "logistic-cv",
            "LogisticRegressionCV",
            "labels",
            "penalty by cross-validation",
        ),
        ("ridge-classifier", "RidgeClassifier", "labels", "ridge on ±1 per label"),
        ("svm", "LinearSVC", "labels", "linear support vector machine"),
        ("perceptron", "Perceptron", "labels", "learns from its mistakes, row by row"),
    ),
    "certus.svm": (
        ("kernel-ridge", "KernelRidge", "numbers", "ridge with a kernel"),
        ("svr", "SVR", "numbers", "linear-svr with a kernel"),
        ("svc", "SVC", "labels", "svm with a kernel"),
        (
            "kernel-logistic",
            "KernelLogisticRegression",
            "labels",
            "logistic regression with a kernel",
        ),
        ("kernel-perceptron", "KernelPerceptron", "labels", "perceptron with a kernel"),
    ),
    "certus.neighbors": (
        ("knn-regressor", "KNeighborsRegressor", "numbers", "mean of the nearest rows"),
        (
            "knn-classifier",
            "KNeighborsClassifier",
            "labels",
            "vote of the nearest rows",
        ),
    ),
    "certus.neural_network": (
        ("mlp-regressor", "MLPRegressor", "numbers", "multi-layer perceptron"),
        ("mlp-classifier", "MLPClassifier", "labels", "multi-layer perceptron"),
    ),
}
_TASKS = "it fits several targets at once, and --target names one. Use --model {}."
#: Estimators of ``certus.linear_model`` that make no sense on one table with one
#: target.
NOT_OFFERED = {
    "WeightedLasso": "it takes a weight for every encoded column. Use --model lasso, "
    "or certus.linear_model.WeightedLasso in Python.",
    "GroupLasso": "it takes groups of encoded columns, which a table does not name. "
    "Use --model lasso, or certus.linear_model.GroupLasso in Python.",
    "MultiTaskLasso": _TASKS.format("lasso"),
    "MultiTaskLassoCV": _TASKS.format("lasso-cv"),
    "MultiTaskElasticNet": _TASKS.format("elastic-net"),
    "MultiTaskElasticNetCV": _TASKS.format("elastic-net-cv"),
    "StochasticLinearClassifier": "it predicts by drawing weights at random, so that "
    "its risk can be bounded. Use certus.linear_model.StochasticLinearClassifier "
    "in Python.",
}
MODELS = tuple(Model(*row, module) for module, rows in _ROWS.items() for row in rows)


def find_model(name: str) -> Model:
    """The model of that name; its class name will do as well."""
    from certus.tables.errors import did_you_mean

    wanted = name.lower().replace("_", "-")
    for model in MODELS:
        if wanted in (model.name, model.cls.lower()):
            return model
    for cls, why in NOT_OFFERED.items():
        if wanted.replace("-", "") == cls.lower():
            raise Stop(f"{cls} is not offered here: {why}", code=2)
    known = [model.name for model in MODELS]
    hint = did_you_mean(name, known) or f" Choose one of {', '.join(known)}."
    raise Stop(f'there is no model "{name}".{hint}', code=2)


def load_class(model: Model) -> Any:
    """The model's class."""
    return getattr(importlib.import_module(model.module), model.cls)


def build(model: Model, settings: Sequence[str], seed: int | None) -> Any:
    """An unfitted estimator with the parameters given as ``name=value``."""
    cls = load_class(model)
    known = [name for name in inspect.signature(cls).parameters]
    params: dict[str, Any] = {}
    if seed is not None and "random_state" in known:
        params["random_state"] = seed
    for setting in settings:
        name, value = _parse(setting)
        if name not in known:
            raise Stop(_unknown_parameter(model, name, known), code=2)
        params[name] = value
    return cls(**params)


def load_foreign(places: Sequence[str], seed: int | None) -> dict[str, Any]:
    """Estimators named as ``module:Class``, with their defaults, by the class."""
    found: dict[str, Any] = {}
    for place in places:
        module, colon, name = place.partition(":")
        if not (module and colon and name):
            raise Stop(
                f'--with takes module:Class, as in sklearn.svm:SVC; got "{place}".', 2
            )
        sys.path.insert(0, "")  # the user's own modules are in the folder at hand
        try:
            model = getattr(importlib.import_module(module), name)()
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise Stop(f"--with {place} cannot be used: {error}.", code=2) from None
        finally:
            sys.path.remove("")
        if "random_state" in getattr(model, "get_params", dict)():
            model.set_params(random_state=seed or 0)
        found[name] = model
    return found


def _unknown_parameter(model: Model, name: str, known: list[str]) -> str:
    from certus.tables.errors import did_you_mean

    hint = did_you_mean(name, known) or f" It has: {', '.join(known)}."
    return f'{model.name} has no parameter "{name}".{hint}'


_WORDS = {"true": True, "false": False, "none": None}


def _parse(setting: str) -> tuple[str, Any]:
    """Split ``name=value``; numbers, lists and true/false/none by their meaning."""
    name, equals, text = setting.partition("=")
    if not equals or not name.strip():
        raise Stop(f'--set takes name=value, as in alpha=0.1; got "{setting}".', 2)
    text = text.strip()
    if text.lower() in _WORDS:
        return name.strip(), _WORDS[text.lower()]
    if text.lower() in ("inf", "+inf", "-inf"):
        return name.strip(), float(text)
    try:
        return name.strip(), ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return name.strip(), text
