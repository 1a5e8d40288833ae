"""What tree ensembles share: scikit-learn grows the trees, certus keeps them as arrays.

``fit`` runs scikit-learn's estimator of the same name with the same parameters and
reads its trees into ``trees_``. Predictions are computed from these arrays by compiled
code; the estimator that grew the trees is kept in memory for ``warm_start`` only and is
never saved.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import sklearn.ensemble
from scipy import sparse
from sklearn.model_selection import train_test_split
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from certus.base import Estimator, Fitted, require_indices, validate_data
from certus.certificate import Evidence
from certus.ensemble import hist_trees
from certus.ensemble.reading import read_trees
from certus.evidence import TreesWitness
from certus.trees import TreeEnsemble
from certus.typing import Array, Column, Fit, MatrixLike
from certus.verify import ScoreRange, score_range

#: Results of scikit-learn's fit that are numbers, and kept as they are.
_KEPT = (
    *("n_features_in_", "feature_names_in_", "classes_", "is_categorical_"),
    *("n_iter_", "train_score_", "validation_score_", "do_early_stopping_"),
    *("n_trees_per_iteration_", "feature_importances_", "n_outputs_", "n_classes_"),
    *("oob_score_", "oob_decision_function_", "oob_prediction_"),
)


class TreesBase(Estimator):
    """Fitting by scikit-learn, and predictions of the trees; abstract."""

    trees_: TreeEnsemble
    levels_: dict[int, Array]
    classes_: Any

    def _grow(
        self, X: MatrixLike, y: Column, sample_weight: Column, **rows: Any
    ) -> Fitted:
        """Fit scikit-learn's estimator and keep its numbers."""
        cls = getattr(sklearn.ensemble, self._class_name())
        params = {**self.get_params(deep=False), "verbose": 0}  # the library is silent
        grown = vars(self).get("_grown") if params.get("warm_start") else None
        if grown is None:
            if params.get("warm_start") and hasattr(self, "trees_"):
                raise ValueError(
                    "warm_start=True can only continue a fit of this process, but this "
                    "model comes from a file or a copy. Use warm_start=False."
                )
            grown = cls()
        X = self._dense(X)
        grown.set_params(**params).fit(X, y, sample_weight, **rows)
        for name in _KEPT:
            self.__dict__.pop(name, None)
            if hasattr(grown, name):
                setattr(self, name, getattr(grown, name))
        self._grown = grown
        self.trees_ = read_trees(grown)
        coded = hasattr(grown, "_preprocessor")
        self.levels_ = hist_trees.levels(grown) if coded else {}
        y = np.asarray(y)
        y = y.ravel() if y.ndim == 2 and y.shape[1] == 1 else y
        held = None if rows else _held_out(grown, y, len(y))
        return Fitted(Evidence("trees", TreesWitness(held)), X, y, sample_weight)

    def _dense(self, X: Any) -> Any:
        """X with its zeros; scikit-learn's boosting takes no sparse rows."""
        require_indices(X)
        return X.toarray() if sparse.issparse(X) else X

    def _class_name(self) -> str:
        for cls in type(self).__mro__:
            if cls.__module__.startswith("certus.ensemble."):
                return cls.__name__
        raise TypeError("A tree ensemble must inherit from a class in certus.ensemble.")

    def tree_rows(self, X: MatrixLike) -> Array:
        """X as numbers, in the way the trees see it: categories as codes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows as for ``predict``.

        Returns
        -------
        array of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        holes = self._finite(X)
        X = self._dense(X)
        if not self.levels_:
            kind = np.float32 if self.trees_.single else np.float64
            return validate_data(
                self,
                X,
                reset=False,
                dtype=kind,
                ensure_all_finite=holes,
            )
        validate_data(self, X, reset=False, skip_check_array=True)
        return coded_rows(X, self.levels_)

    def score_range(self, low: Any, high: Any, missing: Any = False) -> ScoreRange:
        """The range of the scores over all rows between ``low`` and ``high``.

        Scores are sums of leaves, before a link function turns them into predictions
        (``trees_.scores``).

        Parameters
        ----------
        low, high : float or array-like of shape (n_features,)
            Smallest and largest value of each column, both included; −inf and inf where
            a column may have any value.
        missing : bool or array-like of shape (n_features,), default=False
            Whether values of the column may also be missing.

        Returns
        -------
        ScoreRange
            Every score in the box lies between ``low`` and ``high``, rounding included;
            some rows of the box reach the scores ``least`` and ``most``. ``exact`` is
            True if these agree with ``low`` and ``high``. With several classes these
            are arrays with an entry for each class.
        """
        check_is_fitted(self)
        return score_range(self, low, high, missing)

    def _answers(self, X: MatrixLike) -> Array:
        """Numbers or probabilities of the rows."""
        rows = self.tree_rows(X)  # says so if the model is not fitted
        return self.trees_.predict(rows)

    def _staged_scores(self, X: MatrixLike) -> Iterator[Array]:
        """Scores after each stage, from the first to the last."""
        rows, trees = self.tree_rows(X), self.trees_
        leaves = trees.apply(rows)
        scores = np.tile(trees.baseline, (len(leaves), 1))
        for first in range(0, trees.n_trees, trees.per_stage):
            for tree in range(first, first + trees.per_stage):
                scores[:, trees.output[tree]] += trees.value[leaves[:, tree], 0]
            yield scores.copy()

    def _staged_answers(self, X: MatrixLike) -> Iterator[Array]:
        """Numbers or probabilities after each stage."""
        from certus.tree_predicting import linked

        for scores in self._staged_scores(X):
            yield linked(self.trees_.link, scores)

    def _labels(self, codes: Array) -> Array:
        return np.asarray(self.classes_)[codes]

    def _finite(self, X: MatrixLike) -> Any:
        """Which cells scikit-learn's validation refuses: none."""
        return False

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "trees_")

    def __getstate__(self) -> dict[str, Any]:
        """Without the estimator that grew the trees; it is not part of the model."""
        kept = dict(super().__getstate__())
        kept.pop("_grown", None)
        return kept

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


class ForestBase(TreesBase):
    """Averages of trees; abstract."""

    criterion: str

    def _finite(self, X: MatrixLike) -> Any:
        """Infinite cells, and missing ones where the criterion knows no place."""
        holes = get_tags(self).input_tags.allow_nan and not sparse.issparse(X)
        return "allow-nan" if holes else True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        grown = getattr(sklearn.ensemble, self._class_name())(criterion=self.criterion)
        tags.input_tags.allow_nan = get_tags(grown).input_tags.allow_nan
        return tags


def coded_rows(X: Any, levels: dict[int, Array]) -> Array:
    """Columns as float64; those with levels as places in their lists, else NaN."""
    frame = hasattr(X, "columns")
    X = X if frame else np.asarray(X)
    n, d = X.shape
    found = np.empty((n, d))
    for j in range(d):
        column = np.asarray(X[X.columns[j]] if frame else X[:, j])
        if j not in levels:
            found[:, j] = column.astype(np.float64)
            continue
        places = {level: code for code, level in enumerate(levels[j].tolist())}
        found[:, j] = [places.get(each, np.nan) for each in column.tolist()]
    return found


def _held_out(grown: Fit, y: Column, n: int) -> Array | None:
    """Rows that scikit-learn held out to stop early, drawn again with its own seed."""
    if not getattr(grown, "do_early_stopping_", False):
        return None
    if grown.validation_fraction is None:
        return None
    labels = np.asarray(y).ravel() if hasattr(grown, "classes_") else None
    return np.sort(
        train_test_split(
            np.arange(n),
            test_size=grown.validation_fraction,
            stratify=labels,
            random_state=grown._random_seed,
        )[1]
    )
