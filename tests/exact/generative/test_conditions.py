"""Rows on conditions, against conditional laws in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import kstest, norm, truncnorm

from certus.generative import (
    Diffusion,
    NoisedMixture,
    NormalizingFlow,
    VariationalAutoencoder,
)
from certus.generative.conditions import _cut_normal, _log_interval
from certus.neural_network.modules import Variational

MEANS = np.array([[-1.4, 0.7], [0.6, -0.3]])  # with these shares their mean is zero
MIXTURE = NoisedMixture([0.3, 0.7], MEANS, [0.1, 0.1])


class ExactDenoiser(torch.nn.Module):
    """The best denoiser of the mixture, and of each of its parts as a class."""

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.config = {"hidden": (8,), "n_classes": n_classes}

    def forward(self, x: torch.Tensor, sigma: torch.Tensor, c=None) -> torch.Tensor:
        w, m = torch.tensor([0.3, 0.7]).double(), torch.from_numpy(MEANS)
        v = 0.1 + sigma[:, None].square()
        logs = w.log() - 0.5 * (x[:, None] - m).square().sum(dim=2) / v
        r = torch.softmax(logs, dim=1)
        if c is not None:
            r = torch.nn.functional.one_hot(c, 2).double()
        return x + sigma[:, None].square() * (r @ m - x) / v


def placed(model, network, columns: int, classes: bool = False):
    """A model with this network on columns that are standardised already."""
    model.network_, model.shape_ = network, (columns,)
    model.loc_, model.scale_ = np.zeros(columns), np.ones(columns)
    model.varies_ = np.ones(columns, dtype=bool)
    model.n_features_in_ = columns
    if classes:
        model.classes_ = np.array(["a", "b"])
        model.class_prior_ = np.array([0.3, 0.7])
    return model


def diffusion(classes: bool = False) -> Diffusion:
    network = ExactDenoiser(2 if classes else 0)
    return placed(Diffusion(), network, 2, classes)


def mixed_factors() -> VariationalAutoencoder:
    """Two classes of linear factors, with a poor encoder: x | c ~ N(m_c, WWᵀ + ¼I)."""
    network = Variational(3, 2, (), n_classes=2).double()
    with torch.no_grad():
        network.decoder.output.weight.copy_(torch.from_numpy(np.hstack([W, SHIFTS])))
        network.decoder.output.bias.zero_()
        network.encoder.output.weight.zero_()
        network.encoder.output.bias.copy_(torch.tensor([0.1, 0, 0, 0]).double())
        network.log_noise.fill_(math.log(0.25))
    model = VariationalAutoencoder(hidden_layer_sizes=())
    return placed(model, network.eval(), 3, classes=True)


W = np.array([[1.0, 0.0], [0.8, 0.4], [-0.3, 0.9]])
SHIFTS = np.array([[-1.0, 1.0], [0.5, -0.5], [0.0, 0.6]])
COVARIANCE = W @ W.T + 0.25 * np.eye(3)


@pytest.fixture(scope="module")
def factors() -> VariationalAutoencoder:
    """Probabilistic PCA of columns in other units."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2)) @ W.T + 0.5 * rng.normal(size=(500, 3))
    X = np.column_stack([X * [1, 10, 1] + [5, 0, -2], np.full(500, 4.0)])
    return VariationalAutoencoder(hidden_layer_sizes=()).fit(X)


def test_linear_codes_have_the_conditional_normal_distribution(factors) -> None:
    """Known values in units of the fit, a constant column among them."""
    C = np.asarray(factors.weights_["decoder.output.weight"])
    C = (C @ C.T + factors.noise_variance_ * np.eye(3)) * np.outer(
        S := factors.scale_[:3], S
    )
    made = factors.sample(4000, given={0: 6.5, 3: 4.0}, random_state=0)
    assert (made[:, 0] == 6.5).all() and (made[:, 3] == 4.0).all()
    gain = C[1:, 0] / C[0, 0]
    mean = factors.loc_[1:3] + gain * (6.5 - factors.loc_[0])
    spread = np.sqrt(np.diag(C)[1:] - gain * C[0, 1:])
    for j in (0, 1):
        assert kstest(made[:, 1 + j], norm(mean[j], spread[j]).cdf).pvalue > 1e-3
    ranged = factors.sample(4000, given={0: (6.5, 7.5)}, random_state=1)[:, 0]
    m, s = factors.loc_[0], math.sqrt(C[0, 0])
    law = truncnorm((6.5 - m) / s, (7.5 - m) / s, m, s)
    assert kstest(ranged, law.cdf).pvalue > 1e-3


def test_classes_of_codes_follow_the_conditions() -> None:
    """Shares of classes and means by Bayes' rule, although the encoder is poor."""
    model = mixed_factors()
    made, y = model.sample(4000, given={0: 1.2}, random_state=0)
    like = np.array([0.3, 0.7]) * norm.pdf(1.2, SHIFTS[0], math.sqrt(COVARIANCE[0, 0]))
    like /= like.sum()
    assert abs((y == "b").mean() - like[1]) < 4 * math.sqrt(like[0] * like[1] / 4000)
    gain = COVARIANCE[1, 0] / COVARIANCE[0, 0]
    spread = math.sqrt(COVARIANCE[1, 1] - gain * COVARIANCE[1, 0])
    for c, label in enumerate("ab"):
        law = norm(SHIFTS[1, c] + gain * (1.2 - SHIFTS[0, c]), spread)
        assert kstest(made[y == label, 1], law.cdf).pvalue > 1e-3
    _, told = model.sample(6, y=list("abaabb"), given={0: 1.2}, random_state=0)
    assert "".join(told) == "abaabb"


def test_pixels_of_zeros_and_ones_are_conditions() -> None:
    """Two codes in effect: bright pictures and dark ones."""
    network = Variational(3, 1, (), likelihood="bernoulli").double()
    with torch.no_grad():
        network.decoder.output.weight.fill_(4.0)
        network.decoder.output.bias.zero_()
    model = placed(VariationalAutoencoder(likelihood="bernoulli"), network, 3)
    made = model.sample(4000, given={0: 1, 1: (0.5, 2), 2: (0, 1)}, random_state=0)
    assert (made[:, :2] == 1).all() and set(made[:, 2]) == {0.0, 1.0}
    z = np.linspace(-8, 8, 4001)
    p = 1 / (1 + np.exp(-4 * z))
    truth = (norm.pdf(z) * p**3).sum() / (norm.pdf(z) * p**2).sum()
    assert abs(made[:, 2].mean() - truth) < 4 * math.sqrt(truth * (1 - truth) / 4000)


def test_rows_of_a_diffusion_in_a_range() -> None:
    """Rows that are kept have the law of the model's rows in the range."""
    made = diffusion().sample(600, given={0: (-0.7, -0.1)}, random_state=0)
    assert ((made[:, 0] >= -0.7) & (made[:, 0] <= -0.1)).all()
    u = np.array([norm.cdf(e, MEANS[:, 0], math.sqrt(0.1)) for e in (-0.7, -0.1)])
    share = [0.3, 0.7] * (u[1] - u[0])
    share /= share.sum()
    mean = share @ MEANS[:, 1]
    assert abs(made[:, 1].mean() - mean) < 0.09
    rows, y = diffusion(classes=True).sample(
        600, given={0: (-0.7, -0.1)}, random_state=0
    )
    assert abs((y == "a").mean() - share[0]) < 0.08
    assert rows[y == "a", 1].mean() > rows[y == "b", 1].mean() + 0.5


def test_a_known_value_moves_the_rest_of_the_rows_of_a_diffusion() -> None:
    """Nearly the conditional law; within a class there are no shares to miss."""
    made = diffusion().sample(800, given={0: -0.5}, random_state=0)
    assert (made[:, 0] == -0.5).all()
    like = np.array([0.3, 0.7]) * norm.pdf(-0.5, MEANS[:, 0], math.sqrt(0.1))
    mean = like @ MEANS[:, 1] / like.sum()  # 0.46; without the value it is 0
    assert mean - 0.15 < made[:, 1].mean() < mean + 0.07
    told, y = diffusion(classes=True).sample(
        400, y="a", given={0: -0.5}, random_state=0
    )
    assert (y == "a").all() and abs(told[:, 1].mean() - 0.7) < 0.07
    assert abs(told[:, 1].std() - math.sqrt(0.1)) < 0.05


def test_draws_depend_on_their_seed_alone(factors) -> None:
    for model in (factors, diffusion()):
        a, b, c = (
            model.sample(5, given={0: 0.3, 1: (-9, 9)}, random_state=s)
            for s in (1, 1, 2)
        )
        np.testing.assert_array_equal(a, b)
        assert not (a[:, 1] == c[:, 1]).any()


def test_cut_normals_keep_their_digits() -> None:
    rng = np.random.default_rng(0)
    for low, high in ((-1.0, 2.0), (12.0, 13.0), (-40.0, -39.5), (3.0, np.inf)):
        a, b = np.full(2000, low), np.full(2000, high)
        x = _cut_normal(a, b, rng)
        assert ((x >= low) & (x <= high)).all()
        law = truncnorm(low, high)
        assert kstest(x, law.cdf).pvalue > 1e-3
        far = np.linspace(low, min(high, low + 3), 2001)
        logs = norm.logpdf(far)
        top = logs.max()
        sum_of = np.trapezoid(np.exp(logs - top), far)
        assert _log_interval(a[:1], b[:1])[0] == pytest.approx(
            top + math.log(sum_of), abs=2e-3
        )


def test_a_saved_flow_gives_the_same_answers() -> None:
    X = np.random.default_rng(0).normal(size=(200, 2)) @ [[1, 0.8], [0, 0.6]]
    flow = NormalizingFlow(layer="linear").fit(X)
    made = flow.sample(500, given={0: 1.0}, random_state=0)
    C = np.cov(X.T, bias=True)
    gain = C[0, 1] / C[0, 0]
    mean = X[:, 1].mean() + gain * (1 - X[:, 0].mean())
    spread = math.sqrt(C[1, 1] - gain * C[0, 1])
    assert kstest(made[:, 1], norm(mean, spread).cdf).pvalue > 1e-3
