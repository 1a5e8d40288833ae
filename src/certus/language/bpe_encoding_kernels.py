"""Compiled loops of byte-level BPE: apply merges to a text that is cut into pieces.

Whole pieces are looked up in a table of those met before, others are merged, the merge
that was learnt first before all later ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from certus._core.cache import kernel
from certus.language.bpe_table_kernels import hash_of, pair_key, place_of, same_bytes

#: Pieces longer than this are merged with a heap.
LONG = 96


@kernel
def pair_table(merges: Any, keys: Any, ranks: Any, new: Any) -> None:
    """Fill a hash table with merges; the earlier of two for the same pair counts."""
    for r in range(len(merges)):
        key = pair_key(merges[r, 0], merges[r, 1])
        at = place_of(keys, key)
        if keys[at] == 0:
            keys[at], ranks[at], new[at] = key, r, merges[r, 2]


@kernel
def token_table(offsets: Any, store: Any, table: Any) -> None:
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
    data: Any, i: int, j: int, offsets: Any, store: Any, table: Any
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
    ids: Any, begin: int, n: int, keys: Any, ranks: Any, new: Any, rank: Any, made: Any
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
def _enter(heap: Any, size: int, value: Any) -> int:
    heap[size] = value
    i = size
    while i > 0 and heap[i] < heap[(i - 1) // 2]:
        heap[i], heap[(i - 1) // 2] = heap[(i - 1) // 2], heap[i]
        i = (i - 1) // 2
    return size + 1


@register_jitable
def _take(heap: Any, size: int) -> Any:
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
def _merge_long(ids: Any, begin: int, n: int, keys: Any, ranks: Any, new: Any) -> int:
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
    kept = 0
    for t in range(n):
        if ids[begin + t] >= 0:
            ids[begin + kept] = ids[begin + t]
            kept += 1
    return kept


@kernel
def encode_pieces(
    data: Any,
    begin: int,
    ends: Any,
    merges: Any,
    tokens: Any,
    seen: Any,
    state: Any,
    out: Any,
) -> None:
    """Write the tokens of the pieces that end at ``ends`` behind those in ``out``.

    ``merges`` are the tokens of the 256 bytes and the table of pairs; ``tokens`` is the
    table of whole pieces that are tokens without a merge, if there are such. ``seen``
    finds pieces met before: a table of their numbers, hash, begin, end, first token and
    number of tokens of each. ``state`` counts the pieces remembered and the tokens.
    """
    singles, keys, ranks, new = merges
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
            else:
                size = _merge_long(out, w, j - i, keys, ranks, new)
        if known < most:
            table[at], hashes[known], starts[known], stops[known] = known + 1, h, i, j
            firsts[known], sizes[known] = w, size
            known += 1
        w += size
        i = j
    state[0], state[1] = known, w
