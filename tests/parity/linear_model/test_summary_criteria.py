"""AIC, BIC and deviance of summaries, and dispersions, beside statsmodels."""

from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn import linear_model as theirs

from certus.linear_model import (
    GammaRegressor,
    GeneralizedLinearModel,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    TweedieRegressor,
)

Array = np.ndarray
LOG = sm.families.links.Log()
RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 3))
MEAN = np.exp(X @ [0.5, 0.0, -0.3] + 1)
A = sm.add_constant(X)


def compare(found: Any, other: Any, criteria: bool = True) -> None:
    np.testing.assert_allclose(found.coef, other.params, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.standard_errors, other.bse, rtol=1e-4)
    np.testing.assert_allclose(found.p_values, other.pvalues, rtol=1e-3, atol=1e-6)
    if criteria:
        assert found.log_likelihood == pytest.approx(other.llf, rel=1e-7)
        assert found.aic == pytest.approx(other.aic, rel=1e-7)
        bic = other.bic_llf if hasattr(other, "bic_llf") else other.bic
        assert found.bic == pytest.approx(bic, rel=1e-7)


def test_least_squares() -> None:
    y = X @ [1.0, 2.0, 0.0] + RNG.normal(size=200)
    found, other = LinearRegression().fit(X, y).summary(X, y), sm.OLS(y, A).fit()
    compare(found, other)
    assert found.deviance == pytest.approx(other.ssr)
    assert f"AIC {other.aic:.2f} · BIC {other.bic:.2f}" in str(found)


def test_logistic_regression() -> None:
    y = (X[:, 0] + RNG.logistic(size=200) > 0).astype(int)
    found = LogisticRegression(C=np.inf).fit(X, y).summary(X, y)
    other = sm.GLM(y, A, family=sm.families.Binomial()).fit()
    compare(found, other)
    assert found.deviance == pytest.approx(other.deviance)


def test_binomial_counts_have_their_constant() -> None:
    y = RNG.binomial(7, 1 / (1 + np.exp(-X[:, 0]))).astype(float)
    model = GeneralizedLinearModel("binomial", n_trials=7).fit(X, y)
    both = np.column_stack([y, 7 - y])
    other = sm.GLM(both, A, family=sm.families.Binomial()).fit()
    found = model.summary(X, y)
    compare(found, other)
    assert found.deviance == pytest.approx(other.deviance)


@pytest.mark.parametrize("library", ["certus", "sklearn"])
def test_counts(library: str) -> None:
    y = RNG.poisson(MEAN).astype(float)
    model = PoissonRegressor(alpha=0).fit(X, y)
    other = sm.GLM(y, A, family=sm.families.Poisson()).fit()
    found = model.summary(X, y)
    compare(found, other)
    assert found.deviance == pytest.approx(other.deviance)
    if library == "sklearn":
        fitted = theirs.PoissonRegressor(alpha=0, tol=1e-10, max_iter=5000).fit(X, y)
        np.testing.assert_allclose(fitted.coef_, found.coef[1:], atol=1e-4)


@pytest.mark.parametrize("weighted", [True, False])
def test_amounts_have_a_dispersion(weighted: bool) -> None:
    y = RNG.gamma(3.0, MEAN / 3)
    s = RNG.integers(1, 4, 200) if weighted else None
    found = GammaRegressor(alpha=0).fit(X, y, s).summary(X, y, s)
    family = sm.families.Gamma(link=LOG)
    other = sm.GLM(y, A, family=family, freq_weights=s).fit()
    compare(found, other)
    assert found.deviance == pytest.approx(other.deviance)
    assert f"estimated dispersion is {other.scale:.4g}" in str(found)
    same = TweedieRegressor(power=2, alpha=0).fit(X, y, s).summary(X, y, s)
    np.testing.assert_allclose(same.standard_errors, found.standard_errors)


@pytest.mark.parametrize("power", [1.2, 1.5, 1.8])
def test_tweedie_has_no_likelihood_in_closed_form(power: float) -> None:
    claims = RNG.poisson(MEAN)
    y = np.where(claims > 0, RNG.gamma(np.maximum(2.0 * claims, 1e-9)), 0.0)
    found = TweedieRegressor(power=power, alpha=0).fit(X, y).summary(X, y)
    family = sm.families.Tweedie(link=LOG, var_power=power)
    other = sm.GLM(y, A, family=family).fit(tol=1e-12)
    compare(found, other, criteria=False)
    assert found.deviance == pytest.approx(other.deviance)
    assert np.isnan(found.log_likelihood) and np.isnan(found.aic)
    assert "AIC" not in str(found)


def test_gaussian_family_and_powers_of_zero_and_one() -> None:
    y = X @ [1.0, 2.0, 0.0] + RNG.normal(size=200)
    plain = LinearRegression().fit(X, y).summary(X, y)
    power = TweedieRegressor(power=0, alpha=0).fit(X, y).summary(X, y)
    np.testing.assert_allclose(power.standard_errors, plain.standard_errors)
    assert power.aic == pytest.approx(plain.aic)
    counts = RNG.poisson(MEAN).astype(float)
    one = TweedieRegressor(power=1, alpha=0).fit(X, counts).summary(X, counts)
    poisson = PoissonRegressor(alpha=0).fit(X, counts).summary(X, counts)
    assert one.bic == pytest.approx(poisson.bic)
