"""Vision transformers: an image as a sequence of patches.

    image → patches → x = patches·E + positions → layers of attention → mean → scores

Every patch sees every other in the first layer already; a convolution needs as many
layers as the image is wide. That attention can do what convolution does is shown by
:func:`certus.neural_network.modules.attention_as_convolution`, which builds it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.neural_network.modules.arguments import require_choice, require_count
from certus.neural_network.modules.feed_forward import ACTIVATIONS
from certus.neural_network.modules.multi_head import sinusoidal_positions
from certus.neural_network.modules.transformer import Block

Sides = tuple[int, int]  # height, width


def patchify(images: Tensor, patch_size: int | Sides) -> Tensor:
    """Cut images into patches, row by row.

    Parameters
    ----------
    images : Tensor of shape (batch, channels, height, width)
        Images whose sides are multiples of the patch's.
    patch_size : int or (int, int)
        Height and width of a patch.

    Returns
    -------
    Tensor of shape (batch, patches, channels · patch height · patch width)

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import patchify, unpatchify
    >>> images = torch.arange(32.0).reshape(1, 2, 4, 4)
    >>> patches = patchify(images, 2)
    >>> patches.shape
    torch.Size([1, 4, 8])
    >>> torch.equal(unpatchify(patches, 2, (2, 4, 4)), images)
    True
    """
    p, q = _pair("patch_size", patch_size)
    batch, channels, height, width = images.shape
    if height % p or width % q:
        raise ValueError(
            f"Images of {height} × {width} pixels cannot be cut into patches of "
            f"{p} × {q}; pad them, or choose a patch that divides both sides."
        )
    x = images.reshape(batch, channels, height // p, p, width // q, q)
    return x.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * p * q)


def unpatchify(
    patches: Tensor, patch_size: int | Sides, image_shape: tuple[int, int, int]
) -> Tensor:
    """Put patches together again; the inverse of :func:`patchify`.

    Parameters
    ----------
    patches : Tensor of shape (batch, patches, channels · patch height · patch width)
        As :func:`patchify` cuts them.
    patch_size : int or (int, int)
        Height and width of a patch.
    image_shape : (int, int, int)
        Channels, height and width of an image.

    Returns
    -------
    Tensor of shape (batch, channels, height, width)

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import unpatchify
    >>> unpatchify(torch.zeros(5, 6, 4), 2, (1, 4, 6)).shape
    torch.Size([5, 1, 4, 6])
    """
    p, q = _pair("patch_size", patch_size)
    channels, height, width = image_shape
    rows, columns = height // p, width // q
    if (
        patches.shape[1:] != (rows * columns, channels * p * q)
        or height % p + width % q
    ):
        raise ValueError(
            f"Patches of shape {tuple(patches.shape[1:])} do not make an image of "
            f"{channels} × {height} × {width}."
        )
    x = patches.reshape(-1, rows, columns, channels, p, q)
    return x.permute(0, 3, 1, 4, 2, 5).reshape(-1, channels, height, width)


class VisionTransformer(nn.Module):
    """A transformer over the patches of an image.

    Sides that are not multiples of the patch's are padded with zeros, half on each
    side.

    Parameters
    ----------
    in_channels : int
        Channels of an image.
    image_shape : (int, int)
        Its height and width.
    n_outputs : int
        Scores for each image.
    patch_size : int or (int, int), optional
        Height and width of a patch. By default an eighth of the side, at least 2: 4 for
        images of 28 or 32 pixels, 28 for those of 224.
    n_layers, width, heads : int
        Layers, numbers in a vector, heads of attention.
    hidden : int, optional
        Width inside of the feed-forward part; 4 × width by default.
    pooling : {"mean", "token"}, default="mean"
        What scores are made from: the mean over all patches, or a token of its own
        before them, as in the first vision transformer.
    position : {"learned", "sinusoidal", None}, default="learned"
        How places are marked: by a vector that is learnt for each, which begins with
        sines and cosines of row and column; by these, fixed; or not at all.
    norm : {"pre", "post"}, default="pre"
        Whether a layer normalises what goes into its parts, or what comes out.
    activation : {"gelu", "gelu_tanh", "relu", "relu2", "swiglu"}, default="gelu"
        Bend of the feed-forward part.
    qk_norm : bool, default=False
        Whether queries and keys are normalised before their product.
    dropout : float, default=0.0
        Share of numbers that training leaves out.

    Attributes
    ----------
    config : dict
        The parameters above.
    output : nn.Linear
        The head; replace it to reuse the layers below for another task.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import VisionTransformer
    >>> net = VisionTransformer(1, (28, 28), 10)
    >>> net.grid  # patches below each other, and side by side
    (7, 7)
    >>> net(torch.zeros(5, 1, 28, 28)).shape
    torch.Size([5, 10])
    """

    positions: Tensor | None

    def __init__(
        self,
        in_channels: int,
        image_shape: Sides,
        n_outputs: int,
        *,
        patch_size: int | Sides | None = None,
        n_layers: int = 4,
        width: int = 64,
        heads: int = 4,
        hidden: int | None = None,
        pooling: str = "mean",
        position: str | None = "learned",
        norm: str = "pre",
        activation: str = "gelu",
        qk_norm: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        require_choice("pooling", pooling, ("mean", "token"))
        require_choice("position", position, ("learned", "sinusoidal", None))
        require_choice("norm", norm, ("pre", "post"))
        require_choice("activation", activation, ACTIVATIONS)
        sides = _pair("image_shape", image_shape)
        if patch_size is None:
            patch_size = _eighth(sides[0]), _eighth(sides[1])
        if hidden is None:
            hidden = 4 * require_count("width", width)
        self.config: dict[str, Any] = {
            "in_channels": require_count("in_channels", in_channels),
            "image_shape": sides,
            "n_outputs": require_count("n_outputs", n_outputs),
            "patch_size": _pair("patch_size", patch_size),
            "n_layers": require_count("n_layers", n_layers),
            "width": width,
            "heads": heads,
            "hidden": require_count("hidden", hidden),
            "pooling": pooling,
            "position": position,
            "norm": norm,
            "activation": activation,
            "qk_norm": qk_norm,
            "dropout": dropout,
        }
        p, q = self.patch_size = self.config["patch_size"]
        self.grid = math.ceil(sides[0] / p), math.ceil(sides[1] / q)
        lack = self.grid[1] * q - sides[1], self.grid[0] * p - sides[0]
        # Left, right, top, bottom.
        self.margin = [m for n in lack for m in (n // 2, n - n // 2)]
        self.embedding = nn.Linear(in_channels * p * q, width)
        self.token: nn.Parameter | None = None
        if pooling == "token":
            self.token = nn.Parameter(torch.zeros(1, 1, width))
        if position == "learned":
            self.positions = nn.Parameter(grid_positions(self.grid, width))
        else:
            table = None if position is None else grid_positions(self.grid, width)
            self.register_buffer("positions", table, persistent=False)
        self.dropout = nn.Dropout(dropout)
        inside = {**self.config, "bias": True}
        self.layers = nn.ModuleList(Block(inside, False) for _ in range(n_layers))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, in_channels, height, width) to (batch, n_outputs)."""
        states, _ = self.states(x)
        return self.output(states[:, 0] if self.token is not None else states.mean(1))

    def states(
        self, x: Tensor, weights: bool = False
    ) -> tuple[Tensor, tuple[Any, ...]]:
        """The last layer's vectors, and what each layer looked at.

        Parameters
        ----------
        x : Tensor of shape (batch, in_channels, height, width)
            Images.
        weights : bool
            Whether to return attention weights.

        Returns
        -------
        states : Tensor of shape (batch, tokens, width)
            A token for each patch, row by row; before them that of ``pooling="token"``.
        weights : tuple, for each layer of a Tensor (batch, heads, tokens, tokens)
            Empty unless asked for.
        """
        h = self.embedding(patchify(F.pad(x, self.margin), self.patch_size))
        if self.positions is not None:
            h = h + self.positions  # (batch, patches, width)
        if self.token is not None:
            h = torch.cat([self.token.expand(len(h), -1, -1), h], dim=1)
        h, looks = self.dropout(h), []
        for block in self.layers:
            h, one = block(h, causal=False, weights=weights)
            looks.append(one)
        return self.norm(h), tuple(looks) if weights else ()


def grid_positions(grid: Sides, width: int) -> Tensor:
    """Sines and cosines of the row beside those of the column: (rows · columns, width).

    Parameters
    ----------
    grid : (int, int)
        Rows and columns.
    width : int
        Numbers for each place. A remainder by 4 is filled with zeros.

    Examples
    --------
    >>> from certus.neural_network.modules.vision import grid_positions
    >>> grid_positions((7, 7), 64).square().sum(dim=1).round().unique().tolist()
    [32.0]
    """
    rows, columns = grid
    half = width // 4 * 2
    r = sinusoidal_positions(rows, half)[:, None].expand(rows, columns, half)
    c = sinusoidal_positions(columns, half)[None].expand(rows, columns, half)
    both = torch.cat([r, c], dim=2).reshape(rows * columns, 2 * half)
    return F.pad(both, (0, width - 2 * half))


def _eighth(side: int) -> int:
    """An eighth of a side, at least 2 pixels if the side has them."""
    return min(side, max(2, math.ceil(side / 8)))


def _pair(name: str, value: int | Sequence[int]) -> Sides:
    """A number, or two of them, as two whole numbers above 0."""
    pair = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(pair) != 2:
        raise ValueError(f"{name} must be a number or a pair of them, got {value!r}.")
    return require_count(name, pair[0]), require_count(name, pair[1])
