"""What certify says after ``partial_fit``: the loss of the weights there are now."""

import numpy as np
import pytest
from scipy.special import logsumexp

import certus
from certus.certificate import Status, Strength
from certus.neural_network import (
    ConvNetClassifier,
    MLPClassifier,
    MLPRegressor,
    NeuralClassifier,
    NeuralRegressor,
    RecurrentClassifier,
)
from certus.neural_network.modules import MLP

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 16))
CLASSES = np.array(["a", "b", "c"])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)]
NUMBERS = X @ RNG.normal(size=16)
WEIGHTS = RNG.uniform(0.5, 2.0, 60)


def entropy(z, y, smoothing=0.0):
    """Of each row, from the scores of all classes."""
    t = np.eye(3)[np.searchsorted(["a", "b", "c"], y)]
    t = t * (1 - smoothing) + smoothing / 3
    return -np.sum(t * (z - logsumexp(z, axis=1, keepdims=True)), axis=1)


def penalty(model, total):
    return 0.5 * model.alpha * sum(np.sum(np.square(W)) for W in model.coefs_) / total


def scores(model):
    """Up to a constant of each row, which the entropy does not see."""
    return np.log(model.predict_proba(X))


def by_classes(model, s):
    return s @ entropy(scores(model), CLASSES, model.label_smoothing) / s.sum()


def by_numbers(model, s):
    return s @ (0.5 * np.square(model.predict(X) - NUMBERS)) / s.sum()


MODELS = {
    "NeuralClassifier": (NeuralClassifier(MLP(16, (8,), 3)), CLASSES, by_classes),
    "smoothed": (
        NeuralClassifier(MLP(16, (8,), 3), label_smoothing=0.2),
        CLASSES,
        by_classes,
    ),
    "NeuralRegressor": (NeuralRegressor(MLP(16, (8,), 1)), NUMBERS, by_numbers),
    "ConvNetClassifier": (ConvNetClassifier(), CLASSES, by_classes),
    "averaged": (NeuralRegressor(MLP(16, (8,), 1), average=0.9), NUMBERS, by_numbers),
    "MLPClassifier": (
        MLPClassifier((8,), alpha=0.3),
        CLASSES,
        lambda model, s: (
            s @ entropy(scores(model), CLASSES) / s.sum() + penalty(model, s.sum())
        ),
    ),
    "MLPClassifier on torch": (
        MLPClassifier((8,), alpha=0.3, engine="torch"),
        CLASSES,
        # Weights decay as the optimiser makes them: the loss is the data's alone.
        lambda model, s: s @ entropy(scores(model), CLASSES) / s.sum(),
    ),
    "MLPRegressor": (
        MLPRegressor(hidden_layer_sizes=(8,), alpha=0.3),
        NUMBERS,
        lambda model, s: by_numbers(model, s) + penalty(model, s.sum()),
    ),
    "RecurrentClassifier": (
        RecurrentClassifier(),
        CLASSES,
        lambda model, s: (
            s @ entropy(np.log(model.predict_proba(X[:, :, None])), CLASSES) / s.sum()
        ),
    ),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_the_loss_is_that_of_the_present_weights(name, fitted, weighted):
    model, y, expected = MODELS[name]
    model = type(model)(**model.get_params(deep=False)).set_params(random_state=0)
    rows = X[:, :, None] if name.startswith("Recurrent") else X
    s = WEIGHTS if weighted else None
    with certus.config_context(on_uncertified="ignore"):
        if fitted:
            model.set_params(max_iter=2).fit(rows, y, sample_weight=s)
            before = model.certificate_["training_loss"].value
        for _ in range(3):
            known = {} if y is NUMBERS or fitted else {"classes": ["a", "b", "c"]}
            model.partial_fit(rows, y, sample_weight=s, **known)
        assert not hasattr(model, "certificate_")
        found = certus.certify(model, rows, y, sample_weight=s)
    claim = found["training_loss"]
    assert claim.strength is Strength.MEASURED and "on 60 rows" in claim.detail
    assert found["gradient_ratio"].value < 1e-3
    assert found.status is Status.UNDECIDED  # no plan, no plateau
    if fitted:
        assert claim.value != before
    if expected is not None:
        total = WEIGHTS if weighted else np.ones(60)
        assert claim.value == pytest.approx(expected(model, total), rel=2e-4)


def test_rows_that_the_last_call_did_not_see_may_be_given():
    model = NeuralRegressor(MLP(16, (8,), 1).double(), random_state=0)
    model.partial_fit(X[:30], NUMBERS[:30]).partial_fit(X[30:], NUMBERS[30:])
    found = certus.certify(model, X, NUMBERS)
    loss = np.mean(np.square(model.predict(X) - NUMBERS)) / 2
    assert found["training_loss"].value == pytest.approx(loss, rel=1e-12)
    half = certus.certify(model, X[30:], NUMBERS[30:])
    assert half["training_loss"].value != found["training_loss"].value
