"""A network that gives each pixel some numbers, from what is around it and a vector.

    h₁ = ReLU(conv(x)),  h₂ = ReLU(conv(h₁) + Vz),  output = conv₁ₓ₁(h₂) + Uz

x is an image and z the vector that an encoder found for it: what the pixels around do
not tell comes from z.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from certus.neural_network.modules.arguments import require_count


class Painter(nn.Module):
    """Numbers for each pixel of an image, from its surroundings and a vector.

    Parameters
    ----------
    in_channels : int
        Channels of an image.
    n_components : int
        Numbers of the vector.
    n_outputs : int
        Numbers for each pixel.
    width : int, default=32
        Channels of the two hidden layers.

    Attributes
    ----------
    config : dict
        The parameters above.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import Painter
    >>> net = Painter(1, 16, 2)
    >>> net(torch.zeros(5, 1, 12, 10), torch.zeros(5, 16)).shape
    torch.Size([5, 2, 12, 10])
    """

    def __init__(
        self, in_channels: int, n_components: int, n_outputs: int, *, width: int = 32
    ) -> None:
        super().__init__()
        self.config: dict[str, Any] = {
            "in_channels": require_count("in_channels", in_channels),
            "n_components": require_count("n_components", n_components),
            "n_outputs": require_count("n_outputs", n_outputs),
            "width": require_count("width", width),
        }
        self.first = nn.Conv2d(in_channels, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.inner = nn.Linear(n_components, width)
        self.pixels = nn.Conv2d(width, n_outputs, 1)
        self.whole = nn.Linear(n_components, n_outputs)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """From (batch, in_channels, h, w) and vectors to (batch, n_outputs, h, w)."""
        h = F.relu(self.first(x))
        h = F.relu(self.second(h) + self.inner(z)[:, :, None, None])
        painted: Tensor = self.pixels(h) + self.whole(z)[:, :, None, None]
        return painted
