"""Lasso and elastic net, with scikit-learn's parameters.

    ½·mean (y − Xw − b)² + alpha·l1_ratio·‖w‖₁ + ½·alpha·(1 − l1_ratio)·‖w‖²

weighted by ``sample_weight``. The mean is over Σs, so the objective is scikit-learn's
without translation. Solved by ``certus._solvers.lasso``.
"""

from __future__ import annotations

from typing import Any

from sklearn.base import MultiOutputMixin, RegressorMixin

from certus.base import Fitted, certified_fit, check_choice, check_number
from certus.blocks import Blocks
from certus.linear_model import by_blocks
from certus.linear_model.common import Summarised, check_limits
from certus.linear_model.paths import enet_path
from certus.linear_model.penalised import SparseRegressorBase, fit_penalised, penalty_of
from certus.linear_model.summarise import least_squares_summary
from certus.typing import ArrayLike, RandomState


class ElasticNet(MultiOutputMixin, RegressorMixin, Summarised, SparseRegressorBase):
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
        Strength of the penalty.
    l1_ratio : float, default=0.5
        Share of the L1 penalty, between 0 and 1.
    fit_intercept : bool, default=True
        Whether to fit an intercept b. It is not penalised.
    max_iter : int, default=1000
        Maximum number of iterations. They are rounds in which the working set grows.
    tol : float, default=1e-6
        Target of the certificate's primary claim.
    warm_start : bool, default=False
        Whether to start from the last fit.
    positive : bool, default=False
        Whether coefficients must be non-negative.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    precompute, copy_X, random_state, selection
        Not used; accepted for compatibility with scikit-learn.

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
    >>> from certus.linear_model import ElasticNet
    >>> X, y = load_diabetes(return_X_y=True)
    >>> ElasticNet(alpha=0.01).fit(X, y).certificate_.met
    True
    """

    _summarise = least_squares_summary
    path = staticmethod(enet_path)

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        precompute: bool | str | ArrayLike = False,
        max_iter: int = 1000,
        copy_X: bool = True,
        tol: float = 1e-6,
        warm_start: bool = False,
        positive: bool = False,
        random_state: RandomState = None,
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
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        check_input: bool = True,
    ) -> Any:
        """Fit to data.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; Fortran order or CSC is fastest.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets; several are fitted one by one.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        check_input : bool, default=True
            Not used; accepted for compatibility with scikit-learn.
        """
        self._check()
        X, y, s = self._validate_X_y(
            X, y, sample_weight, finite=False, multi_output=True, y_numeric=True
        )
        start = getattr(self, "coef_", None) if self.warm_start else None
        penalty = penalty_of(self.alpha, self.l1_ratio, self.positive)
        return fit_penalised(self, X, y, s, penalty, start)

    def _check(self) -> None:
        check_number("alpha", self.alpha)
        check_number("l1_ratio", self.l1_ratio, 0, 1)
        check_limits(self, 1)
        check_choice("selection", self.selection, ("cyclic", "random"))

    def _fit_blocks(self, table: Blocks) -> Fitted:
        self._check()
        penalty = penalty_of(self.alpha, self.l1_ratio, self.positive)
        return by_blocks.fit_penalised(self, table, penalty)


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
    >>> from certus.linear_model import Lasso
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
        precompute: bool | str | ArrayLike = False,
        copy_X: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-6,
        warm_start: bool = False,
        positive: bool = False,
        random_state: RandomState = None,
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
