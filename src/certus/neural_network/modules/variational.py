"""Variational autoencoders: a decoder from a normal code, and a guess at the code.

    z ~ N(0, I),  x | z ~ N(m(z), σ²I) or Bernoulli(sigmoid m(z)),
    q(z | x) = N(μ(x), diag s²(x)),   KL(q ‖ N(0, I)) = ½ Σ (μ² + s² − 1 − log s²)

Both networks are perceptrons with ReLU. Classes, where there are any, are a further
input of both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.neural_network.modules.arguments import require_choice, require_count
from certus.neural_network.modules.mlp import MLP

LIKELIHOODS = ("normal", "bernoulli")
#: The least logarithm of σ², so that rows in a subspace have a density.
LEAST = -14.0


class Code(NamedTuple):
    """q(z | x): mean and logarithm of the variance, (batch, n_components) each."""

    mean: Tensor
    log_variance: Tensor

    def draw(self, n_draws: int = 1, *, alike: bool = False) -> Tensor:
        """Codes z = μ + s·η with normal η, (n_draws, batch, n_components).

        With ``alike`` all rows have the same η.
        """
        return self.placed(self.numbers(n_draws, alike))

    def numbers(self, n_draws: int, alike: bool) -> Tensor:
        """Normal η, (n_draws, batch, n_components)."""
        n, k = self.mean.shape
        shape = (n_draws, 1 if alike else n, k)
        return torch.randn(shape, dtype=self.mean.dtype, device=self.mean.device)

    def placed(self, eta: Tensor) -> Tensor:
        """Codes z = μ + s·η."""
        return self.mean + (0.5 * self.log_variance).exp() * eta

    def divergence(self) -> Tensor:
        """KL(q ‖ N(0, I)) of each component, (batch, n_components)."""
        v = self.log_variance
        return 0.5 * (self.mean.square() + torch.expm1(v) - v)

    def log_prob(self, z: Tensor) -> Tensor:
        """Log q(z | x), (n_draws, batch)."""
        v = self.log_variance
        squares = (z - self.mean).square() * (-v).exp()
        return -0.5 * (squares + v + math.log(2 * math.pi)).sum(dim=-1)


class Variational(nn.Module):
    """Encoder and decoder of a variational autoencoder.

    Parameters
    ----------
    n_inputs : int
        Numbers in a row.
    n_components : int
        Numbers in a code.
    hidden : iterable of int
        Widths of the encoder's hidden layers; the decoder has them in reverse. With ()
        both are linear.
    likelihood : {"normal", "bernoulli"}, default="normal"
        Law of a row, given its code.
    n_classes : int, default=0
        Number of classes; both networks have an input for each.

    Attributes
    ----------
    config : dict
        The parameters above.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import Variational
    >>> net = Variational(5, 2, (16,))
    >>> net.encode(torch.zeros(3, 5)).mean.shape, net.decode(torch.zeros(3, 2)).shape
    (torch.Size([3, 2]), torch.Size([3, 5]))
    """

    def __init__(
        self,
        n_inputs: int,
        n_components: int,
        hidden: Iterable[int],
        *,
        likelihood: str = "normal",
        n_classes: int = 0,
    ) -> None:
        super().__init__()
        hidden = tuple(require_count("hidden", width) for width in hidden)
        n_inputs = require_count("n_inputs", n_inputs)
        n_components = require_count("n_components", n_components)
        require_choice("likelihood", likelihood, LIKELIHOODS)
        self.config: dict[str, Any] = {
            "n_inputs": n_inputs,
            "n_components": n_components,
            "hidden": hidden,
            "likelihood": likelihood,
            "n_classes": int(n_classes),
        }
        self.encoder = MLP(n_inputs + n_classes, hidden, 2 * n_components)
        self.decoder = MLP(n_components + n_classes, hidden[::-1], n_inputs)
        # σ² begins at the spread of standardised rows.
        noise = torch.zeros(1) if likelihood == "normal" else None
        self.log_noise = None if noise is None else nn.Parameter(noise)

    def encode(self, x: Tensor, c: Tensor | None = None) -> Code:
        """q(z | x) of rows (batch, n_inputs), of these classes."""
        return Code(*self.encoder(self._told(x, c)).chunk(2, dim=-1))

    def decode(self, z: Tensor, c: Tensor | None = None) -> Tensor:
        """m(z) of codes (..., n_components)."""
        shape = z.shape[:-1]
        c = None if c is None else c.expand(shape).reshape(-1)
        rows: Tensor = self.decoder(self._told(z.reshape(-1, z.shape[-1]), c))
        return rows.reshape(*shape, -1)

    def _told(self, x: Tensor, c: Tensor | None) -> Tensor:
        n_classes = self.config["n_classes"]
        if not n_classes:
            return x
        assert c is not None
        return torch.cat([x, F.one_hot(c, n_classes).to(x.dtype)], dim=-1)

    def noise(self) -> Tensor:
        """σ² of a normal likelihood, (1,)."""
        assert self.log_noise is not None
        return self.log_noise.clamp(min=LEAST).exp()

    def log_likelihood(self, x: Tensor, m: Tensor) -> Tensor:
        """Log p(x | z) from m(z), (..., batch)."""
        if self.log_noise is None:
            return (x * m - F.softplus(m)).sum(dim=-1)
        noise = self.noise()
        each = (x - m).square() / noise + noise.log() + math.log(2 * math.pi)
        return -0.5 * each.sum(dim=-1)

    def log_weights(
        self,
        x: Tensor,
        c: Tensor | None = None,
        n_draws: int = 1,
        *,
        alike: bool = False,
    ) -> Tensor:
        """Log p(x, z)/q(z | x) at codes drawn from q, (n_draws, batch).

        Log q is taken from η: z − μ would be lost in rounding where s is small.
        """
        code = self.encode(x, c)
        eta = code.numbers(n_draws, alike)
        z = code.placed(eta)
        # Log N(z; 0, I) − log q(z | x); both have the same constant.
        gain = 0.5 * (eta.square() - z.square() + code.log_variance).sum(dim=-1)
        return self.log_likelihood(x, self.decode(z, c)) + gain
