"""Read the trees of fitted models: of scikit-learn, LightGBM and XGBoost.

A reader takes numbers out of public attributes, arrays or the library's own JSON text.
No pickle is read, no code of a file is run, and the library is never imported here: a
class is recognised by its name. If a model cannot be expressed as a ``TreeEnsemble``
(linear leaves, zeros as missing values, a custom start), an error names the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from certus.ensemble import forests, hist_trees, lightgbm_trees, xgboost_trees
from certus.trees import TreeEnsemble as TreeEnsemble
from certus.typing import Fit, MatrixLike
from certus.verify import ScoreRange
from certus.verify import score_range as verified_range

#: Readers of trees and of rows, by the library and the name of the class.
_READERS: dict[tuple[str, str], tuple[Callable[[Any], Any], Callable[..., Any]]] = {
    (library, name): (part.read, part.rows)
    for part in (hist_trees, forests, lightgbm_trees, xgboost_trees)
    for library, names in part.CLASSES.items()
    for name in names
}


def read_trees(model: Fit) -> TreeEnsemble:
    """The trees of a fitted model as arrays, with a compiled predictor.

    Parameters
    ----------
    model : fitted estimator
        HistGradientBoosting, GradientBoosting, RandomForest, ExtraTrees or DecisionTree
        of scikit-learn; LGBM models or a Booster of LightGBM; XGB models or a Booster
        of XGBoost; or one of certus.

    Returns
    -------
    TreeEnsemble

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import HistGradientBoostingRegressor
    >>> from certus.ensemble import read_trees
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = HistGradientBoostingRegressor(max_iter=10).fit(X, y)
    >>> trees = read_trees(model)
    >>> trees.n_trees, bool((trees.predict(X) == model.predict(X)).all())
    (10, True)
    """
    ours = getattr(model, "trees_", None)
    if isinstance(ours, TreeEnsemble):
        return ours
    found: TreeEnsemble = _reader(model)[0](model)
    return found


def read_rows(model: Fit, X: MatrixLike) -> Any:
    """X as numbers in the way the model's trees see it: categories as codes.

    Parameters
    ----------
    model : fitted estimator
        As for :func:`read_trees`.
    X : array-like or data frame of shape (n_samples, n_features)
        Rows as you pass them to the model.

    Returns
    -------
    array of shape (n_samples, n_features)

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import HistGradientBoostingRegressor
    >>> from certus.ensemble import read_rows
    >>> X = np.array([[5.0], [9.0], [5.0], [7.0]])
    >>> model = HistGradientBoostingRegressor(categorical_features=[0])
    >>> read_rows(model.fit(X, [1, 2, 1, 3]), X).ravel()
    array([0., 2., 0., 1.])
    """
    if isinstance(getattr(model, "trees_", None), TreeEnsemble):
        return model.tree_rows(X)
    return _reader(model)[1](model, X)


def score_range(model: Fit, low: Any, high: Any, missing: Any = False) -> ScoreRange:
    """The range of the scores of a model's trees over a box of rows, proved.

    Scores are sums of leaves, before a link function turns them into predictions. The
    verifier reads the trees itself and combines leaves of several trees that a row can
    reach together; where there are too many, it adds up the extremes of the single
    trees.

    Parameters
    ----------
    model : fitted estimator
        HistGradientBoosting, RandomForest, ExtraTrees or DecisionTree of scikit-learn;
        LGBM models of LightGBM; XGB models of XGBoost; or one of certus.
    low, high : float or array-like of shape (n_features,)
        Smallest and largest value of each column, both included; −inf and inf where a
        column may have any value. For categories of LightGBM and XGBoost, their codes.
    missing : bool or array-like of shape (n_features,), default=False
        Whether values of the column may also be missing.

    Returns
    -------
    ScoreRange
        Every score in the box lies between ``low`` and ``high``, rounding included;
        some rows of the box reach the scores ``least`` and ``most``. ``exact`` is True
        if these agree with ``low`` and ``high``. With several classes these are arrays
        with an entry for each class.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import HistGradientBoostingRegressor
    >>> from certus.ensemble import score_range
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = HistGradientBoostingRegressor(max_iter=10).fit(X, y)
    >>> found = score_range(model, X[0] - 0.01, X[0] + 0.01)
    >>> found.exact, bool(found.low <= model.predict(X[:1])[0] <= found.high)
    (True, True)
    """
    return verified_range(model, low, high, missing)


def can_read(model: Fit) -> bool:
    """Whether there is a reader for the model's class.

    Parameters
    ----------
    model : object
        Any model.
    """
    return hasattr(model, "trees_") or _found(model) is not None


def _found(model: Fit) -> Any:
    for kind in type(model).__mro__:
        reader = _READERS.get((kind.__module__.partition(".")[0], kind.__name__))
        if reader is not None:
            return reader
    return None


def _reader(model: Fit) -> Any:
    reader = _found(model)
    if reader is None:
        names = ", ".join(sorted({name for _, name in _READERS}))
        raise TypeError(
            f"read_trees cannot read a {type(model).__name__}. Pass a fitted model of "
            f"one of these classes: {names}."
        )
    return reader
