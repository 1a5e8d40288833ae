"""Lasso and elastic net, with scikit-learn's parameters.

    ½·mean (y − Xw − b)² + alpha·l1_ratio·‖w‖₁ + ½·alpha·(1 − l1_ratio)·‖w‖²

weighted by ``sample_weight``. The mean is over Σs, so the objective is scikit-learn's
without translation. Solved by ``certus.convex.lasso``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_array, check_consistent_length

from certus.base import Fitted, certified_fit, check_choice, check_number
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.convex import least_squares
from certus.convex.design import Array, Design
from certus.convex.lasso import QuadraticSolver
from certus.convex.penalties import of_levels
from certus.convex.problem import Limits, Solution
from certus.linear.common import (
    LeastSquaresBase,
    centred_target,
    check_limits,
    number_array,
    store_linear,
)
from certus.terms import L2, NoPenalty, Penalty


def penalty_of(alpha: float, l1_ratio: float, positive: bool = False) -> Penalty:
    """The term of scikit-learn's ``alpha``, ``l1_ratio`` and ``positive``."""
    alpha, ratio = float(alpha), float(l1_ratio)
    return of_levels(alpha * ratio, alpha * (1.0 - ratio), bool(positive))


class ElasticNet(MultiOutputMixin, RegressorMixin, LeastSquaresBase):
    """Linear regression with an L1 and an L2 penalty.

    Objective
    ---------
    ½·mean (y − Xw − b)² + alpha·l1_ratio·‖w‖₁ + ½·alpha·(1 − l1_ratio)·‖w‖²

    Certificate
    -----------
    ``duality_gap`` (PROVED), relative to the best constant model; with ``alpha=0``
    ``backward_error``. Costs one pass over the data, a second if the target is missed.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of both penalties.
    l1_ratio : float, default=0.5
        Share of the L1 penalty, in [0, 1].
    fit_intercept : bool, default=True
        Whether to fit b, which is not penalised.
    precompute : bool or array, default=False
        Accepted for scikit-learn's sake; the Gram matrix of the working set is used.
    max_iter : int, default=1000
        Most rounds of growing the working set.
    copy_X : bool, default=True
        Accepted for scikit-learn's sake; X is never overwritten.
    tol : float, default=1e-6
        Target of the certificate's gap.
    warm_start : bool, default=False
        Start from ``coef_`` of the last fit.
    positive : bool, default=False
        Whether the coefficients are held non-negative.
    random_state : int, optional
        Accepted for scikit-learn's sake; nothing is random.
    selection : {"cyclic", "random"}, default="cyclic"
        Accepted for scikit-learn's sake.
    max_time : float, optional
        Seconds after which the fit stops with what it has.

    Attributes
    ----------
    coef_, intercept_ : ndarray, float
        The model.
    sparse_coef_ : sparse matrix
        ``coef_`` as a sparse row.
    dual_gap_ : float
        The certificate's gap in the units of the objective.
    n_iter_ : int
        Rounds used.
    history_ : dict
        Objective, relative gap and seconds after each round.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from certus.linear import ElasticNet
    >>> X, y = load_diabetes(return_X_y=True)
    >>> ElasticNet(alpha=0.01).fit(X, y).certificate_.met
    True
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        precompute: Any = False,
        max_iter: int = 1000,
        copy_X: bool = True,
        tol: float = 1e-6,
        warm_start: bool = False,
        positive: bool = False,
        random_state: Any = None,
        selection: str = "cyclic",
        max_time: float | None = None,
    ) -> None:
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.precompute = precompute
        self.max_iter = max_iter
        self.copy_X = copy_X
        self.tol = tol
        self.warm_start = warm_start
        self.positive = positive
        self.random_state = random_state
        self.selection = selection
        self.max_time = max_time

    @certified_fit
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, check_input: bool = True
    ) -> Any:
        """Fit to data.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; Fortran order or CSC is fastest.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets; several are fitted one by one.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights; an integer weight equals repetition.
        check_input : bool, default=True
            Accepted for scikit-learn's sake; input is always checked.
        """
        check_number("alpha", self.alpha)
        check_number("l1_ratio", self.l1_ratio, 0, 1)
        check_limits(self, 1)
        check_choice("selection", self.selection, ("cyclic", "random"))
        X, y, s = self._validate_X_y(
            X, y, sample_weight, finite=False, multi_output=True, y_numeric=True
        )
        start = getattr(self, "coef_", None) if self.warm_start else None
        return fit_elastic_net(self, X, y, s, self.alpha, self.l1_ratio, start)

    @property
    def sparse_coef_(self) -> Any:
        """``coef_`` as a sparse matrix."""
        return sparse.csr_matrix(self.coef_)


class Lasso(ElasticNet):
    """Linear regression with an L1 penalty, which sets coefficients to zero.

    Objective
    ---------
    ½·mean (y − Xw − b)² + alpha·‖w‖₁

    Certificate
    -----------
    ``duality_gap`` (PROVED), relative to the best constant model. Costs one pass over
    the data, a second if the target is missed.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty.
    fit_intercept, precompute, copy_X, max_iter, tol, warm_start, positive, \
random_state, selection, max_time
        As in :class:`ElasticNet`.

    Attributes
    ----------
    coef_, intercept_, sparse_coef_, dual_gap_, n_iter_, history_, certificate_
        As in :class:`ElasticNet`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from certus.linear import Lasso
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = Lasso(alpha=0.5).fit(X, y)
    >>> model.certificate_.met, int((model.coef_ != 0).sum())
    (True, 4)
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        precompute: Any = False,
        copy_X: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-6,
        warm_start: bool = False,
        positive: bool = False,
        random_state: Any = None,
        selection: str = "cyclic",
        max_time: float | None = None,
    ) -> None:
        super().__init__(
            alpha,
            l1_ratio=1.0,
            fit_intercept=fit_intercept,
            precompute=precompute,
            copy_X=copy_X,
            max_iter=max_iter,
            tol=tol,
            warm_start=warm_start,
            positive=positive,
            random_state=random_state,
            selection=selection,
            max_time=max_time,
        )


def fit_elastic_net(
    model: Any,
    X: Any,
    y: Array,
    s: Array | None,
    alpha: float,
    l1_ratio: float,
    start: Array | None = None,
) -> Fitted:
    """Solve into ``model`` for each target and say what is to be verified."""
    penalty = penalty_of(alpha, l1_ratio, model.positive)
    return fit_penalised(model, X, y, s, penalty, start)


def fit_penalised(
    model: Any,
    X: Any,
    y: Array,
    s: Array | None,
    penalty: Penalty,
    start: Array | None = None,
) -> Fitted:
    """Least squares with a penalty by coordinates, for each target by itself."""
    design = Design(X, s, centre=bool(model.fit_intercept))
    Y, mean = centred_target(design, y, bool(model.fit_intercept))
    monitor = Monitor(model, X, y, None, model.max_time)
    coef = np.zeros((Y.shape[1], design.d))
    statuses, steps, gaps = [], [], []
    for k in range(Y.shape[1]):
        first = None if start is None else np.atleast_2d(start)[k]

        def state(w: Array, k: int = k) -> dict[str, Any]:
            coef[k] = w
            return _attributes(coef, mean, design, y, X.dtype, model.fit_intercept)

        def on_step(objective: float, gap: float, w: Array, state: Any = state) -> Any:
            return monitor.step(objective, gap, lambda: state(w))

        if first is not None and first.shape != (design.d,):
            first = None
        limits = Limits(float(model.tol), int(model.max_iter), on_step)
        solution = minimise(design, Y[:, k], penalty, limits, first)
        coef[k] = solution.primal
        statuses.append(solution.status)
        steps.append(solution.n_iter)
        gaps.append(solution.gap * float(design.average(Y[:, k] ** 2)) / 2)
        if solution.status is Status.INTERRUPTED:
            break
    store_linear(model, coef, mean, design, y, X.dtype)
    single = len(coef) == 1
    model.n_iter_ = steps[0] if single else steps
    model.history_ = monitor.history
    monitor.close({"coef_": model.coef_, "intercept_": model.intercept_})
    worst = next((s for s in statuses if s is not Status.SOLVED), Status.SOLVED)
    model.dual_gap_ = gaps[0] if single else np.array(gaps)
    return Fitted(Evidence("linear"), X, y, s, worst)


def minimise(
    design: Design, y: Array, penalty: Penalty, limits: Limits, start: Array | None
) -> Solution:
    """Directly where the penalty is smooth, else by working sets."""
    if isinstance(penalty, L2 | NoPenalty):
        found = least_squares.solve(design, y[:, None], [penalty])
        return Solution(found.coef[0], 0.0, Status.SOLVED, 1)
    solver = QuadraticSolver(design, y)
    if start is not None:
        solver.start_from(start)
    return solver.solve(penalty, limits)


def _attributes(
    coef: Array, mean: Array, design: Design, y: Array, dtype: Any, intercept: bool
) -> dict[str, Any]:
    holder: Any = type("State", (), {"fit_intercept": intercept})()
    store_linear(holder, coef, mean, design, y, dtype)
    return {"coef_": holder.coef_, "intercept_": holder.intercept_}


def alpha_grid(
    design: Design,
    y: Array,
    l1_ratio: float,
    eps: float,
    n_alphas: int,
    positive: bool = False,
) -> Array:
    """From the smallest alpha that zeroes everything down to ``eps`` times it."""
    if l1_ratio == 0:
        raise ValueError(
            "Automatic alpha grid generation is not supported for l1_ratio=0. Please "
            "supply a grid by providing your estimator with the appropriate `alphas=` "
            "argument."
        )
    pull = design.t_dot(y)
    size = np.maximum(pull, 0.0) if positive else np.abs(pull)
    if pull.ndim == 2 and not positive:  # several tasks share their columns
        size = np.sqrt(np.square(pull).sum(axis=1))
    top = float(size.max(initial=0.0)) / l1_ratio
    if top <= np.finfo(float).resolution:
        return np.full(n_alphas, np.finfo(float).resolution)
    return np.geomspace(top, top * eps, n_alphas)


def elastic_net_path(
    design: Design,
    y: Array,
    alphas: Array,
    l1_ratio: float,
    tol: float,
    max_iter: int,
    start: Array | None = None,
    positive: bool = False,
) -> tuple[Array, Array, list[int]]:
    """Coefficients (d, n_alphas), relative gaps and rounds, warm-started downwards."""
    solver = QuadraticSolver(design, y)
    if start is not None:
        solver.start_from(start)
    coefs = np.zeros((design.d, len(alphas)))
    gaps, rounds = np.zeros(len(alphas)), []
    for i, alpha in enumerate(alphas):
        penalty = penalty_of(alpha, l1_ratio, positive)
        if isinstance(penalty, L2 | NoPenalty):
            coefs[:, i] = least_squares.solve(design, y[:, None], [penalty]).coef[0]
            rounds.append(1)
            continue
        solution = solver.solve(penalty, Limits(tol, max_iter))
        if solution.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        coefs[:, i] = solution.primal
        gaps[i] = solution.gap * solver.reference
        rounds.append(max(1, solution.n_iter))
    return coefs, gaps, rounds


def enet_path(
    X: Any,
    y: Any,
    *,
    l1_ratio: float = 0.5,
    eps: float = 1e-3,
    alphas: Any = 100,
    precompute: Any = "auto",
    Xy: Any = None,
    copy_X: bool = True,
    coef_init: Any = None,
    verbose: Any = False,
    return_n_iter: bool = False,
    positive: bool = False,
    check_input: bool = True,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> Any:
    """Elastic net at many strengths, each started from the last.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Training rows. No intercept is fitted: centre first if you need one.
    y : array-like of shape (n_samples,)
        Targets.
    l1_ratio : float, default=0.5
        Share of the L1 penalty.
    eps : float, default=1e-3
        Smallest alpha over the largest.
    alphas : int or array-like, default=100
        How many, or which ones; they are visited from large to small.
    precompute, Xy, copy_X, verbose, check_input
        Accepted for scikit-learn's sake.
    coef_init : array-like, optional
        Where to start.
    return_n_iter : bool, default=False
        Whether to return the rounds used.
    positive : bool, default=False
        Whether the coefficients are held non-negative.
    tol : float, default=1e-6
        Target of each relative gap.
    max_iter : int, default=1000
        Most rounds at each alpha.

    Returns
    -------
    alphas : ndarray of shape (n_alphas,)
        Decreasing.
    coefs : ndarray of shape (n_features, n_alphas)
        Coefficients.
    dual_gaps : ndarray of shape (n_alphas,)
        Gaps in the units of the objective.
    n_iters : list of int
        Only if ``return_n_iter``.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from certus.linear import enet_path
    >>> X, y = load_diabetes(return_X_y=True)
    >>> alphas, coefs, gaps = enet_path(X, y - y.mean(), alphas=5)
    >>> coefs.shape
    (10, 5)
    """
    check_number("l1_ratio", l1_ratio, 0, 1)
    X = check_array(X, accept_sparse="csc", dtype=[np.float64, np.float32])
    y = check_array(y, ensure_2d=False, dtype=X.dtype)
    if y.ndim != 1:
        raise NotImplementedError(
            "Paths for several targets are not available. Use "
            "sklearn.linear_model.enet_path, or one call per target."
        )
    check_consistent_length(X, y)
    design = Design(X, None, centre=False)
    target = y.astype(np.float64)
    if np.ndim(alphas) == 0:
        check_number("alphas", alphas, 1, integer=True)
        grid = alpha_grid(design, target, l1_ratio, eps, int(alphas), positive)
    else:
        grid = np.sort(number_array("alphas", alphas))[::-1]
    start = None if coef_init is None else np.asarray(coef_init, dtype=float)
    coefs, gaps, rounds = elastic_net_path(
        design, target, grid, l1_ratio, tol, max_iter, start, positive
    )
    result = (grid, coefs.astype(X.dtype), gaps)
    return (*result, rounds) if return_n_iter else result


def lasso_path(X: Any, y: Any, **options: Any) -> Any:
    """Lasso at many strengths: :func:`enet_path` with ``l1_ratio=1``.

    Parameters
    ----------
    X, y : array-like
        Training data; no intercept is fitted.
    **options
        As in :func:`enet_path`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from certus.linear import lasso_path
    >>> X, y = load_diabetes(return_X_y=True)
    >>> alphas, coefs, gaps = lasso_path(X, y - y.mean(), alphas=10)
    >>> [int(k) for k in (coefs != 0).sum(axis=0)]
    [0, 3, 4, 5, 7, 7, 8, 10, 9, 10]
    """
    return enet_path(X, y, l1_ratio=1.0, **options)
