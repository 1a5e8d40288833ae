"""Dropout: masks in training, and the two ways to predict with them."""

from itertools import product

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

import certus
from certus.neural_network import (
    ConvNetClassifier,
    Distilled,
    MLPClassifier,
    NeuralClassifier,
    NeuralRegressor,
    monte_carlo,
)
from certus.neural_network.modules import MLP

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
y = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(int)


def fitted(module, cls=NeuralClassifier, target=y, **options):
    """A few epochs of a module in float64."""
    settings = {"schedule": "cosine", "max_iter": 5, "learning_rate": 0.02}
    return cls(module.double(), **settings, **options, random_state=0).fit(X, target)


def masks(width, keep):
    """All masks of so many units, with their probabilities."""
    for mask in product((0.0, 1.0), repeat=width):
        kept = int(sum(mask))
        yield np.array(mask), keep**kept * (1 - keep) ** (width - kept)


class Recording(nn.Module):
    """A network that remembers which units each batch kept."""

    def __init__(self):
        super().__init__()
        self.hidden, self.drop = nn.Linear(3, 50), nn.Dropout(0.3)
        self.output, self.seen = nn.Linear(50, 2), []

    def forward(self, x):
        h = 1.0 + self.hidden(x).square()  # never zero by itself
        kept = self.drop(h)
        if self.training:
            self.seen.append((kept != 0).numpy())
            np.testing.assert_allclose(
                kept.detach().numpy(),
                np.where(self.seen[-1], h.detach().numpy() / 0.7, 0.0),
            )
        return self.output(kept)


@pytest.mark.catalog("NN-45")
def test_each_batch_keeps_other_units_at_the_rate_that_was_asked_for():
    model = fitted(Recording(), batch_size=20)
    seen = model.module_.seen
    assert len(seen) == 3 * 5 and seen[0].shape == (20, 50)
    rate, n = np.mean(seen), np.size(seen)
    assert abs(rate - 0.7) < 4 * np.sqrt(0.7 * 0.3 / n)
    assert len({mask.tobytes() for mask in seen}) == len(seen)
    # Rows of a batch have masks of their own.
    assert len({row.tobytes() for row in seen[0]}) == 20


@pytest.mark.catalog("NN-46")
def test_kept_units_are_scaled_so_that_their_mean_is_the_unit():
    net = MLP(3, 6, 2, activation="softplus", dropout=0.4).double()
    layer, x = net.layers[0], torch.as_tensor(X[:1])
    plain = layer.eval()(x)
    layer.train()
    draws = layer(x.expand(20_000, -1))
    values = torch.unique((draws / plain).round(decimals=9))
    torch.testing.assert_close(values, torch.tensor([0.0, 1 / 0.6]).double())
    error = (draws.mean(dim=0) / plain - 1).abs().max()
    assert error < 4 * np.sqrt(0.4 / 0.6 / 20_000)
    assert torch.equal(layer.eval()(x), plain)


@pytest.mark.catalog("NN-47")
def test_rescaled_weights_are_the_mean_over_masks_of_a_linear_network():
    net = MLP(3, 5, 2, activation="identity", dropout=0.4)
    model = fitted(net, NeuralRegressor, X[:, :2])
    layer, output = model.module_.layers[0].linear, model.module_.output
    with torch.no_grad():
        h = layer(torch.as_tensor(X)).numpy()
    W, b = output.weight.detach().numpy(), output.bias.detach().numpy()
    mean = sum(p * ((h * m / 0.6) @ W.T + b) for m, p in masks(5, 0.6))
    np.testing.assert_allclose(model.predict(X), mean, rtol=1e-12, atol=1e-14)
    # Without scaling in training, the weights are scaled for prediction: θ̃ = πθ.
    plain = sum(p * ((h * m) @ W.T + b) for m, p in masks(5, 0.6))
    np.testing.assert_allclose(h @ (0.6 * W).T + b, plain, rtol=1e-12, atol=1e-14)


@pytest.mark.catalog("NN-47")
def test_rescaled_weights_are_the_geometric_mean_of_a_softmax_layer():
    model = fitted(nn.Sequential(nn.Dropout(0.3), nn.Linear(3, 2)))
    output = model.module_[1]
    W, b = output.weight.detach().numpy(), output.bias.detach().numpy()
    logs = 0.0
    for m, p in masks(3, 0.7):
        z = (X * m / 0.7) @ W.T + b
        logs += p * (z - np.log(np.exp(z).sum(axis=1, keepdims=True)))
    mean = np.exp(logs)
    mean /= mean.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(X), mean, rtol=1e-12)


@pytest.mark.catalog("NN-48")
def test_draws_converge_to_the_sum_over_all_masks():
    model = fitted(MLP(3, 4, 2, dropout=0.5))
    net = model.module_
    with torch.no_grad():
        h = torch.relu(net.layers[0].linear(torch.as_tensor(X))).numpy()
    W, b = net.output.weight.detach().numpy(), net.output.bias.detach().numpy()
    first = second = 0.0
    for m, p in masks(4, 0.5):
        z = np.exp((h * m / 0.5) @ W.T + b)
        q = z / z.sum(axis=1, keepdims=True)
        first, second = first + p * q, second + p * q**2
    spread = np.sqrt(np.maximum(second - first**2, 0.0))
    n = 1500
    found = monte_carlo(model, X, samples=n, random_state=1)
    assert (np.abs(found.mean - first) < 5 * spread / np.sqrt(n) + 1e-12).all()
    np.testing.assert_allclose(found.spread, spread, atol=0.02)
    # One pass with rescaled weights is near the sum, and not equal to it.
    apart = np.abs(model.predict_proba(X) - first).max()
    assert apart > 1e-3
    few = [monte_carlo(model, X, samples=k, random_state=2).mean for k in (5, 500)]
    errors = [np.abs(f - first).mean() for f in few]
    assert errors[1] < errors[0] / 4


def test_drawing_changes_neither_the_model_nor_any_generator():
    model = fitted(MLP(3, 8, 2, dropout=0.5, normalization="batch"))
    before = {k: v.clone() for k, v in model.module_.state_dict().items()}
    state = torch.get_rng_state()
    numbers = np.random.get_state()[1].copy()  # noqa: NPY002
    first = monte_carlo(model, X, random_state=3)
    again = monte_carlo(model, X, random_state=3)
    other = monte_carlo(model, X, random_state=4)
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == numbers).all()  # noqa: NPY002
    assert not any(part.training for part in model.module_.modules())
    assert all(torch.equal(v, before[k]) for k, v in model.module_.state_dict().items())
    np.testing.assert_array_equal(first.mean, again.mean)
    assert np.abs(first.mean - other.mean).max() > 0
    np.testing.assert_allclose(first.mean.sum(axis=1), 1.0)


def test_batch_norms_keep_to_the_statistics_of_training():
    net = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 1))
    model = fitted(net, NeuralRegressor, X[:, 0])
    alone = monte_carlo(model, X[:1], samples=400, random_state=0).mean
    among = monte_carlo(model, X, samples=400, random_state=0).mean[:1]
    plain = model.predict(X[:1])  # linear, so rescaling is exact
    assert abs(alone - plain) < 0.2 * max(1.0, abs(plain[0]))
    assert abs(among - plain) < 0.2 * max(1.0, abs(plain[0]))


def test_any_estimator_with_dropout_can_be_drawn_from():
    quick = {"max_iter": 2, "random_state": 0}
    perceptron = MLPClassifier(dropout=0.3, **quick)
    taught = Distilled(
        NeuralClassifier(MLP(3, 8, 2, dropout=0.3), **quick),
        teacher=LogisticRegression(),
    )
    images = Distilled(ConvNetClassifier(**quick), teacher=LogisticRegression())
    with certus.config_context(on_uncertified="ignore"):
        for model in (perceptron, taught):
            assert monte_carlo(model.fit(X, y), X, random_state=0).spread.max() > 0
        assert images.fit(X, y).predict(X).shape == y.shape
        plain = MLPClassifier(**quick).fit(X, y)
    with pytest.raises(ValueError, match="no dropout"):
        monte_carlo(plain, X)


def test_a_network_without_dropout_is_refused():
    model = fitted(MLP(3, 4, 2))
    with pytest.raises(ValueError, match="no dropout"):
        monte_carlo(model, X)
    with pytest.raises(ValueError, match="samples"):
        monte_carlo(model, X, samples=0)
    with pytest.raises(Exception, match="not fitted"):
        monte_carlo(NeuralClassifier(MLP(3, 4, 2)), X)
