"""Networks that do to tensors what a pass with sets of rows might not see.

Each is right at a row and wrong at an allowed one beside it: no proof may cover both.
"""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from certus.robustness import ThreatModel, lipschitz_bound
from certus.robustness.proving import certified_rows
from certus.robustness.recognise import as_target
from certus.robustness.tracing import precision_of


class Trap(nn.Module):
    """A function of a parameter and of rows as a module in float32."""

    def __init__(self, function, b=(0.1, 0.0)):
        super().__init__()
        self.function, self.b = function, nn.Parameter(torch.tensor(b))

    def forward(self, x):
        return self.function(self.b, x)


def bent_in_place(b, x):
    h = x * 1.0
    F.leaky_relu(h, 10.0, inplace=True)
    return h + b


def stretched_in_place(b, x):
    h = x * 1.0
    other = h
    h *= 10.0
    return other + b


def stretched_behind_a_view(b, x):
    h = x * 1.0
    view = h.view(-1, 2)
    h *= 10.0
    return view + b


def summed_in_place(b, x):
    h = x * 1.0
    other = h.flatten(1)
    h += torch.tensor([-5.0, 0.0])
    return other + b


def overflown(b, x):
    signs = torch.tensor([1.0, -1.0]).repeat(32)
    h = F.linear(x.flatten(1), 3e38 * signs[None])  # inf − inf
    return F.linear(torch.sigmoid(h), torch.tensor([[1.0], [0.0]]), b)


def overflown_sums(b, x):
    for _ in range(4):
        x = x + x
    h = x[:, :1] + x[:, 1:]  # inf − inf
    return F.linear(h.clamp(0.0, 1.0), torch.tensor([[1.0], [0.0]]), b)


def in_few_digits(b, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return F.linear(x, torch.eye(2)) + 0 * b


def by_precision(b, x):
    return x + b + (torch.tensor([5.0, 0.0]) if x.dtype == torch.float64 else 0.0)


def by_kind(b, x):
    return x + b + (0.0 if isinstance(x, torch.Tensor) else torch.tensor([5.0, 0.0]))


# name: function, parameter, row, changed row
TRAPS = {
    "bent in place": (bent_in_place, (1.0, 0.0), (0.0, 0.0), (-0.2, 0.0)),
    "stretched": (stretched_in_place, (1.0, 0.0), (0.0, 0.0), (0.0, 0.2)),
    "view": (stretched_behind_a_view, (1.0, 0.0), (0.0, 0.0), (0.0, 0.2)),
    "summed": (summed_in_place, (5.1, 0.0), (0.0, 0.0), (0.0, 0.2)),
    "precision": (by_precision, (0.1, 0.0), (0.0, 0.0), (0.0, 0.2)),
    "kind": (by_kind, (0.1, 0.0), (0.0, 0.0), (0.0, 0.2)),
    "constants": (
        lambda b, x: x + ((b + 1e8) - 1e8) + torch.tensor([0.1, 0.0]),
        (3.1, 0.0),
        (0.0, 0.0),
        (0.0, 0.2),
    ),
    "alpha": (
        lambda b, x: torch.add(b, x, alpha=10.0),
        (1.0, 0.0),
        (0.0, 0.0),
        (0.0, 0.2),
    ),
    "softmax in half": (
        lambda b, x: torch.softmax(x + b, 1, torch.float16),
        (100.0, 100.1),
        (0.0, 0.0),
        (0.0, -0.069),
    ),
    "autocast": (in_few_digits, (0.0, 0.0), (1.0, 1.01), (1.0, 1.003)),
    "overflow": (overflown, (0.0, 5.0), (0.01,) * 64, (2.0,) * 64),
    "overflow of sums": (overflown_sums, (0.0, 5.0), (0.0, 0.0), (2.2e37, -2.2e37)),
}


@pytest.mark.catalog("ADV-26")
@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("name", TRAPS)
def test_no_proof_covers_a_row_that_is_predicted_otherwise(name, norm):
    function, b, row, changed = TRAPS[name]
    X, X_hat = np.array([row]), np.array([changed])
    target = as_target(Trap(function, b).eval(), X)
    threat = ThreatModel(norm, 1.000001 * ThreatModel(norm, 1.0).distances(X_hat, X)[0])
    y = target.labels(X)
    assert threat.contains(X_hat, X).all() and target.labels(X_hat) != y
    certified, why = certified_rows(target, X, y, threat)
    assert not certified.any(), why


def doubled(module, args, out):
    return 10 * out - torch.tensor([4.0, 0.0])


class Falling(nn.Softmax):
    """A softmax that turns the order."""

    def forward(self, x):
        return super().forward(torch.tensor([0.3, 0.0]) - x)


@pytest.mark.parametrize("name", ["hook", "hook of the last", "subclass", "forward"])
def test_a_missing_softmax_is_not_assumed(name):
    """P(class 0) = σ(5.1 + x₀ − x₁); 10·P decides against 10·(1 − P) + 4."""
    first = nn.Linear(2, 2)
    with torch.no_grad():
        first.weight.copy_(torch.eye(2)), first.bias.zero_()
    network = nn.Sequential(first, Falling(1) if name == "subclass" else nn.Softmax(1))
    X, X_hat = np.array([[1.0, 0.0]]), np.array([[0.6, 0.0]])
    if name == "subclass":
        X, X_hat = np.array([[0.2, 0.0]]), np.array([[0.4, 0.0]])
    elif name == "forward":
        forward = network.forward
        network.forward = lambda x: doubled(None, None, forward(x))
    else:
        (network if name == "hook" else network[1]).register_forward_hook(doubled)
    target = as_target(network.eval(), X)
    y = target.labels(X)
    assert target.labels(X_hat) != y
    certified, _ = certified_rows(target, X, y, ThreatModel("l2", 0.41))
    assert not certified.any()


HARMLESS = {
    "one row of numbers": lambda b, x: x + b[None] - b[None] * 2,
    "number first": lambda b, x: b * x + (b - x) - 2 * x,
    "in place": lambda b, x: F.relu(F.relu(x - b, inplace=True) + 0.1, inplace=True),
    "in place on a copy": lambda b, x: F.relu(x.clone(), inplace=True) + x,
    "own precision": lambda b, x: x.float().to(torch.float32) - b,
}


@pytest.mark.parametrize("name", HARMLESS)
def test_steps_that_are_what_they_seem_are_proved(name):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    target = as_target(Trap(HARMLESS[name], (0.2, -0.3)).eval(), X)
    y, threat = target.labels(X), ThreatModel("l2", 0.05)
    certified, why = certified_rows(target, X, y, threat)
    assert certified.sum() > 10, why
    for _ in range(100):
        assert (target.labels(threat.draw(X, rng)) == y)[certified].all()


def written(b, x):
    h = x + b
    h[:, 0] = 0.0
    return h


REFUSED = {
    "written": written,
    "unknown option": lambda b, x: x[:, None].mean(dim=1, dtype=torch.float32) + b,
    "a list": lambda b, x: torch.stack([x[:, 0], x[:, 1]], dim=1) + b,
}


@pytest.mark.parametrize("name", REFUSED)
def test_operations_that_sets_of_rows_lack_are_refused_with_a_message(name):
    X, module = np.array([[1.0, 0.0]]), Trap(REFUSED[name]).eval()
    target = as_target(module, X)
    rows, why = certified_rows(target, X, target.labels(X), ThreatModel("l2", 1e-6))
    assert not rows.any()
    assert why.startswith("nothing is proved") and "no bound is known" in why
    with pytest.raises(ValueError, match="no constant can be given"):
        lipschitz_bound(module, X)


def test_products_in_fewer_digits_count_as_such():
    plain = precision_of(torch.float32).unit
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert precision_of(torch.float32).unit > 2.0**-9
        assert precision_of(torch.float64).unit < 1e-15
    finally:
        torch.set_float32_matmul_precision(before)
    assert precision_of(torch.float32, torch.device("cuda")).unit > 1000 * plain


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_rounding_far_from_the_row_counts(norm):
    """Two large terms that cancel: the farther from 0, the more digits are lost."""
    first, last = nn.Linear(1, 2, bias=False), nn.Linear(2, 1)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[3e4], [1.7e4]]))
        last.weight.copy_(torch.tensor([[17 / 30, -1.0 + 1e-6]]))
        slope = float((last.weight.double() @ first.weight.double()).abs())
        last.bias.fill_(slope + 1e-4)  # above 0 by 1e-4 at x = ±1, but for rounding
    network = nn.Sequential(first, last).eval()
    X = np.zeros((1, 1), dtype=np.float32)
    target = as_target(network, X, threshold=0.0)
    near = np.linspace(-1, 1, 20001, dtype=np.float32)[:, None]
    assert target.labels(X) == 1 and not target.labels(near).all()
    for radius, robust in ((1.0, False), (0.1, True)):
        rows, why = certified_rows(target, X, np.array([1]), ThreatModel(norm, radius))
        assert rows.tolist() == [robust], why


def test_the_mean_that_a_normalisation_subtracts_counts():
    """(x − 1e4) + 1e4 in float32 is x to within 1e-3, however it is arranged."""
    layer = nn.BatchNorm1d(1, eps=0.0).eval()
    with torch.no_grad():
        layer.running_mean.fill_(1e4), layer.bias.fill_(1e4)
    for value, robust in ((1e-5, False), (1.0, True)):
        X = np.full((1, 1), value)
        target = as_target(layer, X, threshold=0.0)
        threat = ThreatModel("l2", value / 10)
        rows, why = certified_rows(target, X, np.array([1]), threat)
        assert rows.tolist() == [robust], why
