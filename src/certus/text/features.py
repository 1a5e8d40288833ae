"""Features of documents: known words, character n-grams and word n-grams, as rows.

A document becomes the list of rows of the table of vectors that belong to it. Rows
0 … V − 1 are the vocabulary's; those behind are the hash buckets that occur in the
training texts. Buckets that do not occur take no memory and are ignored later, like
words that are neither in the vocabulary nor share a character n-gram with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from certus._core.cache import kernel
from certus.text.corpus import EncodedCorpus
from certus.text.ngrams import Lists, character_ngrams, hash_words, word_ngrams
from certus.typing import Array


class Recipe(NamedTuple):
    """Which features there are besides words."""

    word_ngrams: int
    char_ngrams: tuple[int, int] | None
    n_buckets: int


class Grams(NamedTuple):
    """Buckets of character n-grams by word, and of word n-grams by document."""

    of_words: Lists | None
    of_documents: Lists | None


def hashed(recipe: Recipe, corpus: EncodedCorpus, rows: Array) -> Grams:
    """The buckets of a corpus; word n-grams are those of the known words.

    Parameters
    ----------
    recipe : Recipe
        Which n-grams.
    corpus : EncodedCorpus
        The texts.
    rows : ndarray of int32
        Row of each of the corpus's words, −1 if it is not in the vocabulary.
    """
    of_words = of_documents = None
    if recipe.char_ngrams is not None:
        of_words = character_ngrams(corpus.words, recipe.char_ngrams, recipe.n_buckets)
    if recipe.word_ngrams > 1:
        known = np.where(rows[corpus.ids] >= 0, corpus.ids, -1).astype(np.int32)
        of_documents = word_ngrams(
            hash_words(corpus.words),
            known,
            corpus.offsets,
            recipe.word_ngrams,
            recipe.n_buckets,
        )
    return Grams(of_words, of_documents)


def used_buckets(grams: Grams, n_buckets: int) -> Array:
    """The buckets that occur, ascending."""
    seen = np.zeros(n_buckets, dtype=bool)
    for lists in grams:
        if lists is not None:
            seen[lists.values] = True
    return np.flatnonzero(seen)


def word_rows(words: list[str], vocabulary: Mapping[str, int]) -> Array:
    """Row of each word, −1 where it is not in the vocabulary."""
    get = vocabulary.get
    return np.fromiter((get(w, -1) for w in words), np.int32, len(words))


def features(
    recipe: Recipe,
    corpus: EncodedCorpus,
    rows: Array,
    grams: Grams,
    buckets: Array,
    n_words: int,
) -> Lists:
    """Rows of each document's features, int32, in the order of its text.

    Parameters
    ----------
    recipe, corpus, rows, grams
        As for, and from, :func:`hashed`.
    buckets : ndarray
        The buckets that have a row, ascending.
    n_words : int
        Size of the vocabulary, behind which the buckets' rows begin.
    """
    plain = grams.of_words is None and grams.of_documents is None
    if plain and np.array_equal(rows, np.arange(len(rows))):
        return Lists(np.asarray(corpus.ids), corpus.offsets)
    known = (recipe.n_buckets, buckets, n_words)
    of_words = _rows_of(grams.of_words, *known, len(corpus.words))
    of_documents = _rows_of(grams.of_documents, *known, corpus.n_documents)
    arrays = (np.asarray(corpus.ids), corpus.offsets, rows, *of_words, *of_documents)
    ends = np.zeros(len(corpus.offsets), dtype=np.int64)
    _gather(*arrays, ends, np.empty(0, dtype=np.int32))
    np.cumsum(ends, out=ends)
    values = np.empty(int(ends[-1]), dtype=np.int32)
    _gather(*arrays, ends, values)
    return Lists(values, ends)


def _rows_of(
    lists: Lists | None, n_buckets: int, buckets: Array, n_words: int, n: int
) -> Lists:
    """Rows in place of buckets, −1 for one without a row; None is n empty lists."""
    if lists is None:
        return Lists(np.empty(0, dtype=np.int32), np.zeros(n + 1, dtype=np.int64))
    table = np.full(n_buckets, -1, dtype=np.int32)
    table[buckets] = n_words + np.arange(len(buckets), dtype=np.int32)
    return Lists(table[lists.values], lists.offsets)


@kernel
def _gather(
    ids: Array,
    offsets: Array,
    rows: Array,
    grams: Array,
    gram_offsets: Array,
    pairs: Array,
    pair_offsets: Array,
    ends: Array,
    values: Array,
) -> None:
    """Count the features of document i into ends[i + 1], or fill them in.

    They are filled in if ``values`` is large enough; ``ends`` then holds where each
    begins.
    """
    fill = len(values) > 0
    for i in range(len(offsets) - 1):
        at = ends[i] if fill else 0
        for p in range(offsets[i], offsets[i + 1]):
            word = ids[p]
            if rows[word] >= 0:
                if fill:
                    values[at] = rows[word]
                at += 1
            for q in range(gram_offsets[word], gram_offsets[word + 1]):
                if grams[q] >= 0:
                    if fill:
                        values[at] = grams[q]
                    at += 1
        for q in range(pair_offsets[i], pair_offsets[i + 1]):
            if pairs[q] >= 0:
                if fill:
                    values[at] = pairs[q]
                at += 1
        if not fill:
            ends[i + 1] = at


def select(lists: Lists, rows: Array) -> Lists:
    """The features of some documents."""
    starts, sizes = lists.offsets[rows], np.diff(lists.offsets)[rows]
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    at = np.repeat(starts - ends[:-1], sizes) + np.arange(ends[-1])
    return Lists(np.asarray(lists.values[at], dtype=np.int32), ends)
