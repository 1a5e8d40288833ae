"""
Gradients in deep networks
==========================

A layer learns from the gradient that reaches it through all later layers. A sigmoid
lets through at most a quarter. ReLUs with He's initial weights keep its size on
average. A layer that adds to its input lets the gradient pass.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits

import certus
from certus.neural_network import NeuralClassifier
from certus.neural_network.modules import MLP

# %%
# Forty hidden layers before training: the norm of the gradient with respect to the
# weights of each layer, on one batch of noise. Sigmoids lose the gradient on the way
# down. With Glorot's weights, ReLUs halve the signal on the way up, so the gradients
# are tiny in all layers.

DEPTH, WIDTH = 40, 64
KINDS = {
    "sigmoid": {"activation": "logistic"},
    "ReLU, Glorot's weights": {"init": "glorot"},
    "ReLU, He's weights": {},
    "ReLU, residual": {"residual": True},
}


def gradient_norms(depth, options, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = MLP(WIDTH, (WIDTH,) * depth, 1, **options).double()
        net(torch.randn(128, WIDTH).double()).square().mean().backward()
    return [float(layer.linear.weight.grad.norm()) for layer in net.layers]


figure, ax = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
for name, options in KINDS.items():
    norms = np.median([gradient_norms(DEPTH, options, s) for s in range(5)], axis=0)
    ax.semilogy(np.arange(1, DEPTH + 1), norms, marker=".", label=name)
ax.set_xlabel("hidden layer")
ax.set_ylabel("norm of the gradient")
ax.set_title("Sigmoids: almost no gradient reaches the first layers")
ax.legend(fontsize="small")

# %%
# The effect on training: the same digits, ten epochs, more and more layers. Plain
# networks learn less, or nothing, if they are deep; residual networks learn more.

X, y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)
depths = [2, 5, 10, 20, 40]
figure, ax = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
for name, options in KINDS.items():
    losses = []
    for depth in depths:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            net = MLP(64, (32,) * depth, 10, **options)
        model = NeuralClassifier(net, max_iter=10, random_state=0)
        # Ten epochs are too few, which each fit would say.
        with certus.config_context(on_uncertified="ignore"):
            losses.append(model.fit(X, y).loss_)
    ax.plot(depths, losses, marker="o", label=name)
ax.axhline(np.log(10), color="grey", linestyle=":", label="guessing")
ax.set_xscale("log", base=2)
ax.set_xticks(depths, [str(d) for d in depths])
ax.set_xlabel("hidden layers")
ax.set_ylabel("training loss after ten epochs")
ax.set_title("Deep plain networks learn less")
ax.set_ylim(0, 3.6)
ax.legend(fontsize="small", loc="upper left", ncols=2)
plt.show()
