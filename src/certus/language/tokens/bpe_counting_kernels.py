"""Compiled loops of byte-level BPE: count the distinct pieces of a corpus."""

from __future__ import annotations

import numpy as np

from certus._core.cache import kernel
from certus.language.tokens.bpe_table_kernels import hash_of, same_bytes
from certus.typing import Array


@kernel
def count_pieces(
    data: Array,
    begin: int,
    ends: Array,
    table: Array,
    hashes: Array,
    offsets: Array,
    store: Array,
    counts: Array,
    found: Array,
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
def fill_table(hashes: Array, n: int, table: Array) -> None:
    """Put n pieces into an empty, larger table."""
    mask = len(table) - 1
    for p in range(n):
        at = np.int64(hashes[p] & np.uint64(mask))
        while table[at] != 0:
            at = (at + 1) & mask
        table[at] = p + 1
