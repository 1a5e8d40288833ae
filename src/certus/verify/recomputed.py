"""Passes over blocks of rows; some blocks are computed a second time in this process.

A block's sums are a function of its rows and of what is sent to it. Where other
processes read the blocks, one in a hundred, and at least one, is read and computed here
as well, and every number that came from elsewhere is compared.

Each block from elsewhere carries a tag: the versions, the kernels of BLAS and its
threads. Where it is that of this process, the bits must be equal; where it differs, the
sums may differ by what another order of adding may change.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from certus.certificate import Claim
from certus.typing import Array
from certus.verify import deciding
from certus.verify.block_sums import tree
from certus.verify.blocks import blas_of
from certus.verify.deciding import Number

#: Share of the blocks that are computed again here, if they were read elsewhere.
SHARE = 0.01


#: How far sums by other versions or kernels may be apart, as a share of the sums.
APART = 1e-6

#: What the bits of a sum depend on, beside the rows.
Tag = tuple[tuple[str, str], ...]


def tag_here() -> Tag:
    """Versions, kernels and threads by which sums are computed in this process now."""
    kernels, threads = blas_of()
    return (*_versions(), ("BLAS kernels", kernels), ("BLAS threads", str(threads)))


@functools.cache
def _versions() -> Tag:
    return tuple((name, version(name)) for name in ("numpy", "scipy", "certus"))


def tagged(block: Any, work: Callable[..., Any], *state: Any) -> tuple[Tag, Any]:
    """``work`` on a block, with the tag of the process that did it."""
    return tag_here(), work(block, *state)


class RecomputedBlocks:
    """What the comparison of blocks that were computed twice has found so far."""

    def __init__(self) -> None:
        self.count, self.alike = 0, True
        self.wrong, self.apart = 0.0, 0.0  # for equal tags, for others
        self.tags: Counter[Tag] = Counter()  # blocks of a pass
        self.own: Tag = ()

    def see(self, here: tuple[Tag, Any], there: tuple[Tag, Any]) -> None:
        """Compare one block, bit by bit and by size."""
        self.count += 1
        a, b = (np.concatenate([*_numbers(part)]) for _, part in (here, there))
        if a.tobytes() == b.tobytes():
            return
        self.alike, apart = False, math.inf
        if a.shape == b.shape:
            other = a.view(np.uint64) != b.view(np.uint64)
            a, b = a[other], b[other]
            size = np.maximum(np.abs(a), np.abs(b)) + 1e-9 * _largest(here[1])
            with np.errstate(invalid="ignore", divide="ignore"):
                share = np.where(a == b, 0.0, np.abs(a - b) / size)
            apart = float(np.where(np.isfinite(share), share, math.inf).max())
        if here[0] == there[0]:
            self.wrong = max(self.wrong, apart, float(np.finfo(float).tiny))
        else:
            self.apart = max(self.apart, apart)

    def claim(self, blocks: int) -> Claim:
        """That the blocks computed twice agree."""
        detail = f"{self.count:,} of {blocks:,} blocks were computed again here: "
        others = {tag: n for tag, n in self.tags.items() if tag != self.own}
        how = "the same bits" if self.alike else f"within {self.apart:.0e} of the sums"
        how += f", with {_other(others, self.own)}" if others else ""
        found = max(self.wrong, self.apart)
        missed = f"{detail}sums differ by {found:.0e}, with "
        if self.wrong > 0:
            missed += "the same versions and BLAS kernels, so the bits must be equal"
        else:
            missed += f"{_other(others, self.own)}; at most {APART:.0e} is allowed"
        fix = "look for a worker with other versions, files or faulty memory"
        exact = self.wrong > 0 or not others
        return deciding.proved(
            *("workers_agree", Number(found), 0.0 if exact else APART, detail + how),
            missed=missed,
            fix=fix,
            theorem="a block's sums are a function of its rows and the coefficients",
        )


def _other(others: dict[Tag, int], own: Tag) -> str:
    """How blocks were computed elsewhere, where that differs from this process."""
    here, found = dict(own), set()
    for tag in others:
        there = dict(tag)
        for name in sorted({*here, *there}):
            a, b = there.get(name, "unknown"), here.get(name, "unknown")
            if a != b:
                found.add(f"{name} {a} there and {b} here")
    return f"{', '.join(sorted(found))} ({sum(others.values()):,} blocks)"


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
    if not count:
        yield from blocks.map(work, *state)
        return
    with threadpool_limits(1):
        again.own = tag_here()
    seen: Counter[Tag] = Counter()
    for i, (tag, part) in enumerate(blocks.map(tagged, work, *state)):
        new = tag != again.own and tag not in seen
        seen[tag] += 1
        if i in chosen or new:  # and a block of each kind of process
            with threadpool_limits(1):
                own = tagged(blocks.read(blocks.keys[i]), work, *state)
            again.see(own, (tag, part))
        yield part
    again.tags |= seen


def summed(
    blocks: Any,
    again: RecomputedBlocks,
    join: Callable[[Any, Any], Any],
    work: Callable[..., Any],
    *state: Any,
) -> Any:
    """The sums of all blocks, merged in the tree that their number decides."""
    return tree(watched(blocks, again, work, *state), join)
