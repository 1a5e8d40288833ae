"""A linear classifier with randomly drawn weights, fitted by its PAC-Bayes bound.

    minimise over M, σ:  the largest R with  kl(R̂ ‖ R) ≤ (KL(Q‖P) + ln(2√n·K/δ))/n

where Q = N(M, diag σ²) is the posterior, P = N(M₀, λI) the prior, K the number of prior
variances λ to choose from, and R̂ the error on the n rows counted of a classifier drawn
from Q. The bound itself is minimised (``certus.linear_model.gibbs``), without a
surrogate loss and without sampling.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import ndtr
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from certus._solvers import newton
from certus._solvers.problem import SolverLimits, Start
from certus.base import (
    Estimator,
    Fitted,
    certified_fit,
    check_choice,
    check_number,
    label_codes,
)
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.evidence import PriorWitness
from certus.linear_model.common import level_term
from certus.linear_model.gibbs import (
    BLOCK,
    TINY,
    PosteriorPoint,
    PosteriorProblem,
    search,
    several_labels,
)
from certus.linear_model.priors import (
    VARIANCES,
    scaled_rows,
    split_rows,
    typical_length,
)
from certus.objectives import Logistic, Softmax
from certus.typing import Array, ArrayLike, MatrixLike, RandomState

#: Nodes of the integrals that are shares of votes.
VOTE_NODES = 40


class StochasticLinearClassifier(ClassifierMixin, Estimator):
    """Linear classifier drawn from a normal distribution, with a bound on its error.

    ``predict`` draws weights W ~ N(M, diag σ²) and returns the label of the largest
    score. The error of such a draw on new rows is bounded from the training rows alone.

    Objective
    ---------
    The bound: the largest R with kl(R̂ ‖ R) ≤ (KL(Q‖P) + ln(2√n·K/δ))/n.

    Certificate
    -----------
    ``pac_bayes_bound`` (STATISTICAL): with probability 1 − delta over the rows, a
    classifier drawn from Q errs on at most this share of new rows. It holds for every
    Q at once, so it stays valid whatever the solver does and however early it stops.
    ``gibbs_error`` and ``kl_divergence`` (PROVED) are the two numbers it is made of.
    One pass over the data and some hundred normal probabilities per row and class.

    Parameters
    ----------
    prior : {"half", "zero"}, default="half"
        ``"half"`` learns the prior's mean on a part of the rows, which are then not
        counted; ``"zero"`` has seen nothing and counts all rows.
    fraction : float, default=0.5
        Part of the rows that the prior ``"half"`` is learnt on.
    alpha : float, default=1e-4
        Strength of the penalty. It is ½·alpha·‖M₀‖², added to the mean log loss of the
        prior's mean, for rows scaled to length one on average.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold. It is over the
        draw of the rows.
    fit_intercept : bool, default=True
        Whether to fit an intercept b.
    intercept_scaling : float, default=1.0
        Value of the constant column. One prior variance serves all columns: they should
        have sizes like it, brought about without looking at the rows that are counted.
    max_iter : int, default=100
        Maximum number of iterations. They are steps for each prior variance.
    shuffle : bool, default=True
        Whether the rows of the prior are drawn at random. False takes the first ones.
    warm_start : bool, default=False
        Whether to start from the last fit. The prior is learnt afresh.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide the weights that
        ``predict`` draws: with None others at each call, with an integer the same. They
        also decide the rows of the prior; with None these are the same in every fit, so
        that no split can be picked for its bound.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.

    Attributes
    ----------
    classes_ : ndarray
        Labels.
    coef_, coef_std_ : ndarray of shape (n_scores, n_features)
        Means and standard deviations of the weights; one row for two classes, else one
        per class.
    intercept_, intercept_std_ : ndarray of shape (n_scores,)
        The same for the constants.
    prior_variance_ : float
        λ, chosen from a grid that the bound pays for.
    n_iter_ : int
        Steps taken.
    history_ : dict
        The bound (under ``objective``), the error on the rows (under ``gap``) and
        seconds after each step, one prior variance after the other.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    The bound is about drawn classifiers. Where ``predict_mean`` or the majority of
    draws errs, at least half of the draws err, so twice the bound holds for both.

    A step costs O(n·d) per class and 12 normal probabilities per row and class.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from certus.linear_model import StochasticLinearClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = StochasticLinearClassifier(random_state=0).fit(X / 1000, y)
    >>> model.certificate_.value < 0.25
    True
    """

    def __init__(
        self,
        prior: str = "half",
        *,
        fraction: float = 0.5,
        alpha: float = 1e-4,
        delta: float = 0.05,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        max_iter: int = 100,
        shuffle: bool = True,
        warm_start: bool = False,
        random_state: RandomState = None,
        max_time: float | None = None,
    ) -> None:
        self.prior = prior
        self.fraction = fraction
        self.alpha = alpha
        self.delta = delta
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.max_iter = max_iter
        self.shuffle = shuffle
        self.warm_start = warm_start
        self.random_state = random_state
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: ArrayLike) -> Any:
        """Fit to labelled data.

        There are no sample weights: the bound is about rows drawn alike.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Labels.
        """
        _check_parameters(self)
        X, y, _ = self._validate_X_y(X, y, None)
        self.classes_, codes = label_codes(y)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has only one class ({self.classes_[0]}); classification needs "
                "samples of at least 2 classes."
            )
        monitor = Monitor(self, X, y, None, self.max_time)
        plan = _plan(self, X, codes)

        def on_step(point: PosteriorPoint) -> Status | None:
            state = partial(_attributes, point, plan, X.dtype)
            return monitor.step(point.bound, point.error, state)

        warm = _previous(self, plan)
        best, status, steps = search(plan.problem, warm, int(self.max_iter), on_step)
        for name, value in _attributes(best, plan, X.dtype).items():
            setattr(self, name, value)
        self.prior_variance_, self.n_iter_ = best.variance, max(1, steps)
        self.history_ = monitor.history
        monitor.close(_attributes(best, plan, X.dtype))
        witness = PriorWitness(plan.problem.centre if plan.n_prior else None, plan.seed)
        return Fitted(Evidence("pac_bayes", witness=witness), X, y, None, status)

    def predict(self, X: MatrixLike) -> Array:
        """Labels from one classifier, drawn for this call.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to label.
        """
        check_is_fitted(self)
        X = self._validate_X(X)
        random = check_random_state(self.random_state)
        noise = random.standard_normal(self.coef_.shape)
        constant = random.standard_normal(self.intercept_.shape)
        coef = self.coef_ + self.coef_std_ * noise
        intercept = self.intercept_ + self.intercept_std_ * constant
        return self._label(np.asarray(X @ coef.T) + intercept)

    def predict_mean(self, X: MatrixLike) -> Array:
        """Labels from the mean weights; its error is below twice the bound.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to label.
        """
        check_is_fitted(self)
        X = self._validate_X(X)
        return self._label(np.asarray(X @ self.coef_.T) + self.intercept_)

    def vote_proba(self, X: Any) -> Array:
        """Probability that a drawn classifier names each label.

        This is not the probability of the label; use a calibrated model for that. The
        label with the largest share is the majority vote.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to label.

        Returns
        -------
        shares : ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        X = self._validate_X(X)
        squares = X.multiply(X) if sparse.issparse(X) else np.square(X)
        mean = np.asarray(X @ self.coef_.T, dtype=np.float64) + self.intercept_
        spread = np.asarray(squares @ np.square(self.coef_std_).T, dtype=np.float64)
        std = np.sqrt(spread + np.square(self.intercept_std_))
        std = np.maximum(std, TINY)
        if len(self.classes_) == 2:
            share = ndtr(mean / std).ravel()
            return np.stack([1 - share, share], axis=1)
        shares = np.empty(mean.shape)
        for k in range(len(self.classes_)):
            label = np.full(len(mean), k)
            for i in range(0, len(mean), BLOCK):
                part = slice(i, i + BLOCK)
                found = several_labels(mean[part], std[part], label[part], VOTE_NODES)
                shares[part, k] = 1 - found.error
        return shares / shares.sum(axis=1, keepdims=True)

    def calibrate(self, X_cal: MatrixLike, y_cal: ArrayLike) -> Any:
        """Learn the size of prediction sets, for the one classifier of an integer seed.

        Parameters
        ----------
        X_cal : array-like or sparse matrix of shape (n_samples, n_features)
            Rows the model was not fitted on.
        y_cal : array-like of shape (n_samples,)
            Their labels.
        """
        if not isinstance(self.random_state, int | np.integer):
            raise ValueError(
                "each call of predict draws a new random classifier, so there is no "
                "fixed one to calibrate. Set random_state to an integer."
            )
        return super().calibrate(X_cal, y_cal)

    def _label(self, z: Array) -> Array:
        index = z.argmax(axis=1) if z.shape[1] > 1 else (z[:, 0] > 0).astype(int)
        return np.asarray(self.classes_[index])


def _check_parameters(model: StochasticLinearClassifier) -> None:
    check_choice("prior", model.prior, ("half", "zero"))
    check_number("fraction", model.fraction, 0, 1, open_low=True)
    check_number("alpha", model.alpha, open_low=True)
    check_number("delta", model.delta, 0, 1, open_low=True)
    check_number("intercept_scaling", model.intercept_scaling, open_low=True)
    check_number("max_iter", model.max_iter, 1, integer=True)
    check_number("max_time", model.max_time, none=True)
    if model.delta == 1 or model.fraction == 1:
        raise ValueError("delta and fraction must be below 1.")


# -- what is to be solved ---------------------------------------------------------


class PosteriorPlan(NamedTuple):
    """The problem, and how its rows follow from those of X."""

    problem: PosteriorProblem
    length: float
    constant: float
    n_prior: int
    seed: int | None


def _plan(model: StochasticLinearClassifier, X: Any, codes: Array) -> PosteriorPlan:
    """Split the rows, learn the prior's mean on its part, scale the others."""
    n, k = len(codes), len(model.classes_)
    constant = float(model.intercept_scaling) if model.fit_intercept else 0.0
    learnt = model.prior == "half"
    if learnt and n < 2:
        raise ValueError(
            "learning the prior on part of the rows needs more than 1 row."
        )
    n_prior = min(max(1, round(model.fraction * n)), n - 1) if learnt else 0
    seed = None
    if learnt and model.shuffle:
        state = 0 if model.random_state is None else model.random_state
        seed = int(check_random_state(state).randint(2**31 - 1))
    X = X.tocsr() if sparse.issparse(X) else X
    seen, counted = split_rows(n, n_prior, seed)
    # A factor common to all scores changes no prediction. For the prior "zero" it
    # merely keeps squares in range; the prior "half" is defined for rows scaled by it.
    size = typical_length(X, seen if learnt else counted, constant)
    centre = np.zeros((1 if k == 2 else k, X.shape[1] + (constant > 0)))
    if learnt:
        part = scaled_rows(X, seen, constant, size)
        centre = _prior_mean(part, codes[seen], len(centre), float(model.alpha))
    problem = PosteriorProblem(
        scaled_rows(X, counted, constant, size),
        codes[counted],
        centre,
        VARIANCES if learnt else (1.0,),
        float(model.delta),
    )
    return PosteriorPlan(problem, size if learnt else 1.0, constant, n_prior, seed)


def _prior_mean(rows: Any, codes: Array, scores: int, alpha: float) -> Array:
    """Minimiser of the mean log loss + ½·alpha·‖M‖², to the last digits."""
    n = len(codes)
    target = np.where(codes == 1, 1.0, -1.0) if scores == 1 else codes
    loss: Any = Logistic() if scores == 1 else Softmax(scores)
    problem = newton.NewtonProblem(
        newton.NewtonRows(rows, target, np.ones(n), float(n)),
        loss,
        level_term(alpha),
        False,
    )
    solution = newton.solve(problem, Start(), SolverLimits(1e-15, 100))
    return np.ascontiguousarray(solution.primal[:-1].T)


# -- what is kept -----------------------------------------------------------------


def _previous(
    model: StochasticLinearClassifier, plan: PosteriorPlan
) -> tuple[Array, Array] | None:
    """Means and deviations of the last fit, if wanted and of the right shape."""
    if not model.warm_start or not hasattr(model, "coef_"):
        return None
    shape = plan.problem.centre.shape
    if model.coef_.shape != (shape[0], shape[1] - (plan.constant > 0)):
        return None
    mean = _weights((model.coef_, model.intercept_), plan)
    std = _weights((model.coef_std_, model.intercept_std_), plan)
    return (mean, std) if (std > 0).all() else None


def _weights(pair: tuple[Array, ...], plan: PosteriorPlan) -> Array:
    """Attributes as weights of the scaled rows, the constant last."""
    coef, intercept = (np.asarray(a, dtype=np.float64) for a in pair)
    if plan.constant == 0:
        return coef * plan.length
    return np.column_stack([coef, intercept / plan.constant]) * plan.length


def _attributes(
    best: PosteriorPoint, plan: PosteriorPlan, dtype: np.dtype[Any]
) -> dict[str, Array]:
    """The posterior in the units of X."""
    found = {}
    for end, weights in (("", best.mean), ("std_", best.std)):
        weights = weights / plan.length
        last = np.zeros(len(weights))
        if plan.constant > 0:
            weights, last = weights[:, :-1], weights[:, -1] * plan.constant
        found["coef_" + end] = weights.astype(dtype)
        found["intercept_" + end] = last.astype(dtype)
    return found
