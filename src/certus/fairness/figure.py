"""The figure of a table of groups: the value of each group, with its interval.

One panel for each metric, groups from top to bottom. Metrics of bins share a panel: the
bins along the axis, a line for each group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from certus.results import new_figure
from certus.typing import Array, Axes

if TYPE_CHECKING:
    from certus.fairness.table import GroupTable

_MOST = 12  # panels; a figure of more could not be read
_MARKS = "osD^vP*X"


def draw(table: GroupTable, figure: Any = None) -> Any:
    """Draw a table on a figure, a new one by default."""
    binned = [i for i, name in enumerate(table.metrics) if _is_bin(name)]
    single = [i for i in range(len(table.metrics)) if i not in binned][:_MOST]
    panels = len(single) + bool(binned)
    columns = min(panels, 3)
    rows = -(-panels // columns)
    height = max(2.6 if binned else 1.5, 0.9 + 0.32 * len(table.groups))
    if figure is None:
        figure = new_figure(3.6 * columns + 1.0, height * rows + 0.8)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax, i in zip(axes, single):
        _by_group(ax, table, i, names=bool(ax.get_subplotspec().is_first_col()))
    if binned:
        _by_bin(axes[len(single)], table, binned)
    for ax in axes[panels:]:
        ax.set_visible(False)
    figure.suptitle(table.verdict, x=0.01, ha="left", fontsize=11, wrap=True)
    return figure


def _is_bin(metric: str) -> bool:
    return metric.endswith("]") and "–" in metric


def _reach(values: Array, low: Array, high: Array) -> Array:
    """Whiskers, none where there is no interval."""
    ends = np.stack([values - low, high - values])
    return np.maximum(np.nan_to_num(ends), 0.0)


def _by_group(ax: Axes, table: GroupTable, i: int, names: bool) -> None:
    """A dot and its interval for each group."""
    from certus.fairness.table import words

    places = np.arange(len(table.groups))
    v, low, high = table.values[i], table.low[i], table.high[i]
    ax.errorbar(v, places, xerr=_reach(v, low, high), fmt="o", ms=4, lw=1.4, capsize=2)
    ax.set_yticks(places, [words(g) for g in table.groups] if names else [])
    ax.set_ylim(len(places) - 0.5, -0.5)
    ax.grid(axis="x", color="0.9", lw=0.8)
    ax.set_axisbelow(True)
    ax.set_xlabel(table.metrics[i].replace("_", " "))
    ax.set_title(table.gaps[i].verdict, fontsize=8.5, loc="left", color="0.3")


def _by_bin(ax: Axes, table: GroupTable, rows: list[int]) -> None:
    """A line for each group, slightly apart so that intervals can be told."""
    from certus.fairness.table import words

    edges = np.asarray(table.edges)
    middle, width = (edges[:-1] + edges[1:]) / 2, np.diff(edges)
    for a, group in enumerate(table.groups):
        v, low, high = (part[rows, a] for part in (table.values, table.low, table.high))
        shift = (a - (len(table.groups) - 1) / 2) * 0.5 / len(table.groups)
        ax.errorbar(
            middle + shift * width,
            v,
            yerr=_reach(v, low, high),
            fmt=_MARKS[a % len(_MARKS)],
            ms=4,
            lw=1.2,
            ls="-",
            label=words(group),
        )
    if table.criterion == "calibration":
        ax.axhline(0.0, color="0.6", lw=0.9, zorder=0)
    ax.set_xlabel("score")
    ax.set_ylabel(table.metrics[rows[0]].partition("[")[0].replace("_", " "))
    ax.legend(frameon=False, fontsize=8)
