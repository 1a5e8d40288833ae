"""Normalising flows: an invertible network, and a mixture of Gaussians behind it.

    log p(x) = log r(S(x)) + log |det ∇S(x)|,   S = Sₗ ∘ … ∘ S₁,   r = Σₖ πₖ N(μₖ, Σₖ)

S takes rows to the mixture's space; rows are drawn as S⁻¹(z), z from the mixture. A new
flow is the identity, so its density is the mixture's. Layers see columns scaled to
about ±1 (``middle`` and ``spread``).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from certus.neural_network.modules.arguments import (
    require_choice,
    require_count,
    require_counts,
)
from certus.neural_network.modules.increasing import Monotone, ShiftScale, SumOfSquares
from certus.neural_network.modules.made import Autoregressive, Coupling
from certus.neural_network.modules.planar import Planar
from certus.neural_network.modules.spline import Spline
from certus.typing import ArrayLike

KINDS = ("spline", "affine", "monotone", "sum_of_squares", "linear", "planar")
HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class LinearMap(nn.Module):
    """z = Ax + b with A lower triangular: log |det A| is a sum over its diagonal.

    Parameters
    ----------
    n_inputs : int
        Number of columns.
    """

    def __init__(self, n_inputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(n_inputs), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(n_inputs), requires_grad=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Moved rows (batch, columns), and log |det| of each."""
        total = self.weight.diagonal().abs().log().sum()
        return x @ self.weight.tril().T + self.bias, total.expand(len(x))

    def inverse(self, z: Tensor) -> Tensor:
        """The x that gives z."""
        right = (z - self.bias).T
        return torch.linalg.solve_triangular(self.weight, right, upper=False).T


class Flow(nn.Module):
    """Layers that are inverted exactly, and a mixture behind them.

    Parameters
    ----------
    n_inputs : int
        Number of columns.
    layer : {"spline", "affine", "monotone", "sum_of_squares", "linear", "planar"}
        Kind of the layers.
    coupling : bool
        Whether half of the columns decide over the other half, in place of each over
        those behind it.
    n_layers : int
        How many; the order of columns is reversed from one to the next.
    hidden : tuple of int
        Units of the hidden layers of each layer's network.
    bins : int
        Bins of a spline, or steps of a monotone map.
    degree : int
        Degree of the polynomials whose squares are summed.
    n_components : int
        Components of the mixture.
    covariance : {"full", "diag"}
        Their covariances.

    Attributes
    ----------
    config : dict
        The parameters above.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import Flow
    >>> flow = Flow(3)
    >>> x = torch.randn(5, 3)
    >>> z, log_det = flow(x)
    >>> torch.allclose(flow.inverse(z), x, atol=1e-5), log_det.shape
    (True, torch.Size([5]))
    """

    middle: Tensor
    spread: Tensor
    shares: Tensor
    means: Tensor
    factors: Tensor

    def __init__(
        self,
        n_inputs: int,
        layer: str = "spline",
        coupling: bool = False,
        n_layers: int = 2,
        hidden: tuple[int, ...] = (64, 64),
        bins: int = 8,
        degree: int = 2,
        n_components: int = 1,
        covariance: str = "full",
    ) -> None:
        super().__init__()
        require_choice("layer", layer, KINDS)
        require_choice("covariance", covariance, ("full", "diag"))
        d, k = (
            require_count("n_inputs", n_inputs),
            require_count("n_components", n_components),
        )
        self.config: dict[str, Any] = {
            "n_inputs": d,
            "layer": layer,
            "coupling": bool(coupling),
            "n_layers": require_count("n_layers", n_layers),
            "hidden": require_counts("hidden", hidden),
            "bins": require_count("bins", bins),
            "degree": int(degree),
            "n_components": k,
            "covariance": covariance,
        }
        if coupling and d < 2:
            raise ValueError("coupling needs at least 2 columns that vary, got 1.")
        self.register_buffer("middle", torch.zeros(d))
        self.register_buffer("spread", torch.full((d,), 4.0))
        self.register_buffer("shares", torch.full((k,), 1 / k))
        self.register_buffer("means", torch.zeros(k, d))
        eye = torch.eye(d) if covariance == "full" else torch.ones(d)
        self.register_buffer("factors", eye.expand(k, *eye.shape).clone())
        self.layers = nn.ModuleList([self._layer(i) for i in range(n_layers)])

    def _layer(self, i: int) -> nn.Module:
        config, d = self.config, self.config["n_inputs"]
        if config["layer"] == "planar":
            return Planar(d)
        if config["layer"] == "linear":
            return LinearMap(d)
        each: Any = {
            "spline": lambda: Spline(config["bins"]),
            "affine": ShiftScale,
            "monotone": lambda: Monotone(config["bins"]),
            "sum_of_squares": lambda: SumOfSquares(config["degree"]),
        }[config["layer"]]()
        kind = Coupling if config["coupling"] else Autoregressive
        return kind(d, config["hidden"], each, bool(i % 2))

    @torch.no_grad()
    def start_at(self, shares: ArrayLike, means: ArrayLike, factors: ArrayLike) -> None:
        """Take a mixture: shares πₖ, means, and factors U with Σₖ⁻¹ = UUᵀ.

        Parameters
        ----------
        shares : array of shape (n_components,)
            Positive, with sum 1.
        means : array of shape (n_components, n_inputs)
            Means.
        factors : array of shape (n_components, n_inputs, n_inputs)
            Upper triangular; without the last axis for "diag".
        """
        for name, value in zip(
            ("shares", "means", "factors"), (shares, means, factors)
        ):
            getattr(self, name).copy_(torch.as_tensor(np.asarray(value)))

    @torch.no_grad()
    def look_at(self, middle: ArrayLike, spread: ArrayLike) -> None:
        """Take the middle and half the width of each column's box.

        Parameters
        ----------
        middle, spread : array of shape (n_inputs,)
            In the units of x.
        """
        self.middle.copy_(torch.as_tensor(np.asarray(middle)))
        self.spread.copy_(torch.as_tensor(np.asarray(spread)))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """S(x) and ``log |det ∇S(x)|`` of (batch, n_inputs)."""
        u = (x - self.middle) / self.spread
        log_det = x.new_zeros(len(x))
        for layer in self.layers:
            u, one = layer(u)
            log_det = log_det + one
        return self.middle + self.spread * u, log_det

    def inverse(self, z: Tensor) -> Tensor:
        """S⁻¹(z) of (batch, n_inputs)."""
        u = (z - self.middle) / self.spread
        layers: Any = self.layers
        for layer in reversed(layers):
            u = layer.inverse(u)
        return self.middle + self.spread * u

    def base_log_prob(self, z: Tensor) -> Tensor:
        """The mixture's log-density log r(z)."""
        d, k = z.shape[1], len(self.shares)
        if self.factors.ndim == 3:
            U = self.factors.permute(1, 0, 2).reshape(d, k * d)
            shift = (self.means[:, None] @ self.factors)[:, 0]
            y = (z @ U).unflatten(1, (k, d)) - shift
            log_dets = self.factors.diagonal(dim1=1, dim2=2).log().sum(-1)
        else:
            y = (z[:, None] - self.means) * self.factors
            log_dets = self.factors.log().sum(-1)
        each = self.shares.log() + log_dets - d * HALF_LOG_TWO_PI
        return torch.logsumexp(each - 0.5 * y.square().sum(-1), 1)

    def log_prob(self, x: Tensor) -> Tensor:
        """The log-density log p(x) of (batch, n_inputs)."""
        z, log_det = self(x)
        return self.base_log_prob(z) + log_det

    def draw_base(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Rows of the mixture, float64.

        Parameters
        ----------
        n : int
            How many.
        rng : numpy.random.Generator
            Their random numbers.
        """
        shares, means, factors = (
            part.detach().cpu().double().numpy()
            for part in (self.shares, self.means, self.factors)
        )
        which = rng.choice(len(shares), n, p=shares / shares.sum())
        e = rng.standard_normal((n, means.shape[1]))
        if factors.ndim == 2:
            return means[which] + e / factors[which]
        z = np.empty_like(e)
        for k in np.unique(which):
            at = which == k  # z − μ = eU⁻¹, so that (z − μ)U is standard normal
            z[at] = means[k] + np.linalg.solve(factors[k].T, e[at].T).T
        return z
