"""Compiled loops of byte-level BPE: apply merges to a text that is cut into pieces.

Whole pieces are looked up in a table of those met before, others are merged, the merge
that was learnt first before all later ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from certus._core.cache import kernel
from certus.language.tokens.bpe_table_kernels import (
    begin_before,
    hash_of,
    join_cells,
    pair_key,
    place_of,
    same_bytes,
)
from certus.typing import Array

#: Pieces longer than this are merged with a heap, and than that with a queue by rank.
LONG, HUGE = 96, 1 << 16
#: Places of a piece are numbered in 32 bits.
MOST = 2**31 - 1


@kernel
def pair_table(merges: Array, keys: Array, ranks: Array, new: Array) -> None:
    """Fill a hash table with merges; the earlier of two for the same pair counts."""
    for r in range(len(merges)):
        key = pair_key(merges[r, 0], merges[r, 1])
        at = place_of(keys, key)
        if keys[at] == 0:
            keys[at], ranks[at], new[at] = key, r, merges[r, 2]


@kernel
def token_table(offsets: Array, store: Array, table: Array) -> None:
    """Fill a hash table with the bytes of tokens; the first of two equal ones counts.

    Token t is ``store[offsets[t]:offsets[t + 1]]``; those without bytes are left out.
    """
    mask = len(table) - 1
    for t in range(len(offsets) - 1):
        i, j = offsets[t], offsets[t + 1]
        at = np.int64(hash_of(store, i, j) & np.uint64(mask))
        while table[at] != 0:
            known = table[at] - 1
            if same_bytes(store, i, j, store, offsets[known], offsets[known + 1]):
                break
            at = (at + 1) & mask
        if table[at] == 0 and j > i:
            table[at] = t + 1


@register_jitable
def _whole_token(
    data: Array, i: int, j: int, offsets: Array, store: Array, table: Array
) -> int:
    """The token whose bytes are those from i to j; -1 if there is none."""
    mask = len(table) - 1
    at = np.int64(hash_of(data, i, j) & np.uint64(mask))
    while table[at] != 0:
        known = table[at] - 1
        if same_bytes(data, i, j, store, offsets[known], offsets[known + 1]):
            return known
        at = (at + 1) & mask
    return -1


@register_jitable
def _merge_short(
    ids: Array,
    begin: int,
    n: int,
    keys: Array,
    ranks: Array,
    new: Array,
    rank: Array,
    made: Array,
) -> int:
    """Apply the merges, lowest rank first, to n tokens from ``begin``; the rest."""
    none = np.int32(2147483647)
    for t in range(n - 1):
        at = place_of(keys, pair_key(ids[begin + t], ids[begin + t + 1]))
        rank[t] = ranks[at] if keys[at] != 0 else none
        made[t] = new[at]
    while n > 1:
        best = 0
        for t in range(1, n - 1):
            if rank[t] < rank[best]:
                best = t
        if rank[best] == none:
            return n
        ids[begin + best] = made[best]
        for t in range(best + 1, n - 1):
            ids[begin + t] = ids[begin + t + 1]
            rank[t - 1] = rank[t]
            made[t - 1] = made[t]
        n -= 1
        for t in range(max(best - 1, 0), min(best + 1, n - 1)):
            at = place_of(keys, pair_key(ids[begin + t], ids[begin + t + 1]))
            rank[t] = ranks[at] if keys[at] != 0 else none
            made[t] = new[at]
    return n


@register_jitable
def _enter(heap: Array, size: int, value: Any) -> int:
    heap[size] = value
    i = size
    while i > 0 and heap[i] < heap[(i - 1) // 2]:
        heap[i], heap[(i - 1) // 2] = heap[(i - 1) // 2], heap[i]
        i = (i - 1) // 2
    return size + 1


@register_jitable
def _take(heap: Array, size: int) -> Any:
    top = heap[0]
    heap[0] = heap[size - 1]
    i = 0
    while 2 * i + 1 < size - 1:
        c = 2 * i + 1
        if c + 1 < size - 1 and heap[c + 1] < heap[c]:
            c += 1
        if heap[i] <= heap[c]:
            break
        heap[i], heap[c] = heap[c], heap[i]
        i = c
    return top


@register_jitable
def _merge_long(
    ids: Array, begin: int, n: int, keys: Array, ranks: Array, new: Array
) -> int:
    """As :func:`_merge_short`, by a heap of (rank, place) and lists: n log n steps."""
    ahead = np.arange(1, n + 1)
    behind = np.arange(-1, n - 1)
    heap = np.empty(3 * n, np.int64)  # rank · 2³² + place
    size = 0
    for t in range(n - 1):
        at = place_of(keys, pair_key(ids[begin + t], ids[begin + t + 1]))
        if keys[at] != 0:
            size = _enter(heap, size, np.int64(ranks[at]) << 32 | t)
    while size > 0:
        top = _take(heap, size)
        size -= 1
        t = top & 0xFFFFFFFF
        u = ahead[t] if ids[begin + t] >= 0 else n
        if u >= n:
            continue
        at = place_of(keys, pair_key(ids[begin + t], ids[begin + u]))
        if keys[at] == 0 or ranks[at] != top >> 32:
            continue
        ids[begin + t], ids[begin + u] = new[at], -1
        ahead[t] = ahead[u]
        if ahead[t] < n:
            behind[ahead[t]] = t
        for s in (behind[t], t):
            if s >= 0 and ahead[s] < n:
                at = place_of(keys, pair_key(ids[begin + s], ids[begin + ahead[s]]))
                if keys[at] != 0:
                    size = _enter(heap, size, np.int64(ranks[at]) << 32 | s)
    return _squeeze(ids[begin : begin + n])


@register_jitable
def _rank(a: int, b: int, keys: Array, ranks: Array) -> Any:
    """The rank of a pair, ``MOST`` if it is not merged."""
    at = place_of(keys, pair_key(a, b))
    return np.int64(ranks[at]) if keys[at] != 0 else MOST


@register_jitable
def _link(
    t: int, rank: int, head: Array, tail: Array, ahead: Array, behind: Array
) -> None:
    """Put place t at the end of the list of a rank."""
    ahead[t], behind[t] = -1, tail[rank]
    if tail[rank] >= 0:
        ahead[tail[rank]] = t
    else:
        head[rank] = t
    tail[rank] = t


@register_jitable
def _unlink(
    t: int, rank: int, head: Array, tail: Array, ahead: Array, behind: Array
) -> None:
    if behind[t] >= 0:
        ahead[behind[t]] = ahead[t]
    else:
        head[rank] = ahead[t]
    if ahead[t] >= 0:
        behind[ahead[t]] = behind[t]
    else:
        tail[rank] = behind[t]


@register_jitable
def _empty(rank: int, head: Array, ahead: Array, places: Array) -> int:
    """Write the places of a rank into an array, from left to right; how many."""
    m, sorted_, t = 0, True, head[rank]
    while t >= 0:
        sorted_ = sorted_ and (m == 0 or places[m - 1] < t)
        places[m] = t
        m, t = m + 1, ahead[t]
    if not sorted_:
        places[:m].sort()
    return m


@register_jitable
def _merge_huge(
    cells: Array, keys: Array, ranks: Array, new: Array, lengths: Array
) -> int:
    """As :func:`_merge_short`, with a list of places for each rank: about n steps.

    Ranks are gone through upwards. A pair that a merge makes goes to the list of its
    rank; if that rank is not above the present one, as tokens that are made in two ways
    can have it, to a heap, which is looked at before each step.
    """
    n, n_ranks = len(cells), np.int64(ranks.max()) + 1
    head, tail = np.full(n_ranks, -1, np.int32), np.full(n_ranks, -1, np.int32)
    ahead, behind = np.empty(n, np.int32), np.empty(n, np.int32)
    for s in range(n - 1):
        rank = _rank(cells[s], cells[s + 1], keys, ranks)
        if rank < MOST:
            _link(s, rank, head, tail, ahead, behind)
    places, late, waiting = np.empty(n, np.int32), np.empty(64, np.int64), 0
    for now in range(n_ranks):
        m, k = _empty(now, head, ahead, places), 0
        while k < m or waiting > 0:
            if k == m or (waiting > 0 and late[0] < now << 32 | places[k]):
                top, waiting = _take(late, waiting), waiting - 1
            else:
                top, k = now << 32 | places[k], k + 1
            t, rank = top & 0xFFFFFFFF, top >> 32
            u = t + lengths[cells[t]] if cells[t] >= 0 else n
            if u >= n:
                continue
            at = place_of(keys, pair_key(cells[t], cells[u]))
            if keys[at] == 0 or ranks[at] != rank:
                continue
            end = u + lengths[cells[u]]
            left = begin_before(cells, t) if t > 0 else -1
            # Pairs above the present rank stand in a list, others are found stale.
            if left >= 0:
                old = _rank(cells[left], cells[t], keys, ranks)
                if now < old < MOST:
                    _unlink(left, old, head, tail, ahead, behind)
            if end < n:
                old = _rank(cells[u], cells[end], keys, ranks)
                if now < old < MOST:
                    _unlink(u, old, head, tail, ahead, behind)
            join_cells(cells, t, u, end, new[at])
            if waiting + 2 > len(late):
                late = np.concatenate((late, np.empty_like(late)))
            for s, v in ((left, t), (t, end)):
                made = (
                    _rank(cells[s], cells[v], keys, ranks) if s >= 0 and v < n else MOST
                )
                if now < made < MOST:
                    _link(s, made, head, tail, ahead, behind)
                elif made <= now:
                    waiting = _enter(late, waiting, made << 32 | s)
    return _squeeze(cells)


@register_jitable
def _squeeze(ids: Array) -> int:
    """Move the tokens to the front; how many there are."""
    kept = 0
    for t in range(len(ids)):
        if ids[t] >= 0:
            ids[kept] = ids[t]
            kept += 1
    return kept


@kernel
def encode_pieces(
    data: Array,
    begin: int,
    ends: Array,
    merges: tuple[Any, ...],
    tokens: tuple[Any, ...],
    seen: tuple[Any, ...],
    state: Array,
    out: Array,
) -> None:
    """Write the tokens of the pieces that end at ``ends`` behind those in ``out``.

    ``merges`` are the tokens of the 256 bytes, the table of pairs, and the bytes of
    each token (none if merges do not keep them); ``tokens`` is the table of whole
    pieces that are tokens without a merge, if there are such. ``seen`` finds pieces met
    before: a table of their numbers, hash, begin, end, first token and number of tokens
    of each. ``state`` counts the pieces remembered and the tokens.
    """
    singles, keys, ranks, new, lengths = merges
    offsets, store, by_bytes = tokens
    table, hashes, starts, stops, firsts, sizes = seen
    mask, most = len(table) - 1, len(hashes)
    rank, made = np.empty(LONG, np.int32), np.empty(LONG, np.int32)
    known, w, i = state[0], state[1], begin
    for e in range(len(ends)):
        j = ends[e]
        h = hash_of(data, i, j)
        at = np.int64(h & np.uint64(mask))
        p = table[at] - 1
        while p >= 0 and not (
            hashes[p] == h and same_bytes(data, i, j, data, starts[p], stops[p])
        ):
            at = (at + 1) & mask
            p = table[at] - 1
        if p >= 0:
            first = firsts[p]
            for t in range(sizes[p]):
                out[w + t] = out[first + t]
            w += sizes[p]
            i = j
            continue
        size = 1
        whole = _whole_token(data, i, j, offsets, store, by_bytes)
        if whole >= 0:
            out[w] = whole
        else:
            for t in range(i, j):
                out[w + t - i] = singles[data[t]]
            if j - i <= LONG:
                size = _merge_short(out, w, j - i, keys, ranks, new, rank, made)
            elif j - i <= HUGE or len(lengths) == 0:
                size = _merge_long(out, w, j - i, keys, ranks, new)
            else:
                cells = out[w : w + j - i]
                size = _merge_huge(cells, keys, ranks, new, lengths)
        if known < most:
            table[at], hashes[known], starts[known], stops[known] = known + 1, h, i, j
            firsts[known], sizes[known] = w, size
            known += 1
        w += size
        i = j
    state[0], state[1] = known, w
