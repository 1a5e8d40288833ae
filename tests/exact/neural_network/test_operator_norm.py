"""How steep a network is: the power method, its penalty, and bounds that hold."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from certus.neural_network import ConvNetClassifier, MLPClassifier, NeuralClassifier
from certus.neural_network.adversarial import Hardened, InputUnits, worst_rows
from certus.neural_network.batches import Batch
from certus.neural_network.objective import RowLoss
from certus.neural_network.operator_norm import (
    bounding,
    chain,
    crude_norm,
    operator_norms,
)
from certus.threat import ThreatModel, row_norms

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
P = {"l1": 1, "l2": 2, "linf": np.inf}


def net(seed=0, d=4, k=3, width=8):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(d, width), nn.Tanh(), nn.Linear(width, k)
        ).double()


def rows(n=12, d=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def jacobians(module, X):
    parts = [
        torch.autograd.functional.jacobian(lambda x: module(x[None])[0], x)
        for x in torch.as_tensor(X)
    ]
    return torch.stack(parts).numpy()


def exact_norm(A, p, q):
    """‖A‖_{p→q} by the corners of the ball, or the singular values."""
    if p == "l2" and q == "l2":
        return np.linalg.norm(A, 2)
    if p == "l1":
        return max(np.linalg.norm(column, P[q]) for column in A.T)
    if q == "linf":
        dual = {"l2": 2, "linf": 1}[p]
        return max(np.linalg.norm(row, dual) for row in A)
    if p == "linf":
        signs = np.array(list(product([-1.0, 1.0], repeat=A.shape[1])))
        return np.linalg.norm(signs @ A.T, P[q], axis=1).max()
    signs = np.array(list(product([-1.0, 1.0], repeat=A.shape[0])))
    return np.linalg.norm(signs @ A, 2, axis=1).max()  # l2 to l1


# -- the power method --------------------------------------------------------------


@pytest.mark.catalog("ADV-25", "ADV-28")
def test_the_power_method_finds_the_largest_singular_value():
    X, module = rows(), net()
    wanted = np.linalg.norm(jacobians(module, X), 2, axis=(1, 2))
    np.testing.assert_allclose(operator_norms(module, X), wanted, rtol=1e-8)
    few = operator_norms(module, X, n_steps=2)
    assert (few <= wanted * (1 + 1e-12)).all()
    assert (few < wanted * (1 - 1e-6)).any()  # from below
    state = torch.random.get_rng_state()
    operator_norms(module, X)
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.catalog("ADV-29")
@pytest.mark.parametrize("q", P)
@pytest.mark.parametrize("p", P)
def test_other_norms_by_the_corners_of_their_balls(p, q):
    """A local maximum: the largest of several starts, here rows, is the global one."""
    A = np.random.default_rng(3).normal(size=(3, 5))
    W = torch.as_tensor(A)
    found = operator_norms(lambda x: x @ W.T, np.zeros((40, 5)), p=p, q=q)
    assert found.max() == pytest.approx(exact_norm(A, p, q), rel=1e-8)


def attacked(function, X, p, q, radius, steps):
    """max over ‖r‖_p ≤ radius of ½‖f(x + r) − f(x)‖_q², by the attacker of training."""
    X = torch.as_tensor(X)
    before = function(X).detach()

    def apart(x):
        return 0.5 * row_norms(function(x) - before, P[q]).square()

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        threat = ThreatModel(p, radius)
        found = worst_rows(lambda x: apart(x).sum(), X, threat, steps)
    return apart(found).detach().numpy()


@pytest.mark.catalog("ADV-29")
@pytest.mark.parametrize(
    ("p", "q"), [("l1", "l2"), ("l2", "l2"), ("linf", "l2"), ("l2", "l1"), ("l1", "l1")]
)
def test_the_attacker_of_a_linear_map_finds_its_operator_norm(p, q):
    A = np.random.default_rng(3).normal(size=(3, 5))
    W = torch.as_tensor(A)
    found = attacked(lambda x: x @ W.T, np.zeros((40, 5)), p, q, 0.7, 200)
    wanted = 0.5 * 0.7**2 * exact_norm(A, p, q) ** 2
    assert found.max() == pytest.approx(wanted, rel=1e-5)


@pytest.mark.catalog("ADV-29")
def test_other_functions_are_bounded_up_to_the_cube_of_the_radius():
    module = net(seed=2)
    X = np.repeat(rows(3), 8, axis=0)  # several starts
    sigma = np.linalg.norm(jacobians(module, X[::8]), 2, axis=(1, 2))
    radii = np.array([0.2, 0.1, 0.05, 0.025])
    errors = []
    for radius in radii:
        best = attacked(module, X, "l2", "l2", radius, 200).reshape(3, 8).max(axis=1)
        errors.append(abs(best - 0.5 * radius**2 * sigma**2))
    errors = np.array(errors)
    slopes = np.diff(np.log(errors), axis=0) / np.diff(np.log(radii))[:, None]
    assert (slopes > 2.7).all()
    assert (errors < 0.5 * radii[:, None] ** 3 * sigma**2 * 10).all()


# -- the penalty -------------------------------------------------------------------


def penalty(module, X, weight=0.7, units=None):
    """½ λ σ² alone: what the objective adds."""
    batch = Batch((torch.as_tensor(X),), torch.arange(len(X)) % 3, None)
    none = RowLoss(lambda z, y: 0.0 * z[:, 0])
    more = () if units is None else (units,)
    return Hardened(none, None, 1, weight, *more), batch


@pytest.mark.catalog("ADV-28")
def test_the_gradient_of_the_penalty_is_that_of_the_singular_value(monkeypatch):
    monkeypatch.setattr("certus.neural_network.adversarial.steepest_direction", _exact)
    X, module = rows(6), net(seed=1)
    objective, batch = penalty(module, X)
    losses = objective(module, batch)
    parameters = list(module.parameters())
    slopes = torch.autograd.grad(losses["loss"], parameters, allow_unused=True)

    def value():
        J = jacobians(module, X)
        return 0.35 * np.mean(np.linalg.norm(J, 2, axis=(1, 2)) ** 2)

    assert losses["loss"].item() == pytest.approx(value(), rel=1e-6)
    rng, h = np.random.default_rng(0), 1e-5
    ways = [torch.as_tensor(rng.normal(size=tuple(q.shape))) for q in parameters]
    ends = []
    for sign in (1, -2):  # there, and as far on the other side
        with torch.no_grad():
            for q, way in zip(parameters, ways):
                q += sign * h * way
        ends.append(value())
    along = sum((g * way).sum().item() for g, way in zip(slopes, ways) if g is not None)
    assert along == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-5)


def _exact(f, x):
    from certus.neural_network.operator_norm import steepest_direction

    return steepest_direction(f, x, steps=200)


@pytest.mark.catalog("ADV-28")
def test_the_penalty_is_in_the_units_of_the_rows():
    X, module = rows(6), net(seed=1)
    units = InputUnits(np.ones(4), np.array([0.5, 2.0, 1.0, 4.0]))
    objective, batch = penalty(module, X, units=units)
    found = objective(module, batch)
    J = jacobians(module, X) / units.scale
    sigma = np.linalg.norm(J, 2, axis=(1, 2))
    assert found["operator_norm"].item() == pytest.approx(sigma.mean(), rel=0.02)
    assert found["loss"].item() == pytest.approx(0.35 * (sigma**2).mean(), rel=0.03)


@pytest.mark.catalog("ADV-28")
def test_singular_values_fall_in_training():
    X = rows(60)
    y = (X[:, 0] * X[:, 1] > 0).astype(int) + (X[:, 2] > 1)
    options = {"learning_rate": 0.02, "batch_size": 12, "max_iter": 30}
    options["random_state"] = 0
    plain, flat = (
        NeuralClassifier(net(), alpha_operator_norm=weight, **options).fit(X, y)
        for weight in (0.0, 0.05)
    )
    steep, less = (operator_norms(m.module_, X).mean() for m in (plain, flat))
    assert less < 0.7 * steep
    assert flat.score(X, y) > 0.75
    strong = NeuralClassifier(net(), alpha_operator_norm=3.0, **options).fit(X, y)
    sigma = strong.history_["operator_norm"]
    assert sigma[-1] < 0.7 * sigma[0]
    assert sigma[-1] < 0.5 * operator_norms(net(), X).mean()
    claims = strong.certificate_
    assert "½·alpha_operator_norm·σ(J)²" in claims["training_loss"].objective
    assert claims["gradient_ratio"].value < 1e-5


# -- bounds ------------------------------------------------------------------------


def product_of_norms(module):
    weights = [layer.weight.detach().double().numpy() for layer in chain(module)]
    return np.prod([np.linalg.norm(W, 2) for W in weights])


@pytest.mark.catalog("ADV-27", "ADV-26")
@pytest.mark.parametrize("average", [None, "polyak", 0.9])
def test_the_bound_of_the_lipschitz_constant_is_enforced(average):
    X = rows(60)
    y = (X[:, 0] * X[:, 1] > 0).astype(int) + (X[:, 2] > 1)
    options = {"average": average, "learning_rate": 0.05, "max_iter": 20}
    options["batch_size"] = 6
    for module in (net(), net().float()):
        model = NeuralClassifier(module, lipschitz=3.0, random_state=0, **options)
        model.fit(X, y)
        assert 2.2 < product_of_norms(model.module_) <= 3.0
        assert (operator_norms(model.module_.double(), X) <= 3.0).all()
        far, near = (torch.as_tensor(rows(200, seed=s)) for s in (1, 2))
        with torch.no_grad():
            moved = (model.module_(far) - model.module_(near)).norm(dim=1)
        assert (moved <= 3.0 * (far - near).norm(dim=1)).all()
    free = NeuralClassifier(net(), random_state=0, **options).fit(X, y)
    assert product_of_norms(free.module_) > 6


@pytest.mark.catalog("ADV-27")
@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (6, 6)])
def test_the_projection_is_the_nearest_matrix(shape):
    """Singular values cut, their vectors kept."""
    layer = nn.Linear(shape[1], shape[0]).double()
    A = np.random.default_rng(0).normal(size=shape)
    with torch.no_grad():
        layer.weight.copy_(torch.as_tensor(A))
    bounding(layer, 2.0)()
    U, s, V = np.linalg.svd(A, full_matrices=False)
    wanted = (U * np.minimum(s, 2.0)) @ V
    np.testing.assert_allclose(layer.weight.detach().numpy(), wanted, atol=1e-10)
    before = layer.weight.detach().clone()
    bounding(layer, 50.0)()
    assert torch.equal(layer.weight, before)


@pytest.mark.catalog("ADV-27")
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_are_bounded_too(groups, stride):
    layer = nn.Conv2d(2, 4, 3, stride=stride, padding=1, groups=groups).double()
    unit = torch.eye(2 * 36, dtype=torch.float64).reshape(72, 2, 6, 6)
    with torch.no_grad():
        A = (layer(unit) - layer(0 * unit)).reshape(72, -1)
    assert torch.linalg.matrix_norm(A, 2) <= crude_norm(layer) * (1 + 1e-12)
    rows_, columns = (A.abs().sum(dim=i).max().item() for i in (0, 1))
    assert crude_norm(layer) >= (rows_ * columns) ** 0.5 * (1 - 1e-12)
    if stride == 1:
        assert crude_norm(layer) == pytest.approx((rows_ * columns) ** 0.5)
    bounding(layer, 0.2)()
    assert crude_norm(layer) == pytest.approx(0.2)


@pytest.mark.catalog("ADV-27")
def test_the_bound_is_in_the_units_of_the_pixels():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 100, size=(40, 6, 6))
    y = np.arange(40) % 2
    X[y == 1, :3] += 100

    def flat(shape, k):
        return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, k))

    model = ConvNetClassifier(flat, lipschitz=0.01, max_iter=5, random_state=0)
    model.fit(X, y)
    assert product_of_norms(model.module_) / model.scale_[0] <= 0.01
    assert product_of_norms(model.module_) / model.scale_[0] > 0.008
    with pytest.raises(ValueError, match="the network has a GroupNorm"):
        ConvNetClassifier(lipschitz=1.0).fit(X, y)


def test_a_perceptron_with_a_bound():
    X = rows(50).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    options = {"lipschitz": 2.0, "activation": "absolute", "random_state": 0}
    model = MLPClassifier((6, 5), max_iter=3, alpha=0.0, **options).fit(X, y)
    sizes = [np.linalg.norm(W.astype(float), 2) for W in model.coefs_]
    assert 1.5 < np.prod(sizes) <= 2.0
    assert max(sizes) <= 2.0 ** (1 / 3)
    with pytest.raises(ValueError, match="residual and dense layers add"):
        MLPClassifier(lipschitz=2.0, residual=True).fit(X, y)


def test_partial_fits_keep_the_bound():
    X = rows(40)
    model = NeuralClassifier(net(k=2), lipschitz=1.0, learning_rate=0.1, random_state=0)
    for _ in range(3):
        model.partial_fit(X, X[:, 0] > 0, classes=[False, True])
        assert product_of_norms(model.module_) <= 1.0


@pytest.mark.catalog("ADV-27")
def test_a_layer_that_is_used_twice_counts_twice():
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    shared = nn.Linear(3, 3)
    network = nn.Sequential(shared, nn.ReLU(), shared, nn.Linear(3, 2)).double()
    nn.init.eye_(shared.weight)
    with torch.no_grad():
        shared.weight *= 9.0
    options = {"max_iter": 2, "batch_size": None, "random_state": 0}
    model = NeuralClassifier(network, lipschitz=8.0, **options).fit(X, y)
    norms = [np.linalg.norm(model.module_[i].weight.detach(), 2) for i in (0, 2, 3)]
    assert np.prod(norms) <= 8.0 * (1 + 1e-6)
    assert norms[0] == pytest.approx(2.0, rel=0.01)
