"""Two players: a generator makes rows from noise, a critic scores rows.

    x = T(z, c),  z ~ N(0, I);      s = S(x, c)

Classes c, where there are any, are a further input of both. A critic that may rise by
at most 1 for each unit of distance is made of orthogonal matrices and sorted pairs:
neither makes a distance larger, and neither has to make a gradient smaller.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.neural_network.modules.arguments import require_count
from certus.neural_network.modules.mlp import MLP


class SortedPairs(nn.Module):
    """Each pair of numbers, the larger one first; no distance grows."""

    def forward(self, h: Tensor) -> Tensor:
        """From (batch, width) to the same; width is even."""
        a, b = h.unflatten(-1, (-1, 2)).unbind(dim=-1)
        return torch.stack([torch.maximum(a, b), torch.minimum(a, b)], -1).flatten(-2)


class LipschitzCritic(nn.Module):
    """Scores of rows that differ by no more than the rows' distance.

    After each step :meth:`project` has to put the matrices back: the nearest one with
    singular values 1 takes the place of each.

    Parameters
    ----------
    n_inputs : int
        Numbers in a row.
    hidden : iterable of int
        Widths of the hidden layers, even numbers.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import LipschitzCritic
    >>> critic = LipschitzCritic(2, (16, 16))
    >>> x = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    >>> bool((critic(x)[1] - critic(x)[0]).abs() <= 5 + 1e-5)
    True
    """

    def __init__(self, n_inputs: int, hidden: Iterable[int]) -> None:
        super().__init__()
        hidden = tuple(require_count("hidden", width) for width in hidden)
        if any(width % 2 for width in hidden):
            raise ValueError(f"hidden must have even numbers only, got {hidden}.")
        self.config: dict[str, Any] = {
            "n_inputs": require_count("n_inputs", n_inputs),
            "hidden": hidden,
        }
        widths = [n_inputs, *hidden, 1]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.sort = SortedPairs()
        self.project()

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, n_inputs) to (batch, 1)."""
        *inner, last = self.layers
        for layer in inner:
            x = self.sort(layer(x))
        scores: Tensor = last(x)
        return scores

    @torch.no_grad()
    def project(self) -> None:
        """Put the nearest matrix with singular values 1 in the place of each."""
        layer: Any
        for layer in self.layers:
            if bool(layer.weight.isfinite().all()):  # else the loss says it, as NaN
                layer.weight.copy_(_polar(layer.weight))


def _polar(W: Tensor) -> Tensor:
    """The nearest matrix with singular values 1."""
    try:
        U, _, Vh = torch.linalg.svd(W, full_matrices=False)
    except torch.linalg.LinAlgError:  # equal singular values, in float32
        U, _, Vh = torch.linalg.svd(W.double(), full_matrices=False)
    return U @ Vh


class Adversarial(nn.Module):
    """A generator and its critic.

    Parameters
    ----------
    n_inputs : int
        Numbers in a row.
    n_components : int
        Normal numbers that a row is made of.
    hidden, critic_hidden : iterable of int
        Widths of the hidden layers of generator and critic.
    n_classes : int, default=0
        Number of classes; both players have an input for each.
    lipschitz : bool, default=False
        Whether the critic may rise by at most 1 for each unit of distance.

    Attributes
    ----------
    config : dict
        The parameters above.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import Adversarial
    >>> net = Adversarial(3, 2, (8,), (8,))
    >>> x = net.generate(torch.zeros(5, 2))
    >>> x.shape, net.score(x).shape
    (torch.Size([5, 3]), torch.Size([5]))
    """

    def __init__(
        self,
        n_inputs: int,
        n_components: int,
        hidden: Iterable[int],
        critic_hidden: Iterable[int],
        *,
        n_classes: int = 0,
        lipschitz: bool = False,
    ) -> None:
        super().__init__()
        hidden, critic_hidden = tuple(hidden), tuple(critic_hidden)
        self.config: dict[str, Any] = {
            "n_inputs": require_count("n_inputs", n_inputs),
            "n_components": require_count("n_components", n_components),
            "hidden": hidden,
            "critic_hidden": critic_hidden,
            "n_classes": int(n_classes),
            "lipschitz": bool(lipschitz),
        }
        self.generator = MLP(n_components + n_classes, hidden, n_inputs)
        seen = n_inputs + n_classes
        self.critic: nn.Module
        if lipschitz:
            self.critic = LipschitzCritic(seen, critic_hidden)
        else:
            self.critic = MLP(seen, critic_hidden, 1, activation="leaky_relu")

    def generate(self, z: Tensor, c: Tensor | None = None) -> Tensor:
        """Rows from noise (batch, n_components), of these classes."""
        rows: Tensor = self.generator(self._told(z, c))
        return rows

    def score(self, x: Tensor, c: Tensor | None = None) -> Tensor:
        """The critic's scores of rows, (batch,)."""
        scores: Tensor = self.critic(self._told(x, c))
        return scores[:, 0]

    def _told(self, x: Tensor, c: Tensor | None) -> Tensor:
        n_classes = self.config["n_classes"]
        if not n_classes:
            return x
        assert c is not None
        return torch.cat([x, F.one_hot(c, n_classes).to(x.dtype)], dim=-1)

    def draw(self, n: int, c: Tensor | None = None) -> Tensor:
        """Rows from noise of torch's generator."""
        one = next(self.generator.parameters())
        z = torch.randn(
            n, self.config["n_components"], dtype=one.dtype, device=one.device
        )
        return self.generate(z, c)
