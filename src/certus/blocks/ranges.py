"""Consecutive rows of a table, such as the folds of a cross-validation.

A range may begin or end inside a block, which is then read by both of its neighbours.
"""

from __future__ import annotations

import hashlib
from copy import copy

from certus.blocks.keys import Blocks, Key, RowBlock
from certus.typing import Array


class RangeBlocks(Blocks):
    """The rows from ``first`` up to ``end``; addresses count these rows only.

    Parameters
    ----------
    whole : Blocks
        The table.
    first, end : int
        Rows of the table.
    """

    def __init__(self, whole: Blocks, first: int, end: int) -> None:
        self.whole, self.names, self.dtype = whole, whole.names, whole.dtype
        self.named = whole.named
        self._from: dict[Key, tuple[Key, slice]] = {}
        for key in whole.keys:
            low, high = max(first, key.first), min(end, key.first + key.rows)
            if low < high:
                mine = key._replace(first=low - first, rows=high - low)
                self._from[mine] = key, slice(low - key.first, high - key.first)
        if not self._from:
            raise ValueError(f"The table has no rows from {first:,} to {end:,}.")
        self.keys = tuple(self._from)

    def only(self, key: Key) -> RangeBlocks:
        """The same range with one address."""
        found = copy(self)
        found.keys, found._from = (key,), {key: self._from[key]}
        found.whole = self.whole.only(self._from[key][0])
        return found

    def digest(self) -> bytes:
        """The table's own, and the rows."""
        whole = self.whole.digest()
        about = repr((self.keys, [part for _, part in self._from.values()])).encode()
        return hashlib.sha256(whole + about).digest() if whole else b""

    def read(self, key: Key) -> RowBlock:
        """The rows of the range at an address."""
        source, part = self._from[key]
        block = self.whole.read(source)
        return RowBlock(block.X[part], _of(block.y, part), _of(block.s, part))


def _of(values: Array | None, part: slice) -> Array | None:
    return None if values is None else values[part]


def folds_of(blocks: Blocks, count: int) -> list[RangeBlocks]:
    """As many runs of rows of equal length, the longer ones first.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.blocks.ranges import folds_of
    >>> from certus.scale import blocks
    >>> [len(fold) for fold in folds_of(blocks(np.zeros((10, 1)), rows=4), 3)]
    [4, 3, 3]
    """
    n = len(blocks)
    ends = [n // count * i + min(i, n % count) for i in range(count + 1)]
    return [RangeBlocks(blocks, ends[i], ends[i + 1]) for i in range(count)]
