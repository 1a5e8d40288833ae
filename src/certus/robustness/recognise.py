"""Recognise what is attacked: scikit-learn's models, ours, modules and functions.

The most that is known about a model is used: a formula, gradients, scores, or labels
alone. Where less is known than one might expect, ``note`` says why. Before a model's
formula is used, it is compared with the model's predictions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.validation import check_is_fitted

from certus import layers as net
from certus.robustness.steps import ClippedStep, framing, known_steps, taken_apart
from certus.robustness.target import (
    Derived,
    Formula,
    Labelled,
    LinearTarget,
    Scored,
    Target,
    class_numbers,
    two_columns,
)
from certus.typing import Array, ArrayLike, Fit, MatrixLike

#: Rows on which a model is tried.
PROBED = 64
#: Classifiers of other libraries whose trees are read.
BOOSTED = ("LGBMClassifier", "XGBClassifier")
#: Share of the largest score by which rounding may change scores.
CLOSE = 1e-4


def as_target(
    model: Any,
    X: MatrixLike,
    *,
    classes: Array | None = None,
    threshold: float | None = None,
) -> Target:
    """A model as a target of attacks, with as much known about it as possible.

    Parameters
    ----------
    model : classifier, nn.Module or callable
        A fitted classifier of certus or scikit-learn, a pipeline of them; a torch
        module of raw rows in evaluation mode; or a function that returns labels,
        scores or probabilities of the classes, or one score for two classes.
    X : array-like
        Some rows in raw units, on which the model is tried.
    classes : array-like, optional
        Of a module or function: its classes in the order of its outputs; 0, 1, ... by
        default. Of a function that returns labels: all of them; by default those that
        turn up.
    threshold : float, optional
        Of a module or function with one output: above it is the second class. 0 by
        default; asked for where all outputs are between 0 and 1, which might be
        probabilities.

    Returns
    -------
    Target
        Its ``note`` says why no more is known of it, where that is so.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import Binarizer, StandardScaler
    >>> from certus.linear_model import LogisticRegression
    >>> from certus.robustness import as_target
    >>> X, y = load_iris(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    >>> as_target(model, X).formula.W.shape
    (3, 4)
    >>> model = make_pipeline(Binarizer(threshold=2.0), LogisticRegression()).fit(X, y)
    >>> as_target(model, X).note
    'attacked as a black box: Binarizer has no known gradient'
    """
    if isinstance(model, Target):
        return model
    rows = numbers_of(X)
    rows = rows[:: max(1, len(rows) // PROBED)][:PROBED]
    if isinstance(model, BaseEstimator):
        target = _estimator(model, rows, X)
        target.trees = model if _has_trees(model) else None
        return target
    if hasattr(model, "state_dict") and hasattr(model, "forward"):
        from certus.robustness.modules import of_module

        def names(z: Array, threshold: float | None) -> tuple[Array, float]:
            return _names(z, classes), _level(z, threshold)

        return of_module(model, rows, names, threshold)
    if callable(model):
        return _function(model, rows, classes, threshold)
    raise TypeError(
        f"a {type(model).__name__} cannot predict: pass a fitted classifier, a torch "
        "module or a function of rows."
    )


def _has_trees(model: Fit) -> bool:
    """Whether the verifier can read the trees of this very class."""
    kinds = ("HistGradientBoosting", "RandomForest", "ExtraTree", "DecisionTree")
    name, library = type(model).__name__, type(model).__module__.partition(".")[0]
    if library in ("certus", "sklearn"):
        return name.startswith(kinds)
    return library in ("lightgbm", "xgboost") and name in BOOSTED


def numbers_of(X: Any) -> Array:
    """Rows as an array of floating-point numbers; frames and sparse matrices too."""
    X = X.toarray() if sparse.issparse(X) else X
    try:
        X = np.asarray(X)
        kept = X.dtype in (np.float16, np.float32, np.float64)
        X = X if kept else X.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            "X must hold numbers, because an attack changes them a little. Pass "
            "encoded rows, and the model that takes them."
        ) from None
    if X.ndim < 2:
        raise ValueError(
            f"X must hold rows, got shape {X.shape}. For a single row pass X[None]."
        )
    if not X.size:
        raise ValueError("X has no rows. Attacks need rows of finite numbers.")
    if not np.isfinite(X).all():
        raise ValueError(
            "X contains NaN or infinite values. Attacks need finite numbers."
        )
    return X if X.flags.writeable else X.copy()  # torch warns of those that are not


def true_numbers(y: ArrayLike, n: int, target: Target) -> Array:
    """Class numbers of n true classes; −1 of those that the model does not know."""
    y = np.asarray(y)
    if y.ndim > 1 and y.size != len(y):
        raise ValueError(
            f"y has shape {y.shape}: attacks need one class for each row, not several "
            "labels or shares of classes."
        )
    y = y.reshape(-1)
    if len(y) != n:
        raise ValueError(
            f"X and y must have the same number of rows, got {n} and {len(y)}."
        )
    if any(value is None or value != value for value in y):
        raise ValueError("y has missing values; leave these rows out.")
    if (y.dtype.kind in "OUS") != (target.classes.dtype.kind in "OUS"):
        raise ValueError(
            f"y holds classes such as {y[0]!r}, but the model predicts classes such "
            f"as {target.classes[0]!r}. Pass y with the labels of the model."
        )
    return target.numbers(y)


# -- estimators -------------------------------------------------------------------


def _estimator(model: Fit, rows: Array, given: Any) -> Target:
    if not is_classifier(model):
        raise TypeError(
            f"{type(model).__name__} is not a classifier; attacks need a predicted "
            "class."
        )
    check_is_fitted(model)
    framed = framing(model, given)

    def predict(X: MatrixLike) -> Any:
        return model.predict(framed(X))

    predicted = _steady(predict, rows)
    if predicted.ndim > 1 or isinstance(model.classes_, list):
        raise ValueError(
            f"{type(model).__name__} predicts several labels at once; attacks need "
            "one class for each row. Attack one label at a time, with a function "
            "that returns its score."
        )
    if len(model.classes_) == 1:
        width = int(np.prod(rows.shape[1:]))
        formula = Formula(np.zeros((1, width)), np.zeros(1))
        return LinearTarget(predict, model.classes_, formula)
    target, note = _inside(model, predict, rows)
    if target is not None:
        if _agrees(target, rows, predicted):
            target.known = _known(model)
            return target
        note = "its gradients are not those of its predictions"
    target = _outside(model, predict, framed, rows, predicted)
    target.note = f"attacked as a black box: {note}"
    return target


def _inside(
    model: Fit, predict: Callable[..., Any], rows: Array
) -> tuple[Target | None, str]:
    """A model whose formula or gradients are known; or the reason why not."""
    parts, last = taken_apart(model)
    steps, unknown = known_steps(parts, np.asarray(rows, dtype=np.float64))
    if unknown is not None:
        return None, f"{type(unknown).__name__} has no known gradient"
    formula = _formula(last, steps)
    if formula is not None and len(formula.W.T) == rows[0].size:
        return LinearTarget(predict, model.classes_, formula, _layers(last, steps)), ""
    if hasattr(last, "_raw_function"):
        try:
            from certus.robustness.modules import of_estimator
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            return None, 'gradients of networks need torch: pip install "certus[deep]"'
        target = of_estimator(last, steps, rows, predict)
        return target, f"{type(last).__name__} gives no gradient for rows of this kind"
    target = _kernel_machine(model, last, steps, predict)
    return target, f"{type(last).__name__} has no known gradient"


def _known(model: Fit) -> bool:
    """Whether all predicting steps belong to scikit-learn or certus."""
    while hasattr(model, "best_estimator_"):
        if not _from_libraries(model, "predict"):
            return False
        model = model.best_estimator_
    parts, last = taken_apart(model)
    return (
        _from_libraries(model, "predict")
        and _from_libraries(last, "predict", "decision_function")
        and all(_from_libraries(part, "transform") for part in parts)
    )


def _from_libraries(model: Fit, *names: str) -> bool:
    """Whether methods of a model are those of a class of scikit-learn or certus."""
    for name in names:
        owner = next((c for c in type(model).__mro__ if name in vars(c)), None)
        root = "" if owner is None else owner.__module__.split(".")[0]
        if name in vars(model) or root not in ("", "sklearn", "certus"):
            return False
    return True


def _formula(last: Fit, steps: list[ClippedStep]) -> Formula | None:
    """Scores = W x + b of a classifier behind linear steps, if it states them."""
    W, b = _stated(last)
    if W is None or any(step.cuts for step in steps):
        return None
    for step in reversed(steps):
        if W.shape[1] != len(step.bias):
            return None
        b = b + W @ step.bias
        W = W @ step.weight if step.weight.ndim == 2 else W * step.weight
    if len(W) == 1:
        W, b = np.vstack([np.zeros_like(W), W]), np.concatenate([[0.0], b])
    return Formula(W, b)


def _layers(last: Fit, steps: list[ClippedStep]) -> list[Any]:
    """The same in the steps in which it is computed."""
    found: list[Any] = [
        net.Dense(step.weight, step.bias, step.heft)
        if step.weight.ndim == 2
        else net.Scaling(step.weight, step.bias, terms=2)
        for step in steps
    ]
    machine = _expansion(last)
    W, b = _stated(last)
    if machine is not None:
        found.append(net.Dense(machine.base))
        W = machine.coef.T
    found.append(net.Dense(W, b))
    if len(W) == 1:
        found.append(net.Dense(np.array([[0.0], [1.0]])))
    return found


def _stated(last: Fit) -> tuple[Any, Any]:
    """Coefficients and intercepts, one row for each score."""
    found = _expansion(last)
    if found is not None:
        if found.pairs or type(found.kernel).__name__ != "Linear":
            return None, None
        return found.coef.T @ found.base, found.intercept
    names = ("coef_", "intercept_", "decision_function")
    if not all(hasattr(last, name) for name in names):
        return None, None
    W = last.coef_.toarray() if sparse.issparse(last.coef_) else last.coef_
    W = np.atleast_2d(np.asarray(W, dtype=np.float64))
    b = np.broadcast_to(np.asarray(last.intercept_, dtype=np.float64), len(W))
    # Scores of pairs are not scores of classes, even if there are as many.
    by_pairs = getattr(last, "decision_function_shape", None) and len(W) > 1
    return (None, None) if by_pairs or not np.isfinite(W).all() else (W, b)


def _expansion(last: Fit) -> Any:
    from certus.robustness.kernels import expansion

    return expansion(last)


def _kernel_machine(
    model: Fit, last: Fit, steps: list[ClippedStep], predict: Callable[..., Any]
) -> Any:
    """Gradients in closed form, through the steps before."""
    machine = _expansion(last)
    if machine is None:
        return None

    def through(X: MatrixLike) -> list[Array]:
        stages = [np.asarray(X, dtype=np.float64)]
        for step in steps:
            stages.append(step.apply(stages[-1]))
        return stages

    def score(X: MatrixLike) -> Array:
        return machine.scores(through(X)[-1])

    def derivative(X: MatrixLike, V: Array) -> Array:
        stages = through(X)
        G = machine.derivative(stages[-1], V)
        for step, before in zip(reversed(steps), reversed(stages[:-1])):
            G = step.back(before, G)
        return G

    return Derived(predict, model.classes_, score, derivative)


def _outside(
    model: Fit, predict: Callable[..., Any], framed: Any, rows: Array, predicted: Array
) -> Target:
    """A target with known scores, if they decide the label; else with labels only."""
    for name in ("decision_function", "predict_proba"):
        if not hasattr(model, name):
            continue
        asked = getattr(model, name)

        def score(X: MatrixLike, asked: Any = asked) -> Any:
            return asked(framed(X))

        target = Scored(predict, model.classes_, score)
        if _agrees(target, rows, predicted):
            return target
    return Labelled(predict, model.classes_)


def _agrees(target: Target, rows: Array, predicted: Array) -> bool:
    """Whether the largest score is that of the predicted class, but for ties."""
    z = target.scores(target.rows(rows))
    z = np.asarray(z.cpu() if hasattr(z, "cpu") else z, dtype=np.float64)
    target.queries = 0
    if z.shape != (len(rows), len(target.classes)) or not np.isfinite(z).all():
        return False
    best = np.sort(z, axis=1)
    clear = best[:, -1] - best[:, -2] > CLOSE * np.abs(z).max(axis=1)
    same = z.argmax(axis=1) == class_numbers(predicted, target.classes)
    return bool(same[clear].all())


def _steady(predict: Callable[[Any], Any], rows: Array) -> Array:
    """What is predicted for some rows, if it is so again and among other rows."""
    found = np.asarray(predict(rows.copy()))
    half = slice((len(rows) - 1) // 2, None, -1)
    again = np.asarray(predict(rows[half].copy()))
    if found.shape[:1] != (len(rows),) or again.shape != found[half].shape:
        raise ValueError(
            f"the model must give one output for each of {len(rows)} rows, got shape "
            f"{found.shape}."
        )
    same = found[half] == again
    if found.dtype.kind == "f":
        if not np.isfinite(found).all():
            raise ValueError("the model gives NaN or infinite scores for these rows.")
        size = np.abs(found).max(initial=0.0)
        same = np.abs(found[half] - again) <= CLOSE * size
    if not np.all(same):
        raise ValueError(
            "the model gives different outputs for the same rows when called again: "
            "it draws random numbers, or rows of a batch depend on each other. "
            "Attacks need outputs that depend on the row alone."
        )
    return found


# -- functions --------------------------------------------------------------------


def _function(
    model: Callable[[Any], Any],
    rows: Array,
    classes: Array | None,
    threshold: float | None,
) -> Target:
    try:
        z = _steady(model, rows)
    except TypeError as error:
        raise TypeError(
            f"the function fails on an array of rows ({error}). It gets NumPy arrays; "
            "wrap a function of tensors in an nn.Module."
        ) from error
    single = z.ndim == 1 or z.shape[1] == 1
    if z.ndim > 2:
        raise ValueError(
            "the function must give a label, or a score for each class, for each "
            f"row; for {len(rows)} rows it gives shape {z.shape}."
        )
    if single and (z.dtype.kind != "f" or _among(z, classes)):
        known = np.unique(z) if classes is None else classes
        return Labelled(model, known, open=classes is None)
    names, level = _names(z, classes), _level(z, threshold)

    def score(X: MatrixLike) -> Array:
        return np.asarray(model(X), dtype=np.float64) - level

    def predict(X: MatrixLike) -> Array:
        return names[two_columns(score(X)).argmax(axis=1)]

    return Scored(predict, names, score)


def _among(z: Array, classes: Array | None) -> bool:
    """Whether outputs are all classes, so that they are labels."""
    return classes is not None and bool(np.isin(z, np.asarray(classes)).all())


def _level(z: Array, threshold: float | None) -> float:
    """From where on a single output is the second class."""
    if z.ndim > 1 and z.shape[1] > 1:
        if threshold is not None:
            raise ValueError(
                "threshold= is for a single output; with several "
                "outputs the largest one decides."
            )
        return 0.0
    if threshold is None and z.min() >= 0 and 0 < z.max() <= 1:
        raise ValueError(
            "all outputs are between 0 and 1: instead of the model, pass "
            "as_target(model, X, threshold=0.5) if they are probabilities of the "
            "second class, threshold=0 if the sign decides, classes=[0, 1] if they "
            "are labels."
        )
    return 0.0 if threshold is None else float(threshold)


def _names(z: Array, classes: Array | None) -> Array:
    """The classes in the order of the outputs."""
    outputs = 1 if z.ndim == 1 else int(z.shape[1])
    names = np.arange(max(outputs, 2)) if classes is None else np.asarray(classes)
    if len(names) != max(outputs, 2):
        raise ValueError(
            f"there are {outputs} outputs, but {len(names)} classes: pass classes= in "
            "the order of the outputs."
        )
    return names
