"""Networks written to make a proof of robustness wrong: refused, or not certified."""

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from torch import nn
from torch.nn import functional as F

from certus import layers
from certus.robustness import ThreatModel, attack
from certus.robustness.modules import differentiated
from certus.robustness.proving import certified_rows
from certus.robustness.recognise import as_target
from certus.robustness.target import Formula, LinearTarget
from certus.robustness.tracing import traced
from certus.verify import prove_robust
from certus.verify.layers import operations, walk
from certus.verify.reach import Lipschitz


class Written(nn.Module):
    """A function as a module in float64."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.unused = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, x):
        return self.function(x)


def proved(function, X, threat):
    module = function if isinstance(function, nn.Module) else Written(function)
    target = as_target(module.double().eval(), X)
    return certified_rows(target, X, target.labels(X), threat)


def scored(v, threshold):
    """Σv against a threshold, as two scores."""
    width = v.shape[1]
    W = torch.stack([torch.ones(width), torch.zeros(width)]).double()
    return F.linear(v, W, torch.tensor([-threshold, 0.0]).double())


@pytest.mark.catalog("ADV-26")
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_windows_with_gaps_share_entries(norm):
    def function(x):
        images = x.reshape(-1, 1, 1, 5)
        pooled = F.max_pool2d(images, (1, 2), stride=(1, 2), dilation=(1, 2))
        return scored(pooled.flatten(1), 1.9)

    # The third entry is in both windows: 0.05 less changes the sum by 0.1.
    X = np.array([[0.0, 0.0, 1.0, 0.0, 0.0]])
    assert not proved(function, X, ThreatModel(norm, 0.06))[0].any()
    assert proved(function, X, ThreatModel(norm, 0.03))[0].all()


REPEATS = {
    "times": lambda x: scored(x * torch.ones(1, 9).double(), 0.5),
    "plus": lambda x: scored(x + torch.zeros(1, 9).double(), 0.5),
    "expanded": lambda x: scored(x.expand(-1, 9), 0.5),
    "indexed": lambda x: scored(x[:, [0] * 9], 0.5),
    "branches": lambda x: scored(x + F.linear(x, torch.zeros(9, 1).double()), 0.5),
}


@pytest.mark.parametrize("name", REPEATS)
@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_an_entry_that_is_used_again_counts_again(name, norm):
    # 9 · 0.1 − 0.5: a change of 0.05 turns the sign.
    rows, why = proved(REPEATS[name], np.array([[0.1]]), ThreatModel(norm, 0.06))
    assert not rows.any()
    assert "no bound is known" in why


MIXING = {
    "mean of rows": lambda x: x - x.mean(dim=-2, keepdim=True),
    "rows joined": lambda x: torch.cat([x, x], dim=-2)[: len(x)],
    "transposed": lambda x: x.transpose(0, 1).reshape(x.shape),
    "one row": lambda x: x.reshape(1, -1)[:, :2],
}


@pytest.mark.parametrize("name", MIXING)
def test_rows_that_meet_are_not_proved(name):
    X = np.array([[1.0, 2.0], [0.3, -0.2], [3.0, 1.0]])
    module = Written(MIXING[name]).eval()
    if name != "rows joined":  # which are cut off again
        with pytest.raises(ValueError, match=r"called again|for each class and each"):
            as_target(module, X, classes=[0, 1])
    target = differentiated(module, None, [0, 1])
    rows, why = certified_rows(target, X, np.zeros(3, int), ThreatModel("l2", 0.01))
    assert not rows.any()
    assert "no bound is known" in why


UNKNOWN = {
    "equal": lambda x: x * (x == 0),
    "unequal": lambda x: x * (x != 0),
    "truth": lambda x: x if isinstance(x, torch.Tensor) or x else -x,
    "above": lambda x: x * (x > 0),
    "power": lambda x: x**2,
    "product": lambda x: x * x,
    "reciprocal": lambda x: 1 / x,
    "each row": lambda x: torch.stack(list(x)),
    "sine": torch.sin,
    "early softplus": lambda x: F.softplus(x, 1.0, 1.0),
    "dropout": lambda x: F.dropout(x, 0.5, training=True) * 0 + x,
    "step after softmax": lambda x: x.softmax(1) * torch.tensor([1.0, 9.0]).double(),
    "softmax over rows": lambda x: x.softmax(0),
    "falling leak": lambda x: F.leaky_relu(x, -0.5),
    "padding by ones": lambda x: F.pad(x, (0, 1), value=1.0)[:, :2],
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_steps_without_a_bound_are_refused(name):
    X = np.array([[1.0, 2.0]])
    rows, why = proved(UNKNOWN[name], X, ThreatModel("l2", 1e-6))
    assert not rows.any()
    assert why.startswith("nothing is proved") and "no bound is known" in why


KNOWN = {
    "one minus": lambda x: 1 - x,
    "product with a matrix": lambda x: x @ torch.eye(2).double(),
    "clamp": lambda x: x.clamp(-3, 3),
    "gelu": F.gelu,
    "silu": F.silu,
    "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, -3.0, 3.0),
    "softmax": lambda x: x.softmax(1),
    "log softmax": lambda x: F.log_softmax(x, dim=-1),
    "moved": lambda x: x.unsqueeze(1).transpose(1, 2).flatten(1),
    "sliced": lambda x: x[:, :2],
}


@pytest.mark.catalog("ADV-26")
@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_steps_with_a_bound_hold_against_a_search(name, norm):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2)) * 1.5
    threat = ThreatModel(norm, 0.2)
    rows, _ = proved(KNOWN[name], X, threat)
    assert rows.any()
    target = as_target(Written(KNOWN[name]).eval(), X)
    for _ in range(200):
        moved = threat.draw(X, rng)
        assert (target.labels(moved) == target.labels(X))[rows].all()


def test_a_single_score_has_no_comparison():
    X = np.array([[0.5], [-0.5], [0.05]])
    target = as_target(Written(lambda x: F.relu(x) - F.relu(-x)).eval(), X)
    for function in (lambda x: 2 * x, lambda x: (2 * x).squeeze(1)):
        rows, _ = proved(function, X, ThreatModel("l2", 0.1))
        assert rows.tolist() == [True, True, False]
    assert target.labels(X).tolist() == [1, 0, 1]


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("bend", [nn.Identity(), nn.ReLU()])
def test_what_rounding_hides_is_not_proved(norm, bend):
    """z = (x + 1e12) − 1e12 is known to 1e-4 only: no margin of 1e-5 is one."""
    first, last = nn.Linear(1, 1).double(), nn.Linear(1, 1).double()
    with torch.no_grad():
        first.weight.fill_(1.0), first.bias.fill_(1e12)
        last.weight.fill_(1.0), last.bias.fill_(-1e12)
    network = nn.Sequential(first, bend, last)
    assert not proved(network, np.array([[1e-5]]), ThreatModel(norm, 1e-9))[0].any()
    assert proved(network, np.array([[500.0]]), ThreatModel(norm, 1.0))[0].all()


def test_a_large_image_is_not_written_out():
    """A mean over a whole image: its matrix is small, unit images are not."""
    network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
    X = np.random.default_rng(0).uniform(size=(1, 3, 200, 200))
    rows, why = proved(network, X, ThreatModel("l2", 1e-3))
    assert rows.all(), why


def farthest(g, low, high, radius):
    """The largest gᵀd with ‖d‖₂ ≤ radius and low ≤ d ≤ high, by bisection."""
    corner = np.where(g > 0, high, low)
    if np.linalg.norm(corner) <= radius:
        return g @ corner
    at = brentq(
        lambda s: np.linalg.norm(np.clip(g * np.exp(s), low, high)) - radius,
        -60,
        60,
        xtol=1e-15,
        rtol=1e-15,
    )
    return g @ np.clip(g * np.exp(at), low, high)


@pytest.mark.catalog("ADV-05")
def test_a_linear_margin_is_proved_to_the_last_digits():
    """A margin above the worst case by 1e-9 of it is proved, one below it never."""
    rng = np.random.default_rng(1)
    for _ in range(400):
        d = rng.integers(2, 200)
        g = rng.normal(size=d) * 10 ** rng.uniform(-6 * rng.random(), 0, d)
        x, radius = rng.uniform(size=d), 10 ** rng.uniform(-2, 1)
        most = farthest(g, -x, 1 - x, radius)
        W, threat = np.vstack([0 * g, g]), ThreatModel("l2", radius, 0.0, 1.0)
        for share, robust in ((-1e-9, False), (1e-9, True)):
            b = np.array([0.0, -(g @ x) - most * (1 + share)])
            target = LinearTarget(
                lambda X: np.zeros(len(X), int), [0, 1], Formula(W, b)
            )
            rows, _ = certified_rows(target, x[None], np.array([0]), threat)
            assert rows.tolist() == [robust]


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_entries_that_are_fixed_belong_to_the_bias(norm):
    """A network of three entries, one of them fixed: that of two with another bias."""
    whole = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)).double().eval()
    part = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), whole[2]).double().eval()
    X = np.hstack(
        [np.random.default_rng(0).normal(size=(40, 2)), np.full((40, 1), 0.2)]
    )
    with torch.no_grad():
        part[0].weight.copy_(whole[0].weight[:, :2])
        part[0].bias.copy_(whole[0].bias + 0.2 * whole[0].weight[:, 2])
        whole[2].bias -= whole(torch.as_tensor(X)).mean(dim=0)  # both classes occur
    threat = ThreatModel(norm, 0.3, fixed=np.array([False, False, True]))
    y = as_target(whole, X).labels(X)
    rows, _ = certified_rows(as_target(whole, X), X, y, threat)
    alone, _ = certified_rows(
        as_target(part, X[:, :2]), X[:, :2], y, ThreatModel(norm, 0.3)
    )
    assert alone.any() and not alone.all()
    # The product of norms does not know of the fixed entry: it may prove less.
    assert (rows <= alone).all() and rows.sum() >= 0.8 * alone.sum()
    found = attack(whole, X, y, threat, random_state=0)
    assert not (found.fooled & rows).any()
    assert (found.X_hat[:, 2] == 0.2).all()


def images():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AvgPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


def replaced(layer, **fields):
    return layer._replace(**fields)


FORGED = {
    "a weight": (0, lambda c: replaced(c, weight=1.001 * c.weight)),
    "a bias": (0, lambda c: replaced(c, bias=0.0)),
    "the padding": (0, lambda c: replaced(c, padding=((1, 1), (0, 2)))),
    "a bend": (1, lambda b: replaced(b, name="tanh")),
    "a divisor": (2, lambda p: replaced(p, divisor=5.0)),
    "an order": (3, lambda m: replaced(m, places=m.places[::-1])),
    "the last layer": (4, lambda d: replaced(d, weight=0.5 * d.weight)),
}


@pytest.mark.catalog("ADV-26")
@pytest.mark.parametrize("name", FORGED)
def test_arrays_that_are_not_those_of_the_module_prove_nothing(name):
    """A reader that misread a layer: the scores of the module are beside the arrays."""
    module = images().double().eval()
    X = np.random.default_rng(0).normal(size=(20, 2, 6, 6))
    with torch.no_grad():
        network = traced(module, X.shape, torch.float64)
        outputs = module(torch.as_tensor(X)).numpy()
    y, threat = outputs.argmax(axis=1), ThreatModel("l2", 0.01)
    honest = prove_robust(network, X, y, threat, [0.01], outputs=outputs)
    assert honest.certified.any() and not honest.refused
    at, forge = FORGED[name]
    steps = list(network.steps)
    steps[at] = steps[at]._replace(layer=forge(steps[at].layer))
    forged = network._replace(steps=tuple(steps))
    proof = prove_robust(forged, X, y, threat, [0.01], outputs=outputs)
    assert proof.refused and not proof.certified.any()


def test_a_linear_model_with_another_prediction_rule_is_refused():
    dense = layers.Dense(np.array([[0.0, 0.0], [1.0, 0.0]]))
    network = layers.Network((layers.LayerStep(dense, (0,)),), (2,))
    X, threat = np.array([[1.0, -1.0], [2.0, 1.0]]), ThreatModel("l2", 0.5)
    assert prove_robust(
        network, X, [1, 1], threat, [0.5], predicted=True
    ).certified.all()
    proof = prove_robust(network, X, [0, 1], threat, [0.5], predicted=True)
    assert proof.refused and "does not compute what its layers say" in proof.method


def test_repeated_places_and_negative_constants_are_refused_by_the_verifier():
    threat, X = ThreatModel("l2", 0.1), np.array([[1.0, 0.0]])
    for layer in (
        layers.Gathered(np.array([0, 0]), (2,)),
        layers.Bend("leaky_relu", (-0.5,)),
        layers.Bend("sine"),
        layers.Dense(np.array([[np.nan, 0.0], [0.0, 1.0]])),
        layers.MeanPool(np.eye(2), np.eye(2), 0.0),
    ):
        network = layers.Network((layers.LayerStep(layer, (0,)),), (2,))
        assert prove_robust(network, X, [0], threat, [0.1]).refused


READ = {
    "same": lambda: nn.Conv2d(2, 3, (2, 4), padding="same", dilation=(1, 2)),
    "valid": lambda: nn.Conv2d(2, 4, 3, padding="valid", groups=2),
    "whole windows": lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True),
    "own entries": lambda: nn.AvgPool2d(3, 2, 1, True, False),
    "own divisor": lambda: nn.AvgPool2d((2, 3), divisor_override=5),
    "maxima": lambda: nn.MaxPool2d(3, 2, 1, 2, ceil_mode=True),
    "uneven": lambda: nn.AdaptiveAvgPool2d((3, 2)),
    "padded": lambda: nn.ZeroPad2d((1, 2, 0, 3)),
    "means": lambda: Written(lambda x: x.mean(dim=(1, -1), keepdim=True)),
}


@pytest.mark.filterwarnings("ignore:Using padding=.same.")
@pytest.mark.parametrize("name", READ)
def test_layers_are_read_as_torch_computes_them(name):
    make = READ[name]
    module = nn.Sequential(make(), nn.Flatten()).double().eval()
    X = np.random.default_rng(0).normal(size=(5, 2, 8, 9))
    with torch.no_grad():
        network = traced(module, X.shape, torch.float64)
        outputs = module(torch.as_tensor(X)).numpy()
    domain = Lipschitz(2.0, 0.0, network.precision)
    found = walk(network, operations(network), domain.start(X), domain)
    np.testing.assert_allclose(found.values, outputs, atol=1e-12)
