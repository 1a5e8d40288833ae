"""Two random views of each row: what may change while the row stays what it is.

Images are turned, enlarged and moved by one map, and their contrast changes. Cells of
table rows are replaced by those of other rows. A part of each sequence is kept, in
which some tokens are hidden, or numbers are moved a little. Random numbers come from
torch's own generator; each row has its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from certus.neural_network.augment import make_augmentation
from certus.neural_network.wrapping import augmented

#: Largest turn in degrees, change of size, and move as a share of the side.
TURN, SIZE, MOVE = 20.0, 0.2, 0.12
#: Largest change of contrast, and deviation of the noise of a pixel.
CONTRAST, NOISE = 0.4, 0.1
#: Share of the cells of a row that are replaced.
REPLACED = 0.3
#: Least share of a sequence that is kept, and share of its steps that are changed.
KEPT, CHANGED = 0.6, 0.15

Inputs = tuple[Tensor, ...]
Views = Callable[[Inputs], Inputs]


def make_views(kind: str, augment: Any, tokens: bool = False) -> Views:
    """A function that gives one random view of each row of a batch of inputs.

    Parameters
    ----------
    kind : {"images", "rows", "sequences"}
        What the inputs are.
    augment : "auto", str, callable or list
        What the user chose: the default of the kind; for images, names of
        :mod:`certus.neural_network.augment`; or a function of a batch.
    tokens : bool
        Whether the steps of sequences are tokens.
    """
    if isinstance(augment, str) and augment == "auto":
        if kind == "images":
            return lambda x: (changed_images(x[0]),)
        if kind == "rows":
            return lambda x: (replaced_cells(x[0]),)
        return lambda x: stretch(x[0], x[1], tokens)
    if augment is None:
        raise ValueError(
            'augment must not be None, because two views must differ; use "auto" or a '
            "function that changes a batch of inputs."
        )
    if kind != "images" and not callable(augment):
        raise TypeError(
            'augment must be "auto" or a function that changes a batch of inputs '
            f"(names are for images), got {augment!r}."
        )
    change = make_augmentation(augment)
    return lambda x: (augmented(change, x[0]), *x[1:])


def changed_images(x: Tensor) -> Tensor:
    """Images (batch, channels, height, width), each turned, sized, moved, recoloured.

    Examples
    --------
    >>> import torch
    >>> from certus.representation.views import changed_images
    >>> changed_images(torch.ones(5, 1, 8, 8)).shape
    torch.Size([5, 1, 8, 8])
    """
    n, _, height, width = x.shape
    u = 2 * torch.rand(6, n, device=x.device, dtype=x.dtype) - 1
    angle, size = math.radians(TURN) * u[0], 1 + SIZE * u[1]
    cos, sin = torch.cos(angle) / size, torch.sin(angle) / size
    # Coordinates run from −1 to 1 on both sides, whatever their lengths.
    top = torch.stack([cos, -sin * height / width, 2 * MOVE * u[2]], dim=1)
    low = torch.stack([sin * width / height, cos, 2 * MOVE * u[3]], dim=1)
    theta = torch.stack([top, low], dim=1)  # (batch, 2, 3)
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    x = F.grid_sample(x, grid, padding_mode="border", align_corners=False)
    scale = (1 + CONTRAST * u[4])[:, None, None, None]
    return torch.addcmul(NOISE * torch.randn_like(x), x, scale)


def replaced_cells(x: Tensor) -> Tensor:
    """Rows (batch, columns), some cells of which come from other rows of the batch.

    Examples
    --------
    >>> import torch
    >>> from certus.representation.views import replaced_cells
    >>> x = torch.arange(12.0).reshape(4, 3)
    >>> bool(torch.isin(replaced_cells(x)[:, 1], x[:, 1]).all())
    True
    """
    n, d = x.shape
    other = torch.randint(n, (n, d), device=x.device)
    chosen = torch.rand(n, d, device=x.device) < REPLACED
    return torch.where(chosen, x.gather(0, other), x)


def stretch(x: Tensor, lengths: Tensor, tokens: bool) -> Inputs:
    """A stretch of each sequence, with some tokens hidden or all numbers moved.

    Examples
    --------
    >>> import torch
    >>> from certus.representation.views import stretch
    >>> y, ends = stretch(torch.ones(3, 10), torch.tensor([10, 5, 1]), tokens=False)
    >>> bool((ends >= 1).all() and (ends <= torch.tensor([10, 5, 1])).all())
    True
    """
    n, device = len(x), x.device
    share = KEPT + (1 - KEPT) * torch.rand(n, device=device)
    kept = torch.maximum((share * lengths).round().long(), lengths.clamp(max=1))
    begin = ((lengths - kept + 1) * torch.rand(n, device=device)).long()
    t = torch.arange(int(kept.max()) if n else 0, device=device)
    beyond = t >= kept[:, None]  # (batch, time)
    places = (begin[:, None] + t).masked_fill(beyond, 0)
    y = x[torch.arange(n, device=device)[:, None], places]
    if tokens:
        y = y.masked_fill(torch.rand(y.shape, device=device) < CHANGED, 0)
    else:
        y = y + CHANGED * torch.randn_like(y)
    y[beyond] = 0
    return y, kept
