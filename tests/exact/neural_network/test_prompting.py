"""What networks do with a prompt: examples in it, and steps written after it.

The gallery shows both experiments; here their outcomes are compared with what theory
allows, and with guessing.
"""

import numpy as np
import pytest
import torch
from torch import nn

import certus
from certus.neural_network import NeuralRegressor, Seq2Seq
from certus.neural_network.modules import MultiHeadAttention

D, PAIRS = 2, 6


def prompts(n, seed):
    """Tokens x, y, x, y, ... with y = wᵀx/√d, a w for each row; and the values y."""
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=(n, PAIRS, D)), rng.normal(size=(n, D))
    y = np.einsum("npd,nd->np", x, w) / np.sqrt(D)
    tokens = np.zeros((n, 2 * PAIRS, D + 1), dtype=np.float32)
    tokens[:, ::2, :D], tokens[:, 1::2, D] = x, y
    return tokens, y.astype(np.float32)


class Reader(nn.Module):
    """A causal transformer whose outputs at the places of x predict y."""

    def __init__(self, width=32, layers=2):
        super().__init__()
        self.embed, self.output = nn.Linear(D + 1, width), nn.Linear(width, 1)
        self.looks, self.thinks, self.norms = (nn.ModuleList() for _ in range(3))
        for _ in range(layers):
            inner = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            self.looks.append(MultiHeadAttention(width, 2, rotary=True))
            self.thinks.append(nn.Sequential(*inner))
            self.norms.extend([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.norms.append(nn.LayerNorm(width))

    def forward(self, tokens):
        h = self.embed(tokens)
        for i, (look, think) in enumerate(zip(self.looks, self.thinks)):
            h = h + look(self.norms[2 * i](h), causal=True)[0]
            h = h + think(self.norms[2 * i + 1](h))
        return self.output(self.norms[-1](h))[:, ::2, 0]


@pytest.mark.slow
@pytest.mark.catalog("LM-07")
def test_the_error_falls_with_examples_in_the_prompt_and_no_weight_moves():
    torch.manual_seed(0)
    options = {"learning_rate": 3e-3, "schedule": "cosine", "warmup": 0.1, "clip": 1.0}
    with certus.config_context(certify="never"):
        model = NeuralRegressor(Reader(), max_iter=8, random_state=0, **options)
        model.fit(*prompts(8000, seed=0))
    before = [p.clone() for p in model.module_.parameters()]
    X, y = prompts(2000, seed=1)
    squares = (model.predict(X) - y) ** 2
    for p, q in zip(before, model.module_.parameters()):
        assert torch.equal(p, q)
    errors = squares.mean(axis=0)
    spread = 4 * squares.std(axis=0) / np.sqrt(len(y))
    # Without examples y has variance 1; k of them leave d − k of d directions open.
    best = np.maximum(0, 1 - np.arange(PAIRS) / D)
    assert (errors > best - spread).all()
    assert errors[0] < 1 + spread[0] and errors[1] < 0.65
    assert errors[1] < errors[0] - 0.3 and errors[3:].mean() < errors[1] - 0.1
    # It is the pairs that tell: with the values of another function they mislead.
    wrong = X.copy()
    wrong[:, 1::2] = np.roll(X[:, 1::2], 1, axis=0)
    misled = ((model.predict(wrong) - y) ** 2).mean(axis=0)
    assert misled[1:].min() > 1.2


@pytest.mark.slow
@pytest.mark.catalog("LM-08")
def test_steps_that_are_written_down_beat_answers_at_once():
    digits = np.random.default_rng(0).integers(10, size=(4500, 6))
    so_far = digits.cumsum(axis=1) % 10
    X = ["".join(map(str, row)) for row in digits]
    shares = {}
    for name, answers in (("at once", so_far[:, -1:]), ("in steps", so_far)):
        y = ["".join(map(str, row)) for row in answers]
        model = Seq2Seq(network="transformer", hidden=32, layers=2, max_iter=10)
        model.set_params(random_state=0).fit(X[:4000], y[:4000])
        found = model.predict(X[4000:])
        shares[name] = np.mean([a[-1:] == b[-1] for a, b in zip(found, y[4000:])])
    assert shares["in steps"] > 0.9
    assert shares["at once"] < 0.3  # one digit in ten by guessing
