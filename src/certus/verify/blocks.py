"""Run work on blocks of rows, on as many threads as the process may use.

NumPy releases Python's lock inside a product or a ufunc, so plain NumPy code gains from
threads. Results come back in the order of the rows: sums of them do not depend on the
threads.
"""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")


def over_blocks(
    work: Callable[[slice], T], n: int, step: int, *, alone: bool = False
) -> Iterator[T]:
    """Run ``work`` on consecutive slices of ``range(n)``, in the caller's context.

    ``alone`` keeps to the caller's thread, where more threads would be slower. Only a
    few results wait to be taken, however many blocks there are.

    Examples
    --------
    >>> from certus.verify.blocks import over_blocks
    >>> list(over_blocks(lambda rows: rows.stop - rows.start, 10, 4))
    [4, 4, 2]
    """
    step = max(1, step)
    parts = (slice(i, min(i + step, n)) for i in range(0, n, step))
    threads = 1 if alone or n <= step else min(-(-n // step), _threads())
    if threads <= 1:
        yield from map(work, parts)
        return
    # BLAS uses one thread in each of ours: two sets of threads would wait for each
    # other.
    limit = _libraries().limit(limits=1, user_api="blas")
    with limit, ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[T]] = deque()
        for part in parts:
            waiting.append(pool.submit(copy_context().run, work, part))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def add_up(found: Iterator[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Add up the results of blocks, item by item.

    Examples
    --------
    >>> from certus.verify.blocks import add_up
    >>> add_up(iter([(1, 2.0), (3, 4.0)]))
    (4, 6.0)
    """
    total = list(next(found))
    for each in found:
        for i, value in enumerate(each):
            total[i] += value
    return tuple(total)


@functools.cache
def _libraries() -> ThreadpoolController:
    """NumPy's and SciPy's libraries, found once: it takes as long as a small check."""
    return ThreadpoolController()


def _threads() -> int:
    limits = [int(pool["num_threads"]) for pool in _libraries().info()]
    return max(1, min([*limits, cores()]))


def blas_of() -> tuple[str, int]:
    """The kernels of BLAS in this process, and the most threads it may use now.

    Examples
    --------
    >>> from certus.verify.blocks import blas_of
    >>> blas_of()[1] >= 1
    True
    """
    found = [pool for pool in _libraries().info() if pool["user_api"] == "blas"]
    kernels = {str(pool.get("architecture", "unknown")) for pool in found}
    threads = max((int(pool["num_threads"]) for pool in found), default=1)
    return " ".join(sorted(kernels)), threads


def cores() -> int:
    """Processors that this process may use; all of the machine's where that is unknown.

    Examples
    --------
    >>> from certus.verify.blocks import cores
    >>> cores() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
