"""Decoded blocks that stay in memory, so that the next pass does not decode them again.

At most a quarter of the memory that is free when the first block is kept. Which blocks
are kept changes the time of a fit, never its numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any

from certus._core.free_memory import memory_free
from certus.blocks.keys import Key, RowBlock

#: Bytes that decoded blocks may take; None for a share of the free memory.
LIMIT: ContextVar[float | None] = ContextVar("certus_kept", default=None)
#: Share of the free memory that decoded blocks may take.
SHARE = 4


class Kept:
    """Blocks by their address; a copy in another process starts empty."""

    def __init__(self) -> None:
        self._found: dict[Key, RowBlock] = {}
        self._left: float | None = None
        self._lock = Lock()

    def __reduce__(self) -> Any:
        return Kept, ()

    def get(self, key: Key, read: Callable[[Key], RowBlock]) -> RowBlock:
        """The block, from memory or by ``read``."""
        found = self._found.get(key)
        if found is not None:
            return found
        found = read(key)
        size = sum(part.nbytes for part in found if part is not None)
        with self._lock:
            if self._left is None:
                self._left = budget()
            if size <= self._left and key not in self._found:
                self._found[key] = found
                self._left -= size
        return found


def budget() -> float:
    """Bytes that decoded blocks may take; 0 where free memory cannot be told."""
    limit = LIMIT.get()
    return (memory_free() or 0) / SHARE if limit is None else limit


@contextmanager
def kept_within(size: float | None) -> Iterator[None]:
    """Keep up to this many bytes of decoded blocks; None: a quarter of free memory."""
    token = LIMIT.set(size)
    try:
        yield
    finally:
        LIMIT.reset(token)
