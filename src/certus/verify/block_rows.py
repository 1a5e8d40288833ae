"""Sums over the rows of blocks, for checks that look at rows a few at a time.

``work(rows, *state)`` gives a tuple of sums of some rows in float64. In a block they
are added up run by run, over the blocks in the tree that their number decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from certus.fingerprints import direction
from certus.typing import Array
from certus.verify.block_sums import mark_of, marks_of
from certus.verify.recomputed import RecomputedBlocks, summed


class RunSums(NamedTuple):
    """Sums of one block or more, and how many additions a row went through."""

    depth: int
    marks: tuple[dict[str, Any], ...]
    sums: tuple[Any, ...]


class BlockRows:
    """Blocks of rows, what was computed twice, and the fingerprint of the rows."""

    def __init__(self, blocks: Any) -> None:
        self.blocks, self.shape = blocks, blocks.shape
        self.again = RecomputedBlocks()
        self.marks: dict[str, Any] = {"shape": [int(size) for size in blocks.shape]}

    def sums(self, step: int, work: Callable[..., Any], *state: Any) -> RunSums:
        """The sums of all rows; the depth counts the tree too."""
        given = (step, work, state)
        found = summed(self.blocks, self.again, _join, _of_block, *given)
        about = (self.shape, str(self.blocks.dtype), float(self.shape[0]))
        self.marks = marks_of(found.marks, *about)
        tree = math.ceil(math.log2(len(self.blocks.keys) + 1)) + 2
        return RunSums(found.depth + tree, found.marks, found.sums)

    def some(self, most: int, places: int = 8) -> Array:
        """Rows of a few blocks, evenly spread, read here."""
        keys = self.blocks.keys
        chosen = np.unique(np.linspace(0, len(keys) - 1, min(len(keys), places)))
        parts = []
        for i in chosen.astype(int):
            X = np.asarray(self.blocks.read(keys[i]).X)
            each = max(1, most // len(chosen))
            rows = np.unique(np.linspace(0, len(X) - 1, min(len(X), each)))
            parts.append(X[rows.astype(int)])
        return np.concatenate(parts)


def _of_block(block: Any, step: int, work: Any, state: tuple[Any, ...]) -> RunSums:
    if block.s is not None:
        raise ValueError("This model takes no sample_weight; leave it out of blocks.")
    X = np.asarray(block.X)
    n, along, sums = len(X), [np.zeros(0)], None
    for i in range(0, n, step):
        rows = np.asarray(X[i : i + step], dtype=np.float64)
        along.append(rows @ direction(X.shape[1]))
        found = work(rows, *state)
        sums = found if sums is None else _add(sums, found)
    mark = mark_of(X, np.zeros(n), np.ones(n), np.concatenate(along))
    return RunSums(min(step, n) + n // step, (mark,), sums or ())


def _add(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _join(a: RunSums, b: RunSums) -> RunSums:
    return RunSums(max(a.depth, b.depth), a.marks + b.marks, _add(a.sums, b.sums))
