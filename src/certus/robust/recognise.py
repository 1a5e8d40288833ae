"""What is attacked, recognised: scikit-learn's models, ours, modules and functions."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_classifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from certus.robust.target import (
    Array,
    Differentiated,
    Formula,
    Labelled,
    Linear,
    Scored,
    Target,
    two_columns,
)

#: Rows on which a formula is compared with the model's own scores.
PROBED = 20


def as_target(model: Any, X: Any, *, classes: Any = None) -> Target:
    """A model as attacks meet it, with as much of it known as can be.

    Parameters
    ----------
    model : classifier, nn.Module or callable
        A fitted classifier of certus or scikit-learn, a pipeline of them; a torch
        module of raw rows in evaluation mode; or a function that returns labels, or a
        score for each class.
    X : array-like
        Some rows; modules and functions are tried on the first two.
    classes : array-like, optional
        Of a module or function: its classes in the order of its outputs; 0, 1, ... by
        default.

    Returns
    -------
    Target
    """
    if isinstance(model, Target):
        return model
    if isinstance(model, BaseEstimator):
        return _estimator(model, X)
    if hasattr(model, "state_dict") and hasattr(model, "forward"):
        return _module(model, X, classes)
    if callable(model):
        return _function(model, X, classes)
    raise TypeError(
        f"a {type(model).__name__} predicts nothing: pass a fitted classifier, a torch "
        "module or a function of rows."
    )


def _estimator(model: Any, X: Any) -> Target:
    if not is_classifier(model):
        raise TypeError(
            f"{type(model).__name__} is no classifier; attacks need a predicted class."
        )
    formula = formula_of(model, X)
    if formula is not None:
        return Linear(model.predict, model.classes_, formula)
    if hasattr(model, "_raw_function"):
        from certus.robust.modules import of_estimator

        target = of_estimator(model, X, model.predict)
        if target is not None:
            return target
    for name in ("decision_function", "predict_proba"):
        if hasattr(model, name):
            return Scored(model.predict, model.classes_, getattr(model, name))
    return Labelled(model.predict, model.classes_)


def formula_of(model: Any, X: Any) -> Formula | None:
    """Scores = W x + b, if the model is linear in the rows; also through scaling.

    The model's own scores of some rows must be what the formula gives.
    """
    pipe = isinstance(model, Pipeline)
    steps = [step for _, step in model.steps] if pipe else [model]
    last = steps[-1]
    if not all(hasattr(last, name) for name in ("coef_", "intercept_", "classes_")):
        return None
    W = np.atleast_2d(np.asarray(last.coef_, dtype=np.float64))
    b = np.broadcast_to(np.asarray(last.intercept_, dtype=np.float64), len(W))
    for step in reversed(steps[:-1]):
        scaling = _scaling(step)
        if scaling is None:
            return None
        times, plus = scaling
        W, b = W * times, b + W @ plus
    if len(W) == 1:
        W, b = np.vstack([np.zeros_like(W), W]), np.concatenate([[0.0], b])
    rows = np.asarray(X, dtype=np.float64)[:PROBED]
    if not hasattr(model, "decision_function") or rows.shape[1:] != W.shape[1:]:
        return None
    z = two_columns(np.asarray(model.decision_function(X[:PROBED]), dtype=np.float64))
    close = z.shape[1] == len(W) and np.allclose(rows @ W.T + b, z, rtol=1e-6)
    return Formula(W, b) if close else None


def _scaling(step: Any) -> tuple[Array, Array] | None:
    """(a, c) of a step that maps x to a·x + c, entry by entry."""
    if step in (None, "passthrough"):
        return np.float64(1.0), np.float64(0.0)  # type: ignore[return-value]
    if type(step) is StandardScaler:
        scale = 1.0 if step.scale_ is None else step.scale_
        mean = 0.0 if step.mean_ is None else step.mean_
        width = np.ones(step.n_features_in_)
        return width / scale, -width * mean / scale
    if type(step) is MinMaxScaler and not step.clip:
        return step.scale_, step.min_
    if type(step) is MaxAbsScaler:
        return 1 / step.scale_, np.zeros(len(step.scale_))
    return None


def _module(model: Any, X: Any, classes: Any) -> Target:
    import torch

    training = [name for name, part in model.named_modules() if part.training]
    if training:
        raise ValueError(
            "the module is in training mode, where dropout and batch norm change what "
            "it predicts: call module.eval() first."
        )
    first = next(iter(model.parameters()), torch.zeros(1))

    def function(x: Any) -> Any:
        return model(x)

    def predict(X: Any) -> Array:
        rows = torch.as_tensor(np.asarray(X), dtype=first.dtype, device=first.device)
        with torch.no_grad():
            z = function(rows)
        return names[_decided(z.cpu().numpy())]

    with torch.no_grad():
        z = function(torch.as_tensor(np.asarray(X[:2]), dtype=first.dtype))
    names = _names(z, classes)
    place = first.dtype, first.device

    def exactly() -> Any:
        return copy.deepcopy(model).cpu().double()

    return Differentiated(predict, names, function, *place, exactly, True)


def _function(model: Any, X: Any, classes: Any) -> Target:
    z = np.asarray(model(X[:2]))
    if z.dtype.kind != "f" or (z.ndim == 1 and classes is not None):
        if classes is None:
            raise ValueError("a function that returns labels needs classes=.")
        return Labelled(model, classes)
    names = _names(z, classes)
    return Scored(lambda X: names[_decided(np.asarray(model(X)))], names, model)


def _names(z: Any, classes: Any) -> Array:
    """The classes in the order of the outputs."""
    outputs = 1 if z.ndim == 1 else int(z.shape[1])
    names = np.arange(max(outputs, 2)) if classes is None else np.asarray(classes)
    if len(names) != max(outputs, 2):
        raise ValueError(
            f"{outputs} outputs do not go with {len(names)} classes: pass classes= in "
            "the order of the outputs."
        )
    return names


def _decided(z: Array) -> Array:
    """Class numbers: the largest score, or the sign of a single one."""
    if z.ndim == 1 or z.shape[1] == 1:
        return (z.reshape(-1) > 0).astype(int)
    return np.argmax(z, axis=1)
