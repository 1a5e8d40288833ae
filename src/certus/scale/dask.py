"""Blocks on the workers of a Dask cluster.

Work is a pure function of an address, so nothing is pinned to a worker and nothing is
scattered: a worker that dies, joins or is slow changes neither the result nor its bits.
The state of a fit (coefficients, sums) stays with the client.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from threadpoolctl import threadpool_limits

from certus.blocks.arrays import ArrayBlocks
from certus.blocks.keys import Blocks
from certus.wording import unstopped

#: Bytes of an array that may be sent with each task.
SENT = 1 << 22


class Dask:
    """An engine: runs the passes of a fit and of its check on a Dask cluster.

    Parameters
    ----------
    client : distributed.Client
        Connected to a running cluster, whose workers see the same files.
    timeout : float, default=600
        Seconds to wait for one block before the fit ends with an error.

    Examples
    --------
    >>> from certus.scale import Dask
    >>> Dask("tcp://scheduler:8786")
    Traceback (most recent call last):
        ...
    TypeError: client must be a distributed.Client, got str. Connect one: ...
    """

    def __init__(self, client: Any, timeout: float = 600.0) -> None:
        if not hasattr(client, "submit") or not hasattr(client, "scheduler_info"):
            raise TypeError(
                "client must be a distributed.Client, got "
                f"{type(client).__name__}. Connect one: distributed.Client(address)."
            )
        self.client, self.timeout = client, float(timeout)

    def run(
        self, blocks: Blocks, work: Callable[..., Any], state: tuple[Any, ...]
    ) -> Iterator[Any]:
        """Results in the order of the keys; four tasks wait for each worker at most."""
        if isinstance(blocks, ArrayBlocks) and blocks.nbytes > SENT:
            raise ValueError(
                f"An array of {blocks.nbytes / 2**20:,.0f} MiB would travel with every "
                "task. Write it to Parquet where the workers can read it, and pass the "
                "path to certus.scale.blocks."
            )
        workers = len(self.client.scheduler_info(n_workers=-1)["workers"])
        if not workers:
            raise RuntimeError("The Dask cluster has no workers. Start some.")
        waiting: deque[tuple[Any, Any]] = deque()
        try:
            for key in blocks.keys:
                task = self.client.submit(
                    _one, work, blocks, key, state, pure=False, retries=2
                )
                waiting.append((key, task))
                if len(waiting) > 4 * workers:
                    yield self._result(*waiting.popleft())
            while waiting:
                yield self._result(*waiting.popleft())
        finally:
            for _, task in waiting:
                task.cancel()

    def _result(self, key: Any, task: Any) -> Any:
        try:
            return task.result(timeout=self.timeout)
        except TimeoutError:
            raise TimeoutError(
                f"No worker finished {key.source}, part {key.part}, within "
                f"{self.timeout:g} s. Look at the cluster, or raise timeout."
            ) from None
        except Exception as error:
            lost = type(error).__name__ in ("KilledWorker", "CancelledError")
            if not lost:
                raise
            raise RuntimeError(
                f"The cluster gave up on {key.source}, part {key.part} (rows from "
                f"{key.first:,} on): {unstopped(error)}. Workers may lack the memory "
                "for a block of this size."
            ) from error


def _one(work: Callable[..., Any], blocks: Blocks, key: Any, state: Any) -> Any:
    with threadpool_limits(1):
        return work(blocks.read(key), *state)
