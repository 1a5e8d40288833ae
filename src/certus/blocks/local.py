"""Run work on blocks in the threads of this process.

Each thread keeps to one BLAS thread, so that a block gives the same bits whatever the
number of threads. A read that never returns, as from a lost network drive, ends the
fit with an error: threads cannot be stopped, so they are left behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextvars import copy_context
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from certus.blocks.keys import Blocks, Key

#: Seconds to wait for one block.
LIMIT = 600.0


def run_here(blocks: Blocks, work: Callable[..., Any], state: tuple[Any, ...]) -> Any:
    """Results in the order of the keys; two blocks wait for each thread at most."""
    controller = ThreadpoolController()
    limits = [pool["num_threads"] for pool in controller.info()]
    threads = max(1, min(limits, default=1))

    def one(key: Key) -> Any:
        return work(blocks.read(key), *state)

    return _ordered(blocks.keys, one, threads, controller)


def _ordered(
    keys: Iterable[Key],
    one: Callable[[Key], Any],
    threads: int,
    controller: ThreadpoolController,
) -> Iterator[Any]:
    jobs: SimpleQueue[Any] = SimpleQueue()
    pool = [Thread(target=_work_off, args=(jobs,), daemon=True) for _ in range(threads)]
    waiting: deque[tuple[Any, Future[Any]]] = deque()
    late = False
    with controller.limit(limits=1):
        for thread in pool:
            thread.start()
        try:
            for key in keys:
                waiting.append((key, Future()))
                jobs.put((copy_context().run, one, *waiting[-1]))
                if len(waiting) > threads:
                    yield waiting[0][1].result(LIMIT)
                    waiting.popleft()
            while waiting:
                yield waiting[0][1].result(LIMIT)
                waiting.popleft()
        except TimeoutError:
            key, task = waiting[0]
            if task.done():
                raise  # the work itself said so
            late = True
            raise TimeoutError(
                f"{place(key)} was not finished within {LIMIT:g} s. Check the disk or "
                "network drive, use smaller blocks, or raise the limit with "
                "certus.scale.Processes(workers, timeout=...)."
            ) from None
        finally:
            for _, task in waiting:
                task.cancel()
            for _ in pool:
                jobs.put(None)
            for thread in pool if not late else ():
                thread.join()


def _work_off(jobs: SimpleQueue[Any]) -> None:
    """Do jobs until there is none; a thread of the pool."""
    while (job := jobs.get()) is not None:
        run, one, key, task = job
        if not task.set_running_or_notify_cancel():
            continue
        try:
            task.set_result(run(one, key))
        except BaseException as error:
            task.set_exception(error)


def place(key: Key) -> str:
    """An address in words."""
    return f"{key.source}, part {key.part} (rows from {key.first:,} on)"
