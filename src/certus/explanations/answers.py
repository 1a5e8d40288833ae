"""Which number of a model is explained for each row, and on which scale.

    score        the decision function, or the linear predictor of a GLM (link scale)
    probability  of each class; of the second of two
    prediction   what ``predict`` returns; for labels, 1 for the predicted one, else 0

``auto`` takes the score where the model has one, then the probability, then labels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from certus.typing import Array, Fit

#: Choices of ``output``.
OUTPUTS = ("auto", "score", "probability", "prediction")


class Answer(NamedTuple):
    """A way to ask a model: the method by name, its outputs and the unit in words."""

    method: str
    outputs: tuple[str, ...]
    unit: str

    def of(self, model: Fit) -> Callable[[Any], Array]:
        """A function from rows to an array of rows × outputs."""
        return lambda Z: ask(model, self.method, Z)


def answer_of(model: Fit, output: str, sample: Any) -> Answer:
    """Decide how to ask; ``sample`` is a few rows in the form that the model takes."""
    if not hasattr(model, "predict") and not hasattr(model, "decision_function"):
        if callable(model):
            return _named(model, "call", sample, "output")
        raise TypeError(
            f"explain needs a model that predicts, got {type(model).__name__}."
        )
    if not hasattr(model, "classes_"):
        return _of_regressor(model, output, sample)
    labels = [str(label) for label in np.asarray(model.classes_).ravel()]
    method = _classifier_method(model, output)
    width = ask(model, method, sample).shape[1]
    if width == 1:
        unit = {"probability": "probability of {}", "label": "{} predicted, 1 or 0"}
        text = unit.get(method, "score of {} (above 0: predicted)")
        return Answer(method, (labels[-1],), text.format(labels[-1]))
    if width != len(labels):
        labels = [f"output {k}" for k in range(width)]
    words = {"probability": "probability", "label": "predicted label, 1 or 0"}
    return Answer(method, tuple(labels), words.get(method, "score"))


def _classifier_method(model: Fit, output: str) -> str:
    margin = _margin_of(model)
    has = {
        "score": margin or hasattr(model, "decision_function"),
        "probability": hasattr(model, "predict_proba"),
        "prediction": True,
    }
    if output == "auto":
        output = next(name for name, there in has.items() if there)
    if not has[output]:
        raise ValueError(
            f"This {type(model).__name__} does not give a {output}. Use "
            "output='prediction'."
        )
    names = {"score": margin or "decision", "prediction": "label"}
    return names.get(output, output)


def _margin_of(model: Fit) -> str:
    """Libraries whose classifiers give their scores under names of their own."""
    library = type(model).__module__.partition(".")[0]
    return {"xgboost": "xgboost", "lightgbm": "lightgbm"}.get(library, "")


def _of_regressor(model: Fit, output: str, sample: Any) -> Answer:
    if output == "probability":
        raise ValueError(
            f"This {type(model).__name__} predicts numbers and does not give a "
            "probability. Use output='auto'."
        )
    if not hasattr(model, "predict"):
        return _named(model, "decision", sample, "score")
    if output != "prediction" and _has_log_link(model, sample):
        return _named(model, "log", sample, "logarithm of the prediction")
    return _named(model, "predict", sample, "prediction")


def _has_log_link(model: Fit, sample: Any) -> bool:
    """Whether the coefficients give the logarithm of the prediction, as in a GLM."""
    coef = getattr(model, "coef_", None)
    if coef is None or np.ndim(coef) != 1 or not hasattr(sample, "shape"):
        return False
    z = np.asarray(sample @ np.asarray(coef)) + getattr(model, "intercept_", 0.0)
    mu = np.asarray(model.predict(sample), dtype=np.float64)
    if mu.shape != z.shape or not (mu > 0).all():
        return False
    linear = np.allclose(mu, z, rtol=1e-6, atol=1e-9)
    return not linear and np.allclose(np.log(mu), z, rtol=1e-6, atol=1e-6)


def _named(model: Fit, method: str, sample: Any, unit: str) -> Answer:
    width = ask(model, method, sample).shape[1]
    names = (unit,) if width == 1 else tuple(f"output {k}" for k in range(width))
    return Answer(method, names, unit)


def ask(model: Fit, method: str, Z: Any) -> Array:
    """The answers of the model for rows, as an array of rows × outputs."""
    found = np.asarray(_ask(model, method, Z))
    if found.dtype.kind not in "fiub":
        raise TypeError(
            f"explain needs a model that returns numbers, but {type(model).__name__} "
            f"returns {found.dtype} values."
        )
    return found.astype(np.float64).reshape(len(found), -1)


def _ask(model: Any, method: str, Z: Any) -> Any:
    if method == "call":
        return model(Z)
    if method == "decision":
        return model.decision_function(Z)
    if method == "xgboost":
        return model.predict(Z, output_margin=True)
    if method == "lightgbm":
        return model.predict(Z, raw_score=True)
    if method == "probability":
        P = np.asarray(model.predict_proba(Z))
        return P[:, 1:] if P.shape[1] == 2 else P
    if method == "label":
        classes = np.asarray(model.classes_)
        hits = np.asarray(model.predict(Z))[:, None] == classes
        return (hits[:, 1:] if len(classes) == 2 else hits).astype(np.float64)
    z = model.predict(Z)
    return np.log(np.asarray(z, dtype=np.float64)) if method == "log" else z
