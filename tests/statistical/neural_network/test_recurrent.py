"""Dependencies over a hundred steps: found by an LSTM, not by a plain network."""

import numpy as np
import pytest

pytest.importorskip("torch")

from certus.neural_network import RecurrentRegressor

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")


def adding(n, rng, length=100):
    """Numbers in [0, 1] beside two marks; the target is the sum of the marked ones."""
    X = np.zeros((n, length, 2), dtype=np.float32)
    X[:, :, 0] = rng.random((n, length))
    rows = np.arange(n)
    for low, high in ((0, length // 2), (length // 2, length)):
        X[rows, rng.integers(low, high, n), 1] = 1
    return X, X.prod(axis=2).sum(axis=1)


def error(cell, epochs):
    rng = np.random.default_rng(0)
    X, y = adding(10_000, rng)
    X_test, y_test = adding(1_000, rng)
    model = RecurrentRegressor(cell=cell, max_iter=epochs, random_state=0).fit(X, y)
    return np.mean((model.predict(X_test) - y_test) ** 2)


@pytest.mark.slow
@pytest.mark.catalog("SEQ-08")
def test_an_lstm_adds_numbers_a_hundred_steps_apart_and_a_plain_network_does_not():
    assert error("lstm", 8) < 0.01
    assert error("rnn", 8) > 0.1  # the variance of the target is 0.167
