"""Find the model inside pipelines, searches and encoders of tables.

Classes are recognised by name, so nothing of scikit-learn is imported. The verifier
then judges the wrapped model on the rows that it saw.
"""

from __future__ import annotations

from typing import Any

from certus.typing import Fit, MatrixLike


def unwrap(model: Any, X: Any) -> tuple[Any, Any]:
    """The estimator inside ``model`` and the data as that estimator saw it.

    Examples
    --------
    >>> from certus.unwrapping import unwrap
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = [[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0]
    >>> pipeline = make_pipeline(StandardScaler(), Ridge()).fit(X, y)
    >>> unwrap(pipeline, X)[0]
    Ridge()
    """
    libraries = [kind.__module__.partition(".")[0] for kind in type(model).__mro__]
    known = zip(type(model).__mro__, libraries)
    kinds = [kind for kind, library in known if library in ("certus", "sklearn")]
    name = (kinds or [type(model)])[0].__name__
    if name.endswith("SearchCV"):
        return unwrap(_best_of(model, name), X)
    if name == "Pipeline":  # its steps are checked one by one
        _check_columns(model, X)
        last = model.steps[-1][1]
        if last is None or isinstance(last, str):
            raise ValueError(
                "The pipeline ends in 'passthrough', so there is nothing to certify."
            )
        return unwrap(last, model[:-1].transform(X) if len(model.steps) > 1 else X)
    if name == "Generation":  # a record of what a language model wrote
        return model, X
    _check_fitted(model)
    encodes = hasattr(model, "encoder_") and hasattr(model, "estimator_")
    if libraries[0] == "certus" and encodes:
        return unwrap(
            model.estimator_, model.encoder_.transform(X)
        )  # knows its columns
    _check_columns(model, X)
    return model, X


def innermost(model: Fit) -> Any:
    """The estimator inside wrappers that only change its answers, not its columns.

    Examples
    --------
    >>> from certus.calibration import ThresholdClassifier
    >>> from certus.linear_model import LogisticRegression
    >>> from certus.unwrapping import innermost
    >>> model = ThresholdClassifier(LogisticRegression()).fit([[0.0], [1.0]], [0, 1])
    >>> innermost(model)
    LogisticRegression()
    """
    while _calibrates(model):
        model = model.estimator_
    return model


def wrappers(model: Fit) -> list[str]:
    """Names of the classes around the :func:`innermost` estimator, outermost first.

    Examples
    --------
    >>> from certus.calibration import ThresholdClassifier
    >>> from certus.linear_model import LogisticRegression
    >>> from certus.unwrapping import wrappers
    >>> model = ThresholdClassifier(LogisticRegression()).fit([[0.0], [1.0]], [0, 1])
    >>> wrappers(model)
    ['ThresholdClassifier']
    """
    names = []
    while _calibrates(model):
        names.append(type(model).__name__)
        model = model.estimator_
    return names


def _calibrates(model: Fit) -> bool:
    return type(model).__module__.startswith("certus.calibration.")


def _best_of(search: Any, name: str) -> Any:
    if hasattr(search, "best_estimator_"):
        return search.best_estimator_
    if getattr(search, "refit", True) is False:
        raise ValueError(
            f"This {name} has refit=False, so it keeps no fitted model. Use "
            "refit=True, or fit an estimator with best_params_ and certify that."
        )
    raise ValueError(f"This {name} is not fitted yet. Call fit first.")


def _check_fitted(model: Fit) -> None:
    state, name = getattr(model, "__dict__", {}), type(model).__name__
    if hasattr(model, "state_dict") and not hasattr(model, "get_params"):
        raise ValueError(
            f"This {name} is a plain torch module, which does not say what it "
            "minimises. Train it as certus.neural_network.NeuralClassifier(module), "
            "or NeuralRegressor(module)."
        )
    if name == "Booster":
        raise TypeError(
            "A Booster does not keep how it was fitted. Certify the estimator, such as "
            "LGBMRegressor or XGBClassifier; certus.ensemble.read_trees takes a "
            "Booster."
        )
    told = getattr(model, "__sklearn_is_fitted__", None)
    if told is not None and told():  # such as a tokeniser with nothing to learn
        return
    if not any(each.endswith("_") and not each.startswith("_") for each in state):
        raise ValueError(f"This {name} is not fitted yet. Call fit first.")


def _check_columns(model: Fit, X: MatrixLike) -> None:
    if not (hasattr(model, "feature_names_in_") and hasattr(X, "columns")):
        return
    expected = [str(name) for name in model.feature_names_in_]
    given = [str(name) for name in X.columns]
    if expected == given:
        return
    what = "has the columns in another order"
    if extra := [name for name in given if name not in expected]:
        what = f"has {', '.join(extra[:3])}, which the model does not know"
    if missing := [name for name in expected if name not in given]:
        what = f"lacks {', '.join(missing[:3])}"
    raise ValueError(
        f"X {what}. Pass the columns the model was fitted on, in that order: "
        f"{', '.join(expected[:5])}{'...' if len(expected) > 5 else ''}."
    )
