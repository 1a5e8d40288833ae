"""What a text costs without a network: an n-gram model and compressors, given a source.

A compressor that has seen a source needs size(source + text) − size(source) for the
text. Whether 2.2 bits for each byte are many or few is answered by these numbers for
the same bytes.
"""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable
from importlib import import_module
from typing import Any

from certus import config
from certus.language.base import read_documents
from certus.language.ngram import NGramModel

__all__ = ["baselines"]

#: Most bytes of the source that a compressor reads: the last ones.
READ = 8_000_000
#: Bytes of a block of bzip2, within which it sees.
BLOCK = 900_000


def baselines(text: str | bytes, source: Any, *, order: int = 5) -> dict[str, float]:
    """Bits for each byte of a text, for simple means that know a source.

    Parameters
    ----------
    text : str, bytes, Path, or a list of these
        What is to be described.
    source : str, bytes, Path, or a list of these
        What was known before: the text that a model was trained on.
    order : int, default=5
        Order of the n-gram model.

    Returns
    -------
    dict of str to float
        For "5-gram", "xz", "bzip2", and "zstd" where Python or the package
        ``zstandard`` has it.

    Examples
    --------
    >>> from certus.language import baselines
    >>> known = "the cat sat on the mat. " * 50
    >>> found = baselines("the cat sat on the mat. the mat sat", known)
    >>> sorted(found)[:3], found["5-gram"] < 1.5
    (['5-gram', 'bzip2', 'xz'], True)
    """
    documents, known = read_documents(text), read_documents(source)
    n_bytes = sum(map(len, documents))
    with config.config_context(certify="never"):
        counted = NGramModel(order=order).fit(known)
    found = {f"{order}-gram": counted.bits_per_byte(documents)}
    wanted, before = b"\n\n".join(documents), b"\n\n".join(known)[-READ:]
    for name, (size, seen) in _compressors().items():
        near = before if seen is None else before[-max(1, seen - len(wanted)) :]
        found[name] = 8 * (size(near + wanted) - size(near)) / n_bytes
    return found


def _compressors() -> dict[str, tuple[Callable[[bytes], int], int | None]]:
    """By name: the bytes that a compressor makes, and how far it looks back."""
    known: dict[str, tuple[Callable[[bytes], int], int | None]] = {
        "xz": (lambda data: len(lzma.compress(data, preset=9)), None),
        "bzip2": (lambda data: len(bz2.compress(data)), BLOCK),
    }
    zstd = _zstd()
    if zstd is not None:
        known["zstd"] = (zstd, None)
    return known


def _zstd() -> Callable[[bytes], int] | None:
    """Zstandard at its strongest usual level, from Python or from ``zstandard``."""
    for name in ("compression.zstd", "zstandard"):
        try:
            module: Any = import_module(name)
        except ImportError:
            continue
        return lambda data: len(module.compress(data, 19))
    return None
