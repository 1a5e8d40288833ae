"""Conditions on rows as boxes of levels: values, ranges, and cells that are known."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from certus.synth.levels import Plan, numbers_of, span_of
from certus.tables.errors import TableError, did_you_mean, quoted
from certus.tables.frame import Table
from certus.typing import Array

__all__ = ["box_of", "boxes_of_gaps", "keep_given", "rows_that_meet"]


def box_of(plans: list[Plan], given: Mapping[str, Any]) -> tuple[Array, Array]:
    """The lowest and highest level of each column under the conditions."""
    names = [plan["name"] for plan in plans]
    low, high = np.zeros(len(plans)), np.ones(len(plans))
    for name, wanted in given.items():
        if name not in names:
            hint = did_you_mean(str(name), names)
            raise TableError(
                f'given names "{name}", but there is no such column.{hint}'
            )
        j = names.index(name)
        low[j], high[j] = _levels_of(plans[j], wanted)
    return low, high


def _levels_of(plan: Plan, wanted: Any) -> tuple[float, float]:
    if plan["kind"] in ("empty", "identifier"):
        raise TableError(f'given cannot name "{plan["name"]}", which was not learnt.')
    if "labels" in plan:
        if wanted is not None and wanted not in plan["labels"]:
            known = [str(label) for label in plan["labels"]]
            hint = (
                did_you_mean(str(wanted), known) or f" It has {quoted(known, limit=4)}."
            )
            raise TableError(f'Column "{plan["name"]}" has no value {wanted!r}.{hint}')
        low, high = span_of(plan, [wanted])
        return float(low[0]), float(high[0])
    ends = wanted if isinstance(wanted, tuple | list) else (wanted, wanted)
    if len(ends) != 2:
        raise ValueError(f"a range must be (low, high), got {wanted!r}.")
    values = np.array([_number(plan, end) for end in ends])
    if values[0] > values[1]:
        raise ValueError(f"a range must have low ≤ high, got {wanted!r}.")
    low, high = span_of(plan, values)
    return float(low[0]), float(high[1])


def _number(plan: Plan, value: Any) -> float:
    """A number, or a date in days since 1970."""
    if value is None:
        return float("nan")
    if plan["kind"] == "date":
        if isinstance(value, str):
            value = dt.datetime.fromisoformat(value)
        whole = dt.datetime(value.year, value.month, value.day)
        if isinstance(value, dt.datetime):
            whole = value.replace(tzinfo=None)
        return (whole - dt.datetime(1970, 1, 1)) / dt.timedelta(days=1)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(
            f'Column "{plan["name"]}" holds numbers; given must be a number, got '
            f"{value!r}."
        ) from None


def rows_that_meet(plans: list[Plan], read: Table, given: Mapping[str, Any]) -> Array:
    """Which rows of a table meet the conditions."""
    kept = np.ones(read.height, dtype=bool)
    for plan in plans:
        if plan["name"] not in given:
            continue
        wanted = given[plan["name"]]
        column = next(c for c in read.columns if c.name == plan["name"])
        if wanted is None or column.kind == "empty":
            kept &= column.values.is_null().to_numpy() == (wanted is None)
        elif "labels" in plan:
            kept &= np.array([cell == wanted for cell in column.values.to_list()])
        else:
            ends = wanted if isinstance(wanted, tuple | list) else (wanted, wanted)
            low, high = (_number(plan, end) for end in ends)
            x = numbers_of(column)
            kept &= (x >= low) & (x <= high)
    return kept


def keep_given(
    frame: pl.DataFrame, plans: list[Plan], given: Mapping[str, Any]
) -> pl.DataFrame:
    """Write single values as they were given, and cut ranges."""
    for plan in plans:
        name = plan["name"]
        if name not in given:
            continue
        wanted, dtype = given[name], frame[name].dtype
        if isinstance(wanted, tuple | list):
            if plan["kind"] == "number":
                frame = frame.with_columns(pl.col(name).clip(*wanted).cast(dtype))
            continue
        if isinstance(wanted, str) and plan["kind"] == "date":
            wanted = dt.datetime.fromisoformat(wanted)
        whole = dtype.is_integer() and wanted is not None and wanted != int(wanted)
        value = pl.Series(name, [wanted] * frame.height)
        frame = frame.with_columns(value if whole else value.cast(dtype, strict=False))
    return frame


def boxes_of_gaps(
    plans: list[Plan], read: Table
) -> tuple[Array, Array, Array, dict[str, int]]:
    """Boxes for each row: known cells, and anything but missing for the gaps."""
    names = [plan["name"] for plan in plans]
    have = {column.name: column for column in read.columns}
    lacks = [name for name in names if name not in have]
    more = sorted(set(have) - set(names))
    if lacks or more:
        raise TableError(
            "table must have the columns of the fit; it "
            + (f"lacks {quoted(lacks)}." if lacks else f"also has {quoted(more)}.")
        )
    shape = (read.height, len(plans))
    low, high, gaps = np.zeros(shape), np.ones(shape), np.zeros(shape, dtype=bool)
    for j, plan in enumerate(plans):
        column = have[plan["name"]]
        if plan["kind"] in ("empty", "identifier"):
            continue
        gaps[:, j] = column.values.is_null().to_numpy()
        labels = "labels" in plan
        values: Any = column.values.to_list() if labels else None
        if column.kind == "empty":
            values = [None] * read.height if labels else np.full(read.height, np.nan)
        elif not labels:
            values = numbers_of(column)
        a, b = span_of(plan, values)
        first = float(plan["ends"][1]) if labels else float(plan["missing"])
        low[:, j] = np.where(gaps[:, j], first, a)
        high[:, j] = np.where(gaps[:, j], 1.0, b)
    return low, high, gaps, {name: j for j, name in enumerate(names)}
