"""Compiled loops that count: words of documents, and words near other words.

``count_documents`` sorts each document and counts its runs. ``window_rows`` makes whole
rows of the co-occurrence matrix: for one word at a time it walks through its
occurrences and adds up the words around them in one table, so nothing is hashed and the
result does not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from certus._core.cache import kernel
from certus.typing import Array


@register_jitable
def _sort(row: Array) -> None:
    """Ascending, in place; most documents are short."""
    if len(row) > 64:
        row.sort()
        return
    for i in range(1, len(row)):
        value, at = row[i], i
        while at > 0 and row[at - 1] > value:
            row[at] = row[at - 1]
            at -= 1
        row[at] = value


@kernel
def count_documents(
    ids: Array,
    offsets: Array,
    first: int,
    last: int,
    words: Array,
    counts: Array,
    sizes: Array,
) -> None:
    """The distinct words of documents ``first`` to ``last``, and how often each occurs.

    They stand at the beginning of the document's stretch of ``words`` and ``counts``.
    """
    for d in range(first, last):
        start, end = offsets[d], offsets[d + 1]
        row, count = words[start:end], counts[start:end]
        for t in range(end - start):
            row[t] = ids[start + t]
        _sort(row)
        n = 0
        for t in range(end - start):
            if n > 0 and row[n - 1] == row[t]:
                count[n - 1] += 1
            else:
                row[n] = row[t]
                count[n] = 1
                n += 1
        sizes[d] = n


@kernel
def count_once(
    ids: Array, offsets: Array, first: int, last: int, seen: Array, counts: Array
) -> None:
    """Add to each word's count the documents, ``first`` to ``last``, that hold it."""
    for d in range(first, last):
        for p in range(offsets[d], offsets[d + 1]):
            word = ids[p]
            if seen[word] != d:
                seen[word] = d
                counts[word] += 1


@kernel
def gather(
    offsets: Array,
    indptr: Array,
    first: int,
    last: int,
    words: Array,
    counts: Array,
    indices: Array,
    data: Array,
) -> None:
    """Move what ``count_documents`` found of each document to its place in a matrix."""
    for d in range(first, last):
        for t in range(indptr[d + 1] - indptr[d]):
            indices[indptr[d] + t] = words[offsets[d] + t]
            data[indptr[d] + t] = counts[offsets[d] + t]


@kernel
def pad(ids: Array, offsets: Array, out: Array) -> None:
    """Copy documents with −1 before, between and after them."""
    at = 0
    for d in range(len(offsets) - 1):
        out[at] = -1
        at += 1
        for p in range(offsets[d], offsets[d + 1]):
            out[at] = ids[p]
            at += 1
    out[at] = -1


@kernel
def occurrences(padded: Array, starts: Array, out: Array) -> None:
    """Positions of each word, ascending; word i's begin at ``starts[i]``."""
    place = starts.copy()
    for p in range(len(padded)):
        word = padded[p]
        if word >= 0:
            out[place[word]] = p
            place[word] += 1


@kernel
def window_rows(
    padded: Array,
    positions: Array,
    starts: Array,
    first: int,
    last: int,
    weights: Array,
    symmetric: bool,
    indices: Array,
    values: Array,
    sizes: Array,
) -> int:
    """Rows ``first`` to ``last`` of the co-occurrence matrix; how many entries.

    ``weights[d − 1]`` is what a word at distance d counts; −1 ends a document.
    """
    n_words = len(starts) - 1
    table = np.zeros(n_words)
    touched = np.empty(n_words, np.int32)
    total = 0
    for i in range(first, last):
        n = 0
        for t in range(starts[i], starts[i + 1]):
            p = positions[t]
            for side in range(2 if symmetric else 1):
                step = 1 if side == 0 else -1
                for d in range(len(weights)):
                    j = padded[p + step * (d + 1)]
                    if j < 0:
                        break
                    if table[j] == 0.0:
                        touched[n] = j
                        n += 1
                    table[j] += weights[d]
        if n > n_words // 16:  # looking at all words beats sorting many
            n = 0
            for j in range(n_words):
                if table[j] != 0.0:
                    touched[n] = j
                    n += 1
        else:
            _sort(touched[:n])
        for t in range(n):
            j = touched[t]
            indices[total] = j
            values[total] = table[j]
            table[j] = 0.0
            total += 1
        sizes[i] = n
    return total
