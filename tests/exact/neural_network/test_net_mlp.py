"""The multilayer perceptron: what it computes, how it begins, what its skips do."""

import copy
import pickle

import numpy as np
import pytest
import torch
from scipy.special import expit
from torch import nn

from certus.neural_network import NeuralClassifier, NeuralRegressor, jacobian
from certus.neural_network.modules import MLP, count_parameters, initialize

XOR_ROWS = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
XOR_SIGNS = torch.tensor([-1.0, 1.0, 1.0, -1.0])
VARIANTS = [
    {},
    {"activation": "tanh", "init": "he"},
    {"activation": "maxout", "pieces": 3},
    {"normalization": "batch"},
    {"normalization": "layer", "dropout": 0.5},
    {"normalization": "weight"},
    {"residual": True},
    {"residual": True, "normalization": "batch"},
    {"residual": True, "normalization": "weight", "activation": "logistic"},
    {"dense": True},
]


def rows(*shape):
    return torch.randn(*shape, dtype=torch.float64)


# -- forward ------------------------------------------------------------------------


@pytest.mark.catalog("NN-01")
def test_forward_pass_is_the_composition_of_its_layers():
    net = MLP(4, (5, 3), 2, activation="tanh").double()
    X = rows(7, 4)
    h = X.numpy()
    for layer in net.layers:
        W, b = (p.detach().numpy() for p in (layer.linear.weight, layer.linear.bias))
        h = np.tanh(h @ W.T + b)
    W, b = (p.detach().numpy() for p in (net.output.weight, net.output.bias))
    known = h @ W.T + b
    np.testing.assert_allclose(net(X).detach().numpy(), known, rtol=1e-13)


@pytest.mark.catalog("NN-01")
def test_an_mlp_is_a_sequence_of_torch_layers():
    net = MLP(4, (5, 3), 2)
    parts = [nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 2)]
    plain = nn.Sequential(*parts)
    plain.load_state_dict(dict(zip(plain.state_dict(), net.state_dict().values())))
    X = torch.randn(7, 4)
    assert torch.equal(net(X), plain(X))


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_a_network_is_rebuilt_from_its_config_and_weights(options):
    net = MLP(4, (8, 8, 6), 3, **options)
    with torch.no_grad():  # running statistics of a batch norm, too
        net(torch.randn(20, 4))
    net.eval()
    other = MLP(**net.config)
    other.load_state_dict(net.state_dict())
    X = torch.randn(9, 2, 2)
    z = net(X)
    assert z.shape == (9, 3)
    for copied in (other, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(copied.eval()(X), z)
    assert all(torch.isfinite(p).all() for p in net.parameters())


def test_rows_with_several_axes_are_flattened():
    net = MLP(12, (5,), 2).double()
    X = rows(6, 3, 2, 2)
    assert torch.equal(net(X), net(X.reshape(6, 12)))
    assert torch.allclose(net(X.reshape(6, 12)[0]), net(X)[0], rtol=1e-14)


@pytest.mark.catalog("NN-04")
@pytest.mark.parametrize("hidden", [(), (6,), (6, 3, 8)])
def test_layers_without_bends_are_one_layer(hidden):
    net = MLP(5, hidden, 4, activation="identity").double()
    W, b = torch.eye(5, dtype=torch.float64), torch.zeros(5, dtype=torch.float64)
    for layer in [layer.linear for layer in net.layers] + [net.output]:
        nn.init.normal_(layer.bias)
        W, b = layer.weight @ W, layer.weight @ b + layer.bias
    X = rows(30, 5)
    assert torch.allclose(net(X), X @ W.T + b, rtol=1e-12, atol=1e-12)
    bent = MLP(5, (6,), 4).double()
    x = rows(5)
    assert not torch.allclose(bent(x) + bent(-x), 2 * bent(0 * x))


@pytest.mark.catalog("NN-05")
def test_heads_turn_scores_into_probabilities_signs_and_numbers():
    scores = MLP(4, (8,), 3).double()(rows(50, 4))
    p = torch.softmax(scores, dim=1)
    assert torch.allclose(p.sum(dim=1), torch.ones(50).double(), rtol=1e-14)
    assert torch.equal(p.argmax(dim=1), scores.argmax(dim=1))
    z = MLP(4, (8,), 1).double()(rows(50, 4))  # one score: a sign, or a probability
    assert torch.equal(torch.sigmoid(z) > 0.5, z > 0)
    both = torch.softmax(torch.cat((torch.zeros_like(z), z), dim=1), dim=1)
    assert torch.allclose(both[:, 1:], torch.sigmoid(z), rtol=1e-14)
    net = MLP(4, (8,), 2).double()  # a linear head is not bounded
    X, h = rows(1, 4), MLP(4, (8,), 2)
    for scale in (1.0, 1e6):
        expected = scale * (net(X) - net.output.bias) + net.output.bias
        assert torch.allclose(net(scale * X), expected)
    h.output = nn.Identity()
    assert h(torch.randn(5, 4)).shape == (5, 8)


@pytest.mark.catalog("NN-05")
def test_estimators_put_the_head_on_that_their_targets_want():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    plan = {"schedule": "cosine", "max_iter": 3, "random_state": 0}

    def scores(model):
        return model.module_(torch.from_numpy(X)).detach().numpy()

    for k, outputs in [(2, 1), (2, 2), (5, 5)]:
        y = np.arange(60) % k
        net = MLP(4, (8,), outputs).double()
        model = NeuralClassifier(net, **plan).fit(X, y)
        p, z = model.predict_proba(X), scores(model)
        z = np.hstack((np.zeros((60, 1)), z)) if outputs == 1 else z
        known = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(p, known, rtol=1e-12)
        np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-14)
        np.testing.assert_array_equal(model.predict(X), p.argmax(axis=1))
    labels = rng.integers(2, size=(60, 3))  # each label has a head of its own
    model = NeuralClassifier(MLP(4, (8,), 3).double(), **plan).fit(X, labels)
    np.testing.assert_allclose(model.predict_proba(X), expit(scores(model)), rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X), scores(model) > 0)
    model = NeuralRegressor(MLP(4, (8,), 2).double(), **plan).fit(X, X[:, :2])
    np.testing.assert_array_equal(model.predict(X), scores(model))


@pytest.mark.catalog("NN-06")
@pytest.mark.parametrize("d, K, L, out", [(2, 2, 1, 1), (20, 64, 2, 3), (7, 5, 4, 6)])
def test_parameters_are_counted_by_the_formula(d, K, L, out):
    net = MLP(d, (K,) * L, out)
    count = d * K + K + (L - 1) * (K * K + K) + K * out + out
    assert count_parameters(net) == count
    assert sum(a.numpy().size for a in net.state_dict().values()) == count
    net.output.weight.requires_grad_(False)
    assert count_parameters(net) == count - K * out


# -- XOR ----------------------------------------------------------------------------


@pytest.mark.catalog("NN-02")
def test_nine_parameters_make_xor():
    net = MLP(2, (2,), 1)
    with torch.no_grad():
        net.layers[0].linear.weight[:] = 1.0
        net.layers[0].linear.bias[:] = torch.tensor([0.0, -1.0])
        net.output.weight[:] = torch.tensor([2.0, -4.0])
        net.output.bias[:] = -1.0
        assert count_parameters(net) == 9
        assert torch.equal(net(XOR_ROWS)[:, 0], XOR_SIGNS)


def share_that_learns_xor(hidden, activation="relu", starts=50, above_zero=False):
    """Plain gradient descent on the logistic loss from many starts at once."""
    nets = [MLP(2, hidden, 1, activation=activation) for _ in range(starts)]
    if above_zero:
        for net in nets:
            net.layers[0].linear.weight.data.uniform_(0, 1)
    weights = list(torch.func.stack_module_state(nets)[0].values())
    bend = torch.relu if activation == "relu" else nn.functional.elu

    def scores():
        h = XOR_ROWS.expand(starts, 4, 2)
        for W, b in zip(weights[::2], weights[1::2]):
            h = (h if W is weights[0] else bend(h)) @ W.mT + b[:, None]
        return h[..., 0]

    for _ in range(800):
        loss = nn.functional.softplus(-XOR_SIGNS * scores()).mean(dim=1).sum()
        slopes = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for w, g in zip(weights, slopes):
                w -= 0.3 * g  # the starts are apart from each other
    return float((XOR_SIGNS * scores() > 0).all(dim=1).double().mean())


@pytest.mark.catalog("NN-03")
def test_xor_is_learnt_from_most_starts_and_never_by_a_line():
    # The network above, with first weights on the side of those: no unit begins dead.
    assert share_that_learns_xor((2,), starts=100, above_zero=True) > 0.5
    assert share_that_learns_xor((2,), "elu") > 0.5
    # With signs at random two ReLUs often die on the way; eight hardly ever do.
    assert 0.05 < share_that_learns_xor((2,)) < 0.5
    assert share_that_learns_xor((8,)) > 0.8
    assert share_that_learns_xor(()) == 0
    # Not for want of trying: no line whatever has all four on its sides.
    lines = np.stack(np.meshgrid(*[np.linspace(-3, 3, 25)] * 3), axis=-1).reshape(-1, 3)
    z = lines[:, :2] @ XOR_ROWS.numpy().T + lines[:, 2:]
    assert (z * XOR_SIGNS.numpy() > 0).sum(axis=1).max() == 3


# -- the first weights --------------------------------------------------------------


def mean_squares(activation, init, depth=50, width=512, n=1024):
    """Mean square of what goes into each layer's activation, input mean square 1/2."""
    net = MLP(width, (width,) * depth, 1, activation=activation, init=init)
    h, out = torch.relu(torch.randn(n, width)), []
    for layer in net.layers:
        # Weights are symmetric, so signs drawn for each row make every row see a
        # network of its own; the theorem is about the mean over networks.
        z = layer.linear(h * torch.randint(0, 2, h.shape).mul_(2).sub_(1))
        out.append(float((z**2).mean()))
        h = layer.activation(z)
    return np.array(out)


@pytest.mark.catalog("NN-31")
def test_he_keeps_the_second_moment_through_fifty_relu_layers():
    with torch.no_grad():
        kept = mean_squares("relu", "he")
        lost = mean_squares("relu", "glorot", depth=20)  # widths alike: 1/K
    assert kept.shape == (50,)
    np.testing.assert_allclose(kept, 1.0, atol=0.1)
    np.testing.assert_allclose(lost[1:] / lost[:-1], 0.5, rtol=0.05)


@pytest.mark.catalog("NN-31")
@pytest.mark.parametrize("activation", ["identity", "absolute", "maxout"])
def test_glorot_keeps_it_where_an_activation_does(activation):
    with torch.no_grad():
        kept = mean_squares(activation, "auto", depth=20, n=512)
    np.testing.assert_allclose(kept, 0.5, rtol=0.15)


def test_variances_of_the_first_weights():
    for activation in ("relu", "leaky_relu", "elu", "tanh", "softplus", "logistic"):
        net = MLP(300, (500,), 1, activation=activation)
        variance = 2 / 300 if activation in ("relu", "leaky_relu", "elu") else 2 / 800
        W = net.layers[0].linear.weight.detach()
        assert float(W.var()) == pytest.approx(variance, rel=0.03)
        assert float(W.mean()) == pytest.approx(
            0, abs=4 * (variance / W.numel()) ** 0.5
        )
        assert not net.layers[0].linear.bias.any()
    # Forth and back Glorot's factors have the mean one.
    layer = initialize(nn.Linear(300, 500), "glorot")
    with torch.no_grad():
        forth = float((torch.randn(2000, 300) @ layer.weight.T).var())
        back = float((torch.randn(2000, 500) @ layer.weight).var())
    assert forth == pytest.approx(300 * 2 / 800, rel=0.03)
    assert forth + back == pytest.approx(2, rel=0.03)


def test_maxout_pieces_count_once_in_the_fan_out():
    W = MLP(300, (300,), 1, activation="maxout", pieces=4).layers[0].linear.weight
    assert W.shape == (1200, 300)
    assert float(W.detach().var()) == pytest.approx(1 / 300, rel=0.03)


# -- residual and dense -------------------------------------------------------------


@pytest.mark.catalog("NN-51")
def test_a_residual_layer_adds_its_derivative_to_the_identity():
    net = MLP(4, (4,), 4, activation="tanh", residual=True).double()
    layer, x = net.layers[0], rows(4)
    net.output = nn.Identity()
    eye = torch.eye(4, dtype=torch.float64)
    assert torch.allclose(net(x), x + layer(x), rtol=1e-14)
    assert torch.allclose(jacobian(net, x), eye + jacobian(layer, x), rtol=1e-13)
    with torch.no_grad():
        layer.linear.weight.zero_()
    assert torch.equal(jacobian(net, x), eye)
    assert torch.equal(net(x), x)


@pytest.mark.catalog("NN-51")
def test_a_matrix_carries_the_input_over_where_widths_differ():
    net = MLP(4, (6, 6, 3), 2, residual=True).double()
    assert [type(part).__name__ for part in net.skips] == [
        "Linear",
        "Identity",
        "Linear",
    ]
    x = rows(5, 4)
    h = x @ net.skips[0].weight.T + net.layers[0](x)
    h = h + net.layers[1](h)
    h = h @ net.skips[2].weight.T + net.layers[2](h)
    assert torch.allclose(net(x), net.output(h), rtol=1e-13)


def first_gradient(depth, **options):
    """Norm of the loss's derivative by what enters the first hidden layer."""
    net = MLP(32, (32,) * depth, 1, **options).double()
    X = rows(16, 32).requires_grad_()
    net(X).sum().backward()
    return float(X.grad.norm(dim=1).mean())


@pytest.mark.catalog("NN-51")
@pytest.mark.parametrize("normalization", [None, "layer", "weight"])
def test_gradients_neither_vanish_nor_burst_in_deep_residual_networks(normalization):
    options = {"residual": True, "normalization": normalization}
    for activation in ("logistic", "tanh", "relu"):
        sizes = [first_gradient(d, activation=activation, **options) for d in (2, 100)]
        assert 0.2 < sizes[1] / sizes[0] < 5
    assert first_gradient(100, activation="logistic") < 1e-30


@pytest.mark.catalog("NN-52")
def test_dense_layers_see_all_that_came_before():
    growth = 5
    net = MLP(4, (growth,) * 3, 2, dense=True).double()
    widths = [layer.linear.in_features for layer in net.layers]
    assert [*widths, net.output.in_features] == [4 + growth * i for i in range(4)]
    x = rows(6, 4)
    seen = [x]
    for layer in net.layers:
        seen.append(layer(torch.cat(seen, dim=1)))
    assert torch.allclose(net(x), net.output(torch.cat(seen, dim=1)), rtol=1e-13)


@pytest.mark.catalog("NN-52")
def test_gradients_reach_every_dense_layer():
    def norms(dense):
        net = MLP(8, (8,) * 30, 1, activation="logistic", dense=dense).double()
        net(rows(16, 8)).sum().backward()
        return np.array([float(x.linear.weight.grad.norm()) for x in net.layers])

    plain, dense = norms(False), norms(True)
    assert plain.min() < 1e-10
    assert dense.min() > 1e-2
    # The head's own weights stand between each layer and the output: no chain at all.
    net = MLP(3, (4, 4), 1, dense=True).double()
    with torch.no_grad():
        net.layers[1].linear.weight.zero_()
    net(rows(9, 3)).sum().backward()
    assert float(net.layers[0].linear.weight.grad.abs().sum()) > 0


# -- dropout and refusals -----------------------------------------------------------


def test_dropout_is_absent_in_evaluation():
    net = MLP(4, (50,), 2, dropout=0.5)
    X = torch.randn(3, 4)
    assert not torch.equal(net(X), net(X))
    net.eval()
    assert torch.equal(net(X), net(X))


def test_integers_of_numpy_are_accepted_as_widths():
    net = MLP(np.int64(4), np.int32(5), 2)
    assert net.config["hidden"] == (5,)
    assert type(net.config["n_inputs"]) is int
    assert MLP(4, [5, 6], 2).config["hidden"] == (5, 6)


@pytest.mark.parametrize(
    "arguments, options, sentence",
    [
        ((0, (5,), 2), {}, "n_inputs must be a whole number above 0, got 0"),
        ((4, (5, -1), 2), {}, "hidden must be a whole number above 0, got -1"),
        ((4, (5.0,), 2), {}, "hidden must be a whole number above 0, got 5.0"),
        ((4, (True,), 2), {}, "hidden must be a whole number above 0, got True"),
        ((4, 5, None), {}, "n_outputs must be a whole number above 0, got None"),
        ((4, (5,), 2), {"activation": "gelu"}, "activation must be one of 'identity'"),
        ((4, (5,), 2), {"normalization": "group"}, "normalization must be one of None"),
        ((4, (5,), 2), {"init": "zeros"}, "init must be one of 'auto'"),
        ((4, (5,), 2), {"pieces": 0}, "pieces must be a whole number above 0"),
        (
            (4, (5,), 2),
            {"residual": True, "dense": True},
            "both residual and dense",
        ),
        (
            (4, (5,), 2),
            {"dropout": 1.5},
            "dropout must be a share from 0 to 1, got 1.5",
        ),
        ((4, (5,), 2), {"dropout": float("nan")}, "dropout must be a share"),
    ],
)
def test_impossible_networks_are_refused(arguments, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        MLP(*arguments, **options)
