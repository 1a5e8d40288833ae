"""Margins and kernel machines on data that nobody would choose."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV

from certus import certify
from certus.base import UncertifiedWarning
from certus.certificate import Status, Strength
from certus.kernel_ridge import KernelRidge
from certus.kernels import KernelLogisticRegression, KernelPerceptron
from certus.linear_model import Perceptron
from certus.svm import SVC, SVR, LinearSVC, LinearSVR

CLASSIFIERS = [
    LinearSVC(loss="hinge"),
    LinearSVC(),
    Perceptron(random_state=0),
    SVC(),
    KernelLogisticRegression(),
    KernelPerceptron(),
]
REGRESSORS = [LinearSVR(), SVR(), KernelRidge(kernel="rbf")]
HARD = [LinearSVC(loss="hinge", C=np.inf), SVC(kernel="linear", C=np.inf)]


def name(model: Any) -> str:
    return repr(model)


def clouds(n: int = 60, k: int = 2, seed: int = 0) -> tuple[Any, Any]:
    """k overlapping clouds in the plane."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    centres = 1.2 * np.array([[np.cos(a), np.sin(a)] for a in 2 * np.pi * y / k])
    return rng.normal(size=(n, 2)) + centres, y


def honest(model: Any, X: Any, y: Any) -> Any:
    """Fit; a missed target may warn, never lie: the verifier recomputes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertifiedWarning)
        model = clone(model).fit(X, y)
    claim = model.certificate_[model.certificate_.primary]
    again = certify(model, X, y)
    assert again.status is not Status.REFUTED, again
    assert again[again.primary].strength is claim.strength
    assert np.isfinite(np.asarray(model.predict(X) == y, dtype=float)).all()
    return model


@pytest.mark.parametrize("model", HARD, ids=name)
def test_hard_margin_without_a_separation_is_refused_with_a_witness(model: Any) -> None:
    X, y = clouds()
    model = honest(model, X, y)
    claim = model.certificate_[model.certificate_.primary]
    assert claim.strength is Strength.REFUSED
    assert model.certificate_.status is Status.NO_MINIMISER
    assert "convex combination" in claim.detail + claim.theorem


@pytest.mark.parametrize("model", HARD, ids=name)
def test_hard_margin_finds_the_widest_street(model: Any) -> None:
    X = np.array([[0.0, 0.0], [0.0, 1.0], [2.0, 0.0], [2.0, 1.0], [5.0, 3.0]])
    y = np.array([0, 0, 1, 1, 1])
    model = honest(model, X, y)
    assert model.certificate_.met
    # The nearest points are two apart: w = 2/2, half-way b = −1. A penalised intercept
    # (LinearSVC's) moves the optimum, not the separation.
    assert (model.predict(X) == y).all()
    if isinstance(model, SVC):
        np.testing.assert_allclose(model.coef_.ravel(), [1.0, 0.0], atol=1e-6)
        np.testing.assert_allclose(model.intercept_, [-1.0], atol=1e-6)


@pytest.mark.parametrize("model", [*CLASSIFIERS, *HARD], ids=name)
def test_twins_with_opposite_labels(model: Any) -> None:
    X, y = clouds(20)
    model = honest(model, np.vstack([X, X]), np.append(y, 1 - y))
    certificate = model.certificate_
    if getattr(model, "C", 1.0) == np.inf:
        assert certificate[certificate.primary].strength is Strength.REFUSED
    elif "Perceptron" not in type(model).__name__:
        assert certificate.met


def test_a_matrix_that_is_not_a_kernel_is_refused() -> None:
    X, y = clouds(30)
    K = -np.square(X @ X.T) + np.eye(30)
    for model in (SVC(kernel="precomputed"), SVR(kernel="precomputed")):
        model = honest(model, K, y)
        claim = model.certificate_[model.certificate_.primary]
        assert claim.strength is Strength.REFUSED
        assert "positive semidefinite" in claim.detail


@pytest.mark.parametrize("model", CLASSIFIERS, ids=name)
def test_one_class_and_one_row(model: Any) -> None:
    X, _ = clouds(10)
    for X_bad, y_bad in ((X, np.zeros(10)), (X[:1], [1])):
        with pytest.raises(ValueError, match=r"class|sample"):
            clone(model).fit(X_bad, y_bad)


@pytest.mark.parametrize("model", [*CLASSIFIERS, *REGRESSORS], ids=name)
def test_rows_of_zeros(model: Any) -> None:
    X, y = clouds(30)
    X[:10] = 0.0
    honest(model, X, y)
    honest(model, np.zeros_like(X), y)


@pytest.mark.parametrize("C", [1e-12, 1e-6, 1e6, 1e12])
@pytest.mark.parametrize(
    "model",
    [LinearSVC(loss="hinge"), LinearSVC(), SVC(), SVR(), LinearSVR()],
    ids=name,
)
def test_strengths_from_nothing_to_everything(model: Any, C: float) -> None:
    X, y = clouds(40)
    model = honest(clone(model).set_params(C=C), X, y)
    claim = model.certificate_[model.certificate_.primary]
    assert claim.met or model.certificate_.status is not Status.SOLVED


@pytest.mark.parametrize("gamma", [1e-12, 1e-6, 1e6, 1e12])
@pytest.mark.parametrize(
    "model",
    [SVC(), SVR(), KernelRidge(kernel="rbf"), KernelLogisticRegression()],
    ids=name,
)
def test_widths_from_nothing_to_everything(model: Any, gamma: float) -> None:
    X, y = clouds(40)
    model = honest(clone(model).set_params(gamma=gamma), X, y)
    claim = model.certificate_[model.certificate_.primary]
    assert claim.met or model.certificate_.status is not Status.SOLVED


@pytest.mark.parametrize("model", CLASSIFIERS, ids=name)
def test_labels_as_text_and_a_rare_class(model: Any) -> None:
    X, y = clouds(61, k=3)
    names = np.array(["ash", "birch", "oak"])
    labels = names[np.where(np.arange(61) == 60, 2, y % 2)]  # a single oak
    model = honest(model, X, labels)
    assert list(model.classes_) == ["ash", "birch", "oak"]
    assert set(model.predict(X)) <= set(names)


@pytest.mark.parametrize(
    "model",
    [SVC(max_time=0.1), SVR(max_time=0.1), LinearSVC(loss="hinge", max_time=0.1)],
    ids=name,
)
def test_a_tenth_of_a_second_leaves_a_usable_model(model: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 20))
    y = (X[:, 0] + rng.normal(size=6000) > 0).astype(int)
    model = model.set_params(C=100.0, tol=1e-10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertifiedWarning)
        model = clone(model).fit(X, y)
    certificate = model.certificate_
    assert certificate.status in (Status.TIME_LIMIT, Status.SOLVED)
    assert np.isfinite(certificate.value)
    assert certificate.met or certificate.value > 1e-10
    assert model.predict(X[:5]).shape == (5,)


@pytest.mark.parametrize("model", [*CLASSIFIERS, *REGRESSORS], ids=name)
def test_in_a_search_with_two_processes(model: Any) -> None:
    X, y = clouds(60)
    grid = {"max_iter": [50, 2000]} if hasattr(model, "max_iter") else {"alpha": [1, 2]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertifiedWarning)
        search = GridSearchCV(model, grid, cv=3, n_jobs=2).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert certify(search, X, y).status is not Status.REFUTED
    assert is_classifier(search) == is_classifier(model)
