"""Pairs of tokens, for compiled loops: their counts, a table of them, and a heap.

A row is a pair with its count and the stretch of its places in an array of such. The
heap has the most frequent pair first; of equal ones, that with the smallest tokens.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from certus.language.tokens.bpe_table_kernels import pair_key, spread
from certus.typing import Array


class CountedPairs(NamedTuple):
    """Pairs of tokens, a row for each."""

    left: Any
    right: Any
    often: Any
    begin: Any  # of its places
    size: Any  # the number of them


@register_jitable
def row_place(table: Any, pairs: Any, x: int, y: int) -> Any:
    """Where a pair stands in the table of rows, or the free place where it would."""
    mask = len(table) - 1
    at = np.int64(spread(pair_key(x, y)) & np.uint64(mask))
    while table[at] != 0:
        p = table[at] - 1
        if pairs.left[p] == x and pairs.right[p] == y:
            break
        at = (at + 1) & mask
    return at


@register_jitable
def new_row(
    pairs: Any, p: int, x: int, y: int, often: int, begin: int, size: int, table: Any
) -> None:
    """Write row p, and its number into the table."""
    pairs.left[p], pairs.right[p], pairs.often[p] = x, y, often
    pairs.begin[p], pairs.size[p] = begin, size
    table[row_place(table, pairs, x, y)] = p + 1


@register_jitable
def wider_table(table: Any, pairs: Any, n: int) -> Any:
    """The table of n rows with twice the room; small tables stay in cache."""
    table = np.zeros(2 * len(table), np.int32)
    for p in range(n):
        table[row_place(table, pairs, pairs.left[p], pairs.right[p])] = p + 1
    return table


@register_jitable
def twice(array: Any) -> Any:
    """The array with twice the room."""
    return np.concatenate((array, np.empty_like(array)))


@register_jitable
def more_pairs(pairs: Any) -> Any:
    """The pairs with twice the room."""
    return CountedPairs(
        twice(pairs.left),
        twice(pairs.right),
        twice(pairs.often),
        twice(pairs.begin),
        twice(pairs.size),
    )


@register_jitable
def _before(counts: Array, pairs: Array, a: Array, b: Array, i: int, j: int) -> bool:
    """Whether entry i of the heap is merged before j: more frequent, smaller tokens."""
    if counts[i] != counts[j]:
        return counts[i] > counts[j]
    p, q = pairs[i], pairs[j]
    return a[p] < a[q] or (a[p] == a[q] and b[p] < b[q])


@register_jitable
def _swap(counts: Array, pairs: Array, i: int, j: int) -> None:
    counts[i], counts[j] = counts[j], counts[i]
    pairs[i], pairs[j] = pairs[j], pairs[i]


@register_jitable
def _sink(counts: Array, pairs: Array, size: int, i: int, a: Array, b: Array) -> None:
    while 2 * i + 1 < size:
        c = 2 * i + 1
        if c + 1 < size and _before(counts, pairs, a, b, c + 1, c):
            c += 1
        if not _before(counts, pairs, a, b, c, i):
            return
        _swap(counts, pairs, i, c)
        i = c


@register_jitable
def _rise(counts: Array, pairs: Array, i: int, a: Array, b: Array) -> None:
    while i > 0 and _before(counts, pairs, a, b, i, (i - 1) // 2):
        _swap(counts, pairs, i, (i - 1) // 2)
        i = (i - 1) // 2


@register_jitable
def next_best(counts: Any, rows: Any, size: int, pairs: Any, least: int) -> Any:
    """Take the most frequent pair from the heap; its row, or −1, and the heap's size.

    An entry holds the count it was entered with; a count that fell since is entered
    again when it comes up.
    """
    while size > 0:
        best, count = rows[0], counts[0]
        if count < least:
            break
        often = pairs.often[best]
        if count > often >= least:
            counts[0] = often
        else:
            size -= 1
            counts[0], rows[0] = counts[size], rows[size]
        _sink(counts, rows, size, 0, pairs.left, pairs.right)
        if count == often:
            return best, size
    return -1, size


@register_jitable
def first_heap(counts: Any, rows: Any, size: int, pairs: Any) -> None:
    """Make a heap of the first rows."""
    for p in range(size):
        counts[p], rows[p] = pairs.often[p], p
    for i in range(size // 2, -1, -1):
        _sink(counts, rows, size, i, pairs.left, pairs.right)


@register_jitable
def enter_heap(
    begin: int, end: int, counts: Any, rows: Any, size: int, pairs: Any, least: int
) -> int:
    """Enter the rows from begin to end into the heap, if often enough; its size."""
    for p in range(begin, end):
        if pairs.often[p] >= least:
            counts[size], rows[size] = pairs.often[p], p
            _rise(counts, rows, size, pairs.left, pairs.right)
            size += 1
    return size


@register_jitable
def empty_pairs(n: int) -> Any:
    """Room for n rows."""
    return CountedPairs(
        np.empty(n, np.int32),
        np.empty(n, np.int32),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
    )
