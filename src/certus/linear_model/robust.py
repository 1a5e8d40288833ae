"""Regression that outliers do not dominate: absolute, Huber and Tukey losses.

``RobustRegressor`` minimises the mean loss of the residuals with a given threshold;
``HuberRegressor`` fits the scale of the residuals with the coefficients, in
scikit-learn's objective. Absolute errors are solved by an interior point method, the
smooth losses by Newton's (``certus._solvers.quantile`` and ``certus._solvers.newton``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import RegressorMixin

from certus._solvers import huber, newton, quantile
from certus._solvers.interior import Kinked
from certus._solvers.losses import HuberScale
from certus._solvers.problem import Solution, Start
from certus._solvers.quantile import KinkedRegression
from certus.base import Fitted, certified_fit, check_choice, check_number
from certus.certificate import Evidence, Status
from certus.linear_model import huber_by_blocks
from certus.linear_model.common import (
    LinearRegressorBase,
    Watched,
    check_limits,
    level_term,
    limits_of,
    make_rows,
    start_from,
    witness_of,
)
from certus.objectives import Absolute, Huber, Loss, Tukey
from certus.typing import Array, ArrayLike

if TYPE_CHECKING:
    from certus.blocks import Blocks

LOSSES = ("absolute", "huber", "tukey")
#: Endings of Newton's method after which the interior point method takes over.
UNFINISHED = (Status.MAX_ITER, Status.TOL_NOT_REACHED)


class RobustRegressor(RegressorMixin, LinearRegressorBase):
    """Linear regression with a robust loss and a fixed threshold.

    Objective
    ---------
    mean ℓ(y − Xw − b) + ½·alpha·‖w‖², weighted by ``sample_weight``, with ℓ(e) =
    abs(e); or ½e² up to ``threshold`` and linear beyond (Huber); or Tukey's bisquare,
    (threshold²/6)(1 − (1 − e²/threshold²)³) up to ``threshold`` and constant beyond.

    Certificate
    -----------
    absolute and Huber: ``duality_gap`` (PROVED) with a dual point as witness, or
    ``backward_gap`` (PROVED) without a penalty. Tukey, which is not convex:
    ``stationarity`` (MEASURED), at level full also ``curvature``. One or
    two passes over the data.

    Parameters
    ----------
    loss : {"huber", "absolute", "tukey"}, default="huber"
        Loss of a row.
    threshold : float, default=None
        Threshold of Huber's (default 1.35) or Tukey's loss (default 4.685), in units of
        y; the defaults are 95 % efficient for residuals of variance one.
    alpha : float, default=0.0
        Strength of the penalty. The intercept is not penalised.
    fit_intercept : bool, default=True
        Whether to fit an intercept b.
    tol : float, default=1e-6
        Target of the certificate's primary claim.
    max_iter : int, default=200
        Maximum number of iterations. They are Newton or interior point steps.
    warm_start : bool, default=False
        Whether to start from the last fit. For Huber and Tukey only.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients.
    intercept_ : float
        Constant.
    weights_ : ndarray of shape (n_samples,)
        Weight of each row in an equivalent least-squares fit, between 0 (no influence)
        and 1; for absolute errors relative to the largest.
    n_iter_ : int
        Steps used.
    solver_, solver_reason_ : str
        The method used, and why.
    history_ : dict
        Objective, gap and seconds after each step.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    Huber: a few Newton steps of n·d to n·d² each. Absolute: twelve to twenty-five steps
    of n·d²; with many rows, most are left out. Tukey starts from Huber's solution and
    ends in the local minimum near it. Memory: two copies of X at most.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.linear_model import RobustRegressor
    >>> X = np.arange(10.0)[:, None]
    >>> y = 2 * X[:, 0] + 1
    >>> y[9] = 1000.0
    >>> model = RobustRegressor("absolute").fit(X, y)
    >>> model.coef_.round(6), model.certificate_.met
    (array([2.]), True)
    """

    def __init__(
        self,
        loss: str = "huber",
        *,
        threshold: float | None = None,
        alpha: float = 0.0,
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 200,
        warm_start: bool = False,
        max_time: float | None = None,
    ) -> None:
        self.loss = loss
        self.threshold = threshold
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Any:
        """Fit to data.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        """
        check_choice("loss", self.loss, LOSSES)
        check_number("threshold", self.threshold, open_low=True, none=True)
        check_number("alpha", self.alpha)
        check_limits(self)
        X, y, s = self._validate_X_y(X, y, sample_weight, y_numeric=True)
        loss = loss_term(self.loss, self.threshold)
        rows, watch = make_rows(X, y, s), Watched(self, X, y, s)
        free, alpha = bool(self.fit_intercept), float(self.alpha)
        if isinstance(loss, Absolute):
            kinked = KinkedRegression(rows, Kinked(1.0, 1.0), level_term(alpha), free)
            solution = quantile.solve(kinked, Start(), limits_of(self, watch))
            self.solver_ = "interior point"
            self.solver_reason_ = "absolute errors have a kink at 0"
        else:
            solution = _solve_smooth(self, rows, loss, watch)
        watch.close(solution)
        e = y - (X @ self.coef_ + self.intercept_)
        self.weights_ = _weights(loss, e).astype(X.dtype)
        evidence = Evidence("linear", witness=witness_of(solution))
        return Fitted(evidence, X, y, s, solution.status)


def loss_term(name: str, threshold: float | None) -> Any:
    """The loss of a given name, with its default threshold."""
    if name == "absolute":
        return Absolute()
    if name == "huber":
        return Huber(1.35 if threshold is None else float(threshold))
    return Tukey(4.685 if threshold is None else float(threshold))


def _solve_smooth(
    model: RobustRegressor, rows: newton.NewtonRows, loss: Loss, watch: Watched
) -> Solution:
    """Huber by Newton's method; Tukey from Huber's solution."""
    free, penalty = bool(model.fit_intercept), level_term(float(model.alpha))
    limits = limits_of(model, watch)
    model.solver_ = "Newton-CG"
    model.solver_reason_ = "the loss is smooth"
    start = start_from(model, rows, loss)
    if isinstance(loss, Tukey) and not start[:-1].any():
        # Start from a convex problem: Huber's, with a smaller threshold.
        near = Huber(loss.threshold * 1.35 / 4.685)
        first = newton.NewtonProblem(rows, near, penalty, free)
        found = newton.solve(first, Start(start), limits._replace(tol=1e-3))
        if found.status not in (Status.SOLVED, *UNFINISHED):
            return found
        start = found.primal
        limits = limits._replace(max_iter=max(limits.max_iter - found.n_iter, 0))
    problem = newton.NewtonProblem(rows, loss, penalty, free)
    found = newton.solve(problem, Start(start), limits)
    if isinstance(loss, Huber) and found.status is Status.TOL_NOT_REACHED:
        kinked = Kinked(loss.threshold, loss.threshold, 1.0)
        bent = KinkedRegression(rows, kinked, penalty, free)
        other = quantile.solve(bent, Start(), limits)
        model.solver_ = "interior point"
        model.solver_reason_ = "Newton's method stopped before it reached the target"
        return replace(other, n_iter=found.n_iter + other.n_iter)
    return found


def _weights(loss: Loss, e: Array) -> Array:
    """ψ(e)/e: the row weights of the least-squares fit with the same solution."""
    size = np.abs(np.asarray(e, dtype=np.float64))
    if isinstance(loss, Tukey):
        return np.maximum(1 - np.square(size / loss.threshold), 0.0) ** 2
    if isinstance(loss, Huber):
        return loss.threshold / np.maximum(size, loss.threshold)
    least = max(float(np.median(size)) * 1e-6, 1e-300)
    return least / np.maximum(size, least)


class HuberRegressor(RegressorMixin, LinearRegressorBase):
    """Huber regression that fits the scale of the residuals too.

    Objective
    ---------
    Σ [σ + σ·H((y − Xw − b)/σ)] + alpha·‖w‖² over w, b and σ ≥ 0, weighted by
    ``sample_weight``; H(t) = t² up to ``epsilon``, else 2·epsilon·abs(t) − epsilon².
    Jointly convex. The certificate divides by n (weights: Σs).

    Certificate
    -----------
    ``duality_gap`` (PROVED), relative to the median's objective; with ``alpha=0``
    ``backward_gap`` (PROVED). Costs two passes over the data.

    Parameters
    ----------
    epsilon : float, default=1.35
        Residuals beyond ``epsilon`` times the scale count as outliers. At least 1.
    max_iter : int, default=100
        Maximum number of iterations. They are Newton steps.
    alpha : float, default=0.0001
        Strength of the penalty. It is alpha·‖w‖².
    warm_start : bool, default=False
        Whether to start from the last fit.
    fit_intercept : bool, default=True
        Whether to fit an intercept b. It is not penalised.
    tol : float, default=1e-6
        Target of the certificate's primary claim.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients.
    intercept_ : float
        Constant.
    scale_ : float
        σ; 0 where so many residuals vanish that no scale can be told.
    outliers_ : ndarray of bool, shape (n_samples,)
        Rows beyond ``epsilon`` times the scale.
    n_iter_ : int
        Steps used.
    solver_, solver_reason_ : str
        The method used, and why.
    history_ : dict
        Objective, gap and seconds after each step.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    The best σ for given residuals follows in finitely many steps, so
    Newton's method runs on (w, b) alone: n·d for each product, a Gram matrix of at most
    max(20,000, 40·d) rows now and then. Memory: X and a few arrays of n.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.linear_model import HuberRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 2))
    >>> y = X @ [1.0, 2.0] + 0.1 * rng.normal(size=100)
    >>> y[:10] += 50
    >>> model = HuberRegressor().fit(X, y)
    >>> model.coef_.round(1), model.outliers_[:10].all(), model.certificate_.met
    (array([1., 2.]), np.True_, True)
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.35,
        max_iter: int = 100,
        alpha: float = 0.0001,
        warm_start: bool = False,
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_time: float | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.max_iter = max_iter
        self.alpha = alpha
        self.warm_start = warm_start
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Any:
        """Fit to data.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; or blocks of them (:func:`certus.scale.blocks`) without y.
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        """
        self._check()
        X, y, s = self._validate_X_y(X, y, sample_weight, y_numeric=True)
        rows, watch = make_rows(X, y, s), Watched(self, X, y, s)
        loss = HuberScale(float(self.epsilon))
        free, start = bool(self.fit_intercept), Start(start_from(self, rows, loss))
        problem = huber.HuberProblem(rows, loss, float(self.alpha), free)
        solution = huber.solve(problem, start, limits_of(self, watch))
        watch.close(solution)
        self.scale_ = float(solution.scale)
        self.solver_, self.solver_reason_ = solution.method
        e = y - (X @ self.coef_ + self.intercept_)
        self.outliers_ = np.abs(e) > self.scale_ * self.epsilon
        evidence = Evidence("huber", witness=witness_of(solution))
        return Fitted(evidence, X, y, s, solution.status)

    def _check(self) -> None:
        check_number("epsilon", self.epsilon, 1.0)
        check_number("alpha", self.alpha)
        check_limits(self)

    def _fit_blocks(self, table: Blocks) -> Fitted:
        self._check()
        return huber_by_blocks.fit_huber(self, table)
