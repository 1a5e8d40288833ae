"""A small drawing board: axes, lines, bands, bars and text as inline SVG.

Coordinates are pixels at the size drawn, so text never shrinks with the page; colours
are classes, so that the page's light, dark and print styles reach into the drawing.
All text is escaped here, and nowhere else.
"""

from __future__ import annotations

import html
import itertools
import math
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from certus.wording import number, shorten

__all__ = ["Plot", "Scale", "fit_text", "nice_ticks", "text_width", "tick_labels"]

Point = tuple[float, float]

#: Pixels of the narrowest character.
NARROWEST = 5.2


def text_width(text: str) -> float:
    """Pixels that a text takes at the size of the labels, in a wide font.

    Examples
    --------
    >>> text_width("will") < text_width("Warm") < text_width("水水水水")
    True
    """
    return sum(map(_character_width, text))


def _character_width(char: str) -> float:
    if char in "ijltf.,:;'|!()[] ":
        return NARROWEST
    if char in "mwMW@%—…":
        return 13.0
    if char.isascii():
        return 9.2 if char.isupper() else 8.4
    return 13.0 if unicodedata.east_asian_width(char) in "WF" else 12.5


def fit_text(text: str, room: float) -> str:
    """Cut a text in its middle until it takes no more than this many pixels.

    Examples
    --------
    >>> fit_text("a long name", 200.0), fit_text("a very long name indeed", 70.0)
    ('a long name', 'a v…eed')
    """
    length = min(len(text), max(3, int(room / NARROWEST)))  # texts may be huge
    while length > 3 and text_width(shorten(text, length)) > room:
        length -= 1
    return shorten(text, length)


class Scale(NamedTuple):
    """An interval of values, spread evenly or by powers."""

    low: float
    high: float
    log: bool = False

    def share(self, value: float) -> float:
        """Where a value lies: 0 at the low end, 1 at the high one."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return (value - low) / ((high - low) or 1.0)


def nice_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers that cover an interval, at most this many.

    Examples
    --------
    >>> nice_ticks(0.0, 97.0, 6)
    [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return [0.0, 1.0]
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        room = abs(low) or 1.0
        low, high = low - room / 2, high + room / 2
    rough = (high - low) / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    for factor in (1, 2, 2.5, 5, 10, 20, 25, 50):
        step = factor * power
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        if last - first + 1 <= most or factor == 50:
            break
    return [
        round(k * step, 12 - math.floor(math.log10(step)))
        for k in range(first, last + 1)
    ]


def tick_labels(ticks: Sequence[float], percent: bool = False) -> list[str]:
    """Ticks as text, all with the same number of decimals.

    Examples
    --------
    >>> tick_labels([0.0, 2500.0, 5000.0]), tick_labels([0.0, 0.05], percent=True)
    (['0', '2,500', '5,000'], ['0 %', '5 %'])
    """
    values = [100 * tick for tick in ticks] if percent else list(ticks)
    unit = " %" if percent else ""
    step = min((b - a for a, b in itertools.pairwise(values)), default=1.0)
    size = max(map(abs, values))
    if step <= 0 or size >= 1e7 or size < 1e-3:
        return [number(value, 3).replace("-", "−") + unit for value in values]
    places = next((p for p in range(6) if abs(step - round(step, p)) < 1e-9 * step), 6)
    return [f"{value:,.{places}f}".replace("-", "−") + unit for value in values]


class Plot:
    """A pair of axes in a drawing of given width; marks are added, then rendered."""

    def __init__(
        self,
        width: float,
        height: float,
        x: Scale,
        y: Scale,
        margins: tuple[float, float, float, float] = (30, 16, 46, 56),
    ) -> None:
        self.width, self.height, self.x_scale, self.y_scale = width, height, x, y
        self.top, self.right, self.bottom, self.left = margins
        self.parts: list[str] = []

    # ---- places ------------------------------------------------------------------

    @property
    def floor(self) -> float:
        """Vertical place of the horizontal axis."""
        return self.height - self.bottom

    @property
    def wall(self) -> float:
        """Horizontal place of the right end."""
        return self.width - self.right

    def x(self, value: float) -> float:
        """Pixels from the left."""
        room = self.wall - self.left
        return round(self.left + self.x_scale.share(value) * room, 1)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        room = self.floor - self.top
        return round(self.floor - self.y_scale.share(value) * room, 1)

    # ---- marks -------------------------------------------------------------------

    def text(
        self, x: float, y: float, words: str, style: str = "", anchor: str = "start"
    ) -> None:
        """Write words at a place in pixels."""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" class="{style}" text-anchor="{anchor}">'
            f"{html.escape(words)}</text>"
        )

    def rule(self, a: Point, b: Point, style: str) -> None:
        """A straight line between two places in pixels."""
        self.parts.append(
            f'<line x1="{a[0]:g}" y1="{a[1]:g}" x2="{b[0]:g}" y2="{b[1]:g}" '
            f'class="{style}"/>'
        )

    def box(
        self, x: float, y: float, w: float, h: float, style: str, more: str = ""
    ) -> None:
        """A rectangle in pixels."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{max(w, 0):.4g}" '
            f'height="{max(h, 0):.4g}" class="{style}"{more}/>'
        )

    def line(self, xs: Sequence[float], ys: Sequence[float], style: str) -> None:
        """A line through points given in values."""
        self.parts.append(
            f'<polyline points="{self._points(zip(xs, ys))}" class="line {style}"/>'
        )

    def band(
        self,
        xs: Sequence[float],
        low: Sequence[float],
        high: Sequence[float],
        style: str,
    ) -> None:
        """The area between two lines."""
        border = [*zip(xs, high), *reversed(list(zip(xs, low)))]
        self.parts.append(
            f'<polygon points="{self._points(border)}" class="band {style}"/>'
        )

    def dots(
        self, xs: Iterable[float], ys: Iterable[float], style: str, radius: float = 3.5
    ) -> None:
        """Dots at points given in values."""
        for x, y in zip(xs, ys):
            self.parts.append(
                f'<circle cx="{self.x(x):g}" cy="{self.y(y):g}" r="{radius:g}" '
                f'class="dot {style}"/>'
            )

    def _points(self, values: Iterable[Point]) -> str:
        return " ".join(f"{self.x(x):g},{self.y(y):g}" for x, y in values)

    # ---- axes --------------------------------------------------------------------

    def y_axis(self, ticks: Sequence[float], labels: Sequence[str], name: str) -> None:
        """Horizontal grid lines with their values; the name stands above."""
        for tick, label in zip(ticks, labels):
            at = self.y(tick)
            self.rule((self.left, at), (self.wall, at), "grid")
            self.text(self.left - 8, at + 4, label, "tick", "end")
        self.text(0, 13, fit_text(name, self.width), "name")

    def x_axis(self, ticks: Sequence[float], labels: Sequence[str], name: str) -> None:
        """The horizontal axis; labels that would touch are left out."""
        self.rule((self.left, self.floor), (self.wall, self.floor), "axis")
        end = -math.inf
        for tick, label in zip(ticks, labels):
            at, half = self.x(tick), text_width(label) / 2
            self.rule((at, self.floor), (at, self.floor + 5), "axis")
            place = min(max(at, half), self.width - half)  # stay inside the drawing
            if place - half > end + 5:
                self.text(place, self.floor + 19, label, "tick", "middle")
                end = place + half
        name = fit_text(name, self.width)
        half = text_width(name) / 2
        middle = min(max((self.left + self.wall) / 2, half), self.width - half)
        self.text(middle, self.height - 6, name, "name", "middle")

    def legend(self, entries: Sequence[tuple[str, str, str]], y: float = 33) -> None:
        """Name each style by a sample of it; entries are (style, mark, words)."""
        x = self.left
        for style, mark, words in entries:
            if mark == "dot":
                self.rule((x, y - 4), (x + 20, y - 4), f"line {style}")
                self.parts.append(
                    f'<circle cx="{x + 10:g}" cy="{y - 4:g}" r="3.5" '
                    f'class="dot {style}"/>'
                )
            else:
                self.rule((x, y - 4), (x + 20, y - 4), f"line {style}")
            self.text(x + 26, y, words, "tick")
            x += 26 + text_width(words) + 16

    def render(self, name: str, title: str, description: str, style: str) -> str:
        """The drawing as an SVG element with a title and a description."""
        ids = f"{name}-{style}"
        return (
            f'<svg class="{style}" role="img" viewBox="0 0 {self.width:g} '
            f'{self.height:g}" width="{self.width:g}" height="{self.height:g}" '
            f'aria-labelledby="{ids}-t {ids}-d">'
            f'<title id="{ids}-t">{html.escape(title)}</title>'
            f'<desc id="{ids}-d">{html.escape(description)}</desc>'
            + "".join(self.parts)
            + "</svg>"
        )
