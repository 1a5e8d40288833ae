"""What the commands write, and where: results to stdout, the rest to stderr.

Plain text of at most 80 columns; colour repeats what words and marks already say.
Names from a user's file are shown with their control characters escaped, and a
terminal that lacks a character gets its nearest plain form.
"""

from __future__ import annotations

import codecs
import re
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from certus.wording import clean, shorten

if TYPE_CHECKING:
    from rich.console import Console

    from certus.certificate import Certificate, Claim

WIDTH = 80

# What stands for a character that a terminal lacks.
_PLAIN = {
    **{
        "✓": "+",
        "✗": "x",
        "·": "*",
        "–": "-",
        "—": "-",
        "−": "-",
        "×": "x",
        "…": "...",
    },
    **{"→": "->", "±": "+-", "½": "1/2", "²": "^2", "‖": "||", "₁": "_1", "₂": "_2"},
    **{"Σ": "sum ", "≤": "<=", "≥": ">=", "ᵀ": "'", "“": '"', "”": '"', "’": "'"},
    **{"ᵢ": "_i", "θ": "theta", "λ": "lambda", "α": "alpha", "∞": "inf"},
}


class Stop(Exception):
    """Ends a command: one or two sentences for stderr, and the exit code."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


# ---- streams -------------------------------------------------------------------


def tolerate_any_encoding() -> None:
    """Write what the terminal cannot show in plain letters, instead of failing."""
    codecs.register_error("certus-plain", _plain_form)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="certus-plain")


def _plain_form(error: UnicodeError) -> tuple[str, int]:
    if isinstance(error, UnicodeDecodeError):
        # A stream that is read back, such as a captured one, may hold any bytes.
        return "\N{REPLACEMENT CHARACTER}", error.end
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(_PLAIN.get(char, "?") for char in lost), error.end


def out() -> Console:
    """Where results go."""
    return _console(sys.stdout)


def err() -> Console:
    """Where progress, remarks and errors go; above the bar, while there is one."""
    return _BARS[-1] if _BARS else _console(sys.stderr)


#: Consoles on which a bar is drawn now.
_BARS: list[Console] = []


def _console(stream: Any) -> Console:
    from rich.console import Console

    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    if console.width > WIDTH:
        console = Console(
            file=stream, highlight=False, markup=False, emoji=False, width=WIDTH
        )
    return console


# ---- text ----------------------------------------------------------------------


def say(text: str = "", *, style: str = "", indent: int = 0, hang: int = 0) -> None:
    """Write a paragraph to stdout, wrapped; a style never carries the meaning."""
    _paragraph(out(), text, style, indent, hang)


def remark(text: str) -> None:
    """Write a remark to stderr, in the manner of an error."""
    _paragraph(err(), f"certus: {text}", "", 0, 8)


def quote(text: str) -> None:
    """Write somebody else's text to stderr, line by line as it is."""
    for line in text.split("\n"):
        _paragraph(err(), line, "dim", 8, 0)


def complain(text: str) -> None:
    """Write an error to stderr: what happened and what to do."""
    first, _, rest = text.partition(" ")
    if first in _ORDINARY:
        text = f"{first.lower()} {rest}"
    _paragraph(err(), f"certus: {text}", "", 0, 8)


# Words that open a sentence; anything else may be a name and keeps its capital.
_ORDINARY = {
    *("A", "An", "The", "There", "This", "These", "Those", "No", "More", "Expected"),
    *("Column", "Columns", "Input", "Found", "Invalid", "Missing", "Got", "Unknown"),
    *("Could", "Cannot", "Sample", "Only", "Ignored"),
}


def _paragraph(console: Console, text: str, style: str, indent: int, hang: int) -> None:
    from rich.text import Text

    wrapper = textwrap.TextWrapper(
        console.width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hang),
        break_on_hyphens=False,
    )
    for line in clean(text).splitlines() or [""]:
        # A number stays with its percent sign; the wrapper breaks at plain blanks only.
        whole = re.sub(r"(?<=\d) %( sure)?", _tied, line)
        for piece in wrapper.wrap(whole) or [""]:
            plain = piece.replace("\N{NO-BREAK SPACE}", " ")
            console.print(Text(plain, style=style), soft_wrap=True)


def _tied(found: re.Match[str]) -> str:
    return found[0].replace(" ", "\N{NO-BREAK SPACE}")


_CLAIM = re.compile(r"^  ([✓✗·–?!]) (.{1,11}) ")
_COLOURS = {
    "✓": "green",
    "✗": "red",
    "–": "yellow",
    "?": "yellow",
    "!": "yellow",
    "·": "dim",
}


def say_certificate(certificate: Certificate) -> None:
    """Write a certificate; the words are those of ``str(certificate)``."""
    _say_claims(str(certificate), certificate.claims)


def say_claims(claims: Sequence[Claim]) -> None:
    """Write claims as a certificate would, without its headline."""
    from certus.rendering import claim_lines

    lines = [line for claim in claims for line in claim_lines(claim)]
    _say_claims("\n".join(lines), claims, headline=False)


def _say_claims(content: str, claims: Sequence[Claim], headline: bool = True) -> None:
    from rich.text import Text

    from certus.certificate import Strength
    from certus.rendering import note_lines

    notes = {clean(line) for claim in claims for line in note_lines(claim)}
    bases = {claim.basis for claim in claims if claim.basis}
    bases |= {strength.value for strength in Strength}
    console = out()
    for line in clean(content).splitlines():
        text = Text(line)
        found = _CLAIM.match(line)
        if found:
            headline = False
            colour = _COLOURS[found[1]]
            text.stylize(colour, 2, 3)
            text.stylize(f"bold {colour}" if found[1] in "✓✗–?" else colour, 4, 14)
            for basis in bases:
                if line.endswith(f" {basis}"):
                    text.stylize("dim", len(line) - len(basis))
        elif line in notes:
            text.stylize("dim")
        elif headline:
            text.stylize("bold")
        console.print(text, soft_wrap=True)


# ---- progress ------------------------------------------------------------------


class StepOpener(Protocol):
    """Opens a step by its name; ``share`` is how much of the work is done."""

    def __call__(
        self, name: str, share: float | None = None, seconds: float | None = None
    ) -> None:
        """Show the name of what comes next, and the seconds left if they are known."""


@contextmanager
def progress(steps: int = 1, limit: float | None = None) -> Iterator[StepOpener]:
    """Show a bar on stderr after a second; in a pipe, a line every few seconds.

    Yields a function that opens the next step: one of ``steps`` equal ones, unless the
    call says which share of the work is done. The time left is a guess from that share,
    and never beyond the ``limit`` in seconds.
    """
    from rich import progress as bars

    console = err()
    bar = bars.Progress(
        bars.TextColumn("  {task.description}"),
        bars.BarColumn(16, complete_style="cyan", finished_style="cyan"),
        bars.TextColumn("{task.percentage:.0f} %", style="dim"),
        bars.TimeElapsedColumn(),
        bars.TextColumn("{task.fields[left]}", style="dim"),
        console=console,
        transient=True,
        redirect_stdout=False,
        disable=not console.is_terminal or console.is_dumb_terminal,
    )
    task = bar.add_task("", total=1.0, left="")
    opened = 0
    start = time.monotonic()
    lines = _Lines(console) if bar.disable else None

    def step(
        name: str, share: float | None = None, seconds: float | None = None
    ) -> None:
        nonlocal opened
        done = opened / steps if share is None else share
        if seconds is None and share and 0.02 < share < 1:
            spent = time.monotonic() - start
            seconds = spent / done - spent
            if limit is not None:
                seconds = min(seconds, max(0.0, limit - spent))
        left = "" if seconds is None else _left(seconds)
        bar.update(task, description=shorten(name), completed=done, left=left)
        if lines is not None:
            lines.now = shorten(name), done, left
        opened += 1

    timer = threading.Timer(1.0, bar.start) if lines is None else lines
    timer.daemon = True
    timer.start()
    _BARS.append(console)
    try:
        yield step
    finally:
        _BARS.remove(console)
        timer.cancel()
        timer.join()
        bar.stop()


#: Seconds between two lines about the progress where no bar can be drawn.
EVERY = 5.0


class _Lines(threading.Thread):
    """Writes a line now and then, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.now = ("", 0.0, "")
        self._console, self._done = console, threading.Event()
        self._start = time.monotonic()

    def run(self) -> None:
        """Until the work is done, a line every few seconds."""
        while not self._done.wait(EVERY):
            name, share, left = self.now
            spent = time.monotonic() - self._start
            tail = f", {left}" if left else ""
            _paragraph(
                self._console,
                f"certus: {spent:.0f} s, {100 * share:.0f} %{tail}: {name}",
                "",
                0,
                8,
            )

    def cancel(self) -> None:
        """Write no more lines."""
        self._done.set()


def _left(seconds: float) -> str:
    """Time left, in words short enough for the end of a line."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s left"
    return f"{seconds / 60:.0f} min left"
