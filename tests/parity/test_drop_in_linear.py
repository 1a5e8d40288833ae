"""Linear models in scikit-learn's place: what its own tests and its tools ask of them.

Each test compares with scikit-learn's estimator, solved to high accuracy.
"""

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn import linear_model as theirs
from sklearn.datasets import load_breast_cancer, load_iris, make_classification

import certus
from certus import linear_model as ours

Array = np.ndarray
pytestmark = pytest.mark.filterwarnings("ignore:.*l1_ratios:FutureWarning")


def two_classes(n: int = 80, d: int = 5, shift: float = 1.0) -> tuple[Array, Array]:
    """Rows off centre, so that a penalty on the intercept is felt."""
    X, y = make_classification(n, d, flip_y=0.2, random_state=0, weights=[0.8])
    return X + shift, y


# -- liblinear ------------------------------------------------------------------------


@pytest.mark.parametrize("scaling", [1, 0.3, 20.0])
@pytest.mark.parametrize("l1_ratio", [0, 1])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_liblinear_penalises_the_intercept_as_theirs(
    scaling: float, l1_ratio: float, form: Any
) -> None:
    X, y = two_classes()
    options: dict[str, Any] = {"C": 0.3, "l1_ratio": l1_ratio, "solver": "liblinear"}
    options["intercept_scaling"] = scaling
    model = ours.LogisticRegression(tol=1e-10, **options).fit(form(X), y)
    other = theirs.LogisticRegression(tol=1e-10, max_iter=100_000, **options)
    other.fit(form(X), y)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-5)
    np.testing.assert_allclose(model.intercept_, other.intercept_, atol=1e-5)
    assert model.certificate_.met
    # The verifier reads the penalty on b from the parameters: another one is told.
    plain = ours.LogisticRegression(tol=1e-10, C=0.3, l1_ratio=l1_ratio).fit(X, y)
    assert abs(plain.intercept_[0] - model.intercept_[0]) > 1e-4
    with certus.config_context(on_uncertified="ignore"):
        changed = certus.certify(plain.set_params(solver="liblinear"), X, y)
    assert not changed.met


def test_liblinear_goes_on_from_the_last_fit() -> None:
    X, y = two_classes()
    model = ours.LogisticRegression(solver="liblinear", warm_start=True, tol=1e-10)
    first = model.fit(X, y).coef_.copy()
    assert model.fit(X, y).n_iter_[0] <= 1
    np.testing.assert_allclose(model.coef_, first, atol=1e-8)


def test_liblinear_without_a_penalty_or_an_intercept_penalises_none() -> None:
    X, y = two_classes()
    for options in ({"C": np.inf}, {"fit_intercept": False}):
        model = ours.LogisticRegression(solver="liblinear", **options).fit(X, y)
        plain = ours.LogisticRegression(**options).fit(X, y)
        np.testing.assert_array_equal(model.coef_, plain.coef_)
        assert model.certificate_.primary == plain.certificate_.primary


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_liblinear_refuses_several_classes() -> None:
    X, y = load_iris(return_X_y=True)
    for name in ("LogisticRegression", "LogisticRegressionCV"):
        for module in (ours, theirs):
            with pytest.raises(ValueError, match="does not support multiclass"):
                getattr(module, name)(solver="liblinear").fit(X, y)


def test_liblinear_in_cross_validation() -> None:
    X, y = two_classes()
    options: dict[str, Any] = {"solver": "liblinear", "Cs": [0.01, 0.1], "cv": 3}
    options |= {"l1_ratios": (0,), "scoring": "neg_log_loss"}
    options |= {"use_legacy_attributes": False}
    model = ours.LogisticRegressionCV(tol=1e-10, **options).fit(X, y)
    other = theirs.LogisticRegressionCV(tol=1e-10, max_iter=10_000, **options)
    other.fit(X, y)
    np.testing.assert_allclose(model.scores_, other.scores_, rtol=1e-5)
    np.testing.assert_allclose(model.coefs_paths_, other.coefs_paths_, atol=1e-5)
    np.testing.assert_allclose(model.intercept_, other.intercept_, atol=1e-5)
    assert model.certificate_.met


# -- cross-validated logistic regression ----------------------------------------------


@pytest.mark.parametrize("load", [load_iris, load_breast_cancer])
@pytest.mark.parametrize("l1_ratios", [None, [0.0, 0.5]])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_attributes_of_logistic_cv_have_their_default_form(
    load: Any, l1_ratios: Any
) -> None:
    X, y = load(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    names = np.array(["no", "yes", "some"])[y]
    options: dict[str, Any] = {"Cs": [0.01, 0.1], "cv": 3, "l1_ratios": l1_ratios}
    model = ours.LogisticRegressionCV(**options).fit(X, names)
    solver = "lbfgs" if l1_ratios is None else "saga"
    other = theirs.LogisticRegressionCV(
        solver=solver, tol=1e-6, max_iter=20_000, **options
    )
    other.fit(X, names)
    assert model.C_.shape == other.C_.shape
    assert model.l1_ratio_.shape == other.l1_ratio_.shape
    np.testing.assert_allclose(model.C_, other.C_)
    assert model.n_iter_.shape == other.n_iter_.shape
    for name in ("scores_", "coefs_paths_"):
        mine, their = getattr(model, name), getattr(other, name)
        assert list(mine) == list(their)
        for key in their:
            assert mine[key].shape == their[key].shape
            # Without the intercepts: those of three classes are free to shift together.
            columns = slice(4) if name == "coefs_paths_" else slice(None)
            np.testing.assert_allclose(
                mine[key][..., columns], their[key][..., columns], atol=0.02
            )
    assert certus.certify(model, X, names).met
