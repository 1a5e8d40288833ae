"""Tables and lists of byte-level BPE, for compiled loops.

Hash tables of pieces of text and of pairs of tokens have open addresses and a power of
two as their size. Entry 0 is free.

Lists of tokens are one array of cells, one for each byte: the first cell of a token
holds its number, the last one minus its length if it has more than one byte, and those
between are negative. So both neighbours of a token are found, and two tokens are joined
in place, without links.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from certus.typing import Array

_START, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_TURN, _ODD = np.uint64(29), np.uint64(0xBF58476D1CE4E5B9)


@register_jitable
def hash_of(data: Array, i: int, j: int) -> Any:
    """A number for the bytes from i to j."""
    h = _START
    for t in range(i, j):
        h = (h ^ np.uint64(data[t])) * _PRIME
    return (h ^ h >> _TURN) * _ODD


@register_jitable
def same_bytes(data: Array, i: int, j: int, store: Array, start: int, end: int) -> bool:
    """Whether the bytes from i to j are those of the store from start to end."""
    if j - i != end - start:
        return False
    for t in range(j - i):  # noqa: SIM110 (compiled)
        if data[i + t] != store[start + t]:
            return False
    return True


@register_jitable
def spread(key: Any) -> Any:
    """A number for a pair whose low bits can be its place in a table."""
    key = (key ^ key >> _TURN) * _ODD
    return key ^ key >> _TURN


@register_jitable
def place_of(keys: Array, key: Any) -> Any:
    """Where a pair stands in the table, or the free place where it would."""
    mask = len(keys) - 1
    at = np.int64(spread(key) & np.uint64(mask))
    while keys[at] != 0 and keys[at] != key:
        at = (at + 1) & mask
    return at


@register_jitable
def pair_key(a: int, b: int) -> Any:
    """A number for a pair of tokens, never 0."""
    return (np.uint64(a) << np.uint64(32) | np.uint64(b)) + np.uint64(1)


@register_jitable
def begin_before(cells: Array, i: int) -> Any:
    """Where the token begins that ends before cell i."""
    back = np.int64(cells[i - 1])
    return i - 1 if back >= 0 else i + back


@register_jitable
def join_cells(cells: Array, i: int, j: int, end: int, token: int) -> None:
    """Put one token in the place of the one from i to j and the one from j to end."""
    cells[j] = -1
    cells[end - 1] = i - end
    cells[i] = token
