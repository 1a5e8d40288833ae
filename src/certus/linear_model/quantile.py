"""Quantile regression with an L1 penalty, in scikit-learn's objective.

    mean pinball_q(y − Xw − b) + alpha·‖w‖₁

Solved by an interior point method (``certus._solvers.quantile``), whose dual variables
are the certificate's evidence.
"""

from __future__ import annotations

from typing import Any

from sklearn.base import RegressorMixin

from certus._solvers import quantile
from certus._solvers.interior import Kinked
from certus._solvers.penalties import of_levels
from certus._solvers.problem import Start
from certus._solvers.quantile import KinkedRegression
from certus.base import Fitted, certified_fit, check_choice, check_number
from certus.certificate import Evidence
from certus.linear_model.common import (
    LinearRegressorBase,
    Watched,
    check_limits,
    limits_of,
    make_rows,
    witness_of,
)
from certus.typing import ArrayLike

#: scikit-learn's solver names, accepted.
SOLVERS = (
    "auto",
    "highs",
    "highs-ds",
    "highs-ipm",
    "interior-point",
    "revised simplex",
)


class QuantileRegressor(RegressorMixin, LinearRegressorBase):
    """Linear regression of a conditional quantile.

    Objective
    ---------
    mean pinball(y − Xw − b) + alpha·‖w‖₁, weighted by ``sample_weight``; pinball(e) is
    quantile·e above 0 and (quantile − 1)·e below.

    Certificate
    -----------
    ``duality_gap`` (PROVED) with the dual point as witness, relative to the best
    constant; with ``alpha=0`` ``backward_gap`` (PROVED). One or two passes.

    Parameters
    ----------
    quantile : float, default=0.5
        Which quantile, strictly between 0 and 1.
    alpha : float, default=1.0
        Strength of the penalty. It is alpha·‖w‖₁.
    fit_intercept : bool, default=True
        Whether to fit an intercept b. It is not penalised.
    solver : str, default="auto"
        Algorithm that computes the fit. scikit-learn's names are accepted; the method
        is an interior point method.
    tol : float, default=1e-6
        Target of the certificate's primary claim.
    max_iter : int, default=200
        Maximum number of iterations. They are interior point steps.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    solver_options
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

    Notes
    -----
    Twelve to twenty-five steps, each a Gram matrix (n·d²) and a few passes. From 20,000
    rows on only rows near the quantile are used in full, with many columns only those
    that the penalty lets in. Where the minimiser is not unique, the fit lies in the
    middle of the minimisers, whatever the order of the rows. Memory: two copies of X.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.linear_model import QuantileRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(500, 1))
    >>> y = X[:, 0] + rng.exponential(size=500)
    >>> model = QuantileRegressor(quantile=0.9, alpha=0).fit(X, y)
    >>> round(float(np.mean(y <= model.predict(X))), 2), model.certificate_.met
    (0.9, True)
    """

    def __init__(
        self,
        *,
        quantile: float = 0.5,
        alpha: float = 1.0,
        fit_intercept: bool = True,
        solver: str = "auto",
        solver_options: dict[str, Any] | None = None,
        tol: float = 1e-6,
        max_iter: int = 200,
        max_time: float | None = None,
    ) -> None:
        self.quantile = quantile
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.solver_options = solver_options
        self.tol = tol
        self.max_iter = max_iter
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
        check_number("quantile", self.quantile, 0, 1, open_low=True)
        if self.quantile >= 1:
            raise ValueError(
                f"quantile must be strictly between 0 and 1, got {self.quantile!r}."
            )
        check_choice("solver", self.solver, SOLVERS)
        check_number("alpha", self.alpha)
        check_limits(self)
        X, y, s = self._validate_X_y(X, y, sample_weight, y_numeric=True)
        q, penalty = float(self.quantile), of_levels(float(self.alpha), 0.0)
        rows, watch = make_rows(X, y, s), Watched(self, X, y, s)
        free = bool(self.fit_intercept)
        problem = KinkedRegression(rows, Kinked(q, 1 - q), penalty, free)
        solution = quantile.solve(problem, Start(), limits_of(self, watch))
        watch.close(solution)
        self.solver_ = "interior point"
        self.solver_reason_ = "the loss has a kink at 0"
        evidence = Evidence("linear", witness=witness_of(solution))
        return Fitted(evidence, X, y, s, solution.status)
