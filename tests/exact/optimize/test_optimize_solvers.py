"""Newton, subgradients and alternating minimisation: beyond one gradient step."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from certus.optimize import (
    InverseSqrt,
    Objective,
    alternating_minimization,
    gradient_descent,
    newton_method,
    subgradient_descent,
)
from helpers.optimising import bowl, logistic


@pytest.mark.catalog("OPT-47")
def test_newton_solves_a_quadratic_in_one_step() -> None:
    for seed in range(5):
        f = bowl(seed, d=6)
        record = newton_method(f, np.full(6, 50.0), tol=1e-6)
        assert record.n_iter == 1 and record.holds
        np.testing.assert_allclose(record.x, f.optimum, atol=1e-6)
    # γ = 1 is the minimiser of the quadratic model, γ < 1 a damped step.
    half = newton_method(f, np.full(6, 50.0), step=0.5, max_iter=1)
    np.testing.assert_allclose(half.x, (50.0 + f.optimum) / 2, atol=1e-7)


@pytest.mark.catalog("OPT-47")
def test_newton_converges_quadratically() -> None:
    f = logistic(alpha=0.01)
    best = newton_method(f, np.zeros(4), tol=1e-15, max_iter=30).x
    record = newton_method(f, np.zeros(4), tol=1e-12)
    error = np.linalg.norm(record.iterates - best, axis=1)
    error = error[error > 1e-13]
    exponents = np.log(error[2:] / error[1:-1]) / np.log(error[1:-1] / error[:-2])
    assert exponents[-1] == pytest.approx(2, abs=0.5)
    strong = newton_method(logistic(alpha=1.0), np.ones(4), tol=1e-13)
    assert strong.theorem.kind == "strongly convex" and strong.holds
    assert np.isfinite(strong.bound).sum() >= 2
    forged = replace(
        logistic(alpha=1.0), hessian_lipschitz=strong.constants["m"].value * 1e-4
    )
    assert newton_method(forged, np.ones(4), tol=1e-13).holds is False


@pytest.mark.catalog("OPT-47")
def test_newton_does_not_depend_on_the_basis() -> None:
    f = logistic()
    T = np.random.default_rng(3).normal(size=(4, 4)) + 2 * np.eye(4)

    def function(z, rows=slice(None)):
        value, g = f.function(T @ z, rows)
        return value, T.T @ g

    turned = Objective(
        function, hessian=lambda z: T.T @ f.hessian(T @ z) @ T, n_terms=60
    )
    x0 = np.array([1.0, 0.0, -1.0, 2.0])
    a = newton_method(f, x0, max_iter=6, tol=0)
    b = newton_method(turned, np.linalg.solve(T, x0), max_iter=6, tol=0)
    np.testing.assert_allclose(b.iterates @ T.T, a.iterates, atol=1e-9)


@pytest.mark.catalog("OPT-47")
def test_damping_rescues_newton() -> None:
    """log cosh: full steps from 3 run away, damped ones do not."""
    f = Objective(
        lambda x: (float(np.logaddexp(x, -x)[0]), np.tanh(x)),
        hessian=lambda x: np.diag(1 / np.cosh(x) ** 2),
        convex=True,
    )
    wild = newton_method(f, [3.0], step=1.0, max_iter=20)
    assert wild.status.value != "solved"
    calm = newton_method(f, [3.0], max_iter=20)
    assert calm.status.value == "solved" and abs(calm.x[0]) < 1e-8
    assert (calm.step_sizes < 1).any()


@pytest.mark.catalog("OPT-48")
def test_gradient_descent_is_newton_with_a_scaled_identity() -> None:
    f, eta = logistic(), 0.25
    fake = replace(f, hessian=lambda x: np.eye(4) / eta)
    a = newton_method(fake, np.ones(4), step=1.0, max_iter=40, tol=0)
    b = gradient_descent(f, np.ones(4), step=eta, max_iter=40, tol=0)
    np.testing.assert_allclose(a.iterates, b.iterates, rtol=0, atol=1e-14)


@pytest.mark.catalog("OPT-51")
def test_subgradient_descent_reaches_linear_programs() -> None:
    rng = np.random.default_rng(4)
    n, d = 25, 2
    X = rng.normal(size=(n, d))
    y = X @ [1.0, -0.5] + rng.laplace(size=n) * 0.3
    eye = np.eye(n)
    # Absolute error: min mean t, −t ≤ y − Xw ≤ t.
    lp = linprog(
        np.r_[np.zeros(d), np.ones(n) / n],
        A_ub=np.block([[X, -eye], [-X, -eye]]),
        b_ub=np.r_[y, -y],
        bounds=[(None, None)] * d + [(0, None)] * n,
    )
    mae = Objective(
        lambda w: (np.abs(y - X @ w).mean(), -X.T @ np.sign(y - X @ w) / n),
        convex=True,
        optimum=lp.x[:d],
    )
    _reaches(mae, lp.fun)
    # Hinge loss: min mean t, t ≥ 1 − y·Xw.
    s = np.where(y > 0, 1.0, -1.0)
    Z = X * s[:, None]
    lp = linprog(
        np.r_[np.zeros(d), np.ones(n) / n],
        A_ub=np.hstack([-Z, -eye]),
        b_ub=-np.ones(n),
        bounds=[(None, None)] * d + [(0, None)] * n,
    )
    hinge = Objective(
        lambda w: (
            np.maximum(0, 1 - Z @ w).mean(),
            -Z.T @ (Z @ w < 1).astype(float) / n,
        ),
        convex=True,
        optimum=lp.x[:d],
    )
    _reaches(hinge, lp.fun)


@pytest.mark.catalog("OPT-51")
def test_subgradient_descent_reaches_the_lasso() -> None:
    from sklearn.linear_model import Lasso

    rng = np.random.default_rng(5)
    X = rng.normal(size=(40, 3))
    y = X @ [2.0, 0.0, -1.0] + rng.normal(size=40)
    reference = Lasso(alpha=0.4, fit_intercept=False, tol=1e-12).fit(X, y).coef_

    def function(w):
        e = X @ w - y
        value = e @ e / 80 + 0.4 * np.abs(w).sum()
        return value, X.T @ e / 40 + 0.4 * np.sign(w)

    f = Objective(function, convex=True, optimum=reference)
    _reaches(f, function(reference)[0])


def _reaches(f, optimum) -> None:
    d = len(f.optimum)
    record = subgradient_descent(f, np.zeros(d), step=InverseSqrt(0.5), max_iter=20_000)
    assert optimum - 1e-9 <= record.value <= optimum + 1e-3
    assert record.theorem.kind == "convex" and record.holds
    assert record.bound[-1] < record.bound[0]


@pytest.mark.catalog("OPT-57")
def test_alternating_minimisation_never_rises() -> None:
    """k-means and alternating least squares as blocks; a wrong block is found out."""
    rng = np.random.default_rng(6)
    X = np.vstack([rng.normal(c, 1, size=(20, 2)) for c in (-2, 0, 3)])
    n, k = len(X), 3

    def split(x):
        return x[: 2 * k].reshape(k, 2), x[2 * k :].astype(int)

    def inertia(x):
        centres, labels = split(x)
        return float(np.sum((X - centres[labels]) ** 2))

    def assign(x):
        centres, _ = split(x)
        distance = ((X[:, None] - centres) ** 2).sum(axis=2)
        return np.concatenate([x[: 2 * k], distance.argmin(axis=1)])

    def centre(x):
        centres, labels = split(x)
        used = [
            X[labels == j].mean(axis=0) if j in labels else centres[j] for j in range(k)
        ]
        return np.concatenate([np.ravel(used), labels])

    start = np.concatenate([X[:k].ravel(), rng.integers(k, size=n)])
    record = alternating_minimization(inertia, start, [assign, centre])
    assert record.holds and record.status.value == "solved"
    assert (np.diff(record.values) <= 1e-9).all() and record.values[-1] < record.values[
        1
    ]

    R = rng.normal(size=(8, 6))
    W, Z = slice(0, 16), slice(16, 28)

    def loss(x):
        return float(np.sum((R - x[W].reshape(8, 2) @ x[Z].reshape(2, 6)) ** 2))

    def left(x):
        B = x[Z].reshape(2, 6)
        return np.concatenate(
            [np.linalg.lstsq(B.T, R.T, rcond=None)[0].T.ravel(), x[Z]]
        )

    def right(x):
        A = x[W].reshape(8, 2)
        return np.concatenate([x[W], np.linalg.lstsq(A, R, rcond=None)[0].ravel()])

    factors = alternating_minimization(loss, rng.normal(size=28), [left, right])
    assert factors.holds
    s = np.linalg.svd(R, compute_uv=False)
    assert factors.value == pytest.approx(np.sum(s[2:] ** 2), rel=1e-3)
    worse = alternating_minimization(
        loss, rng.normal(size=28), [left, lambda x: right(x) * 1.1], max_iter=5
    )
    assert worse.holds is False


@pytest.mark.catalog("OPT-57")
def test_em_is_alternating_minimisation() -> None:
    """Two Gaussians of unit variance: free energy over weights q, then over means."""
    rng = np.random.default_rng(7)
    data = np.concatenate([rng.normal(-2, 1, 30), rng.normal(2, 1, 30)])

    def free_energy(x):
        mu, q = x[:2], np.clip(x[2:], 1e-300, 1)
        p = np.clip(1 - x[2:], 1e-300, 1)
        fit = q * (data - mu[0]) ** 2 + p * (data - mu[1]) ** 2
        return float(np.sum(fit / 2 + q * np.log(q) + p * np.log(p)))

    def expect(x):
        odds = ((data - x[0]) ** 2 - (data - x[1]) ** 2) / 2
        return np.concatenate([x[:2], 1 / (1 + np.exp(odds))])

    def maximise(x):
        q = x[2:]
        means = [(q @ data) / q.sum(), ((1 - q) @ data) / (1 - q).sum()]
        return np.concatenate([means, q])

    start = np.concatenate([[-0.1, 0.3], np.full(60, 0.5)])
    record = alternating_minimization(free_energy, start, [expect, maximise])
    assert record.holds and (np.diff(record.values) <= 1e-9).all()
    np.testing.assert_allclose(np.sort(record.x[:2]), [-2, 2], atol=0.6)
