"""What every engine sends: a function, an address, and a state."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from threadpoolctl import threadpool_limits


def one_block(work: Callable[..., Any], blocks: Any, key: Any, state: Any) -> Any:
    """``work`` on the rows at one address, with one BLAS thread."""
    with threadpool_limits(1):
        return work(blocks.read(key), *state)


def within(seconds: float, ask: Callable[[], Any], late: str) -> Any:
    """``ask()``, or a TimeoutError that says ``late``.

    For calls that have no limit of their own: they may be left behind in their thread.
    """
    found: list[Any] = []

    def run() -> None:
        try:
            found.append((ask(), None))
        except Exception as error:
            found.append((None, error))

    thread = threading.Thread(target=run, name="certus-wait", daemon=True)
    thread.start()
    thread.join(seconds)
    if not found:
        raise TimeoutError(late)
    value, error = found[0]
    if error is not None:
        raise error
    return value
