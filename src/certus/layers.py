"""Layers of a network as plain arrays, read from a module and used in proofs.

A :class:`Network` is a list of steps. Step i takes the results of the steps named in
``inputs`` (0 for the rows themselves, i for the result of step i − 1) and the last one
gives a score for each class. Rows are the first axis of everything.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus.typing import Array


class Dense(NamedTuple):
    """x ↦ W x + b on the last axis.

    ``heft`` are the sizes of the numbers that make up the bias, where they are more
    than one: rounding is measured by them.
    """

    weight: Array  # (outputs, inputs)
    bias: Any = 0.0
    heft: Any = None


class Convolution(NamedTuple):
    """Convolution of images (channels, height, width), as in torch's ``conv2d``."""

    weight: Array  # (outputs, inputs / groups, height, width)
    bias: Any = 0.0  # (outputs,)
    stride: tuple[int, ...] = (1, 1)
    #: Zeros above and below, left and right.
    padding: tuple[tuple[int, int], ...] = ((0, 0), (0, 0))
    dilation: tuple[int, ...] = (1, 1)
    groups: int = 1


class Scaling(NamedTuple):
    """x ↦ factor·x + bias, entry by entry; normalisation as well.

    ``heft`` is as in :class:`Dense`; ``terms`` counts the roundings of an entry.
    """

    factor: Any = 1.0
    bias: Any = 0.0
    heft: Any = None
    terms: int = 1


class MeanPool(NamedTuple):
    """Means over windows of the last two axes: R x Cᵀ over a divisor.

    ``rows`` and ``columns`` hold 1 where an entry is in a window, else 0.
    """

    rows: Array  # (outputs, height)
    columns: Array  # (outputs, width)
    divisor: Any


class MaxPool(NamedTuple):
    """Maxima over windows of the last two axes, by index; −1 for padding."""

    rows: Array  # (outputs, window)
    columns: Array


class Gathered(NamedTuple):
    """Entries of a flattened row, by index (−1 for a zero), then reshaped."""

    places: Array
    shape: tuple[int, ...]


class Bend(NamedTuple):
    """A function of one entry, by name, with its constants."""

    name: str
    constants: tuple[float, ...] = ()


class BranchSum(NamedTuple):
    """The sum of two branches."""


class Joined(NamedTuple):
    """Branches side by side."""

    axis: int


class LayerStep(NamedTuple):
    """A layer and its inputs."""

    layer: Any
    inputs: tuple[int, ...]


class Precision(NamedTuple):
    """How a network computes: unit roundoff, smallest and largest numbers.

    Proofs are about computed numbers, not real ones: every sum may be off by as much as
    rounding can change it, in any order of its terms.
    """

    unit: float = 2.0**-53 + 2.0**-52
    tiny: float = 2.0**-1022
    most: float = float(np.finfo(np.float64).max) / 4


class Network(NamedTuple):
    """Steps, the shape of a row, how they are computed, and whether a softmax follows.

    ``ranked``: only the order of the scores counts, and a softmax may make scores equal
    that are not. ``hidden``: the module returns something other than these scores.
    """

    steps: tuple[LayerStep, ...]
    shape: tuple[int, ...]
    precision: Precision = Precision()
    ranked: bool = False
    hidden: bool = False

    @property
    def size(self) -> int:
        """Entries of a row."""
        return math.prod(self.shape)
