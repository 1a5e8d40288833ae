"""Lasso with a level for each column, and lasso over groups of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin

from certus.base import certified_fit, check_number
from certus.linear_model.common import check_limits, number_array
from certus.linear_model.penalised import SparseRegressorBase, fit_penalised
from certus.objectives import Group, NoPenalty, Penalty, WeightedL1
from certus.typing import Array, ArrayLike


class WeightedLasso(MultiOutputMixin, RegressorMixin, SparseRegressorBase):
    """Linear regression with an L1 penalty that has a weight for each column.

    Objective
    ---------
    ½·mean (y − Xw − b)² + alpha·Σⱼ weightsⱼ·abs(wⱼ)

    Certificate
    -----------
    ``duality_gap`` (PROVED), relative to the best constant model. Costs one pass over
    the data.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty.
    weights : array-like of shape (n_features,), default=None
        Weight of each column in the penalty. Positive; None means all one, as in
        :class:`Lasso`.
    fit_intercept, max_iter, tol, warm_start, max_time
        As in :class:`ElasticNet`.

    Attributes
    ----------
    coef_, intercept_, sparse_coef_, dual_gap_, n_iter_, history_, certificate_
        As in :class:`ElasticNet`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_diabetes
    >>> from certus.linear_model import Lasso, WeightedLasso
    >>> X, y = load_diabetes(return_X_y=True)
    >>> first = Lasso(alpha=0.5).fit(X, y)  # the adaptive lasso: a second look
    >>> model = WeightedLasso(0.5, weights=100 / (np.abs(first.coef_) + 1)).fit(X, y)
    >>> model.certificate_.met, int((model.coef_ != 0).sum())
    (True, 3)
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        weights: ArrayLike | None = None,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-6,
        warm_start: bool = False,
        max_time: float | None = None,
    ) -> None:
        self.alpha = alpha
        self.weights = weights
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Any:
        """Fit to data.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; Fortran order or CSC is fastest.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets; several are fitted one by one.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        """
        check_number("alpha", self.alpha)
        check_limits(self, 1)
        X, y, s = self._validate_X_y(
            X, y, sample_weight, finite=False, multi_output=True, y_numeric=True
        )
        start = getattr(self, "coef_", None) if self.warm_start else None
        penalty = self._penalty(X.shape[1])
        return fit_penalised(self, X, y, s, penalty, start)

    def _penalty(self, d: int) -> Penalty:
        weights = np.ones(d)
        if self.weights is not None:
            weights = number_array("weights", self.weights, open_low=True)
        if len(weights) != d:
            raise ValueError(
                f"weights has {len(weights)} entries for {d} columns; pass one each."
            )
        levels = float(self.alpha) * weights
        return WeightedL1(tuple(levels.tolist())) if self.alpha > 0 else NoPenalty()


class GroupLasso(RegressorMixin, SparseRegressorBase):
    """Linear regression that uses groups of columns as a whole or not at all.

    Objective
    ---------
    ½·mean (y − Xw − b)² + alpha·Σ_g ‖w_g‖ over the groups g of columns.

    Certificate
    -----------
    ``duality_gap`` (PROVED), relative to the best constant model. Costs one pass over
    the data.

    Parameters
    ----------
    groups : int, list of int or list of lists of int, default=1
        A size: consecutive groups of that many columns; sizes of consecutive groups;
        or the columns of each group. Every column belongs to one group.
    alpha : float, default=1.0
        Strength of the penalty.
    fit_intercept, max_iter, tol, warm_start, max_time
        As in :class:`ElasticNet`.

    Attributes
    ----------
    groups_ : ndarray of shape (n_features,)
        The group of each column, numbered from 0.
    coef_, intercept_, sparse_coef_, dual_gap_, n_iter_, history_, certificate_
        As in :class:`ElasticNet`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from certus.linear_model import GroupLasso
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = GroupLasso([[0, 1], [2, 3], [4, 5, 6, 7, 8, 9]], alpha=1.0).fit(X, y)
    >>> model.certificate_.met, (model.coef_ != 0)[[0, 2, 4]].tolist()
    (True, [False, True, True])
    """

    def __init__(
        self,
        groups: Any = 1,
        *,
        alpha: float = 1.0,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-6,
        warm_start: bool = False,
        max_time: float | None = None,
    ) -> None:
        self.groups = groups
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Any:
        """Fit to data.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; Fortran order or CSC is fastest.
        y : array-like of shape (n_samples,)
            Target.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        """
        check_number("alpha", self.alpha)
        check_limits(self, 1)
        X, y, s = self._validate_X_y(X, y, sample_weight, finite=False, y_numeric=True)
        self.groups_ = group_numbers(self.groups, X.shape[1])
        start = getattr(self, "coef_", None) if self.warm_start else None
        penalty: Penalty = NoPenalty()
        if self.alpha > 0:
            penalty = Group(float(self.alpha), tuple(self.groups_.tolist()))
        return fit_penalised(self, X, y, s, penalty, start, joint=True)


def group_numbers(groups: Any, d: int) -> Array:
    """The group of each of ``d`` columns, from a size, sizes or lists of columns."""
    if not np.iterable(groups):
        check_number("groups", groups, 1, integer=True)
        if d % int(groups):
            raise ValueError(
                f"groups={groups} does not divide {d} columns; pass the size of each "
                "group, or the columns of each."
            )
        return np.arange(d) // int(groups)
    parts = list(groups)
    if not parts:
        raise ValueError("groups is empty; pass at least one group.")
    if not any(np.iterable(part) for part in parts):
        for i, size in enumerate(parts):
            check_number(f"groups[{i}]", size, 1, integer=True)
        if sum(parts) != d:
            raise ValueError(f"the sizes in groups add up to {sum(parts)}, not to {d}.")
        return np.repeat(np.arange(len(parts)), [int(size) for size in parts])
    columns = np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])
    if not np.array_equal(np.sort(columns), np.arange(d)):
        raise ValueError(
            f"groups must hold each of the columns 0 to {d - 1} exactly once; they "
            f"have {len(columns)} entries."
        )
    out = np.empty(d, dtype=np.int64)
    out[columns] = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return out
