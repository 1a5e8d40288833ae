"""Noising chains: closed forms, both factorisations, exact and approximate kernels."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import roots_hermitenorm
from scipy.stats import chisquare, ks_2samp, kstest

from certus.generative import (
    DiscreteChain,
    NoisedMixture,
    NoisingChain,
    denoising_loss,
    fit_linear_score,
    gaussian_backward,
)

LINE = NoisedMixture([0.3, 0.7], [-2.0, 1.0], [0.09, 0.25])


@pytest.mark.catalog("GEN-47")
def test_x_t_given_x_0_in_closed_form() -> None:
    chain = NoisingChain(0.95, n_steps=60)
    t = np.arange(61)
    assert chain.scales == pytest.approx(0.95**t, rel=1e-12)
    assert chain.stds**2 == pytest.approx(1 - 0.95 ** (2 * t), abs=1e-12)
    # Composing single steps gives the same two numbers.
    mean, variance = 1.0, 0.0
    for alpha in chain.alphas:
        mean, variance = alpha * mean, alpha**2 * variance + 1 - alpha**2
    assert (mean, variance) == pytest.approx((chain.scales[-1], chain.stds[-1] ** 2))
    X = np.full((5000, 1), 3.0)
    step_by_step = chain.path(X, random_state=0)[20, :, 0]
    at_once = chain.forward(X, 20, random_state=1)[:, 0]
    assert ks_2samp(step_by_step, at_once).pvalue > 1e-3
    assert at_once.mean() == pytest.approx(3 * 0.95**20, abs=0.06)
    # At the end it is N(0, 1), whatever the start.
    long = NoisingChain(0.9, n_steps=100)
    assert kstest(long.forward(X, 100, random_state=2)[:, 0], "norm").pvalue > 1e-3


@pytest.mark.catalog("GEN-48")
def test_both_factorisations_of_a_discrete_chain() -> None:
    rng, k, T = np.random.default_rng(0), 3, 4
    chain = DiscreteChain(rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k), (T, k)))
    paths = np.array(list(itertools.product(range(k), repeat=T + 1)))
    forward = chain.log_probability(paths)
    assert chain.log_probability(paths, backward=True) == pytest.approx(forward)
    assert np.exp(forward).sum() == pytest.approx(1.0, abs=1e-12)
    # Marginals are sums over all paths.
    for t, state in itertools.product(range(T + 1), range(k)):
        mass = np.exp(forward[paths[:, t] == state]).sum()
        assert mass == pytest.approx(chain.marginals[t, state], rel=1e-12)


def test_states_that_are_never_reached() -> None:
    chain = DiscreteChain([1.0, 0.0], [[[1.0, 0.0], [0.5, 0.5]]] * 2)
    assert chain.backward_kernels().sum(axis=2) == pytest.approx(1.0)
    both = [chain.log_probability([[0, 0, 0], [0, 1, 0]], backward=b) for b in (0, 1)]
    assert (both[0] == [0.0, -np.inf]).all() and (both[1] == both[0]).all()


@pytest.mark.catalog("GEN-49")
def test_ancestral_sampling_of_a_discrete_chain() -> None:
    rng = np.random.default_rng(1)
    chain = DiscreteChain([0.6, 0.3, 0.1], rng.dirichlet(np.ones(3), (5, 3)))
    paths = chain.ancestral_sample(6000, random_state=0)
    seen = np.bincount(paths[:, 0], minlength=3)
    assert chisquare(seen, 6000 * chain.marginals[0]).pvalue > 1e-3
    pairs = np.bincount(3 * paths[:, 0] + paths[:, 1], minlength=9)
    joint = chain.marginals[0][:, None] * chain.transitions[0]
    assert chisquare(pairs, 6000 * joint.ravel()).pvalue > 1e-3


@pytest.mark.catalog("GEN-49")
def test_exact_backward_kernels_reproduce_the_data() -> None:
    chain = NoisingChain(np.linspace(0.99, 0.8, 30))
    X = chain.ancestral_sample(LINE, 5000, random_state=0)[:, 0]
    grid = np.linspace(-6, 6, 8001)
    cdf = np.cumsum(np.exp(LINE.log_density(grid))) * (grid[1] - grid[0])
    assert kstest(X, lambda x: np.interp(x, grid, cdf)).pvalue > 1e-3
    # A table: the rows come back as they are.
    rows = np.array([[0.0, 0.0], [3.0, 1.0], [-2.0, 2.0]])
    table = NoisedMixture([0.5, 0.3, 0.2], rows)
    found = chain.ancestral_sample(table, 3000, random_state=1)
    near = np.abs(found[:, None] - rows).max(axis=2)
    assert near.min(axis=1).max() < 1e-12
    assert chisquare(np.bincount(near.argmin(axis=1)), [1500, 900, 600]).pvalue > 1e-3


@pytest.mark.catalog("GEN-48", "GEN-49")
def test_backward_kernels_obey_bayes() -> None:
    chain, t = NoisingChain(0.9, n_steps=10), 4
    x_next = np.array([[0.3], [-1.2]])
    weights, means, roots = chain.backward_kernel(LINE, x_next, t)
    grid = np.linspace(-4, 4, 41)
    a, s = float(chain.scales[t]), float(chain.stds[t])
    a1, s1 = float(chain.scales[t + 1]), float(chain.stds[t + 1])
    for i in range(2):
        parts = NoisedMixture(weights[i], means[i], roots @ np.swapaxes(roots, 1, 2))
        step = -0.5 * (x_next[i] - 0.9 * grid) ** 2 / 0.19
        step = step - 0.5 * math.log(2 * math.pi * 0.19)
        joint = LINE.log_density(grid, scale=a, std=s) + step
        bayes = joint - LINE.log_density(x_next[i : i + 1], scale=a1, std=s1)
        assert parts.log_density(grid) == pytest.approx(bayes, abs=1e-9)


@pytest.mark.catalog("GEN-50")
def test_the_backward_gaussian_and_its_error() -> None:
    def coefficients(alpha):
        """Of x in the mean of x_t given x_{t+1}, data N(0, 4): exact and near."""
        data = NoisedMixture([1.0], [0.0], [4.0])
        chain = NoisingChain(alpha, n_steps=1)
        _, exact, root = chain.backward_kernel(data, [[1.0]], 0)
        scale, std = float(chain.scales[1]), float(chain.stds[1])
        score = data.score([[1.0]], scale=scale, std=std)
        near, spread = gaussian_backward([[1.0]], score, alpha)
        assert spread**2 == pytest.approx(1 - alpha**2)
        assert float(root[0, 0, 0]) == pytest.approx(spread, rel=2 * (1 - alpha))
        return float(exact[0, 0, 0]), float(near[0, 0])

    exact, near = coefficients(0.99)
    assert (round(exact, 5), round(near, 5)) == (1.00500, 1.00495)
    errors = [abs(np.subtract(*coefficients(1 - e))) for e in (0.04, 0.02, 0.01, 0.005)]
    rates = np.log2(np.array(errors[:-1]) / errors[1:])
    assert rates == pytest.approx(2, abs=0.15)
    # With (1 − α)² as printed in the seed the error would be of order 1 − α.
    assert abs((2 - 0.99) - 0.01**2 / 3.9403 - exact) > 0.004


@pytest.mark.catalog("GEN-51")
def test_a_linear_score_recovers_the_score_of_a_gaussian() -> None:
    C = np.array([[2.0, 0.7], [0.7, 1.0]])
    mean, rng = np.array([1.0, -1.0]), np.random.default_rng(0)
    Z = rng.standard_normal((500, 2))
    Z -= Z.mean(axis=0)
    # Rows with exactly this mean and covariance.
    white = Z @ np.linalg.inv(np.linalg.cholesky(Z.T @ Z / 500)).T
    X = mean + white @ np.linalg.cholesky(C).T
    chain = NoisingChain(0.98, n_steps=30)
    scale, std = float(chain.scales[-1]), float(chain.stds[-1])
    found = fit_linear_score(X, scale=scale, std=std)
    truth = NoisedMixture([1.0], [mean], [C])
    points = rng.normal(size=(6, 2))
    exact = truth.score(points, scale=scale, std=std)
    assert found(points) == pytest.approx(exact, rel=1e-9)
    # From drawn noise, by least squares: nearer with more rows.
    many = truth.sample(100_000, random_state=1)
    noise = rng.standard_normal(many.shape)
    drawn = fit_linear_score(many, scale=scale, std=std, noise=noise)
    assert drawn(points) == pytest.approx(exact, abs=0.03)
    loss = denoising_loss(drawn, many, scale=scale, std=std, noise=noise)
    for change in (1.05, 0.95):
        other = drawn._replace(coef=change * drawn.coef)
        assert denoising_loss(other, many, scale=scale, std=std, noise=noise) > loss


@pytest.mark.catalog("GEN-51")
def test_denoising_and_explicit_losses_differ_by_a_constant() -> None:
    scale, std = 0.8, 0.6
    nodes, rule = roots_hermitenorm(60)
    rule = rule / rule.sum()
    # All pairs of a node of x_0 in either component, and a node of the noise.
    x0 = (LINE.means + np.sqrt(LINE.covariances[:, 0]) * nodes).ravel()
    w0 = (LINE.weights[:, None] * rule).ravel()
    X, noise = (part.ravel() for part in np.meshgrid(x0, nodes, indexing="ij"))
    weights = np.outer(w0, rule).ravel()
    grid = np.linspace(-8, 8, 8001)[:, None]
    p = np.exp(LINE.log_density(grid, scale=scale, std=std))

    def exact(x):
        return LINE.score(x, scale=scale, std=std)

    def gap(score):
        pairs = {"scale": scale, "std": std, "noise": noise, "sample_weight": weights}
        denoising = denoising_loss(score, X, **pairs)
        far = np.sum((score(grid) - exact(grid)) ** 2, axis=1)
        return denoising - float(np.sum(p * far) * (grid[1, 0] - grid[0, 0]))

    constant = gap(exact)
    assert constant > 0.1  # the loss of the best score is not 0
    for score in (lambda x: -x, np.sin, lambda x: exact(x) + 0.3):
        assert gap(score) == pytest.approx(constant, rel=1e-6)
