"""A time limit that also ends what never asks how late it is.

Solvers of certus look at the clock between steps. Fits of other libraries, imports and
figures do not: there a timer of the system raises :class:`TimeIsUp` between two steps
of the interpreter, as Ctrl-C raises KeyboardInterrupt. Where there is no such timer (on
Windows, outside the main thread, or where somebody else uses it), nothing happens, and
the limit is kept as well as the clock allows.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["TimeIsUp", "alarm"]


#: Seconds until an alarm rings again that came at a moment when it would be lost.
SOON = 0.005


class TimeIsUp(BaseException):
    """The moment of an :func:`alarm` has come; no failure, so not an Exception."""


class _Set:
    """The moment for which the timer is set; None if it is not."""

    at: float | None = None
    ours = False


@contextmanager
def alarm(at: float | None) -> Iterator[None]:
    """Raise :class:`TimeIsUp` inside the block at a moment of ``time.perf_counter()``.

    Alarms nest: the innermost alone is set, and the one around it is set again
    afterwards. None means that the block is not interrupted.

    Examples
    --------
    >>> import time
    >>> from certus._core.alarm import TimeIsUp, alarm
    >>> try:
    ...     with alarm(time.perf_counter() + 0.01):
    ...         while True:
    ...             pass
    ... except TimeIsUp:
    ...     print("stopped")
    stopped
    """
    if not (_Set.ours or _is_free()):
        yield
        return
    outer = _Set.at, _Set.ours
    handler = None if _Set.ours else signal.signal(signal.SIGALRM, _ring)
    _Set.ours = True
    try:
        _set(at)
        yield
    finally:
        _Set.at = None  # a signal on its way is not about what follows
        signal.setitimer(signal.ITIMER_REAL, 0)
        _Set.ours = outer[1]
        if handler is not None:
            signal.signal(signal.SIGALRM, handler)
        elif outer[0] is not None:
            _set(outer[0])


def _is_free() -> bool:
    """Whether there is a timer, which nobody else uses."""
    return (
        hasattr(signal, "setitimer")
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
        and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    )


def _set(at: float | None) -> None:
    _Set.at = at
    left = 0.0 if at is None else max(1e-6, at - time.perf_counter())
    signal.setitimer(signal.ITIMER_REAL, left)


def _ring(number: int, frame: FrameType | None) -> None:
    if _Set.at is None:
        return
    if _is_called_back(frame):
        signal.setitimer(signal.ITIMER_REAL, SOON)
        return
    _Set.at = None
    raise TimeIsUp


def _is_called_back(frame: FrameType | None) -> bool:
    """Whether compiled code of polars called the interpreter: it drops exceptions."""
    module = frame.f_globals.get("__name__") if frame is not None else None
    return str(module).startswith("polars")
