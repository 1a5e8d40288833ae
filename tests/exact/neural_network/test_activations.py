"""Activations: values, derivatives, identities; units that are dead or saturated."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import comb, expit
from torch import nn

from certus.bounds import cover_count
from certus.neural_network import jacobian, jvp
from certus.neural_network.modules import (
    MLP,
    AbsoluteValue,
    Heaviside,
    Maxout,
    activation,
    softmax,
)

Z = torch.linspace(-6, 6, 1000, dtype=torch.float64)  # no kink among them
LARGE = torch.tensor([-1000.0, 1000.0], dtype=torch.float64)
finite = st.floats(-1e6, 1e6)


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def slope(name, z):
    """Derivative of each unit, by automatic differentiation."""
    z = z.clone().requires_grad_()
    return torch.autograd.grad(activation(name)(z).sum(), z)[0]


def difference(name, z, h=1e-6):
    unit = activation(name)
    return (unit(z + h) - unit(z - h)) / (2 * h)


SINGLE = ["identity", "logistic", "tanh", "relu", "leaky_relu", "elu", "softplus"]


@pytest.mark.catalog("NN-07", "NN-08", "NN-09", "NN-10", "NN-11", "NN-12", "NN-13")
@pytest.mark.parametrize("name", [*SINGLE, "absolute", "heaviside"])
def test_derivatives_are_those_of_finite_differences(name):
    assert torch.allclose(slope(name, Z), difference(name, Z), atol=1e-8)


@pytest.mark.parametrize("name", [*SINGLE, "absolute", "heaviside"])
def test_nan_stays_and_shapes_are_kept(name):
    z = torch.tensor([[float("nan"), 1.0, -1.0]])
    out = activation(name)(z)
    assert out.shape == z.shape
    assert torch.equal(out.isnan(), z.isnan())


# -- one unit at a time -------------------------------------------------------------


@pytest.mark.catalog("NN-07")
def test_logistic_and_its_identities():
    unit = activation("logistic")
    s = unit(Z)
    np.testing.assert_allclose(s.numpy(), expit(Z.numpy()), rtol=1e-14)
    assert torch.allclose(slope("logistic", Z), s * unit(-Z), rtol=1e-12)
    assert torch.allclose(torch.log(s / (1 - s)), Z, rtol=1e-10, atol=1e-12)
    assert torch.allclose(1 - s, unit(-Z), rtol=1e-12)
    assert unit(LARGE).tolist() == [0, 1]
    assert slope("logistic", LARGE).tolist() == [0, 0]


@pytest.mark.catalog("NN-08")
def test_tanh_is_a_stretched_logistic():
    t = activation("tanh")(Z).numpy()
    np.testing.assert_allclose(t, np.tanh(Z.numpy()), rtol=0, atol=1e-15)
    np.testing.assert_allclose(t, 2 * expit(2 * Z.numpy()) - 1, rtol=0, atol=1e-15)
    np.testing.assert_allclose(t, 1 - 2 * expit(-2 * Z.numpy()), rtol=0, atol=1e-15)
    np.testing.assert_allclose(slope("tanh", Z), 1 - t**2, rtol=0, atol=1e-15)
    assert np.abs(t - (1 - 2 * expit(-Z.numpy()))).max() > 0.1  # without the 2: no


@pytest.mark.catalog("NN-09")
def test_relu_splits_the_space_in_halves():
    theta, X = torch.randn(3).double(), torch.randn(500, 3).double()
    h = activation("relu")(X @ theta)
    inside = X @ theta > 0
    assert torch.equal(h[inside], (X @ theta)[inside])
    assert not h[~inside].any()
    assert torch.equal(slope("relu", Z), (Z > 0).double())
    # At the kink every slope from 0 to 1 stays below the function; others do not.
    for g, below in [
        (0.0, True),
        (0.4, True),
        (1.0, True),
        (1.1, False),
        (-0.1, False),
    ]:
        assert bool((torch.relu(Z) >= g * Z).all()) is below
    assert 0 <= float(slope("relu", f64([0.0]))) <= 1


@pytest.mark.catalog("NN-10")
def test_leaky_relu_leaks_one_hundredth():
    known = torch.where(Z >= 0, Z, 0.01 * Z)
    assert torch.allclose(activation("leaky_relu")(Z), known, rtol=1e-15)
    assert set(slope("leaky_relu", Z[Z < 0]).tolist()) == {0.01}


@pytest.mark.catalog("NN-11")
def test_elu_is_smooth_once_and_bounded_below():
    unit = activation("elu")
    known = np.where(Z >= 0, Z, np.expm1(Z.numpy()))
    np.testing.assert_allclose(unit(Z).numpy(), known, rtol=1e-14)
    assert torch.equal(unit(Z), nn.functional.elu(Z))
    near = f64([-1e-9, 1e-9])
    assert torch.allclose(unit(near), near, rtol=1e-6)
    assert torch.allclose(slope("elu", near), f64([1.0, 1.0]), atol=1e-8)
    curvature = (slope("elu", near)[0] - slope("elu", 2 * near)[0]) / 1e-9
    assert float(curvature) == pytest.approx(1, abs=1e-3)  # and 0 on the other side
    assert float(unit(f64([-30.0]))) > -1
    assert unit(LARGE).tolist() == [-1, 1000]


@pytest.mark.catalog("NN-12")
def test_softplus_is_a_smooth_relu():
    unit = activation("softplus")
    np.testing.assert_allclose(unit(Z), np.logaddexp(0, Z.numpy()), rtol=1e-12)
    assert torch.allclose(slope("softplus", Z), torch.sigmoid(Z), rtol=1e-12)
    above = unit(Z) - torch.relu(Z)
    assert above.min() > 0
    assert above.max() <= np.log(2)
    wide = torch.linspace(-700, 30, 1461, dtype=torch.float64)
    np.testing.assert_allclose(unit(wide), np.logaddexp(0, wide.numpy()), rtol=1e-15)
    assert (unit(wide) > torch.relu(wide)).all()
    np.testing.assert_allclose(slope("softplus", wide), expit(wide.numpy()), rtol=1e-14)
    single = unit(torch.tensor([-80.0, 30.0, 39.0, 41.0, 1e30]))  # in float32
    assert torch.equal(single[1:], torch.tensor([30.0, 39.0, 41.0, 1e30]))
    assert 0 < float(single[0]) < 1e-34
    assert float(unit(f64([0.0]))) == pytest.approx(np.log(2), rel=1e-15)
    assert unit(LARGE).tolist() == [0, 1000]


@pytest.mark.catalog("NN-13")
@given(finite)
def test_relu_and_absolute_value_make_each_other(z):
    t = f64([z])
    relu, absolute = activation("relu"), AbsoluteValue()
    assert torch.equal(relu(t), (t + absolute(t)) / 2)
    assert torch.equal(absolute(t), relu(t) + relu(-t))
    assert float(absolute(t)) == abs(z)


@pytest.mark.catalog("NN-14")
def test_nothing_below_a_threshold_unit_learns():
    assert Heaviside()(f64([-1e-300, -0.0, 0.0, 1e-300])).tolist() == [0, 1, 1, 1]
    assert torch.equal(Heaviside()(Z), (Z >= 0).double())
    assert not slope("heaviside", Z).any()
    net = MLP(3, (8,), 1, activation="heaviside").double()
    X = torch.randn(50, 3).double()
    for _ in range(20):
        net.zero_grad()
        ((net(X)[:, 0] - X[:, 0]) ** 2).mean().backward()
        with torch.no_grad():
            assert not net.layers[0].linear.weight.grad.any()
            assert not net.layers[0].linear.bias.grad.any()
            assert net.output.weight.grad.any()  # the layer above does learn
            for p in net.parameters():
                p -= 0.1 * p.grad


# -- units that see several numbers -------------------------------------------------


@pytest.mark.catalog("NN-15")
def test_maxout_is_convex_and_follows_its_largest_piece():
    W, b = torch.randn(4, 3).double(), torch.randn(4).double()
    hinge = Maxout(4)

    def f(x):
        return hinge(x @ W.T + b)[..., 0]

    X, Y = torch.randn(2, 300, 3).double() * 3
    t = torch.rand(300, dtype=torch.float64)
    middle = f(t[:, None] * X + (1 - t[:, None]) * Y)
    assert (middle <= t * f(X) + (1 - t) * f(Y) + 1e-12).all()
    assert torch.allclose(f(X), (X @ W.T + b).amax(dim=1), rtol=1e-15)
    best = (X @ W.T + b).argmax(dim=1)
    slopes = torch.stack([jacobian(f, x) for x in X[:50]])
    assert torch.equal(slopes, W[best[:50]])
    assert len(set(best.tolist())) == 4


@pytest.mark.catalog("NN-15")
@given(finite)
def test_two_pieces_make_relu_absolute_value_and_identity(z):
    hinge, t = Maxout(2), f64([z])
    relu = activation("relu")(t)
    assert torch.equal(hinge(torch.cat((t, 0 * t))), relu)
    assert torch.equal(hinge(torch.cat((t, -t))), AbsoluteValue()(t))
    assert torch.equal(hinge(torch.cat((t, t))), t)


@pytest.mark.catalog("NN-16")
@pytest.mark.parametrize("name", ["tanh", "softplus", "elu", "absolute"])
def test_ridge_functions_change_along_one_direction_only(name):
    theta, x, v = torch.randn(3, 5).double()

    def f(x):
        return activation(name)(x @ theta)

    across = v - (v @ theta) / (theta @ theta) * theta
    assert torch.allclose(f(x + 10 * across), f(x), rtol=1e-12)
    assert abs(float(jvp(f, x, across)[1])) < 1e-14
    g = jacobian(f, x)
    size = slope(name, (x @ theta)[None]).abs() * theta.norm()
    assert torch.allclose(g.norm(), size[0], rtol=1e-12)
    h = 1e-6
    for i, e in enumerate(torch.eye(5, dtype=torch.float64)):
        assert float((f(x + h * e) - f(x - h * e)) / (2 * h) - g[i]) == pytest.approx(
            0, abs=1e-8
        )


@pytest.mark.catalog("NN-17")
def test_derivatives_of_softmax():
    z = torch.randn(6).double() * 3
    p = softmax(z)
    J = jacobian(softmax, z).numpy()
    known = np.diag(p) - np.outer(p, p)
    np.testing.assert_allclose(J, known, atol=1e-15)
    np.testing.assert_allclose(J.sum(axis=1), 0, atol=1e-15)
    np.testing.assert_array_equal(J, J.T)
    assert np.linalg.eigvalsh(J).min() > -1e-15
    h = 1e-6
    for j, e in enumerate(torch.eye(6, dtype=torch.float64)):
        np.testing.assert_allclose(
            (softmax(z + h * e) - softmax(z - h * e)) / (2 * h), J[:, j], atol=1e-9
        )
    assert softmax(f64([1e4, 0.0])).tolist() == [1, 0]


@pytest.mark.catalog("NN-18")
def test_temperature_goes_from_one_class_to_all():
    z = f64([[0.3, 1.0, -2.0, 0.9], [1e5, 1e5 - 1, 0.0, 0.0]])
    assert torch.equal(softmax(z, 1.0), softmax(z))
    assert torch.allclose(softmax(z), torch.softmax(z, dim=-1), rtol=1e-12)
    assert torch.equal(softmax(z, 1e-9).argmax(dim=1), z.argmax(dim=1))
    assert softmax(z, 1e-9).max(dim=1).values.tolist() == [1, 1]
    assert softmax(z[:1], 1e-308).tolist() == [[0, 1, 0, 0]]
    np.testing.assert_allclose(softmax(z, 1e12), 0.25, rtol=1e-6)
    heat = np.logspace(-1.5, 3, 100)
    p = torch.stack([softmax(z[0], T) for T in heat])
    known = np.exp(z[0].numpy() / heat[:, None])
    np.testing.assert_allclose(p, known / known.sum(axis=1, keepdims=True), rtol=1e-12)
    entropy = -(p * p.log()).sum(dim=1)
    assert (entropy.diff() > 0).all()
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="temperature must be above 0"):
            softmax(z, wrong)


# -- layers of ReLUs ----------------------------------------------------------------


def patterns(n_inputs, units, affine, n=400_000):
    """How many on-off patterns of a random layer are met by random rows."""
    rng = np.random.default_rng(units)
    W = rng.normal(size=(n_inputs, units))
    b = rng.normal(size=units) * 0.2 if affine else 0.0
    X = rng.normal(size=(n, n_inputs)) * np.exp(rng.normal(size=(n, 1)) * 1.5)
    on = (X @ W + b > 0) @ (1 << np.arange(units))
    return len(np.unique(on))


@pytest.mark.catalog("NN-19")
@pytest.mark.parametrize("n_inputs, units", [(1, 6), (2, 3), (2, 6), (3, 5)])
def test_patterns_are_the_cells_of_an_arrangement(n_inputs, units):
    cells = sum(comb(units, i, exact=True) for i in range(n_inputs + 1))
    assert patterns(n_inputs, units, affine=True) == cells <= 2**units
    assert patterns(n_inputs, units, affine=False) == cover_count(units, n_inputs)


@pytest.mark.catalog("NN-20")
def test_dead_units_stay_dead_until_they_are_drawn_again():
    X = torch.rand(40, 3).double()
    y = X.sum(dim=1) ** 2
    net = MLP(3, (6,), 1).double()
    first = net.layers[0].linear

    def step():
        net.zero_grad()
        ((net(X)[:, 0] - y) ** 2).mean().backward()
        slopes = first.weight.grad[0].abs().sum() + first.bias.grad[0].abs()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.05 * p.grad
        return float(slopes)

    with torch.no_grad():
        first.weight[0], first.bias[0] = -1.0, -1.0
    before = first.weight[0].tolist()
    assert [step() for _ in range(50)] == [0.0] * 50
    assert first.weight[0].tolist() == before
    pruned = MLP(3, (5,), 1).double()
    with torch.no_grad():  # a unit that is never on can as well be taken out
        pruned.layers[0].linear.weight[:] = first.weight[1:]
        pruned.layers[0].linear.bias[:] = first.bias[1:]
        pruned.output.weight[:] = net.output.weight[:, 1:]
        pruned.output.bias[:] = net.output.bias
    assert torch.allclose(pruned(X), net(X), rtol=1e-13)
    with torch.no_grad():
        first.weight[0], first.bias[0] = 0.5, 0.0
    assert step() > 0


@pytest.mark.catalog("NN-21")
def test_rows_of_the_jacobian_are_those_of_active_units():
    layer = MLP(4, (50,), 1).double().layers[0]
    for x in torch.randn(10, 4).double():
        J = jacobian(layer, x)
        assert torch.equal(J.any(dim=1), layer(x) > 0)
        assert torch.equal(J[layer(x) > 0], layer.linear.weight[layer(x) > 0])
        assert 0 < int((layer(x) > 0).sum()) < 50


@pytest.mark.catalog("NN-22")
def test_gradients_vanish_through_sigmoids_and_not_through_relus():
    assert slope("logistic", Z).max() <= 0.25
    assert float(slope("logistic", f64([0.0]))) == 0.25

    def first(depth, name):
        net = MLP(64, (64,) * depth, 1, activation=name).double()
        net(torch.randn(32, 64).double()).sum().backward()
        grad = net.layers[0].linear.weight.grad
        return float(grad.norm())

    depths = np.arange(2, 42, 4)
    logs = {k: np.log([first(d, k) for d in depths]) for k in ("logistic", "relu")}
    lines = {k: np.polyfit(depths, v, 1) for k, v in logs.items()}
    assert np.exp(lines["logistic"][0]) < 0.3  # weights keep lengths: about a quarter
    straight = np.polyval(lines["logistic"], depths)
    np.testing.assert_allclose(logs["logistic"], straight, atol=1.5)
    assert 0.9 < np.exp(lines["relu"][0]) < 1.1
