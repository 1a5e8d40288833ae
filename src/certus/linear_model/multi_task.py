"""Several targets that share their columns: multi-task lasso and elastic net.

    ½·mean ‖yᵢ − xᵢᵀW − b‖² + alpha·l1_ratio·Σⱼ‖Wⱼ‖ + ½·alpha·(1 − l1_ratio)·‖W‖²

with Wⱼ the coefficients of column j for all tasks. Solved by
``certus._solvers.blocks``.
"""

from __future__ import annotations

from typing import Any

from sklearn.base import MultiOutputMixin, RegressorMixin

from certus.base import Estimator, certified_fit, check_choice, check_number
from certus.linear_model.common import check_limits
from certus.linear_model.paths import enet_path
from certus.linear_model.penalised import SparseRegressorBase, fit_penalised, penalty_of
from certus.typing import Array, ArrayLike, RandomState


class MultiTaskElasticNet(MultiOutputMixin, RegressorMixin, SparseRegressorBase):
    """Linear regression of several targets that use the same few columns.

    Objective
    ---------
    ½·mean ‖yᵢ − xᵢᵀW − b‖² + alpha·l1_ratio·Σⱼ‖Wⱼ‖ + ½·alpha·(1 − l1_ratio)·‖W‖², Wⱼ
    being the coefficients of column j for all tasks: a column is used by all or none.

    Certificate
    -----------
    ``duality_gap`` (PROVED), relative to the best constant model. Costs one pass over
    the data.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty.
    l1_ratio : float, default=0.5
        Share of the L1 penalty, between 0 and 1. It is the penalty on the norms of
        rows.
    fit_intercept, copy_X, max_iter, tol, warm_start, random_state, selection, max_time
        As in :class:`ElasticNet`.

    Attributes
    ----------
    coef_ : ndarray of shape (n_tasks, n_features)
        Coefficients.
    intercept_ : ndarray of shape (n_tasks,)
        Constants.
    sparse_coef_, dual_gap_, n_iter_, history_, certificate_
        As in :class:`ElasticNet`.

    Examples
    --------
    >>> from sklearn.datasets import load_linnerud
    >>> from certus.linear_model import MultiTaskElasticNet
    >>> X, Y = load_linnerud(return_X_y=True)
    >>> model = MultiTaskElasticNet(alpha=10.0).fit(X, Y)
    >>> model.certificate_.met, model.coef_.shape
    (True, (3, 3))
    """

    path = staticmethod(enet_path)

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        copy_X: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-6,
        warm_start: bool = False,
        random_state: RandomState = None,
        selection: str = "cyclic",
        max_time: float | None = None,
    ) -> None:
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.copy_X = copy_X
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.random_state = random_state
        self.selection = selection
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Any:
        """Fit to data.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; Fortran order or CSC is fastest.
        y : array-like of shape (n_samples, n_tasks)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        """
        check_number("alpha", self.alpha)
        check_number("l1_ratio", self.l1_ratio, 0, 1)
        check_limits(self, 1)
        check_choice("selection", self.selection, ("cyclic", "random"))
        X, y, s = self._validate_X_y(
            X, y, sample_weight, finite=False, multi_output=True, y_numeric=True
        )
        require_tasks(self, y)
        start = getattr(self, "coef_", None) if self.warm_start else None
        penalty = penalty_of(self.alpha, self.l1_ratio, tasks=True)
        return fit_penalised(self, X, y, s, penalty, start, joint=True)

    def __sklearn_tags__(self) -> Any:
        return of_tasks(super().__sklearn_tags__())


class MultiTaskLasso(MultiTaskElasticNet):
    """Linear regression of several targets that use the same few columns.

    Objective
    ---------
    ½·mean ‖yᵢ − xᵢᵀW − b‖² + alpha·Σⱼ‖Wⱼ‖, Wⱼ being the coefficients of column j for
    all tasks.

    Certificate
    -----------
    ``duality_gap`` (PROVED), relative to the best constant model. Costs one pass over
    the data.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty.
    fit_intercept, copy_X, max_iter, tol, warm_start, random_state, selection, max_time
        As in :class:`MultiTaskElasticNet`.

    Attributes
    ----------
    coef_, intercept_, sparse_coef_, dual_gap_, n_iter_, history_, certificate_
        As in :class:`MultiTaskElasticNet`.

    Examples
    --------
    >>> from sklearn.datasets import load_linnerud
    >>> from certus.linear_model import MultiTaskLasso
    >>> X, Y = load_linnerud(return_X_y=True)
    >>> model = MultiTaskLasso(alpha=100.0).fit(X, Y)
    >>> model.certificate_.met, (model.coef_ != 0).any(axis=0).tolist()
    (True, [False, True, False])
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        copy_X: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-6,
        warm_start: bool = False,
        random_state: RandomState = None,
        selection: str = "cyclic",
        max_time: float | None = None,
    ) -> None:
        super().__init__(
            alpha,
            l1_ratio=1.0,
            fit_intercept=fit_intercept,
            copy_X=copy_X,
            max_iter=max_iter,
            tol=tol,
            warm_start=warm_start,
            random_state=random_state,
            selection=selection,
            max_time=max_time,
        )


def require_tasks(model: Estimator, y: Array) -> None:
    """Scikit-learn's error for a flat target."""
    if y.ndim == 1:
        single = type(model).__name__.removeprefix("MultiTask")
        raise ValueError(f"For mono-task outputs, use {single}")


def of_tasks(tags: Any) -> Any:
    """Tags of estimators that require several targets."""
    tags.target_tags.multi_output = True
    tags.target_tags.single_output = False
    return tags
