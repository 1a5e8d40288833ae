"""Summaries against statsmodels, NIST's certified values, and their own refusals."""

from __future__ import annotations

import json
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn import linear_model as sk
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.preprocessing import scale

from certus.linear_model import LinearRegression, LogisticRegression
from certus.linear_model.summarise import least_squares_summary, logistic_summary
from certus.linear_model.summary import Summary

INF = float("inf")


def design(X, intercept):
    return np.column_stack([np.ones(len(X)), X]) if intercept else np.asarray(X)


def agree(found: Summary, reference, *, rtol=1e-6):
    """Every number of the table equals the reference's."""

    def flat(values):
        return np.asarray(values).T.ravel()

    se = flat(reference.bse)
    np.testing.assert_allclose(found.standard_errors, se, rtol=rtol)
    # An estimate near zero is known to a share of its standard error.
    assert (np.abs(found.coef - flat(reference.params)) / se).max() < rtol
    tests = flat(reference.tvalues)
    np.testing.assert_allclose(found.statistic, tests, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(found.p_values, flat(reference.pvalues), atol=rtol)
    interval = np.asarray(reference.conf_int(found.delta)).reshape(-1, 2)
    assert (np.abs(found.conf_int - interval) / se[:, None]).max() < 10 * rtol
    np.testing.assert_allclose(found.log_likelihood, reference.llf, rtol=1e-9)
    assert found.df_resid == reference.df_resid


# -- least squares ----------------------------------------------------------------


def regression_data(name):
    rng = np.random.default_rng(3)
    X, y = load_diabetes(return_X_y=True, scaled=False)
    if name == "diabetes raw":
        return X, y
    if name == "diabetes standardised":
        return scale(X), y
    X = rng.normal([0, 3, 1e3, -50, 0], [1e-1, 1, 1e2, 1, 1], size=(300, 5))
    return X, X @ [10, 0.5, 1e-2, 0, 2] + rng.standard_t(5, 300)


REGRESSIONS = ("diabetes raw", "diabetes standardised", "generated")


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("name", REGRESSIONS)
def test_least_squares_equals_statsmodels(name, intercept):
    X, y = regression_data(name)
    reference = sm.OLS(y, design(X, intercept)).fit()
    model = LinearRegression(fit_intercept=intercept).fit(X, y)
    agree(model.summary(X, y), reference)
    agree(model.summary(X, y, delta=0.2), reference)
    foreign = sk.LinearRegression(fit_intercept=intercept).fit(X, y)
    agree(least_squares_summary(foreign, X, y), reference)


def test_longley_has_the_certified_standard_errors():
    """NIST StRD Longley: certified to fifteen digits, condition number 4.9e9."""
    table = sm.datasets.longley.load_pandas()
    X, y = table.exog.to_numpy(), table.endog.to_numpy()
    found = LinearRegression().fit(X, y).summary(X, y)
    coef = [-3482258.63459582, 15.0618722713733, -0.0358191792925910]
    coef += [-2.02022980381683, -1.03322686717359, -0.0511041056535807]
    errors = [890420.383607373, 84.9149257747669, 0.0334910077722432]
    errors += [0.488399681651699, 0.214274163161675, 0.226073200069370]
    np.testing.assert_allclose(found.coef, [*coef, 1829.15146461355], rtol=1e-9)
    errors.append(455.478499142212)
    np.testing.assert_allclose(found.standard_errors, errors, rtol=1e-9)


def test_rational_arithmetic_agrees_on_badly_scaled_columns():
    """Condition number 1e11, where statsmodels itself is off by 1e-5."""
    rng = np.random.default_rng(3)
    X = rng.normal([0, 3, 1e5, -50], [1e-6, 1, 1e4, 1], size=(60, 4))
    y = X @ [1e6, 0.5, 1e-4, 0] + rng.normal(size=60)
    found = LinearRegression().fit(X, y).summary(X, y)
    A = np.vectorize(Fraction)(design(X, True))
    b = np.vectorize(Fraction)(y)
    inverse = exact_inverse(A.T @ A)
    w = inverse @ (A.T @ b)
    variance = sum((b - A @ w) ** 2) / 55
    np.testing.assert_allclose(found.coef, w.astype(float), rtol=1e-10)
    errors = np.sqrt((np.diag(inverse) * variance).astype(float))
    np.testing.assert_allclose(found.standard_errors, errors, rtol=1e-10)


def exact_inverse(M):
    """Gauss and Jordan on an array of fractions."""
    p = len(M)
    M = np.concatenate([M, np.vectorize(Fraction)(np.eye(p))], axis=1)
    for i in range(p):
        M[i] = M[i] / M[i, i]
        for j in set(range(p)) - {i}:
            M[j] = M[j] - M[j, i] * M[i]
    return M[:, p:]


@pytest.mark.parametrize("intercept", [True, False])
def test_least_squares_weights_are_frequencies(intercept):
    X, y = regression_data("diabetes raw")
    counts = np.random.default_rng(0).integers(0, 4, len(y))
    model = LinearRegression(fit_intercept=intercept).fit(X, y, sample_weight=counts)
    found = model.summary(X, y, sample_weight=counts)
    repeated = design(X, intercept).repeat(counts, axis=0)
    agree(found, sm.OLS(y.repeat(counts), repeated).fit())
    gaussian = sm.GLM(y, design(X, intercept), freq_weights=counts).fit()
    np.testing.assert_allclose(found.standard_errors, gaussian.bse, rtol=1e-6)
    assert any("frequencies" in note for note in found.notes)
    assert not model.summary(X, y, counts * 1.0).to_dict()["notes"][1:]
    halved = model.summary(X, y, counts / 2)
    assert any("not whole" in note for note in halved.notes)
    assert halved.df_resid == counts.sum() / 2 - len(found.names)


@settings(max_examples=30)
@given(
    st.lists(st.integers(-150, 150), min_size=3, max_size=3),
    st.integers(-150, 150),
    st.integers(0, 2**32 - 1),
)
def test_standard_errors_follow_the_units(powers, power, seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal([0, 1, -2], size=(40, 3)), rng.normal(size=40)
    c, unit = 2.0 ** np.array(powers), 2.0**power
    plain = least_squares_summary(sk.LinearRegression().fit(X, y), X, y)
    b, w = plain.coef[0], plain.coef[1:]
    model = SimpleNamespace(coef_=w * unit / c, intercept_=b * unit, fit_intercept=True)
    found = least_squares_summary(model, X * c, y * unit)
    by = unit / np.array([1.0, *c])
    np.testing.assert_allclose(found.standard_errors / by, plain.standard_errors)
    np.testing.assert_allclose(found.statistic, plain.statistic, rtol=1e-7, atol=1e-9)


def test_extreme_units():
    X, y = regression_data("diabetes standardised")
    c = 10.0 ** np.linspace(-150, 150, X.shape[1])
    plain = sk.LinearRegression().fit(X, y)
    model = SimpleNamespace(
        coef_=plain.coef_ * (1e150 / c), intercept_=plain.intercept_ * 1e150
    )
    with np.errstate(all="raise"):
        found = least_squares_summary(model, X * c, y * 1e150)
    errors = sm.OLS(y, design(X, True)).fit().bse * 1e150 / np.array([1, *c])
    np.testing.assert_allclose(found.standard_errors, errors, rtol=1e-6)
    assert all(len(line.split()) == 7 for line in str(found).splitlines()[2:])


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_array, sparse.coo_array])
def test_sparse_equals_dense(form):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 4)) * (rng.random((200, 4)) < 0.4)
    y = X @ [1.0, 0, -1, 2] + rng.normal(size=200)
    agree(
        LinearRegression().fit(form(X), y).summary(form(X), y),
        sm.OLS(y, design(X, True)).fit(),
    )
    labels = y > 0.3
    model = sk.LogisticRegression(C=INF).fit(X, labels)
    agree(
        logistic_summary(model, form(X), labels),
        sm.Logit(labels, design(X, True)).fit(disp=0),
    )


def test_blocks_of_rows_change_nothing(monkeypatch):
    X, y = regression_data("diabetes raw")
    model = LinearRegression().fit(X, y)
    whole = model.summary(X, y)
    monkeypatch.setattr("certus.linear_model.likelihood._BLOCK", 100)
    parts = model.summary(X, y)
    np.testing.assert_allclose(parts.standard_errors, whole.standard_errors, rtol=1e-11)


def test_single_precision_is_summed_in_double():
    X, y = regression_data("diabetes standardised")
    X = X.astype(np.float32)
    found = LinearRegression().fit(X, y).summary(X, y)
    agree(found, sm.OLS(y, design(X.astype(float), True)).fit())


# -- logistic ---------------------------------------------------------------------


def binary_data(name):
    X, y = load_breast_cancer(return_X_y=True)
    X = X[:, [0, 1, 4, 8, 11]]
    if name == "cancer raw":
        return X, y
    if name == "cancer standardised":
        return scale(X), y
    if name == "spector":
        table = sm.datasets.spector.load_pandas()
        return table.exog.to_numpy(), table.endog.to_numpy().astype(int)
    rng = np.random.default_rng(8)
    X = rng.normal(size=(400, 4)) * [1e-3, 1, 1e3, 1]
    return X, np.where(rng.logistic(size=400) < X @ [900, 0.3, -1e-3, 0], "yes", "no")


BINARY = ("cancer raw", "cancer standardised", "spector", "generated")


def unpenalised(X, y, *, intercept=True, weight=None, tol=1e-10):
    model = sk.LogisticRegression(
        C=INF, solver="newton-cholesky", fit_intercept=intercept, tol=tol
    )
    return model.fit(X, y, sample_weight=weight)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("name", BINARY)
def test_logistic_equals_statsmodels(name, intercept):
    X, y = binary_data(name)
    found = logistic_summary(unpenalised(X, y, intercept=intercept), X, y)
    second = (y == np.unique(y)[1]).astype(int)
    reference = sm.Logit(second, design(X, intercept))
    reference = reference.fit(disp=0, method="newton", tol=1e-10, maxiter=100)
    agree(found, reference)
    own = LogisticRegression(C=INF, fit_intercept=intercept).fit(X, y)
    agree(own.summary(X, y), reference)
    assert found.kind == "z"


def multinomial_data(name):
    if name == "iris sepal":
        X, y = load_iris(return_X_y=True)
        return X[:, [1]], y
    if name.startswith("wine"):
        X, y = load_wine(return_X_y=True)
        X = X[:, [2, 4, 7]]
        return (scale(X) if "standardised" in name else X), y
    if name == "anes96":
        table = sm.datasets.anes96.load_pandas()
        columns = ["logpopul", "selfLR", "age", "educ", "income"]
        return table.exog[columns].to_numpy(), table.endog.to_numpy().astype(int)
    rng = np.random.default_rng(5)
    X = rng.normal([0, 10, 0], size=(500, 3))
    z = X @ rng.normal(size=(3, 4)) + rng.gumbel(size=(500, 4)) * 2
    return X, np.array(list("abcd"))[z.argmax(axis=1)]


MULTINOMIAL = ("iris sepal", "wine raw", "wine standardised", "anes96", "generated")


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("name", MULTINOMIAL)
def test_multinomial_equals_statsmodels(name, intercept):
    X, y = multinomial_data(name)
    found = logistic_summary(unpenalised(X, y, intercept=intercept), X, y)
    classes, codes = np.unique(y, return_inverse=True)
    reference = sm.MNLogit(codes, design(X, intercept))
    reference = reference.fit(disp=0, method="newton", tol=1e-10, maxiter=100)
    agree(found, reference)
    own = LogisticRegression(C=INF, fit_intercept=intercept).fit(X, y)
    agree(own.summary(X, y), reference)
    p = X.shape[1] + intercept
    assert found.classes == tuple(str(c) for c in classes[1:].repeat(p))
    assert f"compared with class {classes[0]}" in str(found)


@pytest.mark.parametrize("classes", [2, 3])
def test_logistic_weights_are_frequencies(classes):
    X, y = multinomial_data("wine standardised")
    y = np.minimum(y, classes - 1)
    counts = np.random.default_rng(2).integers(0, 4, len(y))
    found = logistic_summary(unpenalised(X, y, weight=counts), X, y, counts)
    rows = design(X, True).repeat(counts, axis=0)
    reference = sm.MNLogit(y.repeat(counts), rows).fit(disp=0, tol=1e-10)
    agree(found, reference)
    own = LogisticRegression(C=INF).fit(X, y, sample_weight=counts)
    agree(own.summary(X, y, sample_weight=counts), reference)
    assert any("frequencies" in note for note in found.notes)


def test_a_loose_fit_is_polished_on_a_copy():
    X, y = binary_data("cancer standardised")
    model = sk.LogisticRegression(C=INF, tol=1e-3).fit(X, y)
    coef, intercept = model.coef_.copy(), model.intercept_.copy()
    found = logistic_summary(model, X, y)
    np.testing.assert_array_equal(model.coef_, coef)
    np.testing.assert_array_equal(model.intercept_, intercept)
    assert np.abs(coef[0] - found.coef[1:]).max() > 1e-4
    assert any("standard errors" in note for note in found.notes)
    A = design(X, True)
    p = 1 / (1 + np.exp(-A @ found.coef))
    g = A.T @ (y - p)
    assert g @ np.linalg.solve(A.T @ ((p * (1 - p))[:, None] * A), g) <= 1e-12
    agree(found, sm.Logit(y, design(X, True)).fit(disp=0, tol=1e-10))


def test_a_plain_record_of_coefficients_is_accepted():
    X, y = binary_data("spector")
    model = unpenalised(X, y)
    record = SimpleNamespace(
        coef_=model.coef_.tolist(),
        intercept_=model.intercept_.tolist(),
        classes_=[0, 1],
        fit_intercept=True,
        C=INF,
        class_weight=None,
    )
    agree(
        logistic_summary(record, X, y),
        sm.Logit(y, design(X, True)).fit(disp=0, tol=1e-10),
    )


# -- the information matrix -------------------------------------------------------


@pytest.mark.catalog("LOSS-26")
def test_fisher_information_in_both_expressions():
    """Curvature and mean outer product of the score, and the errors they imply."""
    rng = np.random.default_rng(11)
    X = design(rng.normal(size=(200, 2)), True)
    w = np.array([0.3, -1.0, 0.7])
    p = 1 / (1 + np.exp(-X @ w))
    curvature = X.T @ ((p * (1 - p))[:, None] * X)
    scores = ((rng.random((40_000, 200)) < p) - p) @ X
    outer = scores.T @ scores / len(scores)
    largest = np.sqrt(np.outer(np.diag(curvature), np.diag(curvature)))
    assert np.abs(outer - curvature).max() < 0.03 * largest.max()

    y = (rng.random(200) < p).astype(int)
    found = logistic_summary(unpenalised(X[:, 1:], y), X[:, 1:], y)
    p = 1 / (1 + np.exp(-X @ found.coef))
    inverse = np.linalg.inv(X.T @ ((p * (1 - p))[:, None] * X))
    np.testing.assert_allclose(found.standard_errors**2, np.diag(inverse), rtol=1e-9)

    y = X @ w + rng.normal(size=200)
    found = LinearRegression().fit(X[:, 1:], y).summary(X[:, 1:], y)
    variance = np.sum((y - X @ found.coef) ** 2) / found.df_resid
    inverse = np.linalg.inv(X.T @ X / variance)
    np.testing.assert_allclose(found.standard_errors**2, np.diag(inverse), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.catalog("LOSS-25")
def test_estimates_spread_as_the_information_says():
    """√N(ŵ − w) has covariance F⁻¹: Monte Carlo for a linear and a logistic model."""
    rng = np.random.default_rng(12)
    n, repeats, w = 600, 6000, np.array([0.2, -0.5])
    X = rng.normal(size=(n, 2))
    z = X @ w
    p = 1 / (1 + np.exp(-z))
    Y = z[:, None] + rng.normal(size=(n, repeats))
    linear = LinearRegression(fit_intercept=False).fit(X, Y).coef_
    tables = []
    for _ in range(repeats):
        y = rng.random(n) < p
        tables.append(logistic_summary(unpenalised(X, y, intercept=False), X, y))
    for estimates, F in (
        (linear, X.T @ X / n),
        (np.array([t.coef for t in tables]), X.T @ ((p * (1 - p))[:, None] * X) / n),
    ):
        spread = n * np.cov(estimates.T)
        target = np.linalg.inv(F)
        assert np.linalg.norm(spread - target, 2) < 0.05 * np.linalg.norm(target, 2)
    inside = [(t.conf_int[:, 0] <= w) & (w <= t.conf_int[:, 1]) for t in tables]
    # Four binomial standard deviations about the level of the intervals.
    assert np.abs(np.mean(inside, axis=0) - 0.95).max() < 4 * np.sqrt(0.0475 / repeats)


# -- the table --------------------------------------------------------------------


def test_the_table_fits_eighty_columns_and_travels():
    X, y = multinomial_data("anes96")
    names = [
        "a name that is far too long for a column",
        "selfLR",
        "age",
        "<b>",
        "income",
    ]
    table = pd.DataFrame(X * [1e-9, 1, 1e12, 1, 1], columns=names)
    model = unpenalised(X, y)
    model.feature_names_in_ = np.array(names, dtype=object)
    model.coef_ = model.coef_ / [1e-9, 1, 1e12, 1, 1]
    found = logistic_summary(model, table, y)
    lines = str(found).splitlines()
    assert max(map(len, lines)) == 80
    assert sum(line.startswith("(intercept)") for line in lines) == 6
    assert "class 1" in lines and "class 6" in lines
    assert found.names[:3] == ("(intercept)", names[0], "selfLR")
    again = json.loads(json.dumps(found.to_dict()))
    np.testing.assert_array_equal(again["conf_int"], found.conf_int)
    assert again["classes"][0] == "1" and len(again["names"]) == len(again["coef"])
    html = found._repr_html_()
    assert "&lt;b&gt;" in html and "<b>" not in html
    assert html.count("<tr") == 1 + len(found.names)


def test_a_summary_cannot_be_changed():
    X, y = regression_data("generated")
    found = LinearRegression().fit(X, y).summary(X, y)
    with pytest.raises(AttributeError):
        found.coef = found.coef * 2
