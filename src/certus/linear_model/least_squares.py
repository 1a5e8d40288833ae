"""Least squares and ridge regression, and ridge as a classifier.

Objective, in scikit-learn's units: ‖y − Xw − b‖² + alpha·‖w‖², with weights
Σ sᵢ(·)². Inside, everything is divided by 2Σs. Solved directly; see
``certus._solvers.least_squares``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import column_or_1d

from certus._solvers import lasso, least_squares
from certus._solvers.design import Design
from certus._solvers.least_squares import LeastSquares, LinearSolution
from certus._solvers.problem import SolverLimits, Start
from certus.base import (
    Estimator,
    Fitted,
    certified_fit,
    check_choice,
    check_number,
    label_codes,
)
from certus.blocks import Blocks
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.linear_model import by_blocks
from certus.linear_model.common import (
    LeastSquaresBase,
    LinearClassifierBase,
    centred_target,
    class_weights,
    level_term,
    linear_attributes,
)
from certus.objectives import NonNegative
from certus.typing import Array, ArrayLike, MatrixLike, RandomState

#: Solver names scikit-learn's Ridge accepts; iterative ones are solved directly.
RIDGE_SOLVERS = (
    "auto",
    "cholesky",
    "svd",
    "lsqr",
    "sparse_cg",
    "sag",
    "saga",
    "lbfgs",
)


class LinearRegression(MultiOutputMixin, RegressorMixin, LeastSquaresBase):
    """Ordinary least squares.

    Objective
    ---------
    ½·mean (y − Xw − b)², weighted by ``sample_weight``. Rank-deficient problems and
    those with fewer rows than columns give the solution of minimum norm.

    Certificate
    -----------
    ``backward_error`` (PROVED): the model is exact for data in which every column, and
    y, is changed by at most that share. Costs one pass over the data for each target.

    Parameters
    ----------
    fit_intercept : bool, default=True
        Whether to fit an intercept b.
    tol : float, default=1e-6
        Target of the certificate's primary claim.
    positive : bool, default=False
        Whether coefficients must be non-negative.
    solver : {"auto", "cholesky", "qr", "svd"}, default="auto"
        Algorithm that computes the fit. ``auto`` is Cholesky on the Gram matrix where
        its condition number allows, else the singular value decomposition.
    copy_X, n_jobs
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Coefficients.
    intercept_ : float or ndarray of shape (n_targets,)
        Constant.
    rank_ : int
        Rank of the centred data; -1 where an iterative method did not reveal it.
    singular_ : ndarray of shape (min(n_samples, n_features),)
        Singular values of the centred data, if they are dense and ``positive=False``.
        Where ``solver_`` is "cholesky", roots of the Gram matrix's eigenvalues.
    solver_, solver_reason_ : str
        The method used, and why.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from certus.linear_model import LinearRegression
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = LinearRegression().fit(X, y)
    >>> model.certificate_.met, round(model.score(X, y), 3)
    (True, 0.518)
    """

    def __init__(
        self,
        *,
        fit_intercept: bool = True,
        copy_X: bool = True,
        tol: float = 1e-6,
        n_jobs: int | None = None,
        positive: bool = False,
        solver: str = "auto",
    ) -> None:
        self.fit_intercept = fit_intercept
        self.copy_X = copy_X
        self.tol = tol
        self.n_jobs = n_jobs
        self.positive = positive
        self.solver = solver

    def __sklearn_clone__(self) -> Any:
        """A copy, registered as one of scikit-learn's if scikit-learn's is loaded.

        RANSACRegressor asks ``isinstance(clone(model), LinearRegression)``, and knows
        only then how many rows a model needs.
        """
        theirs = sys.modules.get("sklearn.linear_model")
        if theirs is not None:
            theirs.LinearRegression.register(LinearRegression)
        return super().__sklearn_clone__()

    @certified_fit
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Any:
        """Fit to data.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        """
        self._check()
        X, y, s = self._validate_X_y(
            X, y, sample_weight, finite=False, multi_output=True, y_numeric=True
        )
        monitor = Monitor(self, X, y)
        design = _design(self, X, y, s, self.solver in ("auto", "cholesky"))
        self.__dict__.pop("singular_", None)  # of an earlier fit, to dense rows
        solution = _solve_into(self, design, y, np.zeros(1), self.solver, keep_row=True)
        if not self.positive:
            self.rank_ = solution.rank
            if not design.sparse:
                self.singular_ = solution.singular * np.sqrt(_total(X, s))
        self.solver_, self.solver_reason_ = solution.method, solution.why
        monitor.close({"coef_": self.coef_, "intercept_": self.intercept_})
        evidence = Evidence("linear")
        return Fitted(evidence, X, y, s)

    def _check(self) -> None:
        check_number("tol", self.tol)
        check_choice("solver", self.solver, ("auto", "cholesky", "qr", "svd"))

    def _fit_blocks(self, table: Blocks) -> Fitted:
        self._check()
        return by_blocks.fit_least_squares(self, table, 0.0)


class Ridge(MultiOutputMixin, RegressorMixin, LeastSquaresBase):
    """Least squares with a squared-norm penalty.

    Objective
    ---------
    ‖y − Xw − b‖² + alpha·‖w‖². The certificate divides by 2n (weights: 2Σs).

    Certificate
    -----------
    ``duality_gap`` (PROVED), relative to the best constant model; with ``alpha=0``
    ``backward_error``. Costs one pass over the data for each target.

    Parameters
    ----------
    alpha : float or array of shape (n_targets,), default=1.0
        Strength of the penalty.
    fit_intercept : bool, default=True
        Whether to fit an intercept b. It is not penalised.
    tol : float, default=1e-6
        Target of the certificate's primary claim.
    solver : str, default="auto"
        Algorithm that computes the fit. "auto", "cholesky" or "svd". The names of
        scikit-learn's iterative solvers are accepted and solved directly as well.
    positive : bool, default=False
        Whether coefficients must be non-negative.
    copy_X, max_iter, random_state
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    coef_, intercept_ : ndarray, float or ndarray
        As in :class:`LinearRegression`.
    n_iter_ : int
        Always 1: the method is direct.
    solver_, solver_reason_ : str
        The method used, and why.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from certus.linear_model import Ridge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> Ridge(alpha=0.1).fit(X, y).certificate_.met
    True
    """

    def __init__(
        self,
        alpha: ArrayLike = 1.0,
        *,
        fit_intercept: bool = True,
        copy_X: bool = True,
        max_iter: int | None = None,
        tol: float = 1e-6,
        solver: str = "auto",
        positive: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.copy_X = copy_X
        self.max_iter = max_iter
        self.tol = tol
        self.solver = solver
        self.positive = positive
        self.random_state = random_state

    @certified_fit
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Any:
        """Fit to data.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; or blocks of them (:func:`certus.scale.blocks`) without y.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        """
        X, y, s = self._validate_X_y(
            X, y, sample_weight, finite=False, multi_output=True, y_numeric=True
        )
        evidence = fit_ridge(self, X, y, s)
        return Fitted(evidence, X, y, s)

    def _fit_blocks(self, table: Blocks) -> Fitted:
        check_number("tol", self.tol)
        check_choice("solver", self.solver, RIDGE_SOLVERS)
        alpha = float(ridge_alphas(self.alpha, 1)[0])
        done = by_blocks.fit_least_squares(self, table, alpha)
        self.n_iter_ = 1
        return done


class RidgeClassifier(ClassifierMixin, LinearClassifierBase):
    """Classification by ridge regression on ±1 targets, one per class.

    Objective
    ---------
    ‖y − Xw − b‖² + alpha·‖w‖² with y = ±1, for two classes once, else once per class,
    or once per column where rows may have several labels.

    Certificate
    -----------
    ``duality_gap`` (PROVED) of the worst of these problems.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty.
    fit_intercept : bool, default=True
        Whether to fit an intercept b. It is not penalised.
    tol : float, default=1e-6
        Target of the certificate's primary claim.
    class_weight : dict or "balanced", default=None
        Weights of the classes, which multiply the row weights.
    solver : str, default="auto"
        As in :class:`Ridge`.
    positive : bool, default=False
        Whether coefficients must be non-negative.
    copy_X, max_iter, random_state
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    classes_ : ndarray
        Labels; the numbers of the columns if y has several.
    coef_ : ndarray of shape (n_features,) or (n_classes, n_features)
        One row per class; flat for two classes.
    intercept_ : ndarray or float
        One constant per row of ``coef_``; 0.0 without an intercept.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from certus.linear_model import RidgeClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> RidgeClassifier().fit(X, y).certificate_.met
    True
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        copy_X: bool = True,
        max_iter: int | None = None,
        tol: float = 1e-6,
        class_weight: Mapping[Any, float] | str | None = None,
        solver: str = "auto",
        positive: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.copy_X = copy_X
        self.max_iter = max_iter
        self.tol = tol
        self.class_weight = class_weight
        self.solver = solver
        self.positive = positive
        self.random_state = random_state

    @certified_fit
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Any:
        """Fit to labelled data.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,) or (n_samples, n_labels)
            Labels; a single one is predicted always, as in scikit-learn. Several
            columns of 0 and 1 say which of several labels a row has.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.
        """
        X, y, s = self._validate_X_y(
            X, y, sample_weight, finite=False, multi_output=True
        )
        y, target, rows = self._targets(y, s)
        fit_ridge(self, X, target, rows, labels=y)
        return Fitted(Evidence("linear"), X, y, s)

    def _targets(self, y: Any, s: Array | None) -> tuple[Any, Array, Array | None]:
        """The labels, their columns of ±1, and the weights; sets ``classes_``."""
        self._several = y.ndim == 2 and y.shape[1] > 1
        if self._several:
            target = label_signs(self, y)
            self.classes_ = np.arange(target.shape[1])
            return y, target, s
        y = column_or_1d(y, warn=True)
        self.classes_, codes = label_codes(y)
        k = len(self.classes_)
        signs = 2.0 * (codes[:, None] == np.arange(k)) - 1 if k > 2 else None
        target = np.where(codes == 1, 1.0, -1.0)[:, None] if signs is None else signs
        rows = class_weights(s, self.class_weight, codes, self.classes_, "rows")
        return y, target, rows

    def predict(self, X: MatrixLike) -> Array:
        """Predicted labels; columns of 0 and 1 if y had several.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to label.
        """
        if getattr(self, "_several", False):
            return (self.decision_function(X) > 0).astype(int)
        return super().predict(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def label_signs(model: Estimator, y: Any) -> Array:
    """Columns of 0 and 1, or of −1 and 1, as −1 and 1; other columns are refused."""
    y = y.toarray() if sparse.issparse(y) else np.asarray(y)
    two = any(np.isin(y, values).all() for values in ((0, 1), (-1, 1)))
    known = y.dtype.kind in "biuf" and two
    if not known:
        raise ValueError(
            "Multioutput target data is not supported: y has several columns that are "
            "not 0 or 1 (or −1 and 1). Fit one model per column (sklearn.multioutput)."
        )
    if model.class_weight is not None:
        raise ValueError(
            "class_weight has no meaning where rows may have several labels. Leave it "
            "out, or fit one model per column (sklearn.multioutput)."
        )
    return np.where(y > 0, 1.0, -1.0)


def fit_ridge(
    model: Any,
    X: MatrixLike,
    y: Array,
    s: Array | None,
    design: Design | None = None,
    labels: Array | None = None,
) -> Evidence:
    """Solve a ridge problem for ``model``; the evidence is about numeric targets.

    ``design`` is that of X, y's centring and s, if already computed; ``labels``
    is what callbacks see as y, if not the numeric targets.
    """
    check_number("tol", model.tol)
    check_choice("solver", model.solver, RIDGE_SOLVERS)
    check_number(
        "max_iter", getattr(model, "max_iter", None), 1, integer=True, none=True
    )
    n_targets = 1 if y.ndim == 1 else y.shape[1]
    alphas = ridge_alphas(model.alpha, n_targets)
    monitor = Monitor(model, X, y if labels is None else labels)
    total = _total(X, s)
    method = model.solver if model.solver in ("cholesky", "svd") else "auto"
    if design is None:
        design = _design(model, X, y, s, method != "svd")
    solution = _solve_into(model, design, y, alphas / total, method)
    model.solver_, model.solver_reason_ = solution.method, solution.why
    model.n_iter_ = 1
    monitor.close({"coef_": model.coef_, "intercept_": model.intercept_})
    return Evidence("linear")


def ridge_alphas(alpha: Any, n_targets: int) -> Array:
    """One level per target."""
    if np.ndim(alpha) == 0:
        check_number("alpha", alpha)
        return np.full(n_targets, float(alpha))
    alphas = np.asarray(alpha, dtype=float).ravel()
    if len(alphas) not in (1, n_targets):
        raise ValueError(
            f"Number of targets and number of penalties do not correspond: "
            f"{len(alphas)} != {n_targets}. Pass one alpha, or one per target."
        )
    if not (np.isfinite(alphas).all() and alphas.min() >= 0):
        raise ValueError("alpha must be finite and at least 0.")
    return np.broadcast_to(alphas, (n_targets,)).copy()


def _design(
    model: Estimator, X: MatrixLike, y: Array, s: Array | None, gram: bool
) -> Design:
    """The data of a fit; ``gram`` asks for its Gram matrix first."""
    targets = y if gram and not model.positive else None
    return Design(X, s, bool(model.fit_intercept), targets)


def _total(X: Any, s: Array | None) -> float:
    return float(X.shape[0] if s is None else s.sum())


def _solve_into(
    model: Estimator,
    design: Design,
    y: Array,
    l2: Array,
    method: str,
    *,
    keep_row: bool = False,
) -> LinearSolution:
    Y, mean = centred_target(design, y, bool(model.fit_intercept))
    levels = np.broadcast_to(l2, (Y.shape[1],))
    if model.positive:
        solution = _solve_positive(model, design, Y, levels)
    else:
        penalties = [level_term(float(level)) for level in levels]
        problem = LeastSquares(design, Y, penalties, method)
        solution = least_squares.solve(problem, Start(), SolverLimits(0.0, 1))
    found = linear_attributes(
        *(solution.coef, mean, design, y, design.dtype, bool(model.fit_intercept)),
        keep_row=keep_row,
    )
    for name, value in found.items():
        setattr(model, name, value)
    return solution


def _solve_positive(
    model: Estimator, design: Design, Y: Array, levels: Array
) -> LinearSolution:
    """Non-negative coefficients, by working sets, as far as rounding allows."""
    rounds = getattr(model, "max_iter", None) or 1000
    limits = SolverLimits(min(float(model.tol), 1e-12), int(rounds))
    coef = np.empty((Y.shape[1], design.d))
    for k, level in enumerate(levels):
        penalty = NonNegative(0.0, float(level))
        problem = lasso.QuadraticProblem(design, Y[:, k], penalty)
        solution = lasso.solve(problem, Start(), limits)
        if solution.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        coef[k] = solution.primal
    why = "non-negative coefficients need a search for those that are not zero"
    ending = (0.0, Status.SOLVED, 1)
    return LinearSolution(coef.T, *ending, method="working sets", why=why)
