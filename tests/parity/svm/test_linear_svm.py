"""LinearSVC, LinearSVR and Perceptron beside scikit-learn's; ``certify`` of theirs."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn import linear_model, svm
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

import certus
from certus import linear_model as our_linear_model
from certus import svm as our_svm
from certus.certificate import Status, Strength


def scaled(loader):
    X, y = loader(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def fit_theirs(model, X, y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y, **options)


CLASSIFIERS = [
    {},
    {"C": 0.01},
    {"C": 10.0, "fit_intercept": False},
    {"intercept_scaling": 5.0},
    {"loss": "hinge", "C": 0.1},
    {"loss": "hinge", "C": 0.1, "intercept_scaling": 3.0},
    {"penalty": "l1", "C": 0.1},
    {"penalty": "l1", "C": 0.1, "fit_intercept": False},
    {"class_weight": "balanced", "C": 0.1},
    {"class_weight": {0: 3.0}, "loss": "hinge", "C": 0.1},
]


@pytest.mark.parametrize("loader", [load_breast_cancer, load_iris])
@pytest.mark.parametrize("options", CLASSIFIERS, ids=str)
def test_linear_svc(options, loader):
    X, y = scaled(loader)
    ours = our_svm.LinearSVC(tol=1e-10, **options).fit(X, y)
    dual = options.get("loss") == "hinge"
    their_tol = 1e-9 if dual else 1e-10
    theirs = svm.LinearSVC(tol=their_tol, max_iter=200_000, dual=dual, **options)
    fit_theirs(theirs, X, y)
    assert ours.coef_.shape == theirs.coef_.shape
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=2e-4)
    np.testing.assert_array_equal(ours.classes_, theirs.classes_)
    assert ours.certificate_.met
    found = certus.certify(theirs, X, y)
    assert found[found.primary].strength is Strength.PROVED
    assert found.value < 1e-4


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_sample_weights(loss):
    X, y = scaled(load_breast_cancer)
    s = np.random.default_rng(0).uniform(0.2, 3.0, len(y))
    ours = our_svm.LinearSVC(tol=1e-10, C=0.05, loss=loss).fit(X, y, sample_weight=s)
    theirs = svm.LinearSVC(tol=1e-9, C=0.05, loss=loss, max_iter=200_000)
    fit_theirs(theirs, X, y, sample_weight=s)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    assert certus.certify(theirs, X, y, s).value < 1e-4


REGRESSORS = [
    {"epsilon": 10.0, "C": 1.0},
    {"epsilon": 0.0, "C": 0.1},
    {"epsilon": 5.0, "C": 0.5, "intercept_scaling": 50.0},
    {"epsilon": 5.0, "C": 1.0, "loss": "squared_epsilon_insensitive"},
    {"epsilon": 5.0, "fit_intercept": False},
]


@pytest.mark.parametrize("options", REGRESSORS, ids=str)
def test_linear_svr(options):
    X, y = scaled(load_diabetes)
    ours = our_svm.LinearSVR(tol=1e-10, **options).fit(X, y)
    theirs = svm.LinearSVR(tol=1e-8, max_iter=500_000, random_state=0, **options)
    fit_theirs(theirs, X, y)
    assert ours.coef_.shape == theirs.coef_.shape
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-3, atol=2e-2)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-3, atol=2e-2)
    assert ours.certificate_.met
    found = certus.certify(theirs, X, y)
    assert found[found.primary].strength is Strength.PROVED and found.value < 1e-4


def test_a_sloppy_fit_is_recognised():
    X, y = scaled(load_breast_cancer)
    for loss in ("hinge", "squared_hinge"):
        sloppy = fit_theirs(svm.LinearSVC(loss=loss, max_iter=3, random_state=0), X, y)
        found = certus.certify(sloppy, X, y)
        assert found.met is False and found.value > 1e-4
        assert "LinearSVC" in found[found.primary].fix


def test_full_is_never_looser_than_quick():
    X, y = scaled(load_breast_cancer)
    theirs = fit_theirs(svm.LinearSVC(loss="hinge", max_iter=2000), X, y)
    quick = certus.certify(theirs, X, y)
    full = certus.certify(theirs, X, y, level="full")
    assert full.value <= quick.value * (1 + 1e-6) + 1e-12


def test_crammer_singer_is_refused():
    X, y = scaled(load_iris)
    theirs = fit_theirs(svm.LinearSVC(multi_class="crammer_singer"), X, y)
    found = certus.certify(theirs, X, y)
    assert found[found.primary].strength is Strength.REFUSED


def test_the_perceptron_of_scikit_learn_is_judged():
    X, y = scaled(load_iris)
    two = y < 2
    theirs = linear_model.Perceptron(random_state=0).fit(X[two], y[two])
    found = certus.certify(theirs, X[two], y[two])
    assert found.primary == "mistake_bound" and found.status is Status.SOLVED
    assert found["training_error"].value == 0
    many = linear_model.Perceptron(random_state=0).fit(X, y)
    found = certus.certify(many, X, y)
    assert found.primary == "training_error"
    full = certus.certify(many, X, y, level="full")
    assert full["separation"].strength is Strength.PROVED


@pytest.mark.parametrize("epochs", [1, 3, 7])
def test_the_perceptron_visits_rows_as_in_scikit_learn(epochs):
    X, y = scaled(load_iris)
    options = {"shuffle": False, "tol": None, "max_iter": epochs}
    theirs = fit_theirs(linear_model.Perceptron(**options), X, y)
    with certus.config_context(on_uncertified="ignore"):
        ours = our_linear_model.Perceptron(**options).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-9)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-9)


def test_the_plateau_rule_is_that_of_torch():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    y = X[:, 0] + rng.normal(size=300) > 0
    for tol, patience in ((1e-3, 5), (1e-1, 2), (1e-2, 3)):
        options = {"shuffle": False, "tol": tol, "n_iter_no_change": patience}
        theirs = fit_theirs(linear_model.Perceptron(**options), X, y)
        ours = our_linear_model.Perceptron(**options).fit(X, y)
        assert ours.n_iter_ == theirs.n_iter_
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-9)


def test_sparse_and_text_labels_under_a_search():
    X, y = scaled(load_iris)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    S = sparse.csr_array(np.where(np.abs(X) > 0.3, X, 0.0))
    search = GridSearchCV(
        our_svm.LinearSVC(),
        {"C": [0.1, 1.0], "loss": ["hinge", "squared_hinge"]},
        n_jobs=2,
    )
    search.fit(S, names)
    assert search.best_score_ > 0.8
    assert set(search.predict(S)) <= set(names)
    assert certus.certify(search, S, names).met


def test_a_rare_class():
    X, y = scaled(load_iris)
    rows = np.append(np.flatnonzero(y < 2), np.flatnonzero(y == 2)[:1])
    for model in (our_svm.LinearSVC(), our_svm.LinearSVC(loss="hinge")):
        assert model.fit(X[rows], y[rows]).certificate_.met
