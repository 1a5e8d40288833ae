"""Random forest: the average of many deep trees.

f(x) = mean over trees of the mean target in leaf_t(x)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sklearn.base import RegressorMixin

from certus.base import certified_fit
from certus.ensemble.base import ForestBase
from certus.typing import Array, ArrayLike, MatrixLike, RandomState


class RandomForestRegressor(RegressorMixin, ForestBase):
    """Random forest, for numbers.

    scikit-learn grows the trees. They are kept as plain arrays in ``trees_``, which
    predict, are saved, and are checked.

    Objective
    ---------
    None: f(x) = the mean over trees of the mean target among the rows of a leaf. Each
    split is the one that reduces ``criterion`` most, among a random part of the
    columns.

    Certificate
    -----------
    ``same_predictions`` (PROVED): a second, simple program computes the same
    predictions from the arrays. ``output_range`` (PROVED): a range that contains the
    score of every row, whatever its values. ``leaf_values`` (PROVED): each leaf is the
    mean of its rows; refused if the rows of a tree were drawn at random. ``structure``
    (refused): nobody can prove how close the splits are to the best ones, because they
    are chosen greedily.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of trees.
    criterion : str, default="squared_error"
        Measure of impurity or error, which each split lowers by as much as it can.
    max_depth : int or None, default=None
        Largest number of splits between the root of a tree and a leaf.
    min_samples_split : int or float, default=2
        Smallest number of rows of a node that may be split.
    min_samples_leaf : int, default=1
        Smallest number of rows in a leaf.
    min_weight_fraction_leaf : float, default=0.0
        Smallest share of the row weights in a leaf.
    max_features : "sqrt", "log2", int, float or None, default=1.0
        Number or share of the columns that a split chooses from.
    max_leaf_nodes : int or None, default=None
        Largest number of leaves of a tree.
    min_impurity_decrease : float, default=0.0
        Smallest improvement by a split.
    bootstrap : bool, default=True
        Whether each tree sees rows that are drawn with replacement.
    oob_score : bool or callable, default=False
        Whether to estimate the score from the rows that a tree has not seen.
    n_jobs : int or None, default=None
        Number of trees that scikit-learn grows at a time.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers.
    verbose
        Not used; accepted for compatibility with scikit-learn.
    warm_start : bool, default=False
        Whether to start from the last fit.
    ccp_alpha : float, default=0.0
        Cost of each leaf when trees are pruned: larger values give smaller trees.
    max_samples : int, float or None, default=None
        Number or share of the rows drawn for each tree.
    monotonic_cst : array-like, default=None
        For each column 1 if the score must not fall in it, −1 if it must not rise, else
        0.

    Attributes
    ----------
    trees_ : TreeEnsemble
        The trees as arrays, with a compiled predictor.
    levels_ : dict
        The categories of each column that has them, in the order of their codes.
    feature_importances_ : ndarray of shape (n_features,)
        How much the splits by each column reduced the criterion, as shares.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from certus.ensemble import RandomForestRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = RandomForestRegressor(n_estimators=20, random_state=0).fit(X, y)
    >>> model.certificate_["same_predictions"].met, model.trees_.n_trees
    (True, 20)
    """

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        criterion: str = "squared_error",
        max_depth: int | None = None,
        min_samples_split: int | float = 2,
        min_samples_leaf: int = 1,
        min_weight_fraction_leaf: float = 0.0,
        max_features: int | float | str | None = 1.0,
        max_leaf_nodes: int | None = None,
        min_impurity_decrease: float = 0.0,
        bootstrap: bool = True,
        oob_score: bool | Callable[..., float] = False,
        n_jobs: int | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
        warm_start: bool = False,
        ccp_alpha: float = 0.0,
        max_samples: int | float | None = None,
        monotonic_cst: ArrayLike | Mapping[str, int] | None = None,
    ) -> None:
        self.n_estimators = n_estimators
        self.criterion = criterion
        self.max_depth = max_depth
        self.min_samples_split = min_samples_split
        self.min_samples_leaf = min_samples_leaf
        self.min_weight_fraction_leaf = min_weight_fraction_leaf
        self.max_features = max_features
        self.max_leaf_nodes = max_leaf_nodes
        self.min_impurity_decrease = min_impurity_decrease
        self.bootstrap = bootstrap
        self.oob_score = oob_score
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start
        self.ccp_alpha = ccp_alpha
        self.max_samples = max_samples
        self.monotonic_cst = monotonic_cst

    @certified_fit
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
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
        """
        return self._grow(X, y, sample_weight)

    def predict(self, X: MatrixLike) -> Array:
        """Predicted numbers.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to predict.
        """
        return self._answers(X)
