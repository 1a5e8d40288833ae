"""What the theory of recurrent networks says: unrolling, gradients through time."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from certus.neural_network.modules.cells import (  # noqa: E402
    ElmanCell,
    backpropagate_through_time,
    unroll,
)


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def close(a, b, tol=1e-12):
    torch.testing.assert_close(a, b, rtol=tol, atol=tol)


def loss_of(states, V):
    """A loss that every state enters: Σₜ ½‖V hᵗ − 1‖² over the batch."""
    return 0.5 * (states @ V.T - 1).square().sum()


@pytest.mark.catalog("SEQ-02")
def test_a_recurrent_net_is_a_deep_net_with_shared_weights():
    cell, x = ElmanCell(3, 5).double(), numbers(4, 6, 3)
    h = torch.zeros(4, 5, dtype=torch.float64)
    for t in range(6):  # six layers, each sees the one below and its own input
        layer = torch.nn.Linear(5 + 3, 5).double()
        with torch.no_grad():
            layer.weight.copy_(torch.cat([cell.W, cell.U], dim=1))
            layer.bias.copy_(cell.b)
        h = torch.tanh(layer(torch.cat([h, x[:, t]], dim=1)))
    close(unroll(cell, x)["state"][:, -1], h)


@pytest.mark.catalog("SEQ-03")
@pytest.mark.parametrize("activation", ["tanh", "relu", "logistic", "identity"])
def test_backpropagation_through_time_is_the_gradient(activation):
    cell, x, V = ElmanCell(3, 5, activation).double(), numbers(4, 6, 3), numbers(2, 5)
    x.requires_grad_()
    states = unroll(cell, x)["state"]
    loss_of(states, V).backward()
    with torch.no_grad():
        slopes = (states @ V.T - 1) @ V  # what the loss sees of each state itself
        found = backpropagate_through_time(cell, x, slopes)
    for name, tensor in (("W", cell.W), ("U", cell.U), ("b", cell.b), ("x", x)):
        close(found[name], tensor.grad, tol=1e-10)
    close(found["states"][:, -1], slopes[:, -1])  # nothing comes after the last


@pytest.mark.catalog("SEQ-03")
def test_backpropagation_through_time_by_finite_differences():
    cell, x, V = ElmanCell(3, 4).double(), numbers(2, 5, 3), numbers(2, 4)
    with torch.no_grad():
        states = unroll(cell, x)["state"]
        found = backpropagate_through_time(cell, x, (states @ V.T - 1) @ V)
        for name in ("W", "U", "b"):
            weight, g = getattr(cell, name), found[name]
            for place in np.ndindex(*weight.shape):
                ends = []
                for move in (1e-5, -1e-5):
                    weight[place] += move
                    ends.append(loss_of(unroll(cell, x)["state"], V))
                    weight[place] -= move
                slope = (ends[0] - ends[1]) / 2e-5
                close(g[place], slope, tol=1e-7)


@pytest.mark.catalog("SEQ-03")
def test_the_gradient_is_the_sum_over_untied_copies():
    cell, x, V = ElmanCell(3, 5).double(), numbers(4, 6, 3), numbers(2, 5)
    copies = [cell.W.detach().clone().requires_grad_() for _ in range(6)]
    h, states = torch.zeros(4, 5, dtype=torch.float64), []
    for t, W in enumerate(copies):
        h = torch.tanh(h @ W.T + x[:, t] @ cell.U.T + cell.b)
        states.append(h)
    loss_of(torch.stack(states, dim=1), V).backward()
    tied = unroll(cell, x)["state"].detach()
    found = backpropagate_through_time(cell, x, (tied @ V.T - 1) @ V)
    close(found["W"], sum(W.grad for W in copies), tol=1e-10)
    assert not copies[0].grad.any()  # the first step sees a state of zeros


@pytest.mark.catalog("SEQ-04")
@pytest.mark.parametrize("activation", ["tanh", "logistic"])
def test_the_gradient_is_a_double_sum_over_times(activation):
    """∂L/∂θ = Σₜ Σ_{i≤t} (∂Lₜ/∂hₜ)(Π_{j=i+1..t} ∂hⱼ/∂hⱼ₋₁) ∂hᵢ/∂θ, term by term."""
    cell, x, V = ElmanCell(3, 4, activation).double(), numbers(1, 5, 3), numbers(2, 4)
    states = unroll(cell, x)["state"]
    loss_of(states, V).backward()
    h = states.detach()[0]  # (time, hidden)
    bent = 1 - h**2 if activation == "tanh" else h * (1 - h)
    slopes = (h @ V.T - 1) @ V
    W, before = cell.W.detach(), torch.cat([torch.zeros_like(h[:1]), h[:-1]])
    total = {name: torch.zeros_like(getattr(cell, name)) for name in ("W", "U", "b")}
    terms = 0
    for t in range(5):
        for i in range(t + 1):
            row = slopes[t]
            for j in range(t, i, -1):  # ∂hⱼ/∂hⱼ₋₁ = diag(σ̇ⱼ) W
                row = (row * bent[j]) @ W
            inner = row * bent[i]  # ∂hᵢ/∂θ, with the state before held
            total["b"] += inner
            total["W"] += torch.outer(inner, before[i])
            total["U"] += torch.outer(inner, x[0, i])
            terms += 1
    assert terms == 15
    for name, value in total.items():
        close(value, getattr(cell, name).grad, tol=1e-10)


@pytest.mark.catalog("SEQ-05")
@pytest.mark.parametrize("activation", ["tanh", "relu", "identity"])
@pytest.mark.parametrize("scale", [0.5, 1.0, 1.5])
def test_gradients_vanish_or_explode_no_faster_than_the_bound(activation, scale):
    """‖∇_{hᵗ}R‖ ≤ σ_max(W)^{s−t} ‖∇_{hˢ}R‖ where |σ̇| ≤ 1."""
    cell = ElmanCell(3, 6, activation).double()
    with torch.no_grad():
        cell.W.copy_(scale * numbers(6, 6) / 6**0.5)
    x, s = numbers(8, 20, 3), 20
    slopes = torch.zeros(8, s, 6, dtype=torch.float64)
    slopes[:, -1] = numbers(8, 6)  # R sees the last state only
    found = backpropagate_through_time(cell, x, slopes)
    largest = torch.linalg.matrix_norm(cell.W.detach(), 2)
    norms = found["states"].norm(dim=2)  # (batch, time)
    bound = norms[:, -1:] * largest ** (s - 1 - torch.arange(s))
    assert (norms <= bound * (1 + 1e-12)).all()
    # The inputs are one step further: Uᵀ diag(σ̇ᵗ) ∇_{hᵗ}R.
    of_U = torch.linalg.matrix_norm(cell.U.detach(), 2)
    assert (found["x"].norm(dim=2) <= of_U * bound * (1 + 1e-12)).all()


@pytest.mark.catalog("SEQ-05")
@pytest.mark.parametrize("rate", [0.5, 0.9, 1.0, 1.1])
def test_in_a_linear_net_gradients_follow_the_spectrum_exactly(rate):
    cell = ElmanCell(2, 5, "identity").double()
    rotation = torch.linalg.qr(numbers(5, 5))[0]
    with torch.no_grad():
        cell.W.copy_(rate * rotation)  # every singular value is the rate
    slopes = torch.zeros(3, 30, 5, dtype=torch.float64)
    slopes[:, -1] = numbers(3, 5)
    found = backpropagate_through_time(cell, numbers(3, 30, 2), slopes)
    norms = found["states"].norm(dim=2)
    close(norms, norms[:, -1:] * rate ** torch.arange(29.0, -1, -1).double(), 1e-10)


@pytest.mark.catalog("SEQ-05")
def test_in_a_linear_net_an_eigenvector_decays_at_its_own_rate():
    cell = ElmanCell(2, 3, "identity").double()
    with torch.no_grad():
        cell.W.copy_(torch.diag(torch.tensor([0.5, 1.0, 2.0])))
    slopes = torch.zeros(1, 10, 3, dtype=torch.float64)
    slopes[:, -1] = 1.0
    found = backpropagate_through_time(cell, numbers(1, 10, 2), slopes)
    wanted = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64) ** 9
    close(found["states"][0, 0], wanted)
