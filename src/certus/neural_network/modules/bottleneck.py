"""Autoencoders: rows to codes and back, by two perceptrons.

    z = E(x),   r(x) = D(z)

Of a sparse code only the entries of largest size are kept, the others are zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from certus.neural_network.modules.arguments import require_count
from certus.neural_network.modules.mlp import MLP


class Bottleneck(nn.Module):
    """Encoder and decoder of an autoencoder, perceptrons with ReLU.

    Parameters
    ----------
    n_inputs : int
        Numbers in a row.
    n_components : int
        Numbers in a code.
    hidden : iterable of int
        Widths of the encoder's hidden layers; the decoder has them in reverse. With ()
        both are linear.
    n_active : int, optional
        How many entries of a code may differ from zero; all by default.

    Attributes
    ----------
    config : dict
        The parameters above.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import Bottleneck
    >>> net = Bottleneck(5, 4, (16,), n_active=2)
    >>> z = net.encode(torch.ones(3, 5))
    >>> net.decode(z).shape, (z != 0).sum(dim=1).tolist()
    (torch.Size([3, 5]), [2, 2, 2])
    """

    def __init__(
        self,
        n_inputs: int,
        n_components: int,
        hidden: Iterable[int],
        *,
        n_active: int | None = None,
    ) -> None:
        super().__init__()
        hidden = tuple(require_count("hidden", width) for width in hidden)
        n_inputs = require_count("n_inputs", n_inputs)
        n_components = require_count("n_components", n_components)
        if n_active is not None and not 1 <= int(n_active) <= n_components:
            raise ValueError(
                f"n_active must be from 1 to n_components={n_components}, got "
                f"{n_active}."
            )
        self.config: dict[str, Any] = {
            "n_inputs": n_inputs,
            "n_components": n_components,
            "hidden": hidden,
            "n_active": None if n_active is None else int(n_active),
        }
        self.encoder = MLP(n_inputs, hidden, n_components)
        self.decoder = MLP(n_components, hidden[::-1], n_inputs)

    def encode(self, x: Tensor) -> Tensor:
        """Codes of rows (batch, n_inputs)."""
        z: Tensor = self.encoder(x)
        n_active = self.config["n_active"]
        if n_active is None or n_active == z.shape[1]:
            return z
        kept = z.abs().topk(n_active, dim=1).indices
        return z * torch.zeros_like(z).scatter_(1, kept, 1.0)

    def decode(self, z: Tensor) -> Tensor:
        """Rows of codes (batch, n_components)."""
        rows: Tensor = self.decoder(z)
        return rows

    def forward(self, x: Tensor) -> Tensor:
        """Rows as they come back."""
        return self.decode(self.encode(x))
