"""Generalised linear models for the exponential families.

Each family has a link that makes its negative log-likelihood convex in the score
z = Xw + b. Divided by the number of rows, up to terms that only depend on y:

    Gaussian ½(y − z)² · Laplace abs(y − z) · Bernoulli log(1 + eᶻ) − yz
    binomial m·log(1 + eᶻ) − yz · Poisson eᶻ − yz · exponential y·e⁻ᶻ + z
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from certus._solvers import least_squares, newton, quantile
from certus._solvers.design import Design
from certus._solvers.interior import Kinked
from certus._solvers.least_squares import LeastSquares
from certus._solvers.problem import Solution, Start
from certus._solvers.quantile import KinkedRegression
from certus.base import Estimator, Fitted, certified_fit, check_choice, check_number
from certus.blocks import Blocks
from certus.blocks.accepting import by_block
from certus.certificate import Evidence, Status
from certus.linear_model import by_blocks
from certus.linear_model.common import (
    Summarised,
    Watched,
    centred_target,
    check_limits,
    level_term,
    limits_of,
    linear_scores,
    make_rows,
    start_from,
    witness_of,
)
from certus.linear_model.directions import at_limits, recedes, receding_direction
from certus.linear_model.families import (
    FAMILIES,
    check_range,
    explained,
    family_loss,
    mean_of,
)
from certus.linear_model.summarise import family_summary
from certus.linear_model.summary import Summary
from certus.objectives import Absolute, Exponential, Loss, Poisson, Squared
from certus.typing import Array, ArrayLike, MatrixLike

#: Scores beyond this suggest that they grow without limit.
RUNAWAY = 12.0
#: scikit-learn's solver names, accepted.
SOLVERS = ("auto", "lbfgs", "newton-cholesky")


class LikelihoodModel(Summarised, Estimator):
    """``predict`` and ``summary`` of a family; abstract."""

    coef_: Array
    intercept_: Any

    def _loss(self) -> Any:
        """The family's term."""
        raise NotImplementedError

    @by_block
    def predict(self, X: MatrixLike) -> Array:
        """Predicted means (the Laplace family's are medians).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to predict.
        """
        return mean_of(self._loss(), linear_scores(self, X))

    def _summarise(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None, alpha: float
    ) -> Summary:
        check_is_fitted(self)
        return family_summary(self, self._loss(), X, y, sample_weight, alpha)


class GeneralizedLinearModel(RegressorMixin, LikelihoodModel):
    """Maximum likelihood for an exponential family, with an optional penalty.

    Objective
    ---------
    mean ℓ(y, Xw + b) + ½·alpha·‖w‖², weighted by ``sample_weight``; ℓ is the family's
    negative log-likelihood up to what depends on y alone (half the deviance).

    Certificate
    -----------
    ``duality_gap`` (PROVED) with ``alpha > 0``, relative to the best constant model.
    Without a penalty: Gaussian ``backward_error`` (PROVED), Laplace ``backward_gap``
    (PROVED), the others ``stationarity`` (MEASURED), or REFUSED with a direction as
    witness where the likelihood has no maximum. One or two passes over the data.

    Parameters
    ----------
    family : str, default="gaussian"
        ============= ==================== ============ =======================
        family        y                    mean         link
        ============= ==================== ============ =======================
        gaussian      any number           z            identity
        laplace       any number           median z     identity
        bernoulli     0, 1 or between      expit(z)     logit (canonical)
        binomial      0 … n_trials         m·expit(z)   logit (canonical)
        poisson       at least 0           exp(z)       log (canonical)
        exponential   above 0              exp(z)       log
        ============= ==================== ============ =======================
    n_trials : int, default=1
        Trials of each row of the binomial family. For trials that differ by row, pass
        shares y/m to "bernoulli" with ``sample_weight=m``.
    alpha : float, default=0.0
        Strength of the penalty. The intercept is not penalised.
    fit_intercept : bool, default=True
        Whether to fit an intercept b.
    tol : float, default=1e-6
        Target of the certificate's primary claim.
    max_iter : int, default=100
        Maximum number of iterations. They are Newton steps; for Laplace, interior point
        steps.
    warm_start : bool, default=False
        Whether to start from the last fit.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients.
    intercept_ : float
        Constant.
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
    The exponential family's canonical link, −1/mean, would confine the scores to
    z < 0; with the logarithm the loss is convex for every z.

    :meth:`summary` gives standard errors with ``alpha=0``: Student's t for the Gaussian
    family, z from the Fisher information for the others, none for Laplace.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.linear_model import GeneralizedLinearModel
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = rng.poisson(np.exp(X @ [0.5, -1.0] + 1))
    >>> model = GeneralizedLinearModel("poisson", alpha=0.01).fit(X, y)
    >>> model.coef_.round(1), model.certificate_.met
    (array([ 0.5, -1. ]), True)
    """

    def __init__(
        self,
        family: str = "gaussian",
        *,
        n_trials: int = 1,
        alpha: float = 0.0,
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 100,
        warm_start: bool = False,
        max_time: float | None = None,
    ) -> None:
        self.family = family
        self.n_trials = n_trials
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
            Targets, within the family's range.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        """
        check_choice("family", self.family, FAMILIES)
        check_number("n_trials", self.n_trials, 1, integer=True)
        check_number("alpha", self.alpha)
        check_limits(self)
        X, y, s = self._validate_X_y(X, y, sample_weight, y_numeric=True)
        return fit_family(self, X, y, s, self._loss())

    def deviance_share(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """Share of the deviance explained (D²), 1 at best.

        Parameters
        ----------
        X, y : array-like
            Data to judge the predictions on.
        sample_weight : array-like, optional
            Row weights.
        """
        return explained(self, self._loss(), X, y, sample_weight)

    def _loss(self) -> Any:
        return family_loss(self.family, self.n_trials)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.family not in ("gaussian", "laplace")
        return tags


class DevianceRegressor(RegressorMixin, LikelihoodModel):
    """Half the mean deviance of a family and a penalty; abstract."""

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        fit_intercept: bool = True,
        solver: str = "auto",
        max_iter: int = 100,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: int = 0,
        max_time: float | None = None,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Any:
        """Fit to data.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Targets, within the family's range.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        """
        loss = self._checked_loss()
        X, y, s = self._validate_X_y(X, y, sample_weight, y_numeric=True)
        return fit_family(self, X, y, s, loss)

    def _checked_loss(self) -> Any:
        loss = self._loss()
        check_choice("solver", self.solver, SOLVERS)
        check_number("alpha", self.alpha)
        check_limits(self)
        return loss

    def _fit_blocks(self, table: Blocks) -> Fitted:
        loss, alpha = self._checked_loss(), float(self.alpha)
        if alpha == 0 or not isinstance(loss, Poisson | Exponential):
            by_blocks.refuse(self, f"alpha=0 or the loss {type(loss).__name__}")
        return by_blocks.fit_family(self, table, loss, alpha)

    def score(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """Share of the deviance explained (D²), 1 at best.

        Parameters
        ----------
        X, y : array-like
            Data to judge the predictions on.
        sample_weight : array-like, optional
            Row weights.
        """
        return explained(self, self._loss(), X, y, sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


class PoissonRegressor(DevianceRegressor):
    """Poisson regression of counts, with a logarithmic link.

    Objective
    ---------
    mean [exp(z) − y·z + y·log y − y] + ½·alpha·‖w‖², z = Xw + b: half the mean deviance
    and a penalty, weighted by ``sample_weight``.

    Certificate
    -----------
    ``duality_gap`` (PROVED) with ``alpha > 0``, relative to the best constant model.
    With ``alpha=0`` ``stationarity`` (MEASURED), or REFUSED with a direction as witness
    where no minimiser exists: a cell of zero counts. One or two passes over the data.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty. The intercept is not penalised.
    fit_intercept : bool, default=True
        Whether to fit an intercept b.
    solver : str, default="auto"
        Algorithm that computes the fit. scikit-learn's names are accepted; the method
        is Newton's.
    max_iter : int, default=100
        Maximum number of iterations. They are Newton steps.
    tol : float, default=1e-6
        Target of the certificate's primary claim.
    warm_start : bool, default=False
        Whether to start from the last fit.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    verbose
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients.
    intercept_ : float
        Constant.
    n_iter_ : int
        Steps used.
    solver_, solver_reason_ : str
        The method used, and why.
    history_ : dict
        Objective, gap and seconds after each step.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from certus.linear_model import PoissonRegressor
    >>> X = [[1, 2], [2, 3], [3, 4], [4, 3]]
    >>> model = PoissonRegressor().fit(X, [12, 17, 22, 21])
    >>> model.coef_.round(3), model.certificate_.met
    (array([0.121, 0.158]), True)
    """

    def _loss(self) -> Any:
        return Poisson()


# -- fitting ----------------------------------------------------------------------


def fit_family(
    model: Any, X: MatrixLike, y: Array, s: Array | None, loss: Any
) -> Fitted:
    """Solve, set the attributes of ``model``, and return what the verifier needs."""
    y = np.asarray(y, dtype=np.float64)
    check_range(loss, y)
    rows, watch = make_rows(X, y, s), Watched(model, X, y, s)
    alpha, free = float(model.alpha), bool(model.fit_intercept)
    if isinstance(loss, Squared):
        solution = _least_squares(model, rows, s, watch)
    elif isinstance(loss, Absolute):
        kinked = KinkedRegression(rows, Kinked(1.0, 1.0), level_term(alpha), free)
        solution = quantile.solve(kinked, Start(), limits_of(model, watch))
        model.solver_, model.solver_reason_ = "interior point", "a kink at 0"
    else:
        solution = _likelihood(model, rows, loss, watch)
        model.solver_, model.solver_reason_ = "Newton-CG", "the loss is smooth"
    watch.close(solution)
    evidence = Evidence("linear", witness=witness_of(solution))
    return Fitted(evidence, X, y, s, solution.status)


def _least_squares(
    model: Estimator, rows: newton.NewtonRows, s: Array | None, watch: Watched
) -> Solution:
    """The Gaussian family is solved directly."""
    design = Design(rows.X, s, centre=bool(model.fit_intercept))
    Y, mean = centred_target(design, rows.y, bool(model.fit_intercept))
    problem = LeastSquares(design, Y, [level_term(float(model.alpha))])
    found = least_squares.solve(problem, Start(), limits_of(model, watch))
    model.solver_, model.solver_reason_ = found.method, found.why
    w = np.asarray(found.coef, dtype=np.float64).reshape(-1)
    b = float(mean[0] - design.mean @ w)
    residual = Y[:, 0] - design.dot(w)
    objective = float(design.average(residual**2)) / 2 + model.alpha * float(w @ w) / 2
    W = np.append(w, b if model.fit_intercept else 0.0)
    stop = watch(objective, 0.0, W)
    return Solution(W, 0.0, stop or Status.SOLVED, 1)


def _likelihood(
    model: Estimator, rows: newton.NewtonRows, loss: Loss, watch: Watched
) -> Solution:
    """Newton's method; without a penalty, also a search for receding directions."""
    alpha, free = float(model.alpha), bool(model.fit_intercept)
    used = rows.s > 0
    if not used.all():  # the contents of such rows must not overflow
        rows = make_rows(rows.X[used], rows.y[used], rows.s[used])
    start = Start(start_from(model, rows, loss))
    problem = newton.NewtonProblem(rows, loss, level_term(alpha), free)
    found = newton.solve(problem, start, limits_of(model, watch))
    if alpha == 0 and not free and rows.X.shape[1] > len(rows.y):
        found = replace(found, primal=_least_norm(rows.X, found.primal))
    if isinstance(loss, Exponential):
        return found
    fall, rise = (r[rows.s > 0].all() for r in at_limits(loss, rows.y))
    direction: Array | None
    if free and (fall or rise):  # only the intercept moves, without end
        direction = np.zeros(rows.X.shape[1] + 1)
        direction[-1] = -1.0 if fall else 1.0
    else:
        direction = _receding(rows, loss, free, alpha, problem.scores_at(found.primal))
    if direction is None:
        return found
    direction = direction[:, None]
    return replace(found, status=Status.NO_MINIMISER, direction=direction)


def _least_norm(X: Any, W: Array) -> Array:
    """The smallest coefficients with the same scores, for more columns than rows."""
    K = X @ X.T
    K = K.toarray() if sparse.issparse(K) else np.asarray(K, dtype=np.float64)
    c = np.linalg.lstsq(K, np.asarray(X @ W[:-1]), rcond=1e-14)[0]
    return np.vstack([np.asarray(X.T @ c), W[-1:]])


def _receding(
    rows: newton.NewtonRows, loss: Loss, free: bool, alpha: float, z: Array
) -> Array | None:
    """A direction along which the likelihood rises forever, if scores hint at it."""
    fall, rise = at_limits(loss, rows.y)
    away = (fall & (z[:, 0] < -RUNAWAY)) | (rise & (z[:, 0] > RUNAWAY))
    if alpha > 0 or not away[rows.s > 0].any():
        return None
    direction = receding_direction(rows.X, rows.y, rows.s, loss, free)
    if direction is None or not recedes(rows.X, rows.y, rows.s, loss, direction):
        return None
    return direction
