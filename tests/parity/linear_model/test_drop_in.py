"""Linear models in scikit-learn's place: what its own tests and its tools ask of them.

Each test compares with scikit-learn's estimator, solved to high accuracy.
"""

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn import linear_model as theirs
from sklearn.datasets import (
    load_breast_cancer,
    load_iris,
    make_classification,
    make_multilabel_classification,
)

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
def test_liblinear_penalises_the_intercept_as_in_scikit_learn(
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


# -- attributes and methods -----------------------------------------------------------


def numbers(n: int = 60, d: int = 4) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) * [1, 10, 0.1, 1][:d]
    return X, X @ np.arange(1.0, d + 1) + rng.normal(size=n)


@pytest.mark.parametrize("shape", [(60, 4), (4, 9)])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("solver", ["auto", "qr", "svd"])
def test_singular_values_and_rank(
    shape: tuple[int, int], intercept: bool, weighted: bool, solver: str
) -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=shape) + 3, rng.normal(size=shape[0])
    s = rng.uniform(0.5, 2, shape[0]) if weighted else None
    model = ours.LinearRegression(fit_intercept=intercept, solver=solver).fit(X, y, s)
    other = theirs.LinearRegression(fit_intercept=intercept).fit(X, y, s)
    assert model.singular_.shape == other.singular_.shape
    top = other.singular_[0]
    np.testing.assert_allclose(model.singular_ / top, other.singular_ / top, atol=1e-12)
    assert model.rank_ == other.rank_
    model.fit(sparse.csr_matrix(X), y, s)
    assert not hasattr(model, "singular_")  # nor has theirs, of sparse rows


@pytest.mark.parametrize(
    "name",
    [
        *("Lasso", "ElasticNet", "LassoCV", "ElasticNetCV", "MultiTaskLasso"),
        *("MultiTaskElasticNet", "MultiTaskLassoCV", "MultiTaskElasticNetCV"),
    ],
)
def test_path_is_a_method_of_the_class_and_of_a_model(name: str) -> None:
    X, y = numbers()
    X, y = X - X.mean(axis=0), y - y.mean()
    if name.startswith("MultiTask"):
        y = np.column_stack([y, y[::-1]])
    mine, their = getattr(ours, name), getattr(theirs, name)
    alphas, coefs, _ = mine.path(X, y, alphas=[0.1, 1.0], tol=1e-10)
    expected = their.path(X, y, alphas=[0.1, 1.0], tol=1e-10, max_iter=100_000)
    np.testing.assert_allclose(alphas, expected[0])
    np.testing.assert_allclose(coefs, expected[1], atol=1e-5)
    assert np.array_equal(mine().path(X, y, alphas=[0.1, 1.0], tol=1e-10)[1], coefs)


@pytest.mark.parametrize("name", ["LogisticRegression", "LogisticRegressionCV"])
def test_coefficients_may_be_sparse_and_dense_again(name: str) -> None:
    X, y = two_classes()
    model = getattr(ours, name)().fit(X, y)
    expected = model.predict_proba(X)
    assert sparse.issparse(model.sparsify().coef_)
    np.testing.assert_allclose(model.predict_proba(X), expected)
    assert certus.certify(model, X, y).met
    assert isinstance(model.densify().coef_, np.ndarray)


# -- several labels for each row ------------------------------------------------------


@pytest.mark.parametrize("labels", [2, 4])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("weighted", [True, False])
def test_ridge_classifier_of_several_labels(
    labels: int, form: Any, weighted: bool
) -> None:
    X, Y = make_multilabel_classification(150, 8, n_classes=labels, random_state=0)
    s = np.random.default_rng(0).uniform(0.5, 2, 150) if weighted else None
    model = ours.RidgeClassifier(0.5).fit(form(X), Y, s)
    other = theirs.RidgeClassifier(0.5, tol=1e-12).fit(form(X), Y, s)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-5)
    assert np.array_equal(model.classes_, other.classes_)
    assert np.array_equal(model.predict(X), other.predict(X))
    assert model.score(X, Y) == other.score(X, Y)
    assert np.array_equal(model.to_sklearn().predict(X), other.predict(X))
    assert model.certificate_.met and certus.certify(other, X, Y, s).met
    wrong = Y.copy()
    wrong[:20] = 1 - wrong[:20]
    assert not certus.certify(other, X, wrong, s).met


def test_ridge_classifier_says_what_columns_it_does_not_take() -> None:
    X, Y = make_multilabel_classification(50, 4, n_classes=3, random_state=0)
    for model in (ours.RidgeClassifier(), theirs.RidgeClassifier()):
        with pytest.raises(ValueError, match="Multioutput target data"):
            model.fit(X, Y + np.arange(3))
    with pytest.raises(ValueError, match="not 0 or 1"):
        ours.RidgeClassifier().fit(X, Y + 1)
    with pytest.raises(ValueError, match="class_weight has no meaning"):
        ours.RidgeClassifier(class_weight="balanced").fit(X, Y)
    other = theirs.RidgeClassifier(class_weight="balanced").fit(X, Y)
    assert certus.certify(other, X, Y).met is None
    fitted = ours.RidgeClassifier().fit(X, Y)
    with pytest.raises(ValueError, match="not 0 or 1"):
        certus.certify(fitted, X, Y + 1)


# -- the perceptron, some rows at a time ----------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("options", [{}, {"eta0": 0.5}, {"fit_intercept": False}])
def test_perceptron_learns_some_rows_at_a_time(
    form: Any, options: dict[str, Any]
) -> None:
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(150)
    X, y = X[order], y[order]
    model = ours.Perceptron(shuffle=False, **options)
    other = theirs.Perceptron(shuffle=False, **options)
    for start in range(0, 150, 30):
        rows = slice(start, start + 30)
        classes = [2, 0, 1] if start == 0 else None
        model.partial_fit(form(X[rows]), y[rows], classes)
        other.partial_fit(X[rows], y[rows], classes)
        np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-10)
        assert model.t_ == other.t_
        assert model.certificate_["update_sum"].met
    assert np.array_equal(model.predict(X), other.predict(X))


def test_partial_fit_of_the_perceptron_says_what_it_needs() -> None:
    X, y = load_iris(return_X_y=True)
    for model in (ours.Perceptron(), theirs.Perceptron()):
        with pytest.raises(ValueError, match="classes must be passed on the first"):
            model.partial_fit(X, y)
        model.partial_fit(X[:60], y[:60], classes=[0, 1, 2])  # a class is missing
        with pytest.raises(ValueError, match="is not the same as on last call"):
            model.partial_fit(X, y, classes=[0, 1])
        with pytest.raises(ValueError):
            model.partial_fit(X, y + 5)
        with pytest.raises(ValueError):
            model.partial_fit(X[:, :2], y)
    for option in ({"early_stopping": True}, {"class_weight": "balanced"}):
        with pytest.raises(ValueError, match="early_stopping=False"):
            ours.Perceptron(**option).partial_fit(X, y, classes=[0, 1, 2])
    pairs = ours.Perceptron(multi_class="ovo")
    pairs.partial_fit(X[:50], y[:50], classes=[0, 1, 2])  # no pair of 1 and 2 yet
    assert pairs.partial_fit(X, y).score(X, y) > 0.5


# -- other libraries ------------------------------------------------------------------


def test_ransac_knows_how_many_rows_least_squares_needs() -> None:
    X, y = numbers(80)
    y[::10] += 200
    model = theirs.RANSACRegressor(ours.LinearRegression(), random_state=0).fit(X, y)
    other = theirs.RANSACRegressor(random_state=0).fit(X, y)
    assert np.array_equal(model.inlier_mask_, other.inlier_mask_)
    np.testing.assert_allclose(model.estimator_.coef_, other.estimator_.coef_)
    kept = model.inlier_mask_
    assert certus.certify(model.estimator_, X[kept], y[kept]).met


@pytest.mark.parametrize(
    "name",
    [
        *("LinearRegression", "Ridge", "Lasso", "HuberRegressor", "RidgeCV"),
        *("QuantileRegressor", "PoissonRegressor"),
    ],
)
def test_targets_may_be_strings_that_spell_numbers(name: str) -> None:
    X, y = numbers()
    y = np.abs(y.round(2))
    model = getattr(ours, name)()
    expected = model.fit(X, y).coef_
    for text in (y.astype(str), y.astype(str).astype(object), [str(v) for v in y]):
        model.fit(X, text)
        np.testing.assert_array_equal(model.coef_, expected)
        assert certus.certify(model, X, text).primary == model.certificate_.primary
    with pytest.raises(ValueError, match="could not convert string to float"):
        model.fit(X, np.full(len(X), "many"))


@pytest.mark.parametrize("dispatch", [False, True])
def test_tensors_are_read_and_arrays_returned(
    dispatch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    X, y = numbers()
    labels = (y > 0).astype(int)
    rows, targets, codes = (torch.tensor(a) for a in (X, y, labels))
    weights = torch.ones(len(X), dtype=torch.float64)
    with config_context(array_api_dispatch=dispatch):
        for model, read, own in (
            (ours.Ridge(), targets, y),
            (ours.Lasso(), targets, y),
            (ours.LogisticRegression(), codes, labels),
            (ours.RidgeClassifier(), codes, labels),
        ):
            model.fit(rows, read, sample_weight=weights)
            assert isinstance(model.coef_, np.ndarray) and model.certificate_.met
            predicted = model.predict(rows)
            assert isinstance(predicted, np.ndarray)
            assert model.score(rows, read) == pytest.approx(model.score(X, own))
            plain = model.coef_.copy()
            np.testing.assert_allclose(model.fit(X, own).coef_, plain, rtol=1e-9)
