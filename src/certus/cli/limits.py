"""``--max-time``: what the command may still do before its time is up.

The limit is that of the whole command: loading, reading, models and report. Seconds of
processor time are known for each part; how many seconds of the clock they take follows
from how busy the machine has been since the command began. A limit that cannot be kept
is refused at once, and a part of it is kept for what comes after the models.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from certus._core.alarm import TimeIsUp, alarm
from certus.cli import spent
from certus.cli.screen import Stop

__all__ = ["check_limit", "model_seconds", "seconds_left", "too_short", "until_limit"]

#: The shortest limit in seconds, and seconds of processor time for the libraries, a
#: small table, one model and what comes after it.
LEAST = 5.0
WHOLE = 3.0
#: Seconds of processor time for the claims, the model file and a short report; and the
#: least share of the limit that is kept for them.
_AFTERWARDS = 1.2
_SHARE = 0.1
#: Seconds of processor time below which nothing can be finished any more: the fit on
#: all training rows, its claims and the model file cannot be stopped.
_FINAL = 0.8


def seconds_left(limit: float | None) -> float | None:
    """Seconds until the limit; None without one."""
    return None if limit is None else limit - spent()


def model_seconds(limit: float | None) -> float | None:
    """Seconds for comparing models, so that the rest can be done within the limit."""
    left = seconds_left(limit)
    if left is None or limit is None:
        return None
    if left < _FINAL * _busy():
        raise too_short(limit)
    after = max(_SHARE * limit, _AFTERWARDS * _busy())
    return max(1e-3, left - min(after, left / 2))


def _busy() -> float:
    """How many times longer things take than the processor needs for them."""
    return max(1.0, spent() / max(0.1, time.process_time()))


def check_limit(limit: float | None) -> None:
    """Refuse a limit within which no model can be fitted to the smallest table."""
    if limit is None:
        return
    needed = WHOLE * _busy()
    if limit >= max(LEAST, needed):
        return
    cost = "to load the libraries alone takes some seconds"
    if needed > LEAST:
        cost = (
            "other programs use this machine, so that to load the libraries and to fit "
            f"one model takes about {needed:.0f} s"
        )
    least = max(LEAST, math.ceil(needed))
    raise Stop(
        f"--max-time {limit:g} is too short: {cost}. Give at least {least:g}.", code=2
    )


def too_short(limit: float | None) -> Stop:
    """The error where no model was fitted in time."""
    return Stop(
        f"no model was fitted within {limit:g} s; nothing was written. Raise "
        "--max-time, or choose one model with --model."
    )


@contextmanager
def until_limit(limit: float | None) -> Iterator[None]:
    """Stop the command near its limit: there is no model yet that could be kept.

    A library that is being loaded cannot be stopped in between. From when on no model
    could be finished any more, the rest of the limit is kept for that.
    """
    left = seconds_left(limit)
    at = None
    if left is not None and limit is not None:
        kept = max(_SHARE * limit, _FINAL * _busy())
        at = time.perf_counter() + left - min(kept, left / 2)
    try:
        with alarm(at):
            yield
    except TimeIsUp:
        raise too_short(limit) from None
