"""Lasso and elastic net with their strength chosen by cross-validation.

On each fold one warm-started path serves all strengths; the strength with the least
mean squared error over the folds is fitted on all rows, and that fit is certified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.model_selection import check_cv
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping

from certus._solvers.design import Design
from certus._solvers.problem import Start
from certus.base import certified_fit, check_choice, check_number
from certus.callbacks import Monitor
from certus.linear_model.common import (
    LeastSquaresBase,
    centred_target,
    check_limits,
    limits_of,
    number_array,
    route_metadata,
)
from certus.linear_model.paths import alpha_grid, enet_path, lasso_path
from certus.linear_model.penalised import (
    Minimiser,
    fit_penalised,
    penalty_of,
    penalty_path,
)
from certus.objectives import Penalty
from certus.typing import Array, ArrayLike, Matrix, MatrixLike, RandomState


class ElasticNetCV(RegressorMixin, LeastSquaresBase):
    """Elastic net that chooses ``alpha`` and ``l1_ratio`` by cross-validation.

    Objective
    ---------
    As :class:`ElasticNet`, at the pair with the least mean squared error on the folds.

    Certificate
    -----------
    ``duality_gap`` (PROVED) of the final fit. The choice itself is measured, not
    certified.

    Parameters
    ----------
    l1_ratio : float or list of float, default=0.5
        Share of the L1 penalty, between 0 and 1. A list is compared.
    eps : float, default=1e-3
        Smallest alpha of the grid over the largest.
    alphas : int or array-like, default=100
        Strengths of the penalty to compare. A number of them, or the values.
    fit_intercept : bool, default=True
        Whether to fit an intercept b. It is not penalised.
    max_iter : int, default=1000
        Maximum number of iterations. They are rounds at each strength.
    tol : float, default=1e-6
        Target of the certificate's primary claim. It also bounds every gap on the
        paths.
    cv : int, splitter or iterable, default=None
        Folds of the cross-validation. None means five.
    positive : bool, default=False
        Whether coefficients must be non-negative.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has. No further fold is
        begun then.
    precompute, copy_X, verbose, random_state, selection, n_jobs
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    alpha_, l1_ratio_ : float
        The choice.
    alphas_ : ndarray
        Strengths compared; one row per ``l1_ratio`` if these have grids of their own.
    mse_path_ : ndarray of shape ([n_l1_ratio,] n_alphas, n_folds)
        Mean squared errors.
    coef_, intercept_, dual_gap_, n_iter_, history_, certificate_
        As in :class:`ElasticNet`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from certus.linear_model import ElasticNetCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> ElasticNetCV(l1_ratio=[0.5, 1.0], cv=3).fit(X, y).l1_ratio_
    1.0
    """

    path = staticmethod(enet_path)

    def __init__(
        self,
        *,
        l1_ratio: ArrayLike = 0.5,
        eps: float = 1e-3,
        alphas: Any = 100,
        fit_intercept: bool = True,
        precompute: bool | str | ArrayLike = "auto",
        max_iter: int = 1000,
        tol: float = 1e-6,
        cv: Any = None,
        copy_X: bool = True,
        verbose: int = 0,
        n_jobs: int | None = None,
        positive: bool = False,
        random_state: RandomState = None,
        selection: str = "cyclic",
        max_time: float | None = None,
    ) -> None:
        self.l1_ratio = l1_ratio
        self.eps = eps
        self.alphas = alphas
        self.fit_intercept = fit_intercept
        self.precompute = precompute
        self.max_iter = max_iter
        self.tol = tol
        self.cv = cv
        self.copy_X = copy_X
        self.verbose = verbose
        self.n_jobs = n_jobs
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
        **params: Any,
    ) -> Any:
        """Choose the strength and fit.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Target.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. They are used in fitting and in the errors.
        **params : dict
            ``groups``, passed to the splitter where scikit-learn's metadata routing
            is enabled.
        """
        ratios = number_array("l1_ratio", self.l1_ratio, low=0, high=1).tolist()
        check_number("eps", self.eps, open_low=True)
        check_limits(self, 1)
        check_choice("selection", self.selection, ("cyclic", "random"))
        routed = route_metadata(self, params, sample_weight=sample_weight)
        X, y, s = self._validate_X_y(
            X, y, sample_weight, y_numeric=True, multi_output=self._tasks
        )
        self._check_target(y)
        options = routed.splitter.split if routed else {}
        folds = list(check_cv(self.cv).split(X, y, **options))
        grids = [self._grid(X, y, s, ratio) for ratio in ratios]
        self.mse_path_ = np.empty((len(ratios), len(grids[0]), len(folds)))
        monitor = Monitor(self, X, y, max_iter=len(folds))

        def work(f: int) -> None:
            train, test = folds[f]
            for r, ratio in enumerate(ratios):
                errors = self._errors(X, y, s, train, test, grids[r], ratio)
                self.mse_path_[r, :, f] = errors

        done, ended = monitor.run_folds(len(folds), work, self.max_time)
        self.mse_path_ = self.mse_path_[:, :, :done]
        mean = self.mse_path_.mean(axis=2)
        best_ratio, best_alpha = np.unravel_index(mean.argmin(), mean.shape)
        self.alpha_ = float(grids[best_ratio][best_alpha])
        self.l1_ratio_ = ratios[best_ratio]
        same = len(ratios) == 1 or np.ndim(self.alphas) > 0
        self.alphas_ = grids[0] if same else np.array(grids)
        if len(ratios) == 1:
            self.mse_path_ = self.mse_path_[0]
        penalty = self._penalty(self.alpha_, self.l1_ratio_)
        fitted = fit_penalised(self, X, y, s, penalty, joint=self._tasks)
        return fitted if ended is None else fitted._replace(status=ended)

    def get_metadata_routing(self) -> MetadataRouter:
        """Tell scikit-learn which arguments of ``fit`` go to the splitter."""
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(
                splitter=check_cv(self.cv),
                method_mapping=MethodMapping().add(caller="fit", callee="split"),
            )
        )

    # What the multi-task form does in its own way.

    _tasks = False  # whether several targets share their columns

    def _check_target(self, y: Array) -> None:
        """One target, as it was validated."""

    def _penalty(self, alpha: float, ratio: float) -> Penalty:
        return penalty_of(alpha, ratio, self.positive, self._tasks)

    def _grid(self, X: MatrixLike, y: Array, s: Array | None, ratio: float) -> Array:
        if np.ndim(self.alphas) > 0:
            return np.sort(number_array("alphas", self.alphas))[::-1]
        check_number("alphas", self.alphas, 1, integer=True)
        design = Design(X, s, centre=self.fit_intercept)
        Y, _ = centred_target(design, y, self.fit_intercept)
        positive = bool(getattr(self, "positive", False))
        return alpha_grid(design, Y, ratio, self.eps, int(self.alphas), positive)

    def _errors(
        self,
        X: Matrix,
        y: Array,
        s: Array | None,
        train: Array,
        test: Array,
        grid: Array,
        ratio: float,
    ) -> Array:
        """Mean squared errors on one fold, one for each strength."""
        total = np.zeros(len(grid))
        weight = np.ones(len(test)) if s is None else s[test]
        for at, z in self._predicted(X, y, s, train, test, grid, ratio):
            z -= y[test[at]].reshape(len(z), -1, 1)
            np.square(z, out=z)
            total += weight[at] @ z.mean(axis=1)
        return np.asarray(total / weight.sum())

    def _predicted(
        self,
        X: Matrix,
        y: Array,
        s: Array | None,
        train: Array,
        test: Array,
        grid: Array,
        ratio: float,
    ) -> Iterator[tuple[slice, Array]]:
        """Runs of the rows of ``test``: their predictions, by targets and strengths."""
        part = None if s is None else s[train]
        if part is not None and part.sum() <= 0:
            raise ValueError("a training fold has no row with a positive weight.")
        rows = X.tocsr()[train] if hasattr(X, "tocsr") else X[train]
        if not hasattr(rows, "tocsr"):
            rows = np.asfortranarray(rows)
        design = Design(rows, part, centre=self.fit_intercept)
        Y, mean = centred_target(design, y[train], self.fit_intercept)
        penalties = [self._penalty(alpha, ratio) for alpha in grid]
        path = penalty_path(Minimiser(design, Y), penalties, Start(), limits_of(self))
        coefs = path.coefs
        offset = mean[:, None] - np.tensordot(design.mean, coefs, axes=1)
        flat = coefs.reshape(len(coefs), -1)
        del design, rows
        block = max(1, (1 << 20) // flat.shape[1])  # rows × targets × alphas
        for i in range(0, len(test), block):
            at = slice(i, i + block)
            held = X.tocsr()[test[at]] if hasattr(X, "tocsr") else X[test[at]]
            z = (held @ flat).reshape(held.shape[0], *offset.shape)
            z += offset
            yield at, z


class LassoCV(ElasticNetCV):
    """Lasso that chooses ``alpha`` by cross-validation.

    Objective
    ---------
    As :class:`Lasso`, at the alpha with the least mean squared error on the folds.

    Certificate
    -----------
    ``duality_gap`` (PROVED) of the final fit.

    Parameters
    ----------
    eps, alphas, fit_intercept, precompute, max_iter, tol, copy_X, cv, verbose, \
n_jobs, positive, random_state, selection, max_time
        As in :class:`ElasticNetCV`.

    Attributes
    ----------
    alpha_, alphas_, mse_path_, coef_, intercept_, dual_gap_, n_iter_, certificate_
        As in :class:`ElasticNetCV`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from certus.linear_model import LassoCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = LassoCV(cv=5, alphas=20).fit(X, y)
    >>> model.certificate_.met, model.mse_path_.shape
    (True, (20, 5))
    """

    path = staticmethod(lasso_path)

    def __init__(
        self,
        *,
        eps: float = 1e-3,
        alphas: Any = 100,
        fit_intercept: bool = True,
        precompute: bool | str | ArrayLike = "auto",
        max_iter: int = 1000,
        tol: float = 1e-6,
        copy_X: bool = True,
        cv: Any = None,
        verbose: bool | int = False,
        n_jobs: int | None = None,
        positive: bool = False,
        random_state: RandomState = None,
        selection: str = "cyclic",
        max_time: float | None = None,
    ) -> None:
        super().__init__(
            l1_ratio=1.0,
            eps=eps,
            alphas=alphas,
            fit_intercept=fit_intercept,
            precompute=precompute,
            max_iter=max_iter,
            tol=tol,
            cv=cv,
            copy_X=copy_X,
            verbose=verbose,
            n_jobs=n_jobs,
            positive=positive,
            random_state=random_state,
            selection=selection,
            max_time=max_time,
        )


def lasso_losses(
    X: Matrix,
    y: Array,
    folds: Sequence[tuple[Array, Array]],
    n_alphas: int,
    loss: Callable[[Array, Array], float],
) -> tuple[Array, Array]:
    """Strengths, and the mean of any loss over the folds at each of them.

    ``loss(truth, predicted)`` judges the held-out rows of a fold. As in
    :class:`LassoCV`, one path for each fold serves all strengths.
    """
    search = LassoCV(alphas=n_alphas)
    alphas = search._grid(X, y, None, 1.0)
    total = np.zeros(len(alphas))
    for train, test in folds:
        runs = search._predicted(X, y, None, train, test, alphas, 1.0)
        z = np.concatenate([run[:, 0] for _, run in runs])
        total += [loss(y[test], z[:, k]) for k in range(len(alphas))]
    return alphas, total / len(folds)
