"""Augmentation: where a bright spot goes, and that each row keeps its target."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from certus.neural_network import NeuralClassifier, NeuralRegressor, augment
from certus.neural_network.modules import MLP

HEIGHT, WIDTH = 41, 61  # not square: angles and lengths must be those of the picture


def spots(n, right, down):
    """Images with one soft spot so far from the middle."""
    y = torch.arange(HEIGHT, dtype=torch.float64) - HEIGHT // 2 - down
    x = torch.arange(WIDTH, dtype=torch.float64) - WIDTH // 2 - right
    spot = torch.exp(-(y[:, None] ** 2 + x**2) / 8)
    return spot.expand(n, 1, HEIGHT, WIDTH).clone()


def places(images):
    """Where the spots are, from the middle: right and down."""
    weight = images[:, 0] / images[:, 0].sum(dim=(1, 2), keepdim=True)
    y = torch.arange(HEIGHT, dtype=torch.float64) - HEIGHT // 2
    x = torch.arange(WIDTH, dtype=torch.float64) - WIDTH // 2
    down, right = (weight.sum(dim=2) * y).sum(dim=1), (weight.sum(dim=1) * x).sum(dim=1)
    return right.numpy(), down.numpy()


@pytest.fixture
def draws():
    return torch.Generator().manual_seed(0)


@pytest.mark.catalog("NN-49")
def test_turning_keeps_the_distance_from_the_middle(draws):
    right, down = places(augment.rotate(spots(500, 10, 4), 25.0, draws))
    np.testing.assert_allclose(np.hypot(right, down), np.hypot(10, 4), atol=0.1)
    angle = np.degrees(np.arctan2(down, right) - np.arctan2(4, 10))
    assert np.abs(angle).max() <= 25.5
    # Uniform between the two ends.
    assert abs(angle.mean()) < 4 * 25 / np.sqrt(3 * 500)
    assert angle.std() == pytest.approx(25 / np.sqrt(3), rel=0.1)


@pytest.mark.catalog("NN-49")
def test_enlarging_moves_along_the_ray(draws):
    images = augment.zoom(spots(500, 10, 4), 0.3, draws)
    right, down = places(images)
    factor = right / 10
    np.testing.assert_allclose(down / 4, factor, rtol=0.02)
    assert 0.69 < factor.min() < 0.72 and 1.28 < factor.max() < 1.31
    # A spot twice as wide has four times the light.
    light = images.sum(dim=(1, 2, 3)) / spots(1, 10, 4).sum()
    np.testing.assert_allclose(light, factor**2, rtol=0.02)


@pytest.mark.catalog("NN-49")
def test_windows_are_cut_anywhere_and_stretched(draws):
    images = augment.crop(spots(500, 3, -2), 0.8, draws)
    light = images.sum(dim=(1, 2, 3)) / spots(1, 3, -2).sum()
    np.testing.assert_allclose(light, 1 / 0.8**2, rtol=0.02)
    right, down = places(images)
    # The middle of a window lies within a tenth of the sides from that of the image.
    for place, at, side in [(right, 3, WIDTH), (down, -2, HEIGHT)]:
        middle = at - 0.8 * place
        assert np.abs(middle).max() <= 0.1 * side + 0.1
        assert middle.std() == pytest.approx(0.1 * side / np.sqrt(3), rel=0.1)
    assert abs(np.corrcoef(right, down)[0, 1]) < 0.2


@pytest.mark.catalog("NN-49")
def test_shifts_are_whole_pixels_each_as_often(draws):
    right, down = places(augment.shift(spots(900, 0, 0), 1, draws))
    steps = np.round(np.column_stack((right, down)))
    np.testing.assert_allclose(np.column_stack((right, down)), steps, atol=1e-6)
    kinds, counts = np.unique(steps, axis=0, return_counts=True)
    assert len(kinds) == 9 and np.abs(kinds).max() == 1
    assert np.abs(counts - 100).max() < 5 * 10


class Repeating(nn.Module):
    """Gives the row itself in each of seven columns."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, x):
        return (x + 0 * self.w).expand(-1, 7)


@pytest.mark.catalog("NN-49")
def test_a_changed_row_keeps_its_target():
    X, y = np.arange(50.0)[:, None], np.arange(50) % 7
    met = []

    def loss(z, t):
        met.extend(zip(z[:, 0].tolist(), t.tolist(), strict=True))
        return z[:, 0]

    model = NeuralClassifier(
        Repeating(),
        loss=loss,
        augment=lambda x: x + 1000,
        schedule="cosine",
        batch_size=8,
        max_iter=3,
    ).fit(X, y)
    trained = sorted((x - 1000, t) for x, t in met if x >= 1000)
    assert trained == sorted(3 * [(float(k), k % 7) for k in range(50)])
    # The verifier sees rows as they are.
    assert model.certificate_["training_loss"].value == pytest.approx(X.mean())


@pytest.mark.catalog("NN-49")
def test_predictions_change_less_under_what_was_trained_on():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.hypot(*X.T) + 0.3 * rng.normal(size=60)  # as far as each is from the middle

    def turn(x):
        angle = 2 * np.pi * torch.rand(len(x), 1, dtype=x.dtype)
        a, b = x[:, :1], x[:, 1:]
        cos, sin = torch.cos(angle), torch.sin(angle)
        return torch.cat((cos * a - sin * b, sin * a + cos * b), dim=1)

    Z = rng.normal(size=(500, 2))
    around = turn(torch.from_numpy(Z)).numpy()
    changes, errors = [], []
    for kind in (None, turn):
        model = NeuralRegressor(
            lambda n, k: MLP(n, 64, k).double(),
            augment=kind,
            learning_rate=0.02,
            schedule="cosine",
            n_iter_no_change=math.inf,
            max_iter=400,
            random_state=0,
        ).fit(X, y)
        changes.append(np.abs(model.predict(around) - model.predict(Z)).mean())
        errors.append(np.abs(model.predict(Z) - np.hypot(*Z.T)).mean())
    assert changes[1] < 0.5 * changes[0]
    assert errors[1] < errors[0]
