"""OneClassSVM: scikit-learn's, known optima, properties, planted faults."""

import inspect
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import OneClassSVM as Theirs

import certus
from certus.base import UncertifiedWarning
from certus.certificate import Status
from certus.svm import OneClassSVM

Array = np.ndarray
RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))


def theirs(data: Any, s: Any = None, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Theirs(**{"tol": 1e-9, **options}).fit(data, sample_weight=s)


def test_parameters_attributes_and_methods_are_those_of_scikit_learn() -> None:
    own = inspect.signature(OneClassSVM).parameters
    for key, value in inspect.signature(Theirs).parameters.items():
        if key not in ("tol", "cache_size"):  # as SVC has them
            assert own[key].default == value.default
    mine, other = OneClassSVM().fit(X), theirs(X)
    public = {k for k in vars(other) if k.endswith("_") and not k.startswith("_")}
    assert public <= set(vars(mine))
    for name in ("dual_coef_", "intercept_", "offset_", "n_support_"):
        assert np.shape(getattr(mine, name))[:1] == np.shape(getattr(other, name))[:1]


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly"])
@pytest.mark.parametrize("nu", [0.05, 0.3, 0.8])
@pytest.mark.parametrize("weighted", [True, False])
def test_the_fit_is_that_of_scikit_learn(
    kernel: str, nu: float, weighted: bool
) -> None:
    data = X if kernel == "rbf" else X + 3
    s = RNG.uniform(0.2, 2, len(X)) if weighted else None
    options: dict[str, Any] = {"kernel": kernel, "nu": nu, "gamma": 0.4}
    mine = OneClassSVM(**options, tol=1e-8).fit(data, sample_weight=s)
    other = theirs(data, s, **options)
    size = float(np.abs(other.score_samples(data)).max())
    np.testing.assert_allclose(
        mine.score_samples(data), other.score_samples(data), atol=1e-3 * size
    )
    assert mine.certificate_.met and mine.certificate_["duality_gap"].value < 1e-6
    assert certus.certify(other, data, sample_weight=s).claims[0].value < 1e-6
    clear = np.abs(other.decision_function(data)) > 1e-3 * size
    np.testing.assert_array_equal(mine.predict(data)[clear], other.predict(data)[clear])


def test_the_optimum_is_that_of_a_general_solver() -> None:
    """min ½αᵀKα over 0 ≤ α ≤ 1, Σα = νn; the certificate's gap holds against it."""
    data, nu = X[:25], 0.3
    K = rbf_kernel(data, gamma=0.5)
    found = minimize(
        lambda a: a @ K @ a / 2,
        np.full(25, nu),
        jac=lambda a: K @ a,
        bounds=[(0, 1)] * 25,
        constraints={"type": "eq", "fun": lambda a: a.sum() - nu * 25},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    model = OneClassSVM(gamma=0.5, nu=nu).fit(data)
    alpha = np.zeros(25)
    alpha[model.support_] = model.dual_coef_[0]
    assert alpha @ K @ alpha / 2 == pytest.approx(found.fun, rel=1e-6)
    assert alpha.sum() == pytest.approx(nu * 25)
    for stop in (1e-1, 1e-2, 1e-3):  # sloppy: the stated gap is never below the true
        sloppy = theirs(data, gamma=0.5, nu=nu, tol=stop)
        z = sloppy.decision_function(data)
        a = np.zeros(25)
        a[sloppy.support_] = sloppy.dual_coef_[0]
        primal = np.maximum(0, -z).sum() - nu * 25 * sloppy.offset_[0]
        primal += a @ K @ a / 2
        true = (primal + found.fun) / found.fun
        assert certus.certify(sloppy, data).claims[0].value >= true - 1e-9


@pytest.mark.parametrize("nu", [0.1, 0.5])
def test_nu_bounds_outliers_and_support_vectors(nu: float) -> None:
    model = OneClassSVM(nu=nu, tol=1e-9).fit(X)
    z = model.decision_function(X)
    size = float(np.abs(z).max())
    assert np.mean(z < -1e-6 * size) <= nu + 1e-9
    assert len(model.support_) / len(X) >= nu - 1e-9
    apart = np.abs(z) > 1e-6 * size  # others are on the boundary, and count as inside
    signs = np.where(z >= 0, 1, -1)
    np.testing.assert_array_equal(model.predict(X)[apart], signs[apart])
    np.testing.assert_allclose(model.score_samples(X) - model.offset_, z)


def test_other_forms_of_rows_and_kernels() -> None:
    K = rbf_kernel(X, gamma=0.5)
    plain = OneClassSVM(gamma=0.5, tol=1e-9).fit(X)
    for model, rows in (
        (OneClassSVM(kernel="precomputed", tol=1e-9), K),
        (OneClassSVM(kernel=lambda a, b: rbf_kernel(a, b, gamma=0.5), tol=1e-9), X),
        (OneClassSVM(gamma=0.5, tol=1e-9), sparse.csr_matrix(X)),
    ):
        found = model.fit(rows)
        assert found.certificate_.met
        np.testing.assert_allclose(
            found.decision_function(rows), plain.decision_function(X), atol=1e-3
        )
    single = OneClassSVM(gamma=0.5).fit(X.astype(np.float32))
    assert single.certificate_.met
    every = OneClassSVM(nu=1.0).fit(X)
    assert every.certificate_.met and len(every.support_) == len(X)


def test_weights_are_repetitions() -> None:
    s = RNG.integers(0, 3, len(X))
    once = OneClassSVM(gamma=0.5, tol=1e-11).fit(X, sample_weight=s)
    often = OneClassSVM(gamma=0.5, tol=1e-11).fit(np.repeat(X, s, axis=0))
    np.testing.assert_allclose(once.score_samples(X), often.score_samples(X), rtol=1e-3)


def test_hostile_input_is_refused() -> None:
    for nu in (0.0, 1.5, -1, np.nan):
        with pytest.raises(ValueError, match="nu"):
            OneClassSVM(nu=nu).fit(X)
    with pytest.raises(ValueError, match=r"NaN|infinity|finite"):
        OneClassSVM().fit(np.where(X > 2, np.nan, X))


@pytest.mark.parametrize("cls", [OneClassSVM, theirs])
def test_planted_faults_are_not_certified(cls: Any) -> None:
    def fitted() -> Any:
        return (
            theirs(X, gamma=0.5, nu=0.3)
            if cls is theirs
            else OneClassSVM(gamma=0.5, nu=0.3).fit(X)
        )

    def judged(model: Any, data: Any = X, **more: Any) -> Any:
        try:
            return certus.certify(model, data, **more).met
        except ValueError:  # not what a fit leaves
            return False

    assert judged(fitted())
    for change in ({"nu": 0.31}, {"gamma": 0.6}, {"kernel": "linear"}):
        assert not judged(fitted().set_params(**change))
    assert not judged(fitted(), X + 1e-3)
    assert not judged(fitted(), X[::-1])
    assert not judged(fitted(), np.rint(X).astype(np.int8))
    assert not judged(fitted(), sample_weight=RNG.uniform(0.5, 2, len(X)))
    for name, by in (("intercept_", 0.01), ("offset_", 0.01), ("dual_coef_", 1e-3)):
        wrong = fitted()
        value = np.array(getattr(wrong, name)) + by
        for attribute in (name, "_" + name):
            if attribute in vars(wrong):
                setattr(wrong, attribute, value)
        assert not judged(wrong), name
    wrong = fitted()
    wrong.intercept_ = wrong.intercept_ + 1.0
    wrong.offset_ = -wrong.intercept_
    if "_intercept_" in vars(wrong):
        wrong._intercept_ = wrong.intercept_
    assert not judged(wrong)


@pytest.mark.parametrize("seed", [0, 1])
def test_rows_around_the_origin_have_no_region_and_take_no_time(seed):
    """‖f‖² falls towards 0 without end, so that no gap is small beside it."""
    X = np.random.default_rng(seed).normal(size=(100, 20))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertifiedWarning)
        model = OneClassSVM(kernel="linear").fit(X)
    assert model.certificate_.status is Status.TOL_NOT_REACHED
    assert model.n_iter_ < 1_000_000
    assert np.abs(model.score_samples(X)).max() < 1e-3
