"""Gradient boosting of numbers: a sum of trees, each fitted to the remaining errors.

    f(x) = b + Σ_t value_t(leaf_t(x)),   value = −η·G/(H + λ)

G and H are sums of the first and second derivatives of the loss over the rows of a
leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sklearn.base import RegressorMixin

from certus.base import certified_fit
from certus.ensemble.base import TreesBase
from certus.typing import Array, ArrayLike, MatrixLike, RandomState


class HistGradientBoostingRegressor(RegressorMixin, TreesBase):
    """Gradient boosting of trees on binned columns, for numbers.

    scikit-learn grows the trees. They are kept as plain arrays in ``trees_``, which
    predict, are saved, and are checked.

    Objective
    ---------
    Stage by stage: the leaves' values minimise the second-order expansion of the loss,
    Σᵢ (gᵢ·v + ½·hᵢ·v²) + ½·λ·v², times the learning rate. The splits are chosen
    greedily, one at a time.

    Certificate
    -----------
    ``leaf_values`` (PROVED): stage by stage, each leaf is −η·G/(H + λ) at the scores of
    the stages before it, where G and H are the sums of the first and second derivatives
    over its rows. ``same_predictions`` (PROVED): a second, simple program computes the
    same predictions from the arrays. ``output_range`` (PROVED): a range that contains
    the score of every row, whatever its values. ``monotone_trees`` (PROVED or refused)
    for constrained columns. ``structure`` (refused): nobody can prove how close the
    splits are to the best ones, because they are chosen greedily. At level "quick", a
    large fit is checked for its first stages.

    Parameters
    ----------
    loss : str, default="squared_error"
        Loss of a row. Also ``"absolute_error"``, ``"gamma"``, ``"poisson"`` and
        ``"quantile"``.
    quantile : float or None, default=None
        Which quantile, strictly between 0 and 1. For ``loss="quantile"``.
    learning_rate : float, default=0.1
        Factor by which the leaves of each tree are multiplied.
    max_iter : int, default=100
        Maximum number of iterations. Each adds a tree, or one for each class.
    max_leaf_nodes : int or None, default=31
        Largest number of leaves of a tree.
    max_depth : int or None, default=None
        Largest number of splits between the root of a tree and a leaf.
    min_samples_leaf : int, default=20
        Smallest number of rows in a leaf.
    l2_regularization : float, default=0.0
        Number λ that is added to the sum of second derivatives of a leaf.
    max_features : float, default=1.0
        Share of the columns that a split chooses from.
    max_bins : int, default=255
        Largest number of bins that the values of a column are sorted into.
    categorical_features : array-like, "from_dtype" or None, default="from_dtype"
        Columns whose values have no order. By default those of a data frame that have
        the type "category".
    monotonic_cst : array-like or dict, default=None
        For each column 1 if the score must not fall in it, −1 if it must not rise, else
        0. A dict has an entry for each column name.
    interaction_cst : sequence of sets, or str, default=None
        Sets of columns that may occur together in a branch.
    warm_start : bool, default=False
        Whether to start from the last fit.
    early_stopping : "auto" or bool, default="auto"
        Whether to hold out rows and stop when their score no longer improves. "auto"
        does so with more than 10,000 rows.
    scoring : str, callable or None, default="loss"
        Score by which candidates are compared. Early stopping compares stages by it.
    validation_fraction : int, float or None, default=0.1
        Share of the rows that is held out. An integer is their number.
    n_iter_no_change : int, default=10
        Number of epochs without improvement after which the fit stops. An epoch adds
        one stage.
    tol : float, default=1e-07
        Smallest improvement of the score that counts for early stopping.
    verbose
        Not used; accepted for compatibility with scikit-learn.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers.

    Attributes
    ----------
    trees_ : TreeEnsemble
        The trees as arrays, with a compiled predictor.
    levels_ : dict
        The categories of each column that has them, in the order of their codes.
    n_iter_ : int
        Number of stages.
    train_score_, validation_score_ : ndarray
        Scores after each stage, if the fit could stop early.
    do_early_stopping_ : bool
        Whether the fit could stop early.
    is_categorical_ : ndarray of bool or None
        Which columns hold categories.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from certus.ensemble import HistGradientBoostingRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = HistGradientBoostingRegressor(max_iter=20).fit(X, y)
    >>> model.certificate_["same_predictions"].met, model.trees_.n_trees
    (True, 20)
    """

    def __init__(
        self,
        loss: str = "squared_error",
        *,
        quantile: float | None = None,
        learning_rate: float = 0.1,
        max_iter: int = 100,
        max_leaf_nodes: int | None = 31,
        max_depth: int | None = None,
        min_samples_leaf: int = 20,
        l2_regularization: float = 0.0,
        max_features: int | float | str | None = 1.0,
        max_bins: int = 255,
        categorical_features: ArrayLike | None = "from_dtype",
        monotonic_cst: ArrayLike | Mapping[str, int] | None = None,
        interaction_cst: Sequence[Any] | str | None = None,
        warm_start: bool = False,
        early_stopping: bool | str = "auto",
        scoring: str | Callable[..., float] | None = "loss",
        validation_fraction: int | float | None = 0.1,
        n_iter_no_change: int = 10,
        tol: float = 1e-07,
        verbose: int = 0,
        random_state: RandomState = None,
    ) -> None:
        self.loss = loss
        self.quantile = quantile
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.max_leaf_nodes = max_leaf_nodes
        self.max_depth = max_depth
        self.min_samples_leaf = min_samples_leaf
        self.l2_regularization = l2_regularization
        self.max_features = max_features
        self.max_bins = max_bins
        self.categorical_features = categorical_features
        self.monotonic_cst = monotonic_cst
        self.interaction_cst = interaction_cst
        self.warm_start = warm_start
        self.early_stopping = early_stopping
        self.scoring = scoring
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.verbose = verbose
        self.random_state = random_state

    @certified_fit
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_val: MatrixLike | None = None,
        y_val: ArrayLike | None = None,
        sample_weight_val: ArrayLike | None = None,
    ) -> Any:
        """Grow the trees, read them, and check them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training rows; NaN where a value is missing.
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.
        X_val, y_val, sample_weight_val : array-like, optional
            Rows that decide when to stop early; without them some rows of X are held
            out.
        """
        rows = {"X_val": X_val, "y_val": y_val, "sample_weight_val": sample_weight_val}
        given = {name: value for name, value in rows.items() if value is not None}
        return self._grow(X, y, sample_weight, **given)

    def predict(self, X: MatrixLike) -> Array:
        """Predicted numbers.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to predict.
        """
        return self._answers(X)

    def staged_predict(self, X: MatrixLike) -> Iterator[Array]:
        """Predicted numbers after each stage of boosting, the last being ``predict``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to predict.

        Yields
        ------
        array of shape (n_samples,)
        """
        yield from self._staged_answers(X)
