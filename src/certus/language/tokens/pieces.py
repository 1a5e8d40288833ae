"""Texts as bytes, cut into pieces, and the pieces of a corpus counted.

Files and iterators are read a few megabytes at a time. A stretch may be cut before each
space that follows a sign, digit or letter: by all rules a piece ends there.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np

from certus.language.tokens import bpe_counting_kernels as kernels
from certus.language.tokens import splitting_kernels as splitting
from certus.typing import Array, Texts, TextsLike

#: White space as regular expressions know it (Unicode's White_Space).
_SPACES = (
    *range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B),
    0x2028, 0x2029, 0x202F, 0x205F, 0x3000,
)  # fmt: skip
#: Bytes that are read from a file at a time.
CHUNK = 1 << 22
#: Pieces that are found at a time.
PIECES = 1 << 16


@cache
def character_kinds() -> Array:
    """Letter, number, white space or other, for each code point."""
    characters = map(chr, range(sys.maxunicode + 1))
    known = {"L": splitting.LETTER, "N": splitting.NUMBER}
    kinds = np.fromiter(
        (known.get(unicodedata.category(c)[0], splitting.OTHER) for c in characters),
        np.uint8,
        sys.maxunicode + 1,
    )
    kinds[list(_SPACES)] = splitting.SPACE
    return kinds


def as_bytes(text: Any) -> bytes:
    """A text as UTF-8; an unpaired surrogate, which has no encoding, is refused."""
    if isinstance(text, str):
        try:
            return text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"the text holds half a character at {error.start} (an unpaired "
                "surrogate), which UTF-8 cannot write. Read the file as bytes instead."
            ) from None
    if isinstance(text, bytes | bytearray | memoryview):
        return bytes(text)
    raise TypeError(f"a text must be str or bytes, got {type(text).__name__}.")


def refuse_characters(texts: Texts) -> None:
    """A list of more than one text, all of them single characters, is one text."""
    listed = isinstance(texts, list | tuple) and len(texts) > 1
    if listed and all(isinstance(text, str) and len(text) == 1 for text in texts):
        raise ValueError(
            f"texts is a list of {len(texts)} single characters, each of which would "
            "be a text of its own. Join them: ''.join(texts)."
        )


def refuse_folder(path: PathLike[str]) -> None:
    """A folder has no text of its own."""
    if Path(path).is_dir():
        raise ValueError(
            f"{path} is a folder; give its files: list(Path({str(path)!r}).glob('*'))."
        )


def stretches(texts: TextsLike) -> Iterator[bytes]:
    """The texts as bytes; files in parts that end where a piece does."""
    if isinstance(texts, PathLike):
        yield from _file(texts)
    elif isinstance(texts, str | bytes | bytearray | memoryview):
        yield as_bytes(texts)
    elif isinstance(texts, Iterable) and not isinstance(texts, Mapping):
        for text in texts:
            yield from (
                stretches(text) if isinstance(text, PathLike) else [as_bytes(text)]
            )
    else:
        raise TypeError(
            "texts must be a text, a path, or a list of these, got "
            f"{type(texts).__name__}."
        )


def _file(path: Any) -> Iterator[bytes]:
    refuse_folder(path)
    rest: list[bytes] = []  # joined once, however long a text without a space is
    with open(path, "rb") as file:
        while part := file.read(CHUNK):
            cut = _last_cut(part)
            if cut:
                yield b"".join([*rest, part[:cut]])
                rest = [part[cut:]]
            else:
                rest.append(part)
    if any(rest):
        yield b"".join(rest)


def _last_cut(data: bytes) -> int:
    """Before the last space that follows visible ASCII; 0 if there is none."""
    given = np.frombuffer(data, np.uint8)
    at = np.flatnonzero((given[1:] == 32) & (given[:-1] > 32) & (given[:-1] < 127))
    return int(at[-1]) + 1 if at.size else 0


def in_pieces(data: Array, rule: int) -> Iterator[tuple[int, Array]]:
    """Where pieces begin and where each of them ends, some thousands at a time."""
    ends, at = np.empty(min(PIECES, max(1, len(data))), np.int64), 0
    while at < len(data):
        n = splitting.find_pieces(data, at, rule, character_kinds(), ends)
        yield at, ends[:n]
        at = int(ends[n - 1])


class PieceCounts:
    """How often each distinct piece occurs; memory grows with the distinct ones."""

    def __init__(self, rule: int = splitting.GPT2) -> None:
        self.rule = rule
        self._found = np.zeros(1, np.int64)
        self._room(1 << 14, 1 << 18)

    def _room(self, pieces: int, size: int) -> None:
        """Arrays for this many pieces and bytes, with what was counted so far."""
        n = int(self._found[0])
        old = vars(self).copy()
        self.hashes = np.zeros(pieces, np.uint64)
        self.offsets = np.zeros(pieces + 1, np.int64)
        self.counts = np.zeros(pieces, np.int64)
        self.store = np.zeros(size, np.uint8)
        self.table = np.zeros(4 * pieces, np.int64)
        if n:
            self.hashes[:n], self.counts[:n] = old["hashes"][:n], old["counts"][:n]
            self.offsets[: n + 1] = old["offsets"][: n + 1]
            end = int(self.offsets[n])
            self.store[:end] = old["store"][:end]
            kernels.fill_table(self.hashes, n, self.table)

    def add(self, texts: TextsLike) -> Self:
        """Count the pieces of texts or files."""
        for part in stretches(texts):
            data = np.frombuffer(part, np.uint8)
            for begin, ends in in_pieces(data, self.rule):
                self._count(data, begin, ends)
        return self

    def _count(self, data: Array, begin: int, ends: Array) -> None:
        while True:
            done = kernels.count_pieces(
                data,
                begin,
                ends,
                self.table,
                self.hashes,
                self.offsets,
                self.store,
                self.counts,
                self._found,
            )
            if done == len(ends):
                return
            begin = int(ends[done - 1]) if done else begin
            ends = ends[done:]
            longest = int(ends[0]) - begin
            self._room(2 * len(self.counts), 2 * len(self.store) + longest)

    def arrays(self) -> tuple[Array, Array, Array]:
        """Offsets, bytes and counts of the distinct pieces."""
        n = int(self._found[0])
        return self.offsets[: n + 1].copy(), self.store, self.counts[:n]
