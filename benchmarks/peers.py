"""How each contender fits each kind of problem.

Every function takes a ``Problem`` and a tolerance in the contender's own meaning and
returns a ``Fit``. Imports sit inside: a contender runs in a process of its own, where
only the libraries it needs are loaded, because import order changes threading. The few
lines marked as references show the floor; they are not peers.
"""

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np


@dataclass
class Problem:
    """One fit: min mean loss + penalty, normalised as ``certus.objectives`` does."""

    X: Any
    y: Any
    terms: Any  # (loss, penalty); a function of alpha where the fit chooses alpha
    fit_intercept: bool = False
    alpha: float = 0.0  # as the penalty in ``certus.objectives`` has it
    alphas: Any = None  # a path's grid or a cross-validation's candidates
    queries: Any = None  # points to predict
    judge: Any = None  # (problem, fit) -> gap, where coefficients alone do not tell


class Fit(NamedTuple):
    """What was found; ``coef`` has one column per alpha for a path."""

    coef: Any
    intercept: Any = None
    certificate_seconds: float | None = None
    alpha: float | None = None


def read(model: Any, p: Problem) -> Fit:
    """The coefficients of a fitted model with scikit-learn's attributes."""
    coef = np.asarray(model.coef_)
    if coef.ndim == 2 and coef.shape[0] == 1:
        coef = coef[0]
    intercept = None
    if p.fit_intercept:
        intercept = float(np.ravel(model.intercept_)[0])
    certificate = getattr(model, "certificate_", None)
    seconds = None if certificate is None else float(certificate.seconds)
    alpha = getattr(model, "alpha_", None)
    return Fit(coef, intercept, seconds, None if alpha is None else float(alpha))


def _linear_model(library: str) -> Any:
    """``linear_model`` of scikit-learn, its accelerated twin, or ours."""
    from importlib import import_module

    return import_module(
        {"certus": "certus.linear_model"}.get(library, f"{library}.linear_model")
    )


def ols(library: str, **params: Any) -> Any:
    def fit(p: Problem, tol: float) -> Fit:
        extra = {"tol": tol} if library == "certus" else {}
        cls = _linear_model(library).LinearRegression
        return read(cls(fit_intercept=False, **params, **extra).fit(p.X, p.y), p)

    return fit


def ridge(library: str, alpha: float = 1.0, **params: Any) -> Any:
    def fit(p: Problem, tol: float) -> Fit:
        cls = _linear_model(library).Ridge
        model = cls(alpha=alpha, fit_intercept=p.fit_intercept, tol=tol, **params)
        return read(model.fit(p.X, p.y), p)

    return fit


def ridge_cv(library: str) -> Any:
    def fit(p: Problem, tol: float) -> Fit:
        return read(_linear_model(library).RidgeCV(alphas=p.alphas).fit(p.X, p.y), p)

    return fit


def ridge_grid_search(p: Problem, tol: float) -> Fit:
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import GridSearchCV

    grid = {"alpha": p.alphas}
    search = GridSearchCV(
        Ridge(solver="cholesky"), grid, cv=5, scoring="neg_mean_squared_error"
    ).fit(p.X, p.y)
    return read(search.best_estimator_, p)._replace(alpha=search.best_params_["alpha"])


def statsmodels_ols(p: Problem, tol: float) -> Fit:
    import statsmodels.api as sm

    return Fit(sm.OLS(p.y, p.X).fit().params)


def normal_equations(p: Problem, tol: float) -> Fit:
    """Reference: Gram matrix and Cholesky; ridge with the mean as a rank-1 term."""
    from scipy.linalg import cho_factor, cho_solve

    n, d = p.X.shape
    G, c = p.X.T @ p.X, p.X.T @ p.y
    if not p.fit_intercept:
        return Fit(cho_solve(cho_factor(G), c))
    mean, mean_y = p.X.mean(0), p.y.mean()
    G -= n * np.outer(mean, mean)
    G.flat[:: d + 1] += p.alpha * n
    w = cho_solve(cho_factor(G), c - n * mean_y * mean)
    return Fit(w, float(mean_y - mean @ w))


def fold_grams(p: Problem, tol: float) -> Fit:
    """Reference: 5-fold scores of every alpha from one eigendecomposition a fold."""
    n, d = p.X.shape
    Z = np.column_stack([p.X, np.ones(n), p.y])
    folds = np.array_split(np.arange(n), 5)
    grams = [Z[f[0] : f[-1] + 1].T @ Z[f[0] : f[-1] + 1] for f in folds]
    total = sum(grams)

    def solve(M: Any, alphas: Any) -> tuple[Any, Any]:
        m, sx, sy = M[d, d], M[d, :d], M[d, d + 1]
        values, V = np.linalg.eigh(M[:d, :d] - np.outer(sx, sx) / m)
        rhs = V.T @ (M[:d, d + 1] - sx * sy / m)
        W = V @ (rhs[:, None] / (values[:, None] + np.asarray(alphas)))
        return W, (sy - sx @ W) / m

    errors = np.zeros(len(p.alphas))
    for gram in grams:
        W, b = solve(total - gram, p.alphas)
        U = np.vstack([W, b, -np.ones(len(b))])
        errors += np.einsum("ij,ij->j", U, gram @ U)
    best = float(p.alphas[int(errors.argmin())])
    W, b = solve(total, [best])
    return Fit(W[:, 0], float(b[0]), alpha=best)


def lasso(library: str) -> Any:
    def fit(p: Problem, tol: float) -> Fit:
        params = {"alpha": p.alpha, "fit_intercept": False, "tol": tol}
        if library == "skglm":
            from skglm import Lasso

            # skglm's tol bounds the violation of optimality, which scales with alpha.
            params["tol"] = tol * p.alpha
        elif library == "celer":
            from celer import Lasso
        else:
            Lasso = _linear_model(library).Lasso
        if library == "sklearn":
            params["max_iter"] = 100_000
        return read(Lasso(**params).fit(p.X, p.y), p)

    return fit


def lasso_path(library: str) -> Any:
    def fit(p: Problem, tol: float) -> Fit:
        if library == "skglm":
            from skglm import Lasso

            model = Lasso(fit_intercept=False, tol=tol * float(p.alphas[-1]))
            return Fit(np.asarray(model.path(p.X, p.y, p.alphas)[1]))
        if library == "celer":
            from celer import celer_path

            return Fit(celer_path(p.X, p.y, pb="lasso", alphas=p.alphas, tol=tol)[1])
        extra = {"max_iter": 100_000} if library == "sklearn" else {}
        path = _linear_model(library).lasso_path
        return Fit(path(p.X, p.y, alphas=p.alphas, tol=tol, **extra)[1])

    return fit


def logistic(library: str, l1: bool = False, **params: Any) -> Any:
    """LogisticRegression under scikit-learn's C = 1 / (n·alpha)."""

    def fit(p: Problem, tol: float) -> Fit:
        C = 1 / (p.alpha * p.X.shape[0])
        options = {"C": C, "fit_intercept": False, "tol": tol, **params}
        if library == "celer":
            from celer import LogisticRegression
        else:
            LogisticRegression = _linear_model(library).LogisticRegression
            options["l1_ratio"] = 1.0 if l1 else 0.0
            if library != "certus":
                options |= {"max_iter": 10_000, "random_state": 0}
        return read(LogisticRegression(**options).fit(p.X, p.y), p)

    return fit


def skglm_l1_logistic(p: Problem, tol: float) -> Fit:
    from skglm import SparseLogisticRegression

    model = SparseLogisticRegression(
        alpha=p.alpha, fit_intercept=False, tol=tol * p.alpha
    )
    return read(model.fit(p.X, p.y), p)


def skglm_l2_logistic(p: Problem, tol: float) -> Fit:
    from skglm.datafits import Logistic
    from skglm.penalties import L2
    from skglm.solvers import LBFGS

    solver = LBFGS(max_iter=10_000, tol=tol)
    return Fit(solver.solve(p.X, p.y, Logistic(), L2(p.alpha))[0])


def glum_logistic(l1: bool) -> Any:
    def fit(p: Problem, tol: float) -> Fit:
        from glum import GeneralizedLinearRegressor

        model = GeneralizedLinearRegressor(
            family="binomial",
            alpha=p.alpha,
            l1_ratio=1.0 if l1 else 0.0,
            fit_intercept=False,
            solver="irls-cd" if l1 else "irls-ls",
            gradient_tol=tol,
            max_iter=1000,
        )
        return read(model.fit(p.X, (p.y > 0).astype(float)), p)

    return fit


def bare_irls(p: Problem, tol: float) -> Fit:
    """Reference: undamped Newton steps until the gradient is below tol."""
    from scipy.linalg import solve
    from scipy.special import expit

    n, d = p.X.shape
    w = np.zeros(d)
    for _ in range(50):
        s = expit(-p.y * (p.X @ w))
        g = p.alpha * w - p.X.T @ (p.y * s) / n
        if np.abs(g).max() <= tol:
            break
        h = np.sqrt(s * (1 - s) / n)
        Xh = p.X * h[:, None]
        H = Xh.T @ Xh
        H.flat[:: d + 1] += p.alpha
        w -= solve(H, g, assume_a="pos")
    return Fit(w)


def quietly(fit: Any, p: Problem, tol: float) -> Fit:
    """Fit without the contender's warnings: the gap says whether it converged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(p, tol)
