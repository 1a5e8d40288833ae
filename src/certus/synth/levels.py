"""Columns of any kind as levels in [0, 1], and back.

A column has one quantile function: missing cells come first, then labels by frequency,
or numbers in order. A value that many rows share (a zero, a cap) is a flat piece and
stays exact; between such values the function joins means of a few neighbouring rows,
so that no single row's number is stored. Whole numbers stay whole, decimals keep their
number of digits, and labels their spelling. A plan is a dict of plain values.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import polars as pl

from certus.tables.frame import Column, epoch_days, finite, wall_clock
from certus.tables.plan import ID_NAME
from certus.typing import Array

__all__ = ["decode", "encode", "place_of", "plan_levels", "span_of"]

Plan = dict[str, Any]

#: Values with this share of the rows are atoms; so are all values of a column with few.
_ATOM, _FEW = 0.02, 20
#: Rows whose mean is a knot, at least; and knots, at most.
_BLOCK, _KNOTS = 5, 128
#: Labels of fewer rows share a cell.
_RARE = 5
#: Fewest rows in which distinct text is an identifier.
_IDS = 20
_MICROSECONDS = 86_400e6
#: The first day of the year 1 and the last of 9999, in days since 1970.
_DAYS = (-719_162.0, 2_932_896.0)


def plan_levels(column: Column, *, exact: bool = False) -> Plan:
    """Learn the quantile function of a column.

    ``exact`` keeps every value, for models that repeat values of their training rows.
    """
    dtype = "Time" if column.clock else str(column.values.dtype)
    plan: Plan = {"name": column.name, "dtype": dtype}
    plan["kind"] = column.kind
    if column.kind == "empty":
        return plan | {"kind": "empty", "edges": np.array([0.0, 1.0])}
    if _is_identifier(column):
        return plan | {"kind": "identifier", "edges": np.array([0.0, 1.0])}
    if column.kind in ("text", "boolean"):
        return plan | _plan_labels(column.values)
    x = numbers_of(column)
    if column.kind == "date":
        plan["zone"] = getattr(column.values.dtype, "time_zone", None)
    return plan | _plan_numbers(x, exact)


def _is_identifier(column: Column) -> bool:
    known = column.values.drop_nulls()
    n, distinct = len(known), known.n_unique()
    if n < _IDS or column.kind not in ("text", "number") or column.declared:
        return False
    if column.kind == "text":
        return bool(distinct > 0.9 * n)
    whole = known.dtype.is_integer()
    return bool(whole and distinct == n and ID_NAME.fullmatch(column.name))


def numbers_of(column: Column) -> Array:
    """Numbers, or dates in days; gaps as NaN."""
    if column.kind == "date":
        zone = getattr(column.values.dtype, "time_zone", None)
        return np.asarray(epoch_days(wall_clock(column.values, zone)), dtype=float)
    return np.asarray(finite(column.name, column.values), dtype=np.float64)


def _plan_labels(values: pl.Series) -> Plan:
    n, gaps = len(values), values.null_count()
    counts: dict[Any, int] = {}
    for label in values.drop_nulls().to_list():
        counts[label] = counts.get(label, 0) + 1
    labels = sorted(counts, key=lambda label: (-counts[label], str(label)))
    sizes = np.array([gaps, *(counts[label] for label in labels)], dtype=float)
    ends = np.concatenate([[0.0], np.cumsum(sizes) / n])
    ends[-1] = 1.0
    common = int(np.sum(sizes[1:] >= _RARE))
    edges = np.unique(np.concatenate([ends[: 2 + common], [1.0]]))
    return {"labels": labels, "ends": ends, "edges": edges}


def _plan_numbers(x: Array, exact: bool) -> Plan:
    known = np.sort(x[~np.isnan(x)])
    n, gap = len(known), 1.0 - len(known) / len(x)
    values, first, counts = np.unique(known, return_index=True, return_counts=True)
    atom = counts >= max(2.0, _ATOM * n) if len(values) > _FEW else counts > 0
    knots, levels, flats = _knots(known, atom, first, counts, exact)
    levels, flats = gap + (1 - gap) * levels, gap + (1 - gap) * flats
    digits = next((d for d in range(7) if (np.round(known, d) == known).all()), None)
    bins = int(np.clip(round(n ** (1 / 3)), 4, 32))
    return {
        "knots": knots,
        "levels": levels,
        "missing": gap,
        "digits": digits,
        "edges": _cell_edges(flats, gap, bins),
    }


def _knots(
    known: Array, atom: Array, first: Array, counts: Array, exact: bool
) -> tuple[Array, Array, Array]:
    """Knots of the quantile function, their levels, and the ends of flat pieces."""
    n = len(known)
    block = 1 if exact else max(_BLOCK, math.ceil(n / _KNOTS))
    places, heights, flats, start = [], [], [], 0
    stops = [*zip(first[atom].tolist(), counts[atom].tolist()), (n, 0)]
    for at, count in stops:
        for low in range(start, at, block):  # rows between two atoms
            part = known[low : min(at, low + block)]
            if not exact and len(part) < _BLOCK and low > start:
                continue  # too few rows for a knot of their own
            places.append(float(part.mean()))
            heights.append((low + len(part) / 2) / n)
        if count:
            places += [float(known[at])] * 2
            heights += [at / n, (at + count) / n]
            flats += [at / n, (at + count) / n]
        start = at + count
    return np.array(places), np.array(heights), np.array(flats)


def _cell_edges(flats: Array, gap: float, bins: int) -> Array:
    """Ends of cells: each flat piece is one, and the rest is cut evenly."""
    ends = np.unique(np.concatenate([[gap], flats, [1.0]]))
    parts = [np.array([0.0])]
    for low, high in itertools.pairwise(ends):
        flat = np.any((flats[::2] <= low) & (flats[1::2] >= high))
        pieces = 1 if flat else max(1, round(bins * (high - low) / max(1 - gap, 1e-9)))
        parts.append(np.linspace(low, high, pieces + 1))
    edges = np.unique(np.concatenate(parts))
    return edges[np.concatenate([[True], np.diff(edges) > 1e-9])]


def is_smooth(plan: Plan) -> bool:
    """Whether a column has numbers between which others lie, not only single ones."""
    if "knots" not in plan:
        return False
    rises = np.diff(plan["levels"]) > 0, np.diff(plan["knots"]) > 0
    return bool(np.any(rises[0] & rises[1]))


def span_of(plan: Plan, values: Any) -> tuple[Array, Array]:
    """The lowest and highest level of each value; gaps are the missing piece."""
    if plan["kind"] in ("empty", "identifier"):
        return np.zeros(len(values)), np.ones(len(values))
    if "labels" in plan:
        place = {label: i + 1 for i, label in enumerate(plan["labels"])} | {None: 0}
        at = np.array([place.get(cell, 1) for cell in values])
        return plan["ends"][at], plan["ends"][at + 1]
    x = np.asarray(values, dtype=np.float64)
    knots, levels = plan["knots"], plan["levels"]
    left, right = (np.searchsorted(knots, x, side) for side in ("left", "right"))
    low = np.interp(x, knots, levels)
    flat = right - left >= 2
    last = len(knots) - 1
    lowest = np.where(flat, levels[np.minimum(left, last)], low)
    highest = np.where(flat, levels[np.clip(right - 1, 0, last)], low)
    gaps = np.isnan(x)
    return np.where(gaps, 0.0, lowest), np.where(gaps, plan["missing"], highest)


def encode(plan: Plan, column: Column, rng: np.random.Generator) -> Array:
    """A level for each row, at random within a flat piece."""
    if "labels" in plan or plan["kind"] in ("empty", "identifier"):
        low, high = span_of(plan, column.values.to_list())
    else:
        low, high = span_of(plan, numbers_of(column))
    return np.asarray(low + (high - low) * rng.random(len(low)))


def place_of(edges: Array, level: Array) -> Array:
    """The cell of each level."""
    found = np.searchsorted(edges, level, "right") - 1
    return np.clip(found, 0, len(edges) - 2)


def decode(plan: Plan, level: Array) -> pl.Series:
    """Values of a column from levels, in its own type."""
    name, n = plan["name"], len(level)
    if plan["kind"] == "empty":
        return pl.Series(name, [None] * n)
    if plan["kind"] == "identifier":
        rows = np.arange(1, n + 1)
        text = plan["dtype"] == "String"
        return pl.Series(name, [f"row {i}" for i in rows] if text else rows)
    if "labels" in plan:
        cells = [None, *plan["labels"]]
        at = np.clip(
            np.searchsorted(plan["ends"], level, "right") - 1, 0, len(cells) - 1
        )
        dtype = pl.Boolean if plan["kind"] == "boolean" else pl.String
        return pl.Series(name, [cells[i] for i in at], dtype=dtype)
    x = np.interp(level, plan["levels"], plan["knots"])
    if plan["digits"] is not None:
        x = np.round(x, plan["digits"])
    x = np.where(level < plan["missing"], np.nan, x)
    return _typed(pl.Series(name, x, nan_to_null=True), plan)


def _typed(values: pl.Series, plan: Plan) -> pl.Series:
    if plan["kind"] == "date":
        micro = (values.clip(*_DAYS) * _MICROSECONDS).round().cast(pl.Int64)
        stamps = micro.cast(pl.Datetime("us"))
        if plan["dtype"] == "Date":
            return stamps.dt.date()
        zone = plan.get("zone")
        return stamps if zone is None else stamps.dt.replace_time_zone(zone)
    if plan["dtype"] == "Time":
        most = 86_400 * 10**9 - 1
        nano = (values * 60e9).round().cast(pl.Int64).clip(0, most)
        return nano.cast(pl.Time)
    if "Int" in plan["dtype"]:
        return values.round().cast(pl.Int64)
    return values
