"""Equal rates through an estimator's own weights: in training.

    minimise over mixtures q of classifiers h:  Σ qₕ·error(h)
    with rates of the mixture that differ by at most ``gap`` between groups

Choosing row i is worth its gain in accuracy less multipliers times its shares in the
rates of its group. The best answer to given multipliers is therefore a classifier
fitted to other labels and weights. The best mixture of the answers so far, and its
multipliers, come from a linear programme. New multipliers are by turns those, parts of
them or up to twice as much, as estimators with a loss of their own answer too weakly or
too strongly, and those of exponentiated gradients (Agarwal et al., 2018). The error of
the mixture less the Lagrangian's least value is the gap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from certus._core.rows import row_weights
from certus.base import Fitted, certified_fit, check_number
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.evidence import MultipliersWitness
from certus.fairness.attribute import group_numbers
from certus.fairness.fitting import fit_weighted
from certus.fairness.groups import Array
from certus.fairness.programme import Mixture, Shares, best_mixture, shares_of
from certus.fairness.thresholds import RandomisedDecisions

#: Classifiers that must bring nothing before the search ends: an estimator that
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
    that choose everybody or nobody, whose rates differ by at most ``gap`` between
    groups on the rows of the fit.

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
        Its ``fit`` takes ``sample_weight``; two classes.
    criterion : str, default="separation"
        Which rates are made equal: "independence" (of being chosen), "separation" (both
        of the following), "true_positive_rate", "false_positive_rate".
    gap : float, default=0.01
        Largest difference in a rate between two groups.
    tol : float, default=1e-3
        Stop when further classifiers can lower the error by no more than this.
    max_iter : int, default=50
        Most classifiers fitted.
    max_time : float, optional
        Seconds after which the fit stops with what it has.
    sensitive_columns : name, place, or list of them, optional
        Columns of X that hold the attribute, where ``fit`` is not passed it; the
        estimator sees them like all others. ``()`` makes all rows one group.
    random_state : int or Generator, optional
        Which classifier of the mixture decides about a row is drawn.

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
    >>> from certus.linear import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> group = rng.choice(["a", "b"], 2000)
    >>> X = rng.normal(size=(2000, 2)) + (group == "b")[:, None]
    >>> y = (X[:, 0] + rng.normal(size=2000) > 0.5).astype(int)
    >>> model = GroupReduction(LogisticRegression(), "independence", random_state=0)
    >>> model = model.fit(X, y, sensitive=group)
    >>> model.certificate_["criterion_difference"].value <= 0.01 + 1e-9
    True
    >>> independence(model.predict(X), group).difference < 0.06
    True
    """

    def __init__(
        self,
        estimator: Any,
        criterion: str = "separation",
        *,
        gap: float = 0.01,
        tol: float = 1e-3,
        max_iter: int = 50,
        max_time: float | None = None,
        sensitive_columns: Any = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.criterion = criterion
        self.gap = gap
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
        self.sensitive_columns = sensitive_columns
        self.random_state = random_state

    @certified_fit
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, sensitive: Any = None
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
        check_number("gap", self.gap, 0, 1)
        check_number("tol", self.tol)
        check_number("max_iter", self.max_iter, 1, integer=True)
        check_number("max_time", self.max_time, none=True)
        truth = self._read_labels(y)
        A = self._read_sensitive(X, sensitive)
        s = row_weights(sample_weight, len(truth))
        groups, members = group_numbers(A)
        shares = shares_of(truth, members, len(groups), s, self.criterion, "accuracy")
        monitor = Monitor(self, X, y, None, self.max_time)
        game = _Game(shares, members, len(groups), float(self.gap))
        first = fit_weighted(clone(self.estimator), X, y, sample_weight)
        self.groups_, self.estimators_ = groups, [first]
        game.add(self._chosen(first, X))
        status, mixture = self._play(game, X, s, monitor)
        self.weights_ = mixture.weights
        self.history_, self.n_iter_ = monitor.history, len(self.estimators_)
        monitor.close({})
        witness = MultipliersWitness(mixture.multipliers, game.best())
        evidence = Evidence("group_mixture", witness=witness)
        return Fitted(evidence, X, y, sample_weight, status, A)

    def _play(
        self, game: _Game, X: Any, s: Array, monitor: Monitor
    ) -> tuple[Status, Mixture]:
        """Add classifiers while they help; how it ended, and the mixture."""
        mixture, status = game.solve(), Status.MAX_ITER
        stable, left = game.best(), game.gap(mixture)
        monitor.step(1 - mixture.value, left)
        walk = _Walk(game)
        for turn in range(int(self.max_iter) - 1):
            multipliers = walk.step(game.rates[-1])
            if turn % 3 == 0:
                # Half way to the best ones so far: those of few classifiers swing.
                multipliers = 0.5 * (mixture.multipliers + stable)
            elif turn % 3 == 1:
                multipliers = 2 * _even(1 + turn // 3) * mixture.multipliers
            try:
                answer = self._answer(game.worth(multipliers), X, s)
            except KeyboardInterrupt:
                status = Status.INTERRUPTED
                break
            if answer is not None:
                self.estimators_.append(answer)
                game.add(self._chosen(answer, X))
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

    def _answer(self, worth: Array, X: Any, s: Array) -> Any:
        """The classifier for which choosing each row is worth this; None if trivial."""
        wanted = worth > 0
        size = np.abs(worth)
        if not size.any() or not wanted[size > 0].any() or wanted[size > 0].all():
            return None
        labels = self.classes_[wanted.astype(int)]
        return fit_weighted(
            clone(self.estimator), X, labels, size * (s.sum() / size.sum())
        )

    def _chosen(self, estimator: Any, X: Any) -> Array:
        return np.asarray(estimator.predict(X)) == self.classes_[1]

    def selection_probability(self, X: Any, *, sensitive: Any = None) -> Array:
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
            return np.full(len(self._chosen(self.estimators_[0], X)), everybody)
        p = sum(
            float(self.weights_[2 + j]) * self._chosen(self.estimators_[j], X)
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
        except (LookupError, TypeError):  # a file may hold anything
            raise AttributeError("GroupReduction holds no classifier.") from None


class _Game:
    """Values and rates of the classifiers so far, and multipliers that were tried."""

    def __init__(self, shares: Shares, members: Array, k: int, gap: float) -> None:
        self.shares, self.members, self.k, self.allowed = shares, members, k, gap
        self.values: list[float] = []
        self.rates: list[Array] = []  # (n_metrics, n_groups) of each
        # Those that were answered; the plain fit is the answer to none.
        self.tried: list[Array] = [np.zeros(shares.known.shape)]
        n = len(members)
        self.add(np.zeros(n, dtype=bool))
        self.add(np.ones(n, dtype=bool))

    def add(self, chosen: Array) -> None:
        """One more classifier, by whom it chooses."""
        self.values.append(self.shares.base + float(self.shares.gain @ chosen))
        counted = [
            np.bincount(self.members, part * chosen, minlength=self.k)
            for part in self.shares.rate
        ]
        self.rates.append(np.array(counted))

    def solve(self) -> Mixture:
        """The best mixture, and its multipliers."""
        rates = np.array(self.rates).reshape(len(self.rates), -1).T
        blocks = np.zeros(len(self.values), dtype=int)
        values = np.array(self.values)
        known = self.shares.known
        return best_mixture(values, rates, blocks, known, self.allowed)

    def worth(self, multipliers: Array) -> Array:
        """What choosing each row is worth."""
        cost = multipliers[:, self.members] * self.shares.rate
        return np.asarray(self.shares.gain - cost.sum(axis=0))

    def bound(self, multipliers: Array) -> float:
        """The Lagrangian's largest value over the classifiers so far."""
        cost = np.einsum("mg,jmg->j", multipliers, np.array(self.rates))
        slack = self.allowed * float(np.maximum(multipliers, 0).sum())
        return float((np.array(self.values) - cost).max()) + slack

    def best(self) -> Array:
        """The multipliers with the least bound."""
        return min(self.tried, key=self.bound)

    @property
    def free(self) -> bool:
        """Whether the plain fit meets the constraints, so that it is the answer."""
        rates, known = self.rates[2], self.shares.known
        highest = np.where(known, rates, -np.inf).max(axis=1)
        lowest = np.where(known, rates, np.inf).min(axis=1)
        return bool(np.all(highest - lowest <= self.allowed))

    def gap(self, mixture: Mixture) -> float:
        """How much more than the mixture the least bound allows."""
        return max(0.0, min(map(self.bound, self.tried)) - mixture.value)


def _even(k: int) -> float:
    """The k-th of numbers that fill (0, 1) ever more evenly: ½, ¼, ¾, ⅛, ..."""
    part, found = 0.5, 0.0
    while k:
        found += part * (k % 2)
        k, part = k // 2, part / 2
    return found


class _Walk:
    """Multipliers by exponentiated gradients: they grow with the rates' deviations."""

    def __init__(self, game: _Game) -> None:
        self.game = game
        self.most = 1 / max(game.allowed, 0.01)
        self.powers = np.zeros((2, *game.shares.known.shape))

    def step(self, rates: Array) -> Array:
        """The multipliers after a classifier with these rates."""
        known = self.game.shares.known
        count = np.maximum(known.sum(axis=1, keepdims=True), 1)
        away = np.where(known, rates - (rates * known).sum(1, keepdims=True) / count, 0)
        slack = 0.5 * self.game.allowed
        self.powers += 2 / self.most * np.array([away - slack, -away - slack])
        grown = np.where(known, np.exp(self.powers), 0.0)
        both = self.most * grown / (1 + grown.sum())
        found = both[0] - both[1]
        return np.where(known, found - found.sum(axis=1, keepdims=True) / count, 0.0)
