"""Run blocks of work on the process's threads; Ctrl-C ends them within a step.

The threads are kept: starting them again for each call costs as much as a small block.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import Any

from certus.base import thread_budget, thread_pools

Stop = Callable[[], bool]

_inside = threading.local()


def run_blocks(work: Callable[[Any, Stop], None], blocks: Iterable[Any]) -> None:
    """Call ``work`` on each block, in as many threads as the process may use.

    Its second argument is a function that says whether to stop; ask it between steps.

    The loops release Python's lock, and BLAS keeps to one thread meanwhile: a small
    product gains nothing from two, and a block's loops then run beside it.
    """
    blocks = list(blocks)
    workers = min(thread_budget(), len(blocks)) if len(blocks) > 1 else 1
    if workers == 1 or getattr(_inside, "worker", False):
        for block in blocks:
            work(block, lambda: False)
        return
    stopped = threading.Event()
    with thread_pools().limit(limits=1, user_api="blas"):
        futures: list[Future[None]] = []
        try:
            pool = _threads(workers)
            for block in blocks:  # each in the caller's context: np.errstate holds
                run = copy_context().run
                futures.append(pool.submit(run, work, block, stopped.is_set))
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        finally:
            stopped.set()
            # No thread may still write once the caller continues.
            wait([future for future in futures if not future.cancel()])


def slices(n: int, size: int) -> list[slice]:
    """Consecutive slices of at most ``size`` that cover ``range(n)``."""
    return [slice(i, min(i + size, n)) for i in range(0, n, max(1, size))]


@functools.lru_cache(maxsize=4)
def _threads(workers: int) -> ThreadPoolExecutor:
    def begin() -> None:
        # A block that needs further blocks runs them itself: if all threads were
        # waiting for others, none would be left to work.
        _inside.worker = True

    return ThreadPoolExecutor(workers, "certus", begin)


# Threads do not survive a fork; the child starts its own.
if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_threads.cache_clear)
