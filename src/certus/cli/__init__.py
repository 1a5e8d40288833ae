"""The command ``certus``: fit, predict, certify, list.

This module holds only the entry point and turns whatever happens into one or two
lines and an exit code: 0 done, 1 data or model error, 2 usage, 3 certificate missed,
refused or undecided, 4 refuted, 130 interrupted. Everything heavy is imported by the
commands.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

__all__ = ["main"]

#: When the command began, by ``time.perf_counter()``.
_BEGAN = [time.perf_counter()]

DONE, FAILED, USAGE, MISSED, REFUTED, INTERRUPTED = 0, 1, 2, 3, 4, 130


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    args : sequence of str, optional
        The arguments; those of the process if None.

    Returns
    -------
    int
        0 done, 1 data or model error, 2 usage, 3 certificate missed, refused or
        undecided, 4 refuted, 130 interrupted.

    Examples
    --------
    >>> from certus.cli import main
    >>> main(["--version"])  # doctest: +ELLIPSIS
    certus ...
    0
    """
    _BEGAN[0] = time.perf_counter() - (_age() if args is None else 0.0)
    try:
        from certus.cli import screen

        screen.tolerate_any_encoding()
        # The certificate says what a warning would say.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = _run(args)
        sys.stdout.flush()
        if args is None:  # the process ends: nobody needs to search it for garbage
            gc.freeze()
        return code
    except BrokenPipeError:
        # The reader has left, as `head` does; no complaint at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:  # before the handler is in place
        sys.stderr.write("certus: interrupted; nothing was written.\n")
        return INTERRUPTED


def _age() -> float:
    """Seconds since the process began, where the system tells; else 0."""
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        age = now - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError, IndexError):
        return 0.0
    return age if 0 <= age < 60 else 0.0


def spent() -> float:
    """Seconds since the command began."""
    return time.perf_counter() - _BEGAN[0]


def _run(args: Sequence[str] | None) -> int:
    import typer

    from certus.cli.app import app
    from certus.cli.screen import Stop, complain

    usage_error: type[Exception] = typer.BadParameter.__mro__[1]
    pressed: list[int] = []
    try:
        with _noticing(pressed):
            code = app(args, prog_name="certus", standalone_mode=False)
    except Stop as stop:
        complain(str(stop))
        return stop.code
    except usage_error as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "certus"
        text = error.format_message()  # type: ignore[attr-defined]
        complain(_several(path, text) or f"{text.rstrip('.')}. Try: {path} --help")
        return USAGE
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:
        if os.environ.get("CERTUS_DEBUG"):
            raise
        # Ctrl-C while a compiled module loads comes out as a failed import.
        if not (pressed and isinstance(error, ImportError | SystemError)):
            complain(_sentence(error))
            return FAILED
        code = INTERRUPTED
    if code == INTERRUPTED:
        complain("interrupted; nothing was written.")
    return int(code or DONE)


def _several(command: str, text: str) -> str:
    """What to do instead of naming several tables; empty for other mistakes."""
    found = re.match(r"Got unexpected extra argument\S* \((.+)\)", text)
    if found is None or command != "certus predict":
        return ""
    return (
        f"certus predict reads one table at a time, but {found[1]} was given as well. "
        "Call it once for each table."
    )


@contextmanager
def _noticing(pressed: list[int]) -> Iterator[None]:
    """Note each Ctrl-C in a list, before it becomes an exception."""

    def handler(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        signal.default_int_handler(number, frame)

    try:
        before = signal.signal(signal.SIGINT, handler)
    except ValueError:  # only the main thread receives signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def load_tables() -> None:
    """Import polars whole: its compiled part panics on a Ctrl-C while it loads.

    A Ctrl-C that arrives meanwhile takes effect afterwards.
    """
    pressed: list[int] = []
    try:
        before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    except ValueError:  # not the main thread
        return
    try:
        import polars as polars
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        signal.raise_signal(signal.SIGINT)


def _sentence(error: Exception) -> str:
    """What went wrong, for a person. Only surprises are called by their type."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError):
        return "out of memory. Try fewer rows or columns, or a larger machine."
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}."
    if isinstance(error, ValueError | TypeError | NotImplementedError) and text:
        return text
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"unexpected {what}. CERTUS_DEBUG=1 shows where; please report it."
