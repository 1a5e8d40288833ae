"""
Learning from examples in the prompt
====================================

A network reads pairs of a point x and its value y = wᵀx, one after the other, and is
asked for y whenever it has read an x. Each sequence has a w of its own, which stands
nowhere. What the network learns in training is not a w but how to find one: at the end
its weights stay as they are, and its error falls with the number of examples that it
reads.
"""

import matplotlib.pyplot as plt
import numpy as np
from torch import nn

from certus.neural_network import NeuralRegressor
from certus.neural_network.modules import MultiHeadAttention


def prompts(n, pairs=6, d=2, seed=0):
    """Tokens x, y, x, y, ... of n functions, and the values that are asked for."""
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=(n, pairs, d)), rng.normal(size=(n, d))
    y = np.einsum("npd,nd->np", x, w) / np.sqrt(d)
    tokens = np.zeros((n, 2 * pairs, d + 1), dtype=np.float32)
    tokens[:, ::2, :d], tokens[:, 1::2, d] = x, y
    return tokens, y.astype(np.float32)


class Reader(nn.Module):
    """A causal transformer; its outputs at the places of x are predictions of y."""

    def __init__(self, n_inputs=3, width=32, n_layers=2):
        super().__init__()
        self.embed, self.output = nn.Linear(n_inputs, width), nn.Linear(width, 1)
        self.looks, self.thinks, self.norms = (nn.ModuleList() for _ in range(3))
        for _ in range(n_layers):
            inner = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            self.looks.append(MultiHeadAttention(width, 2, rotary=True))
            self.thinks.append(nn.Sequential(*inner))
            self.norms.extend([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.norms.append(nn.LayerNorm(width))

    def forward(self, tokens):
        h = self.embed(tokens)  # (batch, 2 · pairs, width)
        for i, (look, think) in enumerate(zip(self.looks, self.thinks)):
            h = h + look(self.norms[2 * i](h), causal=True)[0]
            h = h + think(self.norms[2 * i + 1](h))
        return self.output(self.norms[-1](h))[:, ::2, 0]  # (batch, pairs)


X, y = prompts(8000)
model = NeuralRegressor(
    lambda n_inputs, n_outputs: Reader(),  # so that random_state seeds its weights
    learning_rate=3e-3,
    schedule="cosine",
    warmup=0.1,
    clip=1.0,
    max_iter=8,
    random_state=0,
).fit(X, y)

# %%
# Functions that it has never seen. Without an example the best answer is 0, with an
# error of 1. One example fixes w along one of two directions, which leaves an error of
# ½; from two examples on one could solve for w.

X_new, y_new = prompts(2000, seed=1)
errors = np.mean((model.predict(X_new) - y_new) ** 2, axis=0)
best = np.maximum(0, 1 - np.arange(6) / 2)
for k, (error, bound) in enumerate(zip(errors, best)):
    print(f"{k} examples: error {error:.2f}, the best possible {bound:.2f}")

# %%
# The network cannot be better than the best possible, and with more training it comes
# nearer.

figure, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ax.plot(errors, "o-", label="network, weights fixed")
ax.plot(best, "k:", label="best possible")
ax.set_xlabel("examples in the prompt")
ax.set_ylabel("mean squared error")
ax.set_ylim(0, 1.1)
ax.legend()
plt.show()
