"""Training against attackers that make no sense, or of networks that cannot be."""

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import nn

from certus.neural_network import (
    ConvNetClassifier,
    MLPClassifier,
    NeuralClassifier,
    operator_norms,
)
from certus.neural_network.modules import MLP
from certus.persist import ModelFileError, load, save
from certus.threat import ThreatModel

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(20, 3)), np.arange(20) % 2


def small(d, k):
    return nn.Sequential(nn.Linear(d, 4), nn.Tanh(), nn.Linear(4, k))


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"adversarial": "linf:0.1"}, TypeError, "must be a ThreatModel"),
        ({"adversarial": 0.1}, TypeError, "must be a ThreatModel"),
        ({"adversarial": ThreatModel("l2", np.inf)}, ValueError, "finite radius"),
        ({"adversarial": ThreatModel("l2", 1, 0, 1)}, ValueError, "outside the box"),
        ({"adversarial_steps": 0}, ValueError, "adversarial_steps"),
        ({"adversarial_steps": 2.5}, TypeError, "adversarial_steps"),
        ({"alpha_operator_norm": -1.0}, ValueError, "alpha_operator_norm"),
        ({"alpha_operator_norm": np.nan}, ValueError, "alpha_operator_norm"),
        ({"lipschitz": 0.0}, ValueError, "lipschitz"),
        ({"lipschitz": np.nan}, ValueError, "lipschitz"),
    ],
)
def test_senseless_settings_are_refused(options, kind, words):
    with pytest.raises(kind, match=words):
        NeuralClassifier(small, max_iter=1, **options).fit(X, Y)
    if next(iter(options)) != "adversarial_steps":
        with pytest.raises(kind, match=words):
            MLPClassifier((3,), max_iter=1, **options).fit(X, Y)


class Skipping(nn.Module):
    """Adds what its layer gives: steeper than the layer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return 3 * x + self.layer(x)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), "BatchNo"),
        (nn.Sequential(nn.Linear(3, 4), nn.PReLU(), nn.Linear(4, 2)), "PReLU"),
        (nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2, bias=False)), "LayerNorm"),
        (nn.Sequential(nn.Linear(3, 3).requires_grad_(False), nn.Linear(3, 2)), "froz"),
        (nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)), "GELU"),
        (nn.Sequential(nn.Linear(3, 4), nn.ELU(2.0), nn.Linear(4, 2)), "ELU"),
        (MLP(3, (4,), 2, activation="heaviside"), "Heaviside"),
        (nn.Sequential(Skipping(), nn.Linear(3, 2)), "Skipping"),
        (
            nn.Sequential(
                nn.Unflatten(1, (1, 3)),
                nn.MaxPool1d(2, 1),
                nn.Flatten(),
                nn.Linear(2, 2),
            ),
            "MaxPool1d",
        ),
    ],
)
def test_networks_without_a_known_bound(module, words):
    with pytest.raises(ValueError, match=words):
        NeuralClassifier(module, lipschitz=1.0).fit(X, Y)


def test_rows_that_cannot_be_changed():
    threat = ThreatModel("linf", 0.1)
    with pytest.raises(ValueError, match=r"X\.toarray"):
        NeuralClassifier(small, adversarial=threat).fit(sparse.csr_matrix(X), Y)
    words = np.arange(40).reshape(20, 2) % 5
    table = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 2))
    for options in ({"adversarial": threat}, {"alpha_operator_norm": 1.0}):
        with pytest.raises(ValueError, match="takes indices into a table"):
            NeuralClassifier(table, **options).fit(words, Y)


def test_boxes_of_another_shape():
    images = RNG.uniform(size=(10, 4, 4))
    threat = ThreatModel("linf", 0.1, low=np.zeros(7))
    with pytest.raises(ValueError, match="the shape of an image in X"):
        ConvNetClassifier(adversarial=threat).fit(images, Y[:10])


@pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
def test_extremes_that_are_allowed(tmp_path):
    """No radius is no attack; one row, one column, a module that changes its input."""
    options = {"max_iter": 2, "random_state": 0, "adversarial_steps": 1}
    none = ThreatModel("l2", 0.0)
    plain = NeuralClassifier(small, **options).fit(X, Y)
    still = NeuralClassifier(small, adversarial=none, **options).fit(X, Y)
    assert still.history_["loss"][0] == pytest.approx(plain.history_["loss"][0])
    wide = ThreatModel("linf", 1e6, -5, 5)
    model = NeuralClassifier(
        small, adversarial=wide, alpha_operator_norm=1e3, **options
    )
    assert np.isfinite(model.fit(X, Y).predict_proba(X)).all()
    inside = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 2))
    before = X.copy()
    NeuralClassifier(inside, adversarial=none, alpha_operator_norm=0.1, **options).fit(
        X, Y
    )
    np.testing.assert_array_equal(X, before)
    flat = nn.Linear(3, 2)
    nn.init.zeros_(flat.weight)
    model = NeuralClassifier(flat, alpha_operator_norm=1.0, **options).fit(X, Y)
    assert np.isfinite(model.predict_proba(X)).all()


def test_a_function_that_does_not_depend_on_its_rows():
    with pytest.raises(ValueError, match="do not depend on X"):
        operator_norms(lambda x: torch.ones(len(x), 2), X)


def test_forged_threats(tmp_path):
    model = MLPClassifier((2,), adversarial=ThreatModel("l2", 1.0), max_iter=1)
    model.adversarial = ThreatModel("l2", 1.0)
    object.__setattr__(model.adversarial, "radius", -1.0)
    save(model, tmp_path / "forged.certus")
    with pytest.raises(ModelFileError, match="threat"):
        load(tmp_path / "forged.certus")
