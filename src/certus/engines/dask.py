"""Blocks on the workers of a Dask cluster.

The work depends only on the address of a block, so no block is tied to a worker and no
data are sent ahead: a worker that dies, joins or is slow does not change a bit of the
result. The state of a fit (coefficients, sums) stays with the client.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from certus.blocks.keys import Blocks
from certus.blocks.local import place
from certus.engines.tasks import one_block, within
from certus.wording import unstopped

#: Bytes of an array that may be sent to the workers in each pass.
SENT = 1 << 22
#: Seconds between two looks at a client that waits for a block.
LOOK = 2.0
#: What is said where the scheduler is gone.
LOST = (
    "The connection to the Dask scheduler was lost. Start the cluster and run the same "
    "fit again; with config_context(checkpoint=...), finished passes are kept."
)


def is_client(value: Any) -> bool:
    """Whether this is a ``distributed.Client``, without importing distributed."""
    return hasattr(value, "submit") and hasattr(value, "scheduler_info")


class Dask:
    """An engine that runs the passes of a fit and of its check on a Dask cluster.

    ``certus.config_context(engine=client)`` makes one from a client.

    Parameters
    ----------
    client : distributed.Client
        Connected to a running cluster, whose workers see the same files.
    timeout : float, default=600
        Seconds to wait for one block, or for an answer of the scheduler, before the
        fit ends with an error.

    Examples
    --------
    >>> from certus.scale import Dask
    >>> Dask("tcp://scheduler:8786")
    Traceback (most recent call last):
        ...
    TypeError: client must be a distributed.Client, got str. Connect one: ...
    """

    def __init__(self, client: Any, timeout: float = 600.0) -> None:
        if not is_client(client):
            raise TypeError(
                "client must be a distributed.Client, got "
                f"{type(client).__name__}. Connect one: distributed.Client(address)."
            )
        if getattr(client, "asynchronous", False):
            raise TypeError(
                "client must not be asynchronous: a fit waits for its blocks. Connect "
                "one with distributed.Client(address)."
            )
        if not timeout > 0:
            raise ValueError(f"timeout must be above 0 seconds, got {timeout}.")
        self.client, self.timeout = client, float(timeout)

    def run(
        self, blocks: Blocks, work: Callable[..., Any], state: tuple[Any, ...]
    ) -> Iterator[Any]:
        """Results in the order of the keys; four tasks wait for each worker at most."""
        held = getattr(blocks, "nbytes", 0)  # of rows that are in memory here
        if held > SENT:
            raise ValueError(
                f"X has {held / 2**20:,.0f} MiB in memory, which every pass "
                "would send to the workers. Write it to Parquet where they can read "
                "it, and pass the path to certus.scale.blocks."
            )
        most = 4 * self._workers()
        waiting: deque[tuple[Any, Any]] = deque()
        try:
            for key in blocks.keys:
                task = self._submit(work, blocks.only(key), key, state)
                waiting.append((key, task))
                if len(waiting) > most:
                    yield self._result(*waiting.popleft())
            while waiting:
                yield self._result(*waiting.popleft())
        finally:
            if self.client.status == "running":
                for _, task in waiting:
                    task.cancel()

    def _workers(self) -> int:
        """How many workers there are now."""
        if self.client.status != "running":
            raise ConnectionError(LOST)
        late = (
            f"The Dask scheduler gave no answer within {self.timeout:g} s. Check that "
            "it runs, or raise timeout."
        )

        def ask() -> Any:
            return self.client.scheduler_info(n_workers=-1)["workers"]

        workers = len(within(self.timeout, ask, late))
        if not workers:
            raise RuntimeError("The Dask cluster has no workers. Start some.")
        return workers

    def _submit(
        self, work: Callable[..., Any], blocks: Any, key: Any, state: tuple[Any, ...]
    ) -> Any:
        if self.client.status != "running":
            raise ConnectionError(LOST)
        return self.client.submit(
            one_block, work, blocks, key, state, pure=False, retries=2
        )

    def _result(self, key: Any, task: Any) -> Any:
        end = time.monotonic() + self.timeout
        while True:
            left, failed = end - time.monotonic(), task.status == "error"
            try:
                return task.result(timeout=max(0.01, min(left, LOOK)))
            except TimeoutError:
                # Else the wait is over, perhaps while the result is on its way.
                if failed:
                    raise  # the work itself said so
            except Exception as error:
                self._explain(key, error)
                raise
            if self.client.status not in ("running", "connecting"):
                raise ConnectionError(LOST)
            if left <= 0:
                raise TimeoutError(
                    f"No worker finished {place(key)} within {self.timeout:g} s. Look "
                    "at the cluster, use smaller blocks, or raise timeout."
                )

    def _explain(self, key: Any, error: Exception) -> None:
        """Raise a better error where the cluster, not the work, failed."""
        kind = type(error).__name__
        lost = "Cancelled" in kind or isinstance(error, OSError)
        if lost and self.client.status != "running":
            raise ConnectionError(LOST) from error
        if kind == "KilledWorker" or "Cancelled" in kind:
            raise RuntimeError(
                f"The cluster gave up on {place(key)}: {unstopped(error)}. Workers may "
                "lack the memory for a block of this size: give them more, or write "
                "the file with smaller row groups."
            ) from error
