"""Bagging: the mean of networks, each trained on a bootstrap sample of the rows.

    p(y | x) = (1/K) Σ_k p(y | x; θᵏ)

A sample of as many rows as there are, drawn with replacement, holds 1 − 1/e = 63 % of
them; the others judge the member. Samples enter as row weights, so that images, ragged
sequences and tables are bagged alike and validation rows are never training rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import MetaEstimatorMixin, clone, is_classifier, is_regressor
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from certus._core.rows import row_weights
from certus.base import Estimator, check_number, generator_of, take
from certus.conformal import forget_calibration
from certus.neural_network.dropout import Draws
from certus.typing import ArrayLike, Fit, MatrixLike, RandomState


def bootstrap_counts(
    n: int, n_draws: int | None = None, *, random_state: RandomState = None
) -> np.ndarray:
    """How often each of n rows is drawn, with replacement.

    Parameters
    ----------
    n : int
        Rows.
    n_draws : int, optional
        How many are drawn; n if None.
    random_state : int, RandomState, Generator or None, default=None
        Seed or generator of all random numbers.

    Returns
    -------
    ndarray of int of shape (n,)
        Counts, each Binomial(n_draws, 1/n); they sum to ``n_draws``.

    Examples
    --------
    >>> from certus.neural_network import bootstrap_counts
    >>> counts = bootstrap_counts(10_000, random_state=0)
    >>> counts.sum(), round((counts > 0).mean(), 2)
    (np.int64(10000), np.float64(0.63))
    """
    check_number("n", n, 1, integer=True)
    check_number("n_draws", n_draws, 1, integer=True, none=True)
    drawn = generator_of(random_state).integers(
        n, size=n if n_draws is None else n_draws
    )
    return np.bincount(drawn, minlength=n)


def _is_classifier(model: BaggedNetworks) -> bool:
    return is_classifier(model.estimator)


class BaggedNetworks(MetaEstimatorMixin, Estimator):
    """The mean of several networks, each fitted to rows drawn with replacement.

    For rows that are images or sequences too; on tables scikit-learn's
    ``BaggingClassifier`` and ``BaggingRegressor`` take networks as well.

    Objective
    ---------
    Each member minimises its own objective with the rows weighted by how often they
    were drawn.

    Certificate
    -----------
    Each member has its own; the ensemble claims none.

    Parameters
    ----------
    estimator : classifier or regressor
        The wrapped estimator. One of certus.neural_network, or any other whose ``fit``
        takes ``sample_weight``.
    n_estimators : int, default=10
        Members.
    n_jobs : int, default=None
        Number of members that are fitted at the same time. As in joblib. The result
        does not depend on it.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide the rows and the seeds of
        the members.

    Attributes
    ----------
    estimators_ : list
        The fitted members.
    classes_ : ndarray
        Classes, for classifiers.
    oob_score_ : float
        Accuracy or R² where each row is predicted by the members that did not see it.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from certus.neural_network import BaggedNetworks, NeuralClassifier
    >>> from certus.neural_network.modules import MLP
    >>> X, y = load_iris(return_X_y=True)
    >>> network = NeuralClassifier(
    ...     lambda n, k: MLP(n, 8, k),
    ...     learning_rate=0.05,
    ...     schedule="cosine",
    ...     max_iter=100,
    ... )
    >>> model = BaggedNetworks(network, n_estimators=3, random_state=0).fit(X, y)
    >>> model.oob_score_ > 0.9, model.predict_spread(X).spread.shape
    (True, (150, 3))
    """

    def __init__(
        self,
        estimator: Fit,
        *,
        n_estimators: int = 10,
        n_jobs: int | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit all members.

        Parameters
        ----------
        X : array-like
            Rows, as the members take them.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. They multiply the counts.

        Returns
        -------
        BaggedNetworks
            Itself.
        """
        check_number("n_estimators", self.n_estimators, 1, integer=True)
        if not (is_classifier(self.estimator) or is_regressor(self.estimator)):
            raise TypeError(
                f"{type(self.estimator).__name__} is neither a classifier nor a "
                "regressor, so its predictions cannot be averaged. Pass a classifier "
                "or a regressor."
            )
        if not has_fit_parameter(self.estimator, "sample_weight"):
            raise TypeError(
                f"{type(self.estimator).__name__}.fit takes no sample_weight, which "
                "is needed to draw rows. Use sklearn.ensemble.BaggingClassifier."
            )
        if _is_classifier(self) and not hasattr(self.estimator, "predict_proba"):
            raise TypeError(
                f"{type(self.estimator).__name__} has no predict_proba, which is "
                "needed for averaging. Calibrate it with "
                "sklearn.calibration.CalibratedClassifierCV."
            )
        forget_calibration(self)
        y = np.asarray(y)
        s = row_weights(sample_weight, len(y))
        rng = generator_of(self.random_state)
        counts, jobs = [], []
        for number in range(self.n_estimators):
            drawn = _drawn(s, rng)
            member = _with_folder(clone(self.estimator), number)
            seed = int(rng.integers(2**31 - 1))
            if "random_state" in member.get_params():
                member.set_params(random_state=seed)
            counts.append(drawn)
            jobs.append(delayed(_fitted)(member, X, y, s * drawn))
        self.estimators_ = Parallel(n_jobs=self.n_jobs)(jobs)
        self._several = y.ndim == 2 and y.shape[1] > 1
        if _is_classifier(self):
            self.classes_ = self.estimators_[0].classes_
        self.oob_score_ = self._out_of_bag(X, y, s, counts)
        return self

    def _out_of_bag(
        self,
        X: MatrixLike,
        y: np.ndarray,
        s: np.ndarray,
        counts: list[np.ndarray],
    ) -> float:
        total: Any = 0.0
        votes = np.zeros(len(y))
        for member, drawn in zip(self.estimators_, counts):
            unseen = np.flatnonzero(drawn == 0)
            if len(unseen):
                found = self._member(member, take(X, unseen))
                if np.ndim(total) == 0:
                    total = np.zeros((len(y), *found.shape[1:]))
                total[unseen] += found
                votes[unseen] += 1
        judged = (votes > 0) & (s > 0)
        if judged.sum() < 2:
            return float("nan")
        mean = (total[judged].T / votes[judged]).T
        return self._graded(mean, y[judged], s[judged])

    def _member(self, member: Fit, X: MatrixLike) -> np.ndarray:
        predict = member.predict_proba if _is_classifier(self) else member.predict
        return np.asarray(predict(X), dtype=np.float64)

    def _all(self, X: MatrixLike) -> np.ndarray:
        check_is_fitted(self, "estimators_")
        return np.stack([self._member(member, X) for member in self.estimators_])

    def _decide(self, mean: np.ndarray) -> np.ndarray:
        if not _is_classifier(self):
            return mean
        if self._several:
            return (mean > 0.5).astype(int)
        return self.classes_[mean.argmax(axis=1)]

    def _graded(self, mean: np.ndarray, y: ArrayLike, s: ArrayLike | None) -> float:
        measure = accuracy_score if _is_classifier(self) else r2_score
        return float(measure(y, self._decide(mean), sample_weight=s))

    def predict_spread(self, X: MatrixLike) -> Draws:
        """Mean over the members, and how far they disagree.

        Parameters
        ----------
        X : array-like
            Rows like those of the fit.

        Returns
        -------
        Draws
            ``mean`` and ``spread`` (standard deviation over members) of probabilities,
            or of predicted numbers.
        """
        found = self._all(X)
        return Draws(found.mean(axis=0), found.std(axis=0))

    def predict(self, X: MatrixLike) -> np.ndarray:
        """The class of the largest mean probability, or the mean prediction.

        Parameters
        ----------
        X : array-like
            Rows like those of the fit.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Classes or numbers.
        """
        return self._decide(self._all(X).mean(axis=0))

    @available_if(_is_classifier)
    def predict_proba(self, X: MatrixLike) -> np.ndarray:
        """Mean of the members' probabilities.

        Parameters
        ----------
        X : array-like
            Rows like those of the fit.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        return self._all(X).mean(axis=0)

    def score(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """Accuracy of a classifier, R² of a regressor.

        Parameters
        ----------
        X, y : array-like
            Rows and their targets.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.

        Returns
        -------
        float
            Score.
        """
        return self._graded(self._all(X).mean(axis=0), y, sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = inner.classifier_tags
        tags.regressor_tags = inner.regressor_tags
        tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        return tags


def _with_folder(member: Fit, number: int) -> Any:
    """A member that keeps its checkpoints, if any, in a folder of its own."""
    for name, place in member.get_params().items():
        if name.rpartition("__")[2] == "checkpoint" and place is not None:
            member.set_params(**{name: str(Path(place) / f"member-{number}")})
    return member


def _drawn(s: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Counts of a bootstrap sample that holds at least one row of positive weight."""
    while True:
        drawn = bootstrap_counts(len(s), random_state=rng)
        if (s * drawn).any():
            return drawn


def _fitted(member: Fit, X: MatrixLike, y: ArrayLike, s: ArrayLike | None) -> Any:
    return member.fit(X, y, sample_weight=s)
