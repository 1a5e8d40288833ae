"""What networks do with a prompt: examples in it, and steps written after it.

Prompts of in-context regression hold pairs x, y = wᵀx/√2 with a w of their own; the
network predicts y at each x, before it sees it. Without an example the best mean
squared error is 1, the variance of y; k examples leave 2 − k of 2 directions open.
Chains are the last digits of the sums of the first 1, 2, …, 6 digits; an answer at once
is the last of them.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from torch import nn

D, PAIRS = 2, 6


class Reader(nn.Module):
    """A causal transformer whose outputs at the places of x predict y."""

    def __init__(self, width: int = 32, layers: int = 2) -> None:
        from certus.neural_network.modules import MultiHeadAttention

        super().__init__()
        self.embed, self.output = nn.Linear(D + 1, width), nn.Linear(width, 1)
        self.looks, self.thinks, self.norms = (nn.ModuleList() for _ in range(3))
        for _ in range(layers):
            inner = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            self.looks.append(MultiHeadAttention(width, 2, rotary=True))
            self.thinks.append(nn.Sequential(*inner))
            self.norms.extend([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.norms.append(nn.LayerNorm(width))

    def forward(self, tokens: Any) -> Any:
        h = self.embed(tokens)
        for i, (look, think) in enumerate(zip(self.looks, self.thinks)):
            h = h + look(self.norms[2 * i](h), causal=True)[0]
            h = h + think(self.norms[2 * i + 1](h))
        return self.output(self.norms[-1](h))[:, ::2, 0]


def prompts(n: int, rng: Any) -> tuple[Any, Any]:
    """Tokens x, y, x, y, …, each with a w of its own; and the values y."""
    x, w = rng.normal(size=(n, PAIRS, D)), rng.normal(size=(n, D))
    y = np.einsum("npd,nd->np", x, w) / np.sqrt(D)
    tokens = np.zeros((n, 2 * PAIRS, D + 1), dtype=np.float32)
    tokens[:, ::2, :D], tokens[:, 1::2, D] = x, y
    return tokens, y.astype(np.float32)


@lru_cache(maxsize=3)
def errors(seed: int) -> tuple[float, ...]:
    """Mean squared errors after 0, 1, … examples, on 2,000 new prompts."""
    import certus
    from certus.neural_network import NeuralRegressor

    rng = np.random.default_rng(seed)
    options = {"learning_rate": 3e-3, "schedule": "cosine", "warmup": 0.1, "clip": 1.0}
    model = NeuralRegressor(
        lambda n_inputs, n_outputs: Reader(), max_iter=8, random_state=seed, **options
    )
    with certus.config_context(certify="never"):
        model.fit(*prompts(8000, rng))
    X, y = prompts(2000, rng)
    found = ((model.predict(X) - y) ** 2).mean(axis=0)
    return tuple(float(value) for value in found)


def chains(seed: int, written: bool) -> float:
    """Share of right last digits after 4,000 chains, on 500 others."""
    from certus.neural_network import Seq2Seq

    digits = np.random.default_rng(seed).integers(10, size=(4500, 6))
    so_far = digits.cumsum(axis=1) % 10
    answers = so_far if written else so_far[:, -1:]
    X, y = (["".join(map(str, row)) for row in part] for part in (digits, answers))
    model = Seq2Seq(
        network="transformer", width=32, n_layers=2, max_iter=20, random_state=seed
    )
    found = model.fit(X[:4000], y[:4000]).predict(X[4000:])
    return float(np.mean([a[-1:] == b[-1] for a, b in zip(found, y[4000:])]))
