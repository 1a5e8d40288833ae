"""The accuracy under attack: both bounds, what is said of them, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import math
import time

import numpy as np
import pytest
import torch
from sklearn.naive_bayes import GaussianNB
from torch import nn

from certus.bounds import clopper_pearson
from certus.certificate import Strength
from certus.linear_model import LogisticRegression
from certus.neural_network import MLPClassifier
from certus.robustness import (
    PGD,
    Boundary,
    DeepFool,
    OneStep,
    RobustAccuracy,
    Search,
    ThreatModel,
    Worst,
    robust_accuracy,
)
from certus.robustness.target import Formula, LinearTarget


def blobs(n=120, d=4, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return 0.6 * rng.normal(size=(n, d)) + np.eye(3, d)[y] * 2.5, y


def trained(module, X, y, steps=120, rate=0.03):
    """A module fitted to rows, in evaluation mode."""
    optimiser = torch.optim.Adam(module.parameters(), rate)
    rows, classes = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(rows), classes).backward()
        optimiser.step()
    return module.eval()


def small(*bend):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        X, y = blobs()
        return trained(nn.Sequential(nn.Linear(4, 8), *bend, nn.Linear(8, 3)), X, y)


@pytest.fixture(scope="module")
def network():
    return small(nn.ReLU())


@pytest.fixture(scope="module")
def found(network):
    X, y = blobs(seed=1)
    return robust_accuracy(
        network, X, y, ThreatModel("l2", 1.0), radii=4, random_state=0
    )


@pytest.mark.catalog("ADV-02")
def test_bounds_fall_with_the_radius_and_begin_at_the_clean_accuracy(found, network):
    X, y = blobs(seed=1)
    with torch.no_grad():
        right = network(torch.as_tensor(X).float()).argmax(dim=1).numpy() == y
    assert [point.radius for point in found.curve] == [0, 0.25, 0.5, 0.75, 1.0]
    first = found.curve[0]
    assert first.lower == first.upper == found.clean == right.mean()
    for a, b in zip(found.curve, found.curve[1:]):
        assert a.lower >= b.lower and a.upper >= b.upper
    for point in found.curve:
        assert 0 <= point.low <= point.lower <= point.upper <= point.high <= 1
    assert 0.1 < found.lower < found.upper < found.clean
    assert not (found.certified & found.fooled).any()
    assert found.lower == found.certified.mean()
    assert found.upper == 1 - found.fooled.mean()
    # Either share has its own bound, each with half of delta.
    n = found.n_samples
    low = clopper_pearson(int(found.certified.sum()), n, 0.05).low
    high = clopper_pearson(n - int(found.fooled.sum()), n, 0.05).high
    assert (found.curve[-1].low, found.curve[-1].high) == (low, high)


def test_smaller_radii_are_attacked_too(found, network):
    """Every point of the curve is what attacks at that radius alone leave."""
    X, y = blobs(seed=1)
    for point in found.curve[2:4]:
        alone = robust_accuracy(
            network, X, y, ThreatModel("l2", point.radius), radii=[], random_state=0
        )
        assert abs(alone.upper - point.upper) <= 1.5 / len(X)
        assert alone.lower == point.lower


@pytest.mark.parametrize("p", [1, 2, 3, math.inf])
@pytest.mark.parametrize("box", [False, True])
def test_linear_models_close_the_bracket(p, box):
    X, y = blobs(seed=2)
    model = LogisticRegression().fit(X, y)
    ends = (X.min(), X.max()) if box else (-math.inf, math.inf)
    threat = ThreatModel(p, 0.8, *ends)
    attacks = None if p != 3 else [PGD(steps=100)]
    found = robust_accuracy(
        model, X, y, threat, radii=3, attacks=attacks, random_state=0
    )
    for point in found.curve:
        if p == 3:
            assert point.upper - 0.02 <= point.lower <= point.upper
        else:
            assert point.lower == point.upper
    assert found.clean > found.lower > 0
    assert "exact" in found.method and (p == 3 or "exactly" in found.verdict)


def test_claims_by_strength(found):
    proved, attacked, expected = found.claims
    assert (proved.strength, proved.value) == (Strength.PROVED, found.lower)
    assert (attacked.strength, attacked.value) == (Strength.MEASURED, found.upper)
    assert expected.strength is Strength.STATISTICAL and expected.delta == 0.05
    assert expected.value == found.curve[-1].low
    assert "from the Lipschitz constants" in proved.detail
    assert "DeepFool, OneStep, PGD, Search" in attacked.detail
    # Shown intervals are rounded outwards.
    low, high = (float(w) for w in expected.detail.split(" ")[::3][:2])
    assert low / 100 <= found.curve[-1].low and found.curve[-1].high <= high / 100


def test_words_html_and_json(found):
    text = str(found)
    assert text == repr(found) and found.verdict in text
    assert f"between {100 * found.lower:.1f} % and {100 * found.upper:.1f} %" in text
    assert max(map(len, text.splitlines()[1:])) <= 80
    assert text.count(" to ") >= len(found.curve)
    page = found._repr_html_()
    assert page.count("<tr") == len(found.curve) + 1 and found.verdict in page
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["lower"] == found.lower and data["n_samples"] == 120
    assert data["threat"] == {"norm": "l2", "radius": 1.0}
    assert [c["name"] for c in data["claims"]] == [c.name for c in found.claims]


def test_the_figure_shows_both_bounds(found):
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot as plt

    ax = found.plot()
    lines = {line.get_label(): line for line in ax.get_lines()}
    radii = [point.radius for point in found.curve]
    for label, name in (("proved", "lower"), ("left by attacks", "upper")):
        values = [getattr(point, name) for point in found.curve]
        np.testing.assert_array_equal(lines[label].get_data(), [radii, values])
    assert lines["without changes"].get_ydata()[0] == found.clean
    refused = dataclasses.replace(found, refused=True).plot(plt.figure().subplots())
    assert "proved" not in {line.get_label() for line in refused.get_lines()}
    plt.close("all")


def test_models_without_known_layers_are_attacked_and_not_proved():
    X, y = blobs(60)
    model = GaussianNB().fit(X, y)
    threat = ThreatModel("linf", 0.5)
    found = robust_accuracy(
        model, X, y, threat, radii=1, attacks=[Search(30)], random_state=0
    )
    assert found.refused and found.lower == 0 and found.upper < found.clean
    assert f"without changes); {found.method}" in found.verdict
    assert "(refused)" not in found._repr_html_()
    assert found.claims[0].strength is Strength.REFUSED
    assert found.verdict.startswith("accuracy under any l∞ change up to 0.5: at most")
    assert "–" in str(found) and found.masked is None
    assert found.curve[0].lower == found.clean  # no change: the model was asked


def test_networks_of_ours_are_proved_with_their_scaling():
    X, y = blobs(80)
    X = X * [1.0, 100.0, 0.01, 1.0]
    model = MLPClassifier((8,), max_iter=30, random_state=0)
    with pytest.warns(UserWarning):
        model.fit(X, y)
    few = [DeepFool(), OneStep()]
    found = robust_accuracy(
        model, X, y, ThreatModel("l2", 1e-3), radii=1, attacks=few, random_state=0
    )
    assert not found.refused and 0 < found.lower <= found.upper <= found.clean


class Coarse(nn.Module):
    """A network behind rounded inputs: its gradients are those of no step at all."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        steps = torch.round(8 * x) / 8
        return self.inner(steps + 1e-4 * torch.sin(1e4 * x))


@pytest.mark.catalog("ADV-30")
def test_masked_gradients_are_flagged(network):
    """Rounding hides the slope: gradients find little, questions find the rest."""
    X, y = blobs(60, seed=3)
    threat = ThreatModel("linf", 0.9)
    attacks = [DeepFool(), PGD(steps=20, restarts=2), Search(150)]
    masked = robust_accuracy(
        Coarse(network).eval(), X, y, threat, radii=1, attacks=attacks, random_state=0
    )
    assert masked.gradients_masked and masked.masked > 5 and masked.refused
    assert masked.claims[-1].name == "masked_gradients"
    assert f"{masked.masked} rows that attacks with" in masked.claims[-1].detail
    assert f"{masked.masked} rows that attacks" in str(masked)
    plain = robust_accuracy(
        network, X, y, threat, radii=1, attacks=attacks, random_state=0
    )
    assert not plain.gradients_masked and plain.masked <= 1
    assert len(plain.claims) == 3
    # The order in which attacks are named does not matter.
    again = robust_accuracy(
        Coarse(network).eval(),
        X,
        y,
        threat,
        radii=1,
        attacks=attacks[::-1],
        random_state=0,
    )
    assert again.gradients_masked and again.masked > 5


def test_a_proof_that_an_attack_refutes_is_withdrawn():
    """A formula that is not that of the model: no claim is made of it."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    W = np.array([[0.0, 0.0], [1.0, 0.0]])
    target = LinearTarget(
        lambda X: (X[:, 1] > 0).astype(int), [0, 1], Formula(W, np.zeros(2))
    )
    y = (X[:, 1] > 0).astype(int)
    found = robust_accuracy(
        target, X, y, ThreatModel("l2", 1.0), attacks=[Boundary()], random_state=0
    )
    assert found.refused and found.lower == 0
    assert "does not compute what its layers say" in found.method


def test_a_time_limit_leaves_both_bounds_true(network):
    X, y = blobs(seed=1)
    threat = ThreatModel("l2", 1.0)
    start = time.perf_counter()
    found = robust_accuracy(network, X, y, threat, max_time=0.0, random_state=0)
    assert time.perf_counter() - start < 5
    assert found.lower == 0 and found.upper == found.clean
    assert any("time limit" in note for note in found.notes)
    assert found.notes[0] in str(found)


def test_an_infinite_radius_is_that_of_the_box(network):
    X, y = blobs(30)
    threat = ThreatModel("linf", math.inf, X.min(), X.max())
    found = robust_accuracy(
        network, X, y, threat, radii=1, attacks=[PGD(steps=5)], random_state=0
    )
    assert found.curve[-1].radius == found.threat.radius <= X.max() - X.min()
    assert found.upper < 0.2


def test_invalid_radii_and_limits_are_refused(network):
    X, y = blobs(10)
    threat = ThreatModel("l2", 0.5)
    for options, message in (
        ({"radii": [0.6]}, "between 0 and"),
        ({"radii": [-0.1]}, "between 0 and"),
        ({"radii": [math.nan]}, "between 0 and"),
        ({"delta": 0.0}, "delta"),
        ({"max_time": -1.0}, "max_time"),
        ({"attacks": [Worst()]}, "scores W x"),
        ({"radii": 0}, "radii"),
    ):
        with pytest.raises(ValueError, match=message):
            robust_accuracy(network, X, y, threat, **options)
    assert isinstance(
        robust_accuracy(network, X, y, threat.within(0.0), random_state=0),
        RobustAccuracy,
    )
