"""Figures of contributions: waterfall, beeswarm, dependence and shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.results import new_figure
from certus.typing import Array, Axes
from certus.wording import number, shorten

#: Colours of contributions that raise and lower the prediction, and of the line.
UP, DOWN, LINE = "#c8553d", "#30638e", "#7a7a7a"
#: Columns that are shown by themselves.
SHOWN = 12


def draw(
    found: Any, ax: Axes | None, kind: str, row: int, column: Any, output: int
) -> Any:
    """Draw one of the figures and return the axes."""
    if kind == "waterfall":
        return waterfall(found, ax, row, output)
    if kind == "beeswarm":
        return beeswarm(found, ax, output)
    if kind in ("dependence", "shape"):
        return dependence(found, ax, column, output, line=kind == "shape")
    raise ValueError(
        "kind must be one of 'waterfall', 'beeswarm', 'dependence', 'shape', got "
        f"{kind!r}."
    )


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return number(value) if np.isfinite(value) else "missing"
    return "missing" if value is None else shorten(str(value), 18)


def waterfall(found: Any, ax: Any, row: int, output: int) -> Any:
    """From the base value to the prediction of one row, column by column."""
    part = found.values[row, :, output]
    order = np.argsort(-np.abs(part), kind="stable")
    shown, rest = order[:SHOWN], order[SHOWN:]
    if len(rest) == 1:
        shown, rest = order, order[:0]
    names = [
        f"{shorten(found.columns[j], 24)} = {_cell(found.cells[j][row])}" for j in shown
    ]
    sizes = [float(part[j]) for j in shown]
    if len(rest):
        names.append(f"{len(rest)} other columns")
        sizes.append(float(part[rest].sum()))
    if ax is None:
        ax = new_figure(7.0, 1.4 + 0.34 * len(names)).subplots()
    base, end = float(found.base[output]), float(found.predictions[row, output])
    # The largest contribution is at the top and ends at the prediction.
    ends = end - np.concatenate([[0.0], np.cumsum(sizes)])
    for place, (size, stop) in enumerate(zip(sizes, ends)):
        ax.barh(place, -size, left=stop, color=UP if size > 0 else DOWN, height=0.62)
        beyond = max(stop, stop - size)
        ax.annotate(
            f"{'+' if size > 0 else '−' if size < 0 else ''}{number(abs(size))}",
            (beyond, place), (4, 0), textcoords="offset points", va="center",
            fontsize=8.5,
        )  # fmt: skip
        if place:
            ax.plot([stop, stop], [place - 0.69, place + 0.31], color=LINE, lw=0.8)
    ax.axvline(base, color=LINE, lw=0.8, ls=":")
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.use_sticky_edges = False
    ax.margins(x=0.12)
    ax.set_title(f"base value {number(base)} → prediction {number(end)}", fontsize=10)
    return _finish(ax, _unit(found, output))


def beeswarm(found: Any, ax: Axes | None, output: int) -> Any:
    """All rows, a line of points for each column; colour is the column's value."""
    part = found.values[:, :, output]
    order = np.argsort(-np.abs(part).mean(axis=0), kind="stable")[:SHOWN]
    if ax is None:
        ax = new_figure(7.0, 1.4 + 0.42 * len(order)).subplots()
    points = None
    for place, j in enumerate(order):
        at = _spread(part[:, j])
        colour = _ranks(found.cells[j])
        if colour is None:
            ax.scatter(part[:, j], place + at, s=9, color="#9a9a9a", lw=0)
        else:
            points = ax.scatter(
                *(part[:, j], place + at),
                s=9, c=colour, cmap="viridis", vmin=0, vmax=1, lw=0,
            )  # fmt: skip
    ax.axvline(0.0, color=LINE, lw=0.8)
    ax.set_yticks(range(len(order)), [shorten(found.columns[j], 24) for j in order])
    ax.set_ylim(len(order) - 0.4, -0.6)
    if points is not None:
        bar = ax.figure.colorbar(points, ax=ax, ticks=[0, 1], aspect=30, pad=0.02)
        bar.ax.set_yticklabels(["low", "high"])
        bar.set_label("value of the column (grey: not a number)", labelpad=-6)
        bar.outline.set_visible(False)
    return _finish(ax, f"contribution to the {_unit(found, output)}")


def dependence(
    found: Any, ax: Axes | None, column: Any, output: int, line: bool
) -> Any:
    """The value of one column against its contribution, a point for each row."""
    name = str(column) if column is not None else found.top(output=output)[0]
    if name not in found.columns:
        raise ValueError(f"There is no column {name!r} among those of the rows.")
    j = found.columns.index(name)
    part, values = found.values[:, j, output], found.cells[j]
    if ax is None:
        ax = new_figure(6.0, 4.0).subplots()
    x = _numbers(values)
    if x is None:
        labels = list(dict.fromkeys(_cell(value) for value in values))
        codes = np.array([labels.index(_cell(value)) for value in values])
        ax.scatter(codes + 0.5 * _spread(part), part, s=12, color=UP, alpha=0.6, lw=0)
        means = [part[codes == c].mean() for c in range(len(labels))]
        ax.hlines(means, *(np.arange(len(labels)) + np.array([[-0.3], [0.3]])),
                  color="#222222" if not line else DOWN)  # fmt: skip
        ax.set_xticks(range(len(labels)), labels, rotation=30 if len(labels) > 4 else 0)
    else:
        ax.scatter(x, part, s=12, color=UP, alpha=0.25 if line else 0.6, lw=0)
        if line:
            ax.plot(*_means(x, part), color=DOWN, lw=1.6)
    ax.axhline(0.0, color=LINE, lw=0.8)
    ax.set_xlabel(shorten(name))
    ax.set_ylabel(f"contribution to the {_unit(found, output)}")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _means(x: Array, part: Array) -> tuple[list[float], list[float]]:
    """Mean value and mean contribution in up to 20 groups of neighbouring values."""
    known = np.isfinite(x)
    x, part = x[known], part[known]
    edges = np.unique(np.quantile(x, np.linspace(0, 1, 21))) if len(x) else x
    groups = np.searchsorted(edges[1:-1], x, side="right")
    seen = np.unique(groups)
    return (
        [float(x[groups == g].mean()) for g in seen],
        [float(part[groups == g].mean()) for g in seen],
    )


def _unit(found: Any, output: int) -> str:
    unit = str(found.unit)
    return unit if len(found.outputs) == 1 else f"{unit} of {found.outputs[output]}"


def _finish(ax: Axes, label: str) -> Any:
    ax.set_xlabel(label)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    return ax


def _numbers(values: Any) -> Array | None:
    """A column as numbers, NaN where it is missing; None if it has texts."""
    if any(isinstance(v, str | bytes) for v in values):
        return None
    try:
        return np.array([np.nan if v is None else float(v) for v in values])
    except (TypeError, ValueError):
        return None


def _ranks(values: Any) -> Array | None:
    """Places of the numbers among the 5 % to 95 % range of the column, in [0, 1]."""
    x = _numbers(values)
    if x is None or not np.isfinite(x).any():
        return None
    low, high = np.nanquantile(x, [0.05, 0.95])
    if low == high:
        low, high = np.nanmin(x), np.nanmax(x)
    share = np.full(len(x), 0.5) if low == high else (x - low) / (high - low)
    return np.clip(np.nan_to_num(share, nan=0.5), 0, 1)


def _spread(x: Array) -> Array:
    """Offsets that keep near points apart, as wide as there are points."""
    if len(x) < 2 or x.min() == x.max():
        return np.zeros(len(x)) if len(x) < 2 else np.linspace(-0.3, 0.3, len(x))
    bins = np.minimum((60 * (x - x.min()) / (x.max() - x.min())).astype(int), 59)
    counts, seen = np.bincount(bins), np.zeros(60, dtype=int)
    most, found = max(int(counts.max()), 8), np.zeros(len(x))
    for i, b in enumerate(bins):
        sign = 1 if seen[b] % 2 else -1
        found[i] = sign * ((seen[b] + 1) // 2) * 0.76 / most
        seen[b] += 1
    return found
