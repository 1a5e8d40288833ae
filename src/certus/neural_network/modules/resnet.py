"""Residual networks: each block adds to its input, h ← h + R(h).

A block that learns nothing passes its input on, so that depth cannot hurt as it does in
a plain network. Images may have any size: the last maps are averaged over all pixels.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from certus.neural_network.modules.arguments import require_count, require_counts
from certus.neural_network.modules.cnn import he_


class ResNet(nn.Module):
    """Stages of residual blocks; each stage but the first halves the maps.

    Parameters
    ----------
    in_channels : int
        Channels of an image.
    n_outputs : int
        Scores for each image.
    channels : tuple of int, default=(16, 32, 64)
        Filters in the blocks of each stage.
    blocks : int, default=2
        Blocks of each stage.
    residual : bool, default=True
        False leaves the additions out: a plain network of the same layers.
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
    >>> from certus.neural_network.modules import ResNet
    >>> net = ResNet(3, 10)
    >>> net.features(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 64, 8, 8])
    >>> net(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        in_channels: int,
        n_outputs: int,
        *,
        channels: tuple[int, ...] = (16, 32, 64),
        blocks: int = 2,
        residual: bool = True,
        large: bool = False,
    ) -> None:
        super().__init__()
        self.config: dict[str, Any] = {
            "in_channels": require_count("in_channels", in_channels),
            "n_outputs": require_count("n_outputs", n_outputs),
            "channels": require_counts("channels", channels),
            "blocks": require_count("blocks", blocks),
            "residual": residual,
            "large": large,
        }
        width = channels[0]
        if large:
            parts = _normed(in_channels, width, 7, 2)
            parts += [nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
        else:
            parts = [*_normed(in_channels, width, 3, 1), nn.ReLU()]
        for stage, filters in enumerate(channels):
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                parts.append(ResidualBlock(width, filters, stride, residual))
                width = filters
        self.features = nn.Sequential(*parts)
        self.output = nn.Linear(width, n_outputs)
        he_(self)
        for part in self.modules():
            if isinstance(part, ResidualBlock) and residual:
                part.start_as_identity()

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, in_channels, height, width) to (batch, n_outputs)."""
        h = self.features(x)  # (batch, channels[-1], height / 4, width / 4)
        return self.output(h.mean(dim=(2, 3)))  # (batch, n_outputs)


class ResidualBlock(nn.Module):
    """ReLU(x + R(x)), R of two 3×3 convolutions; a 1×1 one carries x to a new size.

    Parameters
    ----------
    before, filters : int
        Channels that go in and come out.
    stride : int, default=1
        Of the first convolution.
    residual : bool, default=True
        False gives ReLU(R(x)).

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import ResidualBlock
    >>> ResidualBlock(4, 8, stride=2)(torch.zeros(1, 4, 6, 6)).shape
    torch.Size([1, 8, 3, 3])
    """

    def __init__(
        self, before: int, filters: int, stride: int = 1, residual: bool = True
    ) -> None:
        super().__init__()
        self.config: dict[str, Any] = {
            "before": before,
            "filters": filters,
            "stride": stride,
            "residual": residual,
        }
        self.residual = residual
        self.body = nn.Sequential(
            *_normed(before, filters, 3, stride),
            nn.ReLU(),
            *_normed(filters, filters, 3, 1),
        )
        same = before == filters and stride == 1
        carried = [] if same or not residual else _normed(before, filters, 1, stride)
        self.skip = nn.Sequential(*carried)  # the identity, if there is nothing in it

    @property
    def longest(self) -> nn.Sequential:
        """The layers that see most, for ``receptive_field``."""
        return self.body

    def start_as_identity(self) -> None:
        """Set the last scale to zero, so that R(x) = 0 until it is trained."""
        last: Any = self.body[-1]
        nn.init.zeros_(last.weight)

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, before, height, width) to (batch, filters, …), each / stride."""
        r = self.body(x)
        return F.relu(self.skip(x) + r if self.residual else r)


def _normed(before: int, filters: int, kernel: int, stride: int) -> list[nn.Module]:
    """A convolution that keeps the size up to its stride, and batch normalisation."""
    convolution = nn.Conv2d(
        before, filters, kernel, stride, padding=kernel // 2, bias=False
    )
    return [convolution, nn.BatchNorm2d(filters)]
