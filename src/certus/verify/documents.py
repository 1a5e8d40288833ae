"""How the verifier reads the text that a claim is about: as bytes, and nothing else.

A text is str (counted as UTF-8), bytes, a file, or a list of these. Tokens stand for it
if their bytes, behind each other, are the text; an end-of-text token between documents
has no bytes. A claim about bits for each byte divides by the bytes given here.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from certus.typing import Array
from certus.verify.stating import require

END = "<|end|>"


class Text(NamedTuple):
    """Documents, their tokens with ends between them, and what the tokens stand for."""

    documents: list[bytes]
    ids: Array
    end: int
    n_tokens: int

    @property
    def size(self) -> int:
        """The bytes of all documents."""
        return sum(map(len, self.documents))

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The fingerprint of the documents, in their order."""
        return fingerprint(self.documents)


def read(texts: Any) -> list[bytes]:
    """The documents as bytes."""
    if isinstance(texts, str | bytes | bytearray | PathLike):
        texts = [texts]
    if not isinstance(texts, Iterable):
        raise ValueError("Pass the text: str, bytes, a path, or a list of these.")
    found = [_bytes(text) for text in texts]
    if not any(found):
        raise ValueError("The text is empty; pass at least one byte of text.")
    return found


def _bytes(text: Any) -> bytes:
    if isinstance(text, PathLike):
        return Path(text).read_bytes()
    if not isinstance(text, str | bytes | bytearray):
        told = f"got {type(text).__name__}"
        raise ValueError(f"A text must be str, bytes or a path, {told}.")
    return text.encode() if isinstance(text, str) else bytes(text)


def encoded(tokenizer: Any, texts: Any) -> Text:
    """The documents with their tokens, whose bytes are compared with the text's."""
    documents, tokens = read(texts), tokenizer.tokens
    require(END in tokenizer.special, f"its tokeniser has no token {END}")
    end = int(tokenizer.special[END])
    require(0 <= end < len(tokens) and tokens[end] == b"", f"{END} stands for bytes")
    parts: list[Array] = []
    for document in documents:
        ids = np.asarray(tokenizer.encode(document), dtype=np.int64)
        inside = ids.size == 0 or (ids.min() >= 0 and ids.max() < len(tokens))
        require(inside, "its tokeniser gives tokens outside its vocabulary")
        said = b"".join([tokens[i] for i in ids.tolist()])
        require(said == document, "its tokens do not stand for the bytes of the text")
        parts += [np.array([end]), ids]
    return Text(documents, np.concatenate(parts[1:]), end, len(tokens))


def fingerprint(documents: Sequence[bytes]) -> dict[str, Any]:
    """Documents, bytes, and checksums times positions; to the bit on any machine."""
    marks = [zlib.crc32(d) * (2 * i + 1) for i, d in enumerate(documents)]
    mark = float(sum(marks) * 0x9E3779B97F4A7C15 % 2**53)
    size = sum(map(len, documents))
    shape = {"shape": [len(documents), size], "dtype": "bytes", "weight": float(size)}
    return {**shape, "x": mark, "x_scale": 0.0, "y": 0.0}
