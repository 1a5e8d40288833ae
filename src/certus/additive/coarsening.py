"""The same problem with wider cells, on which the strength of penalties is found.

A penalty limits how rough a shape may be, however many cells it has: with c times the
number of cells, differences between neighbours are c times smaller, and there are c
times more of them. Most rounds of a search can use few cells, which takes little time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from certus.additive.layout import Additive, TermLevels, number_cells
from certus.typing import Array

#: Cells along an ordered axis of a column, and of a pair.
COLUMN, PAIR = 12, 5
#: A problem is left as it is unless it shrinks to this share of its cells.
WORTH = 0.7


class Coarse(NamedTuple):
    """The smaller problem, where each cell went, and the scale of both levels."""

    p: Additive
    place: Array
    scale: TermLevels

    def levels(self, fine: TermLevels) -> TermLevels:
        """The levels here that correspond to these levels of the finer problem."""
        return TermLevels(*(level / s for level, s in zip(fine, self.scale)))

    def refined(self, levels: TermLevels) -> TermLevels:
        """The levels of the finer problem."""
        return TermLevels(*(level * s for level, s in zip(levels, self.scale)))


def coarsen(p: Additive, variation: bool = False) -> Coarse | None:
    """Merge neighbouring cells; None where that saves little.

    ``variation`` says that levels are those of total variation, which does not grow
    with the number of cells along an axis.
    """
    layout = p.layout
    places, shapes, ratios = [], [], []
    start = 0
    for shape, ordered in zip(layout.shapes, layout.ordered):
        most = COLUMN if len(shape) == 1 else PAIR
        axes = [
            _merged(size, most) if o else np.arange(size)
            for size, o in zip(shape, ordered)
        ]
        made = tuple(int(axis[-1]) + 1 for axis in axes)
        at = np.zeros((1,) * len(shape), dtype=np.intp)
        for k, axis in enumerate(axes):
            along = [1] * len(shape)
            along[k] = len(axis)
            at = at * made[k] + axis.reshape(along)
        places.append(start + at.ravel())
        shapes.append(made)
        ratios.append(len(places[-1]) / int(np.prod(made)))
        start += int(np.prod(made))
    if start > WORTH * layout.size:
        return None
    place = np.concatenate(places).astype(np.int32)
    small = number_cells(shapes, layout.ordered)
    ratio = np.array(ratios)
    lines = np.array([len(shape) for shape in shapes])
    # Along one of two axes differences shrink as their number grows.
    smooth = np.where(lines == 1, ratio, 1.0)
    if variation:
        smooth = np.where(lines == 1, 1.0, 1.0 / np.sqrt(ratio))
    scale = TermLevels(smooth, 1.0 / ratio)
    return Coarse(p._replace(codes=place[p.codes], layout=small), place, scale)


def _merged(size: int, most: int) -> Array:
    """The wider cell of each cell of an axis; that of missing values stays."""
    cells = size - 1
    if cells <= most:
        return np.arange(size)
    return np.concatenate([[0], 1 + np.arange(cells) * most // cells])
