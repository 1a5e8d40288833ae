"""RidgeClassifierCV against scikit-learn's, leave-one-out by hand, planted faults."""

import inspect
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.linear_model import RidgeClassifierCV as Theirs

import certus
from certus.linear_model import RidgeClassifier, RidgeClassifierCV

Array = np.ndarray
ALPHAS = np.logspace(-3, 3, 7)


def test_parameters_and_attributes_are_those_of_scikit_learn() -> None:
    own = inspect.signature(RidgeClassifierCV).parameters
    theirs = inspect.signature(Theirs).parameters
    assert {k: v.default for k, v in own.items()} == {
        k: v.default for k, v in theirs.items()
    }
    X, y = load_iris(return_X_y=True)
    mine, other = RidgeClassifierCV().fit(X, y), Theirs().fit(X, y)
    public = {k for k in vars(other) if k.endswith("_") and not k.startswith("_")}
    assert public <= set(vars(mine))


@pytest.mark.parametrize("load", [load_iris, load_breast_cancer, load_digits])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cv": 3},
        {"cv": 3, "scoring": "balanced_accuracy"},
        {"class_weight": "balanced"},
        {"fit_intercept": False},
        {"store_cv_results": True},
    ],
    ids=str,
)
def test_the_choice_and_the_fit_are_those_of_scikit_learn(
    load: Any, weighted: bool, options: dict[str, Any]
) -> None:
    X, y = load(return_X_y=True)
    s = np.random.default_rng(0).uniform(0.5, 2, len(y)) if weighted else None
    mine = RidgeClassifierCV(ALPHAS, **options).fit(X, y, sample_weight=s)
    other = Theirs(ALPHAS, **options).fit(X, y, sample_weight=s)
    assert mine.alpha_ == other.alpha_
    assert mine.best_score_ == pytest.approx(other.best_score_, rel=1e-5)
    np.testing.assert_allclose(mine.coef_, other.coef_, rtol=1e-4, atol=1e-7)
    np.testing.assert_array_equal(mine.predict(X), other.predict(X))
    assert mine.certificate_.met
    assert certus.certify(other, X, y, sample_weight=s).met
    if "store_cv_results" in options:
        np.testing.assert_allclose(mine.cv_results_, other.cv_results_, atol=1e-4)


@pytest.mark.parametrize("scoring", [None, "accuracy"])
def test_leave_one_out_is_what_it_says(scoring: Any) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[::10], y[::10]
    model = RidgeClassifierCV([1.0], scoring=scoring, store_cv_results=True).fit(X, y)
    scores = []
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        left = RidgeClassifier(alpha=1.0).fit(X[rest], y[rest])
        scores.append(float(left.decision_function(X[[i]])[0]))
    signs = np.where(y == 1, 1.0, -1.0)
    if scoring is None:
        errors = np.square(signs - np.array(scores))
        np.testing.assert_allclose(model.cv_results_[:, 0, 0], errors, rtol=1e-6)
        assert model.best_score_ == pytest.approx(-errors.mean())
    else:
        np.testing.assert_allclose(model.cv_results_[:, 0, 0], scores, rtol=1e-6)
        assert model.best_score_ == np.mean((np.array(scores) > 0) == (y == 1))


def test_columns_of_minus_one_and_one_are_labels_too() -> None:
    X, y = load_iris(return_X_y=True)
    several = np.where(np.column_stack([y == 0, y > 0]), 1, -1)
    mine, other = RidgeClassifierCV().fit(X, several), Theirs().fit(X, several)
    np.testing.assert_allclose(mine.coef_, other.coef_, atol=1e-8)
    np.testing.assert_array_equal(mine.predict(X), other.predict(X))
    assert mine.certificate_.met


def test_several_labels_and_sparse_rows() -> None:
    X, y = load_iris(return_X_y=True)
    several = np.column_stack([y == 0, y > 0]).astype(int)
    mine, other = RidgeClassifierCV().fit(X, several), Theirs().fit(X, several)
    np.testing.assert_array_equal(mine.predict(X), other.predict(X))
    assert mine.alpha_ == other.alpha_
    thin = RidgeClassifierCV().fit(sparse.csr_matrix(X), y)
    np.testing.assert_allclose(thin.coef_, RidgeClassifierCV().fit(X, y).coef_)


@pytest.mark.parametrize("cls", [RidgeClassifierCV, Theirs])
def test_planted_faults_are_not_certified(cls: Any) -> None:
    X, y = load_iris(return_X_y=True)

    def fitted() -> Any:
        return cls().fit(X, y)

    assert certus.certify(fitted(), X, y).met
    wrong = fitted()
    wrong.coef_ = wrong.coef_ + 1e-3
    assert not certus.certify(wrong, X, y).met
    wrong = fitted()
    wrong.alpha_ = 3.0
    assert not certus.certify(wrong, X, y).met
    weighed = fitted().set_params(class_weight={0: 1, 1: 2, 2: 1})
    assert not certus.certify(weighed, X, y).met
    assert not certus.certify(fitted(), X[::-1], y).met
    assert not certus.certify(fitted(), np.rint(X).astype(np.int8), y).met


def test_wrong_parameters_are_named() -> None:
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="alphas"):
        RidgeClassifierCV(alphas=[-1.0]).fit(X, y)
    with pytest.raises(ValueError, match="incompatible"):
        RidgeClassifierCV(cv=3, store_cv_results=True).fit(X, y)
