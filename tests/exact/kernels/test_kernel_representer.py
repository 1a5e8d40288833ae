"""The representer theorem, kernel ridge, and what predictions by kernels cost.

References are explicit feature maps, closed forms and the primal linear methods.
"""

import math
import time
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression as TheirLogistic
from sklearn.linear_model import Ridge as TheirRidge
from sklearn.metrics import pairwise
from sklearn.svm import SVC as TheirSVC

from certus.kernel_ridge import KernelRidge
from certus.kernels import (
    KernelLogisticRegression,
    feature_dimension,
    feature_map,
    gram,
)
from certus.objectives import terms as t
from certus.svm import SVC, SVR

Array = np.ndarray


def points(n: int = 25, d: int = 4, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.catalog("KER-14")
@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge"])
def test_no_part_of_the_minimiser_is_orthogonal_to_the_data(loss: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(15, 40))  # rows span a 15-dimensional subspace
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=15) > 0, 1, -1)
    if loss == "squared":
        w = TheirRidge(alpha=0.5, fit_intercept=False).fit(X, y).coef_
        c = KernelRidge(alpha=0.5).fit(X, y).dual_coef_
    elif loss == "logistic":
        w = TheirLogistic(C=2.0, tol=1e-12, max_iter=10_000).fit(X, y).coef_[0]
        model = KernelLogisticRegression(C=2.0, kernel="linear", tol=1e-12).fit(X, y)
        c = model.dual_coef_[0]
    else:
        w = TheirSVC(C=2.0, kernel="linear", tol=1e-12).fit(X, y).coef_[0]
        model = SVC(C=2.0, kernel="linear", tol=1e-12).fit(X, y)
        c = np.zeros(15)
        c[model.support_] = model.dual_coef_[0]
    basis = np.linalg.qr(X.T)[0]
    outside = w - basis @ (basis.T @ w)
    assert np.linalg.norm(outside) <= 1e-6 * np.linalg.norm(w)
    np.testing.assert_allclose(X.T @ c, w, atol=2e-5 * np.abs(w).max())


@pytest.mark.catalog("KER-15")
@pytest.mark.parametrize(("n", "d"), [(30, 5), (8, 25), (12, 12)])
def test_primal_and_dual_ridge_are_one(n: int, d: int) -> None:
    rng = np.random.default_rng(1)
    X, y, lam = rng.normal(size=(n, d)), rng.normal(size=n), 0.3
    primal = np.linalg.solve(X.T @ X / n + lam * np.eye(d), X.T @ y) / n
    dual = X.T @ np.linalg.solve(X @ X.T / n + lam * np.eye(n), y) / n
    np.testing.assert_allclose(primal, dual, rtol=1e-11, atol=1e-12)
    model = KernelRidge(alpha=n * lam).fit(X, y)
    np.testing.assert_allclose(X.T @ model.dual_coef_, primal, rtol=1e-10, atol=1e-11)
    # The cheaper of D³ and N³ is chosen, and says so.
    assert model.solver_ == ("primal" if d < n else "Cholesky")
    said = f"features ({d}) than rows ({n})" if d < n else f"the {n} rows"
    assert said in model.solver_reason_


@pytest.mark.catalog("KER-16")
def test_kernel_ridge_is_its_closed_form() -> None:
    X, lam = points(40), 0.05
    y = np.sin(X[:, 0]) + X[:, 1]
    K = pairwise.rbf_kernel(X, gamma=0.3)
    closed = np.linalg.solve(K / 40 + lam * np.eye(40), y) / 40
    also = np.linalg.solve(K + 40 * lam * np.eye(40), y)
    np.testing.assert_allclose(closed, also, rtol=1e-10)
    model = KernelRidge(alpha=40 * lam, kernel="rbf", gamma=0.3).fit(X, y)
    np.testing.assert_allclose(model.dual_coef_, closed, rtol=1e-9)
    Z = points(7, seed=3)
    expected = pairwise.rbf_kernel(Z, X, gamma=0.3) @ closed
    np.testing.assert_allclose(model.predict(Z), expected, rtol=1e-9)


@pytest.mark.catalog("KER-17")
def test_the_closed_form_is_stationary_for_the_dual_objective() -> None:
    X, lam = points(30), 0.2
    y = X[:, 0] ** 2 - X[:, 1]
    K = pairwise.rbf_kernel(X, gamma=0.3)
    a = KernelRidge(alpha=30 * lam, kernel="rbf", gamma=0.3).fit(X, y).dual_coef_

    def dual(v: Array) -> float:
        return float(v @ (K / 30 + lam * np.eye(30)) @ v / 2 - v @ y / 30)

    gradient = (K / 30 + lam * np.eye(30)) @ a - y / 30
    assert np.abs(gradient).max() < 1e-13
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert dual(a + 1e-3 * rng.normal(size=30)) > dual(a)


@pytest.mark.catalog("KER-18")
@pytest.mark.parametrize("machine", ["ridge", "svc", "svr", "logistic"])
def test_predictions_by_kernel_equal_those_by_features(machine: str) -> None:
    X, Z, kernel = points(60, 3), points(9, 3, 1), t.Polynomial(2, 1.0, 0.5)
    y = X[:, 0] * X[:, 1] + 0.3 * X[:, 2]
    labels = (y > 0).astype(int)
    if machine == "ridge":
        model = KernelRidge(kernel=kernel).fit(X, y)
        c, rows, b, found = model.dual_coef_, X, 0.0, model.predict(Z)
    elif machine == "svr":
        svr = SVR(kernel=kernel).fit(X, y)
        c, rows = svr.dual_coef_[0], svr.support_vectors_
        b, found = svr.intercept_[0], svr.predict(Z)
    else:
        kind: Any = SVC if machine == "svc" else KernelLogisticRegression
        fitted = kind(kernel=kernel).fit(X, labels)
        c, b = fitted.dual_coef_[0], fitted.intercept_[0]
        rows = fitted.support_vectors_ if machine == "svc" else X
        found = fitted.decision_function(Z)
    w = feature_map(kernel, rows).T @ c  # primal weights: f(x) = φ(x)·w + b
    expected = feature_map(kernel, Z) @ w + b
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.catalog("KER-19")
def test_kernel_svm_solves_exclusive_or() -> None:
    X, y = np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), [0, 1, 1, 0]
    assert SVC(C=100.0, kernel="linear").fit(X, y).score(X, y) < 1.0
    for kernel in (t.Polynomial(2), "rbf"):
        model = SVC(C=100.0, kernel=kernel).fit(X, y)
        assert model.score(X, y) == 1.0 and model.certificate_.met
    theirs = TheirSVC(C=100.0, kernel="rbf", tol=1e-10).fit(X, y)
    ours = SVC(C=100.0, kernel="rbf", tol=1e-10).fit(X, y)
    np.testing.assert_allclose(
        ours.decision_function(X), theirs.decision_function(X), atol=1e-6
    )


@pytest.mark.catalog("KER-20")
def test_kernel_logistic_with_a_linear_kernel_is_logistic_regression() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    y = (X[:, 0] - X[:, 1] + rng.logistic(size=80) > 0).astype(int)
    primal = TheirLogistic(C=0.7, tol=1e-12, max_iter=10_000).fit(X, y)
    dual = KernelLogisticRegression(C=0.7, kernel="linear", tol=1e-12).fit(X, y)
    np.testing.assert_allclose(X.T @ dual.dual_coef_[0], primal.coef_[0], rtol=1e-5)
    np.testing.assert_allclose(dual.intercept_, primal.intercept_, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(
        dual.predict_proba(X), primal.predict_proba(X), rtol=1e-5
    )


@pytest.mark.catalog("KER-21")
def test_a_kernel_costs_d_where_features_cost_their_number() -> None:
    """Multiplications of one inner product, by counting array elements touched."""
    d, p = 40, 3
    length = feature_dimension(t.Polynomial(p), d)
    assert length == math.comb(d + p, p) == 12_341
    assert feature_map(t.Polynomial(p), points(1, d)).size == length
    A = points(120, d)
    start = time.perf_counter()
    direct = gram(t.Polynomial(p), A)
    kernel_seconds = time.perf_counter() - start
    start = time.perf_counter()
    Phi = feature_map(t.Polynomial(p), A)
    explicit = Phi @ Phi.T
    feature_seconds = time.perf_counter() - start
    np.testing.assert_allclose(direct, explicit, rtol=1e-8, atol=1e-8)
    assert feature_seconds > 5 * kernel_seconds  # length/d is 300
