"""Kernel machines whose attributes are malformed, and matrices that are nearly kernels.

Nothing ends in an error from deep inside, and nothing malformed is met.
"""

import copy
from typing import Any

import numpy as np
import pytest
from sklearn import svm
from sklearn.kernel_ridge import KernelRidge

import certus
from certus import kernel_ridge, kernels
from certus import svm as our_svm
from certus.certificate import Status, Strength

Array = np.ndarray
rng = np.random.default_rng(0)
X = rng.standard_normal((60, 3))
Y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(60)
TWO, THREE = (Y > 0).astype(int), np.arange(60) % 3

MODELS = [
    (svm.SVC(), TWO),
    (svm.SVC(), THREE),
    (svm.SVR(), Y),
    (KernelRidge(), Y),
    (our_svm.SVC(), THREE),
    (our_svm.SVR(), Y),
    (kernel_ridge.KernelRidge(), Y),
    (kernels.KernelLogisticRegression(), THREE),
    (kernels.KernelPerceptron(kernel="rbf"), TWO),
]
NAMES = ["dual_coef_", "intercept_", "_dual_coef_", "_intercept_", "_gamma"]
WRONG = {
    "none": lambda _: None,
    "text": lambda _: "none",
    "texts": lambda v: np.full(np.shape(v), "x"),
    "longer": lambda v: np.concatenate([np.atleast_1d(v)] * 2, axis=-1),
    "objects": lambda v: np.asarray(v).astype(object),
    "complex": lambda v: np.asarray(v) + 1j,
    "nan": lambda v: np.asarray(v) * np.nan,
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize(
    ("model", "y"), MODELS, ids=lambda m: type(m).__name__ if hasattr(m, "fit") else ""
)
def test_malformed_numbers_are_named(model: Any, y: Array, change: Any) -> None:
    fitted = copy.deepcopy(model).fit(X, y)
    for name in filter(lambda name: hasattr(fitted, name), NAMES):
        broken = copy.copy(fitted)
        setattr(broken, name, change(getattr(fitted, name)))
        try:
            found = certus.certify(broken, X, y)
        except ValueError as error:
            assert name in str(error)
        else:
            assert found.met is not True
            shown = found[found.primary].detail
            assert name.strip("_") in shown or "coefficients hold NaN" in shown


@pytest.mark.parametrize("name", ["support_", "support_vectors_", "X_fit_"])
@pytest.mark.parametrize("change", [None, "none", np.zeros((2, 2)), 1.5])
def test_malformed_rows_are_named(name: str, change: Any) -> None:
    model = KernelRidge() if name == "X_fit_" else svm.SVR()
    fitted = model.fit(X, Y)
    setattr(fitted, name, change)
    try:
        found = certus.certify(fitted, X, Y)
    except ValueError as error:
        assert name in str(error) or "fitted on" in str(error)
    else:
        assert found.met is not True
        assert name in found[found.primary].detail


# -- matrices of unknown sign -------------------------------------------------------


def lowered(share: float) -> Array:
    """A kernel matrix whose smallest eigenvalue is −share of the trace."""
    K = X @ X.T
    values, V = np.linalg.eigh(K)
    values[0] = -share * np.trace(K)
    K = (V * values) @ V.T
    return (K + K.T) / 2


def test_a_negative_eigenvalue_is_charged() -> None:
    """Before, all down to −1e-10 of the trace counted as none, for nothing."""
    stated = []
    for share in (0.0, 5e-11):
        K = lowered(share)
        model = svm.SVC(C=1e3, kernel="precomputed", tol=1e-10).fit(K, TWO)
        claim = certus.certify(model, K, TWO)["duality_gap"]
        assert claim.strength is Strength.PROVED and "·I" in claim.objective
        stated.append(claim.allowance)
    assert stated[1] > 10 * stated[0]
    # Scores of K + νI differ by ν·c, with c up to C.
    assert stated[1] > 5e-11 * np.trace(X @ X.T)


def test_what_it_can_do_is_within_the_charge() -> None:
    """The gap of K + νI, computed by hand, is below the one stated for K."""
    K = lowered(5e-11)
    model = svm.SVC(C=10.0, kernel="precomputed", tol=1e-10).fit(K, TWO)
    claim = certus.certify(model, K, TWO)["duality_gap"]
    lift = K + 1.2e-10 * np.trace(K) * np.eye(60)
    other = certus.certify(model, lift, TWO)["duality_gap"]
    assert other.value - other.allowance <= claim.value


def test_below_that_it_is_refused() -> None:
    K = lowered(1e-9)
    model = svm.SVC(kernel="precomputed").fit(K, TWO)
    found = certus.certify(model, K, TWO)
    assert found.status is Status.NO_MINIMISER


def test_kernels_by_their_form_are_not_charged() -> None:
    model = svm.SVC(kernel="linear").fit(X, TWO)
    assert "·I" not in certus.certify(model, X, TWO)["duality_gap"].objective


def test_a_perceptron_on_many_rows_of_unknown_sign_proves_no_bound() -> None:
    """Its bound on mistakes needs a kernel; before, it stayed proved."""
    A = rng.standard_normal((2_100, 2)) * 0.1
    A[:, 0] += np.where(np.arange(2_100) % 2, 3.0, -3.0)
    y = np.arange(2_100) % 2
    model = kernels.KernelPerceptron(kernel="sigmoid", gamma=1e-3, coef0=0.0)
    found = certus.certify(model.fit(A, y), A, y)
    proved = [c.name for c in found.claims if c.strength is Strength.PROVED]
    assert set(proved) <= {"update_sum"}
