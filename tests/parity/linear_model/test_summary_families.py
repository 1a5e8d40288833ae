"""Summaries of generalised linear models: statsmodels, closed forms, and refusals."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import sparse
from sklearn import linear_model as sk
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

import certus
from certus import linear_model
from certus.linear_model import (
    GeneralizedLinearModel,
    LinearRegression,
    PoissonRegressor,
)
from certus.linear_model.summarise import family_summary
from certus.linear_model.summary import SummaryRefused
from certus.objectives import Poisson

TRIALS = 7
FAMILIES = {
    "bernoulli": sm.families.Binomial(),
    "binomial": sm.families.Binomial(),
    "poisson": sm.families.Poisson(),
    "exponential": sm.families.Gamma(link=sm.families.links.Log()),
}


def sample(family, seed=0, n=300):
    """Columns of different scales and a target drawn from the family."""
    rng = np.random.default_rng(seed)
    X = rng.normal([0.0, 2.0, -50.0], [1.0, 1e-3, 10.0], size=(n, 3))
    z = X @ [0.7, 0.0, 0.02] + 1.5
    p = 1 / (1 + np.exp(-z))
    draws = {
        "gaussian": rng.normal(z, 0.5),
        "laplace": rng.laplace(z, 0.5),
        "bernoulli": rng.binomial(1, p).astype(float),
        "binomial": rng.binomial(TRIALS, p).astype(float),
        "poisson": rng.poisson(np.exp(z)).astype(float),
        "exponential": rng.exponential(np.exp(z)),
    }
    return X, draws[family]


def fit(family, X, y, weight=None, **options):
    trials = TRIALS if family == "binomial" else 1
    model = GeneralizedLinearModel(family, n_trials=trials, **options)
    return model.fit(X, y, sample_weight=weight)


def reference(family, X, y, *, intercept=True, frequencies=None):
    A = np.column_stack([np.ones(len(X)), X]) if intercept else X
    target = np.column_stack([y, TRIALS - y]) if family == "binomial" else y
    model = sm.GLM(target, A, family=FAMILIES[family], freq_weights=frequencies)
    return model.fit(scale=1.0, tol=1e-13, maxiter=200)


def agree(found, other, *, rtol=1e-6):
    """Every number of the table equals the reference's."""
    se = np.asarray(other.bse)
    np.testing.assert_allclose(found.standard_errors, se, rtol=rtol)
    assert (np.abs(found.coef - other.params) / se).max() < rtol
    np.testing.assert_allclose(found.statistic, other.tvalues, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(found.p_values, other.pvalues, atol=rtol)
    interval = other.conf_int(found.delta)
    assert (np.abs(found.conf_int - interval) / se[:, None]).max() < 10 * rtol
    assert found.df_resid == other.df_resid


# -- agreement --------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_families_equal_statsmodels(family, intercept):
    X, y = sample(family)
    other = reference(family, X, y, intercept=intercept)
    model = fit(family, X, y, fit_intercept=intercept)
    found = model.summary(X, y)
    agree(found, other)
    agree(model.summary(X, y, delta=0.2), other)
    assert found.kind == "z" and found.model == "GeneralizedLinearModel"
    np.testing.assert_allclose(found.log_likelihood, other.llf, rtol=1e-9)
    agree(model.summary(sparse.csr_array(X), y), other)


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_frequencies(family):
    X, y = sample(family)
    counts = np.random.default_rng(1).integers(0, 4, len(y))
    model = GeneralizedLinearModel(
        family, n_trials=TRIALS if family == "binomial" else 1
    )
    model.fit(X, y, sample_weight=counts)
    found = model.summary(X, y, sample_weight=counts)
    rows, target = X.repeat(counts, axis=0), y.repeat(counts)
    agree(found, reference(family, rows, target))
    if family != "binomial":
        agree(found, reference(family, X, y, frequencies=counts))
    repeated = fit(family, rows, target).summary(rows, target)
    np.testing.assert_allclose(found.log_likelihood, repeated.log_likelihood, rtol=1e-9)


def test_gaussian_is_least_squares():
    X, y = sample("gaussian")
    found = fit("gaussian", X, y).summary(X, y)
    plain = LinearRegression().fit(X, y).summary(X, y)
    for name in ("coef", "standard_errors", "p_values", "conf_int", "log_likelihood"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(plain, name), rtol=1e-8
        )
    A = np.column_stack([np.ones(len(X)), X])
    agree(found, sm.GLM(y, A).fit(use_t=True))  # its scale is RSS/(n − p)
    assert found.kind == "t"


def test_poisson_regressors_of_certus_and_scikit_learn_agree():
    X, y = sample("poisson")
    other = reference("poisson", X, y)
    agree(PoissonRegressor(alpha=0).fit(X, y).summary(X, y), other)
    scaled = X / X.std(axis=0)
    theirs = sk.PoissonRegressor(alpha=0, solver="newton-cholesky", tol=1e-10)
    found = family_summary(theirs.fit(scaled, y), Poisson(), scaled, y)
    agree(found, reference("poisson", scaled, y))


def test_shares_with_trials_as_weights_are_binomial_counts():
    """The way to trials that differ by row: y/m with weight m."""
    rng = np.random.default_rng(2)
    X, m = rng.normal(size=(80, 2)), rng.integers(1, 30, 80)
    y = rng.binomial(m, 1 / (1 + np.exp(-X[:, 0])))
    model = GeneralizedLinearModel("bernoulli").fit(X, y / m, sample_weight=m)
    found = model.summary(X, y / m, sample_weight=m)
    A = np.column_stack([np.ones(80), X])
    other = sm.GLM(np.column_stack([y, m - y]), A, family=sm.families.Binomial())
    other = other.fit(tol=1e-13)
    np.testing.assert_allclose(found.coef, other.params, rtol=1e-6)
    np.testing.assert_allclose(found.standard_errors, other.bse, rtol=1e-6)


# -- closed forms -----------------------------------------------------------------


def test_one_mean_has_the_textbook_error():
    """Of log λ: 1/√Σy for counts, 1/√n for waiting times; logit: 1/√(n·m·p·q)."""
    X = np.ones((50, 1))
    for family, error in (
        ("poisson", lambda y: 1 / np.sqrt(y.sum())),
        ("exponential", lambda y: 1 / np.sqrt(len(y))),
        (
            "binomial",
            lambda y: np.sqrt(7 / (y.sum() * (7 - y.mean()))),
        ),
    ):
        _, y = sample(family, n=50)
        found = fit(family, X, y, fit_intercept=False).summary(X, y)
        assert found.standard_errors[0] == pytest.approx(error(y), rel=1e-8), family


@pytest.mark.parametrize("family", ["poisson", "binomial", "exponential"])
def test_estimates_spread_as_the_information_says(family):
    truth = np.array([1.5 - 1.0, 0.7])
    steps = []
    for seed in range(150):
        X, _ = sample(family, seed, n=150)
        X, z = X[:, :1], X[:, 0] * truth[1] + truth[0]
        rng = np.random.default_rng(seed + 1000)
        if family == "binomial":
            y = rng.binomial(TRIALS, 1 / (1 + np.exp(-z)))
        elif family == "poisson":
            y = rng.poisson(np.exp(z))
        else:
            y = rng.exponential(np.exp(z))
        found = fit(family, X, y).summary(X, y)
        steps.append((found.coef - truth) / found.standard_errors)
    spread = np.std(steps, axis=0)
    # A standard deviation from 150 draws is known to 1/√300 = 6 %.
    assert np.all(np.abs(spread - 1) < 0.2), spread


def test_a_variance_that_is_not_that_of_the_family_is_reported():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 2))
    y = rng.negative_binomial(1, 1 / (1 + np.exp(X[:, 0] + 1)))
    found = PoissonRegressor(alpha=0).fit(X, y).summary(X, y)
    A = np.column_stack([np.ones(400), X])
    wider = sm.GLM(y, A, family=sm.families.Poisson()).fit(scale="X2", tol=1e-13)
    (note,) = found.notes
    assert (
        f"{wider.scale:.3g} times the variance of the family" in note
        and wider.scale > 2
    )
    assert f"{np.sqrt(wider.scale):.3g} times these" in note
    np.testing.assert_allclose(
        found.standard_errors * np.sqrt(wider.scale), wider.bse, rtol=1e-6
    )
    calm = fit("poisson", *sample("poisson")).summary(*sample("poisson"))
    assert calm.notes == ()


# -- refusals ---------------------------------------------------------------------


def test_a_penalty_is_refused():
    X, y = sample("poisson")
    for model in (PoissonRegressor(), GeneralizedLinearModel("poisson", alpha=0.1)):
        with pytest.raises(SummaryRefused, match=r"is penalised.*alpha=0"):
            model.fit(X, y).summary(X, y)


def test_a_kink_is_refused():
    X, y = sample("laplace")
    with pytest.raises(SummaryRefused, match=r"kink.*Bootstrap"):
        fit("laplace", X, y).summary(X, y)


@pytest.mark.parametrize("kind", ["cell", "zeros", "split"])
def test_no_maximum_no_standard_errors(kind):
    rng = np.random.default_rng(4)
    X = np.column_stack([rng.normal(size=60), np.arange(60) % 3 == 0])
    if kind == "split":
        family, y = "bernoulli", (X[:, 0] > 0).astype(float)
    else:
        family, y = "poisson", rng.poisson(3.0, 60).astype(float)
        y[(X[:, 1] == 1) | (kind == "zeros")] = 0
    with certus.config_context(on_uncertified="ignore"):
        model = fit(family, X, y)
    with pytest.raises(SummaryRefused, match=r"no maximum.*alpha > 0"):
        model.summary(X, y)


def test_collinear_columns_and_too_few_rows_are_refused():
    X, y = sample("poisson")
    twice = np.column_stack([X, X[:, 0]])
    with pytest.raises(SummaryRefused, match="combination of"):
        fit("poisson", twice, y).summary(twice, y)
    with certus.config_context(on_uncertified="ignore"):
        model = fit("exponential", X[:4], np.array([1.0, 2.0, 3.0, 4.0]))
    with pytest.raises(SummaryRefused, match="degrees of freedom"):
        model.summary(X[:4], np.array([1.0, 2.0, 3.0, 4.0]))


def test_other_rows_and_unsolved_fits_are_noticed():
    X, y = sample("poisson")
    model = fit("poisson", X, y)
    with pytest.raises(SummaryRefused, match="not the rows"):
        model.summary(X, y[::-1])
    with certus.config_context(on_uncertified="ignore"):
        stopped = fit("poisson", X, y, max_iter=0)
    with pytest.raises(SummaryRefused, match="not solved"):
        stopped.summary(X, y)


def test_bad_input_is_named():
    X, y = sample("poisson")
    with pytest.raises(NotFittedError):
        GeneralizedLinearModel("poisson").summary(X, y)
    model = fit("poisson", X, y)
    with pytest.raises(ValueError, match="y ≥ 0"):
        model.summary(X, y - 100)
    with pytest.raises(ValueError, match="columns"):
        model.summary(X[:, :2], y)
    with pytest.raises(ValueError, match="delta"):
        model.summary(X, y, delta=0)


def test_a_summary_exists_only_where_there_is_a_theory():
    """Least squares and likelihoods; not margins, medians or mistakes."""
    found = {
        name
        for name in linear_model.__all__
        if inspect.isclass(getattr(linear_model, name))
        and issubclass(getattr(linear_model, name), BaseEstimator)
        and hasattr(getattr(linear_model, name), "summary")
    }
    squares = {"LinearRegression", "Ridge", "Lasso", "ElasticNet"}
    chosen = {"RidgeCV", "LassoCV", "ElasticNetCV"}
    chosen |= {"MultiTaskLassoCV", "MultiTaskElasticNetCV"}
    likelihoods = {"LogisticRegression", "GeneralizedLinearModel", "PoissonRegressor"}
    likelihoods |= {"GammaRegressor", "TweedieRegressor"}
    assert found == squares | chosen | likelihoods
    X, y = sample("gaussian")
    for name in chosen | squares - {"LinearRegression"}:
        target = np.column_stack([y, y]) if name.startswith("MultiTask") else y
        with pytest.raises(SummaryRefused, match="is penalised"):
            getattr(linear_model, name)().fit(X, target).summary(X, target)
