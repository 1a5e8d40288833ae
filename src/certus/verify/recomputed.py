"""Passes over blocks of rows; some blocks are computed a second time in this process.

A block's sums are a function of its rows and of what is sent to it. Where other
processes read the blocks, one in a hundred, and at least one, is read and computed here
as well, and every number that came from elsewhere is compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from certus.certificate import Claim
from certus.typing import Array
from certus.verify import deciding
from certus.verify.block_sums import tree
from certus.verify.deciding import Number

#: Share of the blocks that are computed again here, if they were read elsewhere.
SHARE = 0.01


class RecomputedBlocks:
    """What the comparison of blocks that were computed twice has found so far."""

    def __init__(self) -> None:
        self.count, self.alike, self.apart = 0, True, 0.0

    def see(self, here: Any, there: Any) -> None:
        """Compare one block, bit by bit and by size."""
        a, b = (np.concatenate([*_numbers(each)]) for each in (here, there))
        self.count += 1
        if a.shape != b.shape:
            self.alike, self.apart = False, math.inf
            return
        self.alike &= bool(np.array_equal(a, b))
        a, b = (each[a != b] for each in (a, b))
        size = np.maximum(np.abs(a), np.abs(b))
        with np.errstate(invalid="ignore"):
            share = np.abs(a - b) / (size + 1e-9 * _largest(here))
        share = np.where(np.isfinite(share), share, math.inf)
        self.apart = max(self.apart, float(share.max(initial=0.0)))

    def claim(self, blocks: int) -> Claim:
        """That the blocks computed twice agree."""
        detail = f"{self.count:,} of {blocks:,} blocks were computed again here: "
        how = "the same bits" if self.alike else f"within {self.apart:.0e} of the sums"
        missed = f"{detail}sums differ by {self.apart:.0e}"
        fix = "look for a worker with other versions, files or faulty memory"
        return deciding.proved(
            *("workers_agree", Number(self.apart), 1e-6, detail + how),
            missed=missed,
            fix=fix,
            theorem="a block's sums are a function of its rows and the coefficients",
        )


def _numbers(part: Any) -> Iterable[Array]:
    """Every number of a block's sums, in order."""
    if isinstance(part, tuple | list):
        for each in part:
            yield from _numbers(each)
    elif isinstance(part, dict):
        for name in sorted(part):
            yield from _numbers(part[name])
    else:
        yield np.ravel(part).astype(np.float64)


def _largest(part: Any) -> float:
    found = np.abs(np.concatenate([*_numbers(part)]))
    return float(found[np.isfinite(found)].max(initial=0.0))


def watched(
    blocks: Any, again: RecomputedBlocks, work: Callable[..., Any], *state: Any
) -> Iterable[Any]:
    """A pass; some of its blocks are computed again if they were read elsewhere."""
    m = len(blocks.keys)
    count = math.ceil(SHARE * m) if getattr(blocks, "elsewhere", False) else 0
    chosen = {int((i + 0.5) * m / count) for i in range(count)}
    again.count = 0
    for i, part in enumerate(blocks.map(work, *state)):
        if i in chosen:
            with threadpool_limits(1):
                own = work(blocks.read(blocks.keys[i]), *state)
            again.see(own, part)
        yield part


def summed(
    blocks: Any,
    again: RecomputedBlocks,
    join: Callable[[Any, Any], Any],
    work: Callable[..., Any],
    *state: Any,
) -> Any:
    """The sums of all blocks, merged in the tree that their number decides."""
    return tree(watched(blocks, again, work, *state), join)
