"""Lasso, elastic net and their multi-task forms at many strengths.

    ½·mean ‖yᵢ − xᵢᵀW‖² + alpha·l1_ratio·Ω(W) + ½·alpha·(1 − l1_ratio)·‖W‖²

with Ω = ‖w‖₁ for one target and Σⱼ‖Wⱼ‖ for several, as in scikit-learn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, check_consistent_length

from certus._solvers.design import Design
from certus._solvers.problem import SolverLimits, Start
from certus.base import check_number
from certus.linear_model.common import number_array
from certus.linear_model.penalised import Minimiser, penalty_of, penalty_path
from certus.typing import Array, ArrayLike, MatrixLike


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
    y : array-like of shape (n_samples,) or (n_samples, n_targets)
        Targets; several share their columns, as in :class:`MultiTaskElasticNet`.
    l1_ratio : float, default=0.5
        Share of the L1 penalty.
    eps : float, default=1e-3
        Smallest alpha over the largest.
    alphas : int or array-like, default=100
        How many, or which ones; they are visited from large to small.
    precompute, Xy, copy_X, verbose, check_input
        Not used; accepted for compatibility with scikit-learn.
    coef_init : array-like of shape (n_features,) or (n_targets, n_features), optional
        Where to start.
    return_n_iter : bool, default=False
        Whether to return the rounds used.
    positive : bool, default=False
        Whether the coefficients are held non-negative; for one target.
    tol : float, default=1e-6
        Target of each relative gap.
    max_iter : int, default=1000
        Most rounds at each alpha.

    Returns
    -------
    alphas : ndarray of shape (n_alphas,)
        Decreasing.
    coefs : ndarray of shape (n_features, n_alphas)
        Coefficients; (n_targets, n_features, n_alphas) for several targets.
    dual_gaps : ndarray of shape (n_alphas,)
        Gaps in the units of the objective.
    n_iters : list of int
        Only if ``return_n_iter``.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from certus.linear_model import enet_path
    >>> X, y = load_diabetes(return_X_y=True)
    >>> alphas, coefs, gaps = enet_path(X, y - y.mean(), alphas=5)
    >>> coefs.shape
    (10, 5)
    """
    check_number("l1_ratio", l1_ratio, 0, 1)
    X = check_array(X, accept_sparse="csc", dtype=[np.float64, np.float32])
    y = check_array(y, ensure_2d=False, dtype=X.dtype)
    tasks = y.ndim != 1
    if tasks and positive:
        raise ValueError("positive=True is not allowed for multi-output (y.ndim != 1)")
    check_consistent_length(X, y)
    design = Design(X, None, centre=False)
    target = y.astype(np.float64)
    if np.ndim(alphas) == 0:
        check_number("alphas", alphas, 1, integer=True)
        grid = alpha_grid(design, target, l1_ratio, eps, int(alphas), positive)
    else:
        grid = np.sort(number_array("alphas", alphas))[::-1]
    start = None if coef_init is None else np.asarray(coef_init, dtype=float).T
    penalties = [penalty_of(alpha, l1_ratio, positive, tasks) for alpha in grid]
    minimiser = Minimiser(design, target.reshape(len(target), -1))
    found = penalty_path(
        minimiser, penalties, Start(start), SolverLimits(tol, max_iter)
    )
    coefs = found.coefs.swapaxes(0, 1) if tasks else found.coefs[:, 0]
    result = (grid, coefs.astype(X.dtype), found.gaps)
    return (*result, found.rounds) if return_n_iter else result


def lasso_path(X: MatrixLike, y: ArrayLike, **options: Any) -> Any:
    """Lasso at many strengths: :func:`enet_path` with ``l1_ratio=1``.

    Parameters
    ----------
    X, y : array-like
        Training data; no intercept is fitted. Several targets share their columns.
    **options
        As in :func:`enet_path`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from certus.linear_model import lasso_path
    >>> X, y = load_diabetes(return_X_y=True)
    >>> alphas, coefs, gaps = lasso_path(X, y - y.mean(), alphas=10)
    >>> [int(k) for k in (coefs != 0).sum(axis=0)]
    [0, 3, 4, 5, 7, 7, 8, 10, 9, 10]
    """
    return enet_path(X, y, l1_ratio=1.0, **options)
