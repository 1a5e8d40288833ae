"""Run work on blocks in the threads of this process.

Each thread keeps to one BLAS thread, so that a block gives the same bits whatever the
number of threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from threadpoolctl import ThreadpoolController


def run_here(blocks: Any, work: Callable[..., Any], state: tuple[Any, ...]) -> Any:
    """Results in the order of the keys; two blocks wait for each thread at most."""
    controller = ThreadpoolController()
    limits = [pool["num_threads"] for pool in controller.info()]
    threads = max(1, min(limits, default=1))
    return _ordered(blocks, work, state, threads, controller)


def _ordered(
    blocks: Any,
    work: Callable[..., Any],
    state: tuple[Any, ...],
    threads: int,
    controller: ThreadpoolController,
) -> Iterator[Any]:
    def one(key: Any) -> Any:
        return work(blocks.read(key), *state)

    with controller.limit(limits=1), ThreadPoolExecutor(threads, "certus") as pool:
        waiting: deque[Future[Any]] = deque()
        try:
            for key in blocks.keys:
                waiting.append(pool.submit(copy_context().run, one, key))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
