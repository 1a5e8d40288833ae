"""
Backpropagation and normalisation
=================================

How a gradient runs back through a network, what it costs, and what batch normalisation
does to the length of weights.
"""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import torch

rng = np.random.default_rng(0)

# %%
# **Backpropagation.** For layers z ← tanh(Wᵀz + b) and the loss ½‖z − y‖² the error
# signal runs from the last layer to the first, δ ← (Wδ) ⊙ φ′, and the slope of each
# weight is the product of the signal above it and the input below it. Each layer costs
# three products with its matrix (the first only two): linear in the depth.


def backpropagate(layers, x, y):
    """Gradients of all weights, and the multiplications they took."""
    states, z, cost = [x], x, 0
    for W, b in layers:
        z = np.tanh(W.T @ z + b)
        states.append(z)
        cost += W.size
    delta, gradients = (z - y) * (1 - z**2), []
    for i in reversed(range(len(layers))):
        W = layers[i][0]
        gradients.insert(0, np.outer(states[i], delta))
        cost += W.size
        if i:
            delta = (W @ delta) * (1 - states[i] ** 2)
            cost += W.size
    return gradients, cost


def random_layers(widths):
    return [
        (rng.normal(size=(a, b)) / a**0.5, np.zeros(b)) for a, b in pairwise(widths)
    ]


layers, x, y = random_layers((4, 5, 3)), rng.normal(size=4), rng.normal(size=3)
gradients, _ = backpropagate(layers, x, y)
weights = [torch.tensor(W, requires_grad=True) for W, _ in layers]
z = torch.tensor(x)
for W in weights:
    z = torch.tanh(W.T @ z)
(0.5 * (z - torch.tensor(y)).square().sum()).backward()
for W, gradient in zip(weights, gradients, strict=True):
    np.testing.assert_allclose(W.grad, gradient, rtol=1e-12)

depths = [1, 2, 4, 8, 16, 32]
costs = [
    backpropagate(random_layers((10,) * (d + 1)), np.ones(10), np.ones(10))[1]
    for d in depths
]
assert costs == [(3 * d - 1) * 100 for d in depths]

# %%
# **Batch normalisation** takes mean and scale of each unit away, so the output does
# not change when the weights grow or shrink: BN(aWx + b) = BN(Wx) for a > 0. Three
# things follow. The gradient is orthogonal to the weights. It is a times smaller where
# the weights are a times longer. And weight decay does not simplify the network, it
# only raises the learning rate that counts.

X, target = torch.randn(30, 5).double(), torch.randn(30, 4).double()


def loss_of(W):
    out = torch.nn.functional.batch_norm(X @ W.T, None, None, training=True, eps=1e-14)
    return ((torch.tanh(out) - target) ** 2).mean()


def slope(W):
    W = W.clone().requires_grad_()
    return torch.autograd.grad(loss_of(W), W)[0]


W = torch.randn(4, 5).double()
assert torch.allclose(loss_of(W), loss_of(7 * W))
assert torch.allclose(slope(7 * W), slope(W) / 7)
assert ((slope(W) * W).sum(dim=1).abs() < 1e-12).all()


def train(decay, rate, growth=1.0):
    V, losses = W, []
    for _ in range(40):
        losses.append(loss_of(V).item())
        V = decay * V - rate * slope(V)
        rate *= growth
    return losses


decayed = train(0.95, 0.1)
same = train(1.0, 0.1 / 0.95, growth=0.95**-2)
np.testing.assert_allclose(decayed, same, rtol=1e-6)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
left.plot(depths, costs, "o-")
left.set(title="Multiplications for one gradient", xlabel="layers of 10 units")
right.plot(train(1.0, 0.1), label="plain")
right.plot(decayed, label="weight decay")
right.plot(same, "k:", label="no decay, rate grows")
right.set(title="Loss with batch normalisation", xlabel="step")
right.legend()
plt.show()
