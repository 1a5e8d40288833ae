"""Compiled loops of byte-level BPE: learn merges.

A text comes cut into pieces (a word with the space before it, a run of digits, of
signs, of white space); merges stay inside of a piece. Learning works on distinct
pieces, so that its cost does not grow with the corpus: their tokens stand in one array
of cells, each pair of neighbours knows where it occurs, and a heap holds the pairs by
how often they do.

A step joins all places of a pair x y to c. It changes the counts of pairs (·, x) and
(y, ·), and makes pairs (·, c) and (c, ·): both are added up by their other token, and
pairs are looked up once for each such token, not for each place.

No token is made twice. What happens between two places that no merge crosses does not
depend on what is around them; so bytes that became c once, by the pair x y, become c by
this pair wherever they become a token at all, and all in the same step. Therefore a
pair gets all its places in the step that made the younger of its tokens. They stand
behind each other, from left to right, and from then on its count can only fall.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from certus._core.cache import kernel
from certus.language.tokens.bpe_pair_kernels import (
    empty_pairs,
    enter_heap,
    first_heap,
    more_pairs,
    new_row,
    next_best,
    row_place,
    twice,
    wider_table,
)
from certus.language.tokens.bpe_table_kernels import (
    begin_before,
    join_cells,
)
from certus.typing import Array

#: The cell between two pieces.
_GAP = np.int32(-(2**31))
#: Cells for which the first one's piece is written down; the others' are close to it.
_NEAR = 16


class _Sides(NamedTuple):
    """Sums over the places of a step, by the token on the left or right of them."""

    total: Any  # 2 x tokens: how often
    number: Any  # 2 x tokens: of places
    met: Any  # 2 x tokens: those that have a sum
    size: Any  # how many these are, for both sides


@register_jitable
def _piece_at(i: int, offsets: Array, near: Array) -> int:
    """The piece of cell i: piece w has cells offsets[w] + w + 1 and following."""
    w = near[i // _NEAR]
    while i > offsets[w + 1] + w + 1:
        w += 1
    return w


@register_jitable
def _in_cells(offsets: Array, store: Array) -> tuple[Any, Any]:
    """The bytes of the pieces with gaps around them, and pieces of some cells."""
    n = len(offsets) - 1
    cells = np.empty(offsets[n] + n + 1, np.int32)
    near = np.zeros(len(cells) // _NEAR + 1, np.int32)
    cells[0], i = _GAP, 1
    for w in range(n):
        for at in range(offsets[w], offsets[w + 1] + 1):
            cells[i] = store[at] if at < offsets[w + 1] else _GAP
            if i % _NEAR == 0:
                near[i // _NEAR] = w
            i += 1
    return cells, near


@register_jitable
def _first_pairs(
    offsets: Array,
    cells: Array,
    counts: Array,
    pairs: Array,
    table: Array,
    places: Array,
) -> int:
    """Count the pairs of bytes and write down where they are; how many pairs."""
    often, size = np.zeros((256, 256), np.int64), np.zeros((256, 256), np.int64)
    for w in range(len(counts)):
        for i in range(offsets[w] + w + 1, offsets[w + 1] + w):
            often[cells[i], cells[i + 1]] += counts[w]
            size[cells[i], cells[i + 1]] += 1
    n, begin = 0, 0
    for x in range(256):
        for y in range(256):
            if size[x, y] > 0:
                new_row(pairs, n, x, y, often[x, y], begin, size[x, y], table)
                n, begin, size[x, y] = n + 1, begin + size[x, y], begin
    for i in range(1, len(cells) - 2):
        if cells[i] != _GAP and cells[i + 1] != _GAP:
            places[size[cells[i], cells[i + 1]]] = i
            size[cells[i], cells[i + 1]] += 1
    return n


@register_jitable
def _add(sides: Any, side: int, token: int, weight: int) -> None:
    if sides.number[side, token] == 0:
        sides.met[side, sides.size[side]] = token
        sides.size[side] += 1
    sides.total[side, token] += weight
    sides.number[side, token] += 1


@register_jitable
def _clear(sides: Any) -> None:
    for side in range(2):
        for k in range(sides.size[side]):
            token = sides.met[side, k]
            sides.total[side, token] = sides.number[side, token] = 0
        sides.size[side] = 0


@register_jitable
def _join(
    some: Array, x: int, y: int, c: int, lengths: Array, cells: Array,
    offsets: Array, near: Array, counts: Array, lost: Array,
) -> int:  # fmt: skip
    """Join the pair wherever it still stands, and keep these places; how many.

    Adds up the pairs (·, x) and (y, ·) that are lost. Left of a place just joined there
    is none: it was the right side of that one.
    """
    last: Any = -1
    m = 0
    for k in range(len(some)):
        i: Any = np.int64(some[k])
        j = i + lengths[x]
        if cells[i] != x or cells[j] != y:
            continue
        end, weight = i + lengths[c], counts[_piece_at(i, offsets, near)]
        if cells[i - 1] != _GAP:
            left = begin_before(cells, i)
            if left != last:
                _add(lost, 0, cells[left], weight)
        if cells[end] != _GAP:
            _add(lost, 1, cells[end], weight)
        join_cells(cells, i, j, end, c)
        some[m], last = i, i
        m += 1
    return m


@register_jitable
def _count_beside(
    some: Array,
    size: int,
    cells: Array,
    offsets: Array,
    near: Array,
    counts: Array,
    made: Array,
) -> None:
    """Add up the pairs (·, c) and (c, ·) at places where c was just made."""
    last: Any = -1
    for k in range(len(some)):
        i: Any = np.int64(some[k])
        weight = counts[_piece_at(i, offsets, near)]
        if cells[i - 1] != _GAP:
            left = begin_before(cells, i)
            if left != last:
                _add(made, 0, cells[left], weight)
        if cells[i + size] != _GAP:
            _add(made, 1, cells[i + size], weight)
        last = i


@register_jitable
def _note_beside(
    some: Array, size: int, cells: Array, free: Array, places: Array
) -> None:
    """Write down the places of these pairs, from ``free`` on by side and token."""
    last: Any = -1
    for k in range(len(some)):
        i: Any = np.int64(some[k])
        if cells[i - 1] != _GAP:
            left = begin_before(cells, i)
            if left != last:
                token = cells[left]
                places[free[0, token]] = left
                free[0, token] += 1
        if cells[i + size] != _GAP:
            token = cells[i + size]
            places[free[1, token]] = i
            free[1, token] += 1
        last = i


@register_jitable
def _forget(lost: Any, x: int, y: int, table: Any, pairs: Any) -> None:
    """Take the pairs (·, x) and (y, ·) that are lost from the counts."""
    for side in range(2):
        for k in range(lost.size[side]):
            token = lost.met[side, k]
            left, right = (token, x) if side == 0 else (y, token)
            p = table[row_place(table, pairs, left, right)] - 1
            pairs.often[p] -= lost.total[side, token]
    _clear(lost)


@register_jitable
def _enter_pairs(
    made: Any, c: int, table: Any, pairs: Any, n: int, begin: int, free: Any
) -> tuple[int, int]:
    """Enter the pairs (·, c) and (c, ·), with room for their places.

    Writes the beginnings into ``free``; returns how many rows and places there are.
    """
    for side in range(2):
        for k in range(made.size[side]):
            token = made.met[side, k]
            often, size = made.total[side, token], made.number[side, token]
            left, right = (token, c) if side == 0 else (c, token)
            new_row(pairs, n, left, right, often, begin, size, table)
            free[side, token] = begin
            n, begin = n + 1, begin + size
    return n, begin


@register_jitable
def _sides(n: int) -> Any:
    size = np.zeros(2, np.int64)
    total, number = np.zeros((2, n), np.int64), np.zeros((2, n), np.int64)
    return _Sides(total, number, np.empty((2, n), np.int32), size)


def learn_merges(
    offsets: Array,
    store: Array,
    counts: Array,
    n_wanted: int,
    least: int,
    merges: Array,
) -> int:
    """Merge the most frequent pair again and again; returns how often.

    Row r of ``merges`` gets left, right and the token made, 256 + r.
    """
    short = offsets[-1] + len(offsets) < 2**31
    # A merge takes one token away and makes at most two pairs: 3·total in all.
    places = np.empty(3 * offsets[-1] + 1, np.int32 if short else np.int64)
    return _learn(offsets, store, counts, n_wanted, least, places, merges)


@kernel
def _learn(
    offsets: Array, store: Array, counts: Array, n_wanted: int, least: int,
    places: Array, merges: Array,
) -> int:  # fmt: skip
    """As :func:`learn_merges`; ``places`` has room for all places of pairs.

    A place counts while its tokens still stand there.
    """
    cells, near = _in_cells(offsets, store)
    room, most = 1 << 17, 256 + n_wanted
    pairs, table = empty_pairs(room), np.zeros(room, np.int32)
    n_rows = _first_pairs(offsets, cells, counts, pairs, table, places)
    n_places = pairs.begin[n_rows - 1] + pairs.size[n_rows - 1] if n_rows else 0
    heap_counts, heap_rows = np.empty(room, np.int64), np.empty(room, np.int32)
    size = n_rows
    first_heap(heap_counts, heap_rows, size, pairs)
    lengths = np.ones(most, np.int64)
    lost, made, free = _sides(most), _sides(most), np.empty((2, most), np.int64)
    for done in range(n_wanted):
        best, size = next_best(heap_counts, heap_rows, size, pairs, least)
        if best < 0:
            return done
        x, y, c = pairs.left[best], pairs.right[best], 256 + done
        lengths[c] = lengths[x] + lengths[y]
        some = places[pairs.begin[best] : pairs.begin[best] + pairs.size[best]]
        m = _join(some, x, y, c, lengths, cells, offsets, near, counts, lost)
        some = some[:m]
        _forget(lost, x, y, table, pairs)
        pairs.often[best] = 0
        _count_beside(some, lengths[c], cells, offsets, near, counts, made)
        n_fresh = made.size[0] + made.size[1]
        while n_rows + n_fresh > len(pairs.left):
            pairs = more_pairs(pairs)
        while 2 * (n_rows + n_fresh) > len(table):
            table = wider_table(table, pairs, n_rows)
        while size + n_fresh > len(heap_counts):
            heap_counts, heap_rows = twice(heap_counts), twice(heap_rows)
        n_rows, n_places = _enter_pairs(made, c, table, pairs, n_rows, n_places, free)
        _note_beside(some, lengths[c], cells, free, places)
        _clear(made)
        size = enter_heap(
            n_rows - n_fresh, n_rows, heap_counts, heap_rows, size, pairs, least
        )
        merges[done, 0], merges[done, 1], merges[done, 2] = x, y, c
    return n_wanted
