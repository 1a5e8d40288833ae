"""``certus.certify``: what the verifier finds, with numbers that only describe.

The verifier proves; what is measured beside it is handed over. Our models diagnose
themselves; numbers about scikit-learn's, which cannot, are found here. All of them are
MEASURED: the verifier takes no others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from certus import verify
from certus._core.rows import known_codes, row_weights
from certus.certificate import Certificate, Claim
from certus.diagnostics import perceptron
from certus.diagnostics.neighbors import left_out


def certify(
    model: Any,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    level: str = "quick",
    sensitive: Any = None,
) -> Certificate:
    """Recompute what can be said about a fitted model on the data you pass.

    Parameters
    ----------
    model : fitted estimator
        One of ours, or one that scikit-learn fitted; pipelines are applied up to their
        last step, searches are judged by their best estimator.
    X, y : array-like
        The training data; or the rows that ``calibrate`` was given, for a certificate
        of their coverage.
    sample_weight : array-like, optional
        The weights used in ``fit``.
    level : {"quick", "full"}
        ``"quick"`` takes one pass over the data for most linear models, a few for
        others; ``"full"`` may cost as much as a fit.
    sensitive : array-like, optional
        The attribute, for models of :mod:`certus.fairness` that were fitted with it: no
        model keeps it.

    Returns
    -------
    Certificate

    Examples
    --------
    >>> import certus
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Lasso
    >>> X, y = load_diabetes(return_X_y=True)
    >>> certus.certify(Lasso(alpha=0.1, tol=1e-8).fit(X, y), X, y).met
    True
    """
    lent = {"level": level, "sensitive": sensitive, "diagnose": _diagnose}
    return verify.certify(model, X, y, sample_weight, **lent)


def _diagnose(
    model: Any, X: Any, y: Any, sample_weight: Any, level: str, sensitive: Any
) -> Sequence[Claim]:
    """What a model of ours says of itself; what is found here of scikit-learn's."""
    libraries = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    if "certus" in libraries:
        if not hasattr(model, "diagnose"):
            return []
        lent = {} if sensitive is None else {"sensitive": sensitive}
        found: Sequence[Claim] = model.diagnose(
            X, y, sample_weight, level=level, **lent
        )
        return found
    for kind in type(model).__mro__:
        if kind.__module__.startswith("sklearn.") and kind.__name__ in _FOREIGN:
            return _FOREIGN[kind.__name__](model, X, y, sample_weight, level)
    return []


def _perceptron(
    model: Any, X: Any, y: Any, sample_weight: Any, level: str
) -> list[Claim]:
    """The gradient that scikit-learn trained with, beside that of the stated loss."""
    X = check_array(X, accept_sparse="csr")
    n, width = X.shape[0], model.coefs_[0].shape[0]
    if X.shape[1] != width:
        raise ValueError(
            f"X has {X.shape[1]} columns and the model was fitted on {width}."
        )
    logistic = model.out_activation_ == "logistic"
    if not hasattr(model, "classes_") or (logistic and model.n_outputs_ > 1):
        Y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    else:
        Y = np.eye(len(model.classes_))[known_codes(y, np.asarray(model.classes_))]
        Y = Y[:, 1:] if logistic else Y
    if len(Y) != n:
        raise ValueError(f"y has {len(Y)} rows and X has {n}.")
    return perceptron.measure(model, X, Y, row_weights(sample_weight, n))


def _neighbors(
    model: Any, X: Any, y: Any, sample_weight: Any, level: str
) -> list[Claim]:
    """The error on training rows without themselves."""
    return [] if level == "quick" else left_out(model, X, model._fit_X, model._y)


#: By the name of scikit-learn's class.
_FOREIGN: dict[str, Callable[..., list[Claim]]] = {
    "MLPClassifier": _perceptron,
    "MLPRegressor": _perceptron,
    "KNeighborsClassifier": _neighbors,
    "KNeighborsRegressor": _neighbors,
}
