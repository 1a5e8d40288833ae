"""Compiled loops of byte-level BPE: count pieces and learn merges.

A text comes cut into pieces (a word with the space before it, a run of digits, of
signs, of white space); merges stay inside of a piece. Learning works on distinct
pieces, so that its cost does not grow with the corpus: tokens of a piece form a linked
list, each pair of neighbours knows where it occurs, and a heap holds the pairs by how
often they do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from certus._core.cache import kernel
from certus.language.bpe_table_kernels import hash_of, pair_key, place_of, same_bytes


@kernel
def count_pieces(
    data: Any,
    begin: int,
    ends: Any,
    table: Any,
    hashes: Any,
    offsets: Any,
    store: Any,
    counts: Any,
    found: Any,
) -> int:
    """Count the pieces that end at ``ends``; how many, fewer if the arrays are full.

    ``found`` holds the number of distinct pieces; piece p is
    ``store[offsets[p]:offsets[p + 1]]``.
    """
    mask, p, i = len(table) - 1, found[0], begin
    for e in range(len(ends)):
        j = ends[e]
        h = hash_of(data, i, j)
        at = np.int64(h & np.uint64(mask))
        while True:
            known = table[at] - 1
            if known < 0:
                full = 2 * p > mask or p == len(counts)
                if full or offsets[p] + j - i > len(store):
                    found[0] = p
                    return e
                table[at] = p + 1
                hashes[p] = h
                store[offsets[p] : offsets[p] + j - i] = data[i:j]
                offsets[p + 1] = offsets[p] + j - i
                counts[p] = 1
                p += 1
                break
            if hashes[known] == h and same_bytes(
                data, i, j, store, offsets[known], offsets[known + 1]
            ):
                counts[known] += 1
                break
            at = (at + 1) & mask
        i = j
    found[0] = p
    return len(ends)


@kernel
def fill_table(hashes: Any, n: int, table: Any) -> None:
    """Put n pieces into an empty, larger table."""
    mask = len(table) - 1
    for p in range(n):
        at = np.int64(hashes[p] & np.uint64(mask))
        while table[at] != 0:
            at = (at + 1) & mask
        table[at] = p + 1


@register_jitable
def _before(counts: Any, pairs: Any, a: Any, b: Any, i: int, j: int) -> bool:
    """Whether entry i of the heap is merged before j: more frequent, smaller tokens."""
    if counts[i] != counts[j]:
        return counts[i] > counts[j]
    p, q = pairs[i], pairs[j]
    return a[p] < a[q] or (a[p] == a[q] and b[p] < b[q])


@register_jitable
def _swap(counts: Any, pairs: Any, i: int, j: int) -> None:
    counts[i], counts[j] = counts[j], counts[i]
    pairs[i], pairs[j] = pairs[j], pairs[i]


@register_jitable
def _sink(counts: Any, pairs: Any, size: int, i: int, a: Any, b: Any) -> None:
    while 2 * i + 1 < size:
        c = 2 * i + 1
        if c + 1 < size and _before(counts, pairs, a, b, c + 1, c):
            c += 1
        if not _before(counts, pairs, a, b, c, i):
            return
        _swap(counts, pairs, i, c)
        i = c


@register_jitable
def _rise(counts: Any, pairs: Any, i: int, a: Any, b: Any) -> None:
    while i > 0 and _before(counts, pairs, a, b, i, (i - 1) // 2):
        _swap(counts, pairs, i, (i - 1) // 2)
        i = (i - 1) // 2


@register_jitable
def _pair_of(
    x: int, y: int, keys: Any, index: Any, a: Any, b: Any, first: Any, n: int
) -> tuple[int, int]:
    """The number of a pair, a new one if need be; and how many pairs there are."""
    key = pair_key(x, y)
    at = place_of(keys, key)
    if keys[at] == 0:
        keys[at], index[at] = key, n
        a[n], b[n], first[n] = x, y, -1
        n += 1
    return index[at], n


@register_jitable
def _wider(keys: Any, index: Any, a: Any, b: Any, n: int) -> tuple[Any, Any]:
    """The table of n pairs with four times the room; small tables stay in cache."""
    keys = np.zeros(4 * len(keys), np.uint64)
    index = np.empty(len(keys), np.int64)
    for p in range(n):
        key = pair_key(a[p], b[p])
        at = place_of(keys, key)
        keys[at], index[at] = key, p
    return keys, index


@register_jitable
def _note(
    p: int, i: int, places: Any, after: Any, first: Any, last: Any, n: int
) -> int:
    """Add place i to those of pair p."""
    places[n], after[n] = i, -1
    if first[p] < 0:
        first[p] = n
    else:
        after[last[p]] = n
    last[p] = n
    return n + 1


@register_jitable
def _token_of(
    store: Any, i: int, j: int, starts: Any, ends: Any, table: Any, n: int
) -> int:
    """The token with the bytes from i to j; n, after entering it, if there is none."""
    mask = len(table) - 1
    at = np.int64(hash_of(store, i, j) & np.uint64(mask))
    while table[at] != 0:
        known = table[at] - 1
        if same_bytes(store, i, j, store, starts[known], ends[known]):
            return known
        at = (at + 1) & mask
    table[at], starts[n], ends[n] = n + 1, i, j
    return n


@kernel
def learn_merges(
    offsets: Any, store: Any, counts: Any, n_wanted: int, least: int, merges: Any
) -> int:
    """Merge the most frequent pair again and again; returns how often.

    Row r of ``merges`` gets left, right and the token made: a new one, or the one that
    has these bytes already. Every pair has a list of the places it was seen at; a place
    counts while its tokens still stand there. An entry of the heap holds the count it
    was entered with; counts that fell since are entered again when they come up.
    """
    total = offsets[-1]
    tokens = store[:total].astype(np.int32)
    ahead = np.empty(total, np.int64)
    behind = np.empty(total, np.int64)
    weight = np.empty(total, np.int64)
    for w in range(len(counts)):
        for i in range(offsets[w], offsets[w + 1]):
            ahead[i] = i + 1 if i + 1 < offsets[w + 1] else -1
            behind[i] = i - 1 if i > offsets[w] else -1
            weight[i] = counts[w]
    # A merge takes one token away and makes at most two pairs: 3·total in all.
    most = 3 * total + 1
    places, after = np.empty(most, np.int64), np.empty(most, np.int64)
    keys, index = np.zeros(1 << 14, np.uint64), np.empty(1 << 14, np.int64)
    a, b = np.empty(most, np.int32), np.empty(most, np.int32)
    often, touched = np.zeros(most, np.int64), np.full(most, -1, np.int64)
    first, last = np.empty(most, np.int64), np.empty(most, np.int64)
    heap_counts, heap_pairs = np.empty(2 * most, np.int64), np.empty(2 * most, np.int64)
    fresh = np.empty(2 * total + 1, np.int64)
    # Bytes of the tokens, as stretches of the store; single bytes are not looked up.
    starts = np.zeros(256 + n_wanted, np.int64)
    ends = np.zeros(256 + n_wanted, np.int64)
    ends[:256] = 1
    room = 1024
    while room < 4 * n_wanted:
        room *= 2
    table = np.zeros(room, np.int64)

    n_pairs = n_places = 0
    for i in range(total):
        if 2 * n_pairs + 8 > len(keys):
            keys, index = _wider(keys, index, a, b, n_pairs)
        if ahead[i] >= 0:
            p, n_pairs = _pair_of(
                tokens[i], tokens[i + 1], keys, index, a, b, first, n_pairs
            )
            often[p] += weight[i]
            n_places = _note(p, i, places, after, first, last, n_places)
    size = n_pairs
    for p in range(size):
        heap_counts[p], heap_pairs[p] = often[p], p
    for i in range(size // 2, -1, -1):
        _sink(heap_counts, heap_pairs, size, i, a, b)

    done, n_tokens = 0, 256
    while n_tokens < 256 + n_wanted and done < len(merges) and size > 0:
        best, count = heap_pairs[0], heap_counts[0]
        if count != often[best]:  # fewer than when it was entered, or entered again
            if count > often[best] > 0:
                heap_counts[0] = often[best]
            else:
                size -= 1
                heap_counts[0], heap_pairs[0] = heap_counts[size], heap_pairs[size]
            _sink(heap_counts, heap_pairs, size, 0, a, b)
            continue
        if count < least:
            break
        size -= 1
        heap_counts[0], heap_pairs[0] = heap_counts[size], heap_pairs[size]
        _sink(heap_counts, heap_pairs, size, 0, a, b)
        x, y, c, n_fresh, at = a[best], b[best], -1, 0, first[best]
        while at >= 0:
            i = places[at]
            at = after[at]
            j = ahead[i] if tokens[i] == x else -1
            if j < 0 or tokens[j] != y:
                continue
            if 2 * n_pairs + 8 > len(keys):
                keys, index = _wider(keys, index, a, b, n_pairs)
            w, left, right = weight[i], behind[i], ahead[j]
            if c < 0:
                end = j + ends[y] - starts[y]
                c = _token_of(store, i, end, starts, ends, table, n_tokens)
                n_tokens += c == n_tokens
            if left >= 0:
                p, n_pairs = _pair_of(
                    tokens[left], x, keys, index, a, b, first, n_pairs
                )
                often[p] -= w
            if right >= 0:
                p, n_pairs = _pair_of(
                    y, tokens[right], keys, index, a, b, first, n_pairs
                )
                often[p] -= w
                behind[right] = i
            tokens[i], tokens[j], ahead[i] = c, -1, right
            for side in range(2):
                s = left if side == 0 else i
                t = i if side == 0 else right
                if s >= 0 and t >= 0:
                    p, n_pairs = _pair_of(
                        tokens[s], tokens[t], keys, index, a, b, first, n_pairs
                    )
                    often[p] += w
                    n_places = _note(p, s, places, after, first, last, n_places)
                    if touched[p] != done:
                        touched[p] = done
                        fresh[n_fresh] = p
                        n_fresh += 1
        often[best] = 0
        merges[done, 0], merges[done, 1], merges[done, 2] = x, y, c
        done += 1
        for t in range(n_fresh):
            p = fresh[t]
            if often[p] > 0:
                heap_counts[size], heap_pairs[size] = often[p], p
                size += 1
                _rise(heap_counts, heap_pairs, size - 1, a, b)
    return done
