"""Rows by address: tables larger than memory, read a block at a time.

A :class:`Key` is an address, ``read`` turns it into rows on any machine, and
:func:`total` adds up what a function finds in each block, always in the same order. A
fit that is a sum over rows therefore gives the same bits on one thread, on two, and on
a cluster. ``certus.scale`` is the public name.
"""

from certus.blocks.keys import Blocks, Key, RowBlock, is_blocks
from certus.blocks.totals import total, tree

__all__ = ["Blocks", "Key", "RowBlock", "is_blocks", "total", "tree"]
