"""How much memory a file takes to read, guessed from its beginning; how much is free.

A file that cannot fit is refused before it is loaded, because a machine without memory
ends programs without a message. Guess: rows × bytes of a row while it is read.
"""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Callable
from pathlib import Path

import polars as pl

from certus._core.free_memory import memory_free
from certus.tables.delimited import open_bytes
from certus.tables.errors import TableError

__all__ = ["check_memory", "memory_free", "memory_needed"]

#: Files that take this many bytes or more are announced before they are read.
LARGE = 2**30

_HEAD = 1 << 20
_SAMPLE = 1000  # rows of a binary file
# Measured peaks: text frame, its stripped copy and the typed one, per cell of a
# delimited file and per byte of text; of JSON lines per byte; of binary files per byte
# of the frame.
_CELL, _BYTE, _JSON, _FRAME = 48, 3.0, 3.0, 2.5


def check_memory(
    path: Path, limit: int | None, announce: Callable[[str], None] | None
) -> None:
    """Refuse a file that does not fit, and say what a large one takes."""
    needed = memory_needed(path)
    free = memory_free() if limit is None else limit
    state = "are free" if limit is None else "are allowed"
    size = _bytes(path.stat().st_size)
    what = f"{path.name} ({size}) takes about {_bytes(needed)} of memory"
    if free is not None and needed > free:
        raise TableError(
            f"{what} to read, and {_bytes(free)} {state}. Take a sample of its rows or "
            "fewer columns, or a larger machine."
        )
    if announce is not None and needed >= LARGE:
        announce(f"{what}." if free is None else f"{what}; {_bytes(free)} {state}.")


def memory_needed(path: Path) -> int:
    r"""Guess the bytes that reading a file takes at most.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from certus.tables.memory import memory_needed
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name) / "houses.csv"
    >>> _ = file.write_text("rooms,town\n" + "3,Bath\n" * 1000)
    >>> 50_000 < memory_needed(file) < 200_000
    True
    >>> folder.cleanup()
    """
    kinds = [suffix.lower() for suffix in path.suffixes[-2:]]
    if any(kind in (".csv", ".tsv", ".jsonl", ".ndjson") for kind in kinds):
        return _of_text(path, json=not {".csv", ".tsv"} & set(kinds))
    size = float(path.stat().st_size)
    with contextlib.suppress(pl.exceptions.PolarsError):  # streams cannot be scanned
        frame = (pl.scan_parquet if ".parquet" in kinds else pl.scan_ipc)(path)
        rows = int(frame.select(pl.len()).collect().item())
        sample = frame.head(_SAMPLE).collect()
        size = rows * sample.estimated_size() / max(1, sample.height)
    return int(_FRAME * size)


def _of_text(path: Path, json: bool) -> int:
    """From the rows, cells and packing of the first megabyte."""
    size = packed = path.stat().st_size
    with open_bytes(path) as file:
        head = file.read(_HEAD)
        if isinstance(file, gzip.GzipFile) and file.fileobj is not None:
            # Position in the packed file after this many unpacked bytes.
            read = min(packed, max(1, file.fileobj.tell()))
            size = int(packed / read * len(head))
    if json:
        return int(_JSON * size)
    cells = sum(head.count(mark) for mark in (b",", b";", b"\t", b"|", b"\n"))
    return int(size * (_BYTE + _CELL * cells / max(1, len(head))))


def _bytes(count: float) -> str:
    """A size as people write it."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"
