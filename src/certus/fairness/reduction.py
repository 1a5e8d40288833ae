"""In training: equal rates by changing the weights of an estimator's rows.

    minimise over mixtures q of classifiers h:  Σ qₕ·error(h)
    with rates of the mixture that differ by at most ``max_difference`` between groups

Choosing row i is worth its gain in accuracy less multipliers times its shares in the
rates of its group. The best answer to given multipliers is therefore a classifier
fitted to other labels and weights. The best mixture of the answers so far, and its
multipliers, come from a linear programme. New multipliers are by turns those, parts of
them or up to twice as much, as estimators with a loss of their own answer too weakly or
too strongly, and those of exponentiated gradients (Agarwal et al., 2018). The error of
the mixture less the Lagrangian's least value is the gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted, column_or_1d

from certus._core.rows import row_weights
from certus.base import Fitted, certified_fit, check_number
from certus.callbacks import Monitor
from certus.certificate import Claim, Evidence, Status, Strength
from certus.evidence import MultipliersWitness
from certus.fairness.attribute import group_numbers, read_sensitive
from certus.fairness.fitting import fit_weighted
from certus.fairness.game import Game, MultiplierWalk, even
from certus.fairness.programme import Mixture, shares_of
from certus.fairness.thresholds import RandomisedDecisions
from certus.typing import Array, ArrayLike, Fit, MatrixLike, RandomState

#: Classifiers without any gain before the search ends: an estimator that
#: minimises another loss than the error does not always give the best answer.
PATIENCE = 20


class GroupReduction(RandomisedDecisions):
    """A mixture of classifiers whose rates are equal across groups.

    Each is the estimator fitted to rows whose labels and weights were changed, so that
    it pays to choose fewer of one group and more of another. The attribute is needed
    for the fit alone: decisions do not see it.

    Objective
    ---------
    Σ qₕ·error(h) over mixtures q of classifiers of the estimator's kind, and of those
    that choose everybody or nobody, whose rates differ by at most ``max_difference``
    between groups on the rows of the fit.

    Certificate
    -----------
    ``duality_gap`` (PROVED): no mixture of the classifiers found is more accurate on
    these rows. ``criterion_difference`` (PROVED): the largest difference in a rate
    between groups. ``oracle_gap`` (MEASURED): what further classifiers might gain, as
    far as the estimator finds them; ``tol`` bounds it. One prediction of each
    classifier.

    Parameters
    ----------
    estimator : classifier
        The wrapped estimator. A classifier of two classes whose ``fit`` takes
        ``sample_weight``.
    criterion : str, default="separation"
        Which rates are made equal. "independence" is the rate of being chosen,
        "separation" both of "true_positive_rate" and "false_positive_rate".
    max_difference : float, default=0.01
        Largest difference in a rate between two groups.
    tol : float, default=1e-3
        Stop when further classifiers can lower the error by no more than this.
    max_iter : int, default=50
        Maximum number of iterations. They are fits of the classifier.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    sensitive_columns : name, place, or list of them, default=None
        Columns of X with the sensitive attribute, if ``fit`` is not given it. The
        estimator sees them like all others. ``()`` makes all rows one group.
    random_state : int or Generator, default=None
        Seed or generator of all random numbers. It draws which classifier of the
        mixture decides about a row.

    Attributes
    ----------
    estimators_ : list of classifiers
        Those found.
    weights_ : ndarray of shape (n_estimators + 2,)
        Probabilities of choosing nobody, of choosing everybody, and of each classifier.
    groups_ : tuple
        Values of the attribute, or tuples of values.
    history_ : dict
        Error of the mixture, gap and seconds after each classifier.
    n_iter_ : int
        Classifiers fitted.
    certificate_ : Certificate
        What the verifier found.

    See Also
    --------
    certus.fairness.GroupThresholds : changes the decisions of one classifier.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.fairness import GroupReduction, independence
    >>> from certus.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> group = rng.choice(["a", "b"], 2000)
    >>> X = rng.normal(size=(2000, 2)) + (group == "b")[:, None]
    >>> y = (X[:, 0] + rng.normal(size=2000) > 0.5).astype(int)
    >>> model = GroupReduction(
    ...     LogisticRegression(), criterion="independence", random_state=0
    ... )
    >>> model = model.fit(X, y, sensitive=group)
    >>> model.certificate_["criterion_difference"].value <= 0.01 + 1e-9
    True
    >>> independence(model.predict(X), group).difference < 0.06
    True
    """

    def __init__(
        self,
        estimator: Fit,
        *,
        criterion: str = "separation",
        max_difference: float = 0.01,
        tol: float = 1e-3,
        max_iter: int = 50,
        max_time: float | None = None,
        sensitive_columns: Sequence[str] | Sequence[int] | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.criterion = criterion
        self.max_difference = max_difference
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
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
        """Fit the classifiers and mix them.

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
        GroupReduction
            Itself.
        """
        check_number("max_difference", self.max_difference, 0, 1)
        check_number("tol", self.tol)
        check_number("max_iter", self.max_iter, 1, integer=True)
        check_number("max_time", self.max_time, none=True)
        truth = self._read_labels(y)
        A = self._read_sensitive(X, sensitive)
        s = row_weights(sample_weight, len(truth))
        groups, members = group_numbers(A)
        shares = shares_of(truth, members, len(groups), s, self.criterion, "accuracy")
        monitor = Monitor(self, X, y, None, self.max_time)
        game = Game(shares, members, len(groups), float(self.max_difference))
        first = fit_weighted(clone(self.estimator), X, y, sample_weight)
        self.groups_, self.estimators_ = groups, [first]
        game.add(_chosen(self, first, X))
        status, mixture = self._play(game, X, s, monitor)
        self.weights_ = mixture.weights
        self.history_, self.n_iter_ = monitor.history, len(self.estimators_)
        monitor.close({})
        witness = MultipliersWitness(mixture.multipliers, game.best())
        evidence = Evidence("group_mixture", witness=witness)
        measured = partial(_search_claims, game, self, witness, X, s)
        return Fitted(evidence, X, y, sample_weight, status, A, measured)

    def diagnose(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        level: str = "quick",
        *,
        sensitive: Any = None,
    ) -> list[Claim]:
        """Measure what further classifiers might gain.

        Parameters
        ----------
        X : array-like
            The rows of the fit.
        y : array-like of shape (n_samples,)
            Their labels.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. Those used in ``fit``.
        level : {"quick", "full"}, default="quick"
            At ``"full"`` the estimator is fitted against the multipliers once more.
        sensitive : array-like, optional
            The attribute; needed unless ``sensitive_columns`` is set.

        Returns
        -------
        list of Claim
            ``oracle_gap`` (MEASURED), if the fit has left multipliers.
        """
        check_is_fitted(self)
        labels, members = group_numbers(read_sensitive(self, X, sensitive))
        known = [*self.groups_]
        members = np.array([known.index(label) for label in labels])[members]
        truth = np.isin(column_or_1d(y), self.classes_[1:])
        s = row_weights(sample_weight, len(truth))
        rule = (self.criterion, "accuracy")
        game = Game(
            shares_of(truth, members, len(known), s, *rule),
            *(members, len(known), float(self.max_difference)),
        )
        for found in self.estimators_:
            game.add(_chosen(self, found, X))
        evidence = getattr(getattr(self, "certificate_", None), "evidence", None)
        witness = getattr(evidence, "witness", None)
        return _search_claims(game, self, witness, X, s, level)

    def _play(
        self, game: Game, X: MatrixLike, s: Array, monitor: Monitor
    ) -> tuple[Status, Mixture]:
        """Add classifiers while they help; how it ended, and the mixture."""
        mixture, status = game.solve(), Status.MAX_ITER
        stable, left = game.best(), game.gap(mixture)
        monitor.step(1 - mixture.value, left)
        walk = MultiplierWalk(game)
        for turn in range(int(self.max_iter) - 1):
            multipliers = walk.step(game.rates[-1])
            if turn % 3 == 0:
                # Half way to the best ones so far: those of few classifiers swing.
                multipliers = 0.5 * (mixture.multipliers + stable)
            elif turn % 3 == 1:
                multipliers = 2 * even(1 + turn // 3) * mixture.multipliers
            try:
                answer = _answer(self, game.worth(multipliers), X, s)
            except KeyboardInterrupt:
                status = Status.INTERRUPTED
                break
            if answer is not None:
                self.estimators_.append(answer)
                game.add(_chosen(self, answer, X))
            game.tried.append(multipliers)
            mixture = game.solve()
            stable, left = game.best(), game.gap(mixture)
            ended = monitor.step(1 - mixture.value, left)
            if ended is not None:
                status = ended
                break
            errors = monitor.history["objective"]
            settled = len(errors) > PATIENCE and (
                errors[-1 - PATIENCE] - errors[-1] <= self.tol
            )
            if left <= self.tol and (settled or game.free):
                status = Status.SOLVED
                break
        return status, mixture

    def selection_probability(
        self, X: MatrixLike, *, sensitive: MatrixLike | None = None
    ) -> Array:
        """The probability with which each row is chosen.

        Parameters
        ----------
        X : array-like
            Rows.
        sensitive : ignored
            The decisions do not depend on it.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        used = np.flatnonzero(self.weights_[2:])
        everybody = float(self.weights_[1])
        if not len(used):
            return np.full(len(_chosen(self, self.estimators_[0], X)), everybody)
        p = sum(
            float(self.weights_[2 + j]) * _chosen(self, self.estimators_[j], X)
            for j in used
        )
        return np.clip(p + everybody, 0.0, 1.0)

    @property
    def n_features_in_(self) -> int:
        """Columns of X."""
        check_is_fitted(self)
        return int(self._first.n_features_in_)

    @property
    def feature_names_in_(self) -> Any:
        """Names of the columns of X, if they had any."""
        return self._first.feature_names_in_

    @property
    def _first(self) -> Any:
        try:
            return self.estimators_[0]
        except (LookupError, TypeError):  # a file may contain anything
            raise AttributeError("GroupReduction has no classifier.") from None


def _answer(model: Fit, worth: Array, X: MatrixLike, s: Array) -> Any:
    """The classifier for which choosing each row is worth this; None if trivial."""
    wanted = worth > 0
    size = np.abs(worth)
    if not size.any() or not wanted[size > 0].any() or wanted[size > 0].all():
        return None
    labels = model.classes_[wanted.astype(int)]
    weights = size * (s.sum() / size.sum())
    return fit_weighted(clone(model.estimator), X, labels, weights)


def _chosen(model: Fit, estimator: Fit, X: MatrixLike) -> Array:
    return np.asarray(estimator.predict(X)) == model.classes_[1]


def _search_claims(
    game: Game, model: Fit, witness: Any, X: MatrixLike, s: Array, level: str = "quick"
) -> list[Claim]:
    """What the estimator gains where it is fitted against the multipliers answered."""
    multipliers = np.asarray(getattr(witness, "answered", None))
    sound = multipliers.dtype.kind == "f" and np.isfinite(multipliers).all()
    if not sound or multipliers.shape != game.shares.known.shape:
        return []
    value = float(np.asarray(model.weights_) @ game.values[: len(model.weights_)])
    answer = None
    if level == "full":
        answer = _answer(model, game.worth(multipliers), X, s)
    if answer is not None:
        game.add(_chosen(model, answer, X))
    found = max(0.0, game.bound(multipliers) - value)
    seen = "now" if level == "full" else "as far as the search has found"
    said = f"refitting the estimator once more gains at most {found:.2g}"
    claim = Claim(
        "oracle_gap",
        Strength.MEASURED,
        found,
        objective="error of the mixture minus the smallest value of the Lagrangian "
        "that was found",
        detail=f"{said}, {seen}",
    )
    return [claim]
