"""Data augmentation: changed copies of images that keep their labels.

Training on (τ(x), y) for random τ makes a network give similar answers for x and τ(x).
Each function takes a batch of images (batch, channels, height, width) and changes every
one by a draw of its own. Beyond the border, its pixels are repeated. ``augment=`` of a
network takes their names, a list of them, or a function of your own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from certus.base import check_choice, check_number


def shift(
    x: Tensor, pixels: int | None = None, generator: Generator | None = None
) -> Tensor:
    """Move each image by whole pixels, up or down and left or right.

    Parameters
    ----------
    x : Tensor of shape (batch, channels, height, width)
        Images.
    pixels : int, optional
        The furthest; by default a twelfth of each side, at least 1.
    generator : torch.Generator, optional
        Of the draws; torch's own by default.

    Returns
    -------
    Tensor
        Of the same shape.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.augment import shift
    >>> shift(torch.ones(5, 1, 8, 8)).shape
    torch.Size([5, 1, 8, 8])
    """
    check_number("pixels", pixels, 0, integer=True, none=True)
    n, _, height, width = x.shape
    places = []
    for side in (height, width):
        # A side of one pixel cannot be moved.
        far = min(side - 1, max(1, round(side / 12)) if pixels is None else pixels)
        by = torch.randint(-far, far + 1, (n, 1), generator=generator, device=x.device)
        place = torch.arange(side, device=x.device) - by
        places.append(place.clamp(0, side - 1))  # (batch, side)
    image = torch.arange(n, device=x.device)[:, None, None]
    moved = x.permute(0, 2, 3, 1)[image, places[0][:, :, None], places[1][:, None, :]]
    return moved.permute(0, 3, 1, 2)


def rotate(
    x: Tensor, degrees: float = 10.0, generator: Generator | None = None
) -> Tensor:
    """Turn each image about its middle, by up to ``degrees`` either way.

    Parameters
    ----------
    x : Tensor of shape (batch, channels, height, width)
        Images.
    degrees : float, default=10.0
        The furthest.
    generator : torch.Generator, optional
        Of the draws; torch's own by default.

    Returns
    -------
    Tensor
        Of the same shape, by bilinear interpolation.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.augment import rotate
    >>> x = torch.eye(8).reshape(1, 1, 8, 8)
    >>> bool(torch.allclose(rotate(x, 0.0), x, atol=1e-6))
    True
    """
    check_number("degrees", degrees)
    angle = math.radians(degrees) * _signed(x, generator)
    height, width = x.shape[2:]
    cos, sin = torch.cos(angle), torch.sin(angle)
    # Coordinates run from −1 to 1 on both sides, whatever their lengths.
    top = torch.stack([cos, -sin * height / width], dim=1)
    bottom = torch.stack([sin * width / height, cos], dim=1)
    return _warp(x, torch.stack([top, bottom], dim=1))


def zoom(x: Tensor, by: float = 0.1, generator: Generator | None = None) -> Tensor:
    """Enlarge or shrink each image about its middle by up to this share.

    Parameters
    ----------
    x : Tensor of shape (batch, channels, height, width)
        Images.
    by : float, default=0.1
        Sizes are drawn between 1 − by and 1 + by; below 1.
    generator : torch.Generator, optional
        Of the draws; torch's own by default.

    Returns
    -------
    Tensor
        Of the same shape, by bilinear interpolation.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.augment import zoom
    >>> zoom(torch.ones(5, 1, 8, 8)).shape
    torch.Size([5, 1, 8, 8])
    """
    check_number("by", by, 0, 0.99)
    factor = 1 + by * _signed(x, generator)
    linear = torch.eye(2, device=x.device, dtype=x.dtype) / factor[:, None, None]
    return _warp(x, linear)


def crop(x: Tensor, share: float = 0.85, generator: Generator | None = None) -> Tensor:
    """Cut a window from a random place of each image and stretch it to the full size.

    Parameters
    ----------
    x : Tensor of shape (batch, channels, height, width)
        Images.
    share : float, default=0.85
        Sides of the window, as a share of those of the image.
    generator : torch.Generator, optional
        Of the draws; torch's own by default.

    Returns
    -------
    Tensor
        Of the same shape, by bilinear interpolation.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.augment import crop
    >>> crop(torch.ones(5, 1, 8, 8)).shape
    torch.Size([5, 1, 8, 8])
    """
    check_number("share", share, 0, 1, open_low=True)
    linear = torch.eye(2, device=x.device, dtype=x.dtype) * share
    move = torch.stack([_signed(x, generator), _signed(x, generator)], dim=1)
    return _warp(x, linear.expand(len(x), 2, 2), (1 - share) * move)


def reflect(
    x: Tensor, share: float = 0.5, generator: Generator | None = None
) -> Tensor:
    """Swap left and right in this share of images.

    Parameters
    ----------
    x : Tensor of shape (batch, channels, height, width)
        Images.
    share : float, default=0.5
        How probable it is for each image.
    generator : torch.Generator, optional
        Of the draws; torch's own by default.

    Returns
    -------
    Tensor
        Of the same shape.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.augment import reflect
    >>> reflect(torch.tensor([[[[1, 2, 3]]]]), share=1.0)
    tensor([[[[3, 2, 1]]]])
    """
    check_number("share", share, 0, 1)
    chosen = torch.rand(len(x), generator=generator, device=x.device) < share
    return torch.where(chosen[:, None, None, None], x.flip(3), x)


def pca_colour(
    x: Tensor, deviation: float = 0.1, generator: Generator | None = None
) -> Tensor:
    """Add a colour to each image, along the ways in which colours vary.

    With p_j and λ_j the eigenvectors and eigenvalues of the covariance of the pixels'
    channels in the batch, every pixel gets Σ_j α_j √λ_j p_j, α_j normal.

    Parameters
    ----------
    x : Tensor of shape (batch, channels, height, width)
        Images.
    deviation : float, default=0.1
        Standard deviation of α.
    generator : torch.Generator, optional
        Of the draws; torch's own by default.

    Returns
    -------
    Tensor
        Of the same shape.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.augment import pca_colour
    >>> x = torch.rand(5, 3, 8, 8)
    >>> change = pca_colour(x) - x
    >>> bool(torch.allclose(change, change[:, :, :1, :1].expand_as(x), atol=1e-5))
    True
    """
    check_number("deviation", deviation)
    pixels = x.transpose(0, 1).flatten(1)  # (channels, batch · height · width)
    centred = pixels - pixels.mean(dim=1, keepdim=True)
    values, vectors = torch.linalg.eigh(centred @ centred.T / centred.shape[1])
    shape = len(x), x.shape[1]
    draw = torch.randn(shape, generator=generator, device=x.device, dtype=x.dtype)
    colour = deviation * draw * values.clamp(min=0).sqrt() @ vectors.T
    return x + colour[:, :, None, None]


#: Augmentations by name.
AUGMENTATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "shift": shift,
    "rotate": rotate,
    "zoom": zoom,
    "crop": crop,
    "reflect": reflect,
    "pca_colour": pca_colour,
}


def make_augmentation(
    kind: str
    | Callable[[Tensor], Tensor]
    | Sequence[str | Callable[[Tensor], Tensor]]
    | None,
) -> Callable[[Tensor], Tensor] | None:
    """One function from a name, a function, a list of either, or None."""
    if kind is None:
        return None
    if callable(kind):
        return kind
    if isinstance(kind, str):
        check_choice("augment", kind, (None, *AUGMENTATIONS))
        return AUGMENTATIONS[kind]
    if not isinstance(kind, list | tuple):
        raise TypeError(
            f"augment must be a name, a function or a list of them, got {kind!r}."
        )
    steps = [make_augmentation(part) for part in kind]

    def apply(x: Tensor) -> Tensor:
        for step in steps:
            x = x if step is None else step(x)
        return x

    return apply


def _signed(x: Tensor, generator: Generator | None) -> Tensor:
    """A draw between −1 and 1 for each image."""
    draw = torch.rand(len(x), generator=generator, device=x.device, dtype=x.dtype)
    return 2 * draw - 1


def _warp(x: Tensor, linear: Tensor, move: Tensor | None = None) -> Tensor:
    """Each image at linear · place + move, interpolated; the border goes on."""
    move = torch.zeros_like(linear[:, :, 0]) if move is None else move
    theta = torch.cat([linear, move[:, :, None]], dim=2)  # (batch, 2, 3)
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, padding_mode="border", align_corners=False)
