"""Batch, layer and weight normalisation: what they fix, and what they leave free."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from certus.neural_network import NeuralClassifier
from certus.neural_network.modules import MLP
from certus.neural_network.optim import make_optimizer

EPS = 1e-5


def rows(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def first_layer(normalization, n_inputs=5, width=7, activation="identity"):
    net = MLP(n_inputs, (width,), 1, activation=activation, normalization=normalization)
    return net.double().layers[0]


def normalised(Z, axis, eps=EPS):
    return (Z - Z.mean(axis, keepdims=True)) / np.sqrt(Z.var(axis, keepdims=True) + eps)


def differences(f, a, h=1e-6):
    """Central differences of a number by the entries of a tensor."""
    g = torch.zeros_like(a)
    with torch.no_grad():
        for index in np.ndindex(*a.shape):
            kept = float(a[index])
            for sign in (1, -1):
                a[index] = kept + sign * h
                g[index] += sign * f() / (2 * h)
            a[index] = kept
    return g


# -- batch normalisation ------------------------------------------------------------


@pytest.mark.catalog("NN-32")
def test_a_batch_has_mean_zero_and_variance_one():
    layer = first_layer("batch")
    X = 3 * rows(40, 5) + 2
    out = layer(X).detach().numpy()
    Z = (X @ layer.linear.weight.T).detach().numpy()
    assert layer.linear.bias is None  # it would be taken away
    np.testing.assert_allclose(out, normalised(Z, 0), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(out.mean(axis=0), 0, atol=1e-13)
    np.testing.assert_allclose(out.var(axis=0), 1, atol=10 * EPS)
    layer.norm.eps = 1e-14
    np.testing.assert_allclose(
        layer(X).detach().var(dim=0, correction=0), 1, rtol=1e-12
    )
    with torch.no_grad():
        layer.norm.weight[:], layer.norm.bias[:] = 3.0, -1.0
    out = layer(X).detach()
    np.testing.assert_allclose(out.mean(dim=0), -1, rtol=1e-12)
    np.testing.assert_allclose(out.std(dim=0, correction=0), 3, rtol=1e-12)


@pytest.mark.catalog("NN-32")
def test_gradients_pass_through_the_moments_of_the_batch():
    layer = first_layer("batch", activation="tanh")
    X, target = rows(6, 5), rows(6, 7)
    with torch.no_grad():
        nn.init.normal_(layer.norm.weight)
        nn.init.normal_(layer.norm.bias)

    def loss():
        return ((layer(X) - target) ** 2).sum()

    X.requires_grad_()
    loss().backward()
    for a in (X, *layer.parameters()):
        known = differences(lambda: float(loss()), a.data)
        np.testing.assert_allclose(a.grad, known, rtol=1e-6, atol=1e-7)
    # Through μ and σ: by hand, for one unit and no activation after it.
    z, u = rows(8, 1), rows(8)
    norm = nn.BatchNorm1d(1, eps=EPS).double()
    t = z.clone().requires_grad_()
    g = torch.autograd.grad(norm(t)[:, 0] @ u, t)[0][:, 0].numpy()
    s = np.sqrt(float(z.var(correction=0)) + EPS)
    hat, u = (z[:, 0] - z.mean()).numpy() / s, u.numpy()
    by_hand = (u - u.mean() - hat * (u * hat).mean()) / s
    np.testing.assert_allclose(g, by_hand, rtol=1e-12, atol=1e-14)


@pytest.mark.catalog("NN-33")
def test_running_moments_become_those_of_the_population():
    layer = first_layer("batch", n_inputs=2, width=2)
    with torch.no_grad():
        layer.linear.weight[:] = torch.tensor([[2.0, 0.0], [1.0, 1.0]])
        layer.norm.momentum = None  # the plain mean over batches
        for _ in range(2000):
            layer(rows(16, 2) * torch.tensor([1.0, 3.0]) + torch.tensor([5.0, -1.0]))
    np.testing.assert_allclose(layer.norm.running_mean, [10, 4], rtol=0.02)
    np.testing.assert_allclose(layer.norm.running_var, [4, 10], rtol=0.03)


@pytest.mark.catalog("NN-33")
def test_in_evaluation_a_row_does_not_depend_on_its_companions():
    net = MLP(5, (8, 8), 2, normalization="batch").double()
    X = rows(30, 5)
    net(X)
    assert not torch.allclose(net(X)[:5], net(X[:5]))
    net.eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    assert torch.allclose(net(X)[:5], net(X[:5]), rtol=1e-13, atol=1e-14)
    assert net(X[:1]).shape == (1, 2)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    layer = net.layers[0]
    mean, var = layer.norm.running_mean, layer.norm.running_var
    z = (layer.linear(X) - mean) / torch.sqrt(var + EPS)
    assert torch.allclose(layer(X), torch.relu(z), rtol=1e-12, atol=1e-14)


@pytest.mark.catalog("NN-33")
def test_a_fitted_network_predicts_row_by_row_with_the_moments_of_its_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3)) * [1.0, 5.0, 0.1] + [10.0, 0.0, -3.0]
    y = (X[:, 0] > 10).astype(int)
    net = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)).double()
    options = {"batch_size": 50, "schedule": "cosine", "max_iter": 20}
    model = NeuralClassifier(net, learning_rate=0.05, random_state=0, **options)
    p = model.fit(X, y).predict_proba(X)
    alone = np.vstack([model.predict_proba(x[None]) for x in X[:20]])
    np.testing.assert_allclose(alone, p[:20], rtol=1e-12)
    norm = model.module_[0]
    off = (norm.running_mean.numpy() - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(off, 0, atol=0.1)
    np.testing.assert_allclose(
        norm.running_var.numpy() / X.var(axis=0, ddof=1), 1, atol=0.1
    )
    assert model.score(X, y) > 0.95


@pytest.mark.catalog("NN-34")
def test_scale_and_shift_are_taken_away():
    layer, X = first_layer("batch", width=4), rows(20, 5)
    W, a = layer.linear.weight.detach().clone(), torch.rand(4, 1).double() + 0.1
    before = layer(X).detach()

    def with_weights(weights, X=X, eps=1e-14):  # torch wants one above zero
        layer.norm.eps = eps
        with torch.no_grad():
            layer.linear.weight[:] = weights
            return layer(X)

    before = with_weights(W)
    assert torch.allclose(with_weights(a * W), before, atol=1e-6)
    assert torch.allclose(with_weights(-a * W), -before, atol=1e-6)
    assert torch.allclose(with_weights(W, X + rows(5)), before, atol=1e-6)  # WX + b
    # With ε it holds only where the batch varies more than that.
    small, large = with_weights(1e-3 * W, eps=EPS), with_weights(W, eps=EPS)
    assert not torch.allclose(small, large, atol=1e-3)


@pytest.mark.catalog("NN-34", "NN-35")
@pytest.mark.parametrize("alpha", [0.1, 7.0])
def test_lengths_of_normalised_layers_of_a_network_are_free(alpha):
    net = MLP(5, (8, 6), 2, activation="tanh", normalization="batch").double()
    twin = MLP(**net.config).double()
    twin.load_state_dict(net.state_dict())
    for layer in (*net.layers, *twin.layers):
        layer.norm.eps = 1e-14
    with torch.no_grad():
        for layer in twin.layers:
            layer.linear.weight *= alpha
    X, target = rows(40, 5), rows(40, 2)
    for one in (net, twin):
        ((one(X) - target) ** 2).mean().backward()
    assert torch.allclose(net(X), twin(X), rtol=1e-9, atol=1e-10)
    for a, b in zip(net.layers, twin.layers):
        W, g, k = a.linear.weight.detach(), a.linear.weight.grad, b.linear.weight.grad
        assert torch.allclose(k, g / alpha, rtol=1e-7, atol=1e-11)
        assert g.norm() > 1e-3
        np.testing.assert_allclose((g * W).sum(dim=1), 0, atol=1e-11)


@pytest.mark.catalog("NN-35")
def test_weight_decay_raises_the_learning_rate_that_counts():
    X, target, start = rows(30, 5), rows(30, 4), rows(4, 5)

    def run(decay, rate, growth=1.0):
        """Losses of a normalised layer under our plain descent with weight decay."""
        layer, losses = first_layer("batch", width=4, activation="tanh"), []
        layer.norm.eps = 1e-14
        layer.linear.weight.data[:] = start
        layer.norm.weight.requires_grad_(False)
        layer.norm.bias.requires_grad_(False)
        options = {"momentum": 0.0, "nesterov": False}
        optimizer = make_optimizer("sgd", layer, rate, decay, options)
        for _ in range(20):
            optimizer.zero_grad()
            loss = ((layer(X) - target) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            for group in optimizer.param_groups:
                group["lr"] *= growth
        return losses

    # W shrinks by 0.9 a step; or it does not, and the rate grows by 0.9⁻² a step.
    grown = run(0.0, 0.1 / 0.9, growth=0.9**-2)
    np.testing.assert_allclose(run(1.0, 0.1), grown, rtol=1e-8)
    assert abs(run(1.0, 0.1)[-1] - run(0.001, 0.1)[-1]) > 1e-4


# -- layer normalisation ------------------------------------------------------------


@pytest.mark.catalog("NN-36")
def test_each_row_has_mean_zero_and_variance_one():
    layer = first_layer("layer", width=50)
    X = 3 * rows(20, 5) + 2
    out = layer(X).detach()
    Z = layer.linear(X).detach()
    np.testing.assert_allclose(out, normalised(Z.numpy(), 1), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(out.mean(dim=1), 0, atol=1e-13)
    np.testing.assert_allclose(out.var(dim=1, correction=0), 1, atol=1e-3)
    assert torch.equal(out, nn.functional.layer_norm(Z, (50,)))
    assert torch.allclose(out[:1], layer(X[:1]), rtol=1e-12)  # no companions needed
    with torch.no_grad():
        layer.norm.weight[:], layer.norm.bias[:] = 3.0, -1.0
    assert torch.allclose(layer(X), 3 * out - 1, rtol=1e-12)


@pytest.mark.catalog("NN-36")
def test_gradients_of_layer_normalisation():
    layer = first_layer("layer", activation="tanh")
    X, target = rows(4, 5), rows(4, 7)

    def loss():
        return ((layer(X) - target) ** 2).sum()

    loss().backward()
    for p in layer.parameters():
        known = differences(lambda: float(loss()), p.data)
        np.testing.assert_allclose(p.grad, known, rtol=1e-6, atol=1e-7)


# -- weight normalisation -----------------------------------------------------------


@pytest.mark.catalog("NN-37")
def test_length_and_direction_of_weights_are_separate():
    layer = first_layer("weight")
    X = rows(9, 5)
    plain = layer.linear.weight.detach()
    lengths = layer.linear.length.detach()
    assert torch.allclose(plain.norm(dim=1), lengths, rtol=1e-14)
    assert torch.allclose(plain, layer.linear.direction, rtol=1e-6)  # in float32
    before = layer(X).detach()
    with torch.no_grad():
        layer.linear.direction *= torch.rand(7, 1).double() * 10 + 0.1
    assert torch.allclose(layer(X), before, rtol=1e-12, atol=1e-14)
    with torch.no_grad():
        layer.linear.length *= 2
    bias = layer.linear.bias
    assert torch.allclose(layer(X) - bias, 2 * (before - bias), rtol=1e-12)


@pytest.mark.catalog("NN-37")
def test_weight_norm_equals_that_of_torch_and_moves_across_the_direction():
    linear = nn.Linear(5, 7).double()
    layer = first_layer("weight")
    layer.linear.direction.data[:] = 3 * linear.weight.data
    layer.linear.length.data[:] = linear.weight.data.norm(dim=1)
    layer.linear.bias.data[:] = linear.bias.data
    torchs = parametrizations.weight_norm(linear, dim=0)
    X, target = rows(9, 5), rows(9, 7)
    for net in (layer, torchs):
        ((torch.tanh(net(X)) - target) ** 2).sum().backward()
    assert torch.allclose(layer(X), torchs(X), rtol=1e-13)
    parts = torchs.parametrizations.weight
    g = layer.linear.direction.grad
    assert torch.allclose(layer.linear.length.grad, parts.original0.grad[:, 0])
    assert torch.allclose(g, parts.original1.grad / 3)
    across = (g * layer.linear.direction.detach()).sum(dim=1)
    np.testing.assert_allclose(across, 0, atol=1e-13)
    known = differences(
        lambda: float(((torch.tanh(layer(X)) - target) ** 2).sum()),
        layer.linear.direction.data,
    )
    np.testing.assert_allclose(g, known, atol=1e-6)
