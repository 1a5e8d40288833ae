"""Kernels: feature maps, positivity, the named kernels, the algebra.

References are explicit feature maps, closed forms, eigenvalues and scikit-learn's
pairwise functions; both our evaluations (solver's and verifier's) are compared as well.
"""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import Ridge as TheirRidge
from sklearn.metrics import pairwise

from certus.kernel_ridge import KernelRidge
from certus.kernels import feature_dimension, feature_map, gram, mercer_check
from certus.kernels.evaluate import evaluate
from certus.objectives import terms as t
from certus.verify.gram import gram as verified_gram

Array = np.ndarray
LISTED = [
    t.Linear(),
    t.Polynomial(2, 0.0),
    t.Polynomial(2, 1.0),
    t.Polynomial(3, 0.5, 2.0),
    t.Gaussian(0.3),
    t.Laplace(0.4),
    t.Laplace(0.4, 1),
    t.Sum(t.Linear(), t.Gaussian(1.0)),
    t.Product(t.Linear(), t.Laplace(0.2)),
    t.Scaled(0.7, t.Polynomial(2)),
    t.Exponentiated(t.Scaled(0.1, t.Linear())),
    t.Weighted(t.Gaussian(0.5), lambda X: np.cos(X[:, 0])),
    t.Composed(t.Linear(), np.tanh),
]
FINITE = [
    t.Linear(),
    t.Polynomial(1, 1.0),
    t.Polynomial(2, 0.0),
    t.Polynomial(2, 1.0),
    t.Polynomial(3, 0.5, 2.0),
    t.Sum(t.Linear(), t.Polynomial(2)),
    t.Product(t.Linear(), t.Polynomial(2, 0.0)),
    t.Scaled(3.0, t.Linear()),
    t.Weighted(t.Polynomial(2), lambda X: 1 + X[:, 1] ** 2),
    t.Composed(t.Polynomial(2), lambda X: np.sin(X)),
]


def name(kernel: Any) -> str:
    return type(kernel).__name__


def points(n: int = 25, d: int = 4, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(n, d))


# -- feature maps -------------------------------------------------------------------


@pytest.mark.catalog("KER-01")
@pytest.mark.parametrize("form", ["monomials", "tensor"])
@pytest.mark.parametrize("kernel", FINITE, ids=name)
def test_inner_products_of_explicit_features_are_the_kernel(
    kernel: Any, form: str
) -> None:
    X, Z = points(), points(seed=1)
    A, B = feature_map(kernel, X, form), feature_map(kernel, Z, form)
    K = gram(kernel, X, Z)
    np.testing.assert_allclose(A @ B.T, K, rtol=1e-12, atol=1e-12 * np.abs(K).max())
    if not isinstance(kernel, t.Composed):
        assert A.shape[1] == feature_dimension(kernel, 4, form)


@pytest.mark.catalog("KER-02")
@pytest.mark.parametrize("kernel", LISTED, ids=name)
def test_gram_matrices_are_symmetric_and_semidefinite(kernel: Any) -> None:
    K = gram(kernel, points(60))
    np.testing.assert_allclose(K, K.T, rtol=1e-13, atol=1e-13)
    assert np.linalg.eigvalsh(K).min() >= -1e-10 * np.trace(K)
    if kernel in FINITE:
        Phi = feature_map(kernel, points(60))
        np.testing.assert_allclose(K, Phi @ Phi.T, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kernel", LISTED, ids=name)
def test_solver_and_verifier_evaluate_alike(kernel: Any) -> None:
    A, B = points(30), points(20, seed=1)
    np.testing.assert_allclose(
        evaluate(kernel, A, B), verified_gram(kernel, A, B), rtol=1e-12, atol=1e-12
    )


@given(
    gamma=st.floats(1e-6, 1e3),
    scale=st.floats(1e-3, 1e3),
    shift=st.floats(-1e3, 1e3),
    seed=st.integers(0, 99),
)
@settings(max_examples=30)
def test_gaussians_agree_at_all_scales(
    gamma: float, scale: float, shift: float, seed: int
) -> None:
    A = scale * points(8, 3, seed) + shift
    expected = np.exp(-gamma * np.square(A[:, None] - A).sum(-1))
    tolerance = 1e-12 + 1e-13 * gamma * np.square(A - A.mean(0)).sum(1).max()
    tolerance += 1e-13 * gamma * scale * abs(shift)
    for found in (evaluate, verified_gram):
        K = found(t.Gaussian(gamma), A, A)
        np.testing.assert_allclose(K, expected, atol=min(tolerance, 1e-6))


@pytest.mark.parametrize(
    "kernel", [t.Linear(), t.Polynomial(3), t.Gaussian(0.4), t.Laplace(0.3)], ids=name
)
def test_sparse_rows_give_what_dense_rows_give(kernel: Any) -> None:
    A, B = points(12), points(9, seed=1)
    A[np.abs(A) < 0.7], B[np.abs(B) < 0.7] = 0.0, 0.0
    expected = evaluate(kernel, A, B)
    for form in (sparse.csr_array, sparse.csc_matrix):
        for found in (evaluate, verified_gram):
            K = found(kernel, form(A).tocsr(), form(B).tocsr())
            np.testing.assert_allclose(K, expected, rtol=1e-7, atol=1e-12)


@pytest.mark.catalog("KER-04")
def test_two_feature_maps_share_a_kernel() -> None:
    X = points(20, 2)
    short = np.column_stack(
        [X[:, 0] ** 2, math.sqrt(2) * X[:, 0] * X[:, 1], X[:, 1] ** 2]
    )
    long = np.column_stack(
        [X[:, 0] ** 2, X[:, 0] * X[:, 1], X[:, 1] * X[:, 0], X[:, 1] ** 2]
    )
    np.testing.assert_allclose(short @ short.T, long @ long.T, rtol=1e-12, atol=1e-12)
    kernel = t.Polynomial(2, 0.0)
    np.testing.assert_allclose(feature_map(kernel, X), short, atol=1e-14)
    np.testing.assert_allclose(feature_map(kernel, X, "tensor"), long, atol=1e-14)


@pytest.mark.catalog("KER-05")
@pytest.mark.parametrize("d", [1, 3, 5])
def test_quadratic_features_are_the_row_major_outer_product(d: int) -> None:
    X = points(10, d)
    Phi = feature_map(t.Polynomial(2, 1.0), X, "tensor")
    assert Phi.shape[1] == d * d + d + 1
    outer = np.array([np.outer(x, x).ravel(order="C") for x in X])
    np.testing.assert_allclose(Phi[:, : d * d], outer, atol=1e-14)
    np.testing.assert_allclose(Phi[:, d * d : -1], math.sqrt(2) * X, atol=1e-14)
    np.testing.assert_allclose(Phi @ Phi.T, (X @ X.T + 1) ** 2, rtol=1e-12)


# -- Mercer -------------------------------------------------------------------------


@pytest.mark.catalog("KER-03")
@pytest.mark.parametrize("kernel", LISTED, ids=name)
def test_listed_kernels_are_accepted(kernel: Any) -> None:
    found = mercer_check(kernel, points(40))
    assert found.positive and found.by_form and found.witness is None


@pytest.mark.catalog("KER-03")
@pytest.mark.parametrize(
    "kernel",
    [
        t.Sigmoid(1.0, -1.0),
        t.Scaled(-1.0, t.Gaussian(1.0)),
        t.Polynomial(2, -1.0),
        lambda A, B: -np.abs(A[:, None] - B).sum(-1),
    ],
    ids=["tanh", "negative multiple", "negative constant", "negative distance"],
)
def test_a_function_that_is_not_a_kernel_is_rejected_with_a_witness(
    kernel: Any,
) -> None:
    X = points(30)
    found = mercer_check(kernel, X)
    assert not found.positive and not found.by_form
    v, K = found.witness, gram(kernel, X)
    assert np.linalg.norm(v) == pytest.approx(1.0)
    assert v @ K @ v == pytest.approx(found.eigenvalue) and found.eigenvalue < 0


def test_asymmetric_functions_and_matrices_are_rejected() -> None:
    X = points(10)
    lopsided = mercer_check(lambda A, B: A @ B.T + A[:, :1], X)
    assert not lopsided.positive and "symmetric" in lopsided.reason
    assert mercer_check("precomputed", X @ X.T).positive
    assert not mercer_check("precomputed", X @ X.T - 5 * np.eye(10)).positive
    with pytest.raises(ValueError, match="square"):
        mercer_check("precomputed", X)
    with pytest.raises(ValueError, match="NaN"):
        mercer_check(t.Linear(), np.full((2, 2), np.nan))


# -- the named kernels --------------------------------------------------------------


@pytest.mark.catalog("KER-06")
def test_the_linear_kernel_is_the_primal_linear_method() -> None:
    X = points(80)
    y = X @ [1.0, -2.0, 0.0, 0.5] + np.random.default_rng(2).normal(size=80)
    dual = KernelRidge(alpha=0.7, kernel="linear").fit(X, y)
    primal = TheirRidge(alpha=0.7, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(X.T @ dual.dual_coef_, primal.coef_, rtol=1e-9)
    np.testing.assert_allclose(dual.predict(X), primal.predict(X), rtol=1e-9)


@pytest.mark.catalog("KER-07")
def test_the_homogeneous_quadratic_kernel_equals_its_monomials() -> None:
    X = points(15, 3)
    pairs = itertools.combinations_with_replacement(range(3), 2)
    Phi = np.column_stack(
        [X[:, i] * X[:, j] * (1 if i == j else math.sqrt(2)) for i, j in pairs]
    )
    K = gram(t.Polynomial(2, 0.0), X)
    np.testing.assert_allclose(K, (X @ X.T) ** 2, rtol=1e-12)
    np.testing.assert_allclose(K, Phi @ Phi.T, rtol=1e-10, atol=1e-12)


@pytest.mark.catalog("KER-08")
@pytest.mark.parametrize("p", [1, 2, 3])
def test_the_polynomial_kernel(p: int) -> None:
    X, Z = points(20, 3), points(10, 3, 1)
    K = gram(t.Polynomial(p, 1.0), X, Z)
    expected = pairwise.polynomial_kernel(X, Z, degree=p, gamma=1.0, coef0=1.0)
    np.testing.assert_allclose(K, expected, rtol=1e-12)
    # Multinomial: Σ over a of p!/(Π a!) Π (x_i z_i)^a_i, with x₀ = z₀ = 1.
    A = np.column_stack([X, np.ones(20)])
    columns = []
    for powers in itertools.product(range(p + 1), repeat=4):
        if sum(powers) == p:
            count = math.factorial(p) / math.prod(map(math.factorial, powers))
            columns.append(math.sqrt(count) * np.prod(A**powers, axis=1))
    Phi = np.column_stack(columns)
    np.testing.assert_allclose(Phi @ Phi.T, gram(t.Polynomial(p, 1.0), X), rtol=1e-10)
    assert Phi.shape[1] == feature_dimension(t.Polynomial(p, 1.0), 3)


@pytest.mark.catalog("KER-09")
def test_the_gaussian_kernel_and_its_limits() -> None:
    X, Z = points(20), points(10, seed=1)
    for gamma in (0.01, 0.5, 4.0):
        expected = pairwise.rbf_kernel(X, Z, gamma=gamma)
        np.testing.assert_allclose(gram(t.Gaussian(gamma), X, Z), expected, rtol=1e-10)
    sigma = 3.0  # the other parametrisation: exp(−‖·‖²/σ)
    other = np.exp(-np.square(X[:, None] - Z).sum(-1) / sigma)
    np.testing.assert_allclose(gram(t.Gaussian(1 / sigma), X, Z), other, rtol=1e-12)
    np.testing.assert_allclose(gram(t.Gaussian(1e6), X), np.eye(20), atol=1e-12)
    np.testing.assert_allclose(gram(t.Gaussian(1e-12), X), np.ones((20, 20)), atol=1e-9)
    assert np.linalg.eigvalsh(gram(t.Gaussian(0.5), X)).min() > 1e-6  # distinct points


@pytest.mark.catalog("KER-10")
def test_the_laplace_kernel_in_both_norms() -> None:
    X, Z = points(20), points(10, seed=1)
    euclid = np.exp(-np.sqrt(np.square(X[:, None] - Z).sum(-1)) / 2.5)
    np.testing.assert_allclose(gram(t.Laplace(1 / 2.5), X, Z), euclid, rtol=1e-12)
    city = pairwise.laplacian_kernel(X, Z, gamma=0.4)
    np.testing.assert_allclose(gram(t.Laplace(0.4, 1), X, Z), city, rtol=1e-12)
    for norm in (1, 2):
        for seed in range(5):
            K = gram(t.Laplace(0.4, norm), points(40, 3, seed))
            assert np.linalg.eigvalsh(K).min() >= -1e-10 * np.trace(K)


# -- the algebra --------------------------------------------------------------------

pieces = st.sampled_from(
    [t.Linear(), t.Polynomial(2), t.Gaussian(0.5), t.Laplace(0.7), t.Laplace(0.2, 1)]
)


@pytest.mark.catalog("KER-11", "KER-12", "KER-13")
@given(
    a=pieces,
    b=pieces,
    alpha=st.floats(0, 5),
    beta=st.floats(0, 5),
    seed=st.integers(0, 1000),
)
@settings(max_examples=40)
def test_the_algebra_preserves_positivity(
    a: Any, b: Any, alpha: float, beta: float, seed: int
) -> None:
    X = points(15, 3, seed)
    K1, K2 = gram(a, X), gram(b, X)
    combined = t.Sum(t.Scaled(alpha, a), t.Scaled(beta, b))
    built = {
        combined: alpha * K1 + beta * K2,
        t.Product(a, b): K1 * K2,
        t.Exponentiated(t.Scaled(0.01, a)): np.exp(0.01 * K1),
        t.Weighted(a, _first): _first(X)[:, None] * K1 * _first(X),
        t.Composed(a, np.tanh): gram(a, np.tanh(X)),
    }
    for kernel, expected in built.items():
        K = gram(kernel, X)
        np.testing.assert_allclose(K, expected, rtol=1e-12, atol=1e-12)
        assert np.linalg.eigvalsh(K).min() >= -1e-10 * max(np.trace(K), 1e-300)
        assert mercer_check(kernel, X).by_form


def _first(X: Array) -> Array:
    return np.sin(X[:, 0])


@pytest.mark.catalog("KER-11")
def test_the_features_of_a_sum_are_scaled_and_put_side_by_side() -> None:
    X = points(12, 3)
    kernel = t.Sum(t.Scaled(2.0, t.Linear()), t.Scaled(0.5, t.Polynomial(2)))
    sides = [math.sqrt(2) * X, math.sqrt(0.5) * feature_map(t.Polynomial(2), X)]
    np.testing.assert_allclose(feature_map(kernel, X), np.hstack(sides), rtol=1e-14)


@pytest.mark.catalog("KER-12")
def test_the_features_of_a_product_are_tensor_products() -> None:
    X = points(12, 3)
    a, b = t.Polynomial(2, 0.5), t.Linear()
    A, B = feature_map(a, X), feature_map(b, X)
    expected = np.array([np.kron(x, z) for x, z in zip(A, B)])
    np.testing.assert_allclose(feature_map(t.Product(a, b), X), expected, rtol=1e-14)
    np.testing.assert_allclose(
        expected @ expected.T, gram(a, X) * gram(b, X), rtol=1e-9
    )


@pytest.mark.catalog("KER-13")
def test_the_gaussian_kernel_factors() -> None:
    X, gamma = points(20), 0.35
    half = t.Exponentiated(t.Scaled(2 * gamma, t.Linear()))
    built = t.Weighted(half, lambda A: np.exp(-gamma * np.square(A).sum(axis=1)))
    np.testing.assert_allclose(gram(built, X), gram(t.Gaussian(gamma), X), atol=1e-12)


def test_infinite_maps_are_refused_with_a_message() -> None:
    for kernel in (
        t.Gaussian(1.0),
        t.Exponentiated(t.Linear()),
        t.Scaled(-1.0, t.Linear()),
    ):
        with pytest.raises(ValueError, match="no known feature map"):
            feature_map(kernel, points())
        assert feature_dimension(kernel, 4) == math.inf
