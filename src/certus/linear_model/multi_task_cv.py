"""Multi-task lasso and elastic net with their strength chosen by cross-validation."""

from __future__ import annotations

from typing import Any

from sklearn.base import MultiOutputMixin

from certus.linear_model.lasso_cv import ElasticNetCV
from certus.linear_model.multi_task import of_tasks, require_tasks
from certus.linear_model.paths import lasso_path
from certus.typing import Array, ArrayLike, RandomState


class MultiTaskElasticNetCV(MultiOutputMixin, ElasticNetCV):
    """Multi-task elastic net that chooses ``alpha`` and ``l1_ratio`` on folds.

    Objective
    ---------
    As :class:`MultiTaskElasticNet`, at the pair with the least mean squared error over
    the folds and tasks.

    Certificate
    -----------
    ``duality_gap`` (PROVED) of the final fit. The choice itself is measured, not
    certified.

    Parameters
    ----------
    l1_ratio, eps, alphas, fit_intercept, max_iter, tol, cv, copy_X, verbose, n_jobs, \
random_state, selection, max_time
        As in :class:`ElasticNetCV`.

    Attributes
    ----------
    coef_ : ndarray of shape (n_tasks, n_features)
        Coefficients.
    intercept_ : ndarray of shape (n_tasks,)
        Constants.
    alpha_, l1_ratio_, alphas_, mse_path_, dual_gap_, n_iter_, certificate_
        As in :class:`ElasticNetCV`.

    Examples
    --------
    >>> from sklearn.datasets import load_linnerud
    >>> from certus.linear_model import MultiTaskElasticNetCV
    >>> X, Y = load_linnerud(return_X_y=True)
    >>> model = MultiTaskElasticNetCV(cv=3, alphas=10).fit(X, Y)
    >>> model.certificate_.met, model.mse_path_.shape
    (True, (10, 3))
    """

    positive = False
    precompute = "auto"
    _tasks = True

    def __init__(
        self,
        *,
        l1_ratio: ArrayLike = 0.5,
        eps: float = 1e-3,
        alphas: Any = 100,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-6,
        cv: Any = None,
        copy_X: bool = True,
        verbose: bool | int = 0,
        n_jobs: int | None = None,
        random_state: RandomState = None,
        selection: str = "cyclic",
        max_time: float | None = None,
    ) -> None:
        self.l1_ratio = l1_ratio
        self.eps = eps
        self.alphas = alphas
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.cv = cv
        self.copy_X = copy_X
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.selection = selection
        self.max_time = max_time

    def _check_target(self, y: Array) -> None:
        require_tasks(self, y)

    def __sklearn_tags__(self) -> Any:
        return of_tasks(super().__sklearn_tags__())


class MultiTaskLassoCV(MultiTaskElasticNetCV):
    """Multi-task lasso that chooses ``alpha`` by cross-validation.

    Objective
    ---------
    As :class:`MultiTaskLasso`, at the alpha with the least mean squared error over the
    folds and tasks.

    Certificate
    -----------
    ``duality_gap`` (PROVED) of the final fit.

    Parameters
    ----------
    eps, alphas, fit_intercept, max_iter, tol, copy_X, cv, verbose, n_jobs, \
random_state, selection, max_time
        As in :class:`ElasticNetCV`.

    Attributes
    ----------
    coef_, intercept_, alpha_, alphas_, mse_path_, dual_gap_, n_iter_, certificate_
        As in :class:`MultiTaskElasticNetCV`.

    Examples
    --------
    >>> from sklearn.datasets import load_linnerud
    >>> from certus.linear_model import MultiTaskLassoCV
    >>> X, Y = load_linnerud(return_X_y=True)
    >>> model = MultiTaskLassoCV(cv=3, alphas=10).fit(X, Y)
    >>> model.certificate_.met, model.coef_.shape
    (True, (3, 3))
    """

    path = staticmethod(lasso_path)

    def __init__(
        self,
        *,
        eps: float = 1e-3,
        alphas: Any = 100,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-6,
        copy_X: bool = True,
        cv: Any = None,
        verbose: bool | int = False,
        n_jobs: int | None = None,
        random_state: RandomState = None,
        selection: str = "cyclic",
        max_time: float | None = None,
    ) -> None:
        super().__init__(
            l1_ratio=1.0,
            eps=eps,
            alphas=alphas,
            fit_intercept=fit_intercept,
            max_iter=max_iter,
            tol=tol,
            cv=cv,
            copy_X=copy_X,
            verbose=verbose,
            n_jobs=n_jobs,
            random_state=random_state,
            selection=selection,
            max_time=max_time,
        )
