"""Starts of EM and draws from a mixture, over many seeds."""

import numpy as np
import pytest
from scipy.stats import binomtest, kstest, norm

import certus
from certus.mixture import GaussianMixture, gaussian_start

SEEDS = 40


def separated(seed=0, k=8, n=800):
    rng = np.random.default_rng(seed)
    centres = 6 * rng.standard_normal((k, 2))
    return centres[rng.integers(0, k, n)] + rng.standard_normal((n, 2))


@pytest.mark.catalog("LAT-17")
def test_means_drawn_far_apart_reach_a_higher_median_likelihood():
    X = separated()
    levels = {}
    with certus.config_context(on_uncertified="ignore"):
        for means in ("k-means++", "random"):
            levels[means] = [
                GaussianMixture(
                    8,
                    covariance_type="spherical",
                    tol=1e-4,
                    **gaussian_start(
                        X,
                        8,
                        covariance_type="spherical",
                        means=means,
                        random_state=seed,
                    ),
                )
                .fit(X)
                .lower_bound_
                for seed in range(SEEDS)
            ]
    assert np.median(levels["k-means++"]) > np.median(levels["random"])


@pytest.mark.catalog("LAT-07")
def test_draws_follow_the_distribution_function_of_the_mixture():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 1, 300), rng.normal(6, 2, 600)])[:, None]
    model = GaussianMixture(2, random_state=0).fit(X)
    scales = np.sqrt(model.covariances_[:, 0, 0])

    def cdf(x):
        each = norm.cdf((x[:, None] - model.means_[:, 0]) / scales)
        return each @ model.weights_

    small = 0
    for seed in range(SEEDS):
        draws, _ = model.set_params(random_state=seed).sample(500)
        small += kstest(draws[:, 0], cdf).pvalue < 0.1
    assert binomtest(small, SEEDS, 0.1).pvalue > 1e-4


@pytest.mark.catalog("LAT-12")
def test_parameters_are_recovered_at_the_rate_of_the_square_root():
    errors = []
    for n in (500, 8000):
        found = []
        for seed in range(12):
            rng = np.random.default_rng(seed)
            z = rng.random(n) < 0.3
            X = np.where(z, rng.normal(0, 1, n), rng.normal(6, 2, n))[:, None]
            model = GaussianMixture(2, tol=1e-7, max_iter=500, random_state=0).fit(X)
            order = model.means_[:, 0].argsort()
            found.append(
                np.abs(model.means_[order, 0] - [0, 6]).max()
                + np.abs(model.weights_[order] - [0.3, 0.7]).max()
            )
        errors.append(np.mean(found))
    assert 2 < errors[0] / errors[1] < 8  # √16 = 4
