"""The feed-forward part of a transformer's layer, the same at each position.

W₂ φ(W₁ x + b₁) + b₂,   with gates W₂ (silu(W₁x) ⊙ W₃x)
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "relu2", "swiglu")


class FeedForward(nn.Module):
    """W₂ φ(W₁ x + b₁) + b₂ at each position; for "swiglu" W₂ (silu(W₁x) ⊙ W₃x)."""

    def __init__(self, width: int, hidden: int, activation: str, bias: bool) -> None:
        super().__init__()
        self.activation = activation
        gates = 2 if activation == "swiglu" else 1
        self.inner = nn.Linear(width, gates * hidden, bias=bias)
        self.outer = nn.Linear(hidden, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """From (..., width) to (..., width)."""
        h = self.inner(x)
        match self.activation:
            case "gelu":
                h = F.gelu(h)
            case "gelu_tanh":
                h = F.gelu(h, approximate="tanh")
            case "relu":
                h = F.relu(h)
            case "relu2":
                h = F.relu(h).square()
            case _:
                a, b = h.chunk(2, dim=-1)
                h = F.silu(a) * b
        return self.outer(h)
