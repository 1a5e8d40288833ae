"""The linear estimators against scikit-learn's of the same name, solved tightly.

Coefficients, predictions, shapes and dtypes over storage, weights, intercepts and
penalties; and the six data sets that come with scikit-learn, raw and standardised,
where the default tolerance must be met without a warning.
"""

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn import datasets, linear_model
from sklearn.preprocessing import StandardScaler

import certus
from certus import linear_model as our_linear_model
from certus.registry import ESTIMATORS, Row
from helpers.linear import LINEAR

Array = np.ndarray

#: Our options beside theirs, which ask their solver for as much as it can give.
PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "LinearRegression": ({}, {"tol": 1e-12}),
    "Ridge": ({"alpha": 2.0}, {"alpha": 2.0, "tol": 1e-12}),
    "RidgeClassifier": ({"alpha": 2.0}, {"alpha": 2.0, "tol": 1e-12}),
    "Lasso": (
        {"alpha": 0.1, "tol": 1e-12},
        {"alpha": 0.1, "tol": 1e-12, "max_iter": 100_000},
    ),
    "ElasticNet": (
        {"alpha": 0.1, "l1_ratio": 0.3, "tol": 1e-12},
        {"alpha": 0.1, "l1_ratio": 0.3, "tol": 1e-12, "max_iter": 100_000},
    ),
    "LogisticRegression": (
        {"C": 0.7, "tol": 1e-12},
        {"C": 0.7, "tol": 1e-12, "max_iter": 10_000, "solver": "newton-cg"},
    ),
}
CLASSIFIERS = ("RidgeClassifier", "LogisticRegression")
FORMS: dict[str, Callable[[Array], Any]] = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "csr": sparse.csr_matrix,
    "csc": sparse.csc_array,
}


def pair(name: str, **options: Any) -> tuple[Any, Any]:
    """Ours and theirs, unfitted."""
    ours, theirs = PAIRS[name]
    return (
        getattr(our_linear_model, name)(**ours, **options),
        getattr(linear_model, name)(**theirs, **options),
    )


def data(name: str, classes: int = 3) -> tuple[Array, Array, Array]:
    """X with zeros in it, targets or labels, weights."""
    rng = np.random.default_rng(0)
    X = rng.normal(0.4, 1, (80, 5)) * (rng.uniform(size=(80, 5)) < 0.7)
    s = rng.uniform(0.1, 3, 80)
    if name in CLASSIFIERS:
        labels = np.array(["ash", "birch", "cedar"])[:classes]
        scores = X[:, :classes] + rng.gumbel(size=(80, classes))
        return X, labels[scores.argmax(axis=1)], s
    return X, X @ [1.0, -1, 0.5, 0, 0] + 1 + 0.3 * rng.normal(size=80), s


def compare(ours: Any, theirs: Any, X: Any, digits: float = 1e-6) -> None:
    """Attributes and everything predicted from them."""
    if type(ours).__name__ != "RidgeClassifier":  # one row for two classes
        assert ours.coef_.shape == theirs.coef_.shape
        assert np.shape(ours.intercept_) == np.shape(theirs.intercept_)
    assert ours.n_features_in_ == theirs.n_features_in_
    close = {"rtol": digits, "atol": digits}
    np.testing.assert_allclose(ours.coef_.ravel(), theirs.coef_.ravel(), **close)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, **close)
    found = ours.predict(X)
    assert found.shape == theirs.predict(X).shape
    if hasattr(ours, "classes_"):
        assert np.array_equal(ours.classes_, theirs.classes_)
        assert np.array_equal(found, theirs.predict(X))
        scores = ours.decision_function(X)
        assert scores.shape == theirs.decision_function(X).shape
    else:
        assert found.dtype == theirs.predict(X).dtype
        np.testing.assert_allclose(found, theirs.predict(X), **close)
    for method in ("predict_proba", "predict_log_proba"):
        if hasattr(ours, method):
            expected = getattr(theirs, method)(X)
            np.testing.assert_allclose(getattr(ours, method)(X), expected, **close)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", PAIRS)
def test_storage_intercept_and_weights(
    name: str, form: str, intercept: bool, weighted: bool
) -> None:
    X, y, s = data(name)
    X = FORMS[form](X)
    ours, theirs = pair(name, fit_intercept=intercept)
    weight = {"sample_weight": s} if weighted else {}
    ours.fit(X, y, **weight)
    theirs.fit(X, y, **weight)
    compare(ours, theirs, X)
    assert certus.certify(theirs, X, y, **weight).met


@pytest.mark.parametrize("balance", ["balanced", {"ash": 3.0, "birch": 0.2}])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_class_weights(name: str, weighted: bool, classes: int, balance: Any) -> None:
    X, y, s = data(name, classes)
    ours, theirs = pair(name, class_weight=balance)
    weight = {"sample_weight": s} if weighted else {}
    compare(ours.fit(X, y, **weight), theirs.fit(X, y, **weight), X)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", PAIRS)
def test_single_precision(name: str, form: str) -> None:
    X, y, _ = data(name)
    X = FORMS[form](X.astype(np.float32))
    ours, theirs = pair(name)
    ours.set_params(tol=1e-6)
    # Theirs iterates in float32 and cannot reach the tolerances above.
    theirs.set_params(tol=1e-6).fit(X, y)
    ours.fit(X, y)
    assert ours.coef_.dtype == theirs.coef_.dtype == np.float32
    assert np.asarray(ours.intercept_).dtype == np.float32
    compare(ours, theirs, X, 5e-3)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("name", ["LinearRegression", "Ridge", "Lasso", "ElasticNet"])
def test_several_targets(name: str, intercept: bool) -> None:
    X, y, _ = data(name)
    Y = np.column_stack([y, X[:, 0] ** 2, np.sin(y)])
    ours, theirs = pair(name, fit_intercept=intercept)
    compare(ours.fit(X, Y), theirs.fit(X, Y), X)
    column = Y[:, :1]
    compare(ours.fit(X, column), theirs.fit(X, column), X)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    ("options", "solver"),
    [
        ({"C": np.inf}, "newton-cg"),
        ({"C": 0.05}, "newton-cg"),
        ({"C": 0.3, "l1_ratio": 1.0}, "saga"),
        ({"C": 0.5, "l1_ratio": 0.4}, "saga"),
    ],
    ids=["none", "l2", "l1", "elasticnet"],
)
def test_penalties_of_logistic_regression(
    options: dict[str, Any], solver: str, classes: int, intercept: bool
) -> None:
    X, y, s = data("LogisticRegression", classes)
    options = {**options, "fit_intercept": intercept}
    ours = our_linear_model.LogisticRegression(tol=1e-9, **options).fit(
        X, y, sample_weight=s
    )
    theirs = linear_model.LogisticRegression(
        tol=1e-9, max_iter=50_000, solver=solver, random_state=0, **options
    ).fit(X, y, sample_weight=s)
    if np.isinf(options["C"]) and classes > 2:  # unique up to a common vector only
        for model in (ours, theirs):
            model.coef_ = model.coef_ - model.coef_.mean(axis=0)
    compare(ours, theirs, X, 2e-4)
    if "l1_ratio" in options:
        assert np.array_equal(ours.coef_ == 0, np.abs(theirs.coef_) < 1e-6)


@pytest.mark.parametrize("penalty", ["l1", "l2", "elasticnet", None])
def test_the_deprecated_penalty_means_the_same(penalty: str | None) -> None:
    X, y, _ = data("LogisticRegression", 2)
    ours = our_linear_model.LogisticRegression(
        penalty=penalty, C=0.5, l1_ratio=0.5, tol=1e-9
    )
    theirs = linear_model.LogisticRegression(
        penalty=penalty, C=0.5, l1_ratio=0.5, solver="saga", tol=1e-9, max_iter=50_000
    )
    with warnings.catch_warnings():  # both also say what is inconsistent
        warnings.simplefilter("ignore", UserWarning)
        for model in (ours, theirs):
            with pytest.warns(FutureWarning, match="penalty"):
                model.fit(X, y)
    compare(ours, theirs, X, 2e-4)


# -- cross-validated and path versions ----------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("several", [False, True])
def test_ridge_cv(several: bool, intercept: bool, weighted: bool) -> None:
    X, y, s = data("Ridge")
    Y = np.column_stack([y, np.cos(y)]) if several else y
    options = {
        "alphas": np.geomspace(1e-2, 1e2, 7),
        "fit_intercept": intercept,
        "store_cv_results": True,
    }
    weight = {"sample_weight": s} if weighted else {}
    ours = our_linear_model.RidgeCV(**options).fit(X, Y, **weight)
    theirs = linear_model.RidgeCV(**options).fit(X, Y, **weight)
    assert ours.alpha_ == theirs.alpha_
    assert ours.best_score_ == pytest.approx(theirs.best_score_)
    np.testing.assert_allclose(ours.cv_results_, theirs.cv_results_, rtol=1e-7)
    compare(ours, theirs, X)


def test_ridge_cv_with_folds_scores_and_one_level_per_target() -> None:
    X, y, _ = data("Ridge")
    alphas = [0.1, 1.0, 10.0, 100.0]
    for options in ({"cv": 4}, {"scoring": "neg_mean_absolute_error"}):
        ours = our_linear_model.RidgeCV(alphas, **options).fit(X, y)
        theirs = linear_model.RidgeCV(alphas, **options).fit(X, y)
        assert ours.alpha_ == theirs.alpha_
        assert ours.best_score_ == pytest.approx(theirs.best_score_)
    Y = np.column_stack([y, np.random.default_rng(1).normal(size=80)])
    ours = our_linear_model.RidgeCV(alphas, alpha_per_target=True).fit(X, Y)
    theirs = linear_model.RidgeCV(alphas, alpha_per_target=True).fit(X, Y)
    assert np.array_equal(ours.alpha_, theirs.alpha_) and len(set(ours.alpha_)) == 2
    compare(ours, theirs, X)


@pytest.mark.parametrize("form", ["C", "csr"])
@pytest.mark.parametrize("weighted", [False, True])
def test_lasso_cv(weighted: bool, form: str) -> None:
    X, y, s = data("Lasso")
    X = FORMS[form](X)
    weight = {"sample_weight": s} if weighted else {}
    ours = our_linear_model.LassoCV(cv=4, tol=1e-12, alphas=30).fit(X, y, **weight)
    theirs = linear_model.LassoCV(cv=4, tol=1e-10, alphas=30, max_iter=50_000)
    theirs.fit(X, y, **weight)
    np.testing.assert_allclose(ours.alphas_, theirs.alphas_, rtol=1e-10)
    np.testing.assert_allclose(ours.mse_path_, theirs.mse_path_, rtol=1e-4)
    assert ours.alpha_ == pytest.approx(theirs.alpha_)
    compare(ours, theirs, X, 1e-4)


def test_elastic_net_cv() -> None:
    X, y, _ = data("ElasticNet")
    options = {"l1_ratio": [0.2, 0.9], "cv": 3, "alphas": 12}
    ours = our_linear_model.ElasticNetCV(tol=1e-12, **options).fit(X, y)
    theirs = linear_model.ElasticNetCV(tol=1e-10, max_iter=50_000, **options).fit(X, y)
    assert ours.mse_path_.shape == theirs.mse_path_.shape == (2, 12, 3)
    np.testing.assert_allclose(ours.alphas_, theirs.alphas_, rtol=1e-10)
    np.testing.assert_allclose(ours.mse_path_, theirs.mse_path_, rtol=1e-4)
    assert ours.l1_ratio_ == theirs.l1_ratio_
    compare(ours, theirs, X, 1e-4)


def test_paths() -> None:
    X, y, _ = data("Lasso")
    for ours, theirs, options in (
        (our_linear_model.lasso_path, linear_model.lasso_path, {}),
        (our_linear_model.enet_path, linear_model.enet_path, {"l1_ratio": 0.4}),
    ):
        alphas, coefs, gaps = ours(X, y, alphas=15, tol=1e-12, **options)
        expected = theirs(X, y, alphas=15, tol=1e-12, max_iter=50_000, **options)
        assert coefs.shape == expected[1].shape and gaps.shape == expected[2].shape
        np.testing.assert_allclose(alphas, expected[0], rtol=1e-10)
        np.testing.assert_allclose(coefs, expected[1], atol=1e-5)


@pytest.mark.parametrize("n_targets", [1, 3])
@pytest.mark.parametrize("l1_ratio", [0.4, 1.0])
def test_paths_of_several_targets(n_targets: int, l1_ratio: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 8))
    Y = X[:, :4] @ rng.normal(size=(4, n_targets)) + rng.normal(size=(60, n_targets))
    options = {"l1_ratio": l1_ratio, "alphas": 9, "return_n_iter": True}
    found = our_linear_model.enet_path(X, Y, tol=1e-11, **options)
    expected = linear_model.enet_path(X, Y, tol=1e-11, max_iter=50_000, **options)
    assert found[1].shape == expected[1].shape == (n_targets, 8, 9)
    assert found[2].shape == expected[2].shape and len(found[3]) == len(expected[3])
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-10)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-5)
    again = our_linear_model.enet_path(
        X, Y, coef_init=found[1][:, :, -1], tol=1e-11, **options
    )
    np.testing.assert_allclose(again[1], found[1], atol=1e-5)
    for path in (our_linear_model.enet_path, linear_model.enet_path):
        with pytest.raises(ValueError, match="not allowed for multi-output"):
            path(X, Y, positive=True)


@pytest.mark.parametrize("classes", [2, 3])
def test_logistic_regression_cv(classes: int) -> None:
    X, y, _ = data("LogisticRegression", classes)
    options = {
        "Cs": [0.01, 0.1, 1.0],
        "cv": 3,
        "l1_ratios": [0.0],
        "use_legacy_attributes": False,
        "scoring": "neg_log_loss",
    }
    ours = our_linear_model.LogisticRegressionCV(tol=1e-10, **options).fit(X, y)
    theirs = linear_model.LogisticRegressionCV(
        tol=1e-10, max_iter=10_000, solver="newton-cg", **options
    ).fit(X, y)
    assert ours.scores_.shape == theirs.scores_.shape
    assert ours.coefs_paths_.shape == theirs.coefs_paths_.shape
    np.testing.assert_allclose(ours.scores_, theirs.scores_, rtol=1e-5)
    assert (ours.C_, ours.l1_ratio_) == (theirs.C_, theirs.l1_ratio_)
    compare(ours, theirs, X, 1e-4)


# -- the signatures -----------------------------------------------------------------


SHARED = [row for row in ESTIMATORS.values() if row.shared and row.name in LINEAR]


@pytest.mark.parametrize("row", SHARED, ids=lambda row: row.name)
def test_parameters_are_those_of_scikit_learn_and_a_few_more(row: Row) -> None:
    from inspect import signature

    ours = signature(LINEAR[row.name]).parameters
    package = import_module(f"sklearn.{row.home}")
    theirs = signature(getattr(package, row.name)).parameters
    assert set(theirs) <= set(ours)
    more = {"max_time", "solver", "tol", "max_iter"}
    if row.name == "Perceptron":
        more |= {"multi_class", "decision"}
    assert set(ours) - set(theirs) <= more


# -- data sets ----------------------------------------------------------------------

SETS = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "digits": datasets.load_digits,
    "breast_cancer": datasets.load_breast_cancer,
    "diabetes": datasets.load_diabetes,
    "linnerud": datasets.load_linnerud,
}
LABELLED = ("iris", "wine", "digits", "breast_cancer")
TASKS = ("MultiTaskElasticNet", "MultiTaskElasticNetCV", "MultiTaskLasso")
TASKS += ("MultiTaskLassoCV",)
MULTI = ("LinearRegression", "Ridge", "RidgeCV", "Lasso", "ElasticNet", *TASKS)
CASES = [
    (name, key)
    for key in SETS
    for name in LINEAR
    if key in LABELLED or not ("Class" in name or "Logistic" in name)
    if key == "linnerud" or name not in TASKS
]


@pytest.mark.parametrize("scaled", [False, True], ids=["raw", "standardised"])
@pytest.mark.parametrize(("name", "key"), CASES)
def test_defaults_are_solved_on_familiar_data(
    name: str, key: str, scaled: bool
) -> None:
    X, y = SETS[key](return_X_y=True)
    if key == "linnerud" and name not in MULTI:
        y = y[:, 0]
    if name == "GammaRegressor" and key in LABELLED:
        y = y + 1  # amounts are positive
    if scaled:
        X = StandardScaler().fit_transform(X)
    model = LINEAR[name]()
    if name == "LogisticRegressionCV":
        model.set_params(Cs=[0.01, 1.0], cv=2, l1_ratios=(0.0,))
        if key == "digits":
            X, y = X[::4], y[::4]
    elif key == "digits" and name.endswith("CV"):
        model.set_params(**({"alphas": 20} if name != "RidgeCV" else {}))
    model.fit(X, y)  # a warning is an error here
    if name == "Perceptron" and model.certificate_.primary == "training_error":
        assert model.certificate_["update_sum"].met  # nothing else was promised
        return
    assert model.certificate_.met
    # The numbers of these two are mistakes, and a bound on the risk.
    if name not in ("Perceptron", "StochasticLinearClassifier"):
        assert model.certificate_.value <= 1e-6
