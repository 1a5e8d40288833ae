"""Denoisers: what a row was before noise, E[x₀ | x], x = x₀ + σε with normal ε.

    D(x, σ) = c_skip(σ)·x + c_out(σ)·F(c_in(σ)·x, σ),   F a network

Each noising is one choice of the three factors, so that F is asked for something of
about unit size: "edm" for a mixture of row and noise, "variance_preserving" for the
noise, "flow_matching" for the difference of noise and row. Columns have unit spread.

F sees log σ by cosines and sines, and the class of the row by an input for each class;
these are zero for a row of unknown class.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.neural_network.modules.arguments import require_choice, require_count

NOISINGS = ("edm", "variance_preserving", "flow_matching")
#: Angular frequencies of (log σ)/4, of which F sees a cosine and a sine.
FREQUENCIES = tuple(2 * math.pi * 2 ** (k / 2 - 2) for k in range(8))
#: Range of σ that is learnt and used, of rows with unit spread.
LEAST, MOST = 0.002, 80.0


class Preconditioning(NamedTuple):
    """The factors c_skip, c_out and c_in of a denoiser."""

    skip: Any
    out: Any
    inner: Any


def preconditioning(noising: str, sigma: Tensor) -> Preconditioning:
    """The factors at noise levels σ, as columns."""
    s = sigma[:, None]
    if noising == "edm":
        v = 1 + s.square()
        return Preconditioning(1 / v, s / v.sqrt(), 1 / v.sqrt())
    if noising == "variance_preserving":
        return Preconditioning(torch.ones_like(s), -s, 1 / (1 + s.square()).sqrt())
    return Preconditioning(1 / (1 + s), -s / (1 + s), 1 / (1 + s))


def noise_levels(noising: str, u: Tensor) -> Tensor:
    """Levels σ to train at, from numbers u that are uniform between 0 and 1."""
    if noising == "edm":
        sigma = torch.exp(1.2 * torch.special.ndtri(u) - 0.5)
    elif noising == "variance_preserving":  # rate rising from 0.1 to 20
        sigma = torch.expm1(0.1 * u + 9.95 * u.square()).sqrt()
    else:
        sigma = u / (1 - u)
    return sigma.clamp(LEAST, MOST)


class _Preconditioned(nn.Module):
    """What denoisers share; ``network(z, told)`` is F."""

    config: dict[str, Any]

    def forward(self, x: Tensor, sigma: Tensor, c: Tensor | None = None) -> Tensor:
        """D of rows (batch, n_inputs) at levels (batch,); classes, -1 if unknown."""
        by = preconditioning(self.config["noising"], sigma)
        return by.skip * x + by.out * self.network(by.inner * x, self.told(sigma, c))

    def loss(
        self, x: Tensor, noisy: Tensor, sigma: Tensor, c: Tensor | None = None
    ) -> Tensor:
        """The mean square of F − target, where F = target gives D = x."""
        by = preconditioning(self.config["noising"], sigma)
        found = self.network(by.inner * noisy, self.told(sigma, c))
        return (found - (x - by.skip * noisy) / by.out).square().mean()

    def network(self, z: Tensor, told: Tensor) -> Tensor:
        """F of scaled rows."""
        raise NotImplementedError

    def told(self, sigma: Tensor, c: Tensor | None) -> Tensor:
        """Cosines and sines of the noise level, and the class."""
        frequencies = torch.tensor(FREQUENCIES, dtype=sigma.dtype, device=sigma.device)
        angle = (0.25 * sigma.log())[:, None] * frequencies
        parts = [angle.cos(), angle.sin()]
        if self.config["n_classes"]:
            if c is None:
                c = torch.full(sigma.shape, -1, device=sigma.device)
            every = torch.arange(self.config["n_classes"], device=sigma.device)
            parts.append((c[:, None] == every).to(sigma.dtype))
        return torch.cat(parts, dim=1)


class Denoiser(_Preconditioned):
    """A perceptron that removes noise from rows.

    h ← h + silu(W[h, told] + b); where widths differ, h is not added.

    Parameters
    ----------
    n_inputs : int
        Numbers in a row.
    hidden : iterable of int
        Width of each hidden layer.
    noising : {"edm", "variance_preserving", "flow_matching"}, default="edm"
        What the network is asked for.
    n_classes : int, default=0
        Number of classes, each of which has an input.

    Attributes
    ----------
    config : dict
        The parameters above.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import Denoiser
    >>> net = Denoiser(5, (16, 16))
    >>> net(torch.zeros(3, 5), torch.ones(3)).shape
    torch.Size([3, 5])
    """

    def __init__(
        self,
        n_inputs: int,
        hidden: Iterable[int],
        *,
        noising: str = "edm",
        n_classes: int = 0,
    ) -> None:
        super().__init__()
        hidden = tuple(require_count("hidden", width) for width in hidden)
        n_inputs = require_count("n_inputs", n_inputs)
        require_choice("noising", noising, NOISINGS)
        self.config = {
            "n_inputs": n_inputs,
            "hidden": hidden,
            "noising": noising,
            "n_classes": int(n_classes),
        }
        extra = 2 * len(FREQUENCIES) + int(n_classes)
        widths = (n_inputs, *hidden)
        self.layers = nn.ModuleList(
            nn.Linear(a + extra, b) for a, b in zip(widths, hidden)
        )
        self.output = _zero(nn.Linear(widths[-1], n_inputs))

    def network(self, z: Tensor, told: Tensor) -> Tensor:
        """F of scaled rows."""
        h = z
        for i, layer in enumerate(self.layers):
            new = F.silu(layer(torch.cat([h, told], dim=1)))
            h = h + new if i and new.shape == h.shape else new
        return self.output(h)


class UNet(_Preconditioned):
    """A small U-Net that removes noise from images, given as flat rows.

    Each level halves height and width; odd sizes are padded with zeros. The first layer
    sees where a pixel is, by two further channels.

    Parameters
    ----------
    image_shape : (int, int, int)
        Channels, height and width.
    hidden : iterable of int
        Channels of each level.
    noising : {"edm", "variance_preserving", "flow_matching"}, default="edm"
        What the network is asked for.
    n_classes : int, default=0
        Number of classes, each of which has an input.
    channels_first : bool, default=True
        Whether channels come first in a flat row.

    Attributes
    ----------
    config : dict
        The parameters above.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import UNet
    >>> net = UNet((1, 7, 5), (8, 16))
    >>> net(torch.zeros(3, 35), torch.ones(3)).shape
    torch.Size([3, 35])
    """

    def __init__(
        self,
        image_shape: Iterable[int],
        hidden: Iterable[int],
        *,
        noising: str = "edm",
        n_classes: int = 0,
        channels_first: bool = True,
    ) -> None:
        super().__init__()
        hidden = tuple(require_count("hidden", width) for width in hidden)
        channels, height, width = (require_count("sides", n) for n in image_shape)
        require_choice("noising", noising, NOISINGS)
        self.config = {
            "image_shape": (channels, height, width),
            "hidden": hidden,
            "noising": noising,
            "n_classes": int(n_classes),
            "channels_first": bool(channels_first),
        }
        told = 2 * len(FREQUENCIES) + int(n_classes)
        self.first = nn.Conv2d(channels + 2, hidden[0], 3, padding=1)
        pairs = list(zip((hidden[0], *hidden), hidden))
        self.down = nn.ModuleList(ToldBlock(a, b, told) for a, b in pairs)
        self.middle = ToldBlock(hidden[-1], hidden[-1], told)
        self.up = nn.ModuleList(ToldBlock(2 * b, a, told) for a, b in reversed(pairs))
        self.last = _zero(nn.Conv2d(hidden[0], channels, 3, padding=1))

    def network(self, z: Tensor, told: Tensor) -> Tensor:
        """F of scaled rows."""
        channels, height, width = self.config["image_shape"]
        if self.config["channels_first"]:
            x = z.reshape(-1, channels, height, width)
        else:
            x = z.reshape(-1, height, width, channels).permute(0, 3, 1, 2)
        step = 2 ** (len(self.down) - 1)
        x = F.pad(x, (0, -width % step, 0, -height % step))
        h = self.first(torch.cat([x, _places(x)], dim=1))
        kept = []
        for i, block in enumerate(self.down):
            h = block(F.avg_pool2d(h, 2) if i else h, told)
            kept.append(h)
        h = self.middle(h, told)
        for i, block in enumerate(self.up):
            h = F.interpolate(h, scale_factor=2.0) if i else h
            h = block(torch.cat([h, kept.pop()], dim=1), told)
        found = self.last(F.silu(h))[:, :, :height, :width]
        if not self.config["channels_first"]:
            found = found.permute(0, 2, 3, 1)
        return found.reshape(len(z), -1)


class ToldBlock(nn.Module):
    """Two convolutions that add to their input, told of noise level and class."""

    def __init__(self, n_inputs: int, n_outputs: int, told: int) -> None:
        super().__init__()
        self.before = nn.GroupNorm(math.gcd(8, n_inputs), n_inputs)
        self.enter = nn.Conv2d(n_inputs, n_outputs, 3, padding=1)
        # After the norm, which would take away what was added before.
        self.tell = nn.Linear(told, 2 * n_outputs)
        self.between = nn.GroupNorm(math.gcd(8, n_outputs), n_outputs)
        self.leave = _zero(nn.Conv2d(n_outputs, n_outputs, 3, padding=1))
        same = n_inputs == n_outputs
        self.skip = nn.Identity() if same else nn.Conv2d(n_inputs, n_outputs, 1)

    def forward(self, h: Tensor, told: Tensor) -> Tensor:
        """From (batch, n_inputs, ...) to (batch, n_outputs, ...)."""
        scale, shift = self.tell(told)[:, :, None, None].chunk(2, dim=1)
        new = self.between(self.enter(F.silu(self.before(h))))
        new = self.leave(F.silu(new * (1 + scale) + shift))
        return self.skip(h) + new


def _places(x: Tensor) -> Tensor:
    """Row and column of each pixel, from -1 to 1, (batch, 2, height, width)."""
    n, _, height, width = x.shape
    sides = (
        torch.linspace(-1, 1, m, dtype=x.dtype, device=x.device)
        for m in (height, width)
    )
    grid = torch.stack(torch.meshgrid(*sides, indexing="ij"))
    return grid.expand(n, 2, height, width)


def _zero(layer: Any) -> Any:
    """A layer that begins at zero."""
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
