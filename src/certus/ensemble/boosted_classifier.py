"""Gradient boosting of labels by LightGBM or XGBoost, kept as plain arrays.

    log-odds(x) = b + Σ_t value_t(leaf_t(x)),   value = −η·T(G)/(H + λ)

G and H are sums of the first and second derivatives of the loss over the rows of a
leaf, T shrinks towards 0 by the L1 penalty.
"""

from __future__ import annotations

from typing import Any

from sklearn.base import ClassifierMixin

from certus.base import certified_fit, class_codes
from certus.ensemble.boosted import BoostedTrees
from certus.typing import Array, ArrayLike, MatrixLike


class BoostedTreesClassifier(ClassifierMixin, BoostedTrees):
    """Gradient boosting of labels by LightGBM or XGBoost.

    The library grows the trees. They are kept as plain arrays in ``trees_``, which
    predict and are saved without the library, and are checked. ``from_fitted`` reads a
    model that you already have.

    Objective
    ---------
    Stage by stage: the leaves' values minimise the second-order expansion of the loss,
    Σᵢ (gᵢ·v + ½·hᵢ·v²) + ½·λ·v² + α·|v|, times the learning rate. The splits are chosen
    greedily, one at a time.

    Certificate
    -----------
    ``leaf_values`` (PROVED or refused): stage by stage, each leaf is −η·T(G)/(H + λ) at
    the scores of the stages before it. ``same_predictions`` (PROVED): a second, simple
    program computes the same predictions from the arrays. ``output_range`` (PROVED): a
    range that contains the score of every row, whatever its values. ``monotone_trees``
    (PROVED or refused) for constrained columns. ``structure`` (refused): nobody can
    prove how close the splits are to the best ones, because they are chosen greedily.
    At level "quick", a large fit is checked for its first stages.

    Parameters
    ----------
    library : {"lightgbm", "xgboost"}, default="lightgbm"
        Which library grows the trees. It must be installed for ``fit`` only.
    options : dict or None, default=None
        Parameters of the library's estimator, for example
        ``{"n_estimators": 300, "learning_rate": 0.05}``.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers.

    Attributes
    ----------
    trees_ : TreeEnsemble
        The trees as arrays, with a compiled predictor.
    settings_ : str
        The parameters, as the library reports them after the fit.
    classes_ : ndarray
        The labels.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from certus.ensemble import BoostedTreesClassifier
    >>> model = BoostedTreesClassifier("xgboost", options={"max_depth": 3})
    >>> model.get_params()["library"]
    'xgboost'
    """

    def __init__(
        self,
        library: str = "lightgbm",
        *,
        options: Any = None,
        random_state: Any = None,
    ) -> None:
        self.library = library
        self.options = options
        self.random_state = random_state

    @certified_fit
    def fit(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Any:
        """Grow the trees, read them, and check them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training rows; NaN where a value is missing.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.
        """
        X, y = self._pairs(X, y)
        self.classes_, codes = class_codes(y)
        return self._boost(X, y, sample_weight, codes)

    def predict(self, X: MatrixLike) -> Array:
        """Predicted labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to label.
        """
        return self._labels(self._answers(X).argmax(axis=1))

    def predict_proba(self, X: MatrixLike) -> Array:
        """Probability of each label, columns in the order of ``classes_``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to label.
        """
        return self._answers(X)

    def decision_function(self, X: MatrixLike) -> Array:
        """Scores that become probabilities: one for two labels, else one for each.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to label.
        """
        rows = self.tree_rows(X)
        scores = self.trees_.scores(rows)
        return scores[:, 0] if scores.shape[1] == 1 else scores
