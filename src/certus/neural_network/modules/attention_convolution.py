"""Attention that is a convolution: one head for each offset of the kernel.

A place r of n has the position vector p(r) = (cos θr, sin θr), θ = 2π/n. The head of
the offset δ asks with α·p(r + δ), which is p(r) turned by θδ; its score at place s,
α cos θ(s − r − δ), is largest at s = r + δ alone, so that for large α all its weight
is there. W_V hands on the pixel, and W_O multiplies it by the kernel's matrix of that
offset and adds the heads up: Z(r) = Σ_δ W_δ x(r + δ).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.neural_network.modules.multi_head import MultiHeadAttention

#: How much smaller the second largest score is, at least: e⁻⁴⁰ of the weight leaks.
MARGIN = 40.0


class ConvolvingAttention(nn.Module):
    """Self-attention over the pixels of an image, with weights that convolve it."""

    positions: Tensor

    def __init__(
        self, attention: MultiHeadAttention, positions: Tensor, out_channels: int
    ) -> None:
        super().__init__()
        self.attention, self.out_channels = attention, out_channels
        self.register_buffer("positions", positions)  # (4, height, width), padded

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, channels, height, width) to as many pixels of out_channels."""
        batch, _, height, width = x.shape
        rows, columns = self.positions.shape[1:]
        top, left = (rows - height) // 2, (columns - width) // 2
        if (height + 2 * top, width + 2 * left) != (rows, columns):
            raise ValueError(
                f"The attention was built for images of another size than {height} × "
                f"{width}."
            )
        x = F.pad(x, (left, left, top, top))
        features = torch.cat([x, self.positions.expand(batch, -1, -1, -1)], dim=1)
        tokens = features.flatten(2).transpose(1, 2)  # (batch, pixels, channels + 4)
        lack = self.attention.output.in_features - tokens.shape[2]
        z, _ = self.attention(F.pad(tokens, (0, lack)))  # (batch, pixels, width)
        z = z[..., : self.out_channels].transpose(1, 2).unflatten(2, (rows, columns))
        return z[:, :, top : top + height, left : left + width]


def attention_as_convolution(
    weight: Tensor, image_shape: tuple[int, int], bias: Tensor | None = None
) -> nn.Module:
    """Build self-attention that does what a convolution does.

    Parameters
    ----------
    weight : Tensor of shape (out_channels, in_channels, height, width)
        The kernel, of odd sides, as torch has it.
    image_shape : (int, int)
        Height and width of the images.
    bias : Tensor of shape (out_channels,), optional
        What is added to each output channel.

    Returns
    -------
    nn.Module
        Gives ``conv2d(x, weight, bias, padding="same")`` for images x, up to rounding.
        Its ``attention`` is a :class:`MultiHeadAttention` with one head for each entry
        of the kernel.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import attention_as_convolution
    >>> weight, x = torch.randn(2, 3, 3, 3), torch.randn(1, 3, 6, 5)
    >>> net = attention_as_convolution(weight, (6, 5))
    >>> net.attention.heads
    9
    >>> y = torch.nn.functional.conv2d(x, weight, padding="same")
    >>> torch.allclose(net(x), y, atol=1e-5)
    True
    """
    if weight.ndim != 4 or not (weight.shape[2] % 2 and weight.shape[3] % 2):
        raise ValueError(
            "weight must have the shape (out_channels, in_channels, height, width), "
            f"height and width odd, got {tuple(weight.shape)}."
        )
    out, channels, *kernel = weight.shape
    sides = [n + k - 1 for n, k in zip(image_shape, kernel)]  # padded by half a kernel
    heads = kernel[0] * kernel[1]
    d = max(channels, 4, math.ceil((channels + 4) / heads), math.ceil(out / heads))
    attention = MultiHeadAttention(heads * d, heads).to(weight.dtype)
    with torch.no_grad():
        for p in attention.parameters():
            p.zero_()
        for h in range(heads):
            offset = [h // kernel[1] - kernel[0] // 2, h % kernel[1] - kernel[1] // 2]
            _aim(attention, h, channels, offset, sides)
            block = weight[:, :, h // kernel[1], h % kernel[1]]
            attention.output.weight[:out, h * d : h * d + channels] = block
        if bias is not None:
            attention.output.bias[:out] = bias
    return ConvolvingAttention(attention, _circles(sides, weight.dtype), out)


def _aim(
    attention: MultiHeadAttention,
    h: int,
    channels: int,
    offset: list[int],
    sides: list[int],
) -> None:
    """Let head h look at the pixel that lies ``offset`` away, and hand it on."""
    width = attention.output.in_features
    d = width // attention.heads
    query, key, value = attention.qkv.weight.split(width)  # each (out, in)
    gap = min(1 - math.cos(2 * math.pi / n) for n in sides if n > 1 or max(sides) == 1)
    strength = MARGIN / (gap or 1.0) * math.sqrt(d)
    for axis, (step, n) in enumerate(zip(offset, sides)):
        cos, sin = (f(2 * math.pi * step / n) for f in (math.cos, math.sin))
        a, b = h * d + 2 * axis, channels + 2 * axis  # where they go, and come from
        turn = torch.tensor([[cos, -sin], [sin, cos]], dtype=query.dtype)
        query[a : a + 2, b : b + 2] = strength * turn
        key[a : a + 2, b : b + 2] = torch.eye(2)
    value[h * d : h * d + channels, :channels] = torch.eye(channels)


def _circles(sides: list[int], dtype: torch.dtype) -> Tensor:
    """cos, sin of the angle of each row and of each column: (4, rows, columns)."""
    rows, columns = (2 * math.pi / n * torch.arange(n, dtype=dtype) for n in sides)
    r = torch.stack([rows.cos(), rows.sin()])[:, :, None].expand(-1, -1, sides[1])
    c = torch.stack([columns.cos(), columns.sin()])[:, None].expand(-1, sides[0], -1)
    return torch.cat([r, c])
