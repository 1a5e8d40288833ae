"""The figures of a report, drawn from their numbers as inline SVG.

Each is drawn twice, for a page and for a phone, at the size it will have there; a style
sheet shows one of them. Marks differ in shape as well as in colour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from certus.report.document import Figure
from certus.report.svg import (
    Plot,
    Scale,
    fit_text,
    nice_ticks,
    text_width,
    tick_labels,
)
from certus.wording import number

__all__ = ["draw", "table"]

WIDE, NARROW = 680, 340
Data = Mapping[str, Any]


def draw(figure: Figure) -> str:
    """Both drawings of a figure, one after the other."""
    paint = _PAINTERS[figure.kind][0]
    said = f"{figure.answer} {figure.caption}"
    drawings = [
        paint(figure.data, width).render(figure.kind, figure.question, said, style)
        for style, width in (("wide", WIDE), ("narrow", NARROW))
    ]
    return "".join(drawings)


def table(figure: Figure) -> tuple[list[str], list[list[str]]]:
    """The numbers that are drawn: a head and rows of text."""
    return _PAINTERS[figure.kind][1](figure.data)


# ---- curves --------------------------------------------------------------------


def _curve(data: Data, width: float, x: Scale, ticks: list[float], name: str) -> Plot:
    """Held-out and training error with their deviations, along x."""
    held, seen = data["held_out"], data["training"]
    xs = data["sizes"] if "sizes" in data else data["values"]
    level = data.get("constant")
    ends = [m + s for m, s in zip(held["mean"], held["sd"])]
    starts = [m - s for m, s in zip(held["mean"], held["sd"])]
    values = [*ends, *starts, *seen["mean"], *([] if level is None else [level])]
    low = max(0.0, min(values)) if min(values) >= -max(values) else min(values)
    marks = nice_ticks(low, max(values), 6)
    percent = _is_share(data)
    left = 10 + max(map(text_width, tick_labels(marks, percent)))
    plot = Plot(width, 330, x, Scale(marks[0], marks[-1]), (48, 18, 46, left))
    plot.y_axis(marks, tick_labels(marks, percent), _unit(data, width))
    plot.x_axis(ticks, [_amount(tick) for tick in ticks], name)
    floor = [max(marks[0], value) for value in starts]
    plot.band(xs, floor, [min(marks[-1], value) for value in ends], "first")
    entries = [("first", "dot", "held out"), ("second", "dot", "training")]
    if level is not None:
        at = plot.y(level)
        plot.rule((plot.left, at), (plot.wall, at), "line third")
        entries.append(("third", "", data.get("always", "a constant")))
    plot.line(xs, seen["mean"], "second")
    plot.dots(xs, seen["mean"], "second", 3)
    plot.line(xs, held["mean"], "first")
    plot.dots(xs, held["mean"], "first")
    plot.legend(entries[: 3 if width > NARROW else 2], 34)
    if level is not None and width <= NARROW:
        at = plot.y(level)
        at += -5 if at - 20 > plot.top else 15  # not into the names of the lines
        plot.text(plot.wall, at, entries[-1][2], "tick halo", "end")
    return plot


def _unit(data: Data, width: float) -> str:
    """The metric, and the units of the target where it has them."""
    metric = data.get("metric", "error")
    _, found, target = data["measure"].partition("in units of ")
    if not found:
        return str(fit_text(metric, width))
    start = f"{metric}, in units of "
    return start + fit_text(target, max(70.0, width - text_width(start)))


def _is_share(data: Data) -> bool:
    """Whether values are shares; reports of earlier releases told it by the labels."""
    return bool(data.get("percent", data.get("labels", False)))


def _amount(value: float) -> str:
    return number(value, 3) if value < 1000 else f"{value:,.0f}"


def _learning(data: Data, width: float) -> Plot:
    sizes = data["sizes"]
    x = Scale(sizes[0] / 1.1, sizes[-1] * 1.1, log=True)
    name = "training rows (each step doubles their number)"
    if text_width(name) > width - 60:
        name = "training rows, doubled at each step"
    return _curve(data, width, x, sizes, name)


def _validation(data: Data, width: float) -> Plot:
    values = data["values"]
    x = Scale(values[0] / 1.4, values[-1] * 1.4, log=True)
    name = {"n_neighbors": "number of neighbours"}.get(
        data["parameter"], f"{data['parameter']} (each step is a factor of ten)"
    )
    plot = _curve(data, width, x, values, name)
    at = plot.x(data["used"])
    plot.rule((at, plot.top), (at, plot.floor), "mark")
    plot.text(at + 5, plot.top + 12, "used", "tick halo")
    return plot


def _curve_table(data: Data) -> tuple[list[str], list[list[str]]]:
    first = data.get("parameter", "rows")
    xs = data["sizes"] if "sizes" in data else data["values"]
    held, seen = data["held_out"], data["training"]
    show = _share if _is_share(data) else number
    rows = [
        [_amount(x), f"{show(m)} ± {show(s)}", f"{show(t)} ± {show(u)}"]
        for x, m, s, t, u in zip(xs, held["mean"], held["sd"], seen["mean"], seen["sd"])
    ]
    return [first, "held out", "training"], rows


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


# ---- predictions ---------------------------------------------------------------


def _calibration(data: Data, width: float) -> Plot:
    wide = width > NARROW
    # The range where the points are: with a rare label all of them are near 0.
    ends = [*data["predicted"], *data["low"], *data["high"]]
    ticks = [t for t in nice_ticks(min(ends), max(ends), 6) if -1e-9 <= t <= 1 + 1e-9]
    low, high = min(*ends, *ticks), max(*ends, *ticks)
    unit = Scale(low, high)
    side = 440 if wide else width
    labels = tick_labels(ticks, percent=True)
    left = max(56.0, 14 + max(map(text_width, labels)))
    plot = Plot(side, side * 0.86, unit, unit, (30, 18, 46, left))
    plot.y_axis(ticks, labels, f"how often {fit_text(data['label'], 170)} was true")
    plot.x_axis(ticks, labels, "probability given")
    begin, end = (plot.x(low), plot.y(low)), (plot.x(high), plot.y(high))
    plot.rule(begin, end, "line third")
    for x, least, most in zip(data["predicted"], data["low"], data["high"]):
        plot.rule((plot.x(x), plot.y(least)), (plot.x(x), plot.y(most)), "bar first")
    plot.line(data["predicted"], data["observed"], "first")
    plot.dots(data["predicted"], data["observed"], "first", 4)
    return plot


def _calibration_table(data: Data) -> tuple[list[str], list[list[str]]]:
    rows = [
        [f"{count:,}", _share(p), _share(o), f"{_share(low)} to {_share(high)}"]
        for count, p, o, low, high in zip(
            *(data[k] for k in ("counts", "predicted", "observed", "low", "high"))
        )
    ]
    return ["rows", "probability given", "came true", "95 % interval"], rows


def _confusion(data: Data, width: float) -> Plot:
    counts, names = data["counts"], data["labels"]
    k = len(names)
    names = [fit_text(name, width / 4) for name in names]
    left = 10 + max(map(text_width, names))
    cell = min(96.0, (width - left - 4) / k)
    tall = min(cell, 56.0)
    wide = left + k * cell + 4
    # The name above starts at the left edge and may be wider than a small matrix.
    size = max(wide, 270), 48 + k * tall
    plot = Plot(*size, Scale(0, 1), Scale(0, 1), (44, 4, 0, left))
    plot.text(0, 13, "down: true label · across: predicted label", "name")
    for j, name in enumerate(names):
        label = fit_text(name, cell - 2)
        plot.text(left + (j + 0.5) * cell, 36, label, "tick", "middle")
    for i, row in enumerate(counts):
        total = sum(row)
        y = 44 + i * tall
        plot.text(left - 8, y + tall / 2 + 4, names[i], "tick", "end")
        for j, count in enumerate(row):
            share = count / total if total else 0.0
            style = "cell right" if i == j else "cell wrong"
            if i == j == data.get("others"):
                style = "cell"  # labels put together: right and wrong
            depth = f' fill-opacity="{0.08 + 0.42 * share if count else 0:.3f}"'
            plot.box(left + j * cell + 1, y + 1, cell - 2, tall - 2, style, depth)
            middle = left + (j + 0.5) * cell
            fits = cell >= 52 and count > 0
            lift = -2 if fits else 4
            weight = "count" if count else "tick"
            plot.text(middle, y + tall / 2 + lift, f"{count:,}", weight, "middle")
            if fits:
                words = f"{number(100 * share, 2)} %"
                plot.text(middle, y + tall / 2 + 14, words, "part", "middle")
    return plot


def _confusion_table(data: Data) -> tuple[list[str], list[list[str]]]:
    rows = [
        [name, *(f"{count:,}" for count in row)]
        for name, row in zip(data["labels"], data["counts"])
    ]
    return ["true \\ predicted", *data["labels"]], rows


def _residuals(data: Data, width: float) -> Plot:
    xs, ys = data["predicted"], data["residual"]
    low, high = data["quantiles"][0], data["quantiles"][-1]
    across = nice_ticks(min(xs), max(xs), 7 if width > NARROW else 4)
    ticks = nice_ticks(min([*ys, low]), max([*ys, high]), 7)
    labels = tick_labels(ticks)
    left = 10 + max(map(text_width, labels))
    x, y = Scale(across[0], across[-1]), Scale(ticks[0], ticks[-1])
    plot = Plot(width, 340, x, y, (30, 18, 46, left))
    target = fit_text(data["target"], width / 3)
    plot.y_axis(ticks, labels, f"{target}: truth − prediction")
    plot.x_axis(across, tick_labels(across), f"predicted {target}")
    plot.dots(xs, ys, "point", 2.5)
    if ticks[0] <= 0 <= ticks[-1]:
        plot.rule((plot.left, plot.y(0)), (plot.wall, plot.y(0)), "axis")
    for value in (low, high):
        plot.rule((plot.left, plot.y(value)), (plot.wall, plot.y(value)), "line third")
    return plot


def _residual_table(data: Data) -> tuple[list[str], list[list[str]]]:
    rows = [
        [f"{100 * level:.0f} %", number(cut)]
        for level, cut in zip(data["levels"], data["quantiles"])
    ]
    return ["share of rows below", "truth − prediction"], rows


# ---- columns -------------------------------------------------------------------


def _bars(data: Data, width: float) -> Plot:
    """Horizontal bars; on a phone each name is above its bar."""
    wide = width > NARROW
    room = 30 if wide else 38
    names = [fit_text(name, width / 3 if wide else width) for name in data["names"]]
    left = 10 + max(map(text_width, names)) if wide else 4
    means = data["mean"]
    sds = data.get("sd") or [0.0] * len(means)
    low = min(0.0, *(m - s for m, s in zip(means, sds)))
    high = max(0.0, *(m + s for m, s in zip(means, sds)))
    across = nice_ticks(low, high, 6 if wide else 4)
    x = Scale(across[0], across[-1])
    percent = "repeats" in data and _is_share(data)
    plot = Plot(width, 58 + room * len(names), x, Scale(0, 1), (8, 20, 50, left))
    for tick in across:
        plot.rule((plot.x(tick), 4), (plot.x(tick), plot.floor), "grid")
    plot.x_axis(across, tick_labels(across, percent), _bar_name(data, width))
    zero = plot.x(0.0)
    for i, (mean, sd) in enumerate(zip(means, sds)):
        y = 8 + i * room + (0 if wide else 18)
        style = "fill first" if mean >= 0 else "fill second"
        plot.box(min(zero, plot.x(mean)), y, abs(plot.x(mean) - zero), 14, style)
        if sd:
            ends = plot.x(mean - sd), plot.x(mean + sd)
            plot.rule((ends[0], y + 7), (ends[1], y + 7), "whisker")
        if wide:
            plot.text(left - 8, y + 11, names[i], "tick", "end")
        else:
            plot.text(left, y - 5, names[i], "tick halo")
    plot.rule((zero, 4), (zero, plot.floor), "axis")
    return plot


def _bar_name(data: Data, width: float) -> str:
    if "repeats" not in data:
        return "coefficient × standard deviation of the column"
    change = data.get("change", "Rise of the error")
    return str(fit_text(change[0].lower() + change[1:], width))


def _bar_table(data: Data) -> tuple[list[str], list[list[str]]]:
    show = _share if "repeats" in data and _is_share(data) else number
    if "repeats" not in data:
        head = ["column", "coefficient × deviation"]
        return head, [[n, number(m)] for n, m in zip(data["names"], data["mean"])]
    rows = [
        [name, f"{show(mean)} ± {show(sd)}"]
        for name, mean, sd in zip(data["names"], data["mean"], data["sd"])
    ]
    change = data.get("change", "Rise of the error")
    return ["column", change[0].lower() + change[1:]], rows


# ---- groups --------------------------------------------------------------------


def _groups(data: Data, width: float) -> Plot:
    """For each metric, a bar and a dot for every group."""
    groups = [fit_text(name, width / 3) for name in data["groups"]]
    left = 12 + max(map(text_width, groups))
    said = list(zip(data["names"], data["verdicts"]))
    # If a name and its verdict do not fit on one line, each gets its own.
    apart = any(text_width(f"{name}: {verdict}") > width for name, verdict in said)
    first = 46 if apart else 30
    block = first + 22 * len(groups)
    ticks = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    size = width, 40 + block * len(data["names"])
    plot = Plot(*size, Scale(0.0, 1.0), Scale(0, 1), (4, 20, 36, left))
    for tick in ticks:
        plot.rule((plot.x(tick), 20), (plot.x(tick), plot.floor), "grid")
    plot.x_axis(ticks, tick_labels(ticks, percent=True), "")
    for i, (name, verdict) in enumerate(said):
        top = 4 + i * block
        lines = [name, verdict] if apart else [f"{name}: {verdict}"]
        for k, line in enumerate(lines):
            plot.text(0, top + 12 + 16 * k, fit_text(line, width), "name halo")
        cells = zip(data["values"][i], data["low"][i], data["high"][i])
        for j, (value, low, high) in enumerate(cells):
            y = top + first + 22 * j
            plot.text(left - 8, y + 4, groups[j], "tick", "end")
            plot.rule((plot.x(low), y), (plot.x(high), y), "bar first")
            if value is not None:
                at = plot.x(value)
                plot.rule((at, y - 6), (at, y + 6), "line first")
    return plot


def _group_table(data: Data) -> tuple[list[str], list[list[str]]]:
    rows = []
    for i, name in enumerate(data["names"]):
        cells = zip(data["groups"], *(data[k][i] for k in _GROUP_CELLS))
        for group, n, value, low, high in cells:
            seen = "–" if value is None else _share(value)
            ends = f"{_share(low)} to {_share(high)}"
            rows.append([name, group, f"{n:,}", seen, ends])
    return ["metric", "group", "rows", "observed", "interval"], rows


# ---- changed rows --------------------------------------------------------------


def _threat(data: Data, width: float) -> Plot:
    """Accuracy against the size of the change: proved, left by attacks, new rows."""
    radii = data["radius"]
    across = nice_ticks(0.0, radii[-1], 6 if width > NARROW else 4)
    ticks = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    x = Scale(0.0, max(radii[-1], across[-1]))
    plot = Plot(width, 330, x, Scale(0.0, 1.0), (48, 18, 46, 56))
    plot.y_axis(ticks, tick_labels(ticks, percent=True), "accuracy")
    plot.x_axis(across, tick_labels(across), f"size of the change ({data['norm']})")
    low = [0.0 for _ in radii] if data["refused"] else data["low"]
    plot.band(radii, low, data["high"], "third")
    entries = [("second", "dot", "left by attacks")]
    if not data["refused"]:
        plot.band(radii, data["lower"], data["upper"], "first")
        plot.line(radii, data["lower"], "first")
        plot.dots(radii, data["lower"], "first")
        entries.insert(0, ("first", "dot", "proved"))
    at = plot.y(data["clean"])
    plot.rule((plot.left, at), (plot.wall, at), "line third")
    plot.text(plot.wall, at - 5, "without changes", "tick halo", "end")
    plot.line(radii, data["upper"], "second")
    plot.dots(radii, data["upper"], "second", 3)
    plot.legend(entries, 34)
    return plot


def _threat_table(data: Data) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            number(radius),
            "–" if data["refused"] and radius else _share(lower),
            _share(upper),
            f"{_share(low)} to {_share(high)}",
        ]
        for radius, lower, upper, low, high in zip(
            *(data[k] for k in ("radius", "lower", "upper", "low", "high"))
        )
    ]
    return [f"{data['norm']} change", "proved", "left by attacks", "new rows"], rows


_GROUP_CELLS = ("sizes", "values", "low", "high")

_Painter = Callable[[Data, float], Plot]
_Tabler = Callable[[Data], tuple[list[str], list[list[str]]]]
_PAINTERS: dict[str, tuple[_Painter, _Tabler]] = {
    "learning": (_learning, _curve_table),
    "validation": (_validation, _curve_table),
    "calibration": (_calibration, _calibration_table),
    "confusion": (_confusion, _confusion_table),
    "residuals": (_residuals, _residual_table),
    "importance": (_bars, _bar_table),
    "coefficients": (_bars, _bar_table),
    "groups": (_groups, _group_table),
    "threat": (_threat, _threat_table),
}
