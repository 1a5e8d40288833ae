"""Blocks of work over the process's threads, which Ctrl-C ends within a step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any

from certus.base import thread_budget, thread_pools

Stop = Callable[[], bool]


def run_blocks(work: Callable[[Any, Stop], None], blocks: Iterable[Any]) -> None:
    """Call ``work`` on each block, in as many threads as the process may use.

    Its second argument tells whether to give up, to be asked between steps.

    The loops release Python's lock, and BLAS keeps to one thread meanwhile: a small
    product gains nothing from two, and a block's loops then run beside it.
    """
    blocks = list(blocks)
    workers = min(thread_budget(), len(blocks)) if len(blocks) > 1 else 1
    if workers == 1:
        for block in blocks:
            work(block, lambda: False)
        return
    stopped = threading.Event()
    with thread_pools().limit(limits=1, user_api="blas"):
        pool = ThreadPoolExecutor(workers)
        try:
            futures = [pool.submit(work, block, stopped.is_set) for block in blocks]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        finally:
            stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)


def slices(n: int, size: int) -> list[slice]:
    """Consecutive slices of at most ``size`` that cover ``range(n)``."""
    return [slice(i, min(i + size, n)) for i in range(0, n, max(1, size))]
