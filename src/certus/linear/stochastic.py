"""A linear classifier whose weights are drawn anew, fitted to its PAC-Bayes bound.

    minimise over M, σ:  the largest R with  kl(R̂ ‖ R) ≤ (KL(Q‖P) + ln(2√n·K/δ))/n

where Q = N(M, diag σ²) is the posterior, P = N(M₀, λI) the prior, K the number of prior
variances λ to choose from, and R̂ the error on the n rows counted of a classifier drawn
from Q. The scores of a row are independent normal numbers, so R̂ is a mean of integrals
in one dimension, smooth in M and σ: the bound itself is minimised, by L-BFGS, without a
surrogate loss and without sampling.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, sparse
from scipy.special import ndtr
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from certus.base import (
    Estimator,
    Fitted,
    certified_fit,
    check_choice,
    check_number,
    label_codes,
)
from certus.bounds import seeger_bound
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.convex import newton
from certus.convex.design import Array
from certus.convex.problem import keep_going
from certus.terms import Logistic, Softmax
from certus.verify.pac_bayes import VARIANCES, mean_length, scaled_rows, split_rows

#: Nodes of the integrals while fitting, and for shares of votes.
FIT_NODES, VOTE_NODES = 12, 40
#: Rows whose integrals are computed at a time; they stay in cache.
BLOCK = 512
TINY = 1e-300


class StochasticLinearClassifier(ClassifierMixin, Estimator):
    """Linear classifier drawn from a normal distribution, with a bound on its error.

    ``predict`` draws weights W ~ N(M, diag σ²) and answers with the largest score. The
    error of such a draw on new rows is bounded from the training rows alone.

    Objective
    ---------
    The bound: the largest R with kl(R̂ ‖ R) ≤ (KL(Q‖P) + ln(2√n·K/δ))/n.

    Certificate
    -----------
    ``pac_bayes_bound`` (STATISTICAL): with probability 1 − delta over the rows, a
    classifier drawn from Q errs on at most this share of new rows. It holds for every
    Q at once, so neither the solver nor a stop before its end can spoil it.
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
        Penalty ½·alpha·‖M₀‖² beside the mean log loss of the prior's mean, for rows
        scaled to length one on average.
    delta : float, default=0.05
        Probability that the bound fails, over the draw of the rows.
    fit_intercept : bool, default=True
        Whether scores have a constant.
    intercept_scaling : float, default=1.0
        The constant's column. One prior variance serves all columns: they should have
        sizes like it, brought about without looking at the rows that are counted.
    max_iter : int, default=100
        Most steps for each prior variance.
    shuffle : bool, default=True
        The prior's rows are drawn at random; False takes the first ones.
    warm_start : bool, default=False
        Start from the last posterior. The prior is learnt afresh.
    random_state : int, RandomState or None, default=None
        For the weights that ``predict`` draws: None draws others at each call, an
        integer the same ones; and for the prior's rows, which None leaves the same in
        every fit, so that nobody is led to pick the split with the best bound.
    max_time : float, optional
        Seconds after which the fit stops with what it has.

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
    The bound speaks of drawn classifiers. Where ``predict_mean`` or the majority of
    draws errs, at least half of the draws err, so twice the bound holds for both.

    A step costs O(n·d) per class and 12 normal probabilities per row and class.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from certus.linear import StochasticLinearClassifier
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
        random_state: Any = None,
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
    def fit(self, X: Any, y: Any) -> Any:
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
                f"y holds one class only ({self.classes_[0]!r}); classification needs "
                "samples of at least 2 classes."
            )
        previous = self._previous()
        monitor = Monitor(self, X, y, None, self.max_time)
        plan = _plan(self, X, codes)
        best, status, steps = _search(self, plan, previous, monitor, X.dtype)
        for name, value in _attributes(best, plan, X.dtype).items():
            setattr(self, name, value)
        self.prior_variance_, self.n_iter_ = best.variance, max(1, steps)
        self.history_ = monitor.history
        monitor.close(_attributes(best, plan, X.dtype))
        return Fitted(_evidence(self, plan, best), X, y, None, status)

    def predict(self, X: Any) -> Array:
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

    def predict_mean(self, X: Any) -> Array:
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

        Not how likely the label is: that is for a calibrated model to say. The label
        with the largest share is the majority vote.

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
                value = _several(mean[part], std[part], label[part], VOTE_NODES)
                shares[part, k] = 1 - value.error
        return shares / shares.sum(axis=1, keepdims=True)

    def calibrate(self, X_cal: Any, y_cal: Any) -> Any:
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
                "each call of predict draws another classifier, so there is none to "
                "calibrate. Set random_state to an integer."
            )
        return super().calibrate(X_cal, y_cal)

    def _label(self, z: Array) -> Array:
        index = z.argmax(axis=1) if z.shape[1] > 1 else (z[:, 0] > 0).astype(int)
        return np.asarray(self.classes_[index])

    def _previous(self) -> tuple[Array, ...] | None:
        if not self.warm_start or not hasattr(self, "coef_"):
            return None
        return self.coef_, self.intercept_, self.coef_std_, self.intercept_std_


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


class Plan(NamedTuple):
    """The rows counted, with their constant and scaled, and the prior."""

    rows: Any
    codes: Array
    centre: Array
    variances: tuple[float, ...]
    length: float
    constant: float
    n_prior: int
    seed: int | None
    delta: float


class Best(NamedTuple):
    """A posterior: means and log(σ/√λ), with the bound the solver believes in."""

    mean: Array
    log: Array
    variance: float
    bound: float


class Value(NamedTuple):
    """Error of each row, and its slopes in the scores' means and deviations."""

    error: Array
    mean: Array
    std: Array


def _plan(model: StochasticLinearClassifier, X: Any, codes: Array) -> Plan:
    """Split the rows, learn the prior's mean on its part, scale the others."""
    n, k = len(codes), len(model.classes_)
    constant = float(model.intercept_scaling) if model.fit_intercept else 0.0
    learnt = model.prior == "half"
    if learnt and n < 2:
        raise ValueError("a prior learnt on a part of the rows needs more than 1 row.")
    n_prior = min(max(1, round(model.fraction * n)), n - 1) if learnt else 0
    seed = None
    if learnt and model.shuffle:
        state = 0 if model.random_state is None else model.random_state
        seed = int(check_random_state(state).randint(2**31 - 1))
    X = X.tocsr() if sparse.issparse(X) else X
    seen, counted = split_rows(n, n_prior, seed)
    # A factor common to all scores changes no answer. For the prior "zero" it merely
    # keeps squares in range; the prior "half" is defined for rows scaled by it.
    size = mean_length(X, seen if learnt else counted, constant)
    centre = np.zeros((1 if k == 2 else k, X.shape[1] + (constant > 0)))
    if learnt:
        part = scaled_rows(X, seen, constant, size)
        centre = _prior_mean(part, codes[seen], len(centre), float(model.alpha))
    return Plan(
        rows=scaled_rows(X, counted, constant, size),
        codes=codes[counted],
        centre=centre,
        variances=VARIANCES[::-1] if learnt else (1.0,),
        length=size if learnt else 1.0,
        constant=constant,
        n_prior=n_prior,
        seed=seed,
        delta=float(model.delta),
    )


def _prior_mean(rows: Any, codes: Array, scores: int, alpha: float) -> Array:
    """Minimiser of the mean log loss + ½·alpha·‖M‖², to the last digits."""
    n = len(codes)
    target = np.where(codes == 1, 1.0, -1.0) if scores == 1 else codes
    loss: Any = Logistic() if scores == 1 else Softmax(scores)
    problem = newton.NewtonProblem(
        newton.Rows(rows, target, np.ones(n), float(n)), loss, alpha, False
    )
    start = np.zeros((rows.shape[1] + 1, scores))
    solution = newton.solve(problem, start, 1e-15, 100, keep_going)
    return np.ascontiguousarray(solution.primal[:-1].T)


# -- the search -------------------------------------------------------------------


def _search(
    model: StochasticLinearClassifier,
    plan: Plan,
    previous: tuple[Array, ...] | None,
    monitor: Monitor,
    dtype: Any,
) -> tuple[Best, Status, int]:
    """The posterior with the least bound over the prior variances, smallest first.

    Each starts from the mean found before it.
    """
    mean, std = plan.centre, None
    if previous is not None and previous[0].shape[0] == len(mean):
        warm = _weights(previous[:2], plan), _weights(previous[2:], plan)
        if warm[0].shape == mean.shape:
            mean, std = warm
    best: Best | None = None
    steps = 0
    for variance in plan.variances:
        root = math.sqrt(variance)
        log = np.zeros(mean.shape) if std is None else np.log(std / root)
        descent = _Descent(plan, Best(mean, log, variance, 1.0), monitor, dtype)
        found, status, taken = descent.run(int(model.max_iter))
        steps += taken
        mean, std = found.mean, None
        better = best is None or found.bound < best.bound
        best = found if better or best is None else best
        if status is not Status.SOLVED:
            break
    assert best is not None  # there is at least one variance
    return best, status, steps


class _Descent:
    """L-BFGS on the bound for one prior variance; keeps the last point it reached."""

    def __init__(self, plan: Plan, start: Best, monitor: Monitor, dtype: Any) -> None:
        self.plan, self.point, self.monitor, self.dtype = plan, start, monitor, dtype
        self.error, self.taken = 1.0, 0
        self.ended: Status | None = None

    def run(self, max_iter: int) -> tuple[Best, Status, int]:
        """Minimise; the point, how it ended, and how many steps it took."""
        start = np.concatenate([self.point.mean.ravel(), self.point.log.ravel()])
        try:
            optimize.minimize(
                self.value,
                start,
                jac=True,
                method="L-BFGS-B",
                callback=self.step,
                options={"maxiter": max_iter, "ftol": 1e-8, "gtol": 1e-6},
            )
        except KeyboardInterrupt:
            self.ended = Status.INTERRUPTED
        if not self.taken:  # the start could not be improved
            self.point = self.point._replace(bound=self.value(start)[0])
        return self.point, self.ended or Status.SOLVED, self.taken

    def value(self, theta: Array) -> tuple[float, Array]:
        """The bound and its gradient in M and log(σ/√λ)."""
        mean, log = theta.reshape(2, *self.plan.centre.shape)
        bound, error, slopes = bound_at(self.plan, mean, log, self.point.variance)
        self.error = error
        return bound, np.concatenate([slope.ravel() for slope in slopes])

    def step(self, intermediate_result: Any) -> None:
        """Keep what was reached; raises ``StopIteration`` where the fit is to stop."""
        mean, log = intermediate_result.x.reshape(2, *self.plan.centre.shape)
        bound = float(intermediate_result.fun)
        self.point = Best(mean.copy(), log.copy(), self.point.variance, bound)
        self.taken += 1
        self.ended = self.monitor.step(
            bound, self.error, lambda: _attributes(self.point, self.plan, self.dtype)
        )
        if self.ended is not None:
            raise StopIteration


def bound_at(
    plan: Plan, mean: Array, log: Array, variance: float
) -> tuple[float, float, tuple[Array, Array]]:
    """The bound, the error on the rows, and the bound's slopes in M and log(σ/√λ)."""
    n = len(plan.codes)
    ratio = np.exp(2 * np.clip(log, -300, 300))
    shift = mean - plan.centre
    kl = 0.5 * float(np.sum(shift * shift) / variance + np.sum(ratio - 1 - 2 * log))
    error, by_mean, by_spread = _risk(plan, mean, variance * ratio)
    error = min(max(error, 1e-12), 1 - 1e-12)
    priors = len(plan.variances)
    bound = seeger_bound(error, max(kl, 0.0), n, plan.delta, priors=priors)
    # kl(error ‖ bound) is constant in the budget: its slopes give those of the bound.
    inside = min(bound, 1 - 1e-12)
    by_bound = max(inside - error, 1e-300) / (inside * (1 - inside))
    odds = math.log(inside / (1 - inside)) - math.log(error / (1 - error))
    per_error, per_kl = odds / by_bound, 1 / (n * by_bound)
    slope_mean = per_error * by_mean + per_kl * shift / variance
    slope_log = per_error * by_spread * 2 * variance * ratio + per_kl * (ratio - 1)
    return bound, error, (slope_mean, slope_log)


def _risk(plan: Plan, mean: Array, spread: Array) -> tuple[float, Array, Array]:
    """Mean error over the rows, and its slopes in the weights' means and variances."""
    n = len(plan.codes)
    total, by_mean, by_spread = 0.0, np.zeros(mean.shape), np.zeros(mean.shape)
    rule = _two if len(mean) == 1 else _several
    for i in range(0, n, BLOCK):
        block, codes = plan.rows[i : i + BLOCK], plan.codes[i : i + BLOCK]
        squares = block.multiply(block) if sparse.issparse(block) else block * block
        std = np.sqrt(np.maximum(np.asarray(squares @ spread.T), TINY))
        value = rule(np.asarray(block @ mean.T), std, codes, FIT_NODES)
        total += float(value.error.sum())
        by_mean += np.asarray(block.T @ value.mean).T
        by_spread += np.asarray(squares.T @ (value.std / (2 * std))).T
    return total / n, by_mean / n, by_spread / n


def _two(mean: Array, std: Array, codes: Array, nodes: int) -> Value:
    """One score: label 1 where it is positive. Error Φ(−yμ/s)."""
    y = np.where(codes == 1, 1.0, -1.0)[:, None]
    t = y * mean / std
    density = np.exp(-0.5 * t * t) / math.sqrt(2 * math.pi)
    return Value(ndtr(-t)[:, 0], -y * density / std, density * t / std)


def _several(mean: Array, std: Array, codes: Array, nodes: int) -> Value:
    """One score per label: 1 − E ∏ Φ((μ_y − μₖ + s_y·T)/sₖ), by Gauss–Hermite."""
    at, weight = np.polynomial.hermite_e.hermegauss(nodes)
    weight = weight / weight.sum()
    row = np.arange(len(codes))
    own, size = mean[row, codes][:, None], std[row, codes][:, None]
    ahead, steep = (own - mean) / std, size / std
    u = ahead[:, :, None] + steep[:, :, None] * at
    below = np.maximum(ndtr(u), TINY)
    below[row, codes] = 1.0
    every = below.prod(axis=1) * weight
    density = np.exp(-0.5 * u * u) / math.sqrt(2 * math.pi) / below
    density[row, codes] = 0.0
    density *= every[:, None, :]
    by_ahead, by_steep = density.sum(axis=2), density @ at
    by_mean = by_ahead / std
    by_std = (by_ahead * ahead + by_steep * steep) / std
    by_mean[row, codes] = -by_mean.sum(axis=1)
    by_std[row, codes] = -(by_steep / std).sum(axis=1)
    return Value(1 - every.sum(axis=1), by_mean, by_std)


# -- what is kept -----------------------------------------------------------------


def _weights(pair: tuple[Array, ...], plan: Plan) -> Array:
    """Attributes as weights of the scaled rows, the constant last."""
    coef, intercept = (np.asarray(a, dtype=np.float64) for a in pair)
    if plan.constant == 0:
        return coef * plan.length
    return np.column_stack([coef, intercept / plan.constant]) * plan.length


def _attributes(best: Best, plan: Plan, dtype: Any) -> dict[str, Array]:
    """The posterior in the units of X."""
    std = np.exp(best.log) * math.sqrt(best.variance)
    found = {}
    for end, weights in (("", best.mean), ("std_", std)):
        weights = weights / plan.length
        last = np.zeros(len(weights))
        if plan.constant > 0:
            weights, last = weights[:, :-1], weights[:, -1] * plan.constant
        found["coef_" + end] = weights.astype(dtype)
        found["intercept_" + end] = last.astype(dtype)
    return found


def _evidence(model: StochasticLinearClassifier, plan: Plan, best: Best) -> Evidence:
    params = {
        "delta": plan.delta,
        "constant": plan.constant,
        "variance": best.variance,
        "alpha": float(model.alpha),
        "n_prior": plan.n_prior,
        "seed": plan.seed,
    }
    arrays = {"prior_mean": plan.centre} if plan.n_prior else {}
    return Evidence("pac_bayes", (), params, arrays)
