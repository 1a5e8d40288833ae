"""The text format of word2vec: one word and its numbers per line.

The first line holds the number of words and of components; each further line a word
and its vector, separated by single spaces. GloVe's files lack the first line and are
read as well. Every deviation is an error that names the line, since a vector shifted
by one column would still look like a vector.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from certus.persist.container import ModelFileError, write_atomically
from certus.text.words import LineCorpus
from certus.typing import Array
from certus.wording import shorten, unstopped

__all__ = ["read", "write"]


def write(path: str | Path, words: list[str], vectors: Array) -> Path:
    """Write words and vectors with all their digits; atomic."""
    path = Path(path)
    for word in words:
        if not word or len(word.split()) != 1 or len(word) != len(word.strip()):
            raise ValueError(
                f"The word {shorten(repr(word))} is empty or holds a space, which the "
                "word2vec format cannot write; use save()."
            )
        if not word.isascii() and word.encode("utf-8", "replace").decode() != word:
            raise ValueError(
                f"The word {shorten(repr(word))} cannot be written in UTF-8; use "
                "save()."
            )
    try:
        write_atomically(path, _lines(words, vectors))
    except ModelFileError as error:
        raise OSError(f"{path.name} {error}") from error.__cause__
    return path


def _lines(words: list[str], vectors: Array) -> Iterator[bytes]:
    n, d = vectors.shape
    digits = 9 if vectors.dtype.itemsize <= 4 else 17  # enough to read them back
    line = " ".join([f"%.{digits}g"] * d)
    yield f"{n} {d}\n".encode()
    for word, vector in zip(words, vectors):
        yield f"{word} {line % tuple(vector.tolist())}\n".encode()


def read(path: str | Path, dtype: str = "float32") -> tuple[list[str], Array]:
    """Words and vectors of a file in the text format of word2vec or GloVe."""
    name = Path(path).name
    stated, d = None, 0
    words: dict[str, None] = {}
    largest = float(np.finfo(dtype).max)
    values = array("f" if dtype == "float32" else "d")
    for line, text in enumerate(LineCorpus(path), 1):
        parts = text.rstrip(" ").split(" ")  # word2vec itself ends lines with a space
        if line == 1:
            if len(parts) == 2 and all(part.isdecimal() for part in parts):
                stated, d = int(parts[0]), int(parts[1])
                continue
            d = len(parts) - 1
        try:
            if d < 1 or len(parts) != d + 1 or not parts[0]:
                raise ValueError(f"{len(parts)} entries, not a word and {d} numbers")
            vector = [float(part) for part in parts[1:]]
            if not all(abs(number) <= largest for number in vector):
                raise ValueError(f"a number is not finite in {dtype}")
            if parts[0] in words:
                raise ValueError(f"the word {shorten(repr(parts[0]))} occurs twice")
        except ValueError as error:
            raise ValueError(
                f"{name} is not in the word2vec text format: line {line}, "
                f"{unstopped(error)}."
            ) from None
        words[parts[0]] = None
        values.extend(vector)
    if d < 1 or not words or stated not in (None, len(words)):
        lines = "no line" if stated is None else f"a first line that states {stated:,}"
        raise ValueError(
            f"{name} holds {len(words):,} words and {lines}; it was cut short, or "
            "lines were lost. Write it again."
        )
    return list(words), np.frombuffer(values, dtype=dtype).reshape(-1, d).copy()
