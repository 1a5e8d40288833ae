"""Hiding parts of rows: blocks of images, cells of tables, steps of sequences.

Of m parts, k = round(share·m) are hidden, but at least one. If there is more than one
part, at least one stays visible. Each row has random numbers of its own, from torch's
generator. What is hidden is replaced by zero, which is the mean of scaled inputs, or by
the token 0, which stands for unknown ones.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

#: Sides of an image are cut into about this many blocks.
BLOCKS = 4
#: Numbers that describe a place in a sequence.
PLACE = 8


def block_side(height: int, width: int) -> int:
    """The default side of the blocks of an image.

    Examples
    --------
    >>> from certus.representation.hiding import block_side
    >>> block_side(8, 8), block_side(28, 28), block_side(1, 1)
    (2, 7, 1)
    """
    return max(1, round(max(height, width) / BLOCKS))


def hidden_count(parts: int, share: float) -> int:
    """How many of a number of parts are hidden.

    Examples
    --------
    >>> from certus.representation.hiding import hidden_count
    >>> hidden_count(16, 0.75), hidden_count(2, 0.9), hidden_count(1, 0.5)
    (12, 1, 1)
    """
    return min(max(1, round(share * parts)), max(1, parts - 1))


def hidden_blocks(n: int, sides: tuple[int, int], block: int, share: float) -> Tensor:
    """Which pixels of n images are hidden: whole blocks, (n, height, width).

    Examples
    --------
    >>> import torch
    >>> from certus.representation.hiding import hidden_blocks
    >>> int(hidden_blocks(3, (8, 8), 2, 0.5)[0].sum())
    32
    """
    height, width = sides
    rows, columns = -(-height // block), -(-width // block)
    chosen = hidden_parts(n, rows * columns, share).reshape(n, rows, columns)
    whole = chosen.repeat_interleave(block, 1).repeat_interleave(block, 2)
    return whole[:, :height, :width]


def hidden_parts(n: int, parts: int, share: float) -> Tensor:
    """Which parts of n rows are hidden, (n, parts)."""
    count = hidden_count(parts, share)
    order = torch.rand(n, parts).argsort(dim=1)
    return order.argsort(dim=1) < count


def hidden_steps(lengths: Tensor, longest: int, share: float) -> Tensor:
    """Which steps of sequences of these lengths are hidden, (n, longest).

    Examples
    --------
    >>> import torch
    >>> from certus.representation.hiding import hidden_steps
    >>> hidden_steps(torch.tensor([4, 1]), 4, 0.5).sum(dim=1)
    tensor([2, 1])
    """
    score = torch.rand(len(lengths), longest)
    inside = torch.arange(longest) < lengths[:, None]
    rank = score.masked_fill(~inside, 2.0).argsort(dim=1).argsort(dim=1)
    counts = torch.tensor([hidden_count(int(m), share) for m in lengths])
    return inside & (rank < counts[:, None])


def places(lengths: Tensor, longest: int, dtype: torch.dtype) -> Tensor:
    """Numbers that tell the steps of a sequence apart, (n, longest, PLACE).

    Sines and cosines of the step and of its share of the length.
    """
    t = torch.arange(longest, dtype=dtype)
    share = (t + 0.5) / lengths[:, None].clamp(min=1).to(dtype)  # some may be empty
    step = t.expand(len(lengths), longest)
    angles = [math.pi * share, 2 * math.pi * share, 0.7 * step, 0.1 * step]
    return torch.stack([f(a) for a in angles for f in (torch.sin, torch.cos)], dim=2)
