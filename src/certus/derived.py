"""Models of other libraries whose classes derive from scikit-learn's.

scikit-learn-intelex (``sklearnex``) has classes of scikit-learn's names, parameters and
attributes with a ``predict`` of its own. What the verifier knows about scikit-learn's
class applies to such a model only if its predictions follow from its public attributes.
So a plain scikit-learn model is built from these attributes, and its predictions on the
given rows are compared with the model's own: if they agree, the plain model is judged
in its place; if not, there is no claim.
"""

from __future__ import annotations

import copy
from importlib import import_module
from typing import Any

import numpy as np
from scipy import sparse

from certus.typing import Fit, MatrixLike

#: Classes whose predictions follow from a few attributes, and scikit-learn's module.
HOMES = {
    "LinearRegression": "sklearn.linear_model",
    "Ridge": "sklearn.linear_model",
    "LogisticRegression": "sklearn.linear_model",
    "SVC": "sklearn.svm",
    "SVR": "sklearn.svm",
}
#: Largest difference between predictions, relative to the largest one.
NEAR = 1e-8
_LINEAR = ("coef_", "intercept_")
_MACHINE = ("support_", "support_vectors_", "dual_coef_", "intercept_", "shape_fit_")
_OPTIONAL = (
    *("classes_", "n_features_in_", "feature_names_in_", "n_iter_"),
    *("class_weight_", "fit_status_"),
)

#: What a certificate says about a model that was judged in this way.
NOTE = "its answers on these rows were compared with those of its attributes"


def plain_model(model: Fit, X: MatrixLike) -> Any:
    """The plain scikit-learn model that is equivalent to ``model``, or None.

    Parameters
    ----------
    model : fitted estimator
        Of any class.
    X : array-like
        Rows on which the answers are compared.

    Returns
    -------
    estimator of scikit-learn or None
        None if the model is of another library, its class is not known here, or its
        answers on X are not those of its attributes.
    """
    kind = type(model)
    home = HOMES.get(kind.__name__)
    if kind.__module__.partition(".")[0] != "sklearnex" or home is None:
        return None
    cls = getattr(import_module(home), kind.__name__)
    if cls not in kind.__mro__:
        return None
    try:
        plain = _machine(model, cls) if home == "sklearn.svm" else _linear(model, cls)
        return plain if _agree(plain, model, X) else None
    except (AttributeError, TypeError, ValueError):
        return None


def _bare(model: Fit, cls: type, names: tuple[str, ...]) -> Any:
    """A model with the parameters and the named attributes of another."""
    known = cls().get_params()
    own = model.get_params(deep=False)
    plain = cls(**{name: own[name] for name in known})
    names += tuple(name for name in _OPTIONAL if hasattr(model, name))
    for name in names:
        setattr(plain, name, copy.deepcopy(getattr(model, name)))
    return plain


def _linear(model: Fit, cls: type) -> Any:
    return _bare(model, cls, _LINEAR)


def _machine(model: Fit, cls: type) -> Any:
    """Add the private arrays that libsvm predicts from."""
    plain = _bare(model, cls, _MACHINE)
    plain.support_ = plain.support_.astype(np.int32)
    plain._sparse = sparse.issparse(plain.support_vectors_)
    if not plain._sparse:
        for name in ("support_vectors_", "dual_coef_", "intercept_"):
            held = np.array(getattr(plain, name), dtype=np.float64, order="C")
            setattr(plain, name, held)
    plain._gamma = float(model._gamma)
    plain._n_support = np.array(model.n_support_, dtype=np.int32)
    if not hasattr(model, "classes_"):  # libsvm repeats it for a regressor
        plain._n_support = np.repeat(plain._n_support[:1], 2)
    flipped = hasattr(model, "classes_") and len(model.classes_) == 2
    sign = -1.0 if flipped else 1.0
    plain._dual_coef_ = sign * plain.dual_coef_
    plain._intercept_ = sign * plain.intercept_
    plain._probA = plain._probB = np.empty(0)
    plain._effective_probability = False
    plain._num_iter = np.atleast_1d(plain.n_iter_).astype(np.int32)
    return plain


def _agree(plain: Any, model: Fit, X: MatrixLike) -> bool:
    """Whether both give the same predictions."""
    labels = hasattr(model, "classes_")
    if labels and not np.array_equal(plain.predict(X), model.predict(X)):
        return False
    ask = "decision_function" if labels else "predict"
    ours = np.asarray(getattr(plain, ask)(X), dtype=np.float64)
    theirs = np.asarray(getattr(model, ask)(X), dtype=np.float64)
    if ours.shape != theirs.shape or not np.isfinite(ours).all():
        return False
    size = float(np.abs(ours).max(initial=0.0))
    return bool(np.abs(ours - theirs).max(initial=0.0) <= NEAR * size)
