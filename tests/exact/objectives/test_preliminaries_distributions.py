"""Distributions, entropy and divergence.

Distributions are those whose likelihood a loss is (``objectives.log_likelihood``);
entropy and divergence are the cross-entropy of ``Softmax``. SciPy and quadrature are
the references.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit

from certus import objectives
from certus._core.blas import cholesky
from certus.objectives import terms as t

Array = np.ndarray
SEEDS = st.integers(0, 10**6)


# -- distributions ----------------------------------------------------------------


def estimate(loss: Any, y: Array, low: float, high: float) -> float:
    """The score of highest likelihood, by a general method."""

    def nll(z: float) -> float:
        return -float(objectives.log_likelihood(loss, y, z).sum())

    options = {"xatol": 1e-11}
    return float(minimize_scalar(nll, bounds=(low, high), options=options).x)


@pytest.mark.catalog("PRE-15")
@given(y=st.floats(-20, 20), mu=st.floats(-5, 5), sigma=st.floats(0.05, 9))
def test_gaussian_density(y: float, mu: float, sigma: float) -> None:
    found = objectives.log_likelihood(t.Squared(), y, mu, sigma)
    assert found == pytest.approx(stats.norm(mu, sigma).logpdf(y), rel=1e-11, abs=1e-12)


@pytest.mark.catalog("PRE-15", "PRE-17")
@pytest.mark.parametrize("loss", [t.Squared(), t.Absolute()], ids=["Gauss", "Laplace"])
def test_densities_integrate_to_one(loss: Any) -> None:
    def density(y: float) -> float:
        return float(np.exp(objectives.log_likelihood(loss, y, 0.7, 1.3)))

    total = quad(density, -60, 0.7)[0] + quad(density, 0.7, 60)[0]
    assert total == pytest.approx(1.0, abs=1e-9)


@pytest.mark.catalog("PRE-16")
def test_multivariate_gaussian() -> None:
    """Independent Gaussians after whitening, and the determinant of that map."""
    rng = np.random.default_rng(7)
    for d in (1, 2, 5):
        A, mu, y = rng.normal(size=(d, d)), rng.normal(size=d), rng.normal(size=d)
        S = A @ A.T + 0.1 * np.eye(d)
        factor = cholesky(S)
        assert factor is not None
        L = np.triu(factor).T
        white = np.linalg.solve(L, y - mu)
        found = objectives.log_likelihood(t.Squared(), white, 0.0).sum()
        found -= np.log(L.diagonal()).sum()
        e = y - mu
        closed = -d / 2 * np.log(2 * np.pi) - np.linalg.slogdet(S)[1] / 2
        closed -= e @ np.linalg.solve(S, e) / 2
        assert found == pytest.approx(closed, rel=1e-10)
        known = stats.multivariate_normal(mu, S).logpdf(y)
        assert found == pytest.approx(known, rel=1e-10)
    S = np.array([[1.0, 0.6], [0.6, 0.5]])
    grid = np.linspace(-8, 8, 401)
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    L = np.linalg.cholesky(S)
    log_p = objectives.log_likelihood(t.Squared(), np.linalg.solve(L, points.T), 0.0)
    density = np.exp(log_p.sum(axis=0)) / np.prod(L.diagonal())
    assert density.sum() * (grid[1] - grid[0]) ** 2 == pytest.approx(1.0, abs=1e-9)


@pytest.mark.catalog("PRE-17")
def test_laplace() -> None:
    rng = np.random.default_rng(8)
    y = rng.laplace(0.4, 1.5, 101)
    for mu, b in [(0.0, 1.0), (0.4, 1.5), (-2.0, 0.2)]:
        found = objectives.log_likelihood(t.Absolute(), y, mu, b)
        np.testing.assert_allclose(found, stats.laplace(mu, b).logpdf(y), rtol=1e-12)
    centre = estimate(t.Absolute(), y, -3, 3)
    assert centre == pytest.approx(np.median(y), abs=1e-7)

    def nll(b: float) -> float:
        return -float(objectives.log_likelihood(t.Absolute(), y, np.median(y), b).sum())

    spread = minimize_scalar(nll, bounds=(0.1, 9), options={"xatol": 1e-10}).x
    assert spread == pytest.approx(np.mean(np.abs(y - np.median(y))), abs=1e-6)


@pytest.mark.catalog("PRE-18")
def test_exponential() -> None:
    rng = np.random.default_rng(9)
    y = rng.exponential(1 / 2.5, 200)
    for rate in (0.3, 1.0, 2.5):
        known = stats.expon(scale=1 / rate)
        found = objectives.log_likelihood(t.Exponential(), y, -np.log(rate))
        np.testing.assert_allclose(found, known.logpdf(y), rtol=1e-12, atol=1e-13)
        density = quad(lambda x, r=rate: x * r * np.exp(-r * x), 0, np.inf)[0]
        assert known.mean() == pytest.approx(density) == pytest.approx(1 / rate)
    best = estimate(t.Exponential(), y, -5, 5)
    assert np.exp(-best) == pytest.approx(1 / y.mean(), rel=1e-6)


@pytest.mark.catalog("PRE-19")
def test_bernoulli() -> None:
    rng = np.random.default_rng(10)
    y = rng.integers(0, 2, 31)
    for p in (0.1, 0.5, 0.8):
        found = objectives.log_likelihood(t.Binomial(), y, logit(p))
        by_hand = np.log(p**y * (1 - p) ** (1 - y))
        np.testing.assert_allclose(found, by_hand, rtol=1e-12)
        np.testing.assert_allclose(found, stats.bernoulli(p).logpmf(y), rtol=1e-12)
        signs = objectives.log_likelihood(t.Logistic(), 2 * y - 1, logit(p))
        np.testing.assert_allclose(signs, found, rtol=1e-12)
    best = estimate(t.Binomial(), y, -5, 5)
    assert expit(best) == pytest.approx(y.mean(), abs=1e-7)
    p = np.linspace(0.001, 0.999, 999)
    P = np.column_stack([p, 1 - p])
    entropy = objectives.value(t.Softmax(2), P, np.log(P))
    assert p[entropy.argmax()] == 0.5 and entropy.max() == pytest.approx(np.log(2))


@pytest.mark.catalog("PRE-20")
@pytest.mark.parametrize("n", [1, 4, 40])
def test_binomial(n: int) -> None:
    k = np.arange(n + 1)
    for p in (0.02, 0.5, 0.7):
        found = objectives.log_likelihood(t.Binomial(n), k, logit(p))
        known = stats.binom(n, p).logpmf(k)
        np.testing.assert_allclose(found, known, rtol=1e-10, atol=1e-11)
        assert np.exp(found).sum() == pytest.approx(1.0, abs=1e-11)


@pytest.mark.catalog("PRE-21")
@pytest.mark.parametrize("rate", [0.2, 1.0, 17.0])
def test_poisson(rate: float) -> None:
    k = np.arange(200)
    found = objectives.log_likelihood(t.Poisson(), k, np.log(rate))
    np.testing.assert_allclose(found, stats.poisson(rate).logpmf(k), rtol=1e-11)
    p = np.exp(found)
    mean = p @ k
    assert mean == pytest.approx(rate) and p @ (k - mean) ** 2 == pytest.approx(rate)


# -- information ------------------------------------------------------------------


@pytest.mark.catalog("PRE-23")
@given(seed=SEEDS, n=st.integers(2, 9))
def test_entropy_is_the_cross_entropy_with_itself(seed: int, n: int) -> None:
    p = np.random.default_rng(seed).dirichlet(np.ones(n))
    found = objectives.value(t.Softmax(n), p, np.log(p))
    assert found == pytest.approx(stats.entropy(p), abs=1e-12)
    assert found == pytest.approx(-np.sum(p * np.log(p)), abs=1e-12)
    assert 0 <= found <= np.log(n) + 1e-12
    even = np.full(n, 1 / n)
    assert objectives.value(t.Softmax(n), even, np.log(even)) == pytest.approx(
        np.log(n)
    )
    point = np.eye(n)[0]
    logs = np.where(point > 0, 0.0, -np.inf)
    assert objectives.value(t.Softmax(n), point, logs) == 0.0


@pytest.mark.catalog("PRE-24")
@given(seed=SEEDS)
def test_divergence_between_distributions(seed: int) -> None:
    q, p = np.random.default_rng(seed).dirichlet(np.ones(5), 2)

    def divergence(q: Array, p: Array) -> float:
        loss = t.Softmax(5)
        return float(
            objectives.value(loss, q, np.log(p)) - objectives.value(loss, q, np.log(q))
        )

    assert divergence(q, p) == pytest.approx(stats.entropy(q, p), abs=1e-11)
    assert divergence(q, p) > 0 and divergence(q, q) == 0.0


@pytest.mark.catalog("PRE-24")
def test_divergence_between_gaussians() -> None:
    def divergence(m: float, s: float, n: float, r: float) -> float:
        def integrand(y: float) -> float:
            log_q = objectives.log_likelihood(t.Squared(), y, m, s)
            log_p = objectives.log_likelihood(t.Squared(), y, n, r)
            return float(np.exp(log_q) * (log_q - log_p))

        return quad(integrand, m - 12 * s, m + 12 * s)[0]

    for m, s, n, r in [
        (0.0, 1.0, 0.5, 2.0),
        (1.0, 0.3, 1.0, 0.3),
        (-1.0, 2.0, 1.0, 1.0),
    ]:
        closed = np.log(r / s) + (s**2 + (m - n) ** 2) / (2 * r**2) - 0.5
        assert divergence(m, s, n, r) == pytest.approx(closed, abs=1e-8)
    there, back = divergence(0.0, 1.0, 0.5, 2.0), divergence(0.5, 2.0, 0.0, 1.0)
    assert abs(there - back) > 0.1  # not symmetric


@pytest.mark.catalog("PRE-25")
def test_gaussian_sampling() -> None:
    rng = np.random.default_rng(11)
    mu = np.array([1.0, -2.0, 0.5])
    S = np.array([[2.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 0.5]])
    factor = cholesky(S)
    assert factor is not None
    L, n = np.triu(factor).T, 50_000
    np.testing.assert_allclose(L @ L.T, S, atol=1e-14)
    sample = rng.normal(size=(n, 3)) @ L.T + mu
    spread = np.sqrt(S.diagonal())
    assert np.all(np.abs(sample.mean(axis=0) - mu) < 4 * spread / np.sqrt(n))
    # The variance of a sample covariance is (S_ii S_jj + S_ij²)/n.
    error = np.sqrt((np.outer(S.diagonal(), S.diagonal()) + S**2) / n)
    assert np.all(np.abs(np.cov(sample.T) - S) < 4 * error)
    white = np.linalg.solve(np.linalg.cholesky(S), (sample - mu).T)
    for column in white:
        assert stats.kstest(column, stats.norm.cdf).pvalue > 1e-3
    assert cholesky(np.array([[1.0, 2.0], [2.0, 1.0]])) is None
