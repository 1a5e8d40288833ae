"""Models that scikit-learn fitted, stated as evidence the verifier can judge.

``unwrap`` opens pipelines and searches; ``evidence`` writes down the objective that the
fitted model minimises. Classes are recognised by name, so nothing of scikit-learn is
imported. What cannot be stated is refused with a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import foreign_linear
from certus.verify.foreign_common import Refusal, sklearn_name

#: By scikit-learn's class name.
_STATEMENTS: dict[str, Callable[[Any], tuple[Evidence, str]]] = {
    **foreign_linear.STATEMENTS,
}

# -- opening pipelines and searches -----------------------------------------------


def unwrap(model: Any, X: Any) -> tuple[Any, Any]:
    """The estimator inside ``model`` and the data as that estimator saw it.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = [[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0]
    >>> pipeline = make_pipeline(StandardScaler(), Ridge()).fit(X, y)
    >>> unwrap(pipeline, X)[0]
    Ridge()
    """
    name = sklearn_name(model)
    if name is not None and name.endswith("SearchCV"):
        return unwrap(_best_of(model, name), X)
    _check_fitted(model)
    ours = type(model).__module__.partition(".")[0] == "certus"
    if ours and hasattr(model, "encoder_") and hasattr(model, "model_"):
        return unwrap(model.model_, model.encoder_.transform(X))  # knows its columns
    _check_columns(model, X)
    if name == "Pipeline":
        last = model.steps[-1][1]
        if last is None or isinstance(last, str):
            raise ValueError("The pipeline ends in 'passthrough': nothing to certify.")
        return unwrap(last, model[:-1].transform(X) if len(model.steps) > 1 else X)
    return model, X


def _best_of(search: Any, name: str) -> Any:
    if hasattr(search, "best_estimator_"):
        return search.best_estimator_
    if getattr(search, "refit", True) is False:
        raise ValueError(
            f"This {name} has refit=False, so it keeps no fitted model. Use "
            "refit=True, or fit an estimator with best_params_ and certify that."
        )
    raise ValueError(f"This {name} is not fitted yet. Call fit first.")


def _check_fitted(model: Any) -> None:
    if sklearn_name(model) == "Pipeline":
        return  # its steps are checked one by one
    state = getattr(model, "__dict__", {})
    if hasattr(model, "state_dict") and not hasattr(model, "get_params"):
        raise ValueError(
            f"This {type(model).__name__} is a bare module, which does not say what it "
            "minimises. Train it as certus.deep.NeuralClassifier(module), or "
            "NeuralRegressor(module)."
        )
    if not any(name.endswith("_") and not name.startswith("_") for name in state):
        raise ValueError(
            f"This {type(model).__name__} is not fitted yet. Call fit first."
        )


def _check_columns(model: Any, X: Any) -> None:
    names = getattr(model, "feature_names_in_", None)
    columns = getattr(X, "columns", None)
    if names is None or columns is None:
        return
    expected, given = [str(name) for name in names], [str(name) for name in columns]
    if expected == given:
        return
    missing = [name for name in expected if name not in given]
    extra = [name for name in given if name not in expected]
    if missing:
        what = f"lacks {', '.join(missing[:3])}"
    elif extra:
        what = f"has {', '.join(extra[:3])}, unknown to the model"
    else:
        what = "has the columns in another order"
    raise ValueError(
        f"X {what}. Pass the columns the model was fitted on, in that order: "
        f"{', '.join(expected[:5])}{'...' if len(expected) > 5 else ''}."
    )


# -- stating the objective --------------------------------------------------------


def evidence(model: Any, X: Any, sample_weight: Any) -> tuple[Evidence, str]:
    """What ``model`` minimises, and the note a missed target carries.

    Penalties are given as the model writes them; ``penalty_of`` tells the checker how
    they relate to the weighted mean of the loss.

    Examples
    --------
    >>> from sklearn.linear_model import Lasso
    >>> evidence(Lasso(alpha=0.1).fit([[0.0], [1.0]], [0.0, 1.0]), None, None)[0].terms
    (Squared(), L1(alpha=0.1))
    """
    name = sklearn_name(model)
    try:
        if name is None or name not in _STATEMENTS:
            raise Refusal(
                f"no statement about {type(model).__name__} can be checked yet",
                "certify knows scikit-learn's "
                + ", ".join(sorted(filter(None, _STATEMENTS))),
            )
        return _STATEMENTS[name](model)
    except Refusal as refusal:
        params = {"reason": refusal.reason, "fix": refusal.fix}
        return Evidence("refused", params=params), ""


def check_refused(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """One REFUSED claim that carries the reason."""
    claim = Claim(
        "refused",
        Strength.REFUSED,
        detail=str(evidence.params.get("reason", "")),
        fix=str(evidence.params.get("fix", "")),
    )
    shape = getattr(X, "shape", None)
    marks = {"shape": [int(size) for size in shape]} if shape is not None else {}
    return [claim], Status.TOL_NOT_REACHED, marks
