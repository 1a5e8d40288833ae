"""Objectives on which optimisers are tried, their minimisers known or found."""

from dataclasses import replace

import numpy as np

from certus.optimize import logistic_objective, newton_method, quadratic_objective


def bowl(seed=0, d=4):
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(d + 2, d))
    return quadratic_objective(B.T @ B, rng.normal(size=d))


def logistic(alpha=0.1):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 4))
    y = np.where(X @ [1, -1, 0.5, 0] + rng.normal(size=60) > 0, 1, -1)
    return logistic_objective(X, y, alpha)


def quadratic(eigenvalues, seed=0):
    """A quadratic with the given spectrum in a random basis, minimiser not at 0."""
    rng = np.random.default_rng(seed)
    d = len(eigenvalues)
    Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
    A = Q @ np.diag(eigenvalues) @ Q.T
    A = (A + A.T) / 2
    f = quadratic_objective(A, A @ rng.normal(size=d))
    return f, Q


def solved_logistic(alpha=0.0, n=80, d=4):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, d))
    y = np.where(X @ np.arange(d) + rng.normal(size=n) > 0, 1, -1)
    f = logistic_objective(X, y, alpha)
    best = newton_method(f, np.zeros(d), tol=1e-14).x
    return replace(f, optimum=best)
