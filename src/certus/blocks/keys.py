"""Addresses of rows, and what is read at one.

Only addresses travel: to threads, to the workers of a cluster, to the verifier. Where a
block begins and ends is part of the problem, because sums are taken block by block.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from itertools import pairwise
from typing import Any, NamedTuple

from certus import config
from certus.blocks.local import run_here
from certus.typing import Array

#: Numbers of a block at most, unless a file's own parts are larger.
CELLS = 1 << 22


class Key(NamedTuple):
    """The address of a block."""

    source: str  # a file, or "array"
    part: int  # row group, record batch or slice
    start: int  # row within that part
    first: int  # row of the whole table
    rows: int


class RowBlock(NamedTuple):
    """The rows at an address: X in float64 or float32, targets as they are stored.

    ``mark`` is a number for the group or the time of each row, from ``marks``.
    """

    X: Array
    y: Array | None
    s: Array | None
    mark: Array | None = None


class Blocks(ABC):
    """A table as blocks of rows; abstract. ``certus.scale.blocks`` makes one.

    Attributes
    ----------
    keys : tuple of Key
        Addresses, in the order of the rows.
    names : tuple of str
        Columns of X.
    dtype : numpy.dtype
        Type of X.
    named : bool
        Whether the columns have names of their own, as in a file.
    groups, time : str or None
        The column by which rows stay together, or are ordered.
    """

    keys: tuple[Key, ...]
    names: tuple[str, ...]
    dtype: Any
    named: bool = True
    groups: str | None = None
    time: str | None = None

    @abstractmethod
    def read(self, key: Key) -> RowBlock:
        """The rows at an address; the same on any machine that sees the files."""

    def only(self, key: Key) -> Blocks:
        """The same table with one address: what a task for that block carries."""
        return self.some([key])

    def some(self, keys: Sequence[Key]) -> Blocks:
        """The same table with some of its addresses."""
        found = copy(self)
        found.keys = tuple(keys)
        return found

    def digest(self) -> bytes:
        """What identifies the rows for a checkpoint; empty where nothing does."""
        return b""

    def targets(self) -> Blocks:
        """The same rows without columns of X."""
        return TargetBlocks(self)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of X."""
        return sum(key.rows for key in self.keys), len(self.names)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        (n, d), m = self.shape, len(self.keys)
        return f"<{n:,} rows × {d:,} columns in {m:,} block{'s' * (m != 1)}>"

    @property
    def elsewhere(self) -> bool:
        """Whether blocks are read by other processes than this one."""
        return config.get_config()["engine"] is not None

    def map(self, work: Callable[..., Any], *state: Any) -> Iterator[Any]:
        """``work(block, *state)`` of every block, in the order of the rows.

        Runs on the engine of ``certus.config_context(engine=...)``, by default on the
        threads of this process.
        """
        engine = config.get_config()["engine"]
        run = run_here if engine is None else engine.run
        return iter(run(self, work, state))


class TargetBlocks(Blocks):
    """A table without its columns of X, where they are needed to know the rows."""

    def __init__(self, whole: Blocks) -> None:
        self.whole, self.names = whole, ()
        self.keys, self.dtype, self.named = whole.keys, whole.dtype, whole.named
        self.groups, self.time = whole.groups, whole.time

    def some(self, keys: Sequence[Key]) -> Blocks:
        """The same table with some of its addresses."""
        return TargetBlocks(self.whole.some(keys))

    def only(self, key: Key) -> Blocks:
        """The same table with one address."""
        return TargetBlocks(self.whole.only(key))

    def digest(self) -> bytes:
        """The table's own, and that X is left out."""
        whole = self.whole.digest()
        return b"targets of " + whole if whole else b""

    def read(self, key: Key) -> RowBlock:
        """Targets and weights at an address."""
        block = self.whole.read(key)
        return block._replace(X=block.X[:, :0])


def is_blocks(X: object) -> bool:
    """Whether rows come by address."""
    return isinstance(X, Blocks)


def cut(source: str, parts: Sequence[int], width: int, first: int = 0) -> list[Key]:
    """Addresses of parts with this many rows each; large parts are cut evenly."""
    most = max(1, CELLS // max(1, width))
    keys = []
    for part, rows in enumerate(parts):
        pieces = max(1, math.ceil(rows / (2 * most)))
        ends = [rows * i // pieces for i in range(pieces + 1)]
        for start, end in pairwise(ends):
            if end > start:
                keys.append(Key(source, part, start, first, end - start))
                first += end - start
    return keys
