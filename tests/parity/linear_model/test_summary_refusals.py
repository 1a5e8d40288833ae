"""Where standard errors have no theory behind them, a summary refuses with a reason."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import linear_model as sk
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import scale

from certus.linear_model import LinearRegression, LogisticRegression, Ridge
from certus.linear_model.summarise import least_squares_summary, logistic_summary
from certus.linear_model.summary import SummaryRefused

INF = float("inf")


def design(X, intercept):
    return np.column_stack([np.ones(len(X)), X]) if intercept else np.asarray(X)


def unpenalised(X, y, *, intercept=True, weight=None, tol=1e-10):
    model = sk.LogisticRegression(
        C=INF, solver="newton-cholesky", fit_intercept=intercept, tol=tol
    )
    return model.fit(X, y, sample_weight=weight)


# -- refusals ---------------------------------------------------------------------


def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return scale(X[:, [0, 1, 4, 8, 11]]), y


def wine():
    X, y = load_wine(return_X_y=True)
    return scale(X[:, [2, 4, 7]]), y


def same(found, reference):
    np.testing.assert_allclose(found.coef, reference.params, rtol=1e-6)
    np.testing.assert_allclose(found.standard_errors, reference.bse, rtol=1e-6)


@pytest.fixture
def regression():
    X, y = load_diabetes(return_X_y=True, scaled=False)
    return scale(X)[:, :4], y


@pytest.mark.parametrize("model", [Ridge(), sk.Lasso(alpha=0.1), sk.RidgeCV()])
def test_penalised_regression_is_refused(model, regression):
    with pytest.raises(SummaryRefused, match=r"penalised.*LinearRegression"):
        least_squares_summary(model.fit(*regression), *regression)


def test_ridge_without_penalty_is_least_squares(regression):
    X, y = regression
    found = least_squares_summary(Ridge(alpha=0.0).fit(X, y), X, y)
    same(found, sm.OLS(y, design(X, True)).fit())


def test_penalised_or_reweighted_logistic_is_refused():
    X, y = cancer()
    with pytest.raises(SummaryRefused, match=r"C=1.0\) is penalised.*C=inf"):
        logistic_summary(sk.LogisticRegression().fit(X, y), X, y)
    with pytest.raises(SummaryRefused, match="is penalised"):
        LogisticRegression(C=10.0, l1_ratio=1.0).fit(X, y).summary(X, y)
    model = sk.LogisticRegression(C=INF, class_weight="balanced").fit(X, y)
    with pytest.raises(SummaryRefused, match="class_weight=None"):
        logistic_summary(model, X, y)
    with pytest.raises(TypeError, match="no C"):
        logistic_summary(sk.RidgeClassifier().fit(X, y), X, y)


def test_more_coefficients_than_rows_is_refused(regression):
    X, y = regression
    for n in (3, 5):
        model = LinearRegression().fit(X[:n], y[:n])
        with pytest.raises(SummaryRefused, match=f"5 coefficients on {n} rows"):
            model.summary(X[:n], y[:n])
    model = LinearRegression().fit(X, y)
    with pytest.raises(SummaryRefused, match="weights' sum"):
        model.summary(X, y, np.full(len(y), 1 / len(y)))
    some = np.zeros(len(y))
    some[:4] = 5
    with pytest.raises(SummaryRefused, match="4 different rows"):
        LinearRegression().fit(X, y, some).summary(X, y, some)
    labels = np.arange(9) % 3
    with pytest.raises(SummaryRefused, match="10 coefficients on 9 rows"):
        logistic_summary(
            SimpleNamespace(
                coef_=np.zeros((3, 4)),
                intercept_=np.zeros(3),
                classes_=[0, 1, 2],
                C=INF,
            ),
            X[:9],
            labels,
        )


def test_collinear_columns_are_named(regression):
    X, y = regression
    table = pd.DataFrame(X, columns=["age", "sex", "bmi", "bp"])
    table["both"] = table.age - 2 * table.bp + 1
    model = LinearRegression().fit(table, y)
    with pytest.raises(SummaryRefused, match="combination of") as refusal:
        model.summary(table, y)
    assert all(name in str(refusal.value) for name in ("age", "bp", "both"))
    assert "sex" not in str(refusal.value)
    dummies = np.eye(3)[np.arange(len(y)) % 3]
    model = LinearRegression().fit(dummies, y)
    with pytest.raises(SummaryRefused, match=r"combination of"):
        model.summary(dummies, y)
    free = LinearRegression(fit_intercept=False).fit(dummies, y)
    same(free.summary(dummies, y), sm.OLS(y, dummies).fit())


def test_flat_columns_are_named(regression):
    X, y = regression
    constant = np.column_stack([X, np.full(len(y), 0.1)])
    with pytest.raises(SummaryRefused, match="Column x4 is constant"):
        LinearRegression().fit(constant, y).summary(constant, y)
    free = LinearRegression(fit_intercept=False).fit(constant, y)
    same(free.summary(constant, y), sm.OLS(y, constant).fit())
    zero = np.column_stack([X, np.zeros(len(y))])
    with pytest.raises(SummaryRefused, match="Column x4 is zero"):
        LinearRegression(fit_intercept=False).fit(zero, y).summary(zero, y)


def test_single_precision_collinearity_is_seen(regression):
    X, y = regression
    X = np.column_stack([X, X[:, 0] + X[:, 1]]).astype(np.float32)
    with pytest.raises(SummaryRefused, match="combination of"):
        LinearRegression().fit(X, y).summary(X, y)


@pytest.mark.parametrize("quasi", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_separable_classes_are_refused(classes, quasi):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(90, 3))
    y = np.digitize(X[:, 1], [-0.4, 0.4][: classes - 1])
    if quasi:  # one column tells, but only where it is not zero
        X[:, 1] = np.where(rng.random(90) < 0.3, y == classes - 1, 0.0)
        y = np.where(X[:, 1] == 0, rng.integers(0, classes, 90), y)
    model = SimpleNamespace(
        coef_=np.zeros((1 if classes == 2 else classes, 3)),
        intercept_=np.zeros(1),
        classes_=np.arange(classes),
        C=INF,
    )
    with pytest.raises(SummaryRefused, match=r"classes are separable.*finite C"):
        logistic_summary(model, X, y)
    model.coef_[0] = 30  # an odd start does not hide it
    with pytest.raises(SummaryRefused, match="classes are separable"):
        logistic_summary(model, X, y)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(2, 3), st.booleans())
def test_a_summary_exists_just_where_no_direction_separates(seed, classes, intercept):
    """Small integer data, often separable, judged by a linear programme."""
    from certus.linear_model.directions import separating_direction
    from certus.objectives import Logistic, Softmax

    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, size=(14, 2)).astype(float)
    y = np.concatenate([np.arange(classes), rng.integers(0, classes, 14 - classes)])
    loss = Logistic() if classes == 2 else Softmax(classes)
    signs = 2 * y - 1 if classes == 2 else y
    separable = separating_direction(X, signs, loss, intercept) is not None
    model = SimpleNamespace(
        coef_=np.zeros((1 if classes == 2 else classes, 2)),
        intercept_=np.zeros(1),
        classes_=np.arange(classes),
        fit_intercept=intercept,
        C=INF,
    )
    try:
        logistic_summary(model, X, y)
        reason = ""
    except SummaryRefused as refusal:
        reason = str(refusal)
    if "combination" in reason or "constant" in reason or "zero in every" in reason:
        return
    assert ("separable, so" in reason) == separable, reason


def test_several_targets_and_zero_residuals_are_refused(regression):
    X, y = regression
    both = np.column_stack([y, -y])
    with pytest.raises(SummaryRefused, match="one model per column"):
        LinearRegression().fit(X, both).summary(X, both)
    same(
        LinearRegression().fit(X, both[:, :1]).summary(X, both[:, :1]),
        sm.OLS(y, design(X, True)).fit(),
    )
    for exact in (X @ [1.0, 2, 3, 4] + 5, np.full(len(y), 7.0), np.zeros(len(y))):
        with pytest.raises(SummaryRefused, match="residuals are zero"):
            LinearRegression().fit(X, exact).summary(X, exact)


def test_other_rows_or_weights_are_noticed(regression):
    X, y = regression
    model = LinearRegression().fit(X[:300], y[:300])
    with pytest.raises(SummaryRefused, match="not the rows"):
        model.summary(X[142:], y[142:])
    with pytest.raises(SummaryRefused, match=r"not the rows \(or weights\)"):
        model.summary(X[:300], y[:300], np.arange(300))
    order = np.random.default_rng(0).permutation(300)
    moved = model.summary(X[order], y[order])
    np.testing.assert_allclose(
        moved.standard_errors, model.summary(X[:300], y[:300]).standard_errors
    )
    X, y = cancer()
    half = unpenalised(X[::2], y[::2])
    with pytest.raises(SummaryRefused, match="not the rows"):
        logistic_summary(half, X[1::2], y[1::2])
    half.coef_ = half.coef_ * 1e3
    with pytest.raises(SummaryRefused, match="not the rows"):
        logistic_summary(half, X[::2], y[::2])


def test_a_class_without_rows_is_refused():
    X, y = wine()
    model = unpenalised(X, y)
    with pytest.raises(SummaryRefused, match=r"Class .*2.* has no rows"):
        logistic_summary(model, X[y < 2], y[y < 2])
    with pytest.raises(SummaryRefused, match="has no rows"):
        logistic_summary(model, X, y, (y < 2) * 1.0)


def test_bad_input_is_named(regression):
    X, y = regression
    model = LinearRegression().fit(X, y)
    holes = X.copy()
    holes[3, 1] = np.nan
    cases = (
        (lambda: model.summary(holes, y), "X contains NaN"),
        (lambda: model.summary(X, np.where(y > 200, np.inf, y)), "y holds NaN"),
        (lambda: model.summary(X[:, :2], y), "2 columns, but the model expects 4"),
        (lambda: model.summary(X, y[:5]), "5 rows and X has 442"),
        (
            lambda: model.summary(X, y, -np.ones(len(y))),
            "sample_weight must be finite, not negative",
        ),
        (lambda: model.summary(X, y, delta=0.0), "delta must be"),
        (lambda: model.summary(X, y, delta=1.0), "delta must be below 1"),
        (lambda: LinearRegression().summary(X, y), "not fitted"),
    )
    for call, text in cases:
        with pytest.raises((ValueError, NotFittedError), match=text) as error:
            call()
        assert not isinstance(error.value, SummaryRefused)
    table = pd.DataFrame(X, columns=list("abcd"))
    named = LinearRegression().fit(table, y)
    with pytest.raises(ValueError, match="same columns in the same order"):
        named.summary(table[list("dcba")], y)
    classifier = unpenalised(X, y > 140)
    with pytest.raises(ValueError, match="not fitted on"):
        logistic_summary(classifier, X, np.where(y > 140, "a", "b"))
    with pytest.raises(ValueError, match=r"y has shape \(5,\)"):
        logistic_summary(classifier, X, y[:5] > 140)
