"""Norms of layers, intervals and margins: never below what is true, and how near."""

from __future__ import annotations

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from certus.neural_network import operator_norms
from certus.neural_network.modules import MLP
from certus.robustness import PGD, ThreatModel, attack, lipschitz_bound
from certus.robustness.proving import prove
from certus.robustness.recognise import as_target
from certus.robustness.tracing import Traced, traced
from certus.verify import lipschitz_constant, reach, robustness
from certus.verify.layers import operations, operator_norm, walk, written_out
from certus.verify.reach import Allowed, Boxes

NORMS = [1.0, 2.0, math.inf]


def read_off(module, X):
    """The layers of a module of rows like these."""
    with torch.no_grad():
        return traced(module, X.shape, torch.float64)


def caught(layer, shape):
    """The linear map that a layer is."""
    rows = layer(Traced((1, *shape), torch.float64))
    network = read_off(nn.Sequential(layer, nn.Flatten()), np.zeros((1, *shape)))
    assert rows.shape[0] == 1
    return operations(network)[0]


def passed(module, X, y, threat, most=1.0):
    """What the verifier knows of a network before it proves anything."""
    given = (read_off(module, X), np.asarray(X), np.asarray(y), threat, [most])
    return robustness._Pass(*given, None, False)


def certified_radii(module, X, y, threat, most=1.0):
    return passed(module, X, y, threat, most)._radii(np.arange(len(X)))


def interval_margins(module, X, y, threat):
    return passed(module, X, y, threat)._margins(np.arange(len(X)), threat.radius)


def interval(module, X, threat):
    """Between what the outputs of a module lie."""
    steps = read_off(nn.Sequential(module, nn.Flatten()), X)
    boxes = Boxes(threat, steps.precision)
    with np.errstate(all="ignore"):
        return boxes.interval(walk(steps, operations(steps), Allowed(X), boxes))


def seeded(make, seed=0):
    """A module with weights of a fixed seed, in float64 and evaluation mode."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = make()
        for part in module.modules():
            if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
                part.running_mean.normal_()
                part.running_var.uniform_(0.2, 2.0)
                nn.init.uniform_(part.weight, -1.5, 1.5)
                nn.init.uniform_(part.bias, 0.0, 2.0)
    return module.double().eval()


def matrix(layer, shape):
    """The linear part of a layer, written out by its values at unit rows."""
    size = math.prod(shape)
    with torch.no_grad():
        zero = layer(torch.zeros(1, *shape, dtype=torch.float64))
        unit = torch.eye(size, dtype=torch.float64).reshape(size, *shape)
        return (layer(unit) - zero).reshape(size, -1).T.numpy()


LAYERS = {
    "dense": (lambda: nn.Linear(7, 5), (7,)),
    "dense on the last axis": (lambda: nn.Linear(4, 3), (2, 4)),
    "convolution": (lambda: nn.Conv2d(2, 3, 3), (2, 5, 6)),
    "padded": (lambda: nn.Conv2d(2, 3, 3, padding=1), (2, 5, 6)),
    "padded far": (lambda: nn.Conv2d(1, 2, 3, padding=3), (1, 4, 4)),
    "strided": (lambda: nn.Conv2d(2, 4, 3, stride=2, padding=1), (2, 6, 5)),
    "grouped": (lambda: nn.Conv2d(4, 6, 3, groups=2, padding=1), (4, 4, 4)),
    "by channel": (lambda: nn.Conv2d(3, 3, 2, groups=3), (3, 4, 4)),
    "dilated": (lambda: nn.Conv2d(2, 2, 2, dilation=2, padding=1), (2, 5, 5)),
    "all at once": (
        lambda: nn.Conv2d(4, 4, (3, 2), (2, 1), (1, 2), (1, 2), groups=2),
        (4, 6, 5),
    ),
    "mean pooling": (lambda: nn.AvgPool2d(2, 1, 1), (2, 4, 4)),
    "global mean": (lambda: nn.AdaptiveAvgPool2d(1), (2, 3, 5)),
    "uneven mean": (lambda: nn.AdaptiveAvgPool2d(2), (2, 3, 5)),
    "batch norm": (lambda: nn.BatchNorm2d(3), (3, 2, 2)),
}


@pytest.mark.catalog("ADV-26")
@pytest.mark.parametrize("name", LAYERS)
def test_norms_of_layers_are_never_below_those_of_their_matrices(name):
    make, shape = LAYERS[name]
    layer = seeded(make)
    A, step = matrix(layer, shape), caught(layer, shape)
    # Both ways through the map give its matrix.
    for steps in ((step,), (step, step._replace(weight=None))[:1]):
        np.testing.assert_allclose(written_out(steps, shape, 1 << 22), A, atol=1e-12)
    # The largest singular value, but for the slack.
    truth = np.linalg.norm(A, 2)
    assert truth <= operator_norm(step, 2, shape, 1 << 22) <= truth * (1 + 1e-9)
    # Sums over kernels count terms that fall into the padding.
    for p, order in ((1, 1), (math.inf, np.inf)):
        assert np.linalg.norm(A, order) <= operator_norm(step, p, shape, 1 << 22) * (
            1 + 1e-12
        )
    if name in ("dense", "convolution", "by channel", "mean pooling", "batch norm"):
        assert operator_norm(step, 1, shape, 1 << 22) < np.linalg.norm(A, 1) * (
            1 + 1e-9
        )
    # Between them for any other p: Hölder's inequality for some vectors.
    bound, rng = operator_norm(step, 3, shape, 1 << 22), np.random.default_rng(0)
    for v in rng.standard_normal((200, A.shape[1])):
        assert np.linalg.norm(A @ v, 3) <= bound * np.linalg.norm(v, 3)


def test_matrices_too_large_for_singular_values_are_bounded_by_sums():
    layer = seeded(lambda: nn.Conv2d(2, 3, 3, padding=1))
    step, truth = (
        caught(layer, (2, 5, 6)),
        np.linalg.norm(matrix(layer, (2, 5, 6)), 2),
    )
    found = operator_norm(step, 2, (2, 5, 6), 10)
    assert truth < found == pytest.approx(math.sqrt(step.norm_1 * step.norm_inf))


class Skipping(nn.Module):
    """A residual step between two layers."""

    def __init__(self):
        super().__init__()
        self.first, self.inner, self.last = (
            nn.Linear(5, 6),
            nn.Linear(6, 6),
            nn.Linear(6, 3),
        )

    def forward(self, x):
        h = F.relu(self.first(x))
        return self.last(h + torch.tanh(self.inner(h)))


def image_net():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, stride=2, padding=1),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(3, 4, 2, bias=False),
        nn.LeakyReLU(0.1),
        nn.AvgPool2d(2, 1, 1),
        nn.Flatten(),
        nn.LazyLinear(3),
    )


def made(make, shape):
    module = make()
    module.eval()(torch.zeros(2, *shape))
    return module


NETWORKS = {
    "dense": (lambda: nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)), (5,)),
    "deep": (lambda: MLP(5, (6, 6, 6), 3, activation="elu"), (5,)),
    "logistic": (lambda: MLP(5, 6, 3, activation="logistic"), (5,)),
    "absolute": (lambda: MLP(5, 6, 3, activation="absolute"), (5,)),
    "normalised": (lambda: MLP(5, (6, 6), 3, normalization="batch"), (5,)),
    "residual": (lambda: MLP(5, (6, 6), 3, residual=True), (5,)),
    "beside": (lambda: MLP(5, (6, 6), 3, dense=True), (5,)),
    "skipping": (Skipping, (5,)),
    "images": (lambda: made(image_net, (1, 8, 8)), (1, 8, 8)),
    "linear": (lambda: nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3)), (5,)),
    "pooled": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.Softplus(), nn.MaxPool2d(3, 2, 1), nn.Flatten(),
            nn.Linear(8, 3), nn.LogSoftmax(dim=1),
        ),
        (1, 6, 6),
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=NETWORKS)
def network(request):
    make, shape = NETWORKS[request.param]
    X = np.random.default_rng(1).uniform(0, 1, (24, *shape))
    return request.param, seeded(make, seed=3), X


def margins(module, X, y):
    """z_y − z_j, the smallest over j ≠ y."""
    with torch.no_grad():
        z = module(torch.as_tensor(X)).numpy()
    gaps = z[np.arange(len(y)), y][:, None] - z
    gaps[np.arange(len(y)), y] = np.inf
    return gaps.min(axis=1)


@pytest.mark.catalog("ADV-26")
@pytest.mark.parametrize("p", NORMS)
def test_no_row_in_the_ball_has_a_margin_below_the_certified_one(network, p):
    """By draws, corners and attacks; for both roads, and for the rows they certify."""
    name, module, X = network
    target, rng = as_target(module, X), np.random.default_rng(0)
    y, radius = target.labels(X), {1.0: 0.3, 2.0: 0.1, math.inf: 0.03}[p]
    threat = ThreatModel(p, radius, 0.0, 1.0)
    radii = certified_radii(module, X, y, threat)
    low = interval_margins(module, X, y, threat).min(axis=1)
    tried = [threat.draw(X, rng) for _ in range(20)]
    found = attack(module, X, y, threat, PGD(steps=10, stop=False), random_state=0)
    tried.append(found.X_hat)
    signs = rng.choice([-1.0, 1.0], (10, *X.shape)) * radius
    tried += [threat.project(X + s, X) for s in signs]
    seen = np.min([margins(module, x, y) for x in tried], axis=0)
    if name != "pooled":  # after a softmax margins are other ones
        assert (low <= seen).all()
    assert (seen[(radii >= radius) | (low > 0)] > 0).all()
    proof = prove(target, X, y, threat, [radius / 100, radius])
    assert (proof.certified[0] >= proof.certified[1]).all() and not proof.refused
    assert proof.certified[0].any()
    assert not (proof.certified[1] & found.fooled).any()


@pytest.mark.parametrize("p", NORMS)
def test_certified_radii_of_a_linear_network_are_exact(p):
    """Two linear layers count as one: the distance to the nearest boundary."""
    module = seeded(NETWORKS["linear"][0])
    X = np.random.default_rng(0).normal(size=(30, 5))
    A, y = matrix(module, (5,)), module(torch.as_tensor(X)).argmax(dim=1)
    with torch.no_grad():
        threat, z = ThreatModel(p, 1.0), module(torch.as_tensor(X)).numpy()
    found = certified_radii(module, X, y, threat)
    for row, own, score in zip(found, y.numpy(), z):
        truth = min(
            (score[own] - score[j]) / np.linalg.norm(A[own] - A[j], threat.dual)
            for j in range(3)
            if j != own
        )
        assert truth * (1 - 1e-6) < row <= truth
        # The proof itself: up to there and no farther.
        near = [truth * (1 - 1e-9), truth * (1 + 1e-9)]
    proof = prove(as_target(module, X), X[-1:], y[-1:].numpy(), threat, near)
    assert proof.certified.tolist() == [[True], [False]] and "exact" in proof.method


def test_intervals_of_one_layer_are_those_of_all_corners():
    """A linear layer is extreme at the corners of the box; ReLU keeps their order."""
    module = seeded(lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU()))
    X = np.random.default_rng(0).uniform(0, 1, (5, 4))
    threat = ThreatModel("linf", 0.3, 0.0, 1.0)
    with torch.no_grad():
        found = interval(module, X, threat)
        low, high = np.maximum(X - 0.3, 0), np.minimum(X + 0.3, 1)
        corners = [
            module(torch.as_tensor(np.where(pick, high, low))).numpy()
            for pick in itertools.product([False, True], repeat=4)
        ]
    np.testing.assert_allclose(found.low, np.min(corners, axis=0), atol=1e-12)
    np.testing.assert_allclose(found.high, np.max(corners, axis=0), atol=1e-12)
    assert (found.low <= np.min(corners, axis=0)).all()
    assert (found.high >= np.max(corners, axis=0)).all()


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_intervals_of_one_layer_over_a_ball_are_attained(p):
    module = seeded(lambda: nn.Linear(4, 6))
    X, threat = np.zeros((1, 4)), ThreatModel(p, 0.5)
    found = interval(module, X, threat)
    W = matrix(module, (4,))
    reach = 0.5 * np.linalg.norm(W, threat.dual, axis=1)
    np.testing.assert_allclose((found.high - found.low)[0] / 2, reach, rtol=1e-8)


@pytest.mark.catalog("ADV-26", "ADV-25")
@pytest.mark.parametrize("p", NORMS)
def test_the_product_of_norms_bounds_every_jacobian(network, p):
    """σ(J(x)) ≤ Πσ(W), by the Jacobian itself; the looseness is reported."""
    name, module, X = network
    if name == "pooled":  # the constant is that of the scores before the softmax
        module = module[:-1].eval()
    found = lipschitz_bound(module, X, p)
    seen = []
    for row in torch.as_tensor(X):
        J = torch.autograd.functional.jacobian(lambda x: module(x[None])[0], row)
        order = np.inf if p == math.inf else p
        seen.append(np.linalg.norm(J.reshape(J.shape[0], -1).numpy(), order))
    assert max(seen) <= found.constant
    assert found.observed <= max(seen) * (1 + 1e-9)
    assert found.looseness == found.constant / found.observed >= 1
    if p == 2:
        assert found.observed == pytest.approx(max(seen), rel=1e-3)
        assert operator_norms(module, X).max() == pytest.approx(max(seen), rel=1e-3)
    if name == "linear":
        assert found.constant == pytest.approx(max(seen), rel=1e-8)


BENDS = {
    "abs": torch.abs,
    "gelu": F.gelu,
    "silu": F.silu,
    "elu": lambda x: F.elu(x, 1.5),
    "leak": lambda x: F.leaky_relu(x, 0.3),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": lambda x: F.softplus(x, 2.0),
    "clamp": lambda x: x.clamp(-0.4, 1.2),
    "hardtanh": F.hardtanh,
    "relu6": F.relu6,
}


class Written(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def pair(bend):
    """A bend of both of two entries: a single one would stand beside a score of 0."""
    return lambda x: bend(x.reshape(-1, 2))


@pytest.mark.parametrize("name", BENDS)
def test_curved_units_stay_within_their_stated_range_and_slope(name):
    bend, rng = BENDS[name], np.random.default_rng(0)
    X, threat = rng.uniform(-4, 4, (60, 1)), ThreatModel("linf", 0.8)
    grid = torch.as_tensor(X + np.linspace(-0.8, 0.8, 2001))
    reached = bend(grid)
    found = interval(Written(bend), X, threat)
    low, high = reached.amin(dim=1).numpy(), reached.amax(dim=1).numpy()
    assert (found.low[:, -1] <= low).all() and (found.high[:, -1] >= high).all()
    assert (found.low[:, -1] > low - 1e-3).all() and (
        found.high[:, -1] < high + 1e-3
    ).all()
    whole = torch.linspace(-8, 8, 200_001, dtype=torch.float64)
    steepest = float((bend(whole).diff() / whole.diff()).abs().max())
    constant = lipschitz_constant(read_off(Written(pair(bend)), X.repeat(2, 1)), 2)
    assert steepest <= constant * (1 + 1e-9)
    assert constant < steepest * 1.001


class Twice(nn.Module):
    """x + 2x, by two branches."""

    def forward(self, x):
        return x + 2 * F.relu(x)


ATTAINED = {
    "product": (nn.ReLU(), 6.0),
    "leak": (nn.LeakyReLU(2.0), 12.0),
    "sum": (Twice(), 18.0),
}


@pytest.mark.catalog("ADV-26")
@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("name", ATTAINED)
def test_the_product_is_attained_where_layers_stretch_alike(name, p):
    """2I, a bend of slope 1, 2 or 3, and 3I: nothing smaller is a constant."""
    bend, constant = ATTAINED[name]
    module = nn.Sequential(nn.Linear(4, 4, False), bend, nn.Linear(4, 4, False))
    with torch.no_grad():
        (
            module[0].weight.copy_(2 * torch.eye(4)),
            module[2].weight.copy_(3 * torch.eye(4)),
        )
    X = np.array([[3.0, 1.0, 1.0, 1.0], [-1.0, -2.0, -3.0, -4.0]])
    found = lipschitz_bound(module.double().eval(), X, p)
    assert constant <= found.constant <= constant * (1 + 1e-8)
    if name != "sum":  # whose second branch is flat at one of the rows
        assert found.looseness == pytest.approx(1.0, abs=1e-6)
    threat = ThreatModel(p, 1.0)
    radius = float(certified_radii(module, X[:1], np.array([0]), threat)[0])
    with torch.no_grad():
        z = module(torch.as_tensor(X[:1]))[0]
    # As far as the nearest boundary: the margin by the slope of z_0 − z_1.
    truth = float(z[0] - z[1]) / (constant * np.linalg.norm([1, -1], threat.dual))
    assert truth * (1 - 1e-6) < radius <= truth


class Sorted(nn.Module):
    def forward(self, x):
        return torch.sort(x, dim=1).values


class Cubed(nn.Module):
    def forward(self, x):
        return x.pow(3)


@pytest.mark.parametrize("make", [lambda: nn.LayerNorm(6), Sorted, Cubed])
def test_unknown_layers_are_refused_by_name(make):
    module = seeded(lambda: nn.Sequential(nn.Linear(5, 6), make(), nn.Linear(6, 3)))
    X = np.random.default_rng(0).uniform(0, 1, (4, 5))
    target = as_target(module, X)
    proof = prove(target, X, target.labels(X), ThreatModel("l2", 1e-6), [0.0, 1e-6])
    assert proof.refused and not proof.certified.any()
    assert f"(layer 1, {type(module[1]).__name__})" in proof.method
    with pytest.raises(ValueError, match=type(module[1]).__name__):
        lipschitz_bound(module, X)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 2.0**20])
def test_what_rounding_of_the_network_can_hide_is_not_certified(dtype, scale):
    """Large terms that cancel: in its own precision the network is off, and flips."""
    d, lost = 64, torch.finfo(dtype).eps * scale * 64
    rng = np.random.default_rng(0)
    first = rng.normal(size=(d, d)) * scale
    # The second layer takes the first back: what is left of x is rounding and x.
    module = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 2)).eval()
    with torch.no_grad():
        module[0].weight.copy_(torch.as_tensor(first))
        module[0].bias.fill_(64 * scale)
        pull = np.linalg.solve(first.T, np.ones(d) / d)
        module[2].weight.copy_(torch.as_tensor(np.vstack([0 * pull, pull])))
        module[2].bias.copy_(torch.tensor([0.0, -64 * scale * pull.sum()]))
    module = module.to(dtype)
    shift = np.linspace(-30, 30, 241) * lost / scale
    X = np.full((241, d), 0.5) * 0 + shift[:, None]
    target = as_target(module, X)
    y = target.labels(X)
    proof = prove(target, X, y, ThreatModel("l2", 1e-12), [1e-12])
    # Exactly, the class is that of the sum; rows that are computed otherwise exist.
    with torch.no_grad():
        exact = copy.deepcopy(module).double()(torch.as_tensor(X)).numpy()
    wrong = np.argmax(exact, axis=1) != y
    assert not (proof.certified[0] & wrong).any()
    far = np.full((1, d), 1e6 * lost)
    again = prove(target, far, target.labels(far), ThreatModel("l2", 1e-12), [1e-12])
    assert again.certified.all() or scale > 1


def test_single_precision_is_certified_with_its_own_slack():
    """A margin that float32 cannot resolve is certified in float64 only."""

    def make():
        module = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1))
        with torch.no_grad():
            for part in (module[0], module[2]):
                part.weight.fill_(1.0)
            module[0].bias.fill_(1024.0)
            module[2].bias.fill_(-1024.0)
        return module.eval()

    X = np.array([[2e-5]])
    for dtype, certified in ((torch.float32, False), (torch.float64, True)):
        target = as_target(make().to(dtype), X, threshold=0.0)
        for p in ("l2", "linf"):
            proof = prove(target, X, np.array([1]), ThreatModel(p, 1e-6), [1e-6])
            assert proof.certified.all() == certified
    # In float32 the sum is 0: the class is the other one.
    assert as_target(make(), X, threshold=0.0).labels(X).tolist() == [0]


def test_numbers_beyond_the_largest_are_not_certified():
    """1e30 · 1e30 is a number in float64 and none in float32."""
    module = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2)).eval()
    with torch.no_grad():
        module[0].weight.fill_(1e30), module[0].bias.zero_()
        module[2].weight.copy_(torch.tensor([[1e-30], [2e-30]])), module[2].bias.zero_()
    X, y = np.array([[1.0], [1e10]]), np.array([1, 1])
    target = as_target(module, X[:1])
    for p in ("l2", "linf"):
        proof = prove(target, X, y, ThreatModel(p, 1e-3), [1e-3])
        assert proof.certified[0].tolist() == [True, False]


def test_constants_are_computed_once_for_all_radii_and_blocks(monkeypatch):
    module = seeded(NETWORKS["dense"][0])
    X = np.random.default_rng(0).uniform(0, 1, (50, 5))
    target = as_target(module, X)
    calls = []
    kept = reach.operator_norm
    monkeypatch.setattr(robustness, "TOGETHER", 8)
    monkeypatch.setattr(reach, "operator_norm", lambda *a: calls.append(a) or kept(*a))
    y, threat = target.labels(X), ThreatModel("l2", 0.2)
    proof = prove(target, X, y, threat, [0.05, 0.1, 0.2])
    assert len(calls) == 2
    monkeypatch.setattr(robustness, "TOGETHER", 256)
    assert (proof.certified == prove(target, X, y, threat, [0.05, 0.1, 0.2])[0]).all()


def test_pooling_is_known_by_either_name():
    """``torch.max_pool2d`` is what ``F.max_pool2d`` and ``nn.MaxPool2d`` call."""

    class Pooled(nn.Module):
        def __init__(self, pool):
            super().__init__()
            self.pool, self.last = pool, nn.Linear(9, 2)

        def forward(self, x):
            return self.last(self.pool(x, 2, 1).flatten(1))

    X = np.random.default_rng(0).uniform(size=(3, 1, 4, 4))
    bounds = [
        lipschitz_bound(seeded(lambda pool=pool: Pooled(pool)).eval(), X).constant
        for pool in (F.max_pool2d, torch.max_pool2d)
    ]
    assert bounds[0] == bounds[1] > 0
