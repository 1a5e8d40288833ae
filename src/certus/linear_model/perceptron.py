"""The perceptron: binary, one class against the rest, or one against one.

    visit rows in turn; if y·(xᵀw + b) ≤ 0:  w ← w + eta0·y·x,  b ← b + eta0·y

It stops when no row is wrong, which happens exactly if a hyperplane separates the
classes; otherwise by scikit-learn's plateau rule, ``max_iter``, or when the weights
repeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import ClassifierMixin
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets

from certus._core.rows import class_weights as weights_of_classes
from certus._solvers.online import PerceptronRun, Schedule, Visitor, run_perceptron
from certus.base import Fitted, certified_fit, check_choice, check_number, class_codes
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.evidence import MistakesWitness
from certus.linear_model.common import (
    LinearClassifierBase,
    SparseCoefficients,
    class_weights,
)
from certus.typing import Array, ArrayLike, MatrixLike, RandomState

_WORST = (
    Status.INTERRUPTED,
    Status.TIME_LIMIT,
    Status.STOPPED,
    Status.MAX_ITER,
    Status.NO_MINIMISER,
    Status.SOLVED,
)


class Perceptron(ClassifierMixin, SparseCoefficients, LinearClassifierBase):
    """The perceptron algorithm.

    Objective
    ---------
    None: an update rule, ``w += eta0·y·x`` wherever y·(xᵀw + b) ≤ 0, which is a step of
    stochastic gradient descent on max(0, −y·z).

    Certificate
    -----------
    ``update_sum`` (PROVED): w = Σ eta0·mᵢyᵢxᵢ with the mistake counts m as evidence.
    If all rows end on their side ``mistake_bound`` (PROVED) comes first: mistakes ≤
    R²/γ² with the margin γ actually found. If the weights repeat (``shuffle=False``) it
    is REFUSED, with the mistakes of the cycle as proof that nothing separates the rows;
    otherwise ``training_error`` (MEASURED) comes first and ``margin_limit`` (PROVED)
    bounds the margin that any hyperplane can have. Four passes over the data; an epoch
    costs one.

    Parameters
    ----------
    penalty : None, default=None
        Norm of the penalty. Only None is accepted: weights that shrink are not a sum of
        mistakes. Use scikit-learn's Perceptron or LinearSVC.
    fit_intercept : bool, default=True
        Whether to fit an intercept b.
    max_iter : int, default=1000
        Maximum number of iterations. They are epochs.
    tol : float or None, default=1e-3
        Smallest fall of the mean loss that counts as an improvement. None means that
        the fit never stops for this reason.
    shuffle : bool, default=True
        Whether each epoch visits the rows in a new random order.
    eta0 : float, default=1.0
        Size of an update. From w = 0 it changes the length of w and nothing else.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide the order of the rows and
        the rows held out.
    early_stopping : bool, default=False
        Whether to hold out rows and stop when their score no longer improves. The score
        is their accuracy; without this, the loss decides.
    validation_fraction : float, default=0.1
        Share of the rows that is held out.
    n_iter_no_change : int, default=5
        Number of epochs without improvement after which the fit stops.
    class_weight : dict or "balanced", default=None
        Weights of the classes, which multiply the row weights.
    warm_start : bool, default=False
        Whether to start from the last fit.
    multi_class : {"ovr", "ovo"}, default="ovr"
        How more than two classes are handled. Each against the rest, or each against
        each.
    decision : {"votes", "scores"}, default="votes"
        For "ovo": count the duels won (ties by the sum of scores), or add the scores.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    alpha, l1_ratio, verbose, n_jobs
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    classes_ : ndarray
        Labels.
    coef_ : ndarray of shape (n_problems, n_features)
        Weights: one row for two classes, else one per class, or per pair (i, j), i < j,
        in which j is the positive class.
    intercept_ : ndarray of shape (n_problems,)
        Constants.
    mistakes_ : ndarray of shape (n_samples, n_problems)
        How often each row was wrong when visited.
    n_iter_ : int
        Most epochs used for a problem.
    t_ : int
        Rows visited plus one, as scikit-learn counts.
    history_ : dict
        Mean loss, share of mistakes (under ``gap``) and seconds after each epoch.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from certus.linear_model import Perceptron
    >>> X, y = [[0, 0], [1, 0], [0, 1], [1, 1]], [-1, 1, 1, 1]
    >>> model = Perceptron(shuffle=False, tol=None).fit(X, y)
    >>> model.score(X, y), int(model.mistakes_.sum())
    (1.0, 9)
    """

    def __init__(
        self,
        *,
        penalty: str | None = None,
        alpha: float = 0.0001,
        l1_ratio: float = 0.15,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float | None = 1e-3,
        shuffle: bool = True,
        verbose: int = 0,
        eta0: float = 1.0,
        n_jobs: int | None = None,
        random_state: RandomState = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        class_weight: Mapping[Any, float] | str | None = None,
        warm_start: bool = False,
        multi_class: str = "ovr",
        decision: str = "votes",
        max_time: float | None = None,
    ) -> None:
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.shuffle = shuffle
        self.verbose = verbose
        self.eta0 = eta0
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.multi_class = multi_class
        self.decision = decision
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: ArrayLike) -> Any:
        """Fit to labelled data.

        There are no sample weights: a weighted update is not a repetition.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Labels.
        """
        _check_parameters(self)
        # The first epoch looks at every row that is not held out.
        X, y, _ = self._validate_X_y(X, y, None, finite=bool(self.early_stopping))
        before = self._previous()
        self.classes_, codes = class_codes(y)
        monitor = Monitor(self, X, y, None, self.max_time)
        signs = _signs(codes, len(self.classes_), self.multi_class)
        shape = (len(signs), X.shape[1] + 1)
        warm = before is not None and before.shape == shape
        start = before if warm and before is not None else np.zeros(shape)
        etas = _steps(self, codes, len(signs))
        runs = _run_each(self, X, signs, etas, start, codes, monitor)
        _store(self, runs, X.dtype, len(codes))
        self.history_ = monitor.history
        monitor.close({"coef_": self.coef_, "intercept_": self.intercept_})
        witness = _witness(runs, self.mistakes_, start if warm else None)
        status = min((run.status for run in runs), key=_WORST.index)
        evidence = Evidence("perceptron", witness=witness)
        return Fitted(evidence, X, y, None, status)

    @certified_fit
    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Any:
        """Continue from the last weights with one epoch over some rows.

        The certificate is about these rows and their updates.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Labels.
        classes : array-like of shape (n_classes,), optional
            All labels that may come; needed by the first call only.
        """
        _check_parameters(self)
        if self.early_stopping or self.class_weight == "balanced":
            raise ValueError(
                "partial_fit sees some of the rows only: it needs early_stopping=False "
                "and a class_weight other than 'balanced'."
            )
        first = not hasattr(self, "classes_")
        self._check_classes(classes)
        X, y, _ = self._validate_X_y(X, y, None, finite=False, reset=first)
        codes = self._known_codes(y)
        signs = _signs(codes, len(self.classes_), self.multi_class)
        before = None if first else self._weights()
        start = np.zeros((len(signs), X.shape[1] + 1)) if before is None else before
        monitor = Monitor(self, X, y, None, self.max_time)
        etas = _steps(self, codes, len(signs))
        runs = _run_each(self, X, signs, etas, start, codes, monitor, once=True)
        visited = getattr(self, "t_", 1)
        _store(self, runs, X.dtype, len(codes))
        self.t_ = visited + len(codes)
        self.history_ = monitor.history
        monitor.close({"coef_": self.coef_, "intercept_": self.intercept_})
        witness = _witness(runs, self.mistakes_, before)
        status = min((run.status for run in runs), key=_WORST.index)
        # One epoch was asked for, so its end is not a failure.
        status = Status.SOLVED if status is Status.MAX_ITER else status
        evidence = Evidence("perceptron", witness=witness)
        return Fitted(evidence, X, y, None, status)

    def _check_classes(self, classes: ArrayLike) -> None:
        """Set ``classes_`` at the first call; later they must be the same."""
        if classes is None:
            if not hasattr(self, "classes_"):
                raise ValueError(
                    "classes must be passed on the first call to partial_fit."
                )
            return
        found, _ = class_codes(np.asarray(classes))
        if not np.array_equal(getattr(self, "classes_", found), found):
            raise ValueError(
                f"classes={classes!r} is not the same as on last call to partial_fit, "
                f"was: {self.classes_!r}."
            )
        self.classes_ = found

    def _known_codes(self, y: Array) -> Array:
        """The position of each row's label among ``classes_``."""
        check_classification_targets(y)
        codes = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        strange = self.classes_[codes] != y
        if np.any(strange):
            raise ValueError(
                f"y holds {y[strange][0]!r}, which is not among the classes of the "
                "first call to partial_fit."
            )
        return codes

    def _weights(self) -> Array:
        """Weights with the constants last, one row for each problem."""
        coef = self.densify().coef_
        b = np.broadcast_to(self.intercept_, len(coef))
        return np.column_stack([coef, b]).astype(np.float64)

    def _previous(self) -> Array | None:
        if not self.warm_start or not hasattr(self, "coef_"):
            return None
        return self._weights()

    def decision_function(self, X: MatrixLike) -> Array:
        """Scores: one per row for two classes, else one per row and class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to score.
        """
        z = super().decision_function(X)
        k = len(self.classes_)
        if self.multi_class != "ovo" or k == 2:
            return z
        scores, votes = np.zeros((len(z), k)), np.zeros((len(z), k))
        for column, (i, j) in enumerate(combinations(range(k), 2)):
            duel = z[:, column]
            scores[:, j] += duel
            scores[:, i] -= duel
            votes[:, j] += duel > 0
            votes[:, i] += duel <= 0
        if self.decision == "scores":
            return scores
        # Less than half a vote, so that the sum of scores only breaks ties.
        return votes + scores / (3 * (np.abs(scores) + 1))


def _check_parameters(model: Perceptron) -> None:
    if model.penalty is not None:
        check_choice("penalty", model.penalty, (None, "l2", "l1", "elasticnet"))
        raise NotImplementedError(
            f"penalty={model.penalty!r} is not available: the proof needs weights "
            "that are a sum of updates, and a penalty shrinks them. Use "
            "penalty=None, LinearSVC, or scikit-learn's Perceptron."
        )
    check_number("max_iter", model.max_iter, 1, integer=True)
    check_number("tol", model.tol, none=True)
    check_number("alpha", model.alpha)
    check_number("l1_ratio", model.l1_ratio, 0, 1)
    check_number("eta0", model.eta0, open_low=True)
    check_number("n_iter_no_change", model.n_iter_no_change, 1, integer=True)
    check_number("validation_fraction", model.validation_fraction, 0, 1, open_low=True)
    check_number("max_time", model.max_time, none=True)
    check_choice("multi_class", model.multi_class, ("ovr", "ovo"))
    check_choice("decision", model.decision, ("votes", "scores"))


def _signs(codes: Array, k: int, multi_class: str) -> list[Array]:
    """Labels ±1 of each problem; 0 for rows that it does not see."""
    if k == 2:
        return [np.where(codes == 1, 1.0, -1.0)]
    if multi_class == "ovr":
        return [np.where(codes == j, 1.0, -1.0) for j in range(k)]
    return [
        1.0 * (codes == j) - 1.0 * (codes == i) for i, j in combinations(range(k), 2)
    ]


def _steps(model: Perceptron, codes: Array, problems: int) -> list[Array]:
    """Size of each row's update.

    As in scikit-learn a class's weight applies where it is the positive one, or to both
    of two.
    """
    eta, k = float(model.eta0), len(model.classes_)
    if model.class_weight is None:
        return [np.full(len(codes), eta)] * problems
    class_weights(None, model.class_weight, codes, model.classes_)  # checks it
    each = weights_of_classes(model.class_weight, codes, model.classes_)
    if k == 2 or model.multi_class == "ovo":
        return [eta * each[codes]] * problems
    return [eta * np.where(codes == j, each[j], 1.0) for j in range(k)]


def _run_each(
    model: Perceptron,
    X: Any,
    signs: list[Array],
    etas: list[Array],
    start: Array,
    codes: Array,
    monitor: Monitor,
    once: bool = False,
) -> list[PerceptronRun]:
    """Run each problem; ``once`` is one epoch over rows that may lack a class."""
    rows_X = X.tocsr() if sparse.issparse(X) and X.format != "csr" else X
    seed = check_random_state(model.random_state).randint(np.iinfo(np.int32).max)
    random = np.random.default_rng(seed)
    tol = None if model.tol is None else float(model.tol)
    patience = int(model.n_iter_no_change)
    epochs = 1 if once else int(model.max_iter)
    schedule = Schedule(epochs, tol, patience, bool(model.shuffle))
    train, held = _split(model, codes, seed)
    constant = 1.0 if model.fit_intercept else 0.0
    points = start.copy()
    runs: list[PerceptronRun] = []
    for j, (y, eta) in enumerate(zip(signs, etas)):
        visitor = Visitor(rows_X, y, eta, constant)
        rows = train[y[train] != 0]
        if runs and runs[-1].status is Status.INTERRUPTED:
            nothing = np.zeros(len(codes), dtype=np.int64)
            runs.append(
                PerceptronRun(start[j], nothing, 0, Status.INTERRUPTED, None, 0)
            )
            continue
        if once and not len(rows):
            nothing = np.zeros(len(codes), dtype=np.int64)
            runs.append(PerceptronRun(start[j], nothing, 0, Status.SOLVED, None, 0))
            continue
        if not len(rows):
            raise ValueError("a class has no rows left to learn from.")

        def on_epoch(loss: float, share: float, w: Array, j: int = j) -> Status | None:
            points[j] = w
            return monitor.step(loss, share, lambda: _attributes(points, X.dtype))

        validate = None
        if held is not None:
            seen = held[y[held] != 0]

            def validate(w: Array, y: Array = y, seen: Array = seen) -> float:
                z = rows_X[seen] @ w[:-1] + w[-1]
                return float(np.mean(y[seen] * z > 0)) if len(seen) else 0.0

        run = run_perceptron(
            visitor, rows, start[j], schedule, random, on_epoch, validate
        )
        points[j] = run.w
        runs.append(run)
    return runs


def _split(model: Perceptron, codes: Array, seed: int) -> tuple[Array, Array | None]:
    """Rows to learn from and, with early stopping, rows held out."""
    every = np.arange(len(codes))
    if not model.early_stopping:
        return every, None
    splitter = StratifiedShuffleSplit(
        n_splits=1, test_size=model.validation_fraction, random_state=seed
    )
    train, held = next(splitter.split(np.zeros((len(codes), 1)), codes))
    return np.sort(train), np.sort(held)


def _attributes(points: Array, dtype: np.dtype[Any]) -> dict[str, Array]:
    return {
        "coef_": points[:, :-1].astype(dtype),
        "intercept_": points[:, -1].astype(dtype),
    }


def _store(
    model: Perceptron, runs: list[PerceptronRun], dtype: np.dtype[Any], n: int
) -> None:
    for key, value in _attributes(np.vstack([r.w for r in runs]), dtype).items():
        setattr(model, key, value)
    model.mistakes_ = np.column_stack([run.mistakes for run in runs])
    model.n_iter_ = max(run.n_iter for run in runs)
    model.t_ = model.n_iter_ * n + 1


def _witness(
    runs: list[PerceptronRun], mistakes: Array, start: Array | None
) -> MistakesWitness:
    for j, run in enumerate(runs):
        if run.cycle is not None:
            return MistakesWitness(mistakes, start, run.cycle, j, run.period)
    return MistakesWitness(mistakes, start)
