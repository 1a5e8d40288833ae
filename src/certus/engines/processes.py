"""Blocks in other processes of this machine.

Processes help if the work, or reading the table, holds Python's global lock. Otherwise
use threads, which are the default and need no copies. Processes are started with
``spawn``, communicate through pipes, and open no port. If a process dies, it is
replaced and its blocks are done again.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from certus.blocks.keys import Blocks
from certus.blocks.local import place
from certus.engines.tasks import one_block

#: Times that a pass may lose its processes before it ends with an error.
LOSSES = 3


class Processes:
    """An engine that runs the passes of a fit in processes of this machine.

    Use it in a ``with`` block, which ends the processes. A script needs the usual
    ``if __name__ == "__main__":`` guard, because each process imports it.

    Parameters
    ----------
    workers : int, default=2
        Number of processes.
    timeout : float, default=600
        Seconds to wait for one block before the fit ends with an error.

    Examples
    --------
    >>> import certus
    >>> from certus.scale import Processes
    >>> with Processes(2) as engine:
    ...     with certus.config_context(engine=engine):
    ...         pass  # model.fit(certus.scale.blocks("houses/*.parquet", "price"))
    """

    def __init__(self, workers: int = 2, timeout: float = 600.0) -> None:
        if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
            raise ValueError(f"workers must be a whole number above 0, got {workers}.")
        if not timeout > 0:
            raise ValueError(f"timeout must be above 0 seconds, got {timeout}.")
        self.workers, self.timeout = workers, float(timeout)
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes; the next pass starts others."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def run(
        self, blocks: Blocks, work: Callable[..., Any], state: tuple[Any, ...]
    ) -> Iterator[Any]:
        """Results in the order of the keys; two blocks wait for each process."""
        waiting: deque[tuple[Any, Future[Any]]] = deque()
        ahead = iter(blocks.keys)
        losses = 0

        def submit(key: Any) -> tuple[Any, Future[Any]]:
            try:
                task = self._ready().submit(
                    one_block, work, blocks.only(key), key, state
                )
            except BrokenProcessPool as error:
                task = Future()
                task.set_exception(error)
            return key, task

        try:
            for key in ahead:
                waiting.append(submit(key))
                if len(waiting) >= 2 * self.workers:
                    break
            while waiting:
                key, task = waiting[0]
                try:
                    value = task.result(timeout=self.timeout)
                except TimeoutError:
                    if task.done():
                        raise  # the work itself said so
                    self._kill()
                    raise TimeoutError(
                        f"No process finished {place(key)} within {self.timeout:g} s. "
                        "Use smaller blocks, or raise timeout."
                    ) from None
                except BrokenProcessPool as error:
                    losses += 1
                    self._drop()
                    if losses > LOSSES:
                        raise RuntimeError(_gave_up(key)) from error
                    waiting = deque(submit(key) for key, _ in waiting)
                    continue
                waiting.popleft()
                following = next(ahead, None)
                if following is not None:
                    waiting.append(submit(following))
                yield value
        finally:
            for _, task in waiting:
                task.cancel()

    def _ready(self) -> ProcessPoolExecutor:
        if self._pool is None:
            spawn = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.workers, mp_context=spawn)
        return self._pool

    def _drop(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _kill(self) -> None:
        """End processes that do not answer."""
        if self._pool is not None:
            for process in list((self._pool._processes or {}).values()):
                process.kill()
        self._drop()


def _gave_up(key: Any) -> str:
    return (
        f"Processes ended again and again at {place(key)}. They may lack the memory "
        "for a block of this size, or the script that starts them has no "
        'if __name__ == "__main__": guard.'
    )
