"""Post-processing: one threshold for each group, or a random choice of two.

    maximise  accuracy(D)  with  D = 1[score ≥ threshold of the group]  and rates of D
    that differ by at most ``max_difference`` between groups

Mixtures of thresholds reach every point under the convex hull of a group's ROC curve,
so that the best rule is the solution of a linear programme over its corners.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.metrics import accuracy_score
from sklearn.utils import column_or_1d, get_tags
from sklearn.utils.validation import check_is_fitted

from certus._core.rows import row_weights
from certus.base import (
    Estimator,
    Fitted,
    certified_fit,
    check_number,
    class_codes,
    generator_of,
)
from certus.certificate import Evidence
from certus.evidence import MultipliersWitness
from certus.fairness.attribute import Attributed, group_numbers
from certus.fairness.fitting import fit_weighted, scores_of
from certus.fairness.programme import Shares, best_mixture, shares_of
from certus.typing import Array, ArrayLike, Fit, MatrixLike, RandomState


class RandomisedDecisions(Attributed, ClassifierMixin, MetaEstimatorMixin, Estimator):
    """Classifiers of two classes that may toss a coin; abstract."""

    estimator: Any
    random_state: Any
    classes_: Array

    def selection_probability(
        self, X: MatrixLike, *, sensitive: MatrixLike | None = None
    ) -> Array:
        """The probability with which each row is chosen; 0 or 1 for most."""
        raise NotImplementedError

    def predict(self, X: MatrixLike, *, sensitive: MatrixLike | None = None) -> Array:
        """Decide about each row; a coin decides where the rule says so.

        Parameters
        ----------
        X : array-like
            Rows, as the estimator takes them.
        sensitive : array-like of shape (n_samples,) or (n_samples, n_attributes)
            Their attribute, where the rule needs it.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels. With a whole number as ``random_state``, the same on every call.
        """
        p = self.selection_probability(X, sensitive=sensitive)
        chosen = generator_of(self.random_state).random(len(p)) < p
        return np.asarray(self.classes_[chosen.astype(int)])

    def score(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        sensitive: MatrixLike | None = None,
    ) -> float:
        """Accuracy of :meth:`predict`.

        Parameters
        ----------
        X : array-like
            Rows.
        y : array-like of shape (n_samples,)
            Their labels.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.
        sensitive : array-like, optional
            Their attribute.

        Returns
        -------
        float
        """
        found = self.predict(X, sensitive=sensitive)
        return float(accuracy_score(y, found, sample_weight=sample_weight))

    def _read_labels(self, y: Any) -> Array:
        """Whether each row is of the second class; learns the two classes."""
        if y is None:
            raise ValueError(
                f"requires y to be passed, but the target y is None: "
                f"{type(self).__name__} compares decisions with the truth."
            )
        y = column_or_1d(y, warn=True)
        if not len(y):
            raise ValueError("y has 0 samples; at least one of each class is needed.")
        self.classes_, codes = class_codes(y)
        if len(self.classes_) > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is "
                f"multiclass: y holds {len(self.classes_)} classes. Merge them into "
                "two."
            )
        return np.asarray(codes == 1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags = inner.input_tags
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = False
        return tags


class GroupThresholds(RandomisedDecisions):
    """Decides by a separate threshold for each group, chosen to be the best.

    Objective
    ---------
    The accuracy on the rows of the fit, over all mixtures of thresholds in each group
    whose rates differ by at most ``max_difference`` between groups.

    Certificate
    -----------
    ``duality_gap`` (PROVED): how much more accurate any other such rule may be on these
    rows, by weak duality. ``criterion_difference`` (PROVED): the largest difference in
    a rate between groups. Costs one call of the estimator and sorting its scores.

    Parameters
    ----------
    estimator : classifier
        The wrapped estimator. A classifier of two classes with ``decision_function`` or
        ``predict_proba``.
    criterion : str, default="separation"
        Which rates are made equal. "independence" is the rate of being chosen,
        "separation" both of "true_positive_rate" and "false_positive_rate".
    max_difference : float, default=0.0
        Largest difference in a rate between two groups.
    objective : {"accuracy", "balanced_accuracy"}, default="accuracy"
        What is maximised.
    prefit : bool, default=False
        Take the estimator as it is. Its training rows flatter a flexible estimator:
        fit it on some rows, and the thresholds on others.
    sensitive_columns : name, place, or list of them, default=None
        Columns of X with the sensitive attribute, if ``fit`` is not given it. ``()``
        makes all rows one group.
    random_state : int or Generator, default=None
        Seed or generator of all random numbers. Where a rule mixes two thresholds, it
        decides about scores between them.

    Attributes
    ----------
    estimator_ : classifier
        The fitted estimator.
    classes_ : ndarray of shape (2,)
        Labels; the second is that of being chosen.
    groups_ : tuple
        Values of the attribute, or tuples of values.
    thresholds_, mixing_ : list of ndarray
        The thresholds of each group, and the probability of each.
    certificate_ : Certificate
        What the verifier found.

    See Also
    --------
    certus.fairness.GroupReduction : the attribute is needed for the fit alone.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.fairness import GroupThresholds, separation
    >>> from certus.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> group = rng.choice(["a", "b"], 2000)
    >>> X = rng.normal(size=(2000, 2)) + (group == "b")[:, None]
    >>> y = (X[:, 0] + rng.normal(size=2000) > 0.5).astype(int)
    >>> model = GroupThresholds(LogisticRegression(), random_state=0)
    >>> model = model.fit(X, y, sensitive=group)
    >>> model.certificate_.met
    True
    >>> before = separation(y, model.estimator_.predict(X), group).difference
    >>> after = separation(y, model.predict(X, sensitive=group), group).difference
    >>> before > 0.2 > 0.05 > after
    True
    """

    def __init__(
        self,
        estimator: Fit,
        *,
        criterion: str = "separation",
        max_difference: float = 0.0,
        objective: str = "accuracy",
        prefit: bool = False,
        sensitive_columns: Sequence[str] | Sequence[int] | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.criterion = criterion
        self.max_difference = max_difference
        self.objective = objective
        self.prefit = prefit
        self.sensitive_columns = sensitive_columns
        self.random_state = random_state

    @certified_fit
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        sensitive: Any = None,
    ) -> Any:
        """Fit the estimator, unless it is fitted already, and choose the thresholds.

        Parameters
        ----------
        X : array-like
            Rows, as the estimator takes them.
        y : array-like of shape (n_samples,)
            Labels of two classes.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.
        sensitive : array-like of shape (n_samples,) or (n_samples, n_attributes)
            The attribute, or several; needed unless ``sensitive_columns`` is set.

        Returns
        -------
        GroupThresholds
            Itself.
        """
        check_number("max_difference", self.max_difference, 0, 1)
        truth = self._read_labels(y)
        A = self._read_sensitive(X, sensitive)
        s = row_weights(sample_weight, len(truth))
        if self.prefit:
            check_is_fitted(self.estimator)
            self.estimator_ = self.estimator
        else:
            self.estimator_ = fit_weighted(clone(self.estimator), X, y, sample_weight)
        scores = self._scores(X)
        self.groups_, members = group_numbers(A)
        k = len(self.groups_)
        shares = shares_of(truth, members, k, s, self.criterion, self.objective)
        corners = [_corners(scores, shares, truth, members == g) for g in range(k)]
        witness = MultipliersWitness(self._solve(corners, shares, k))
        evidence = Evidence("group_thresholds", witness=witness)
        return Fitted(evidence, X, y, sample_weight, sensitive=A)

    def _solve(self, corners: list[Any], shares: Shares, k: int) -> Array:
        """Find and store the best mixture of corners; return the multipliers."""
        metrics = len(shares.rate)
        sizes = [len(c[0]) for c in corners]
        blocks = np.repeat(np.arange(k), sizes)
        value = np.concatenate([c[1] for c in corners])
        rate = np.concatenate([c[2] for c in corners], axis=1)
        rows = np.arange(metrics)[:, None] * k + blocks
        places = np.broadcast_to(np.arange(len(blocks)), rows.shape)
        rates = sparse.csr_matrix(
            (rate.ravel(), (rows.ravel(), places.ravel())),
            shape=(metrics * k, len(blocks)),
        )
        found = best_mixture(
            value, rates, blocks, shares.known, float(self.max_difference)
        )
        parts = np.split(found.weights, np.cumsum(sizes)[:-1])
        self.thresholds_ = [c[0][p > 0] for c, p in zip(corners, parts)]
        self.mixing_ = [p[p > 0] for p in parts]
        return found.multipliers

    def _scores(self, X: MatrixLike) -> Array:
        """Scores of the second class."""
        return scores_of(self.estimator_, X, self.classes_)

    def selection_probability(self, X: Any, *, sensitive: Any = None) -> Array:
        """The probability with which each row is chosen; 0 or 1 for most.

        Parameters
        ----------
        X : array-like
            Rows.
        sensitive : array-like of shape (n_samples,) or (n_samples, n_attributes)
            Their attribute; needed unless ``sensitive_columns`` is set.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        scores = self._scores(X)
        labels, members = group_numbers(self._read_sensitive(X, sensitive))
        known = {label: g for g, label in enumerate(self.groups_)}
        p = np.zeros(len(scores))
        for number, label in enumerate(labels):
            if label not in known:
                raise ValueError(
                    f"The group {label!r} was not in the data of the fit, so it has "
                    "no threshold. Refit with rows of this group, or map it to a "
                    "known group."
                )
            mine, g = members == number, known[label]
            chosen = scores[mine][:, None] >= self.thresholds_[g]
            p[mine] = chosen @ self.mixing_[g]
        return np.clip(p, 0.0, 1.0)

    @property
    def n_features_in_(self) -> int:
        """Columns of X."""
        check_is_fitted(self)
        return int(self.estimator_.n_features_in_)

    @property
    def feature_names_in_(self) -> Any:
        """Names of the columns of X, if they had any."""
        return self.estimator_.feature_names_in_


def _corners(
    scores: Array, shares: Shares, truth: Array, mine: Array
) -> tuple[Array, Array, Array]:
    """Thresholds at corners of a group's ROC hull, their values and their rates.

    Only the upper hull counts: a point below the diagonal can be lifted to it. Rates
    after lifting differ by no more than before, as max(a, b) does.
    """
    z = scores[mine]
    order = np.argsort(-z, kind="stable")
    z = z[order]
    last = np.append(z[1:] != z[:-1], True) if len(z) else np.zeros(0, dtype=bool)
    size = np.abs(shares.gain[mine][order])
    right, wrong = (
        np.concatenate([[0.0], np.cumsum(np.where(kind, size, 0.0))[last]])
        for kind in (truth[mine][order], ~truth[mine][order])
    )
    places = _upper_hull(wrong, right)
    rate = np.cumsum(shares.rate[:, mine][:, order], axis=1)[:, last]
    rate = np.hstack([np.zeros((len(rate), 1)), rate])[:, places]
    base = float(size[~truth[mine][order]].sum())
    value = base + (right - wrong)[places]
    return _between(z[last])[places], value, rate


def _between(z: Array) -> Array:
    """Thresholds: above all scores, then between each score and the next one below.

    In the middle, so that rounding in another batch does not move a row across.
    """
    middle = z[:-1] + (z[1:] - z[:-1]) / 2
    middle = np.where(middle > z[1:], middle, z[:-1])
    return np.concatenate([[np.inf], middle, [-np.inf][: len(z)]])


def _upper_hull(x: Array, y: Array) -> Array:
    """Places of the corners of the concave curve above points with rising x and y."""
    left = np.arange(len(x))
    while len(left) > 100:  # all at once, what lies below the line of its neighbours
        u, v = np.diff(x[left]), np.diff(y[left])
        corner = np.r_[True, u[:-1] * v[1:] <= v[:-1] * u[1:], True]
        left, before = left[corner], len(left)
        if len(left) > 0.9 * before:
            break
    kept: list[int] = []
    xs, ys = x.tolist(), y.tolist()
    for i in left.tolist():
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            turn = (xs[b] - xs[a]) * (ys[i] - ys[a]) - (ys[b] - ys[a]) * (xs[i] - xs[a])
            if turn < 0:
                break
            kept.pop()
        kept.append(i)
    return np.array(kept, dtype=int)
