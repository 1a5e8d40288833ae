"""Parts of a table by a rule: rows to learn from, held-out rows, sealed rows.

To which part a row belongs is a function of a seed and of its number in the table; or
of its content, so that copies stay together; or of its group; or of its time, where the
latest rows are the first part. It is evaluated where the row is read: no list of row
numbers is kept or sent.
"""

from __future__ import annotations

import hashlib
from copy import copy
from typing import NamedTuple

import numpy as np

from certus.blocks.keys import Blocks, Key, RowBlock
from certus.blocks.marks import mixed
from certus.typing import Array


class PartRule(NamedTuple):
    """How rows are divided.

    ``ends`` are the shares at which one part ends and the next begins, so two numbers
    make three parts; ``by`` is "number", "content", "groups" or "time". With "time",
    ``cuts`` are the times, ascending, from which on rows are in an earlier part.
    """

    ends: tuple[float, ...]
    seed: int = 0
    by: str = "content"
    cuts: tuple[float, ...] = ()

    def parts(self, block: RowBlock, first: int) -> Array:
        """The part of each row; ``first`` is the number of the first one."""
        if self.by in ("groups", "time"):
            if block.mark is None:
                raise ValueError(
                    f"The blocks have no {self.by}. Pass {self.by}= to "
                    "certus.scale.blocks."
                )
            if self.by == "time":
                after = np.searchsorted(self.cuts, block.mark, side="right")
                return (len(self.cuts) - after).astype(np.int8)
            marks = block.mark
        elif self.by == "content":
            marks = _content(block.X)
        else:
            marks = first + np.arange(len(block.X), dtype=np.uint64)
        with np.errstate(over="ignore"):
            marks = mixed(marks + mixed(np.array([self.seed + 1], np.uint64)))
        share = (marks >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return np.searchsorted(self.ends, share, side="right").astype(np.int8)


def _content(X: Array) -> Array:
    """A number for the content of each row; the same for equal rows."""
    found = np.zeros(len(X), dtype=np.uint64)
    for column in range(X.shape[1]):
        bits = (X[:, column].astype(np.float64) + 0.0).view(np.uint64)  # −0 is 0
        with np.errstate(over="ignore"):
            found = mixed(found * np.uint64(0x9E3779B97F4A7C15) + bits)
    return found


class PartBlocks(Blocks):
    """The rows of some parts, block by block; addresses count these rows only.

    Parameters
    ----------
    whole : Blocks
        The table.
    rule : PartRule
        How it is divided.
    wanted : tuple of int
        The parts to keep.
    counts : ndarray of shape (blocks, parts)
        Rows of each block in each part, from :func:`count_parts`.
    """

    def __init__(
        self, whole: Blocks, rule: PartRule, wanted: tuple[int, ...], counts: Array
    ) -> None:
        self.whole, self.rule, self.wanted = whole, rule, wanted
        self.names, self.dtype = whole.names, whole.dtype
        self.named = getattr(whole, "named", True)
        self.groups, self.time = whole.groups, whole.time
        keys, first = [], 0
        self._from: dict[Key, Key] = {}
        for key, row in zip(whole.keys, counts[:, list(wanted)].sum(axis=1)):
            if row:
                mine = key._replace(first=first, rows=int(row))
                self._from[mine] = key
                keys.append(mine)
                first += int(row)
        if not keys:
            raise ValueError("No row belongs to this part of the table.")
        self.keys = tuple(keys)

    def only(self, key: Key) -> PartBlocks:
        """The same part with one address."""
        found = copy(self)
        found.keys, found._from = (key,), {key: self._from[key]}
        found.whole = self.whole.only(self._from[key])
        return found

    def targets(self) -> Blocks:
        """The same rows without X, which is read where the content decides."""
        if self.rule.by == "content":
            return super().targets()
        found = copy(self)
        found.names, found.whole = (), self.whole.targets()
        return found

    def digest(self) -> bytes:
        """The table's own, and the rule."""
        whole = self.whole.digest()
        about = repr((self.rule, self.wanted, self.keys, self.names)).encode()
        return hashlib.sha256(whole + about).digest() if whole else b""

    def read(self, key: Key) -> RowBlock:
        """The rows of the part at an address."""
        source = self._from[key]
        block = self.whole.read(source)
        kept = np.isin(self.rule.parts(block, source.first), self.wanted)
        y = None if block.y is None else block.y[kept]
        s = None if block.s is None else block.s[kept]
        mark = None if block.mark is None else block.mark[kept]
        return RowBlock(block.X[kept], y, s, mark)


def count_parts(blocks: Blocks, rule: PartRule) -> Array:
    """Rows of each block in each part; one pass where the content decides.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.blocks.parts import PartRule, count_parts
    >>> from certus.scale import blocks
    >>> table = blocks(np.zeros((1000, 1)), rows=500)
    >>> count_parts(table, PartRule((0.5,), by="number")).sum()
    np.int64(1000)
    """
    if rule.by != "number":
        read = blocks if rule.by == "content" else blocks.targets()
        return np.array(list(read.map(count_block, rule)))
    found = []
    for key in blocks.keys:
        empty = RowBlock(np.empty((key.rows, 0)), None, None)
        found.append(count_block(empty, rule, key.first))
    return np.array(found)


#: Times of a block that are looked at, to find where the last rows begin.
TIMES = 1000


def time_cuts(blocks: Blocks, shares: tuple[float, ...]) -> tuple[float, ...]:
    """Times after which the last shares of the rows lie, ascending; one pass.

    Each block gives a thousand times in even steps of their order, so a share is
    reached to within a thousandth, or where equal times, which stay together, let it.
    """
    found = list(blocks.targets().map(_times))
    times = np.concatenate([times for times, _ in found])
    weight = np.concatenate([np.full(len(t), n / len(t)) for t, n in found])
    order = np.argsort(times, kind="stable")
    rows = np.cumsum(weight[order])
    at = [np.searchsorted(rows, (1 - share) * rows[-1]) for share in sorted(shares)]
    last = len(times) - 1
    return tuple(float(times[order[min(int(i), last)]]) for i in reversed(at))


def _times(block: RowBlock) -> tuple[Array, int]:
    if block.mark is None:
        raise ValueError("The blocks have no time. Pass time= to certus.scale.blocks.")
    ordered, n = np.sort(block.mark), len(block.mark)
    steps = (np.arange(min(TIMES, n)) + 0.5) / min(TIMES, n)
    return ordered[(steps * n).astype(np.intp)], n


def count_block(block: RowBlock, rule: PartRule, first: int = 0) -> Array:
    """Rows of one block in each part."""
    return np.bincount(rule.parts(block, first), minlength=len(rule.ends) + 1)
