"""Plain convolutional networks: sliding windows, pooling, and a perceptron at the end.

    image → (convolution, pooling, ReLU) × stages → flatten → perceptron → class scores

:class:`ConvNet` fits any image; :class:`LeNet` and :class:`AlexNet` are the two that
made the plan known. Images are (batch, channels, height, width).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.neural_network.modules.arguments import require_count
from certus.neural_network.modules.convolution import output_size


class ConvNet(nn.Module):
    """A few stages of convolution and pooling, then one hidden layer.

    Each stage is a 3×3 convolution that keeps the size, max pooling by two, group
    normalisation (of each image by itself, so that batches and row weights do not
    matter to it) and ReLU. Sides of a single pixel have no neighbours: windows there
    are one pixel wide.

    Parameters
    ----------
    in_channels : int
        Channels of an image.
    image_shape : (int, int)
        Its height and width.
    n_outputs : int
        Scores for each image.
    channels : tuple of int, optional
        Filters of each stage. By default 32, 64, then 128 until maps are at most 8
        pixels high and wide.
    hidden : int, default=128
        Units of the hidden layer.
    dropout : float, default=0.0
        Share of the hidden layer's inputs left out in each training step.

    Attributes
    ----------
    config : dict
        The parameters above.
    features : nn.Sequential
        The stages.
    output : nn.Linear
        The head; replace it to reuse the layers below for another task.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import ConvNet
    >>> net = ConvNet(1, (28, 28), 10)
    >>> net.features(torch.zeros(5, 1, 28, 28)).shape
    torch.Size([5, 64, 7, 7])
    >>> net(torch.zeros(5, 1, 28, 28)).shape
    torch.Size([5, 10])
    """

    def __init__(
        self,
        in_channels: int,
        image_shape: tuple[int, int],
        n_outputs: int,
        *,
        channels: tuple[int, ...] | None = None,
        hidden: int = 128,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        height, width = _sides(image_shape)
        channels = _stages(max(height, width)) if channels is None else tuple(channels)
        self.config: dict[str, Any] = {
            "in_channels": require_count("in_channels", in_channels),
            "image_shape": (height, width),
            "n_outputs": require_count("n_outputs", n_outputs),
            "channels": channels,
            "hidden": hidden,
            "dropout": dropout,
        }
        stages = []
        for before, filters in zip((in_channels, *channels), channels):
            kernel = (1 if height == 1 else 3, 1 if width == 1 else 3)
            pool = (min(2, height), min(2, width))
            stages += [
                nn.Conv2d(
                    before, filters, kernel, padding=(kernel[0] // 2, kernel[1] // 2)
                ),
                nn.MaxPool2d(pool),
                nn.GroupNorm(_groups(filters), filters),
                nn.ReLU(),
            ]
            height, width = height // pool[0], width // pool[1]
        self.features = nn.Sequential(*stages)
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.Linear(
            (channels or (in_channels,))[-1] * height * width, hidden
        )
        self.output = nn.Linear(hidden, n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, in_channels, height, width) to (batch, n_outputs)."""
        h = self.features(x)  # (batch, channels[-1], height / 2ˢ, width / 2ˢ)
        h = self.dropout(h.flatten(1))  # (batch, channels[-1] · pixels)
        return self.output(F.relu(self.hidden(h)))  # (batch, n_outputs)


class LeNet(nn.Module):
    """LeNet-5: 6@28² → 6@14² → 16@10² → 16@5² → 120 → 84 → 10 from images of 32².

    Every filter of the third layer sees all six maps. Pooling takes averages, and the
    activation is tanh. Smaller images are padded to 32 × 32; larger ones get a wider
    layer of 120.

    Parameters
    ----------
    in_channels : int, default=1
        Channels of an image.
    image_shape : (int, int), default=(32, 32)
        Its height and width.
    n_outputs : int, default=10
        Scores for each image.
    rbf : bool, default=False
        Scores are −‖h − w_k‖², h the 84 units and w_k the centre of class k, in place
        of a linear layer.

    Attributes
    ----------
    config : dict
        The parameters above.
    features : nn.Sequential
        The convolutions and poolings.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import LeNet, count_parameters
    >>> net = LeNet()
    >>> net.features(torch.zeros(1, 1, 32, 32)).shape, count_parameters(net)
    (torch.Size([1, 16, 5, 5]), 61706)
    """

    def __init__(
        self,
        in_channels: int = 1,
        image_shape: tuple[int, int] = (32, 32),
        n_outputs: int = 10,
        *,
        rbf: bool = False,
    ) -> None:
        super().__init__()
        height, width = _sides(image_shape)
        self.config: dict[str, Any] = {
            "in_channels": require_count("in_channels", in_channels),
            "image_shape": (height, width),
            "n_outputs": require_count("n_outputs", n_outputs),
            "rbf": rbf,
        }
        lack = [max(0, 32 - side) for side in (width, height)]
        # Left, right, top, bottom: 28 × 28 gets two on each side.
        self.margin = [p for n in lack for p in (n // 2, n - n // 2)]
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, 6, 5),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.Tanh(),
            nn.AvgPool2d(2),
        )
        rows, columns = (_lenet_side(max(32, side)) for side in (height, width))
        self.c5 = nn.Linear(16 * rows * columns, 120)
        self.f6 = nn.Linear(120, 84)
        self.output = RBF(84, n_outputs) if rbf else nn.Linear(84, n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, in_channels, height, width) to (batch, n_outputs)."""
        h = self.features(F.pad(x, self.margin))  # (batch, 16, 5, 5)
        h = torch.tanh(self.c5(h.flatten(1)))  # (batch, 120)
        h = torch.tanh(self.f6(h))  # (batch, 84)
        return self.output(h)


class RBF(nn.Module):
    """−‖h − w_k‖² for each class k: how near a point is to the centre of the class."""

    def __init__(self, n_inputs: int, n_outputs: int) -> None:
        super().__init__()
        # Corners of the cube, which units with tanh approach.
        self.centres = nn.Parameter(torch.randn(n_outputs, n_inputs).sign())

    def forward(self, h: Tensor) -> Tensor:
        """From (batch, n_inputs) to (batch, n_outputs)."""
        return -(h[:, None, :] - self.centres).square().sum(dim=-1)


class AlexNet(nn.Module):
    """AlexNet: 96@55² → 256@27² → 384@13² → 384@13² → 256@13² → 4096 → 4096 → classes.

    The first layer is 11×11 with stride 4 and needs a padding of 2 to make 55 of 224
    pixels. Pools are 3×3 with stride 2; all filters see all maps.

    Parameters
    ----------
    in_channels : int, default=3
        Channels of an image.
    image_shape : (int, int), default=(224, 224)
        Its height and width, at least 63.
    n_outputs : int, default=1000
        Scores for each image.
    width : float, default=1.0
        Factor of all numbers of filters and units.
    dropout : float, default=0.5
        Share of units of the dense layers left out in each training step.

    Attributes
    ----------
    config : dict
        The parameters above.
    features : nn.Sequential
        The convolutions and poolings.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import AlexNet
    >>> net = AlexNet(n_outputs=10, width=0.25)
    >>> net.features[0](torch.zeros(1, 3, 224, 224)).shape
    torch.Size([1, 24, 55, 55])
    """

    def __init__(
        self,
        in_channels: int = 3,
        image_shape: tuple[int, int] = (224, 224),
        n_outputs: int = 1000,
        *,
        width: float = 1.0,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        height, columns = _sides(image_shape)
        if min(height, columns) < 63:
            raise ValueError(
                f"AlexNet needs images of at least 63 × 63 pixels, got {height} × "
                f"{columns}. Use ConvNet, or resize them."
            )
        self.config: dict[str, Any] = {
            "in_channels": require_count("in_channels", in_channels),
            "image_shape": (height, columns),
            "n_outputs": require_count("n_outputs", n_outputs),
            "width": width,
            "dropout": dropout,
        }
        first, second, third, dense = (
            max(1, round(width * n)) for n in (96, 256, 384, 4096)
        )
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, first, 11, stride=4, padding=2),  # 224 → 55
            nn.ReLU(),
            nn.MaxPool2d(3, 2),  # → 27
            nn.Conv2d(first, second, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, 2),  # → 13
            nn.Conv2d(second, third, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(third, third, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(third, second, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(3, 2),  # → 6
        )
        pixels = _alexnet_side(height) * _alexnet_side(columns)
        self.dense = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(second * pixels, dense),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(dense, dense),
            nn.ReLU(),
        )
        self.output = nn.Linear(dense, n_outputs)
        he_(self)

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, in_channels, height, width) to (batch, n_outputs)."""
        h = self.features(x)  # (batch, 256, 6, 6)
        h = self.dense(h.flatten(1))  # (batch, 4096)
        return self.output(h)


def he_(net: nn.Module) -> None:
    """He's weights before ReLU: normal of variance 2/fan-in; a modest output layer."""
    for part in net.modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
            if part.bias is not None:
                nn.init.zeros_(part.bias)
    output: Any = net.output
    nn.init.xavier_normal_(output.weight)


def _sides(image_shape: Sequence[int]) -> tuple[int, int]:
    """Height and width; raises an error otherwise."""
    try:
        height, width = image_shape
    except (TypeError, ValueError):
        raise ValueError(
            f"image_shape must be (height, width), got {image_shape!r}."
        ) from None
    return require_count("height", height), require_count("width", width)


def _stages(side: int) -> tuple[int, ...]:
    """Filters of each stage: maps of at most 8 pixels are left."""
    count = 2
    while side >> count > 8:
        count += 1
    return (32, 64, *(128,) * (count - 2))


def _groups(channels: int) -> int:
    """Groups of four channels or so, as many as divide them."""
    return next(g for g in range(max(1, channels // 4), 0, -1) if channels % g == 0)


def _lenet_side(side: int) -> int:
    for _ in range(2):
        side = output_size(output_size(side, 5), 2, 2)
    return side


def _alexnet_side(side: int) -> int:
    side = output_size(side, 11, 4, 2)
    for _ in range(3):
        side = output_size(side, 3, 2)
    return side
