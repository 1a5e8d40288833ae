"""The common form of all results that certus returns for people to read.

A result is a frozen dataclass. Its fields are the numbers; ``to_dict()`` gives them as
JSON-ready data, notebooks show ``_repr_html_()``, a :class:`TableResult` has
``to_frame()`` as well, and those that show something have ``plot()``. Each class only
defines the contents of its table.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from certus.typing import ArrayLike, Axes
from certus.wording import plain, shorten

#: Rows that a notebook shows.
SHOWN = 100
#: Letters that numbers are written with: 1e-05, nan, inf.
_NOT_WORDS = re.compile(r"\d[eE](?=[-+]?\d)|\b(?:nan|inf)\b")


class Result:
    """Base class of results; the dataclass derived from it has the fields."""

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON-ready data; numbers that are not finite become null.

        Fitted models, and other fields that ``repr`` leaves out, are left out.
        """
        names = [f.name for f in fields(self) if f.repr]  # type: ignore[arg-type]
        names += ["verdict"] if hasattr(self, "verdict") else []
        return {name: _data(getattr(self, name)) for name in dict.fromkeys(names)}

    @property
    def _headline(self) -> str:
        """The first line in a notebook."""
        return getattr(self, "verdict", "") or type(self).__name__

    def _table(self) -> Iterable[Sequence[str]]:
        """The cells of the table in a notebook, the heads first."""
        yield "", ""
        for name, value in self.to_dict().items():
            if not isinstance(value, list | dict):
                yield name, _cell(value)

    def _notes(self) -> Iterable[str]:
        """Lines under the table."""
        return getattr(self, "notes", ())

    def _repr_html_(self) -> str:
        heads, *rows = self._table()
        more = len(rows) - SHOWN
        notes = [f"and {more:,} more"] if more > 0 else []
        shown = rows[:SHOWN]
        sides = ["right" if _numbers(part) else "left" for part in zip(*shown)]
        sides = sides or ["left"] * len(heads)
        body = "".join(_row(cells, sides) for cells in shown)
        under = "".join(f"<div>{_safe(t)}</div>" for t in (*notes, *self._notes()))
        return (
            '<div class="certus-result" style="font-family:system-ui,sans-serif">'
            f"<div><strong>{_safe(self._headline)}</strong></div>"
            '<div style="overflow-x:auto">'  # wide tables scroll, pages do not
            f"<table>{_row(heads, sides, 'th')}{body}</table></div>{under}</div>"
        )


class TableResult(Result):
    """Base of the results that are a table."""

    def _columns(self) -> Mapping[str, Any]:
        """The columns by name, each of the same length."""
        raise NotImplementedError

    def to_frame(self) -> Any:
        """The table as a polars frame."""
        import polars as pl

        columns = self._columns()
        return pl.DataFrame({name: pl.Series(part) for name, part in columns.items()})

    def _table(self) -> Iterable[Sequence[str]]:
        columns = self._columns()
        yield tuple(columns)
        for cells in zip(*columns.values()):
            yield tuple(map(_cell, plain(cells)))


def new_figure(width: float = 6.0, height: float = 4.0) -> Any:
    """An empty matplotlib figure; matplotlib is imported here, when it is needed."""
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError(
            "Drawing needs matplotlib: pip install 'certus[plot]'."
        ) from None
    return pyplot.figure(figsize=(width, height), layout="constrained")


def draw_intervals(
    names: Sequence[str],
    values: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    label: str,
    ax: Axes | None = None,
) -> Any:
    """Draw a point with its interval for each name, and return the axes."""
    if ax is None:
        ax = new_figure(6.0, 1.2 + 0.3 * len(names)).subplots()
    places = range(len(names))
    ax.hlines(places, low, high, color="#30638e", alpha=0.5, lw=3)
    ax.plot(values, places, "o", color="#30638e")
    ax.set_yticks(places, [shorten(name, 30) for name in names])
    ax.invert_yaxis()
    ax.set_xlabel(label)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _data(value: Any) -> Any:
    """JSON-ready: results and named tuples by their fields, the rest by value."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if hasattr(value, "_asdict"):
        return {name: _data(part) for name, part in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(name): _data(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_data(part) for part in value]
    return plain(value)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    return shorten(str(value))


def _safe(text: str) -> str:
    return html.escape(str(text))


def _numbers(cells: Iterable[str]) -> bool:
    """Whether a column has no cell with words; signs and ± do not count as such."""
    return not any(c.isalpha() for cell in cells for c in _NOT_WORDS.sub("", cell))


def _row(cells: Sequence[str], sides: Sequence[str], tag: str = "td") -> str:
    inner = "".join(
        f'<{tag} style="text-align:{side}">{_safe(cell)}</{tag}>'
        for cell, side in zip(cells, sides)
    )
    return f"<tr>{inner}</tr>"
