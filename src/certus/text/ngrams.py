"""Hashing of character and word n-grams into a fixed number of buckets.

    character n-grams of "where", n = 3:  <wh whe her ere re>
    word n-grams of "a b c", n = 2:       (a, b) (b, c)

The hash is FNV-1a of the UTF-8 bytes, h ← (h xor byte)·16777619 mod 2³², and the bucket
its remainder; it depends on nothing but the text, so a word never seen still has its
n-grams. Two n-grams may share a bucket, which is the price of a table of fixed size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from certus._core.cache import kernel
from certus.typing import Array

#: How a hash takes in the next word of an n-gram.
MIX = np.uint64(116049371)
_START, _PRIME, _LOW = np.uint64(2166136261), np.uint64(16777619), np.uint64(2**32 - 1)


class Lists(NamedTuple):
    """List i is ``values[offsets[i]:offsets[i + 1]]``."""

    values: Array
    offsets: Array


def hash_words(words: Sequence[str]) -> Array:
    """FNV-1a hash of each word.

    Parameters
    ----------
    words : sequence of str
        Words, in any script.

    Returns
    -------
    ndarray of uint64
        Below 2³².

    Examples
    --------
    >>> from certus.text.ngrams import hash_words
    >>> [hex(h) for h in hash_words(["a", "foobar"])]
    ['0xe40c292c', '0xbf9cf968']
    """
    text, starts = _bytes(words, "", "")
    out = np.empty(len(words), dtype=np.uint64)
    _hash_all(text, starts, out)
    return out


def character_ngrams(
    words: Sequence[str], lengths: tuple[int, int], n_buckets: int
) -> Lists:
    """Buckets of the character n-grams of each word, which is first put in < and >.

    Parameters
    ----------
    words : sequence of str
        Words, in any script; a character is a Unicode code point.
    lengths : (int, int)
        Fewest and most characters of an n-gram, the angle brackets included. A bracket
        alone is not an n-gram.
    n_buckets : int
        Number of buckets.

    Returns
    -------
    Lists
        ``values`` (int64, below ``n_buckets``) and ``offsets`` (int64, one more than
        words): the buckets of word i are ``values[offsets[i]:offsets[i + 1]]``, in the
        order of their first character, then of their length.

    Examples
    --------
    >>> from certus.text.ngrams import character_ngrams
    >>> found = character_ngrams(["where", "a"], (3, 3), 1000)
    >>> found.offsets.tolist()
    [0, 5, 6]
    """
    text, starts = _bytes(words, "<", ">")
    low, high = int(lengths[0]), int(lengths[1])
    offsets = np.zeros(len(words) + 1, dtype=np.int64)
    _count_ngrams(text, starts, low, high, offsets)
    np.cumsum(offsets, out=offsets)
    values = np.empty(int(offsets[-1]), dtype=np.int64)
    _fill_ngrams(text, starts, low, high, np.uint64(n_buckets), offsets, values)
    return Lists(values, offsets)


def word_ngrams(
    hashes: Array, ids: Array, offsets: Array, n: int, n_buckets: int
) -> Lists:
    """Buckets of the n-grams of 2 to ``n`` successive words of each document.

    Parameters
    ----------
    hashes : ndarray of uint64
        Hash of each word, see :func:`hash_words`.
    ids : ndarray of int32
        Words of all documents behind each other; negative ones are ignored.
    offsets : ndarray of int64
        Where each document begins in ``ids``, and the end.
    n : int
        Most words of an n-gram.
    n_buckets : int
        Number of buckets.

    Returns
    -------
    Lists
        The buckets of each document.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.text.ngrams import hash_words, word_ngrams
    >>> ids, offsets = np.array([0, 1, 2], np.int32), np.array([0, 3])
    >>> word_ngrams(hash_words(["a", "b", "c"]), ids, offsets, 2, 1000).offsets.tolist()
    [0, 2]
    """
    ends = np.zeros(len(offsets), dtype=np.int64)
    _count_word_ngrams(ids, offsets, n, ends)
    np.cumsum(ends, out=ends)
    values = np.empty(int(ends[-1]), dtype=np.int64)
    _fill_word_ngrams(hashes, ids, offsets, n, np.uint64(n_buckets), ends, values)
    return Lists(values, ends)


def _bytes(words: Sequence[str], before: str, after: str) -> tuple[Array, Array]:
    """All words as UTF-8, and where each begins; lone surrogates stay as they are."""
    coded = [(before + w + after).encode("utf-8", "surrogatepass") for w in words]
    starts = np.zeros(len(coded) + 1, dtype=np.int64)
    np.cumsum([len(c) for c in coded], out=starts[1:])
    return np.frombuffer(b"".join(coded) or b"\0", dtype=np.uint8), starts


# -- compiled loops ---------------------------------------------------------------


@kernel
def _hash_all(text: Array, starts: Array, out: Array) -> None:
    """FNV-1a of each word."""
    for i in range(len(out)):
        h = _START
        for p in range(starts[i], starts[i + 1]):
            h = ((h ^ np.uint64(text[p])) * _PRIME) & _LOW
        out[i] = h


@kernel
def _count_ngrams(
    text: Array, starts: Array, low: int, high: int, count: Array
) -> None:
    """Number of n-grams of word i into count[i + 1]."""
    for i in range(len(starts) - 1):
        characters = 0
        for p in range(starts[i], starts[i + 1]):
            characters += (text[p] & 0xC0) != 0x80
        total = 0
        for n in range(low, min(high, characters) + 1):
            total += characters - n + 1
        if low == 1:
            total -= 2
        count[i + 1] = total


@kernel
def _fill_ngrams(
    text: Array,
    starts: Array,
    low: int,
    high: int,
    n_buckets: np.uint64,
    offsets: Array,
    values: Array,
) -> None:
    """Hash each n-gram while walking on from its first byte."""
    for i in range(len(starts) - 1):
        first, end, at = starts[i], starts[i + 1], offsets[i]
        for p in range(first, end):
            if (text[p] & 0xC0) == 0x80:  # inside a character
                continue
            h, n, q = _START, 0, p
            while q < end and n < high:
                h = ((h ^ np.uint64(text[q])) * _PRIME) & _LOW
                q += 1
                while q < end and (text[q] & 0xC0) == 0x80:
                    h = ((h ^ np.uint64(text[q])) * _PRIME) & _LOW
                    q += 1
                n += 1
                if n < low or (n == 1 and (p == first or q == end)):
                    continue
                values[at] = h % n_buckets
                at += 1


@kernel
def _count_word_ngrams(ids: Array, offsets: Array, n: int, count: Array) -> None:
    """Number of n-grams of document i into count[i + 1]."""
    for i in range(len(offsets) - 1):
        known = 0
        for p in range(offsets[i], offsets[i + 1]):
            known += ids[p] >= 0
        total = 0
        for size in range(2, min(n, known) + 1):
            total += known - size + 1
        count[i + 1] = total


@kernel
def _fill_word_ngrams(
    hashes: Array,
    ids: Array,
    offsets: Array,
    n: int,
    n_buckets: np.uint64,
    ends: Array,
    values: Array,
) -> None:
    """Hash each n-gram while walking on from its first word."""
    for i in range(len(offsets) - 1):
        at, end = ends[i], offsets[i + 1]
        for p in range(offsets[i], end):
            if ids[p] < 0:
                continue
            h, size, q = hashes[ids[p]], 1, p + 1
            while q < end and size < n:
                if ids[q] >= 0:
                    h = h * MIX + hashes[ids[q]]
                    size += 1
                    values[at] = h % n_buckets
                    at += 1
                q += 1
