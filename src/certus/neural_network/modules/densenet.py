"""Dense networks: each layer sees the maps of all earlier ones of its block.

A block of L layers of growth g turns c maps into c + L·g; a transition halves their
number and their sides. Images may have any size, since the last maps are
averaged over all pixels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.neural_network.modules.arguments import require_count, require_counts
from certus.neural_network.modules.cnn import he_


class DenseNet(nn.Module):
    """Blocks whose layers concatenate their maps to what they see.

    Parameters
    ----------
    in_channels : int
        Channels of an image.
    n_outputs : int
        Scores for each image.
    growth : int, default=12
        Maps that each layer adds.
    n_layers : tuple of int, default=(4, 4, 4)
        Layers of each block.
    large : bool, default=False
        Begin with a 7×7 convolution of stride 2 and a pooling, for images of more than
        about a hundred pixels a side.

    Attributes
    ----------
    config : dict
        The parameters above.
    features : nn.Sequential
        All layers up to the maps that are averaged.
    output : nn.Linear
        The head; replace it to reuse the layers below for another task.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import DenseNet
    >>> net = DenseNet(3, 10, growth=8, n_layers=(2, 2))
    >>> net.features(torch.zeros(2, 3, 32, 32)).shape  # (16 + 16) / 2 + 16 maps
    torch.Size([2, 32, 16, 16])
    """

    def __init__(
        self,
        in_channels: int,
        n_outputs: int,
        *,
        growth: int = 12,
        n_layers: tuple[int, ...] = (4, 4, 4),
        large: bool = False,
    ) -> None:
        super().__init__()
        self.config: dict[str, Any] = {
            "in_channels": require_count("in_channels", in_channels),
            "n_outputs": require_count("n_outputs", n_outputs),
            "growth": require_count("growth", growth),
            "n_layers": require_counts("n_layers", n_layers),
            "large": large,
        }
        width = 2 * growth
        if large:
            first = nn.Conv2d(in_channels, width, 7, 2, padding=3, bias=False)
            parts: list[nn.Module] = [first, nn.MaxPool2d(3, 2, padding=1)]
        else:
            parts = [nn.Conv2d(in_channels, width, 3, padding=1, bias=False)]
        for i, count in enumerate(n_layers):
            if i:
                parts.append(Transition(width, width // 2))
                width //= 2
            parts.append(DenseBlock(width, growth, count))
            width += growth * count
        self.features = nn.Sequential(*parts, nn.BatchNorm2d(width), nn.ReLU())
        self.output = nn.Linear(width, n_outputs)
        he_(self)

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, in_channels, height, width) to (batch, n_outputs)."""
        h = self.features(x)  # (batch, maps, height / 4, width / 4)
        return self.output(h.mean(dim=(2, 3)))  # (batch, n_outputs)


class DenseBlock(nn.Module):
    """Layers x ← [x, ReLU-convolution(x)], which leave c + n_layers·growth maps.

    Parameters
    ----------
    before : int
        Channels c that go in.
    growth : int
        Maps that each layer adds.
    n_layers : int
        How many.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import DenseBlock
    >>> DenseBlock(6, 4, 3)(torch.zeros(1, 6, 5, 5)).shape
    torch.Size([1, 18, 5, 5])
    """

    def __init__(self, before: int, growth: int, n_layers: int) -> None:
        super().__init__()
        self.config: dict[str, Any] = {
            "before": before,
            "growth": growth,
            "n_layers": n_layers,
        }
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(before + i * growth),
                nn.ReLU(),
                nn.Conv2d(before + i * growth, growth, 3, padding=1, bias=False),
            )
            for i in range(n_layers)
        )

    @property
    def longest(self) -> nn.ModuleList:
        """The layers that see most, for ``receptive_field``."""
        return self.layers

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, c, height, width) to (batch, c + n_layers·growth, …)."""
        for layer in self.layers:
            x = torch.cat((x, layer(x)), dim=1)
        return x


class Transition(nn.Module):
    """Fewer maps by a 1×1 convolution, then averages over 2×2 pixels."""

    longest = ((1, 1), (2, 2))

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(before)
        self.convolution = nn.Conv2d(before, after, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, before, height, width) to (batch, after, height / 2, …)."""
        h = self.convolution(F.relu(self.norm(x)))
        # A side of one pixel has nothing to be averaged with.
        return F.avg_pool2d(h, (min(2, h.shape[2]), min(2, h.shape[3])))
