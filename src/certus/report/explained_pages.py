"""The page on contributions: which columns matter, and how single rows come about.

One HTML page: no script, nothing from elsewhere. Column names and labels are those of
the user's file.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from certus.config import show_versions
from certus.explanations import Contributions
from certus.meanings import explain
from certus.report.document import written
from certus.report.figures import NARROW, WIDE
from certus.report.page import SECTIONS, claim_line, template, tied
from certus.report.svg import Plot, Scale, fit_text, nice_ticks, text_width, tick_labels
from certus.wording import number

__all__ = ["explained_page"]

#: Columns of a drawing, rows that are drawn, and rows of the table of numbers.
_SHOWN, _ROWS, _LISTED = 12, 5, 200
_LINE = 24.0


def explained_page(
    found: Contributions,
    *,
    title: str = "Contributions",
    path: str | os.PathLike[str] | None = None,
) -> str:
    """One self-contained page about contributions.

    Parameters
    ----------
    found : Contributions
        From :func:`certus.explain`.
    title : str
        What was explained.
    path : str or path, optional
        Where to write it as well.

    Examples
    --------
    >>> import certus
    >>> from certus.linear_model import Ridge
    >>> from certus.report import explained_page
    >>> X, y = [[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]], [1.0, 0.0, 2.0]
    >>> found = certus.explain(Ridge().fit(X, y), X)
    >>> "Which columns matter?" in explained_page(found)
    True
    """
    from markupsafe import Markup

    from certus import __version__

    k, claims = found.output(), found.certificate.claims
    kinds = {"refused": "proved"}
    lists = [
        (heading, meaning, [claim_line(claim, name) for claim in some])
        for name, heading, meaning in SECTIONS
        if (some := [c for c in claims if kinds.get(c.strength, c.strength) == name])
    ]
    rows = range(min(len(found.values), _ROWS))
    # The drawings escape their own text.
    page: str = template("explained_page.html").render(
        version=__version__,
        found=found,
        title=title,
        verdict=f"{title}: {found.verdict}",
        unit=found.unit
        if len(found.outputs) == 1
        else f"{found.unit} of {found.outputs[k]}",
        versions=show_versions(),
        lists=lists,
        overall=Markup(_both(_overall, found, k, 0, "columns", "Mean contribution")),
        single=[
            (i, _sum(found, i, k), Markup(_both(_steps, found, k, i, f"row{i}", "Row")))
            for i in rows
        ],
        sizes=_sizes(found, k),
        numbers=_numbers(found, k),
        words=explain(claims),
        certificate=str(found.certificate),
    )
    return written(tied(page), path)


def _both(draw: Any, found: Any, k: int, row: int, name: str, title: str) -> str:
    said = "The contribution of each column, the largest first."
    return "".join(
        draw(found, k, row, width).render(name, title, said, style)
        for style, width in (("wide", WIDE), ("narrow", NARROW))
    )


def _sum(found: Any, row: int, k: int) -> str:
    base, end = float(found.base[k]), float(found.predictions[row, k])
    return f"base value {number(base)}, prediction {number(end)}"


def _frame(names: list[str], low: float, high: float, width: float, unit: str) -> Plot:
    """Axes with a line for each name; the ends of the axis are round numbers."""
    left = 12 + max(map(text_width, names))
    room = (high - low or 1.0) * 0.12
    below = low - (room if low else 0.0)  # bars start at zero
    marks = nice_ticks(below, high + room, 6 if width > NARROW else 3)
    y = Scale(len(names) - 0.5, -0.5)
    height = 60 + _LINE * len(names)
    ends = Scale(min(marks[0], below), max(marks[-1], high + room))
    plot = Plot(width, height, ends, y, (10, 26, 46, left))
    plot.x_axis(marks, tick_labels(marks), fit_text(unit, width - left))
    for i, name in enumerate(names):
        plot.text(left - 8, plot.y(i) + 4, name, anchor="end")
    return plot


def _overall(found: Any, k: int, row: int, width: float) -> Plot:
    """The mean size of each column's contributions, as bars."""
    sizes = np.abs(found.values[:, :, k]).mean(axis=0)
    order = np.argsort(-sizes, kind="stable")[:_SHOWN]
    names = [fit_text(found.columns[j], width / 3) for j in order]
    top = float(sizes.max(initial=0.0)) or 1.0
    plot = _frame(
        names, 0.0, top, width, f"mean size of the contributions to the {found.unit}"
    )
    for place, j in enumerate(order):
        x, y = plot.x(0.0), plot.y(place)
        plot.box(x, y - 7, plot.x(float(sizes[j])) - x, 14, "fill first")
        plot.text(plot.x(float(sizes[j])) + 5, y + 4, number(float(sizes[j])), "tick")
    return plot


def _steps(found: Any, k: int, row: int, width: float) -> Plot:
    """From the base value to the prediction of one row."""
    part = found.values[row, :, k]
    order = np.argsort(-np.abs(part), kind="stable")
    shown, rest = order[:_SHOWN], order[_SHOWN:]
    names = [f"{found.columns[j]} = {_cell(found.cells[j][row])}" for j in shown]
    sizes = [float(part[j]) for j in shown]
    if len(rest):
        names.append(f"{len(rest)} other columns")
        sizes.append(float(part[rest].sum()))
    names = [fit_text(name, width / 2.4) for name in names]
    ends = float(found.predictions[row, k]) - np.concatenate([[0.0], np.cumsum(sizes)])
    plot = _frame(names, float(ends.min()), float(ends.max()), width, found.unit)
    base = plot.x(float(found.base[k]))
    plot.rule((base, plot.top), (base, plot.floor), "third")
    for place, size in enumerate(sizes):
        a, b = sorted((plot.x(float(ends[place])), plot.x(float(ends[place + 1]))))
        y = plot.y(place)
        style = "fill second" if size > 0 else "fill first"
        plot.box(a, y - 7, max(b - a, 1.0), 14, style)
        sign = "+" if size > 0 else "−" if size < 0 else ""
        plot.text(b + 5, y + 4, f"{sign}{number(abs(size))}", "tick halo")
    return plot


def _cell(value: Any) -> str:
    if value is None or value != value:
        return "missing"
    return number(value) if isinstance(value, float) else str(value)


def _sizes(found: Any, k: int) -> tuple[list[str], list[list[str]]]:
    part = found.values[:, :, k]
    order = np.argsort(-np.abs(part).mean(axis=0), kind="stable")
    head = ["column", "mean size", "least", "most"]
    return head, [[found.columns[j], *map(number, _range(part[:, j]))] for j in order]


def _range(part: Any) -> tuple[float, float, float]:
    return float(np.abs(part).mean()), float(part.min()), float(part.max())


def _numbers(found: Any, k: int) -> tuple[list[str], list[list[str]]]:
    """The contributions of the first rows, one line for each row."""
    head = ["row", "base value", *found.columns, "prediction"]
    base = number(float(found.base[k]))
    return head, [
        [
            f"{i + 1:,}",
            base,
            *[number(float(value)) for value in found.values[i, :, k]],
            number(float(found.predictions[i, k])),
        ]
        for i in range(min(len(found.values), _LISTED))
    ]
