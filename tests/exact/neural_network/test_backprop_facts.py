"""Backpropagation, written out and compared with differences and with torch."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from certus.neural_network import jacobian, jvp, vjp
from certus.neural_network.modules import MLP


def differences(f, *arrays, h=1e-6):
    """Central differences of a number by each entry of each array."""
    out = []
    for a in arrays:
        g = np.zeros_like(a)
        for index in np.ndindex(a.shape):
            kept = a[index]
            a[index] = kept + h
            above = f()
            a[index] = kept - h
            g[index] = (above - f()) / (2 * h)
            a[index] = kept
        out.append(g)
    return out


# -- by hand ------------------------------------------------------------------------


@pytest.mark.catalog("NN-23")
def test_a_derivative_by_a_matrix_has_its_shape():
    rng = np.random.default_rng(0)
    X, a, b = rng.normal(size=(3, 4)), rng.normal(size=3), rng.normal(size=4)
    for f, known in [
        (lambda X: a @ X @ b, np.outer(a, b)),
        (lambda X: (X**2).sum(), 2 * X),
        (lambda X: a @ X @ X.T @ a, 2 * np.outer(a, a) @ X),
    ]:
        (g,) = differences(lambda f=f: f(X), X)
        assert g.shape == known.shape == X.shape
        np.testing.assert_allclose(g, known, atol=1e-7)
    t = torch.from_numpy(X)
    W = torch.from_numpy(rng.normal(size=(2, 3)))
    assert jacobian(lambda X: W @ X, t).shape == (2, 4, 3, 4)
    assert jacobian(lambda X: X.sum(), X).shape == X.shape


@pytest.mark.catalog("NN-24")
def test_two_layers_and_softmax_by_the_formulas_of_the_notes():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=4), np.array([0.0, 1.0, 0.0])
    W, b = rng.normal(size=(5, 4)), rng.normal(size=5)
    U, c = rng.normal(size=(3, 5)), rng.normal(size=3)

    def forward():
        z = W @ x + b
        h = np.maximum(z, 0)
        scores = U @ h + c
        e = np.exp(scores - scores.max())
        return z, h, e / e.sum()

    z, h, theta = forward()
    back = U.T @ (theta - y)
    d = back * (z > 0)
    by_hand = [np.outer(d, x), d, np.outer(theta - y, h), theta - y, W.T @ d]
    known = differences(lambda: -y @ np.log(forward()[2]), W, b, U, c, x)
    for mine, other in zip(by_hand, known):
        np.testing.assert_allclose(mine, other, atol=1e-8)
    # The sixth, by the hidden units, with what is below them left out.
    (by_h,) = differences(
        lambda: -y @ np.log(np.exp(U @ h + c) / np.exp(U @ h + c).sum()), h
    )
    np.testing.assert_allclose(back, by_h, atol=1e-8)
    net = MLP(4, (5,), 3).double()
    with torch.no_grad():
        for p, value in zip(net.parameters(), (W, b, U, c)):
            p[:] = torch.from_numpy(value)
    nn.functional.cross_entropy(net(torch.from_numpy(x)), torch.tensor(1)).backward()
    for p, mine in zip(net.parameters(), by_hand):
        np.testing.assert_allclose(p.grad, mine, rtol=1e-12, atol=1e-14)


def backpropagate(weights, x, y):
    """Gradients of ½‖z − y‖² by the δ recursion; weights act as Wᵀx + b, φ = tanh."""
    seen, z = [x], x
    for i, (W, b) in enumerate(weights):
        z = W.T @ z + b
        if i < len(weights) - 1:
            z = np.tanh(z)
            seen.append(z)
    delta, out = z - y, []
    for i in reversed(range(len(weights))):
        out.append((np.outer(seen[i], delta), delta))
        if i:
            W = weights[i][0]
            delta = (W @ delta) * (1 - seen[i] ** 2)
    return out[::-1]


def random_layers(rng, widths):
    return [
        (rng.normal(size=(a, b)) / np.sqrt(a), rng.normal(size=b))
        for a, b in pairwise(widths)
    ]


@pytest.mark.catalog("NN-25")
def test_delta_recursion_gives_the_gradient():
    rng = np.random.default_rng(0)
    layers = random_layers(rng, (4, 5, 3, 2))
    x, y = rng.normal(size=4), rng.normal(size=2)

    def loss():
        z = x
        for W, b in layers[:-1]:
            z = np.tanh(W.T @ z + b)
        return 0.5 * np.sum((layers[-1][0].T @ z + layers[-1][1] - y) ** 2)

    for (dW, db), (W, b) in zip(backpropagate(layers, x, y), layers):
        by_W, by_b = differences(loss, W, b)
        np.testing.assert_allclose(dW, by_W, atol=1e-6)
        np.testing.assert_allclose(db, by_b, atol=1e-6)
    net = MLP(4, (5, 3), 2, activation="tanh").double()
    with torch.no_grad():
        for layer, (W, b) in zip([*(x.linear for x in net.layers), net.output], layers):
            layer.weight[:], layer.bias[:] = torch.from_numpy(W.T), torch.from_numpy(b)
    (0.5 * (net(torch.from_numpy(x)) - torch.from_numpy(y)).square().sum()).backward()
    mine = [g for dW, db in backpropagate(layers, x, y) for g in (dW.T, db)]
    for p, g in zip(net.parameters(), mine):
        np.testing.assert_allclose(p.grad, g, rtol=1e-12)


@pytest.mark.catalog("NN-25")
def test_gradients_of_a_network_cost_what_the_recursion_says():
    def cost(K, L):
        net = MLP(K, (K,) * (L - 1), K, activation="tanh").double()
        x = torch.randn(1, K).double()
        return counted(lambda: net(x).square().sum().backward())

    # Of each layer W h, δ hᵀ and, but for the first, Wᵀδ: K² products and as many sums.
    for K, L in [(7, 2), (7, 16), (40, 3), (40, 9)]:
        assert cost(K, L) == 2 * (3 * L - 1) * K * K


@pytest.mark.catalog("OPT-64")
@pytest.mark.parametrize("sizes", [(3, 4, 5), (1, 6, 2), (4, 4, 4)])
def test_reverse_mode_moves_a_factor_to_the_other_side(sizes):
    """⟨AB, C⟩ = ⟨B, AᵀC⟩ = ⟨A, CBᵀ⟩ with ⟨P, Q⟩ = tr PᵀQ."""
    m, k, n = sizes
    A, B, C = (torch.randn(s, dtype=torch.float64) for s in ((m, k), (k, n), (m, n)))
    inner = lambda P, Q: float((P * Q).sum())  # noqa: E731
    product, by_B = vjp(lambda B: A @ B, B, C)
    _, by_A = vjp(lambda A: A @ B, A, C)
    torch.testing.assert_close(by_B, A.T @ C, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(by_A, C @ B.T, rtol=1e-12, atol=1e-12)
    assert inner(product, C) == pytest.approx(inner(B, by_B), abs=1e-12)
    assert inner(product, C) == pytest.approx(inner(A, by_A), abs=1e-12)
    # Forward mode is the other side of the same identity, for a network too.
    net = MLP(k, (5,), n, activation="tanh").double()
    V, U = torch.randn_like(A), torch.randn(m, n, dtype=torch.float64)
    _, along = jvp(net, A, V)
    _, back = vjp(net, A, U)
    assert inner(along, U) == pytest.approx(inner(V, back), abs=1e-12)


@pytest.mark.catalog("NN-26")
def test_backward_iteration_is_the_product_of_jacobians():
    rng = np.random.default_rng(0)
    layers = random_layers(rng, (4, 5, 3, 2))
    x, y = rng.normal(size=4), rng.normal(size=2)
    z, states, jacobians = x, [x], []
    for W, b in layers:
        z = np.tanh(W.T @ z + b)
        jacobians.append((1 - z**2)[:, None] * W.T)  # ∂F_l by its input
        states.append(z)
    xi = z - y  # ∂ℓ at the top
    for i in reversed(range(3)):
        product = z - y
        for J in reversed(jacobians[i + 1 :]):
            product = product @ J
        np.testing.assert_allclose(xi, product, rtol=1e-12)
        W, b = layers[i]
        here = states[i]

        def layer(theta, W=W, here=here):
            A = theta[: W.size].reshape(W.shape)
            return torch.tanh(torch.from_numpy(here) @ A + theta[W.size :])

        by_theta = jacobian(layer, np.concatenate((W.ravel(), b)))
        known = np.concatenate([np.ravel(g) for g in tanh_gradients(layers, x, y)[i]])
        np.testing.assert_allclose(xi @ by_theta, known, rtol=1e-10, atol=1e-14)
        xi = xi @ jacobians[i]


def tanh_gradients(layers, x, y):
    """Of ½‖z − y‖² where the last layer is bent too, by torch."""
    leaves = [
        tuple(torch.tensor(a, requires_grad=True) for a in layer) for layer in layers
    ]
    z = torch.from_numpy(x)
    for W, b in leaves:
        z = torch.tanh(z @ W + b)
    (0.5 * (z - torch.from_numpy(y)).square().sum()).backward()
    return [(W.grad.numpy(), b.grad.numpy()) for W, b in leaves]


@pytest.mark.catalog("NN-29")
def test_derivatives_of_units_and_of_a_relu_layer():
    rng = np.random.default_rng(0)
    x, W = rng.normal(size=4), rng.normal(size=(6, 4))
    t = torch.from_numpy(x)
    for f, slope in [(torch.tanh, 1 - np.tanh(x) ** 2), (torch.sin, np.cos(x))]:
        np.testing.assert_allclose(jacobian(f, x), np.diag(slope), atol=1e-15)
    on = W @ x > 0
    by_W = jacobian(lambda W: torch.relu(W @ t), W)  # (k, i, j)
    known = np.einsum("i,j,ik->kij", on, x, np.eye(6))
    np.testing.assert_allclose(by_W, known, rtol=1e-14)
    by_x = jacobian(lambda x: torch.relu(torch.from_numpy(W) @ x), x)
    np.testing.assert_allclose(by_x, on[:, None] * W, rtol=1e-14)
    for k in range(6):
        (row,) = differences(lambda k=k: max(W[k] @ x, 0), x)
        np.testing.assert_allclose(row, by_x[k], atol=1e-8)
        (block,) = differences(lambda k=k: np.maximum(W @ x, 0)[k], W)
        np.testing.assert_allclose(block, by_W[k], atol=1e-8)


# -- forward and reverse mode -------------------------------------------------------


def counted(f, *args):
    """Multiplications and additions in matrix products while f runs."""
    with FlopCounterMode(display=False) as counter:
        f(*args)
    return counter.get_total_flops()


def network(widths):
    """A plain function: a chain of matrices with bends between them."""
    matrices = [
        torch.randn(a, b, dtype=torch.float64) / a**0.5 for a, b in pairwise(widths)
    ]

    def f(x):
        h = x[None]
        for W in matrices[:-1]:
            h = torch.tanh(h @ W)
        return (h @ matrices[-1])[0]

    return f


@pytest.mark.catalog("NN-27")
@pytest.mark.parametrize("n", [10, 100, 1000])
def test_a_gradient_costs_a_fixed_multiple_of_the_evaluation(n):
    net, x = network((n, 30, 30, 1)), torch.randn(n).double()
    plain = counted(net, x)
    assert counted(lambda: vjp(net, x, torch.ones(1))) <= 2 * plain
    assert counted(lambda: jacobian(net, x, "forward")) >= n * plain


@pytest.mark.catalog("NN-27", "NN-28")
def test_cost_grows_with_outputs_in_reverse_and_with_inputs_forward():
    net, x = network((40, 30, 30, 20)), torch.randn(40).double()
    plain = counted(net, x)

    def cost(n, m, mode):
        def part(t):
            return net(torch.cat((t, x[n:])))[:m]

        return counted(lambda: jacobian(part, x[:n], mode))

    sizes = [1, 2, 4, 8, 16]
    for m in sizes:
        assert cost(40, m, "reverse") == (1 + m) * plain
        assert cost(40, m, "forward") == cost(40, 1, "forward")
    extra = [cost(n, 20, "forward") - cost(1, 20, "forward") for n in sizes]
    assert extra == [(n - 1) * plain for n in sizes]
    assert len({cost(n, 20, "reverse") for n in sizes}) == 1
    # Counting outputs takes one evaluation; then the cheaper mode is taken.
    for n, m in [(40, 2), (3, 20), (1, 1), (20, 20)]:
        best = min(cost(n, m, "forward"), cost(n, m, "reverse"))
        assert cost(n, m, "auto") == best + plain


@pytest.mark.catalog("NN-27")
def test_reverse_mode_keeps_what_the_evaluation_computed():
    def kept(depth, run):
        sizes = []
        net = network((30,) * (depth + 1))
        x = torch.randn(30).double()

        def note(t):
            sizes.append(t.numel())
            return t

        with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
            run(net, x)
        return sum(sizes)

    def reverse(net, x):
        net(x.requires_grad_()).sum().backward()

    def forward(net, x):
        jvp(net, x, torch.ones(30))

    amounts = [kept(depth, reverse) for depth in (10, 20, 40)]
    assert amounts[1] - amounts[0] == (amounts[2] - amounts[1]) / 2 > 0
    assert kept(40, forward) == 0


@pytest.mark.catalog("NN-27", "NN-28")
@pytest.mark.parametrize("options", [{}, {"residual": True}, {"dense": True}])
def test_products_agree_with_the_jacobian_and_with_each_other(options):
    net = MLP(6, (7, 7), 4, activation="elu", **options).double()
    x, v, u = (torch.randn(k).double() for k in (6, 6, 4))
    J = jacobian(net, x, "forward")
    assert torch.allclose(J, jacobian(net, x, "reverse"), rtol=1e-12, atol=1e-14)
    value, forward = jvp(net, x, v)
    assert torch.equal(value, net(x).detach())
    assert torch.allclose(forward, J @ v, rtol=1e-12)
    back = vjp(net, x, u)[1]
    assert torch.allclose(back, J.T @ u, rtol=1e-12)
    assert float(u @ forward) == pytest.approx(float(back @ v), rel=1e-12)
    h = 1e-6
    along = (net(x + h * v) - net(x - h * v)) / (2 * h)
    assert torch.allclose(forward, along, atol=1e-7)
    t = x.clone().requires_grad_()
    known = torch.autograd.grad(net(t) @ u, t)[0]
    assert torch.allclose(back, known, rtol=1e-14)


def test_shapes_kinds_and_numbers():
    X = np.arange(6).reshape(2, 3)
    J = jacobian(lambda x: x.T**2, X)
    assert isinstance(J, np.ndarray)
    assert (J.shape, J.dtype) == ((3, 2, 2, 3), np.float64)
    product = jvp(lambda x: x**2, X, np.ones((2, 3)))[1]
    np.testing.assert_array_equal(product, 2 * X)
    assert vjp(torch.sum, X, 1)[1].tolist() == [[1, 1, 1], [1, 1, 1]]
    single = jvp(torch.exp, np.float32([0.0]), [1])
    assert [a.dtype for a in single] == [np.float32, np.float32]
    t = torch.ones(2, dtype=torch.float64, requires_grad=True)
    out = vjp(torch.exp, 2 * t, [1.0, 1.0])[1]  # part of a graph: taken as a number
    assert not out.requires_grad
    assert t.grad is None
    constant = jacobian(lambda x: torch.ones(3), X)
    assert not constant.any()


def test_functions_that_cannot_be_differentiated_are_refused():
    x = np.ones(3)
    with pytest.raises(ValueError, match=r"v must have the shape of x, \(3,\), got"):
        jvp(torch.exp, x, np.ones(2))
    with pytest.raises(ValueError, match=r"u must have the shape of f\(x\), \(\), got"):
        vjp(torch.sum, x, np.ones(2))
    with pytest.raises(ValueError, match="mode must be 'auto', 'forward' or 'reverse'"):
        jacobian(torch.exp, x, "backward")
    with pytest.raises(TypeError, match=r"must return one tensor.*got tuple"):
        jacobian(lambda x: (x, x), x)
    with pytest.raises(ValueError, match="real numbers"):
        jacobian(torch.exp, np.array(["a"]))
    with pytest.raises(ValueError, match="real numbers"):
        jacobian(torch.exp, np.ones(3, dtype=complex))
    with pytest.raises(ValueError, match="v must hold real numbers"):
        jvp(torch.exp, x, torch.ones(3, dtype=torch.complex64))
