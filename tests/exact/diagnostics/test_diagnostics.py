"""Numbers about networks: against closed forms, enumeration and forged models."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import certus
from certus.certificate import Status, Strength
from certus.diagnostics import (
    TrainingRecord,
    measure,
    networks,
    spectrum,
    spectrum_ends,
)
from certus.diagnostics.directional import compare
from certus.diagnostics.networks import evenly, is_settled, rows_for
from certus.neural_network import ConvNetClassifier, NeuralClassifier, NeuralRegressor
from certus.neural_network.batches import Batch
from certus.neural_network.network_loss import NetworkLoss
from certus.neural_network.objective import RowLoss, squared
from certus.testing.toys import TinyNetwork
from certus.verify.data import marks_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 3))
y = X @ [1.0, -1.0, 0.5] + RNG.normal(size=50)


@pytest.fixture(autouse=True)
def _quiet():
    with certus.config_context(on_uncertified="ignore"):
        yield


def stated(module, rows=X, target=y, s=None):
    t = torch.as_tensor(target).reshape(len(rows), -1)
    weight = None if s is None else torch.as_tensor(s)
    return NetworkLoss(
        module, RowLoss(squared), Batch((torch.as_tensor(rows),), t, weight)
    )


# -- what the model lends -------------------------------------------------------------


def test_loss_gradient_and_hessian_of_least_squares():
    s = RNG.uniform(0.5, 2.0, 50)
    found = stated(nn.Linear(3, 1).double(), s=s)
    A, theta = np.c_[X, np.ones(50)], found.point
    H = A.T @ (A * s[:, None]) / s.sum()
    r = A @ theta - y
    assert found.loss(theta) == pytest.approx(s @ (r * r) / 2 / s.sum(), rel=1e-12)
    np.testing.assert_allclose(found.gradient(theta), A.T @ (s * r) / s.sum())
    v = RNG.normal(size=4)
    np.testing.assert_allclose(found.product(theta, v), H @ v)
    low, high, whole = spectrum_ends(lambda v: found.product(theta, v), 4, 40)
    assert whole
    ends = low.value, high.value
    np.testing.assert_allclose(ends, np.linalg.eigvalsh(H)[[0, -1]], rtol=1e-9)


@pytest.mark.parametrize(
    "layer", [nn.LSTM(3, 4, batch_first=True), nn.GRU(3, 4, batch_first=True)]
)
def test_recurrent_layers_follow_the_vector(layer):
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.out = layer, nn.Linear(4, 1)

        def forward(self, x):
            return self.out(self.layer(x)[0][:, -1])

    rows = RNG.normal(size=(10, 5, 3))
    found = stated(Last(), rows, y[:10])
    ratio = compare(
        found.loss, found.gradient, found.point, np.ones(len(found.point)), 3
    ).ratio
    assert ratio == pytest.approx(1.0, abs=1e-6)


def test_dead_units_are_counted_by_hand():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).double()
    with torch.no_grad():
        net[0].bias[:1] = -1e6
        net[0].bias[1:] = 1e6
    assert stated(net).dead_units() == (1, 4)

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            h = torch.relu(self.net[0](x))
            return self.net[2](torch.nn.functional.relu(h))

    assert stated(Plain()).dead_units() == (2, 8)
    images = nn.Sequential(nn.Conv1d(1, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(6, 1))
    with torch.no_grad():
        images[0].bias[0] = -1e6
    assert stated(images, X[:, None]).dead_units() == (1, 2)


def test_no_relu_no_claim_and_many_dead_have_a_remedy():
    tanh = NeuralRegressor(TinyNetwork(), max_iter=2, random_state=0).fit(X, y)
    assert "dead_units" not in tanh.certificate_
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    with torch.no_grad():
        net[0].bias[:] = -1e6
    claim = NeuralRegressor(net, max_iter=1).fit(X, y).certificate_["dead_units"]
    assert claim.value == 4 and "leaky_relu" in claim.fix


# -- claims ---------------------------------------------------------------------------


class Forged:
    """A loss ½θᵀDθ whose gradient is wrong by a factor."""

    def __init__(self, factor, bends=(-1.0, 1.0, 3.0)):
        self.point, self.sizes = np.array([1.0, 2.0, -1.0]), [3]
        self.factor, self.bends = factor, np.array(bends)

    def loss(self, theta):
        return 0.5 * float(theta @ (self.bends * theta))

    def gradient(self, theta):
        return self.factor * self.bends * theta

    def product(self, theta, v):
        return self.bends * v

    def dead_units(self):
        return 0, 0


def check(lent, level="quick", **params):
    record = TrainingRecord(**{"history": [2.0, 1.0], **params})
    return measure(lambda rows: lent, len(X), None, record, level)


@pytest.mark.parametrize("factor", [1.0, 2.0, -1.0])
def test_a_wrong_gradient_shows(factor):
    claims = check(Forged(factor))
    ratio = next(c for c in claims if c.name == "gradient_ratio")
    assert ratio.value == pytest.approx(abs(factor - 1), abs=1e-6)
    assert ratio.strength is Strength.MEASURED and f"{factor:.6f}" in ratio.detail


def test_negative_curvature_is_reported():
    claims = {c.name: c for c in check(Forged(1.0), "full")}
    assert claims["smallest_curvature"].value == pytest.approx(-1.0)
    assert "not a minimum" in claims["smallest_curvature"].detail
    assert claims["largest_curvature"].value == pytest.approx(3.0)
    assert "longer than 0.67 diverge" in claims["largest_curvature"].detail


def test_curvatures_that_the_gradient_does_not_confirm_give_no_theorem():
    lent = Forged(1.0)
    lent.product = lambda theta, v: np.array([1.0, 2.0, 5.0]) * v
    claims = {c.name: c for c in check(lent, "full")}
    for name in ("smallest_curvature", "largest_curvature"):
        assert "does not confirm" in claims[name].detail
        assert "minimum" not in claims[name].detail
    lent.product = lambda theta, v: np.full(3, np.nan)
    names = [c.name for c in check(lent, "full")]
    assert "gradient_ratio" in names and "smallest_curvature" not in names


def test_at_a_kink_second_derivatives_do_not_deny_a_minimum():
    """|θ| − θ²/10 has its minimum at 0, where backward passes see −θ²/10 alone."""
    lent = Forged(1.0)
    lent.point, lent.sizes = np.zeros(1), [1]
    lent.loss = lambda w: float(np.abs(w[0]) - 0.1 * w[0] ** 2)
    lent.gradient = lambda w: np.sign(w) - 0.2 * w
    lent.product = lambda w, v: -0.2 * v
    claims = {c.name: c for c in check(lent, "full")}
    assert "no minimum" not in claims["smallest_curvature"].detail


def test_few_directions_of_many_do_not_make_a_condition_hold():
    """One of 3,000 curvatures is barely negative: forty directions do not show it."""
    lent = Forged(1.0, np.r_[-1e-9, np.linspace(1.0, 2.0, 2999)])
    lent.point, lent.sizes = np.ones(3000), [3000]
    detail = {c.name: c for c in check(lent, "full")}["smallest_curvature"].detail
    assert "40 directions tried" in detail and "condition" not in detail
    few = Forged(1.0, [1.0, 2.0, 3.0])
    detail = {c.name: c for c in check(few, "full")}["smallest_curvature"].detail
    assert "the second-order condition holds" in detail


def test_the_basis_of_very_large_networks_is_short(monkeypatch):
    monkeypatch.setattr(spectrum, "BASIS", 5 * 3000)
    H = np.linspace(0.1, 1.0, 3000)
    calls = []

    def product(theta, v):
        calls.append(1)
        return H * v

    lent = SimpleNamespace(
        point=np.ones(3000), product=product, gradient=lambda theta: H * theta
    )
    low, high = spectrum.curvature_claims(lent, 9)
    assert len(calls) == 5 and "none of 5 directions tried" in low.detail
    assert 0.1 <= low.value < high.value <= 1.0


def test_a_minimum_of_least_squares_fulfils_both_conditions():
    model = NeuralRegressor(
        nn.Linear(3, 1).double(),
        learning_rate=0.05,
        schedule="cosine",
        batch_size=None,
        max_iter=1500,
        n_iter_no_change=10**6,
        random_state=0,
    ).fit(X, y)
    found = certus.certify(model, X, y, level="full")
    assert found["gradient_norm"].value < 1e-6
    assert "second-order condition holds" in found["smallest_curvature"].detail
    assert found.status is Status.UNDECIDED and found.met is None


@pytest.mark.parametrize(
    ("params", "settled", "words"),
    [
        ({"history": [3, 1, 1, 1], "patience": 2, "epochs": 4}, True, "no improvement"),
        ({"history": [3, 2, 1], "patience": 2, "epochs": 3}, False, "improved it by 2"),
        ({"history": [3, 2], "planned": 2, "epochs": 2}, True, "planned epochs"),
        ({"history": [3, 2], "planned": 5, "epochs": 2}, False, "improved"),
        ({"diverged": [3, 7, 1e9], "epochs": 2}, False, "epoch 3, step 7 (1e+09"),
        ({"diverged": [1, 2, 5.0]}, False, "those before training"),
    ],
)
def test_how_training_ended_is_recomputed_from_the_history(params, settled, words):
    assert words in check(Forged(1.0), **params)[0].detail
    assert is_settled(TrainingRecord(**params)) is settled


def test_a_loss_that_cannot_be_computed_is_not_measured():
    lent = Forged(1.0)
    lent.loss = None
    claims = check(lent)
    assert claims[0].strength is Strength.MEASURED and claims[0].value is None
    assert "not measured" in claims[0].detail and "float64" in claims[0].detail


@pytest.mark.parametrize("level", ["quick", "full"])
def test_claims_of_this_level_are_measured_and_never_met(level):
    lent = Forged(1.0)
    claims = check(lent, level)
    lent.gradient = None
    for claim in (*claims, *check(lent, level)):
        assert claim.strength is Strength.MEASURED and claim.met is None


@pytest.mark.parametrize(
    "odd",
    [
        {"epochs": -1},
        {"best_epoch": 1.5},
        {"kept": "two"},
        {"diverged": [1, 2]},
        {"history": ["a"]},
        {"history": [[1.0]]},
    ],
)
def test_a_record_that_no_fit_leaves_is_refused(odd):
    with pytest.raises(ValueError, match="changed after the fit"):
        check(Forged(1.0), **odd)


# -- fingerprints ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (X, X + np.eye(50, 3) * 1e-3),
        (X, X[::-1]),
        (X.reshape(50, 3, 1), X[::-1].reshape(50, 3, 1)),
        ([[1, 2], [3]], [[1], [2, 3]]),
        ([[1, 2], [3]], [[1, 2], [4]]),
        (["a b", "c"], ["a b", "d"]),
        ([["a", "b"], ["c"]], [["a"], ["b", "c"]]),
    ],
)
def test_other_rows_leave_other_marks(a, b):
    one, two = marks_of(a, None, None), marks_of(b, None, None)
    assert one["x"] != two["x"]
    assert marks_of(a, None, None) == one


def test_targets_and_weights_leave_marks():
    def mark(y, s=None):
        return marks_of(X[:2], y, s)

    for a, b in [
        ([0, 1], [1, 0]),
        (["a", "b"], ["b", "a"]),
        ([[1], [2, 3]], [[1, 2], [3]]),
    ]:
        assert mark(a)["y"] != mark(b)["y"]
    assert mark([0, 1], [1, 2])["weight"] == 3.0
    assert mark([0, 1])["shape"] == [2, 3]


def test_rows_checked_are_few_for_large_networks():
    assert rows_for(10, 10**9) == 10
    assert rows_for(10**6, 10**9) == 128
    assert rows_for(10**6, 10) == 2048


def test_the_numbers_that_a_pass_makes_are_counted():
    net = nn.Sequential(nn.Conv2d(2, 5, 3, padding=1), nn.ReLU(), nn.Flatten())
    images, target = RNG.normal(size=(3, 2, 4, 6)), np.zeros((3, 120))
    made = stated(net.double(), images, target).values()
    # Three times (3, 5, 4, 6) by the network; what the loss makes of it besides.
    assert 3 * 360 <= made <= 3 * 360 + 6 * 360


@pytest.mark.parametrize("level", ["quick", "full"])
def test_large_images_are_checked_on_few_rows(level, monkeypatch):
    wide = np.zeros((300, 1, 12, 12))
    wide[:, 0, 0, 0] = RNG.normal(size=300)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(400, 1))
    model = NeuralRegressor(net, max_iter=1, random_state=0).fit(wide, wide[:, 0, 0, 0])
    assert "on 300 rows" in model.certificate_["training_loss"].detail
    sizes, kept = [], model._stated

    def counted(X, y, s, rows):
        sizes.append(len(rows))
        return kept(X, y, s, rows)

    monkeypatch.setattr(model, "_stated", counted)
    target = wide[:, 0, 0, 0]
    one = kept(wide, target, None, np.arange(1)).values()
    monkeypatch.setattr(networks, "VALUES", 7 * one + one // 2)
    found = certus.certify(model, wide, target, level=level)
    assert max(sizes) == 7
    spoken = ["training_loss", "gradient_norm"]
    spoken += ["smallest_curvature", "largest_curvature"] if level == "full" else []
    assert all("on 7 rows" in found[name].detail for name in spoken)
    exact = kept(wide, target, None, evenly(300, 7))
    assert found["training_loss"].value == exact.loss(exact.point)


def test_photographs_are_checked_within_memory():
    """Of 224 × 224 pixels: a pass makes more than a million numbers of each."""
    photos = np.zeros((40, 224, 224, 3), np.uint8)
    photos[::2] = 255
    model = ConvNetClassifier("alexnet", max_iter=1, random_state=0)
    few = model.partial_fit(photos[:2], [0, 1], classes=[0, 1])._stated(
        photos, np.arange(40) % 2, None, np.arange(2)
    )
    most = networks.rows_within(few, 2)
    assert most < 40 and few.values() / 2 * most <= networks.VALUES
    assert few.values() > 1e6


def test_other_data_are_named_and_other_weights_refuted():
    labels = (X[:, 0] > 0).astype(int)
    model = NeuralClassifier(TinyNetwork(), max_iter=3, random_state=0).fit(X, labels)
    other = certus.certify(model, X[::-1], labels[::-1])
    assert "not those of the fit" in other["training_loss"].assumptions[0]
    assert certus.certify(model, X, labels).status is not Status.REFUTED
    with torch.no_grad():
        model.module_[0].bias[0] += 0.1
    assert certus.certify(model, X, labels).status is Status.REFUTED
    weighted = certus.certify(model, X, labels, np.linspace(1, 2, 50))
    assert weighted.status is not Status.REFUTED


def test_marks_without_those_of_weights_are_older_ones():
    from certus.fingerprints import same_data

    now = marks_of(X, y, np.linspace(1, 2, 50))
    older = {name: value for name, value in now.items() if name != "s"}
    assert same_data(older, now) and same_data(now, older) and same_data(older, older)
    assert not same_data(now, marks_of(X, y, np.linspace(2, 1, 50)))
