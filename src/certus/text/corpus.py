"""From texts to numbers: words, documents and their positions in a vocabulary.

A corpus is any iterable of documents; a document is a text (``str``), which a tokenizer
splits into words, or a sequence of words. :func:`encode` reads it once, so generators
work, and numbers the words by falling count: ids are the tables' rows, and memory is
that of the vocabulary. Ids beyond a limit wait in a temporary file, not in memory.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np

from certus.base import check_number
from certus.text.reading import Reader
from certus.text.vocabulary import NotAWord, Numbering, Vocabulary
from certus.text.words import (
    Tokenizer,
    check_corpus,
    documents,
    splitter,
    words_of,
)
from certus.typing import Array, TextsLike
from certus.wording import shorten

__all__ = ["Array", "EncodedCorpus", "TextInput", "encode", "positions"]


#: Ids kept in memory; a longer corpus is spooled to a temporary file.
IN_MEMORY = 1 << 25
#: Characters that compiled code reads at a time; it is not loaded for fewer.
BATCH = 1 << 20
#: Ids handled at a time.
CHUNK = 1 << 22


class EncodedCorpus(NamedTuple):
    """A corpus as numbers.

    Attributes
    ----------
    words : list of str
        The vocabulary, by falling count; equally frequent words by first appearance.
    counts : ndarray of int64
        How often each occurs.
    ids : ndarray or memmap of int32
        The words of all documents in a row, as positions in ``words``.
    offsets : ndarray of int64
        Document i is ``ids[offsets[i]:offsets[i + 1]]``.
    n_dropped : int
        Tokens that are not in the vocabulary: too rare, or not in the one given.

    Examples
    --------
    >>> from certus.text import encode
    >>> corpus = encode(["tea or rum", "rum"])
    >>> corpus.words, corpus.ids.tolist(), corpus.offsets.tolist()
    (['rum', 'tea', 'or'], [1, 2, 0, 0], [0, 3, 4])
    """

    words: list[str]
    counts: Array
    ids: Array
    offsets: Array
    n_dropped: int

    @property
    def n_documents(self) -> int:
        """Number of documents, empty ones included."""
        return len(self.offsets) - 1


_BAD_TOKEN = (
    "Document {} holds a token that is not a string: {}. Convert its words to str, "
    "or pass the text itself."
)


def encode(
    texts: Iterable[Any],
    *,
    tokenizer: str | Tokenizer | None = None,
    min_count: int = 1,
    max_words: int | None = None,
    vocabulary: Sequence[str] | Mapping[str, int] | None = None,
) -> EncodedCorpus:
    """Read a corpus once and number its words.

    Parameters
    ----------
    texts : iterable
        Documents, each a str or a sequence of words. A generator serves.
    tokenizer : None, "whitespace" or callable
        How a str is split; None means :func:`tokenize`.
    min_count : int, default=1
        Words that occur less often are dropped.
    max_words : int, optional
        Only the most frequent words are kept.
    vocabulary : Vocabulary, sequence of str, or dict from word to position, optional
        Use these words in this order; others are dropped.

    Returns
    -------
    EncodedCorpus
        Words, counts, ids, offsets and the number of dropped tokens.

    Examples
    --------
    >>> from certus.text import encode
    >>> corpus = encode([["b", "a"], [], ["a", "c", "a"]], min_count=1)
    >>> corpus.words, corpus.ids.tolist(), corpus.offsets.tolist()
    (['a', 'b', 'c'], [1, 0, 0, 2, 0], [0, 2, 2, 5])
    """
    if vocabulary is None:
        words, ids, offsets = _read_anew(texts, tokenizer)
        return _by_count(words, ids, offsets, min_count, max_words)
    if not isinstance(vocabulary, Vocabulary):
        vocabulary = Vocabulary(vocabulary)
    ids, offsets = _read(documents(texts, tokenizer), vocabulary)
    ids, offsets, dropped = _relabelled(ids, offsets, None)
    counts = _count(ids, len(vocabulary))
    return EncodedCorpus(vocabulary.words, counts, ids, offsets, dropped)


def positions(
    texts: Iterable[Any],
    vocabulary: Vocabulary,
    tokenizer: str | Tokenizer | None = None,
) -> list[Array]:
    """The words of each document as positions, −1 for one not in the vocabulary.

    Unlike :func:`encode`, which drops unknown words, it keeps all positions.

    Parameters
    ----------
    texts : iterable
        Documents, each a str or a sequence of words.
    vocabulary : Vocabulary
        Words.
    tokenizer : None, "whitespace" or callable
        How a str is split; None means :func:`certus.text.tokenize`.

    Examples
    --------
    >>> from certus.text import Vocabulary
    >>> from certus.text.corpus import positions
    >>> positions(["tea not rum", ""], Vocabulary(["rum", "tea"]))
    [array([ 1, -1,  0]), array([], dtype=int64)]
    """
    ids, offsets = _read(documents(texts, tokenizer), vocabulary)
    bounds = pairwise(offsets)
    return [np.array(ids[i:j], dtype=np.int64) for i, j in bounds]


def _read(texts: Iterable[Sequence[str]], numbers: dict[str, int]) -> tuple[Any, Array]:
    """The number of each word, and where documents end; one pass."""
    ends, chunk, done = array("q", [0]), array("i"), 0
    get = numbers.__getitem__
    with _Spool() as spool:
        try:
            for words in texts:
                if len(chunk) > CHUNK:
                    done += len(chunk)
                    spool.add(chunk)
                    chunk = array("i")
                chunk.extend(map(get, words))
                ends.append(done + len(chunk))
        except NotAWord as error:
            word = error.args[0]
            what = f"{shorten(repr(word))} ({type(word).__name__})"
            raise TypeError(_BAD_TOKEN.format(len(ends) - 1, what)) from None
        except TypeError as error:
            if "unhashable" not in str(error):
                raise
            raise TypeError(_BAD_TOKEN.format(len(ends) - 1, error)) from None
        spool.add(chunk)
        return spool.whole(), np.frombuffer(ends, dtype=np.int64).copy()


def _read_anew(
    texts: Iterable[Any], tokenizer: str | Tokenizer | None
) -> tuple[list[str], Any, Array]:
    """Words in the order they first appear, their numbers, and where documents end.

    Many texts are split and numbered in compiled code; for a few texts it is not
    loaded.
    """
    check_corpus(texts)
    rest, head, size = iter(texts), [], 0
    for document in () if callable(tokenizer) else rest:
        head.append(document)
        size += len(document) if isinstance(document, str) else 0
        if size > BATCH or not isinstance(document, str):
            break
    every = chain(head, rest)
    if callable(tokenizer) or size <= BATCH:
        numbers = Numbering()
        ids, offsets = _read(documents(every, tokenizer), numbers)
        return list(numbers), ids, offsets
    reader, done, size = Reader(splitter(tokenizer), tokenizer), 0, 0
    ends: list[Array] = [np.zeros(1, dtype=np.int64)]
    with _Spool() as spool:
        for i, document in enumerate(every):
            if isinstance(document, str):
                size += reader.add(document)
            else:
                size += reader.add_words(_checked(words_of(document, i), i))
            if size > BATCH:
                ids, some = reader.numbers()
                spool.add(ids)
                ends.append(some + done)
                done, size = done + len(ids), 0
        ids, some = reader.numbers()
        spool.add(ids)
        ends.append(some + done)
        return reader.words(), spool.whole(), np.concatenate(ends)


def _checked(words: Sequence[Any], i: int) -> Sequence[str]:
    for word in words:
        if not isinstance(word, str):
            what = f"{shorten(repr(word))} ({type(word).__name__})"
            raise TypeError(_BAD_TOKEN.format(i, what))
    return words


def _by_count(
    words: list[str],
    ids: Array,
    offsets: Array,
    min_count: int,
    max_words: int | None,
) -> EncodedCorpus:
    """Number words by falling count, without the rare ones."""
    counts = _count(ids, len(words))
    order = np.argsort(-counts, kind="stable")
    kept = int(np.searchsorted(-counts[order], -min_count, side="right"))
    if max_words is not None:
        kept = min(kept, int(max_words))
    order = order[:kept]
    table = np.full(len(words), -1, dtype=np.int32)
    table[order] = np.arange(kept, dtype=np.int32)
    ids, offsets, dropped = _relabelled(ids, offsets, table)
    return EncodedCorpus(
        [words[i] for i in order], counts[order], ids, offsets, dropped
    )


def _count(ids: Array, n: int) -> Array:
    counts = np.zeros(n, dtype=np.int64)
    for i in range(0, len(ids), CHUNK):
        part = ids[i : i + CHUNK]
        counts += np.bincount(part[part >= 0], minlength=n)
    return counts


def _relabelled(
    ids: Array, offsets: Array, table: Array | None
) -> tuple[Array, Array, int]:
    """Ids through a table, in place; those below zero leave, and documents shrink."""
    kept = 0
    moved = np.zeros_like(offsets)
    document = 0
    for i in range(0, len(ids), CHUNK):
        part = np.asarray(ids[i : i + CHUNK])
        part = part.copy() if table is None else table[part]
        stays = part >= 0
        last = int(np.searchsorted(offsets, i + len(part), side="right")) - 1
        ends = offsets[document + 1 : last + 1] - i
        before = np.concatenate([[0], np.cumsum(stays)])
        moved[document + 1 : last + 1] = kept + before[ends]
        document = last
        some = part[stays]
        ids[kept : kept + len(some)] = some
        kept += len(some)
    return ids[:kept], moved, len(ids) - kept


class _Spool:
    """Collects chunks of ids: in memory while they are few, else in an unnamed file."""

    def __init__(self) -> None:
        self.chunks: list[Any] = []
        self.size = 0
        self.file: Any = None

    def __enter__(self) -> _Spool:
        return self

    def __exit__(self, *_: object) -> None:
        if self.file is not None:
            self.file.close()  # a map keeps its own hold of it

    def add(self, chunk: Array | array[int]) -> None:
        self.chunks.append(chunk)
        self.size += len(chunk)
        if self.size > IN_MEMORY:
            if self.file is None:
                self.file = tempfile.TemporaryFile()  # noqa: SIM115
            try:
                for some in self.chunks:
                    some.tofile(self.file)
                self.file.flush()
            except OSError as error:
                raise OSError(
                    f"There is no space in {tempfile.gettempdir()} for the words of "
                    f"the corpus ({error.strerror or error}); set TMPDIR to a larger "
                    "disk."
                ) from error
            self.chunks = []

    def whole(self) -> Array:
        """All ids; of a file, a map that lives as long as it is used."""
        if self.file is not None:
            return np.memmap(self.file, dtype=np.int32, mode="r+", shape=(self.size,))
        ids = np.empty(self.size, dtype=np.int32)
        at = 0
        for chunk in self.chunks:
            ids[at : at + len(chunk)] = chunk
            at += len(chunk)
        return ids


class TextInput:
    """Code that estimators of texts share: reading, and scikit-learn's tags.

    A class that uses it has the parameters ``tokenizer``, ``min_count`` and, perhaps,
    ``max_words``.
    """

    tokenizer: Any

    def _read(self, texts: TextsLike | EncodedCorpus) -> EncodedCorpus:
        """The corpus as numbers; an encoded corpus stays unchanged."""
        if isinstance(texts, EncodedCorpus):
            return texts
        min_count = getattr(self, "min_count", 1)
        max_words = getattr(self, "max_words", None)
        check_number("min_count", min_count, 1, integer=True)
        check_number("max_words", max_words, 1, integer=True, none=True)
        found = encode(
            self._sources(texts),
            tokenizer=self.tokenizer,
            min_count=min_count,
            max_words=max_words,
        )
        if not found.words:
            rare = f"; {found.n_dropped:,} words are rarer than min_count={min_count}"
            raise ValueError(
                f"The corpus has no words left: it has {found.n_documents:,} "
                f"documents{rare if found.n_dropped else ' and all of them are empty'}."
            )
        return found

    def _contexts(self, texts: Iterable[Any]) -> Iterator[Sequence[str]]:
        """The words of each document: the data that the model's claims are about."""
        return documents(self._sources(texts), self.tokenizer)

    def _sources(self, texts: Iterable[Any]) -> Iterable[Any]:
        """The texts or lists of words that are contexts to the model: the documents."""
        return texts

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.sparse = False
        tags.no_validation = True
        return tags
