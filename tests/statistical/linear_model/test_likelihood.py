"""Maximum likelihood by repetition: consistency, spread, and the Cramér–Rao bound.

Seeds are fixed and tolerances are several standard errors of the simulation itself.
Asymptotic normality is tested beside the standard errors that rest on it.
"""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import kstest, norm

import certus
from certus.linear_model import (
    LinearRegression,
    LogisticRegression,
    QuantileRegressor,
)

Array = np.ndarray
TRUE = np.array([0.8, -0.5])


def estimates(X: Array, Y: Array, sample_weight: Array | None = None) -> Array:
    """Least-squares coefficients for every column of Y.

    They are linear in Y, so a fit to the columns of the identity tells them all.
    """
    model = LinearRegression(fit_intercept=False)
    model.fit(X, np.eye(len(X)), sample_weight=sample_weight)
    return Y.T @ model.coef_


@pytest.mark.catalog("LOSS-24")
def test_linear_estimates_are_consistent() -> None:
    rng = np.random.default_rng(0)
    sizes, errors = np.array([50, 200, 800, 3200, 12800]), []
    for n in sizes:
        X = rng.normal(size=(n, 2))
        Y = (X @ TRUE)[:, None] + rng.normal(size=(n, 60))
        found = LinearRegression(fit_intercept=False).fit(X, Y).coef_
        errors.append(np.linalg.norm(found - TRUE, axis=1).mean())
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert abs(slope + 0.5) < 0.1
    assert errors[-1] < 0.02


@pytest.mark.catalog("LOSS-24")
def test_logistic_estimates_are_consistent() -> None:
    rng = np.random.default_rng(1)
    sizes, errors = np.array([200, 800, 3200, 9600]), []
    for n in sizes:
        distances = []
        for _ in range(25):
            X = rng.normal(size=(n, 2))
            y = rng.random(n) < expit(X @ TRUE)
            model = LogisticRegression(C=np.inf, fit_intercept=False).fit(X, y)
            distances.append(np.linalg.norm(model.coef_[0] - TRUE))
        errors.append(np.mean(distances))
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert abs(slope + 0.5) < 0.1
    assert errors[-1] < 0.04


@pytest.mark.catalog("LOSS-25")
def test_linear_estimates_are_normal_with_the_inverse_information() -> None:
    """F = XᵀX/(Nσ²) per sample; √N(ŵ − w) has covariance F⁻¹."""
    rng = np.random.default_rng(2)
    n, repeats, sigma = 400, 20_000, 1.5
    X = rng.normal(size=(n, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]])
    Y = (X @ TRUE)[:, None] + sigma * rng.standard_t(6, size=(n, repeats)) * np.sqrt(
        4 / 6
    )  # not Gaussian: normality of the estimate is a limit
    found = estimates(X, Y)
    inverse = np.linalg.inv(X.T @ X / (n * sigma**2))
    scaled = np.sqrt(n) * (found - TRUE)
    np.testing.assert_allclose(np.cov(scaled.T), inverse, rtol=0.05)
    white = scaled @ np.linalg.inv(np.linalg.cholesky(inverse)).T
    for column in white.T:
        assert kstest(column, norm.cdf).pvalue > 1e-3


@pytest.mark.catalog("LOSS-27")
def test_least_squares_attains_the_cramer_rao_bound() -> None:
    rng = np.random.default_rng(3)
    n, repeats, sigma = 60, 40_000, 0.7
    X = rng.normal(size=(n, 2)) @ np.array([[1.0, 0.4], [0.0, 0.9]])
    Y = (X @ TRUE)[:, None] + sigma * rng.normal(size=(n, repeats))
    bound = sigma**2 * np.linalg.inv(X.T @ X)  # inverse of the total information
    found = estimates(X, Y)
    assert np.abs(found.mean(axis=0) - TRUE).max() < 4 * np.sqrt(
        bound.diagonal().max() / repeats
    )
    np.testing.assert_allclose(
        np.cov(found.T), bound, rtol=0.03, atol=0.03 * bound.diagonal().min()
    )
    # Another unbiased estimator: weights that the noise does not ask for.
    s = rng.uniform(0.1, 3.0, n)
    other = np.linalg.solve((X.T * s) @ X, X.T * s)
    np.testing.assert_allclose(other @ X, np.eye(2), atol=1e-12)
    excess = sigma**2 * other @ other.T - bound
    assert np.linalg.eigvalsh(excess).min() > 0
    np.testing.assert_allclose(estimates(X, Y, s), (other @ Y).T, atol=1e-10)


@pytest.mark.catalog("LOSS-27")
def test_the_median_needs_more_data_than_the_mean() -> None:
    """Location of a Gaussian: the variances have the ratio π/2 in the limit."""
    rng = np.random.default_rng(4)
    n, repeats = 51, 800
    samples, constant = rng.normal(size=(n, repeats)), np.ones((n, 1))
    means = estimates(constant, samples)[:, 0]
    median = QuantileRegressor(quantile=0.5, alpha=0.0, fit_intercept=False)
    with certus.config_context(certify="never"):
        medians = np.array([median.fit(constant, y).coef_[0] for y in samples.T])
    np.testing.assert_allclose(medians, np.median(samples, axis=0), atol=1e-5)
    # Sample variances of 800 have a standard error of 5 %, and so has their ratio.
    assert means.var() == pytest.approx(1 / n, rel=0.2)  # the bound
    assert medians.var() / means.var() == pytest.approx(np.pi / 2, rel=0.2)
