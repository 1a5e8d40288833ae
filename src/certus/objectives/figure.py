"""A figure of any set of losses: their values, slopes or curvatures.

Losses of the residual, of the margin and of a score are drawn in columns of their own,
as they depend on different things.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from certus.objectives import terms as t
from certus.objectives.functions import check_loss, curvature, gradient, value
from certus.objectives.rows import LOSSES, MARGIN, RESIDUAL, SCORE
from certus.results import new_figure
from certus.typing import Array

#: What can be drawn, with the label of the axis.
DRAWN: dict[str, tuple[str, Callable[..., Array]]] = {
    "value": ("loss", value),
    "gradient": ("slope", gradient),
    "curvature": ("curvature", curvature),
}


def plot(
    losses: Any,
    what: str | Iterable[str] = "value",
    *,
    reach: float = 3.0,
    figure: Any = None,
) -> Any:
    """Draw losses: a column for each thing they depend on, a row for each of ``what``.

    Losses of the residual are drawn against y − z, losses of the margin against yz,
    the others against the score z at y = 1 (``Softmax``: the score of the true class,
    the others 0). Slopes are with respect to what the axis shows.

    Parameters
    ----------
    losses : term or iterable of terms
        The losses.
    what : {"value", "gradient", "curvature"} or an iterable of these
        What is drawn. Infinite curvature, at kinks, is left out.
    reach : float, default=3.0
        The horizontal axis runs from −reach to reach.
    figure : matplotlib figure, optional
        Where to draw; a new one by default.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, with a legend in each column.

    Examples
    --------
    >>> from certus import objectives
    >>> from certus.objectives import Absolute, Huber, Logistic, Squared
    >>> figure = objectives.plot([Squared(), Absolute(), Huber(1.0), Logistic()])
    >>> [ax.get_xlabel() for ax in figure.axes]
    ['residual y − z', 'margin yz']
    """
    # A term is a tuple, hence iterable; lists, generators and tuples of terms are not
    # instances of one.
    chosen = [losses] if type(losses) in t.TERMS.values() else list(losses)
    rows = [what] if isinstance(what, str) else list(what)
    if not chosen or not rows:
        raise ValueError("There is nothing to draw; pass at least one loss.")
    for row in rows:
        if row not in DRAWN:
            raise ValueError(f"what must be one of {', '.join(DRAWN)}, got {row!r}.")
    if not (np.isfinite(reach) and reach > 0):
        raise ValueError(f"reach must be positive and finite, got {reach!r}.")
    columns: dict[str, list[t.Loss]] = {axis: [] for axis in (RESIDUAL, MARGIN, SCORE)}
    for loss in chosen:
        columns[check_loss(loss).depends_on].append(loss)
    columns = {axis: members for axis, members in columns.items() if members}
    if figure is None:
        figure = _new_figure(len(rows), len(columns))
    panels = figure.subplots(len(rows), len(columns), squeeze=False, sharex="col")
    for j, (axis, members) in enumerate(columns.items()):
        for i, row in enumerate(rows):
            _draw(panels[i, j], axis, members, row, float(reach))
        panels[-1, j].set_xlabel(axis)
        panels[0, j].legend(frameon=False, fontsize=9)
    return figure


def _new_figure(n_rows: int, n_columns: int) -> Any:
    return new_figure(1.0 + 3.8 * n_columns, 0.8 + 2.7 * n_rows)


def _draw(ax: Any, axis: str, losses: list[t.Loss], row: str, reach: float) -> None:
    """One panel; its height fits the middle half, as exponentials leave it anyway."""
    label, _ = DRAWN[row]
    x = np.linspace(-reach, reach, 1200)
    middle = np.abs(x) <= reach / 2
    low, high = 0.0, 0.0
    for loss in losses:
        y = _curve(loss, axis, row, x)
        low, high = min(low, np.nanmin(y[middle])), max(high, np.nanmax(y[middle]))
        ax.plot(x, _open_at_jumps(y), lw=1.6, label=_label(loss))
    ax.set_ylim(1.6 * low - 0.04 * (high - low), 1.6 * high + 0.04 * (high - low))
    ax.axhline(0.0, color="0.8", lw=0.8, zorder=0)
    ax.set_ylabel(label)


def _curve(loss: Any, axis: str, row: str, x: Array) -> Array:
    function = DRAWN[row][1]
    if LOSSES[type(loss)].by_rows:
        scores = np.zeros((len(x), loss.n_classes))
        scores[:, 0] = x
        found = function(loss, np.zeros(len(x), dtype=int), scores)
        found = found.reshape(len(x), -1)[:, 0]
    elif axis == RESIDUAL:
        found = function(loss, x, 0.0)
        found = -found if row == "gradient" else found  # d/de = −d/dz
    else:
        found = function(loss, 1.0, x)
    return np.where(np.isfinite(found), found, np.nan)


def _open_at_jumps(y: Array) -> Array:
    """A step is not a line: a gap where one difference dwarfs both its neighbours."""
    steps = np.abs(np.diff(y))
    around = np.concatenate([steps[1:2], steps[:-1]]) + np.append(steps[1:], steps[-2])
    y = y.copy()
    y[1:][steps > 10 * around + 1e-9] = np.nan
    return y


def _label(loss: t.Loss) -> str:
    fields = ", ".join(f"{name} {number:g}" for name, number in zip(loss._fields, loss))
    return type(loss).__name__ + (f", {fields}" if fields else "")
