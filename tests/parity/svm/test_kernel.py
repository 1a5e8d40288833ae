"""Kernel machines against scikit-learn's, solved to high accuracy: equal models.

Parameters, attributes and their shapes, scores and labels, for dense and sparse rows,
weights, class weights, several classes, every kernel name; and ``certify`` on theirs.
"""

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn import svm
from sklearn.base import BaseEstimator
from sklearn.datasets import load_diabetes, load_iris, make_classification
from sklearn.kernel_ridge import KernelRidge as TheirRidge
from sklearn.metrics.pairwise import chi2_kernel, laplacian_kernel, rbf_kernel

import certus
from certus.certificate import Status, Strength
from certus.kernel_ridge import KernelRidge
from certus.objectives import terms as t
from certus.svm import SVC, SVR

Array = np.ndarray
IRIS = load_iris(return_X_y=True)
KERNELS: list[dict[str, Any]] = [
    {"kernel": "linear"},
    {"kernel": "poly", "degree": 2, "coef0": 1.0},
    {"kernel": "poly", "gamma": 0.2},
    {"kernel": "rbf"},
    {"kernel": "rbf", "gamma": "auto"},
    {"kernel": "rbf", "gamma": 2.0},
]


def noisy(n: int = 150, classes: int = 2, seed: int = 0) -> tuple[Array, Array]:
    return make_classification(
        n,
        6,
        n_informative=4,
        n_classes=classes,
        n_clusters_per_class=1,
        flip_y=0.2,
        random_state=seed,
    )


def kernel_id(options: dict[str, Any]) -> str:
    return "-".join(str(v) for v in options.values())


@pytest.mark.parametrize("options", KERNELS, ids=kernel_id)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("C", [0.3, 3.0])
def test_svc_equals_that_of_scikit_learn(
    options: dict[str, Any], classes: int, C: float
) -> None:
    X, y = noisy(120, classes)
    with certus.config_context(on_uncertified="ignore"):  # rounding may decide
        ours = SVC(C=C, tol=1e-13, **options).fit(X, y)
    theirs = svm.SVC(C=C, tol=1e-9, **options).fit(X, y)
    assert ours.dual_coef_.shape[0] == theirs.dual_coef_.shape[0] == classes - 1
    if options["kernel"] == "rbf":  # strictly positive: the coefficients are unique
        np.testing.assert_array_equal(ours.support_, theirs.support_)
        np.testing.assert_array_equal(ours.n_support_, theirs.n_support_)
        np.testing.assert_allclose(ours.dual_coef_, theirs.dual_coef_, atol=2e-5 * C)
        np.testing.assert_allclose(ours.support_vectors_, theirs.support_vectors_)
    # LIBSVM stops at violations of tol, which low-rank kernels turn into more.
    close = {"rtol": 1e-4, "atol": 1e-3}
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, **close)
    for shape in ("ovr", "ovo"):
        ours.decision_function_shape = theirs.decision_function_shape = shape
        found = ours.decision_function(X)
        np.testing.assert_allclose(found, theirs.decision_function(X), **close)
    assert np.mean(ours.predict(X) == theirs.predict(X)) > 0.99
    if options["kernel"] == "linear":
        np.testing.assert_allclose(ours.coef_, theirs.coef_, **close)


@pytest.mark.parametrize("options", KERNELS, ids=kernel_id)
def test_svr_equals_that_of_scikit_learn(options: dict[str, Any]) -> None:
    X, y = noisy()
    target = X[:, 0] + np.sin(X[:, 1]) + 0.1 * y
    with certus.config_context(on_uncertified="ignore"):  # rounding may decide
        ours = SVR(C=2.0, epsilon=0.05, tol=1e-13, **options).fit(X, target)
    theirs = svm.SVR(C=2.0, epsilon=0.05, tol=1e-9, **options).fit(X, target)
    close = {"rtol": 1e-4, "atol": 1e-3}
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), **close)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, **close)
    assert certus.certify(theirs, X, target).value >= ours.certificate_.value
    assert ours.dual_coef_.shape[0] == 1 and ours.n_support_.shape == (1,)
    assert isinstance(ours.n_iter_, int)


@pytest.mark.parametrize("form", ["csr_matrix", "csc_array"])
def test_sparse_rows(form: str) -> None:
    X, y = noisy(100, 3)
    X[np.abs(X) < 0.5] = 0.0
    S = getattr(sparse, form)(X)
    ours = SVC(tol=1e-10).fit(S, y)
    theirs = svm.SVC(tol=1e-9).fit(sparse.csr_matrix(X), y)
    assert sparse.issparse(ours.support_vectors_)
    assert sparse.issparse(ours.dual_coef_)
    assert ours.dual_coef_.shape == theirs.dual_coef_.shape
    linear = SVC(kernel="linear").fit(S, y)
    dense = SVC(kernel="linear").fit(X, y)
    assert isinstance(linear.coef_, type(S.tocsr()))
    np.testing.assert_allclose(linear.coef_.toarray(), dense.coef_, atol=1e-4)
    np.testing.assert_allclose(
        ours.decision_function(S), theirs.decision_function(X), atol=1e-4
    )
    np.testing.assert_allclose(ours.decision_function(X), ours.decision_function(S))


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 3.0, 1: 0.5}])
def test_weights_and_class_weights(class_weight: Any) -> None:
    X, y = noisy(100)
    s = np.random.default_rng(0).uniform(0.2, 3.0, 100)
    options = {"class_weight": class_weight, "gamma": 0.3}
    with certus.config_context(on_uncertified="ignore"):  # rounding may decide
        ours = SVC(tol=1e-10, **options).fit(X, y, sample_weight=s)
    theirs = svm.SVC(tol=1e-9, **options).fit(X, y, sample_weight=s)
    found, expected = ours.decision_function(X), theirs.decision_function(X)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(ours.class_weight_, theirs.class_weight_)
    assert certus.certify(theirs, X, y, s).value < 1e-6


def test_precomputed_and_functions_equal_the_name() -> None:
    X, y = noisy(90, 3)
    plain = SVC(gamma=0.3, tol=1e-10).fit(X, y)
    matrix = SVC(kernel="precomputed", tol=1e-10).fit(rbf_kernel(X, gamma=0.3), y)
    own = SVC(kernel=lambda A, B: rbf_kernel(A, B, gamma=0.3), tol=1e-10).fit(X, y)
    term = SVC(kernel=t.Gaussian(0.3), tol=1e-10).fit(X, y)
    Z = X[::3] + 0.1
    expected = plain.decision_function(Z)
    K = rbf_kernel(Z, X, gamma=0.3)
    np.testing.assert_allclose(matrix.decision_function(K), expected, atol=1e-6)
    for other in (own, term):
        np.testing.assert_allclose(other.decision_function(Z), expected, atol=1e-6)
        assert other.certificate_.met
    assert matrix.__sklearn_tags__().input_tags.pairwise


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kernel": "rbf"},
        {"kernel": "rbf", "gamma": 3.0, "alpha": 1e-3},
        {"kernel": "polynomial", "degree": 2},
        {"kernel": "laplacian"},
        {"kernel": "cosine"},
        {"kernel": "chi2", "gamma": 0.5},
    ],
    ids=kernel_id,
)
@pytest.mark.parametrize("weighted", [False, True])
def test_kernel_ridge_equals_that_of_scikit_learn(
    options: dict[str, Any], weighted: bool
) -> None:
    X, y = load_diabetes(return_X_y=True)
    X = np.abs(X[:120]) * 10
    Y = np.column_stack([y[:120], y[:120] ** 0.5])
    s = np.random.default_rng(0).uniform(0.5, 2, 120) if weighted else None
    ours = KernelRidge(**options).fit(X, Y, sample_weight=s)
    theirs = TheirRidge(**options).fit(X, Y, sample_weight=s)
    np.testing.assert_allclose(ours.dual_coef_, theirs.dual_coef_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-7)
    assert ours.certificate_.met
    assert certus.certify(theirs, X, Y, s).met


def test_kernel_ridge_of_several_strengths_functions_and_one_column() -> None:
    X, y = load_diabetes(return_X_y=True)
    X, Y = X[:80], np.column_stack([y[:80], -(y[:80] ** 0.5)])
    ours = KernelRidge(alpha=[0.1, 2.0], kernel="rbf").fit(X, Y)
    theirs = TheirRidge(alpha=[0.1, 2.0], kernel="rbf").fit(X, Y)
    np.testing.assert_allclose(ours.dual_coef_, theirs.dual_coef_, rtol=1e-7)
    assert ours.certificate_.met and certus.certify(theirs, X, Y).met

    def pair(a: Array, b: Array, width: float = 1.0) -> float:
        return float(np.exp(-width * np.abs(a - b).sum()))

    own = KernelRidge(kernel=pair, kernel_params={"width": 2.0}).fit(X, y[:80])
    named = KernelRidge(kernel="laplacian", gamma=2.0).fit(X, y[:80])
    np.testing.assert_allclose(own.predict(X), named.predict(X), rtol=1e-9)
    assert own.dual_coef_.shape == (80,)


@pytest.mark.parametrize(
    ("kernel", "term"),
    [(laplacian_kernel, t.Laplace(0.4, 1)), (chi2_kernel, None)],
    ids=["laplacian", "chi2"],
)
def test_a_model_of_scikit_learn_with_a_function_is_certified(
    kernel: Any, term: Any
) -> None:
    X, y = IRIS
    model = svm.SVC(kernel=lambda A, B: kernel(A, B, gamma=0.4), tol=1e-9).fit(X, y)
    assert certus.certify(model, X, y).met
    if term is not None:
        ours = SVC(kernel=term, tol=1e-9).fit(X, y)
        found = ours.decision_function(X)
        np.testing.assert_allclose(found, model.decision_function(X), atol=1e-4)


@pytest.mark.parametrize(
    "model",
    [
        svm.SVC(tol=1e-8),
        svm.SVC(kernel="linear", tol=1e-8, C=10),
        svm.SVC(tol=1e-8, class_weight="balanced", C=0.1),
        svm.SVR(tol=1e-8),
        svm.SVR(kernel="poly", tol=1e-8, epsilon=0.3),
        TheirRidge(kernel="rbf"),
        TheirRidge(alpha=0.0, kernel="rbf", gamma=20.0),
    ],
    ids=str,
)
def test_certify_judges_a_scikit_learn_model_on_its_own_objective(
    model: BaseEstimator,
) -> None:
    X, y = IRIS
    X = X + 1e-3 * np.random.default_rng(0).normal(size=X.shape)  # no two rows alike
    model.fit(X, y)
    found = certus.certify(model, X, y)
    assert found.met and found.status is Status.SOLVED
    assert found.model.startswith("sklearn ")
    model.__dict__["dual_coef_"] = model.dual_coef_ * 1.05
    assert certus.certify(model, X, y).met is False


def test_loose_fits_and_indefinite_kernels_of_scikit_learn_are_reported() -> None:
    X, y = IRIS
    loose = certus.certify(svm.SVC(tol=0.5).fit(X, y), X, y)
    assert loose.met is False and "certus.svm.SVC" in loose["duality_gap"].fix
    bent = certus.certify(svm.SVC(kernel="sigmoid").fit(X, y), X, y)
    assert bent["duality_gap"].strength is Strength.REFUSED
    assert "semidefinite" in bent["duality_gap"].detail
