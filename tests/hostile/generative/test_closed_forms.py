"""Bad input to divergences, transport maps, diffusions and chains."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from certus.generative import (
    DiscreteChain,
    GaussianMixtureScore,
    NoisedMixture,
    NoisingChain,
    QuantileMap,
    StochasticDE,
    TriangularMap,
    closest_gaussian,
    conjugate,
    denoising_loss,
    euler_maruyama,
    f_divergence,
    fit_linear_score,
    flow_log_likelihood,
    gaussian_backward,
    integrate_flow,
    jensen_shannon,
    knothe_rosenblatt,
    minimax_value,
    mmd,
    mmd_test,
    optimal_discriminator,
    ornstein_uhlenbeck,
    push_forward,
    reverse_time,
    variance_exploding,
    variance_preserving,
    variational_bound,
)
from certus.generative.quantiles import bisect

NAN, HALF = float("nan"), [0.5, 0.5]
OU = ornstein_uhlenbeck()
MIXTURE = NoisedMixture([1.0], [0.0], [1.0])
X = np.zeros((3, 2))
CHAIN = NoisingChain(0.9, n_steps=3)
T = TriangularMap([lambda b, z: np.tanh(z), lambda b, z: z])
NOT_INCREASING = TriangularMap([lambda b, z: -z])
WIDE = StochasticDE(lambda x, t: x, lambda x, t: np.ones(5))

CALLS = {
    # -- laws ---------------------------------------------------------------------
    "negative": (lambda: f_divergence([1.5, -0.5], HALF), "none of them negative"),
    "sum": (lambda: f_divergence([0.5, 0.6], HALF), "sum to 1"),
    "nan": (lambda: jensen_shannon([NAN, 1.0], HALF), "NaN or infinity"),
    "empty": (lambda: f_divergence([], []), "must not be empty"),
    "shapes": (lambda: f_divergence([0.2, 0.3, 0.5], HALF), "same shape"),
    "words": (lambda: f_divergence(["a", "b"], HALF), "must hold numbers"),
    "name": (lambda: f_divergence(HALF, HALF, "wasserstein"), "must be one of"),
    "grid": (lambda: f_divergence([1, 1], [1, 1], weights=[0.3, 0.3]), "integrate to"),
    "weights": (lambda: f_divergence(HALF, HALF, weights=[1.0]), "for each entry"),
    "negative weights": (
        lambda: f_divergence([1, 1], [1, 1], weights=[2.0, -1.0]),
        "non-negative",
    ),
    "no density": (lambda: f_divergence(np.cos, norm.logpdf), "integrates to 1|below"),
    "missed": (
        lambda: f_divergence(norm(0).logpdf, norm(50).logpdf, limits=(-9, 9)),
        "integrates to 1",
    ),
    "limits": (
        lambda: f_divergence(norm.logpdf, norm.logpdf, limits=(1, 0)),
        "lower and a higher",
    ),
    "nan density": (lambda: f_divergence(lambda x: NAN, norm.logpdf), "log density"),
    # -- conjugates, bounds, discriminators -----------------------------------------
    "conjugate nan": (lambda: conjugate(lambda t: t * NAN, 1.0), "NaN"),
    "conjugate ends": (lambda: conjugate(np.square, 1.0, low=2, high=1), "below high"),
    "domain": (
        lambda: variational_bound([0.0], [0.1], "twice_jensen_shannon"),
        "is finite",
    ),
    "bounds": (
        lambda: variational_bound([0.0], [3.0], "kl", bounds=(-1, 1)),
        "lie in bounds",
    ),
    "outside": (lambda: variational_bound([5.0], [0], "kl", bounds=(-1, 1)), "lie in"),
    "infinite end": (
        lambda: variational_bound([0.0], [0.0], "reverse_kl", bounds=(-1, 1)),
        "finite at bounds",
    ),
    "delta": (lambda: variational_bound([0.0], [0.0], delta=2.0), "probability"),
    "no scores": (lambda: variational_bound([], [0.0]), "must not be empty"),
    "weights of scores": (
        lambda: variational_bound([0.0, 1.0], [0.0], weights_q=[1.0]),
        "same shape",
    ),
    "certain": (lambda: minimax_value([1.0], [0.5]), "strictly between"),
    "negative density": (lambda: optimal_discriminator([-1.0], [1.0]), "negative"),
    "other density": (lambda: optimal_discriminator([1.0], [1.0, 2.0]), "same shape"),
    "nan in a density": (lambda: optimal_discriminator([NAN], [1.0]), "NaN"),
    # -- two samples, nearest Gaussians ---------------------------------------------
    "columns": (lambda: mmd(np.ones((3, 2)), np.ones((3, 1))), "rows of 2 numbers"),
    "one row": (lambda: mmd([1.0], [1.0, 2.0]), "at least 2 rows"),
    "bandwidth": (lambda: mmd([1.0, 2.0], [1.0, 2.0], bandwidth=0), "above 0"),
    "permutations": (lambda: mmd_test([1.0, 2.0], [1.0, 2.0], n_permutations=0), "1"),
    "infinite rows": (lambda: mmd([1.0, np.inf], [1.0, 2.0]), "NaN or infinity"),
    "variances": (lambda: closest_gaussian([1.0], [0.0], [0.0]), "positive"),
    "direction": (lambda: closest_gaussian([1.0], [0.0], [1.0], direction="up"), "one"),
    "components": (lambda: closest_gaussian(HALF, [0.0], [1.0]), "same shape"),
    # -- transport -------------------------------------------------------------------
    "u": (lambda: QuantileMap(norm.ppf)([0.0]), "strictly between"),
    "nan u": (lambda: QuantileMap(norm.ppf)([NAN]), "strictly between"),
    "n": (lambda: QuantileMap(norm.ppf).sample(0), "at least 1"),
    "discrete": (lambda: QuantileMap.discrete([1.0], HALF), "same shape"),
    "empty sample": (lambda: QuantileMap.from_sample([]), "must not be empty"),
    "points": (lambda: push_forward(abs, [1.0, 2.0], [1.0]), "one number for each"),
    "no image": (lambda: push_forward(lambda z: z[:1], [1.0, 2.0], HALF), "2 values"),
    "not reached": (lambda: T.inverse([[2.0, 0.0]]), "reaches"),
    "not increasing": (lambda: NOT_INCREASING.log_det([[1.0]]), "must increase"),
    "no inverse": (lambda: NOT_INCREASING.inverse([[1.0]]), "reaches"),
    "component": (
        lambda: TriangularMap([lambda b, z: 1.0]).transform([[0.0]]),
        "must return 1 numbers",
    ),
    "nan component": (
        lambda: TriangularMap([lambda b, z: z * NAN]).transform([[0.0]]),
        "NaN",
    ),
    "nan in bisection": (lambda: bisect(lambda x: x * NAN, [1.0]), "NaN"),
    "too few columns": (lambda: T.transform([[1.0]]), "rows of 2 numbers"),
    "no components": (lambda: TriangularMap([]), "one function for each column"),
    "derivatives": (
        lambda: TriangularMap([abs], derivatives=[abs, abs]),
        "one function for each of",
    ),
    "indefinite": (
        lambda: knothe_rosenblatt([0.0, 0.0], [[1, 2], [2, 1]]),
        "positive definite",
    ),
    "not symmetric": (
        lambda: knothe_rosenblatt([0.0, 0.0], [[1, 2], [0, 1]]),
        "symmetric",
    ),
    # -- mixtures and diffusions -------------------------------------------------------
    "mixture weights": (lambda: NoisedMixture([0.5, 0.4], X[:2]), "sum to 1"),
    "mixture shape": (lambda: NoisedMixture([1.0], X[:2]), "one number for each"),
    "mixture covariances": (
        lambda: NoisedMixture([1.0], X[:1], [[[1, 2], [2, 1]]]),
        "negative eigenvalue",
    ),
    "covariance shape": (lambda: NoisedMixture([1.0], X[:1], [[1.0]]), "matrices"),
    "no mixture density": (lambda: NoisedMixture([1.0], [0.0]).score([1.0]), "std"),
    "nan rows": (lambda: MIXTURE.score([NAN]), "NaN or infinity"),
    "std": (lambda: MIXTURE.score([1.0], std=-1.0), "at least 0"),
    "rate": (lambda: ornstein_uhlenbeck(0.0), "above 0"),
    "noise": (lambda: ornstein_uhlenbeck(noise=NAN), "above 0"),
    "beta": (lambda: variance_preserving(low=2.0, high=1.0), "at least 2"),
    "sigma": (lambda: variance_exploding(low=0.0), "above 0"),
    "marginal": (lambda: GaussianMixtureScore(MIXTURE, WIDE), "marginal"),
    "before time 0": (lambda: GaussianMixtureScore(MIXTURE, OU)([[1.0]], -1.0), "t"),
    "diffusion": (lambda: euler_maruyama(WIDE, X), "diffusion must return"),
    "steps": (lambda: euler_maruyama(OU, X, n_steps=0), "at least 1"),
    "times": (lambda: euler_maruyama(OU, X, times=(1, 1)), "two different"),
    "given noise": (
        lambda: euler_maruyama(OU, X, n_steps=2, noise=np.ones((1, 3, 2))),
        "noise must have shape",
    ),
    "start": (lambda: euler_maruyama(OU, [[NAN]]), "NaN or infinity"),
    "drift": (
        lambda: euler_maruyama(StochasticDE(lambda x, t: x[:1], OU.diffusion), X),
        "drift must return",
    ),
    "velocity": (lambda: integrate_flow(lambda x, t: x[0], X), "velocity must have"),
    "method": (lambda: integrate_flow(lambda x, t: x, X, method="ab2"), "one of"),
    "infinite time": (lambda: integrate_flow(abs, X, times=(0, np.inf)), "finite"),
    "base": (
        lambda: flow_log_likelihood(lambda x, t: x, X, lambda x: x, n_steps=1),
        "one number for each",
    ),
    # -- chains ----------------------------------------------------------------------
    "alpha": (lambda: NoisingChain(1.0, n_steps=3), "strictly between"),
    "alphas": (lambda: NoisingChain([0.9, NAN]), "NaN or infinity"),
    "entries": (lambda: NoisingChain([0.9, 0.9], n_steps=3), "3 entries"),
    "no alphas": (lambda: NoisingChain([]), "must not be empty"),
    "time": (lambda: CHAIN.forward(X, 4), "at most 3"),
    "last time": (lambda: CHAIN.backward(MIXTURE, [[0.0]], 3), "below n_steps"),
    "score": (lambda: gaussian_backward(X, X[:1], 0.9), "score must have shape"),
    "denoising": (lambda: denoising_loss(np.sin, X, scale=1.0, std=0.0), "above 0"),
    "noise shape": (
        lambda: fit_linear_score(X, scale=1.0, std=1.0, noise=X[:1]),
        "noise must have shape",
    ),
    "transitions": (lambda: DiscreteChain(HALF, [[[1.0, 0.0]]]), "initial must have"),
    "transition sums": (lambda: DiscreteChain(HALF, [[[1, 1], [0, 1]]]), "sum to 1"),
    "states": (
        lambda: DiscreteChain(HALF, [np.eye(2)]).log_probability([[0, 2]]),
        "states 0 to 1",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_bad_input_is_named(name: str) -> None:
    call, message = CALLS[name]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: f_divergence(norm.logpdf, HALF), "both be arrays"),
        (lambda: QuantileMap(), "either quantile or cdf"),
        (lambda: integrate_flow(3, X), "a function"),
        (lambda: euler_maruyama(OU, X, n_steps=2.5), "an integer"),
        (lambda: NoisingChain(0.9), "n_steps must be an integer"),
    ],
)
def test_wrong_types_are_named(call, message) -> None:
    with pytest.raises(TypeError, match=message):
        call()


def test_zero_weights_and_far_rows_stay_finite() -> None:
    mixture = NoisedMixture([0.0, 1.0], [-1.0, 1.0], [1.0, 1.0])
    assert np.isfinite(mixture.score([[1e6], [-1e6]])).all()
    T = knothe_rosenblatt([[-1.0], [1.0]], [[[1.0]], [[1.0]]], weights=[0.0, 1.0])
    assert T.inverse([[3.0]]) == pytest.approx(2.0)
    sde = ornstein_uhlenbeck()
    back = reverse_time(sde, GaussianMixtureScore(mixture, sde))
    assert np.isfinite(euler_maruyama(back, [[1e6]], n_steps=10)).all()


def test_probabilities_that_rounding_left_off_one_are_taken() -> None:
    q = np.full(10, 0.1, dtype=np.float32)
    assert f_divergence(q, q) == pytest.approx(0.0, abs=1e-12)
    assert QuantileMap.discrete(range(10), q)(1 - 1e-16) == 9
