"""How words, sentences and documents are read from texts, lists of words or files.

A document is a text (``str``), which a tokenizer splits into words, or a sequence of
words, which stays unchanged. :func:`documents` yields the words of each, and raises an
error for an invalid corpus.
"""

from __future__ import annotations

import functools
import gzip
import os
import re
import sys
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from certus.base import check_number
from certus.wording import shorten

__all__ = ["LineCorpus", "check_corpus", "documents", "sentences", "tokenize"]

Tokenizer = Callable[[str], Iterable[str]]

_WORDS = re.compile(r"\w+(?:['’]\w+)*")
_PLAIN = "".join(
    c.lower() if c.isalnum() or c == "_" else " " for c in map(chr, range(128))
)
_SENTENCE_ENDS = re.compile(r"(?<=[.!?…])[\"'”’»)\]]*\s+|\n\s*\n|(?<=[。！？])")


# -- words and sentences ----------------------------------------------------------


def tokenize(text: str) -> list[str]:
    """Split a text into words: lower case, runs of letters, digits and underscores.

    An apostrophe inside a word stays in it; other punctuation separates. Letters are
    those of Unicode, composed (NFC) and together with their combining marks, so that
    words of Indic scripts stay whole. Scripts without spaces need a tokenizer of
    their own.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    list of str
        The words, in order.

    Examples
    --------
    >>> from certus.text import tokenize
    >>> tokenize("Don't panic: x_1 isn't 42!")
    ["don't", 'panic', 'x_1', "isn't", '42']
    """
    if text.isascii():
        if "'" not in text:
            return text.translate(_PLAIN).split()  # a third of the pattern's time
        return _WORDS.findall(text.lower())
    return _wide_words().findall(unicodedata.normalize("NFC", text.lower()))


@functools.cache
def _wide_words() -> re.Pattern[str]:
    """Words with combining marks, which patterns do not count as letters."""
    marks, start = [], None
    for code in range(0x300, sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code))[0] == "M"
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            marks.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = None
    letter = f"[\\w{''.join(marks)}]"
    return re.compile(f"{letter}+(?:['’]{letter}+)*")


def sentences(text: str) -> list[str]:
    """Split a text into sentences: after a stop before a space, and at empty lines.

    Stops are ``. ! ? …``. Abbreviations are not known: "e.g. this" makes two
    sentences.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    list of str
        The sentences, without the space around them; none of them is empty.

    Examples
    --------
    >>> from certus.text import sentences
    >>> sentences("It works. Does it?  Version 2.1 does!")
    ['It works.', 'Does it?', 'Version 2.1 does!']
    """
    parts = (part.strip() for part in _SENTENCE_ENDS.split(text))
    return [part for part in parts if part]


# -- documents --------------------------------------------------------------------


def documents(
    texts: Iterable[Any], tokenizer: str | Tokenizer | None = None
) -> Iterator[Sequence[str]]:
    """The words of each document, one document at a time.

    Parameters
    ----------
    texts : iterable
        Documents, each a str or a sequence of words.
    tokenizer : None, "whitespace" or callable
        How a str is split; None means :func:`tokenize`. Sequences are taken as given.

    Yields
    ------
    sequence of str
        The words of a document. Whether they are strings is seen by who reads them.

    Examples
    --------
    >>> from certus.text.words import documents
    >>> list(documents(["One text.", ["three", "ready", "words"]]))
    [['one', 'text'], ['three', 'ready', 'words']]
    """
    split = splitter(tokenizer)
    check_corpus(texts)
    for i, document in enumerate(texts):
        if isinstance(document, str):
            yield split(document)  # type: ignore[misc]
        elif type(document) is list or type(document) is tuple:
            yield document
        else:
            yield words_of(document, i)


def splitter(tokenizer: str | Tokenizer | None) -> Tokenizer:
    """The function that splits a text."""
    if tokenizer is None:
        return tokenize
    if isinstance(tokenizer, str) and tokenizer == "whitespace":
        return str.split
    if callable(tokenizer):
        return tokenizer
    raise ValueError(
        f"tokenizer must be None, 'whitespace' or a function, got {tokenizer!r}."
    )


def check_corpus(texts: Any) -> None:
    """Raise an error unless this is a collection of documents."""
    if isinstance(texts, str | bytes):
        raise ValueError(
            "The corpus is a single string; pass a list of documents, for example "
            "[text], or sentences(text)."
        )
    if isinstance(texts, Mapping) or hasattr(texts, "columns"):
        raise ValueError(
            "The corpus is a table or a dictionary; pass the column with the texts."
        )
    if hasattr(texts, "tocsr"):
        raise ValueError("The corpus is a sparse matrix; pass the texts themselves.")
    if getattr(texts, "ndim", 1) == 0 or not isinstance(texts, Iterable):
        raise ValueError(
            f"The corpus is a {type(texts).__name__}; pass an iterable of documents."
        )


def words_of(document: object, i: int) -> Sequence[str]:
    """The words of document ``i``, which is not a text."""
    if isinstance(document, bytes | bytearray):
        raise ValueError(f"Document {i} is bytes; decode it, or read it as text.")
    if isinstance(document, Mapping) or not isinstance(document, Iterable):
        raise ValueError(
            f"Document {i} is {shorten(repr(document))} ({type(document).__name__}); "
            "a document is a string or a sequence of words."
        )
    return list(document)


class LineCorpus:
    r"""A text file read line by line, each line a document; it can be read again.

    Parameters
    ----------
    path : str or Path
        A text file in UTF-8; one that ends in ``.gz`` is decompressed on the way.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from certus.text import LineCorpus
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "lines.txt"
    ...     _ = path.write_text("one document\nanother\n", encoding="utf-8")
    ...     list(LineCorpus(path)), list(LineCorpus(path))[1]
    (['one document', 'another'], 'another')
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def __iter__(self) -> Iterator[str]:
        """Yield the lines, without their ends."""
        opener: Any = gzip.open if self.path.suffix == ".gz" else open
        line = 0
        try:
            with opener(self.path, "rt", encoding="utf-8-sig", newline="\n") as handle:
                for text in handle:
                    line += 1
                    yield text.rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{self.path.name} is not UTF-8 after line {line}; convert it first."
            ) from error
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(
                f"{self.path.name} is incomplete after line {line} ({error}); "
                "compress it again."
            ) from error

    def __repr__(self) -> str:
        """The class and the path."""
        return f"LineCorpus({str(self.path)!r})"


def character_lengths(pair: tuple[int, int]) -> tuple[int, int]:
    """Fewest and most characters of an n-gram: the parameter ``char_ngrams``."""
    try:
        low, high = pair
    except (TypeError, ValueError):
        raise ValueError(
            f"char_ngrams must be a pair (fewest, most characters), got {pair!r}."
        ) from None
    check_number("char_ngrams[0]", low, 1, integer=True)
    check_number("char_ngrams[1]", high, low, 2**62, integer=True)
    return int(low), int(high)
