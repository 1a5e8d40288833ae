"""Diffusions against closed forms: marginals, noise, reversed time, likelihoods."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import kstest, multivariate_normal, norm

from certus.generative import (
    GaussianMixtureScore,
    NoisedMixture,
    StochasticDE,
    euler_maruyama,
    flow_log_likelihood,
    integrate_flow,
    ornstein_uhlenbeck,
    probability_flow,
    reverse_time,
    variance_exploding,
    variance_preserving,
)
from certus.mixture import GaussianMixture

PLANE = NoisedMixture(
    [0.3, 0.7],
    [[-2.0, 1.0], [1.5, -0.5]],
    [[[0.5, 0.2], [0.2, 0.4]], [[0.3, -0.1], [-0.1, 0.8]]],
)
LINE = NoisedMixture([0.3, 0.7], [-2.0, 1.0], [0.09, 0.25])
EQUATIONS = {
    "ou": ornstein_uhlenbeck(),
    "vp": variance_preserving(),
    "ve": variance_exploding(low=0.1, high=5.0),
}


def differences(f, X, h=1e-5):
    """Gradients of a function of rows."""
    found = np.empty_like(X)
    for j in range(X.shape[1]):
        step = np.zeros(X.shape[1])
        step[j] = h
        found[:, j] = (f(X + step) - f(X - step)) / (2 * h)
    return found


@pytest.mark.catalog("GEN-52")
@pytest.mark.parametrize("noise", [(1.0, 0.0), (0.6, 0.8), (1.0, 3.0)])
def test_the_score_of_a_noised_mixture(noise) -> None:
    options = dict(zip(("scale", "std"), noise))
    a, s = noise
    X = np.random.default_rng(0).normal(0, 2, (30, 2))
    truth = sum(
        w * multivariate_normal(a * m, a**2 * C + s**2 * np.eye(2)).pdf(X)
        for w, m, C in zip(PLANE.weights, PLANE.means, PLANE.covariances)
    )
    assert PLANE.log_density(X, **options) == pytest.approx(np.log(truth), rel=1e-12)
    slope = differences(lambda x: PLANE.log_density(x, **options), X)
    assert PLANE.score(X, **options) == pytest.approx(slope, abs=1e-7)
    score = [lambda x, j=j: PLANE.score(x, **options)[:, j] for j in range(2)]
    trace = sum(differences(score[j], X)[:, j] for j in range(2))
    assert PLANE.score_divergence(X, **options) == pytest.approx(trace, abs=1e-6)
    same = PLANE.noised(scale=a, std=s)
    assert same.score(X) == pytest.approx(PLANE.score(X, **options), rel=1e-9)


def test_a_table_is_a_mixture_without_variance() -> None:
    rows = np.random.default_rng(0).normal(size=(5, 2))
    table = NoisedMixture(np.full(5, 0.2), rows)
    X = np.random.default_rng(1).normal(size=(4, 2))
    w = np.exp(-((X[:, None] - rows) ** 2).sum(axis=2) / (2 * 0.3**2))
    mean = (w / w.sum(axis=1, keepdims=True)) @ rows
    assert table.score(X, std=0.3) == pytest.approx((mean - X) / 0.3**2, rel=1e-9)


@pytest.mark.parametrize("kind", ["full", "diag", "spherical", "tied"])
def test_a_fitted_mixture_is_read(kind) -> None:
    X = PLANE.sample(400, random_state=0)
    model = GaussianMixture(
        2, covariance_type=kind, random_state=0, tol=1e-5, max_iter=500
    ).fit(X)
    read = NoisedMixture.from_model(model)
    assert read.log_density(X) == pytest.approx(model.score_samples(X), rel=1e-9)


@pytest.mark.catalog("GEN-53")
@pytest.mark.parametrize("name", EQUATIONS)
def test_marginals_solve_their_moment_equations(name) -> None:
    sde, x = EQUATIONS[name], np.array([[1.0]])
    assert sde.marginal(0.0) == pytest.approx((1.0, 0.0))
    for t in (0.1, 0.5, 1.0):
        h = 1e-5
        a, s = sde.marginal(t)
        (a_up, s_up), (a_down, s_down) = sde.marginal(t + h), sde.marginal(t - h)
        rate, g = float(sde.drift(x, t)[0, 0]), float(sde.diffusion(x, t))
        # a' = rate·a and (s²)' = 2·rate·s² + g².
        assert (a_up - a_down) / (2 * h) == pytest.approx(rate * a, abs=1e-7)
        growth = (s_up**2 - s_down**2) / (2 * h)
        assert growth == pytest.approx(2 * rate * s**2 + g**2, rel=1e-6)
    if name != "ve":
        assert a**2 + s**2 == pytest.approx(1.0)
    assert float(sde.drift_divergence(x, 0.3)[0]) == float(sde.drift(x, 0.3)[0, 0])


@pytest.mark.catalog("GEN-53", "GEN-54")
@pytest.mark.parametrize("name", EQUATIONS)
def test_simulated_marginals_are_those_of_the_closed_form(name) -> None:
    sde, n = EQUATIONS[name], 6000
    x = euler_maruyama(sde, np.full((n, 1), 1.5), n_steps=300, random_state=0)
    a, s = sde.marginal(1.0)
    assert abs(x.mean() - 1.5 * a) < 5 * s / math.sqrt(n) + 0.01
    assert x.std() == pytest.approx(s, rel=0.05)
    assert kstest(x[:, 0], norm(1.5 * a, s).cdf).pvalue > 1e-3


def variance_of(sde, step, n_steps, scaled=1.0):
    """The variance of x after many steps, exactly: one unit of noise for each row."""
    noise = np.zeros((n_steps, n_steps, 1))
    noise[np.arange(n_steps), np.arange(n_steps)] = scaled
    times = (0.0, step * n_steps)
    x = euler_maruyama(
        sde, np.zeros((n_steps, 1)), times=times, n_steps=n_steps, noise=noise
    )
    return float(np.sum(x**2))


@pytest.mark.catalog("GEN-54")
def test_the_noise_of_a_step_has_variance_eta() -> None:
    sde, eta = ornstein_uhlenbeck(), 0.01
    # (1 − η)²v + 2η = v has the solution 1/(1 − η/2).
    stationary = variance_of(sde, eta, 900)
    assert stationary == pytest.approx(1 / (1 - eta / 2), abs=1e-6)
    assert round(stationary, 3) == 1.005
    # A noise of variance η², as printed in the seed, would give a hundredth.
    wrong = variance_of(sde, eta, 900, scaled=math.sqrt(eta))
    assert round(wrong, 2) == 0.01
    # η G Gᵀ for a matrix G.
    G = np.array([[1.0, 0.0, 2.0], [0.5, 1.0, 0.0]])
    still = StochasticDE(lambda x, t: 0 * x, lambda x, t: G)
    unit = np.eye(3)[None]
    x = euler_maruyama(still, np.zeros((3, 2)), times=(0, eta), n_steps=1, noise=unit)
    assert x.T @ x == pytest.approx(eta * G @ G.T, rel=1e-12)
    each = StochasticDE(lambda x, t: 0 * x, lambda x, t: np.array([G] * len(x)))
    same = euler_maruyama(each, np.zeros((3, 2)), times=(0, eta), n_steps=1, noise=unit)
    assert same == pytest.approx(x, rel=1e-12)


@pytest.mark.catalog("GEN-55")
@pytest.mark.parametrize("name", EQUATIONS)
def test_reversed_time_recovers_the_data(name) -> None:
    sde, n = EQUATIONS[name], 4000
    score = GaussianMixtureScore(LINE, sde)
    start = score.sample(n, 1.0, random_state=0)
    back = euler_maruyama(reverse_time(sde, score), start, n_steps=400, random_state=1)
    mean = 0.3 * -2 + 0.7 * 1
    variance = 0.3 * (0.09 + 4) + 0.7 * (0.25 + 1) - mean**2
    assert back.mean() == pytest.approx(mean, abs=0.07)
    assert back.var() == pytest.approx(variance, rel=0.05)
    assert np.mean(back < -0.7) == pytest.approx(0.3, abs=0.03)


def curved():
    """A reversible diffusion with stationary law N(0, I) and a G that depends on x."""

    def G(x, t):
        found = np.zeros((len(x), 2, 2))
        found[:, 0, 0] = np.sqrt(1 + x[:, 0] ** 2)
        found[:, 1, 0] = 0.5 * np.sin(x[:, 0])
        found[:, 1, 1] = np.exp(0.2 * x[:, 1])
        return found

    def divergence(x):
        """Of GGᵀ, by hand."""
        a, b = x.T
        first = 2 * a  # ∂₁(1 + a²) + ∂₂(½ sin a √(1 + a²))
        root = np.sqrt(1 + a**2)
        cross = 0.5 * np.cos(a) * root + 0.5 * np.sin(a) * a / root
        second = cross + 0.4 * np.exp(0.4 * b)
        return np.column_stack([first, second])

    def drift(x, t):
        A = np.einsum("nij,nkj->nik", G(x, t), G(x, t))
        return 0.5 * divergence(x) - 0.5 * np.einsum("nij,nj->ni", A, x)

    return StochasticDE(drift, G), divergence


@pytest.mark.catalog("GEN-55", "GEN-56")
def test_noise_that_depends_on_the_row() -> None:
    sde, divergence = curved()
    X = np.random.default_rng(0).normal(size=(20, 2))
    assert sde.divergence_of_covariance(X, 0.0) == pytest.approx(
        divergence(X), abs=1e-8
    )

    def score(x, t):
        return -x

    # A reversible process looks the same backward, and its flow stands still.
    back = reverse_time(sde, score)
    assert back.drift(X, 0.4) == pytest.approx(sde.drift(X, 0.6), abs=1e-8)
    assert probability_flow(sde, score).drift(X, 0.2) == pytest.approx(0, abs=1e-8)
    known = StochasticDE(
        sde.drift, sde.diffusion, covariance_divergence=lambda x, t: divergence(x)
    )
    exact = reverse_time(known, score).drift(X, 0.4)
    assert exact == pytest.approx(sde.drift(X, 0.6), abs=1e-13)


@pytest.mark.catalog("GEN-56")
@pytest.mark.parametrize("name", EQUATIONS)
def test_the_probability_flow_has_the_same_marginals(name) -> None:
    sde, mixture = EQUATIONS[name], LINE
    score = GaussianMixtureScore(mixture, sde)
    flow = probability_flow(sde, score)
    start = mixture.sample(1500, random_state=0)
    end = integrate_flow(flow, start, n_steps=60, log_det=False).X
    grid = np.linspace(-30, 30, 20001)[:, None]
    density = np.exp(score.log_density(grid, 1.0))
    cdf = np.cumsum(density) * (grid[1, 0] - grid[0, 0])
    assert cdf[-1] == pytest.approx(1.0, abs=1e-6)
    found = kstest(end[:, 0], lambda x: np.interp(x, grid[:, 0], cdf))
    assert found.pvalue > 1e-3
    # There and back; between the modes errors grow most.
    grid = np.linspace(-2.5, 2.0, 9)[:, None]
    there = integrate_flow(flow, grid, n_steps=300, log_det=False).X
    back = integrate_flow(flow, there, times=(1.0, 0.0), n_steps=300, log_det=False).X
    assert back == pytest.approx(grid, abs=1e-5)


@pytest.mark.catalog("GEN-56")
@pytest.mark.parametrize("name", EQUATIONS)
def test_the_probability_flow_gives_the_likelihood(name) -> None:
    sde = EQUATIONS[name]
    score = GaussianMixtureScore(PLANE, sde)
    X = PLANE.sample(12, random_state=0)

    def base(x):
        return score.log_density(x, 1.0)

    flow = probability_flow(sde, score)
    found = flow_log_likelihood(flow, X, base, n_steps=50)
    truth = PLANE.log_density(X)
    assert found.log_density == pytest.approx(truth, abs=1e-4)
    assert (np.abs(found.log_density - truth) <= found.error + 1e-9).all()
    # The same from differences, without the divergence in closed form.
    plain = flow_log_likelihood(flow.drift, X, base, n_steps=50)
    assert plain.log_density == pytest.approx(found.log_density, abs=1e-6)


@pytest.mark.catalog("GEN-57")
def test_an_ode_is_an_sde_without_noise() -> None:
    sde = variance_preserving()
    flow = probability_flow(sde, GaussianMixtureScore(PLANE, sde))
    X = PLANE.sample(10, random_state=0)
    with_noise = euler_maruyama(flow, X, n_steps=50, random_state=0)
    again = euler_maruyama(flow, X, n_steps=50, random_state=1)
    euler = integrate_flow(flow, X, n_steps=50, method="euler").X
    assert (with_noise == again).all() and with_noise == pytest.approx(euler, rel=1e-12)


@pytest.mark.catalog("GEN-45")
@pytest.mark.parametrize("method, order", [("euler", 1), ("heun", 2), ("rk4", 4)])
def test_residual_steps_approach_the_ode(method, order) -> None:
    def field(x, t):
        return np.column_stack([np.cos(t) * x[:, 0], -x[:, 1] + np.sin(x[:, 0])])

    X = np.array([[0.5, 1.0], [-1.0, 0.3]])
    fine = integrate_flow(field, X, n_steps=1000, log_det=False).X
    errors = [
        np.abs(integrate_flow(field, X, n_steps=n, method=method).X - fine).max()
        for n in (20, 40, 80)
    ]
    rates = np.log2(np.array(errors[:-1]) / errors[1:])
    assert rates == pytest.approx(order, abs=0.25)
    # One step is x + ηf(x); many steps of dx = x dt give (1 + η)ⁿ.
    step = integrate_flow(field, X, times=(0, 0.1), n_steps=1, method="euler").X
    assert step == pytest.approx(X + 0.1 * field(X, 0.0), rel=1e-14)
    grown = integrate_flow(lambda x, t: x, [[1.0]], n_steps=100, method="euler").X
    assert grown[0, 0] == pytest.approx(1.01**100, rel=1e-12)


@pytest.mark.catalog("GEN-46")
def test_the_instantaneous_change_of_variables() -> None:
    A = np.array([[0.3, -1.0], [0.5, -0.2]])
    found = integrate_flow(lambda x, t: x @ A.T, [[1.0, 2.0]], n_steps=50)
    assert found.log_det[0] == pytest.approx(np.trace(A), abs=1e-9)
    # If x₁ is N(0, I), then x₀ = e^{−A}x₁ has covariance e^{−A}e^{−Aᵀ}.
    X = np.random.default_rng(0).normal(size=(10, 2))
    root = np.eye(2)
    for k in range(30, 0, -1):
        root = np.eye(2) - A @ root / k
    likelihood = flow_log_likelihood(
        lambda x, t: x @ A.T, X, multivariate_normal(np.zeros(2)).logpdf
    )
    truth = multivariate_normal(np.zeros(2), root @ root.T).logpdf(X)
    assert likelihood.log_density == pytest.approx(truth, abs=1e-8)
    # Log determinants of residual steps approach the integral, with error O(η).
    gaps = []
    for n in (50, 100, 200):
        steps = n * np.linalg.slogdet(np.eye(2) + A / n)[1]
        gaps.append(abs(steps - found.log_det[0]))
    assert np.array(gaps[:-1]) / gaps[1:] == pytest.approx(2, abs=0.05)
