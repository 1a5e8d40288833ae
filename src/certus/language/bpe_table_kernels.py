"""Hash tables of byte-level BPE, for compiled loops: pieces of text, pairs of tokens.

Tables have open addresses and a power of two as their size. Entry 0 is free.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

_START, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_TURN, _ODD = np.uint64(29), np.uint64(0xBF58476D1CE4E5B9)


@register_jitable
def hash_of(data: Any, i: int, j: int) -> Any:
    """A number for the bytes from i to j."""
    h = _START
    for t in range(i, j):
        h = (h ^ np.uint64(data[t])) * _PRIME
    return (h ^ h >> _TURN) * _ODD


@register_jitable
def same_bytes(data: Any, i: int, j: int, store: Any, start: int, end: int) -> bool:
    """Whether the bytes from i to j are those of the store from start to end."""
    if j - i != end - start:
        return False
    for t in range(j - i):  # noqa: SIM110 (compiled)
        if data[i + t] != store[start + t]:
            return False
    return True


@register_jitable
def _spread(key: Any) -> Any:
    key = (key ^ key >> _TURN) * _ODD
    return key ^ key >> _TURN


@register_jitable
def place_of(keys: Any, key: Any) -> Any:
    """Where a pair stands in the table, or the free place where it would."""
    mask = len(keys) - 1
    at = np.int64(_spread(key) & np.uint64(mask))
    while keys[at] != 0 and keys[at] != key:
        at = (at + 1) & mask
    return at


@register_jitable
def pair_key(a: int, b: int) -> Any:
    """A number for a pair of tokens, never 0."""
    return (np.uint64(a) << np.uint64(32) | np.uint64(b)) + np.uint64(1)
