"""Numbering the words of texts in compiled code, in the order they first appear.

A :class:`Reader` takes documents a few megabytes at a time, as bytes. ASCII texts, most
of most corpora, are split here, by the rules of :func:`certus.text.tokenize` or
``str.split``; other documents are split before and their words are numbered here as
well. Words are stored as UTF-8 bytes one after another, and found through a hash table
that doubles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np
from numba.extending import register_jitable

from certus._core.cache import kernel
from certus.typing import Array

#: Ends a word in documents that come split; no byte of UTF-8 has this value.
END = 0xFF
_START, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_LOWER, _UPPER = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFF00000000)
_NONE, _ONE = np.uint64(0), np.uint64(1)
#: Kinds of bytes in ASCII texts.
BETWEEN, WITHIN, JOINT = 0, 1, 2


def byte_kinds(whitespace: bool) -> Array:
    """For each ASCII byte whether it separates words, belongs to one, or joins two."""
    characters = [chr(c) for c in range(128)]
    if whitespace:
        within = [not c.isspace() for c in characters]
    else:
        within = [c.isalnum() or c == "_" for c in characters]
    kinds = np.where(within, WITHIN, BETWEEN).astype(np.uint8)
    if not whitespace:
        kinds[ord("'")] = JOINT
    return kinds


class Reader:
    """Gives words numbers, in the order they first appear.

    Parameters
    ----------
    split : callable
        How a text that is not ASCII is split.
    tokenizer : None or "whitespace"
        Whether ASCII texts are split as :func:`certus.text.tokenize` does, or at white
        space, keeping their case.
    """

    def __init__(
        self, split: Callable[[str], Iterable[str]], tokenizer: str | None
    ) -> None:
        whitespace = tokenizer == "whitespace"
        self.split, self.kinds = split, byte_kinds(whitespace)
        # What each byte is read as: in ASCII texts, in words that come split.
        self.fold = np.tile(np.arange(256, dtype=np.uint8), (2, 1))
        if not whitespace:
            self.fold[0, ord("A") : ord("Z") + 1] += 32
        # An entry holds the upper half of the hash and the word's number plus one.
        self.table = np.zeros(1 << 16, dtype=np.uint64)
        self.hashes = np.empty(1 << 15, dtype=np.uint64)
        self.starts = np.zeros((1 << 15) + 1, dtype=np.int64)
        self.letters = np.empty(1 << 20, dtype=np.uint8)
        self.n_words = 0
        self.waiting: list[bytes] = []
        self.ready: list[bool] = []

    def add(self, text: str) -> int:
        """Add a text; returns its size."""
        if text.isascii():
            self.waiting.append(text.encode())
            self.ready.append(False)
            return len(text)
        return self.add_words(self.split(text))

    def add_words(self, words: Iterable[str]) -> int:
        """Add a document that is already split into words."""
        end = bytes([END])
        coded = [word.encode("utf-8", "surrogatepass") + end for word in words]
        self.waiting.append(b"".join(coded))
        self.ready.append(True)
        return len(self.waiting[-1])

    def numbers(self) -> tuple[Array, Array]:
        """Ids of the words of the documents taken since the last call; their ends."""
        sizes = np.fromiter(map(len, self.waiting), np.int64, len(self.waiting))
        begins = np.concatenate([[0], np.cumsum(sizes)])
        text = np.frombuffer(b"".join(self.waiting) or b"\0", dtype=np.uint8)
        ready = np.array(self.ready, dtype=bool)
        self.waiting, self.ready = [], []
        ids = np.empty(int(begins[-1]), dtype=np.int32)
        ends = np.zeros(len(begins), dtype=np.int64)
        done = 0
        while done < len(sizes):
            self._make_room(int(sizes[done]))
            done, self.n_words = _number(
                text,
                begins,
                ready,
                self.kinds,
                self.fold,
                done,
                self.n_words,
                self.table,
                self.hashes,
                self.starts,
                self.letters,
                ids,
                ends,
            )
        return ids[: ends[-1]].copy(), ends[1:]

    def _make_room(self, size: int) -> None:
        """For all words of a document of this many bytes."""
        while self.n_words + size > len(self.hashes):
            self.hashes = np.concatenate([self.hashes, np.empty_like(self.hashes)])
            self.starts = np.concatenate([self.starts, np.empty_like(self.starts)])
        if 2 * len(self.hashes) > len(self.table):
            self.table = np.zeros(2 * len(self.hashes), dtype=np.uint64)
            _rehash(self.hashes, self.n_words, self.table)
        while self.starts[self.n_words] + size > len(self.letters):
            self.letters = np.concatenate([self.letters, np.empty_like(self.letters)])

    def words(self) -> list[str]:
        """All words so far."""
        bounds = self.starts[: self.n_words + 1].tolist()
        text = self.letters[: bounds[-1]].tobytes()
        parts = (text[a:b] for a, b in pairwise(bounds))
        return [part.decode("utf-8", "surrogatepass") for part in parts]


# -- compiled loops ---------------------------------------------------------------


@kernel
def _rehash(hashes: Array, n: int, table: Array) -> None:
    """Fill an empty table with the first n words."""
    mask = np.uint64(len(table) - 1)
    for i in range(n):
        at = hashes[i] & mask
        while table[at] != _NONE:
            at = (at + _ONE) & mask
        table[at] = (hashes[i] & _UPPER) | np.uint64(i + 1)


@register_jitable(inline="always")
def _find(
    h: np.uint64,
    text: Array,
    p: int,
    q: int,
    fold: Array,
    mode: int,
    n: int,
    table: Array,
    hashes: Array,
    starts: Array,
    letters: Array,
) -> int:
    """The number of the word text[p:q] of hash h; that of a new one is n."""
    h ^= h >> np.uint64(29)
    mask = np.uint64(len(table) - 1)
    at = h & mask
    while table[at] != _NONE:
        if (table[at] ^ h) & _UPPER == _NONE:
            word = int(table[at] & _LOWER) - 1
            first = starts[word]
            if starts[word + 1] - first == q - p:
                i = 0
                while i < q - p and letters[first + i] == fold[mode, text[p + i]]:
                    i += 1
                if i == q - p:
                    return word
        at = (at + _ONE) & mask
    table[at] = (h & _UPPER) | np.uint64(n + 1)
    hashes[n] = h
    first = starts[n]
    for i in range(q - p):
        letters[first + i] = fold[mode, text[p + i]]
    starts[n + 1] = first + q - p
    return n


@kernel
def _number(
    text: Array,
    begins: Array,
    ready: Array,
    kinds: Array,
    fold: Array,
    done: int,
    n: int,
    table: Array,
    hashes: Array,
    starts: Array,
    letters: Array,
    ids: Array,
    ends: Array,
) -> tuple[int, int]:
    """Number documents from ``done`` on while the words of the next one fit.

    Returns how many documents are done, and how many words there are.
    """
    at = ends[done]
    for doc in range(done, len(ready)):
        p, end = begins[doc], begins[doc + 1]
        if n + end - p > len(hashes) or starts[n] + end - p > len(letters):
            return doc, n
        mode = 1 if ready[doc] else 0
        while p < end:
            h, q = _START, p
            if mode:
                while text[q] != END:
                    h = (h ^ np.uint64(text[q])) * _PRIME
                    q += 1
            else:
                while p < end and kinds[text[p]] != WITHIN:
                    p += 1
                if p == end:
                    break
                q = p
                while q < end:
                    kind = kinds[text[q]]
                    if kind != WITHIN:
                        # A joint belongs to the word if another letter follows it.
                        more = q + 1 < end and kinds[text[q + 1]] == WITHIN
                        if kind == BETWEEN or not more:
                            break
                    h = (h ^ np.uint64(fold[0, text[q]])) * _PRIME
                    q += 1
            word = _find(h, text, p, q, fold, mode, n, table, hashes, starts, letters)
            n += word == n
            ids[at] = word
            at += 1
            p = q + 1  # the byte after the word belongs to no word
        ends[doc + 1] = at
    return len(ready), n
